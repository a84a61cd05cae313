"""An etcd in one loop of virtual time: revisions, conditional transactions, history, compaction, watches; and faults.

One `FakeEtcd` is what the members agree on; each API server has an `Access` of its own, whose way there can be slow, lose
answers, or deliver a transaction long after its caller has given up.
"""

import asyncio

from apiserver_fake.storage.etcd.keyvalues import (
    CompactedError,
    Event,
    Head,
    KeyValue,
    NoSpaceError,
    Outcome,
    TooLargeError,
    UnreachableError,
)


class FakeEtcd:
    """Keys at revisions."""

    def __init__(self):
        self.revision, self.compacted = 1, 0
        self.history: list[list[Event]] = []
        """The changes of each revision from 2 on."""
        self.grown = asyncio.Event()
        self.is_full = False
        self.operations_max, self.bytes_max = 128, 1_536 << 10
        self.txns = 0

    def at(self, revision):
        """Return {key: (value, revision of its last change)} as of a revision."""
        if revision < self.compacted:
            raise CompactedError("etcdserver: mvcc: required revision has been compacted")
        found = {}
        for events in self.history[: revision - 1]:
            for event in events:
                found.pop(event.key, None)
                if event.value is not None:
                    found[event.key] = (event.value, event.revision)
        return found

    def commit(self, txn):
        """Apply a transaction."""
        self.txns += 1
        size = sum(len(key) + len(value) for key, value in txn.puts)
        if len(txn.puts) + len(txn.deletes) > self.operations_max:
            raise TooLargeError("etcdserver: too many operations in txn request")
        if size > self.bytes_max:
            raise TooLargeError("etcdserver: request is too large")
        touched = [key for key, _ in txn.puts] + list(txn.deletes)
        assert len(touched) == len(set(touched)), "etcdserver: duplicate key given in txn request"
        now = self.at(self.revision)
        revision = now.get(txn.key, (b"", 0))[1]
        if revision != txn.revision:
            return Outcome(is_committed=False, revision=revision)
        if self.is_full:
            raise NoSpaceError("etcdserver: mvcc: database space exceeded")
        return Outcome(is_committed=True, revision=self.change(dict(txn.puts), [k for k in txn.deletes if k in now]))

    def change(self, puts, deletes=()):
        """Write without a condition, as any client may."""
        self.revision += 1
        events = [Event(key, value, self.revision) for key, value in puts.items()]
        self.history.append([*events, *(Event(key, None, self.revision) for key in deletes)])
        self.grown.set()
        self.grown = asyncio.Event()
        return self.revision

    def compact(self, revision):
        """Forget what was before."""
        self.compacted = max(self.compacted, min(revision, self.revision))


class Access:
    """One API server's way to it; implements `keyvalues.Etcd`.

    `faults`: what happens to the next transactions, one after the other: "" nothing, "lost" the answer is lost, "dropped"
    it never arrives, a number: it arrives after so many seconds, the caller having given up at once.
    """

    def __init__(self, etcd, *, delay_s=0.001, watch_delay_s=0.001):
        self.etcd, self.delay_s, self.watch_delay_s = etcd, delay_s, watch_delay_s
        self.faults = []
        self.is_down = self.is_closed = False
        self.late = []
        self.reads = 0

    async def _go(self):
        await asyncio.sleep(self.delay_s)
        if self.is_down:
            await asyncio.sleep(0.5)
            raise UnreachableError("etcdserver: no leader")

    async def read(self, key):
        self.reads += 1
        await self._go()
        value, revision = self.etcd.at(self.etcd.revision).get(key, (None, 0))
        await asyncio.sleep(self.delay_s)
        return Head(value, revision, self.etcd.revision)

    async def range(self, prefix, revision, after=b"", limit=0):
        await self._go()
        found = [KeyValue(k, v, r) for k, (v, r) in sorted(self.etcd.at(revision).items()) if k.startswith(prefix)]
        return [kv for kv in found if kv.key > after][: limit or None]

    async def commit(self, txn):
        await self._go()
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "dropped":
            raise UnreachableError("etcdserver: request timed out")
        if isinstance(fault, float):
            asyncio.get_running_loop().call_later(fault, lambda: self.late.append(self.etcd.commit(txn)))
            raise UnreachableError("etcdserver: request timed out")
        outcome = self.etcd.commit(txn)
        if fault == "lost":
            raise UnreachableError("etcdserver: request timed out")
        await asyncio.sleep(self.delay_s)
        return outcome

    async def compact(self, revision):
        await self._go()
        self.etcd.compact(revision)

    async def watch(self, prefix, start):
        await self._go()
        at = start
        while True:
            if at <= self.etcd.compacted:
                raise CompactedError("etcdserver: mvcc: required revision has been compacted", self.etcd.compacted)
            if self.is_down:
                raise UnreachableError("the watch has ended")
            grown = self.etcd.grown
            upto = self.etcd.revision
            events = [
                e for row in self.etcd.history[max(0, at - 2) : upto - 1] for e in row if e.key.startswith(prefix)
            ]
            if events:
                await asyncio.sleep(self.watch_delay_s)
                if self.is_down:
                    continue
                yield events
            at = upto + 1
            if self.etcd.revision == upto:
                try:
                    async with asyncio.timeout(0.2):
                        await grown.wait()
                except TimeoutError:
                    pass

    async def close(self):
        self.is_closed = True
