"""Which pods are on which node, kept up to date by a watch; saves looking through all pods."""

from __future__ import annotations

from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.reconcile.controller import Change


class PodsByNode:
    """Keys of pods by the node they are bound to, in the order they were seen there."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[Key, None]] = {}

    def note(self, change: Change[Pod]) -> None:
        """Take a change into account."""
        old, new = change.old, change.new
        before = old.spec.node_name if old is not None else ""
        after = new.spec.node_name if new is not None else ""
        if before == after:
            return
        key = change.object.metadata.key
        if before and (keys := self._keys.get(before)) is not None:
            keys.pop(key, None)
            if not keys:
                del self._keys[before]
        if after:
            self._keys.setdefault(after, {})[key] = None

    def on(self, node: str) -> list[Key]:
        """Return the pods bound to a node."""
        return list(self._keys.get(node, ()))
