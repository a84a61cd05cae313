"""Which changes of a kind a watch wants to be told: declared, so that one look at a change serves all watches."""

from dataclasses import dataclass
from typing import Final

from services.api.meta import View


@dataclass(frozen=True)
class Interest:
    """What a watch is told; of all else it would return no key, and remember nothing.

    Attributes are given by their path: `spec.node_name`. That an object came, is gone or has another uid is always
    told, except where `owner` or `has` say otherwise.

    `owner`: objects that have a controller of another kind before and after the change are only told when they are
    gone. `changes`: an update is told when one of these attributes has changed; empty: always. `orphan_changes`: the
    same for objects without a controller, in the place of `changes`. `has`: an object is told if this attribute is not
    empty, before or after the change. `updates_of`: of watches of all kinds, the kinds by wire name whose updates are
    told; empty: of all.
    """

    owner: type[View] | None = None
    changes: tuple[str, ...] = ()
    orphan_changes: tuple[str, ...] = ()
    has: str = ""
    updates_of: tuple[str, ...] = ()


EVERYTHING: Final = Interest()
OF_ADOPTION: Final = ("metadata.owner_references", "metadata.labels")
"""What decides whether an object without a controller gets one."""
