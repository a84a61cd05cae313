"""What a node remembers of a claim that a pod uses; part of the pod's checkpoint. Pure.

Source: dra-core 7.
"""

from __future__ import annotations

import msgspec

from services.api.meta import Key


class HeldClaim(msgspec.Struct, frozen=True, array_like=True):
    """A claim and its devices by driver, each as `pool/device`. Perhaps they are prepared: a crash hides the answer."""

    uid: str
    namespace: str
    name: str
    devices: dict[str, tuple[str, ...]] = {}

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)
