"""Current and cumulative usage of the pods of a host's nodes. Pure.

keplab's annotations give usage as curves; the area below a curve is the cumulative usage. Without them,
documents give the current usage, and the cumulative usage grows by that between two reads, as in KWOK; a first
read counts from the container's start. A container that does not run uses nothing. Source: kubernetes-sigs/kwok
pkg/kwok/server/metrics_resource_usage.go; decision 0073.
"""

from dataclasses import dataclass, field
from typing import Final

from services.api.meta import Document
from services.api.metrics.usage import curves_in, integral, memory_used, text_for, value_at
from services.api.times import seconds_of
from services.kwok.usage import Usages

_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


@dataclass
class _Sum:
    """Cumulative usage of a container up to a moment."""

    value: float = 0.0
    at_s: float = 0.0


@dataclass
class _Past:
    """Cumulative usage of a node's removed pods, by resource, and the number of containers started on the node."""

    used: dict[str, float] = field(default_factory=dict)
    started: int = 0


class NodeUsage:
    """The usage of all pods of a host. Documents are as the API server has them; times are epoch seconds."""

    def __init__(self, usages: Usages) -> None:
        self.usages = usages
        self._sums: dict[str, dict[tuple[str, str], _Sum]] = {}
        self._places: dict[str, str] = {}
        self._past: dict[str, _Past] = {}
        self._starts: dict[str, dict[str, int]] = {}

    def container_usage(self, resource: str, node: Document, pod: Document, container: str, wall_s: float) -> float:
        """Return a container's current usage, in cores or bytes; `container` "": the sum over the pod's containers."""
        if not container:
            return sum(self.container_usage(resource, node, pod, name, wall_s) for name in containers(pod))
        started_s = _running_since_s(pod, container)
        if started_s is None:
            return 0.0
        if self.usages.says(pod, container):
            return self.usages.container_usage(resource, node, pod, container, wall_s)
        annotations = pod["metadata"].get("annotations") or {}
        curves = curves_in(text_for(annotations, container))
        if resource == "memory" and "memory" not in curves:
            return float(memory_used(annotations, container))
        amount = value_at(curves.get(resource, ()), max(0.0, wall_s - started_s))
        return amount / 1000 if resource == "cpu" else float(amount)

    def cumulative(self, resource: str, node: Document, pod: Document, container: str, wall_s: float) -> float:
        """Return a container's cumulative usage since its first start here, in units times seconds."""
        if not container:
            return sum(self.cumulative(resource, node, pod, name, wall_s) for name in containers(pod))
        uid = pod["metadata"].get("uid", "")
        self._places[uid] = node["metadata"]["name"]
        known = self._sums.setdefault(uid, {}).setdefault((resource, container), _Sum())
        started_s = _running_since_s(pod, container)
        if started_s is None:
            known.at_s = max(known.at_s, wall_s)
            return known.value
        since_s = max(known.at_s, started_s)
        if wall_s <= since_s:
            return known.value
        if self.usages.says(pod, container):
            known.value += (wall_s - since_s) * self.usages.container_usage(resource, node, pod, container, wall_s)
        else:
            points = curves_in(text_for(pod["metadata"].get("annotations") or {}, container)).get(resource, ())
            grown = integral(points, wall_s - started_s) - integral(points, since_s - started_s)
            known.value += grown / 1000 if resource == "cpu" else grown
        known.at_s = wall_s
        return known.value

    def node_cumulative(self, resource: str, node: Document, pods: list[Document], wall_s: float) -> float:
        """Return the cumulative usage of a node's pods since the host was started, including removed pods."""
        past = self._past.get(node["metadata"]["name"], _Past()).used.get(resource, 0.0)
        return past + sum(self.cumulative(resource, node, pod, "", wall_s) for pod in pods)

    def observe(self, node: str, pod: Document) -> None:
        """Update the container starts from a pod's status."""
        uid = pod["metadata"].get("uid", "")
        self._places[uid] = node
        starts = self._starts.setdefault(uid, {})
        for status in (each for kind in _STATUSES for each in (pod.get("status") or {}).get(kind) or ()):
            has_begun = any(each in (status.get("state") or {}) for each in ("running", "terminated"))
            count = int(status.get("restartCount") or 0) + has_begun
            if (more := count - starts.get(status["name"], 0)) > 0:
                starts[status["name"]] = count
                self._past.setdefault(node, _Past()).started += more

    def start_count(self, node: str) -> int:
        """Return the number of containers started on a node since the host was started."""
        return self._past[node].started if node in self._past else 0

    def on_deleted(self, uid: str) -> None:
        """Forget a pod; its cumulative usage stays with its node."""
        self._starts.pop(uid, None)
        place = self._places.pop(uid, "")
        for (resource, _), known in self._sums.pop(uid, {}).items():
            used = self._past.setdefault(place, _Past()).used
            used[resource] = used.get(resource, 0.0) + known.value


def containers(pod: Document) -> list[str]:
    """Return the names of a pod's main containers."""
    return [each["name"] for each in (pod.get("spec") or {}).get("containers") or ()]


def _running_since_s(pod: Document, container: str) -> float | None:
    """Return when the run of a container began that goes on; None: it does not run."""
    status = pod.get("status") or {}
    for each in (each for kind in _STATUSES for each in status.get(kind) or ()):
        if each.get("name") == container and (running := (each.get("state") or {}).get("running")) is not None:
            return seconds_of(running.get("startedAt"))
    return None
