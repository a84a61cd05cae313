"""I4: containers start only for existing bindings, and only once the start is on disk."""

from collections import defaultdict
from dataclasses import dataclass, field

from lab.scenarios.invariants.check import Check, Context, Departed, Report, uid_of
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line


@dataclass
class _Bindings:
    """History of one pod's bindings, by generation; `saved` and `started` include the nodes."""

    bound: dict[int, str] = field(default_factory=dict)
    saved: dict[tuple[int, str], None] = field(default_factory=dict)
    started: dict[int, str] = field(default_factory=dict)
    torn_down: dict[int, None] = field(default_factory=dict)
    unbound: dict[int, None] = field(default_factory=dict)


class StartsAfterBind(Check):
    """I4: a start follows its bind; an unbound binding never started; teardown came before the unbind.

    A static pod is never bound: its start follows the node's line that its manifest is present. Also N2: the
    checkpoint of the same binding comes before `kubelet.start`, so that a restarted kubelet finds what it
    started; a pod that a kubelet adopted has one.
    """

    id = "I4"
    events = (
        "store.commit",
        "kubelet.teardown_done",
        "kubelet.admit",
        "kubelet.checkpoint",
        "kubelet.start",
        "kubelet.static",
    )
    kinds = ("Pod",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._pods: defaultdict[str, _Bindings] = defaultdict(_Bindings)
        self._departed = Departed()
        # These arms exist to show the breach; it is counted by comparison, not failed.
        if self.switches.choice("kubelet.unbind_teardown") == "after" or self.switches.choice("unbind.fence") == "none":
            self.why_not = "this arm exists to show the breach"

    def take(self, line: Line, report: Report) -> None:
        """Check the order of binds, teardowns, checkpoints, starts and unbinds of one (uid, generation)."""
        if self.why_not:
            return
        pod, generation = self._pods[uid_of(line)], line.gen or 0
        if line.ev == "kubelet.static":
            # Its uid is a hash with the node in it: it stands here or nowhere.
            pod.bound[0] = "" if line.data.get("gone") else line.node
        elif line.ev == "kubelet.teardown_done":
            pod.torn_down[generation] = None
        elif line.ev == "kubelet.checkpoint" or (line.ev == "kubelet.admit" and line.data.get("adopted")):
            pod.saved[(generation, line.node)] = None
        elif line.ev == "kubelet.admit":
            return
        else:
            bound = pod.bound.get(generation)
            if bound != line.node:
                report(line, f"started on {line.node} at generation {generation}, which was bound to {bound}")
            if generation in pod.unbound:
                report(line, f"started at generation {generation}, which was unbound")
            if (generation, line.node) not in pod.saved:
                report(line, f"started at generation {generation} before its checkpoint was written")
            pod.started[generation] = line.node

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Check the order of the binds and unbinds of one pod."""
        if self.why_not:
            return
        uid, node, generation = commit.content.uid, commit.content.node, commit.content.generation
        if commit.type == "DELETED":
            # Its kubelet may not know yet, so what was bound is kept for a while.
            self._pods.pop(self._departed.add(uid), None)
            return
        is_new = commit.before is None or commit.before.uid != uid
        if commit.subresource == "binding" or (node and (is_new or commit.is_replayed)):
            self._pods[uid].bound[generation] = node
        elif commit.subresource == "unbind":
            pod = self._pods[uid]
            if generation in pod.started:
                report(line, f"unbound at generation {generation} although it started on {pod.started[generation]}")
            if generation not in pod.torn_down:
                report(line, f"unbound at generation {generation} before its teardown was done")
            pod.unbound[generation] = None
