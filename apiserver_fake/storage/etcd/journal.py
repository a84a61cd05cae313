"""The journal that several API servers share: each batch is a transaction, and other servers' commits
arrive by a watch.

Every API server holds the whole state in memory, and commits a batch under the condition that it has seen all
batches before it. If another server was faster, the batch is evaluated again on top of that server's changes.
So everything that is decided inside a commit (a version that must match, a name that is free) is decided once
for all servers (S6, S7). A batch whose outcome is unknown is settled before anything is answered: either the
watch shows it, or a batch without changes takes its place, and then it cannot be committed any more. Source:
guarantees 2.4, S1 to S13.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import structlog

from apiserver_fake.storage.etcd.commits import BYTES_MAX, CHANGES_MAX, Commit, ForeignChangeError, Keys, size_of
from apiserver_fake.storage.etcd.keyvalues import (
    CompactedError,
    DeniedError,
    Etcd,
    EtcdError,
    Head,
    NoSpaceError,
    TooLargeError,
    Txn,
)
from apiserver_fake.storage.journal import Base, Journal, JournalError, OvertakenError, Recovered
from apiserver_fake.storage.records import BaseObject, Entry
from services.api.errors import Timeout, Unavailable
from services.runtime.config import EXIT_CONFIG, EXIT_IO

T = TypeVar("T")

OPEN_MAX_S = 20.0
AGAIN_MIN_S, AGAIN_MAX_S = 0.05, 1.0
GRACE_S = 2.0
"""Seconds that etcd may be without an answer before writes are refused: electing a new leader takes less."""
VISIBLE_MAX_S = 5.0
HEALTH_MAX_S = 2.0
"""Seconds that a health check waits for etcd. Source: upstream `storagebackend.DefaultHealthcheckTimeout`."""
COMPACT_AFTER_CHANGES = 2_000
HISTORY_MAX = 200_000
PAGE_KEYS = 500

log = structlog.get_logger()


class EtcdJournal(Journal):
    """The journal of one API server on a shared etcd.

    It keeps three positions in the one order of batches, each as the revision of the head there. `_latest`: the
    newest batch that is known here. `_revision`: the newest batch returned by `append` or `news`, on which the
    writer builds. `_visible`: the newest batch that readers see.
    """

    is_durable = is_shared = True

    def __init__(self, connect: Callable[[], Etcd], prefix: str) -> None:
        """Take the settings; `connect` is called by `open`, inside the running event loop."""
        self._connect, self._keys = connect, Keys(prefix)
        self.changes_max, self.bytes_max = CHANGES_MAX, BYTES_MAX
        self._name = ""
        """No other API server of this etcd has it, nor had it before: batches are recognized by it."""
        self._commits = 0
        self._latest = self._revision = self._visible = 0
        self._latest_rv = self._compacted_rv = 0
        self._seen = 0
        """The revision up to which the watch has given everything."""
        self._news: deque[Commit] = deque()
        self._arrived = asyncio.Event()
        self._notify: Callable[[], None] = lambda: None
        self._history: deque[tuple[int, int]] = deque()
        """(newest version, revision) of the batches since the last compaction, oldest first."""
        self._following: asyncio.Task[None] | None = None
        self._compacting: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[int] | None = None
        self._to_read: asyncio.Task[int] | None = None
        self._checking: asyncio.Task[str] | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._window_start = 0
        self._failure: tuple[float, str] | None = None
        self.conflicts = self.failures = 0

    # -- beginning and end

    async def open(self, new_secret: bytes) -> Recovered:
        """Read the state at the oldest available revision, and all changes since.

        Raises: JournalError when etcd does not answer, or holds keys that are not a mesh's.
        """
        self._etcd = self._connect()
        try:
            secret, is_first = await self._patiently(lambda: self._secret(new_secret))
            self._name = await self._patiently(self._new_name)
            base = await self._patiently(self._base)
            newest = (await self._patiently(lambda: self._etcd.read(self._keys.head))).revision
            self._following = asyncio.create_task(self._follow())
            while self._latest < newest:
                await self._until_news(self._latest)
        except ForeignChangeError as error:
            raise JournalError(str(error), EXIT_CONFIG) from None
        entries = [entry for batch in self.news() for entry in batch]
        self.on_published()
        log.info("etcd.opened", prefix=self._keys.prefix, revision=newest, objects=len(base), changes=len(entries))
        return Recovered(secret, self._compacted_rv, base, entries, is_first_start=is_first)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what etcd answers; it may be starting. Raises: JournalError."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + OPEN_MAX_S
        while True:
            try:
                return await ask()
            except DeniedError as error:
                raise JournalError(f"etcd at {self._etcd} refuses: {error}", EXIT_CONFIG) from None
            except EtcdError as error:
                if loop.time() >= end_s:
                    text = f"etcd at {self._etcd} has not answered for {OPEN_MAX_S:g} s: {error}"
                    raise JournalError(text, EXIT_IO) from None
                log.warning("etcd.unreachable", servers=str(self._etcd), error=str(error))
                await asyncio.sleep(AGAIN_MAX_S)

    async def _secret(self, new_secret: bytes) -> tuple[bytes, bool]:
        key = self._keys.secret
        key_value = await self._etcd.read(key)
        if key_value.value is not None:
            return key_value.value, False
        outcome = await self._etcd.commit(Txn(key, 0, [(key, new_secret)]))
        if outcome.is_committed:
            return new_secret, True
        return await self._secret(new_secret)

    async def _new_name(self) -> str:
        """Return a name that etcd gives away once: servers that were started with one seed have one row of numbers."""
        key = self._keys.servers
        while True:
            before = (await self._etcd.read(key)).revision
            outcome = await self._etcd.commit(Txn(key, before, [(key, b"")]))
            if outcome.is_committed:
                return f"{outcome.revision:x}"

    async def _base(self) -> list[BaseObject]:
        """Read the state at the oldest revision there is."""
        oldest = await self._oldest()
        kept: list[BaseObject] = []
        after, rv, head = b"", 0, 0
        while oldest:
            page = await self._etcd.range(self._keys.all, oldest, after, PAGE_KEYS)
            for key_value in page:
                if key_value.key == self._keys.head:
                    rv, head = self._keys.version_of(key_value.value), key_value.revision
                elif not key_value.key.startswith(self._keys.own):
                    kept.append(BaseObject(*self._keys.object_at(key_value), key_value.value))
            if len(page) < PAGE_KEYS:
                break
            after = page[-1].key
        self._seen, self._latest, self._latest_rv, self._compacted_rv = oldest, head, rv, rv
        return kept

    async def _oldest(self) -> int:
        """Return the revision up to which the history is compacted, 0 when all of it is there."""
        try:
            await self._etcd.range(self._keys.all, 1, limit=1)
        except CompactedError:
            try:
                # Only a watch learns which revision it is.
                async for _ in self._etcd.watch(self._keys.all, 1):
                    return 0
            except CompactedError as error:
                return error.revision
        return 0

    async def close(self) -> None:
        """End the watch and the connections."""
        tasks = [t for t in (self._following, self._compacting, self._reading, self._to_read) if t is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if (etcd := getattr(self, "_etcd", None)) is not None:
            await etcd.close()

    # -- what others commit

    async def follow(self) -> None:
        """Wait for the end of the watch, which only an error causes. Raises: JournalError."""
        assert self._following is not None, "open comes first"
        await asyncio.shield(self._following)

    async def _follow(self) -> None:
        pause_s = AGAIN_MIN_S
        while True:
            try:
                async for events in self._etcd.watch(self._keys.all, self._seen + 1):
                    for commit in self._keys.commits(events):
                        self._take(commit)
                    self._seen = max(self._seen, events[-1].revision)
                    pause_s = AGAIN_MIN_S
            except CompactedError:
                await self._pass_over()
            except EtcdError as error:
                log.info("etcd.watch_ended", error=str(error), seen=self._seen)
                await asyncio.sleep(pause_s)
                pause_s = min(AGAIN_MAX_S, 2 * pause_s)
            except ForeignChangeError as error:
                raise JournalError(str(error), EXIT_CONFIG) from None

    async def _pass_over(self) -> None:
        """Go on behind a compaction if nothing of this mesh is lost by it. Raises: JournalError when there is: only
        the state can be read again, and who watches from a version in between has to list (W11)."""
        try:
            head = await self._etcd.read(self._keys.head)
        except EtcdError as error:
            log.info("etcd.unreachable", error=str(error))
            await asyncio.sleep(AGAIN_MAX_S)
            return
        if head.revision > self._latest:
            raise JournalError(f"etcd was compacted beyond revision {self._seen}, up to which it was read", EXIT_IO)
        self._seen = head.store_revision

    def _take(self, commit: Commit) -> None:
        if commit.revision <= self._latest:
            return
        follows = self._latest_rv + 1
        if commit.entries and (commit.entries[0].rv != follows or commit.rv != commit.entries[-1].rv):
            text = f"etcd revision {commit.revision} has change {commit.entries[0].rv} where {follows} follows"
            raise ForeignChangeError(text)
        self._note(commit.revision, commit.rv)
        self._news.append(commit)
        self._arrived.set()
        self._notify()

    def _note(self, revision: int, rv: int) -> None:
        self._latest, self._latest_rv = revision, rv
        self._history.append((rv, revision))
        if len(self._history) > HISTORY_MAX:
            self._history.popleft()

    def on_news(self, notify: Callable[[], None]) -> None:
        """Register `notify`, which is called whenever `news` has something."""
        self._notify = notify

    def news(self) -> list[list[Entry]]:
        """Return the batches that other servers have committed since the last call."""
        found = [commit.entries for commit in self._news]
        if found:
            self._revision = self._news[-1].revision
            self._news.clear()
        return found

    async def _until_news(self, beyond: int) -> None:
        """Wait until the watch has given a batch above that revision. Raises: JournalError when it has failed."""
        assert self._following is not None, "open comes first"
        while self._latest <= beyond:
            self._arrived.clear()
            arriving = asyncio.ensure_future(self._arrived.wait())
            try:
                await asyncio.wait({arriving, self._following}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                arriving.cancel()
            if self._following.done():
                self._following.result()

    # -- committing

    def size(self, entries: Sequence[Entry]) -> int:
        """Return the approximate bytes that the entries take in a transaction."""
        return size_of(entries)

    async def append(self, entries: Sequence[Entry], window_start: int) -> None:
        """Commit the batch, unless another server has committed a batch that `news` has not returned yet."""
        self._window_start = window_start
        if self._news:
            raise OvertakenError
        if not entries:
            if self._is_beyond((await self._head()).revision):
                await self._until_news(self._revision)
                raise OvertakenError
            return
        self._commits += 1
        name, rv, before = f"{self._name}/{self._commits}", entries[-1].rv, entries[0].rv - 1
        try:
            outcome = await self._etcd.commit(self._keys.txn(name, rv, entries, self._revision))
        except TooLargeError as error:
            self._shrink(entries, error)
            raise OvertakenError from None
        except NoSpaceError as error:
            # Answered, so nothing of it is on its way any more; but it may have been the last that fitted.
            if not self._is_beyond((await self._head()).revision):
                raise OSError(errno.ENOSPC, str(error)) from None
            await self._decide(name)
        except EtcdError as error:
            self._on_failure(error)
            await self._settle(name, before)
        else:
            self._failure = None
            if outcome.is_committed:
                self._own(outcome.revision, rv)
            else:
                self._is_beyond(outcome.revision)
                await self._decide(name)

    def _own(self, revision: int, rv: int) -> None:
        """Note a batch of this server. The watch may have been faster than the answer."""
        self._revision = revision
        if self._news and self._news[0].revision == revision:
            self._news.popleft()
        elif revision > self._latest:
            self._note(revision, rv)

    def _is_beyond(self, head: int) -> bool:
        """Whether the head is further on than this server has built. Raises: JournalError when it has gone back: a
        backup was restored, or it is another etcd."""
        if head < self._revision:
            text = f"the head in etcd is of revision {head}, but {self._revision} was there before: was it restored?"
            raise JournalError(text, EXIT_IO)
        return head > self._revision

    async def _decide(self, name: str) -> None:
        """Return if the first batch after `_revision` is that one. Raises: OvertakenError when it is another: that
        one's condition does not hold any more."""
        await self._until_news(self._revision)
        first = self._news[0]
        if first.id != name:
            self.conflicts += 1
            raise OvertakenError
        self._own(first.revision, first.rv)

    async def _settle(self, name: str, rv: int) -> None:
        """Find out what became of a batch that was not answered, for as long as it takes. Raises: OvertakenError when
        it was not committed; then it never will be."""
        pause_s = AGAIN_MIN_S
        while not self._news:
            try:
                fence = await self._etcd.commit(self._keys.txn(f"{name}/none", rv, (), self._revision))
            except EtcdError as error:
                self._on_failure(error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._until_news(self._revision)
                pause_s = min(AGAIN_MAX_S, 2 * pause_s)
                continue
            self._failure = None
            if fence.is_committed:
                self._own(fence.revision, rv)
                raise OvertakenError
            if self._is_beyond(fence.revision):
                break
        self._failure = None
        await self._decide(name)

    def _shrink(self, entries: Sequence[Entry], error: TooLargeError) -> None:
        """Take less at a time: this etcd was configured to take less than by default."""
        if "operations" in str(error):
            self.changes_max = max(1, min(self.changes_max, len(entries)) // 2)
        else:
            self.bytes_max = min(self.bytes_max, size_of(entries)) // 2
        log.warning("etcd.takes_less", error=str(error), changes_max=self.changes_max, bytes_max=self.bytes_max)

    async def probe(self) -> None:
        """Try a batch without changes. Raises: OSError while the alarm is on."""
        try:
            fence = await self._etcd.commit(self._keys.txn(f"{self._name}/probe", self._latest_rv, (), self._revision))
        except EtcdError as error:
            raise OSError(errno.ENOSPC, str(error)) from None
        if fence.is_committed:
            self._own(fence.revision, self._latest_rv)

    async def fold(self, base: Base) -> None:
        """Compact etcd's history that has left the window; not too often."""
        is_busy = self._compacting is not None and not self._compacting.done()
        if is_busy or self._window_start - self._compacted_rv < COMPACT_AFTER_CHANGES:
            return
        upto = 0
        while self._history and self._history[0][0] <= self._window_start:
            self._compacted_rv, upto = self._history.popleft()
        if upto:
            self._compacting = asyncio.create_task(self._compact(upto))

    async def _compact(self, revision: int) -> None:
        try:
            await self._etcd.compact(revision)
        except EtcdError as error:
            log.info("etcd.not_compacted", revision=revision, error=str(error))

    # -- reading

    @property
    def unavailable(self) -> str:
        """The reason why nothing can be written at present; empty if writes are possible."""
        if self._failure is None or asyncio.get_running_loop().time() - self._failure[0] < GRACE_S:
            return ""
        return self._failure[1]

    def _on_failure(self, error: EtcdError) -> None:
        self.failures += 1
        if self._failure is None:
            self._failure = (asyncio.get_running_loop().time(), str(error))
            log.warning("etcd.unreachable", error=str(error))

    async def _head(self) -> Head:
        """Return the head as all of etcd agrees on it, however long that takes."""
        while True:
            try:
                head = await self._etcd.read(self._keys.head)
            except EtcdError as error:
                self._on_failure(error)
                await asyncio.sleep(AGAIN_MAX_S)
            else:
                self._failure = None
                return head

    def on_published(self) -> None:
        """Wake the tasks that wait for a batch that is visible now."""
        self._visible = self._revision
        for revision, future in self._waiting:
            if revision <= self._visible and not future.done():
                future.set_result(None)

    async def check(self) -> str:
        """Read from etcd itself, for at most 2 s. Concurrent callers share one answer: checks need no credentials."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._ask())
        return await asyncio.shield(self._checking)

    async def _ask(self) -> str:
        try:
            async with asyncio.timeout(HEALTH_MAX_S):
                await self._etcd.read(self._keys.head)
        except EtcdError as error:
            return f"error getting data from etcd: {error}"
        except TimeoutError:
            return "error getting data from etcd: context deadline exceeded"
        return ""

    async def confirm(self) -> None:
        """Wait until readers see everything that was committed before the call. Concurrent callers share one read
        of the head.

        Raises: Timeout, Unavailable (S5, S13).
        """
        if self._to_read is None:
            self._to_read = asyncio.create_task(self._read_after(self._reading))
        try:
            revision = await asyncio.shield(self._to_read)
        except EtcdError as error:
            if "timed out" in str(error):
                raise Timeout(str(error), retry_after_s=1) from None
            raise Unavailable(str(error), retry_after_s=1) from None
        if revision <= self._visible:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, future))
        try:
            async with asyncio.timeout(VISIBLE_MAX_S):
                await future
        except TimeoutError:
            raise Timeout("etcdserver: request timed out", retry_after_s=1) from None
        finally:
            self._waiting = [(r, f) for r, f in self._waiting if f is not future]

    async def _read_after(self, before: "asyncio.Task[int] | None") -> int:
        if before is not None:
            await asyncio.wait({before})
        # Whoever asks from here on is not served by this read: it may have been answered before.
        self._reading, self._to_read = self._to_read, None
        return (await self._etcd.read(self._keys.head)).revision
