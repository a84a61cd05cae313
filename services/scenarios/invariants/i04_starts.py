"""I4: containers start for bindings that stand, and only once the start is on disk."""

from __future__ import annotations

from services.scenarios.invariants.check import Check, Context, Report, pod_commit, uid_of
from services.telemetry.eventlog import Line


class StartsAfterBind(Check):
    """I4: a start follows its bind; an unbound binding never started; teardown came before the unbind.

    And N2: before `kubelet.start` comes the checkpoint of the same binding, so that a restarted kubelet
    finds what it started.
    """

    id = "I4"
    events = ("store.commit", "kubelet.teardown_done", "kubelet.checkpoint", "kubelet.start")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._bound: dict[tuple[str, int], str] = {}
        self._started: dict[tuple[str, int], str] = {}
        self._unbound: dict[tuple[str, int], None] = {}
        self._torn_down: dict[tuple[str, int], None] = {}
        self._saved: dict[tuple[str, int, str], None] = {}
        self._keys: dict[str, list[int]] = {}
        # These arms exist to show the breach; it is counted by comparison, not failed.
        self._is_counted_only = (
            self.switches.choice("kubelet.unbind_teardown") == "after" or self.switches.choice("unbind.fence") == "none"
        )

    def take(self, line: Line, report: Report) -> None:
        """Order binds, teardowns, checkpoints, starts and unbinds of one (uid, generation)."""
        if self._is_counted_only:
            return
        if line.ev == "store.commit":
            self._take_commit(line, report)
            return
        key = (uid_of(line), line.gen or 0)
        if line.ev == "kubelet.teardown_done":
            self._torn_down[key] = None
        elif line.ev == "kubelet.checkpoint":
            self._saved[(*key, line.node)] = None
        else:
            if self._bound.get(key) != line.node:
                report(
                    line, f"started on {line.node} at generation {key[1]}, which was bound to {self._bound.get(key)}"
                )
            if key in self._unbound:
                report(line, f"started at generation {key[1]}, which was unbound")
            if (*key, line.node) not in self._saved:
                report(line, f"started at generation {key[1]} before its checkpoint was written")
            self._started[key] = line.node

    def _take_commit(self, line: Line, report: Report) -> None:
        commit = pod_commit(self.view)
        if commit is None:
            return
        uid, node = commit.content.uid, commit.content.node
        key = (uid, commit.content.generation)
        is_new = commit.before is None or commit.before.uid != uid
        if commit.type == "DELETED":
            self._forget(uid)
        elif commit.subresource == "binding" or (node and (is_new or commit.is_replayed)):
            self._bound[key] = node
            self._keys.setdefault(uid, []).append(key[1])
        elif commit.subresource == "unbind":
            if key in self._started:
                report(line, f"unbound at generation {key[1]} although it started on {self._started[key]}")
            if key not in self._torn_down:
                report(line, f"unbound at generation {key[1]} before its teardown was done")
            self._unbound[key] = None

    def _forget(self, uid: str) -> None:
        """Keep of a removed pod only where it was bound: its kubelet may not know yet."""
        for generation in self._keys.pop(uid, ()):
            key = (uid, generation)
            self._started.pop(key, None)
            self._torn_down.pop(key, None)


CHECK = StartsAfterBind
