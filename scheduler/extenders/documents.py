"""What is said to an extender and what it answers, as JSON. Fields are capitalised, and in answers in any case.

Upstream's types have no JSON names, so Go writes the fields' own, and reads them whatever their case; extenders
in the world write both.

Source: upstream `staging/src/k8s.io/kube-scheduler/extender/v1/types.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from scheduler.preemption.candidates import ExtenderError
from services.api.meta import Document

S = TypeVar("S", bound=msgspec.Struct)


class FilterAnswer(msgspec.Struct, frozen=True, rename="lower"):
    """`nodes` or `node_names`: those that stay. The maps: reasons by node, of which preemption may help the first."""

    nodes: dict[str, Any] | None = None
    node_names: list[str] | None = msgspec.field(default=None, name="nodenames")
    failed_nodes: dict[str, str] | None = msgspec.field(default=None, name="failednodes")
    unresolvable_nodes: dict[str, str] | None = msgspec.field(default=None, name="failedandunresolvablenodes")
    error: str | None = None


class HostPriority(msgspec.Struct, frozen=True):
    """`score`: 0 to 10."""

    host: str = ""
    score: int = 0


class BindAnswer(msgspec.Struct, frozen=True):
    """Empty when the pod is bound."""

    error: str | None = None


class MetaVictims(msgspec.Struct, frozen=True):
    """The uids of the pods to evict from a node."""

    uids: tuple[str, ...]
    violations: int = 0


def filter_args(pod: Document, names: Sequence[str], nodes: Sequence[Document] | None) -> bytes:
    """Return ExtenderArgs, of filter and prioritize alike: names for whom they are enough, else whole nodes."""
    listed = None if nodes is None else {"metadata": {}, "items": nodes}
    return msgspec.json.encode({"Pod": pod, "Nodes": listed, "NodeNames": names if nodes is None else None})


def bind_args(namespace: str, name: str, uid: str, node: str) -> bytes:
    """Return ExtenderBindingArgs."""
    return msgspec.json.encode({"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node})


def preemption_args(pod: Document, victims: Mapping[str, tuple[Sequence[Document], int]], *, by_uid: bool) -> bytes:
    """Return ExtenderPreemptionArgs. `victims`: by node, the pods to evict and the budgets broken."""
    whole = {node: {"Pods": list(pods), "NumPDBViolations": broken} for node, (pods, broken) in victims.items()}
    short = {
        node: {"Pods": [{"UID": each["metadata"]["uid"]} for each in pods], "NumPDBViolations": broken}
        for node, (pods, broken) in victims.items()
    }
    return msgspec.json.encode(
        {
            "Pod": pod,
            "NodeNameToVictims": None if by_uid else whole,
            "NodeNameToMetaVictims": short if by_uid else None,
        }
    )


def read_filter(body: bytes, asked: Sequence[str], *, url: str, by_name: bool) -> tuple[list[str], FilterAnswer]:
    """Return the nodes that stay, in the order asked, and the answer. Raises: ExtenderError."""
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
    """Return the points. Raises: ExtenderError."""
    return [_convert(each, HostPriority, url) for each in _json(body, url) or []]


def read_binding(body: bytes, *, url: str) -> None:
    """Return when the extender says that the pod is bound. Raises: ExtenderError."""
    answer = _decode(body, BindAnswer, url)
    if answer.error:
        raise ExtenderError(answer.error)


def read_preemption(body: bytes, *, url: str) -> dict[str, MetaVictims]:
    """Return, by node, whom the extender would evict. Raises: ExtenderError."""
    found = _folded(_json(body, url)).get("nodenametometavictims") or {}
    victims: dict[str, MetaVictims] = {}
    for node, each in found.items():
        entry = _folded(each)
        uids = tuple(str(_folded(pod).get("uid", "")) for pod in entry.get("pods") or ())
        victims[node] = MetaVictims(uids, int(entry.get("numpdbviolations") or 0))
    return victims


def _decode(body: bytes, kind: type[S], url: str) -> S:
    return _convert(_json(body, url), kind, url)


def _json(body: bytes, url: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise ExtenderError(f"{url}: the answer is no JSON: {error}") from None


def _convert(value: Any, kind: type[S], url: str) -> S:
    try:
        return msgspec.convert(_folded(value), kind)
    except msgspec.ValidationError as error:
        raise ExtenderError(f"{url}: the answer is no {kind.__name__}: {error}") from None


def _folded(value: Any) -> dict[str, Any]:
    return {str(key).lower(): each for key, each in value.items()} if isinstance(value, dict) else {}
