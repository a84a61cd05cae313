"""Node decisions of a DaemonSet: the nodes that run its pod, a pod's target node, and the pod of a node. Pure.

A node that is not ready, cordoned or under pressure still gets its pod: the pods tolerate that.
Source: controllers 6; upstream `NodeShouldRunDaemonPod`, `pkg/controller/daemon/util/daemonset_util.go`.
"""

from typing import NamedTuple

from services.api.kinds.daemonset import TEMPLATE_GENERATION, TEMPLATE_GENERATION_LABEL, DaemonSet
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod, PodSpec, Toleration
from services.api.meta import Document, Key
from services.api.node_selection import NAME_FIELD, may_go_to
from services.api.taints import NO_EXECUTE, NO_SCHEDULE, untolerated_taint
from services.controllers.shared_revisions import POD_LABEL
from services.reconcile.controller import Change, Listers
from services.reconcile.writes import controller_reference

_TAINT = "node.kubernetes.io/"
_ALWAYS = (
    ("not-ready", NO_EXECUTE), ("unreachable", NO_EXECUTE), ("disk-pressure", NO_SCHEDULE),
    ("memory-pressure", NO_SCHEDULE), ("pid-pressure", NO_SCHEDULE), ("unschedulable", NO_SCHEDULE),
)  # fmt: skip
_ON_HOST_NETWORK = (("network-unavailable", NO_SCHEDULE),)


class Fit(NamedTuple):
    """Decision for one node. `runs`: a pod should run there; `stays`: an existing pod may remain."""

    runs: bool
    stays: bool


NOWHERE = Fit(False, False)


def _automatic(*, on_host_network: bool) -> tuple[tuple[str, str], ...]:
    return _ALWAYS + _ON_HOST_NETWORK if on_host_network else _ALWAYS


def _tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    return spec.tolerations + tuple(
        Toleration(key=_TAINT + name, operator="Exists", effect=effect)
        for name, effect in _automatic(on_host_network=spec.host_network)
    )


def fit_of(daemon_set: DaemonSet, node: Node) -> Fit:
    """Return the set's decision for a node; only name, labels and taints count.

    An untolerated taint keeps new pods away; only one with NoExecute removes existing pods.
    """
    spec = daemon_set.spec.template.spec
    if spec.node_name and spec.node_name != node.metadata.name:
        return NOWHERE
    if not may_go_to(spec, node.metadata.name, node.metadata.labels):
        return NOWHERE
    if not node.spec.taints:
        return Fit(True, True)
    tolerations = _tolerations(spec)
    runs = untolerated_taint(node.spec.taints, tolerations, (NO_SCHEDULE, NO_EXECUTE)) is None
    return Fit(runs, runs or untolerated_taint(node.spec.taints, tolerations, (NO_EXECUTE,)) is None)


class Fits:
    """Cached decisions of every DaemonSet for every node, valid until set or node change.

    A heartbeat changes nothing, and a reconcile evaluates only the nodes that changed since the last one.
    """

    def __init__(self) -> None:
        self._known: dict[Key, tuple[tuple[str, int], dict[str, Fit]]] = {}

    def of(self, daemon_set: DaemonSet, node: Node) -> Fit:
        """Return the set's decision for the node."""
        known = self._of(daemon_set)
        fit = known.get(node.metadata.name)
        if fit is None:
            fit = known[node.metadata.name] = fit_of(daemon_set, node)
        return fit

    def on_changed(self, change: Change[Node], listers: Listers) -> list[Key]:
        """Return the sets whose decision for a node has changed.

        Deviates: upstream learns that a node is gone only through its pods.
        """
        old, new = change.old, change.new
        if (
            old is not None
            and new is not None
            and old.metadata.labels == new.metadata.labels
            and old.spec.taints == new.spec.taints
        ):
            return []
        keys = []
        for daemon_set in listers.of(DaemonSet).all():
            known = self._of(daemon_set)
            before = known.pop(change.object.metadata.name, None)
            if before is None:
                before = fit_of(daemon_set, old) if old is not None else NOWHERE
            after = self.of(daemon_set, new) if new is not None else NOWHERE
            if before != after:
                keys.append(daemon_set.metadata.key)
        return keys

    def forget(self, key: Key) -> None:
        """Forget a deleted set."""
        self._known.pop(key, None)

    def _of(self, daemon_set: DaemonSet) -> dict[str, Fit]:
        meta = daemon_set.metadata
        state = meta.uid, meta.generation
        held = self._known.get(meta.key)
        if held is None or held[0] != state:
            held = self._known[meta.key] = (state, {})
        return held[1]


def target_of(pod: Pod) -> str:
    """Return the node a pod is on or was made for; empty if its affinity names none."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return ""
    for term in affinity.required.node_selector_terms:
        for field in term.match_fields:
            if field.key == NAME_FIELD and field.operator == "In":
                return field.values[0] if len(field.values) == 1 else ""
    return ""


def is_updated(pod: Pod, text: str, daemon_set: DaemonSet) -> bool:
    """Whether a pod was made from the current template: by the revision's hash, or by the template generation."""
    labels = pod.metadata.labels
    number = daemon_set.metadata.annotations.get(TEMPLATE_GENERATION)
    return labels.get(POD_LABEL) == text or (number is not None and labels.get(TEMPLATE_GENERATION_LABEL) == number)


def pod_template(daemon_set: DaemonSet, document: Document, text: str) -> Document:
    """Return a pod without its node, from the template in the stored document, with unknown fields.

    `text`: the hash of the template's revision.
    """
    template = document.get("spec", {}).get("template", {})
    given, spec = template.get("metadata") or {}, template.get("spec") or {}
    labels = {**(given.get("labels") or {}), POD_LABEL: text}
    if (number := daemon_set.metadata.annotations.get(TEMPLATE_GENERATION)) is not None:
        labels[TEMPLATE_GENERATION_LABEL] = number
    metadata: Document = {
        "generateName": f"{daemon_set.metadata.name}-",
        "namespace": daemon_set.metadata.namespace,
        "labels": labels,
        **{field: given[field] for field in ("annotations", "finalizers") if given.get(field)},
        "ownerReferences": [controller_reference(daemon_set)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "tolerations": _daemon_tolerations(spec)},
    }


def _daemon_tolerations(spec: Document) -> list[Document]:
    """Return the template's tolerations and the automatic ones, which replace those that end after a time."""
    tolerations = list(spec.get("tolerations") or ())
    for name, effect in _automatic(on_host_network=bool(spec.get("hostNetwork"))):
        wanted = {"key": _TAINT + name, "operator": "Exists", "effect": effect}
        same = [
            number
            for number, each in enumerate(tolerations)
            if all(each.get(field) == value for field, value in wanted.items()) and not each.get("value")
        ]
        for number in same:
            tolerations[number] = wanted
        if not same:
            tolerations.append(wanted)
    return tolerations


def for_node(template: Document, node: str) -> Document:
    """Return the pod for one node; the scheduler can bind it only there."""
    spec = template["spec"]
    affinity = spec.get("affinity") or {}
    only = {"matchFields": [{"key": NAME_FIELD, "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only]}}
    wanted = {**affinity, "nodeAffinity": {**(affinity.get("nodeAffinity") or {}), **required}}
    return {**template, "spec": {**spec, "affinity": wanted}}
