"""The one task that commits: it takes operations and answers them, in one order (P1, S5).

A handler submits an operation and awaits a shielded future, so a cancelled handler cannot tear a commit. The
writer evaluates operations against visible plus staged state, makes the batch durable, publishes it, and only
then answers: everything in an answer is durable (S1, S2).
"""

import asyncio
import errno
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from apiserver_fake.storage.journal import Journal, JournalError, OvertakenError
from apiserver_fake.storage.memory import end_for_memory
from apiserver_fake.storage.records import UNNAMED, BaseObject, Cause, Change, Entry, ReadOnly, entry_of
from apiserver_fake.storage.store import WINDOW_BYTES_MAX, Gap, Staged, Store, changes_of
from services.api.errors import ApiError, Conflict, RequestEntityTooLarge, Timeout, TooManyRequests, Unavailable
from services.api.meta import Resource
from services.api.seams import Clock
from services.api.wire import Response
from services.runtime.config import EXIT_CONFIG, EXIT_IO
from services.runtime.watchdog import stack_of

_log = structlog.get_logger()

BATCH_CHANGES = 256
BATCH_BYTES = 1 << 19
"""Half of a watcher's queue: one batch alone must not cut a watcher that keeps up."""
BATCH_OPERATIONS = 1_024
QUEUE_MAX = 2_000
QUEUE_BYTES_MAX = 64 << 20
QUEUE_RESERVED = 400
"""Queue places reserved for the mesh's own components, so that a flood of users' writes stops no heartbeat."""
ANSWERS_S = 300.0
ANSWERS_MAX = 10_000
OVERDUE_CHECK_S = 1.0
PROBE_PERIOD_S = 1.0
"""Seconds between probes of a full disk for space."""

_COMPONENTS = ("system:node:", "system:kube-scheduler", "system:controller:")


def refusal(error: ApiError) -> Response:
    """Return a refusal as a Response."""
    return Response(
        code=error.code, body=msgspec.json.encode(error.status()), warnings=error.warnings, audit=error.audit
    )


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request id. `at_s`: monotonic time of the answer.

    `resource` is not empty for an answer whose body is that of the change of this kind with the answer's version.
    """

    fingerprint: bytes
    response: Response
    at_s: float
    resource: str = ""


class AnswerTable:
    """Answers by `(identity, request id)` for 5 minutes and the last 10,000 mutations (S9).

    A body that the window of changes has is not held here, too. Before a change leaves the window, `hold` takes the
    bodies of the answers that are still kept.
    """

    def __init__(
        self,
        ttl_s: float = ANSWERS_S,
        entries_max: int = ANSWERS_MAX,
        body_of: Callable[[str, int], bytes] | None = None,
    ) -> None:
        """`body_of`: returns the body of a kind's change at a version in the window; None: bodies are held here."""
        self._ttl_s, self._max, self._body_of = ttl_s, entries_max, body_of
        self.kept: OrderedDict[tuple[str, str], Answer] = OrderedDict()
        """The answers, oldest first; those whose bodies the window has are without them."""
        self._lent: deque[tuple[int, tuple[str, str]]] = deque()
        """The versions of answers without a body, in their order, and their keys."""

    def find(self, key: tuple[str, str], now_s: float) -> Answer | None:
        """Return the earlier answer to that request, if it is still kept."""
        answer = self.kept.get(key)
        if answer is None or now_s - answer.at_s > self._ttl_s:
            return None
        return self._whole(answer) if answer.resource else answer

    def _whole(self, answer: Answer) -> Answer:
        assert self._body_of is not None
        body = self._body_of(answer.resource, answer.response.rv)
        return Answer(answer.fingerprint, msgspec.structs.replace(answer.response, body=body), answer.at_s)

    def keep(self, key: tuple[str, str], answer: Answer) -> None:
        """Keep an answer; drop those that are too old or too many."""
        if answer.resource and self._body_of is not None:
            response = answer.response
            self._lent.append((response.rv, key))
            response = msgspec.structs.replace(response, body=b"")
            answer = Answer(answer.fingerprint, response, answer.at_s, answer.resource)
        self.kept[key] = answer
        self.kept.move_to_end(key)
        while self.kept:
            first = next(iter(self.kept.values()))
            if len(self.kept) <= self._max and answer.at_s - first.at_s <= self._ttl_s:
                return
            oldest, _ = self.kept.popitem(last=False)
            if self._lent and self._lent[0][1] == oldest:
                self._lent.popleft()

    def hold(self, rv: int) -> None:
        """Take the bodies of kept answers up to a version, because the window is about to lose them."""
        lent = self._lent
        while lent and lent[0][0] <= rv:
            version, key = lent.popleft()
            answer = self.kept.get(key)
            if answer is not None and answer.resource and answer.response.rv == version:
                self.kept[key] = self._whole(answer)


