"""State that the rules of one pod's spec share while it is checked."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from services.api.meta import Document

CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")


@dataclass
class PodScope:
    """The state of the check of one pod spec.

    `spec`: the whole spec. `pod`: the metadata of its pod, None in a template. `volumes`: the valid volumes by
    name, added as they are checked. `claims`: the names by which containers use claims.
    """

    spec: Document
    pod: Document | None
    claims: list[str] = field(default_factory=list)
    volumes: dict[str, Document] = field(default_factory=dict)

    @property
    def os(self) -> str:
        """Return the operating system that the pod names; "" if none."""
        return str((self.spec.get("os") or {}).get("name") or "")

    @property
    def has_own_users(self) -> bool:
        """Whether the pod has its own user namespace (KEP-127)."""
        return self.spec.get("hostUsers") is False


def containers(spec: Document, at: str) -> Iterator[tuple[str, Document]]:
    """Yield the containers of a pod with the paths of their members: `spec.containers[0].`."""
    for kind in CONTAINER_LISTS:
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"{at}{kind}[{index}].", container


def as_internal(members: Iterable[tuple[str, Any]]) -> Document:
    """Return an object as refusals show one of upstream's internal types: all fields, with their Go names."""
    return {f"{name[0].upper()}{name[1:]}": value for name, value in members}
