"""The JSON requests and answers of extenders, and the sum of all answers for a pod's nodes. Pure.

Fields are capitalised, and in answers in any case.

Upstream's types have no JSON names, so Go writes the fields' own, and reads them whatever their case;
extenders in the world write both.

Source: upstream `staging/src/k8s.io/kube-scheduler/extender/v1/types.go`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from scheduler.cache.columns import Columns, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.configuration.document import Extender
from scheduler.cycle.scheduling_cycle import EXTENDER
from scheduler.framework.cycle_state import Diagnosis
from scheduler.framework.plugin import MAX_NODE_SCORE
from scheduler.preemption.candidates import ExtenderError, Victims
from scheduler.preemption.units import Unit, by_importance, pod_unit
from services.api.errors import UNREADABLE
from services.api.meta import Document

S = TypeVar("S", bound=msgspec.Struct)


class FilterAnswer(msgspec.Struct, frozen=True, rename="lower"):
    """An extender's answer to filter. `nodes` or `node_names`: the nodes that stay.

    The maps have reasons by node; preemption may help only the nodes of the first map.
    """

    nodes: dict[str, Any] | None = None
    node_names: list[str] | None = msgspec.field(default=None, name="nodenames")
    failed_nodes: dict[str, str] | None = msgspec.field(default=None, name="failednodes")
    unresolvable_nodes: dict[str, str] | None = msgspec.field(default=None, name="failedandunresolvablenodes")
    error: str | None = None


class HostPriority(msgspec.Struct, frozen=True):
    """The points for one node. `score`: 0 to 10."""

    host: str = ""
    score: int = 0


class BindAnswer(msgspec.Struct, frozen=True):
    """An extender's answer to bind; empty when the pod is bound."""

    error: str | None = None


class GoFilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderFilterResult as Go writes it: every field, in this order."""

    nodes: Any = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class GoHostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """HostPriority as Go writes it."""

    host: str = ""
    score: int = 0


class GoMetaPod(msgspec.Struct, frozen=True):
    """MetaPod as Go writes it."""

    uid: str = msgspec.field(default="", name="UID")


class GoMetaVictims(msgspec.Struct, frozen=True):
    """MetaVictims as Go writes it."""

    pods: list[GoMetaPod] | None = msgspec.field(default=None, name="Pods")
    violations: int = msgspec.field(default=0, name="NumPDBViolations")


class GoPreemptionResult(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderPreemptionResult as Go writes it."""

    node_name_to_meta_victims: dict[str, GoMetaVictims] | None = None


class GoBindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderBindingResult as Go writes it."""

    error: str = ""


_GO_FORMS: Final[dict[str, Any]] = {
    "filter": GoFilterResult,
    "prioritize": list[GoHostPriority] | None,
    "preempt": GoPreemptionResult,
    "bind": GoBindingResult,
}


def in_go_form(verb: str, body: bytes) -> Any:
    """Return an answer in Go's form, whatever the case of its fields; an unreadable one as its text."""
    kind = _GO_FORMS[verb]
    try:
        return msgspec.convert(_in_case(msgspec.json.decode(body), verb), kind)
    except UNREADABLE:
        return body.decode(errors="replace")


def _in_case(value: Any, verb: str) -> Any:
    """Return the document with the fields of Go's types in their own case; the names of nodes stay as they are."""
    match verb:
        case "prioritize" | "pods":
            return [_in_case(each, "each") for each in value] if isinstance(value, list) else value
        case "preempt" if isinstance(value, dict):
            victims = _fold_keys(value).get("nodenametometavictims")
            return {
                "NodeNameToMetaVictims": {node: _in_case(each, "victims") for node, each in victims.items()}
                if isinstance(victims, dict)
                else victims
            }
        case "victims" if isinstance(value, dict):
            folded = _fold_keys(value)
            return {
                "Pods": _in_case(folded.get("pods"), "pods"),
                "NumPDBViolations": folded.get("numpdbviolations") or 0,
            }
        case _ if isinstance(value, dict):
            return {
                _GO_NAMES[key]: each for key, each in _fold_keys(value).items() if key in _GO_NAMES and each is not None
            }
    return value


_GO_NAMES: Final = {
    name.lower(): name
    for name in ("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error", "Host", "Score", "UID")
}


class MetaVictims(msgspec.Struct, frozen=True):
    """The uids of the pods to evict from a node."""

    uids: tuple[str, ...]
    violations: int = 0


def filter_args(pod: Document, names: Sequence[str], nodes: Sequence[Document] | None) -> bytes:
    """Return ExtenderArgs, for filter and prioritize: node names if the extender accepts them, else whole nodes."""
    listed = None if nodes is None else {"metadata": {}, "items": nodes}
    return msgspec.json.encode({"Pod": pod, "Nodes": listed, "NodeNames": names if nodes is None else None})