log = structlog.get_logger()


@dataclass(eq=False)
class Operation:
    """One write to commit. `plan` stages its changes and returns the answer, or raises ApiError.

    `deadline_s`: monotonic; the operation has no effect if the writer reaches it later (S8).
    """

    plan: Callable[[Staged], Response]
    done: asyncio.Future[Response]
    deadline_s: float
    on_response: Callable[[Response], None] | None = None
    """Called with the answer before its caller gets it."""
    identity: str = ""
    request_id: str = ""
    fingerprint: bytes = b""
    size: int = 0
    cause: Cause = UNNAMED
    again: Callable[[Staged], Response] | None = None
    """A fresh plan for a second evaluation, if another server commits first: a plan may have modified its input."""


@dataclass
class _Batch:
    """Operations evaluated together. `entries` is parallel to `staged.changes`."""

    staged: Staged
    answered: list[tuple[Operation, Response]] = field(default_factory=list)
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    size: int = 0
    """Bytes of the entries, as the journal counts them."""


class Writer:
    """Commits operations one batch at a time, and publishes other servers' commits between two batches."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        clock: Clock,
        publish: Callable[[Sequence[Change]], None],
        publish_news: Callable[[Sequence[Change]], None] | None = None,
        resources: Callable[[], Mapping[str, Resource]] = dict,
    ) -> None:
        """Take the parts. `publish_news`: publishes changes that another server has committed; None: `publish`
        does.

        `resources`: the kinds by wire name, for those changes.
        """
        self._store, self._journal, self._clock, self._publish = store, journal, clock, publish
        self._publish_others = publish_news or publish
        self._resources = resources
        self._is_shared = journal.is_shared
        self._has_news = False
        journal.on_news(self._note_news)
        self._queue: deque[Operation] = deque()
        self._queue_bytes = 0
        self._pending: dict[Operation, None] = {}
        self._has_work = asyncio.Event()
        self.answers = AnswerTable(body_of=store.body_at)
        store.on_leaving(self.answers.hold)
        self.is_open = False
        self.read_only: ReadOnly | None = None
        self.batches = self.failures = 0

    @property
    def queue_length(self) -> int:
        """Number of operations that wait."""
        return len(self._queue)

    def _note_news(self) -> None:
        self._has_news = True
        self._has_work.set()

    def submit(self, operation: Operation) -> asyncio.Future[Response]:
        """Enqueue the write; it runs even if its caller is cancelled meanwhile.

        Raises: Unavailable (not open, read-only, etcd unreachable), TooManyRequests (2,000 waiting, or 64 MiB).
        """
        if not self.is_open:
            raise Unavailable("the API server is not ready", reason="NotReady", retry_after_s=1)
        if self.read_only is not None:
            raise Unavailable("the store is full and read-only", reason="StoreReadOnly", retry_after_s=5)
        if self._is_shared and (why := self._journal.unavailable):
            raise Unavailable(why, retry_after_s=1)
        if self._store.window_bytes > WINDOW_BYTES_MAX and self._store.is_window_full:
            raise Unavailable("the window of changes is full", reason="WindowFull", retry_after_s=5)
        most = QUEUE_MAX if operation.identity.startswith(_COMPONENTS) else QUEUE_MAX - QUEUE_RESERVED
        if len(self._queue) >= most or self._queue_bytes > QUEUE_BYTES_MAX:
            raise TooManyRequests(f"{len(self._queue)} writes are waiting", retry_after_s=1)
        self._queue.append(operation)
        self._queue_bytes += operation.size
        self._pending[operation] = None
        self._has_work.set()
        return operation.done

    def find_answer(self, identity: str, request_id: str, fingerprint: bytes) -> Response | None:
        """Return the earlier answer to this same request; None for another body, which is another request (S9)."""
        if not request_id or (identity, request_id) not in self.answers.kept:
            return None
        known = self.answers.find((identity, request_id), self._clock.now())
        return known.response if known is not None and known.fingerprint == fingerprint else None

    async def run(self) -> None:
        """Commit until cancelled. Raises: JournalError (74) when a write or sync failed permanently."""
        committing = asyncio.current_task()
        assert committing is not None
        async with asyncio.TaskGroup() as group:
            group.create_task(self._answer_overdue(committing))
            while True:
                if not self._queue and not self._has_news:
                    self._has_work.clear()
                    await self._has_work.wait()
                if self._has_news:
                    self._publish_news()
                if self._queue:
                    await self._commit(self._evaluate())
                # Requests that arrived meanwhile join the next batch.
                await asyncio.sleep(0)

    def _publish_news(self) -> None:
        """Publish what others have committed, in the way own batches are. Raises: JournalError when it does not fit."""
        self._has_news = False
        now_s = self._clock.now()
        for entries in self._journal.news():
            if not entries:
                continue
            try:
                changes = changes_of(self._store, entries, self._resources())
            except (Gap, msgspec.MsgspecError) as error:
                raise JournalError(f"what another API server wrote does not fit: {error}", EXIT_CONFIG) from None
            self._store.publish(changes, now_s)
            self._publish_others(changes)
            for key, answer in answers_of(entries, now_s):
                self.answers.keep(key, answer)
        self._journal.on_published()

    async def _answer_overdue(self, committing: "asyncio.Task[None]") -> None:
        """Answer callers whose deadline passed that the outcome is unknown; their operations go on (S8). What they wait
        for is logged (P15). What is not begun while nothing can be written is refused."""
        while True:
            await asyncio.sleep(OVERDUE_CHECK_S)
            if self._is_shared and (why := self._journal.unavailable):
                self._refuse_queued(refusal(Unavailable(why, retry_after_s=1)))
            now_s = self._clock.now()
            overdue = [o for o in self._pending if o.deadline_s < now_s]
            if overdue:
                log.warning("writes.overdue", count=len(overdue), frames=stack_of(committing))
            for operation in overdue:
                self._answer(operation, refusal(Timeout("the write did not finish before its deadline")))

    def _answer(self, operation: Operation, response: Response) -> None:
        self._pending.pop(operation, None)
        if not operation.done.done():
            if operation.on_response is not None:
                operation.on_response(response)
            operation.done.set_result(response)

    def _evaluate(self) -> _Batch:
        """Evaluate what waits, up to one batch's size, in order of arrival. No await (P2)."""
        staged = self._store.stage()
        batch = _Batch(staged)
        queue = self._queue
        while queue and len(staged.changes) < BATCH_CHANGES and staged.bytes < BATCH_BYTES:
            if len(batch.answered) >= BATCH_OPERATIONS:
                break
            operation = queue.popleft()
            mark, listed = len(staged.changes), len(batch.entries)
            response = self._evaluate_one(operation, batch)
            if self._is_shared and (too_much := self._too_much(batch, listed)) is not None:
                staged.rollback(mark)
                del batch.entries[listed:]
                batch.answers.pop((operation.identity, operation.request_id), None)
                if mark:
                    queue.appendleft(operation)  # for the next batch
                    break
                response = too_much
            self._queue_bytes -= operation.size
            batch.answered.append((operation, response))
        return batch

    def _too_much(self, batch: _Batch, listed: int) -> Response | None:
        """Return the refusal of a group that makes the batch larger than the journal takes at once (S4)."""
        journal = self._journal
        size = batch.size + journal.size(batch.entries[listed:])
        if len(batch.entries) <= journal.changes_max and size <= journal.bytes_max:
            batch.size = size
            return None
        count = len(batch.entries) - listed
        text = (
            f"etcdserver: request is too large: {count} changes with {size - batch.size} bytes, at most "
            f"{journal.changes_max} with {journal.bytes_max} can be stored together"
        )
        return refusal(RequestEntityTooLarge(text))

    def _evaluate_one(self, operation: Operation, batch: _Batch) -> Response:
        now_s = self._clock.now()
        key = (operation.identity, operation.request_id)
        if operation.request_id:
            known = batch.answers.get(key)
            if known is None and key in self.answers.kept:
                known = self.answers.find(key, now_s)
            if known is not None:
                if known.fingerprint != operation.fingerprint:
                    text = f'request id "{operation.request_id}" was used for another request'
                    return refusal(Conflict(text, reason="RequestIDReused"))
                return known.response
        if now_s > operation.deadline_s:
            return refusal(Timeout("the deadline passed before the write was begun; nothing was written"))
        staged, resource = batch.staged, ""
        staged.cause = operation.cause
        mark = len(staged.changes)
        try:
            response = operation.plan(staged)
        except ApiError as error:
            staged.rollback(mark)
            response = refusal(error)
        except MemoryError:
            end_for_memory()
        except AssertionError:
            raise  # a broken invariant of the store is fatal (P13)
        except Exception as error:
            # One request that trips over a bug must not take the store away from all others.
            staged.rollback(mark)
            self.failures += 1
            _log.error("write.failed", identity=operation.identity, exc_info=error)
            response = refusal(ApiError(f"internal error: {type(error).__name__}: {error}"))
        else:
            if len(staged.changes) > mark:
                identity, cause = key[0], operation.cause
                if len(staged.changes) - mark > 1:
                    staged.seal(mark)
                    batch.entries += [entry_of(change, identity, cause) for change in staged.changes[mark:-1]]
                last = staged.changes[-1]
                is_own_body = response.body is last.record.body
                if not operation.request_id:
                    batch.entries.append(entry_of(last, identity, cause))
                else:
                    answer = None if is_own_body else response.body
                    batch.entries.append(
                        entry_of(last, identity, cause, key[1], operation.fingerprint, response.code, answer)
                    )
                if is_own_body and response.rv == last.rv:
                    resource = last.record.resource
        # A refusal that may be different next time is not an answer to hold on to.
        if operation.request_id and response.code < 500 and response.code != 429:
            batch.answers[key] = Answer(operation.fingerprint, response, now_s, resource)
        return response

    async def _commit(self, batch: _Batch) -> None:
        changes = batch.staged.changes
        if changes or self._is_shared:
            try:
                await self._journal.append(batch.entries, self._store.window_start)
            except OvertakenError:
                self._put_back(batch)
                return
            except OSError as error:
                await self._survive(error, batch)
                return
        if changes:
            self._store.publish(changes, self._clock.now())
            self._publish(changes)
            self.batches += 1
        if self._is_shared:
            self._journal.on_published()
        for key, answer in batch.answers.items():
            self.answers.keep(key, answer)
        for operation, response in batch.answered:
            self._answer(operation, response)
        if changes:
            try:
                await self._journal.fold(self._base)
            except OSError as error:
                # The commit stands; a full disk takes the next one or refuses it.
                if error.errno != errno.ENOSPC:
                    raise JournalError(f"the journal failed: {error.strerror or error}", EXIT_IO) from error

    def _put_back(self, batch: _Batch) -> None:
        """Put the operations of a batch that is not to be committed back in front of the queue, in their order."""
        for operation, _ in reversed(batch.answered):
            if operation.again is not None:
                operation.plan = operation.again
            self._queue.appendleft(operation)
            self._queue_bytes += operation.size

    def _base(self) -> tuple[int, list[BaseObject]]:
        start = self._store.window_start
        return start, [BaseObject(r.resource, r.rv, r.body) for r in self._store.state_at(start)]

    def _refuse_queued(self, response: Response) -> None:
        while self._queue:
            operation = self._queue.popleft()
            self._queue_bytes -= operation.size
            self._answer(operation, response)

    async def _survive(self, error: OSError, batch: _Batch) -> None:
        """Become read-only until there is space; any other failure is the end. Source: guarantees S16."""
        if error.errno != errno.ENOSPC:
            raise JournalError(f"the journal failed: {error.strerror or error}", EXIT_IO) from error
        self.read_only = ReadOnly(self._clock.wall(), error.strerror or str(error))
        _log.warning("store.read_only", error=self.read_only.why)
        store_full = refusal(Unavailable("the store is full and read-only", reason="StoreReadOnly", retry_after_s=5))
        # What was refused because of a change that is now gone was refused for nothing: all of it may retry.
        for operation, _ in batch.answered:
            self._answer(operation, store_full)
        self._refuse_queued(store_full)
        while self.read_only is not None:
            await asyncio.sleep(PROBE_PERIOD_S)
            try:
                await self._journal.probe()
            except OSError as still:
                if still.errno != errno.ENOSPC:
                    raise JournalError(f"the journal failed: {still.strerror or still}", EXIT_IO) from still
            else:
                _log.info("store.writable", after_s=round(self._clock.wall() - self.read_only.since_s, 1))
                self.read_only = None


def answers_of(entries: Sequence[Entry], now_s: float) -> list[tuple[tuple[str, str], Answer]]:
    """Return the answers in journal entries, so that request ids survive a restart (S9)."""
    answers = []
    for entry in entries:
        if entry.request_id:
            body = entry.body if entry.answer is None else entry.answer
            response = Response(code=entry.code, rv=entry.rv, body=body)
            answers.append(((entry.identity, entry.request_id), Answer(entry.fingerprint, response, now_s)))
    return answers
