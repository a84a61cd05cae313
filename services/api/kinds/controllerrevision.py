"""ControllerRevision: a recorded template of a StatefulSet or DaemonSet, for rollback (apps/v1)."""

from typing import Any

from services.api.meta import AGE, NAME, NONE, Column, Document, ObjectView, Resource


class ControllerRevision(ObjectView, frozen=True):
    """One recorded state of an owner. `data`: a strategic merge patch that restores the state; it never changes.

    `revision` orders the states of one owner; going back to an old state gives it the highest number.
    """

    data: dict[str, Any] = {}
    revision: int = 0


def _owner(document: Document, now: float) -> str:
    """Return the controlling object as `statefulset.apps/web`."""
    owner = next((each for each in document["metadata"].get("ownerReferences", ()) if each.get("controller")), None)
    if owner is None:
        return NONE
    group = owner.get("apiVersion", "").rpartition("/")[0]
    kind = ".".join(filter(None, (owner.get("kind", ""), group))).lower()
    return f"{kind}/{owner.get('name', '')}"


RESOURCE = Resource(
    ControllerRevision,
    "apps",
    columns=(NAME, Column("Controller", _owner), Column("Revision", "revision", default=0), AGE),
)
