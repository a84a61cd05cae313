"""I32: what runs under a name has ended before its successor begins. For StatefulSets."""

from dataclasses import dataclass, field

from lab.scenarios.invariants.check import Check, Context, Report, uid_of
from services.telemetry.eventlog import Line

_NODE = "system:node:"


@dataclass
class _Runs:
    """Where the containers of one pod run. `remover`: who took its object away meanwhile."""

    nodes: dict[str, dict[str, None]] = field(default_factory=dict)
    remover: str = ""


class NamesAreTakenOnce(Check):
    """I32: two pods of one name never run at once on a node, and on two nodes only after a removal by force.

    By force: by another client than the node that ran it, who cannot know whether it has ended. Of the API server's
    objects there is one a name anyway; what a StatefulSet promises is that of what runs as well (kubelet, scenario 16).
    """

    id = "I32"
    events = ("kubelet.start", "kubelet.stop", "node.boot", "store.commit")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._running: dict[tuple[str, str], dict[str, _Runs]] = {}

    def take(self, line: Line, report: Report) -> None:
        """Follow containers by the name of their pod, and who removes pods whose containers still run."""
        if line.ev == "node.boot":
            self._booted(line.node)
            return
        if line.obj is None or line.obj.get("kind", "Pod") != "Pod":
            return
        name = (str(line.obj.get("ns", "")), str(line.obj.get("name", "")))
        uid = uid_of(line)
        if line.ev == "store.commit":
            runs = self._running.get(name, {}).get(uid)
            if runs is not None and line.data.get("type") == "DELETED" and not line.data.get("replayed"):
                runs.remover = line.identity
        elif line.ev == "kubelet.start":
            self._started(line, name, uid, report)
        else:
            self._stopped(line, name, uid)

    def _started(self, line: Line, name: tuple[str, str], uid: str, report: Report) -> None:
        pods = self._running.setdefault(name, {})
        for other, runs in pods.items():
            if other == uid:
                continue
            for node in runs.nodes:
                if node == line.node:
                    report(line, f"starts on {node} while {other}, its predecessor of that name, runs there")
                elif runs.remover in ("", _NODE + node):
                    who = f"removed by {runs.remover}" if runs.remover else "still stored"
                    report(line, f"starts on {line.node} while {other}, its predecessor, {who}, runs on {node}")
        container = str(line.data.get("container", ""))
        pods.setdefault(uid, _Runs()).nodes.setdefault(line.node, {})[container] = None

    def _stopped(self, line: Line, name: tuple[str, str], uid: str) -> None:
        pods = self._running.get(name, {})
        runs = pods.get(uid)
        if runs is None or line.node not in runs.nodes:
            return
        runs.nodes[line.node].pop(str(line.data.get("container", "")), None)
        if not runs.nodes[line.node]:
            del runs.nodes[line.node]
        if not runs.nodes:
            del pods[uid]
        if not pods:
            self._running.pop(name, None)

    def _booted(self, node: str) -> None:
        for name, pods in list(self._running.items()):
            for uid, runs in list(pods.items()):
                runs.nodes.pop(node, None)
                if not runs.nodes:
                    del pods[uid]
            if not pods:
                del self._running[name]
