"""Claims whose devices a node's pods use, as their checkpoint has them. Pure.

Source: dra-core 7; guarantees N2.
"""

import msgspec

from services.api.meta import Key


class PreparedDevice(msgspec.Struct, frozen=True, array_like=True):
    """A device that its driver prepared: `requests` it is for, none for all of the claim's; `cdi`: its ids for the
    container runtime. Source: upstream `NodePrepareResourceResponse`."""

    driver: str
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share_id: str = ""

    @property
    def path(self) -> str:
        """The device as the event log names it: `driver/pool/device`, and the share of it."""
        return f"{self.driver}/{self.pool}/{self.device}" + (f"/{self.share_id}" if self.share_id else "")

    def is_for(self, request: str) -> bool:
        """Whether a container gets it that asks for this request, "" for all of the claim."""
        return not request or not self.requests or request in self.requests


class HeldClaim(msgspec.Struct, frozen=True, array_like=True):
    """A claim of a pod and its devices by driver, each as `pool/device`; a crash hides whether they were prepared.
    `prepared`: what drivers answered. `admin`: the devices, `driver/pool/device`, that it has beside other claims."""

    uid: str
    namespace: str
    name: str
    devices: dict[str, tuple[str, ...]] = {}
    prepared: tuple[PreparedDevice, ...] = ()
    admin: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)
