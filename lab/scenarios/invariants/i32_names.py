"""I32: a pod's containers have ended before those of the next pod with its name start. For StatefulSets."""

from dataclasses import dataclass, field

from lab.scenarios.invariants.check import Check, Context, Report, uid_of
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line

_NODE = "system:node:"


@dataclass
class _Runs:
    """Nodes on which the containers of one pod run. `remover`: the client that removed the pod object in the
    meantime.
    """

    nodes: dict[str, dict[str, None]] = field(default_factory=dict)
    remover: str = ""


class NamesAreTakenOnce(Check):
    """I32: two pods of one name never run at once on a node, and on two nodes only after a removal by force.

    By force: by a client other than the node that ran it, which cannot know whether it has ended. The API
    server already has only one object per name; a StatefulSet guarantees the same for running containers
    (kubelet, scenario 16).
    """

    id = "I32"
    events = ("kubelet.start", "kubelet.stop", "node.boot", "store.commit")
    kinds = ("Pod",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._running: dict[tuple[str, str], dict[str, _Runs]] = {}

    def take(self, line: Line, report: Report) -> None:
        """Track containers by pod name."""
        if line.ev == "node.boot":
            self._on_booted(line.node)
            return
        if line.obj is None or line.obj.get("kind", "Pod") != "Pod":
            return
        name = (str(line.obj.get("ns", "")), str(line.obj.get("name", "")))
        uid = uid_of(line)
        if line.ev == "kubelet.start":
            self._on_started(line, name, uid, report)
        else:
            self._on_stopped(line, name, uid)

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Note the client that removes a pod whose containers still run."""
        if commit.type == "DELETED" and not commit.is_replayed:
            pod = commit.content
            runs = self._running.get((pod.namespace, pod.name), {}).get(pod.uid)
            if runs is not None:
                runs.remover = commit.identity

    def _on_started(self, line: Line, name: tuple[str, str], uid: str, report: Report) -> None:
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

    def _on_stopped(self, line: Line, name: tuple[str, str], uid: str) -> None:
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

    def _on_booted(self, node: str) -> None:
        for name, pods in list(self._running.items()):
            for uid, runs in list(pods.items()):
                runs.nodes.pop(node, None)
                if not runs.nodes:
                    del pods[uid]
            if not pods:
                del self._running[name]