def bind_args(namespace: str, name: str, uid: str, node: str) -> bytes:
    """Return ExtenderBindingArgs."""
    return msgspec.json.encode({"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node})


def preemption_args(pod: Document, victims: Mapping[str, tuple[Sequence[Document], int]], *, by_uid: bool) -> bytes:
    """Return ExtenderPreemptionArgs. `victims`: by node, the pods to evict and the number of violated budgets."""
    listed = {
        node: {"Pods": [{"UID": p["metadata"]["uid"]} for p in pods] if by_uid else pods, "NumPDBViolations": broken}
        for node, (pods, broken) in victims.items()
    }
    whole, short = (None, listed) if by_uid else (listed, None)
    return msgspec.json.encode({"Pod": pod, "NodeNameToVictims": whole, "NodeNameToMetaVictims": short})


def read_filter(body: bytes, asked: Sequence[str], *, url: str, by_name: bool) -> tuple[list[str], FilterAnswer]:
    """Return the nodes that stay, in the order of the request, and the answer. Raises: ExtenderError."""
    answer = _decode(body, FilterAnswer, url)
    if answer.error:
        raise ExtenderError(answer.error)
    if by_name and answer.node_names is not None:
        left = answer.node_names
    else:
        items = (answer.nodes or {}).get("items") or []
        left = [str((item.get("metadata") or {}).get("name") or "") for item in items]
    known = set(asked)
    for name in left:
        if name not in known:
            text = f'extender "{url}" claims a filtered node "{name}" which is not found in the input node list'
            raise ExtenderError(text)
    kept = set(left)
    return [name for name in asked if name in kept], answer


def read_priorities(body: bytes, *, url: str) -> list[HostPriority]:
    """Return the points by node. Raises: ExtenderError."""
    return [_convert(each, HostPriority, url) for each in _json(body, url) or []]


def read_binding(body: bytes, *, url: str) -> None:
    """Check that the extender has bound the pod. Raises: ExtenderError."""
    answer = _decode(body, BindAnswer, url)
    if answer.error:
        raise ExtenderError(answer.error)


def read_preemption(body: bytes, *, url: str) -> dict[str, MetaVictims]:
    """Return, by node, the victims that the extender chose. Raises: ExtenderError."""
    by_node = _fold_keys(_json(body, url)).get("nodenametometavictims") or {}
    victims: dict[str, MetaVictims] = {}
    for node, meta_victims in by_node.items():
        entry = _fold_keys(meta_victims)
        uids = tuple(str(_fold_keys(pod).get("uid", "")) for pod in entry.get("pods") or ())
        victims[node] = MetaVictims(uids, int(entry.get("numpdbviolations") or 0))
    return victims


def _decode(body: bytes, kind: type[S], url: str) -> S:
    return _convert(_json(body, url), kind, url)


def _json(body: bytes, url: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except UNREADABLE as error:
        raise ExtenderError(f"{url}: the answer is no JSON: {error}") from None


def _convert(value: Any, kind: type[S], url: str) -> S:
    try:
        return msgspec.convert(_fold_keys(value), kind)
    except msgspec.ValidationError as error:
        raise ExtenderError(f"{url}: the answer is no {kind.__name__}: {error}") from None


def _fold_keys(value: Any) -> dict[str, Any]:
    return {str(key).lower(): each for key, each in value.items()} if isinstance(value, dict) else {}


MAX_EXTENDER_PRIORITY: Final = 10


def is_interested(extender: Extender, pod: PodInfo) -> bool:
    """Whether the extender has no managed resources, or a container requests one of them."""
    if not extender.managed_resources:
        return True
    managed = {resource.name for resource in extender.managed_resources}
    return any(
        not managed.isdisjoint(container.resources.requests) or not managed.isdisjoint(container.resources.limits)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
    )


@dataclass(slots=True)
class Gathered:
    """The answers of all extenders called so far."""

    columns: Columns
    failed: dict[int, tuple[str, bool]] = field(default_factory=dict)
    """Refused rows: the reason ("" when none was given) and whether preemption cannot help."""
    scores: Scores | None = None

    def turned_down(self, asked: Sequence[str], left: Sequence[str], answer: FilterAnswer) -> None:
        """Note the nodes that an extender removed."""
        unresolvable, failed = answer.unresolvable_nodes or {}, answer.failed_nodes or {}
        stayed = set(left)
        for name in asked:
            if name in stayed:
                continue
            row = self.columns.slots[name]
            if name in unresolvable or name not in failed:
                # A node dropped without a word has upstream's status of nodes without a reason.
                self.failed[row] = (unresolvable.get(name, ""), True)
            else:
                self.failed[row] = (failed[name], False)

    def add_scores(self, points: Sequence[HostPriority], weight: int) -> None:
        """Add an extender's points, scaled from 0..10 to the 0..100 of plugins, times its weight."""
        if self.scores is None:
            self.scores = np.zeros(self.columns.capacity)
        for point in points:
            row = self.columns.slots.get(point.host)
            if row is not None:
                self.scores[row] += point.score * weight * (MAX_NODE_SCORE // MAX_EXTENDER_PRIORITY)

    def add_to(self, diagnosis: Diagnosis) -> None:
        """Add the refused nodes and the reasons to the diagnosis; any event may then wake the pod."""
        if self.failed:
            diagnosis.rejectors.add(EXTENDER)
        for row, (reason, is_unresolvable) in self.failed.items():
            if reason:
                diagnosis.count(EXTENDER, reason, 1)
            diagnosis.unresolvable[row] = is_unresolvable


def victims_of(node: NodeInfo, ours: Victims, theirs: MetaVictims, url: str) -> Victims:
    """Return the victims an extender named, as units. Raises: ExtenderError for a pod that is not on the node."""
    units: dict[str, Unit] = {}
    known = {pod.uid: unit for unit in ours.units for pod in unit.pods}
    for uid in theirs.uids:
        if uid not in known and uid not in node.pods:
            text = f"extender: {url} claims to preempt pod (UID: {uid}) on node: {node.name}, but the pod is not found"
            raise ExtenderError(f"{text} on that node")
        unit = known.get(uid) or pod_unit(node.pods[uid])
        units[unit.uid] = unit
    return Victims(tuple(by_importance(list(units.values()))), theirs.violations)
