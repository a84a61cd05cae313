"""What a kubelet and the DRA drivers of its node say to each other, as values. Pure.

`kubelet/dra/wire.py` knows the messages. Source: dra-core 7.1; upstream `staging/src/k8s.io/kubelet/pkg/apis/dra/v1`.
"""

from typing import Final

import msgspec

from kubelet.runtime.claims import HeldClaim, PreparedDevice
from services.api.meta import Key

PLUGIN_TYPE: Final = "DRAPlugin"
SERVICES: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""What a kubelet calls, the best first; they are the same on the wire."""
HEALTH_SERVICE: Final = "v1alpha1.DRAResourceHealth"
REGISTRY: Final = "plugins_registry"
"""The folder of a node in which plugins have their registration sockets."""
PLUGINS: Final = "plugins"
"""The folder in which they have everything else."""
HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"


class PluginInfo(msgspec.Struct, frozen=True):
    """Who serves a registration socket. `endpoint` "": it does its work there as well."""

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]


class Registered(msgspec.Struct, frozen=True):
    """What the kubelet says of a registration; `error`: why it did not come to be."""

    is_registered: bool
    error: str = ""


class ClaimName(msgspec.Struct, frozen=True):
    """A claim as a driver is asked for it; the driver reads the rest itself."""

    namespace: str
    uid: str
    name: str

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.namespace, self.name)


class ClaimResult(msgspec.Struct, frozen=True):
    """What became of one claim: its devices, or why there are none. Of an unprepare there is only the error."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class CallFailed(msgspec.Struct, frozen=True):
    """A call that failed as a whole. `text`: as Go prints it; `code`: its gRPC status."""

    code: str
    text: str


Answer = dict[str, ClaimResult] | CallFailed
"""What a driver answered, by the uid of the claim."""


class DeviceHealth(msgspec.Struct, frozen=True):
    """How a device is, by its driver. `timeout_s`: so long that holds without news; 0: as ever."""

    pool: str
    device: str
    health: str
    timeout_s: float = 0.0
    message: str = ""


def names_of(claims: tuple[HeldClaim, ...]) -> tuple[ClaimName, ...]:
    """Return the claims as a driver is asked for them."""
    return tuple(ClaimName(claim.namespace, claim.uid, claim.name) for claim in claims)
