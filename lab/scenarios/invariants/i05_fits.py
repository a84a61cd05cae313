"""I5: nodes are not over-committed: never in a kubelet's ledger, and only briefly in the store."""

from collections.abc import Hashable, Iterator

from lab.scenarios.invariants.check import Context, Graced, Report, Wrong
from lab.scenarios.invariants.view import Commit, Stored
from services.telemetry.eventlog import Line


class NodesFit(Graced):
    """I5: no admission or resize takes a ledger above allocatable; what is bound to a node fits it, 5 s later at
    most.

    The second part counts pods that have not ended, by their requests or, once their node reports it, by
    their allocated resources. Only time without faults counts. Pods keep devices that become unhealthy or
    vanish, so extended resources are compared with the most that the node ever offered. Pods on a node whose
    machine shrank may stay; none may be added.
    """

    id = "I5"
    grace_s = 5.0
    events = ("kubelet.admit", "kubelet.resize", "store.commit")
    kinds = ("Pod", "Node")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._bound: dict[str, dict[str, dict[str, int]]] = {}
        self._over: dict[str, str] = {}
        self._offered: dict[tuple[str, str], int] = {}
        self._kept: dict[tuple[str, str], int] = {}

    def take(self, line: Line, report: Report) -> None:
        """Check kubelets' ledgers at admissions and resizes."""
        allocatable: dict[str, int] = line.data.get("allocatable", {})
        for resource, used in line.data.get("ledger", {}).items():
            if resource in allocatable and used > allocatable[resource]:
                report(line, f"{resource}: ledger {used} above allocatable {allocatable[resource]} on {line.node}")

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Track what pods are bound to a node."""
        if commit.kind == "Node":
            self._shrunk(commit.before, commit.after)
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
            self._fits(node)
            return
        for resource, most in stored.allocatable.items():
            total = len(pods) if resource == "pods" else sum(requests.get(resource, 0) for requests in pods.values())
            if "/" in resource:
                most = self._offered[node, resource] = max(most, self._offered.get((node, resource), 0))
            if self._kept:
                most = self._limit((node, resource), most, total)
            if total > most:
                self.since.setdefault(node, at_s)
                self._over[node] = f"{resource}: {total} asked for by {len(pods)} pods, allocatable {most}"
                return
        self._fits(node)

    def _shrunk(self, before: Stored | None, after: Stored | None) -> None:
        """Remember what a machine had of each resource of which it has less now: as much may stay asked for."""
        old = before.allocatable if before is not None else None
        new = after.allocatable if after is not None else None
        for resource, most in (new or {}).items():
            if after is not None and most < (last := (old or {}).get(resource, most)):
                what = (after.name, resource)
                self._kept[what] = max(last, self._kept.get(what, 0))

    def _limit(self, what: tuple[str, str], most: int, total: int) -> int:
        """Return how much of a node's resource may be asked for: what is offered, or what stayed when it shrank."""
        kept = self._kept.get(what, 0)
        if total <= most or not kept:
            self._kept.pop(what, None)
            return most
        self._kept[what] = min(kept, total)
        return max(most, kept)

    def _fits(self, node: str) -> None:
        self._over.pop(node, None)
        self.since.pop(node, None)

    def wrong(self, now_s: float) -> Iterator[Wrong]:
        """Yield the over-committed nodes."""
        for node, what in self._over.items():
            over = f"node {node} is over-committed"
            yield Wrong(node, f"{over} since {self.since[node]:.3f} s: {what}", f"{over}, {what}")

    def on_reported(self, key: Hashable, now_s: float) -> None:
        """Report the node no more until it is checked again."""
        self._fits(str(key))
