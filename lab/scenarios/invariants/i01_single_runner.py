"""I1: one pod runs on one node."""

from lab.scenarios.invariants.check import Check, Context, Report, uid_of
from services.telemetry.eventlog import Line


class SingleRunner(Check):
    """I1: for every pod uid, the periods in which containers run on different nodes do not overlap."""

    id = "I1"
    events = ("kubelet.start", "kubelet.stop", "node.boot")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._running: dict[str, dict[str, dict[str, None]]] = {}

    def take(self, line: Line, report: Report) -> None:
        """Track running containers by kubelet.start, kubelet.stop and node.boot."""
        if line.ev == "node.boot":
            for nodes in self._running.values():
                nodes.pop(line.node, None)
            return
        uid, container = uid_of(line), str(line.data.get("container", ""))
        if line.ev == "kubelet.stop":
            running = self._running.get(uid, {})
            if line.node in running:
                running[line.node].pop(container, None)
                if not running[line.node]:
                    del running[line.node]
            if not running:
                self._running.pop(uid, None)
            return
        nodes = self._running.setdefault(uid, {})
        for other in nodes:
            if other != line.node:
                report(line, f"starts on {line.node} while it runs on {other}")
        nodes.setdefault(line.node, {})[container] = None
