"""The claims whose devices a node's pods use, as their checkpoint has them. Pure.

Source: dra-core 7; guarantees N2.
"""

import msgspec

from services.api.meta import Key


class PreparedDevice(msgspec.Struct, frozen=True, array_like=True):
    """A device that its driver prepared.

    `requests`: the claim's requests it is for; empty: all of the claim's. `cdi`: its ids for the container
    runtime. Source: upstream `NodePrepareResourceResponse`.
    """

    driver: str
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share_id: str = ""

    @property
    def path(self) -> str:
        """The device's name in the event log: `driver/pool/device`, and its share."""
        return f"{self.driver}/{self.pool}/{self.device}" + (f"/{self.share_id}" if self.share_id else "")

    def is_for(self, request: str) -> bool:
        """Whether a container that uses this request gets the device; "" stands for the whole claim."""
        return not request or not self.requests or request in self.requests


class HeldClaim(msgspec.Struct, frozen=True, array_like=True):
    """A pod's claim and its devices by driver, each as `pool/device`.

    A crash hides whether the devices were prepared. `prepared`: the drivers' answers. `admin`: its devices with
    admin access, as `driver/pool/device`, which other claims may use too.
    """

    uid: str
    namespace: str
    name: str
    devices: dict[str, tuple[str, ...]] = {}
    prepared: tuple[PreparedDevice, ...] = ()
    admin: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """The namespace and name of the claim."""
        return Key(self.namespace, self.name)
