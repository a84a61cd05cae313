"""The calls between a kubelet and the DRA drivers of its node, as values. Pure.

`kubelet/dra/wire.py` knows the messages. Source: dra-core 7.1; upstream
`staging/src/k8s.io/kubelet/pkg/apis/dra/v1`.
"""

from typing import Final

import msgspec

from kubelet.runtime.claims import HeldClaim, PreparedDevice
from services.api.meta import Key

PLUGIN_TYPE: Final = "DRAPlugin"
SERVICES: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""The gRPC services that a kubelet calls, the preferred one first; their messages are the same."""
HEALTH_SERVICE: Final = "v1alpha1.DRAResourceHealth"
REGISTRY: Final = "plugins_registry"
"""The folder of a node in which plugins have their registration sockets."""
PLUGINS: Final = "plugins"
"""The folder in which plugins have all other files."""
HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"


class PluginInfo(msgspec.Struct, frozen=True):
    """Identity of the plugin behind a registration socket. `endpoint` "": it serves its calls there as well."""

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]


class Registered(msgspec.Struct, frozen=True):
    """The kubelet's answer to a registration; `error`: why it failed."""

    is_registered: bool
    error: str = ""


class ClaimName(msgspec.Struct, frozen=True):
    """A claim as it is named in calls to a driver; the driver reads the rest itself."""

    namespace: str
    uid: str
    name: str

    @property
    def key(self) -> Key:
        """The namespace and name of the claim."""
        return Key(self.namespace, self.name)


class ClaimResult(msgspec.Struct, frozen=True):
    """The result for one claim: its devices, or the error. An unprepare has only the error."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class CallFailed(msgspec.Struct, frozen=True):
    """A call that failed as a whole. `text`: as Go prints it; `code`: its gRPC status."""

    code: str
    text: str


Answer = dict[str, ClaimResult] | CallFailed
"""A driver's answer, by the uid of the claim."""


class DeviceHealth(msgspec.Struct, frozen=True):
    """The health of a device, as its driver reports it.

    `timeout_s`: seconds that the report holds without news; 0: the default.
    """

    pool: str
    device: str
    health: str
    timeout_s: float = 0.0
    message: str = ""


def names_of(claims: tuple[HeldClaim, ...]) -> tuple[ClaimName, ...]:
    """Return the claims as they are named in calls to a driver."""
    return tuple(ClaimName(claim.namespace, claim.uid, claim.name) for claim in claims)
