"""I5: nodes are not over-committed: never in a kubelet's ledger, not for long in the store."""

from __future__ import annotations

from services.scenarios.invariants.check import Check, Context, Report
from services.telemetry.eventlog import Line

GRACE_S = 5.0


class NodesFit(Check):
    """I5: no admission or resize takes a ledger above allocatable; what is bound to a node fits it, 5 s later at most.

    The second part counts pods that have not ended, at what they ask for or, once their node says so, at what
    it has allocated; and only time without faults. Devices that fall ill or vanish stay with the pods that have them,
    so extended resources are held against the most that the node ever offered.
    """

    id = "I5"
    events = ("kubelet.admit", "kubelet.resize", "store.commit")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._bound: dict[str, dict[str, dict[str, int]]] = {}
        self._over: dict[str, tuple[float, str]] = {}
        self._offered: dict[tuple[str, str], int] = {}

    def take(self, line: Line, report: Report) -> None:
        """Look at admissions, and follow what is bound where."""
        if line.ev in ("kubelet.admit", "kubelet.resize"):
            allocatable: dict[str, int] = line.data.get("allocatable", {})
            for resource, used in line.data.get("ledger", {}).items():
                if resource in allocatable and used > allocatable[resource]:
                    report(line, f"{resource}: ledger {used} above allocatable {allocatable[resource]} on {line.node}")
            return
        commit = self.view.commit
        if commit is None or commit.kind not in ("Pod", "Node") or not self.view.is_news:
            return
        if commit.kind == "Node":
            self._weigh(commit.content.name, commit.at_s)
            return
        before, after = commit.before, commit.after
        if before is not None and before.node:
            pods = self._bound.get(before.node)
            if pods is not None and pods.pop(before.uid, None) is not None:
                self._weigh(before.node, commit.at_s)
        if after is not None and after.node and not after.is_over and after.requests is not None:
            self._bound.setdefault(after.node, {})[after.uid] = after.requests
            self._weigh(after.node, commit.at_s)

    def _weigh(self, node: str, at_s: float) -> None:
        """Note since when the node holds too much, if it does."""
        stored = self.view.get("Node", "", node)
        pods = self._bound.get(node, {})
        if stored is None or stored.allocatable is None:
            self._over.pop(node, None)
            return
        for resource, most in stored.allocatable.items():
            total = len(pods) if resource == "pods" else sum(requests.get(resource, 0) for requests in pods.values())
            if "/" in resource:
                most = self._offered[node, resource] = max(most, self._offered.get((node, resource), 0))
            if total > most:
                since_s, _ = self._over.get(node, (at_s, ""))
                self._over[node] = (since_s, f"{resource}: {total} asked for by {len(pods)} pods, allocatable {most}")
                return
        self._over.pop(node, None)

    def tick(self, line: Line, report: Report) -> None:
        """Report nodes that have held too much for longer than the grace."""
        now_s = line.mono_ns / 1e9
        for node, (since_s, what) in list(self._over.items()):
            if self.context.calm.lasted_s(since_s, now_s) > GRACE_S:
                report(line, f"node {node} is over-committed since {since_s:.3f} s: {what}")
                del self._over[node]

    def unfinished(self, now_s: float) -> str:
        """Return the first node that holds too much."""
        for node, (since_s, what) in self._over.items():
            return self.within_grace(f"node {node} is over-committed, {what}", since_s, now_s, GRACE_S)
        return ""


CHECK = NodesFit
