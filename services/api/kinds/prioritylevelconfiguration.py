"""PriorityLevelConfiguration: concurrency limit of a priority level (flowcontrol.apiserver.k8s.io/v1)."""

from collections.abc import Callable
from typing import Any

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectView, Resource


class PriorityLevelConfiguration(ObjectView, frozen=True):
    """A PriorityLevelConfiguration as components see it."""


def _shares(document: Document, now_s: float) -> Any:
    spec = document.get("spec", {})
    member = "exempt" if spec.get("type") == "Exempt" else "limited"
    shares = (spec.get(member) or {}).get("nominalConcurrencyShares")
    return NONE if shares is None else shares


def _queuing(name: str) -> Callable[[Document, float], Any]:
    def cell(document: Document, now_s: float) -> Any:
        response = (document.get("spec", {}).get("limited") or {}).get("limitResponse") or {}
        return (response.get("queuing") or {}).get(name, NONE)

    return cell


RESOURCE = Resource(
    PriorityLevelConfiguration,
    "flowcontrol.apiserver.k8s.io",
    namespaced=False,
    subresources=("status",),
    has_generation=True,
    columns=(
        NAME,
        Column("Type", "spec.type"),
        Column("NominalConcurrencyShares", _shares),
        Column("Queues", _queuing("queues")),
        Column("HandSize", _queuing("handSize")),
        Column("QueueLengthLimit", _queuing("queueLengthLimit")),
        AGE,
    ),
)
