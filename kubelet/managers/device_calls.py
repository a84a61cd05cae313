"""The calls between the kubelet and its device plugins, as values. Pure.

The names are those of the device plugin API v1beta1, in our spelling; `deviceplugin/wire` knows the
messages. Source: kubelet 5.5.
"""

import re

import msgspec

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"

_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def is_extended(resource: str) -> bool:
    """Whether the name is an extended resource: DOMAIN/NAME outside of kubernetes.io, usable in a quota.

    Source: upstream `v1helper.IsExtendedResourceName`.
    """
    domain, sign, name = resource.partition("/")
    if not sign or "kubernetes.io/" in resource or resource.startswith("requests."):
        return False
    # What a quota calls it, `requests.` and the name, must be a qualified name too.
    return len("requests." + domain) <= 253 and bool(_DOMAIN.fullmatch(domain) and _NAME.fullmatch(name))


class Device(msgspec.Struct, frozen=True):
    """One device as its plugin lists it. `numa`: the NUMA nodes near the device; empty: equally near to all."""

    id: str
    is_healthy: bool = True
    numa: tuple[int, ...] = ()


class Options(msgspec.Struct, frozen=True):
    """The optional calls that a plugin wants besides Allocate."""

    pre_start: bool = False
    prefers: bool = False


class Registration(msgspec.Struct, frozen=True):
    """A plugin's request to be registered. `endpoint`: the name of its socket, beside the kubelet's."""

    version: str
    endpoint: str
    resource: str
    options: Options = Options()


class Mount(msgspec.Struct, frozen=True):
    """A file or directory of the node that the container sees."""

    container_path: str
    host_path: str
    read_only: bool = False


class DeviceNode(msgspec.Struct, frozen=True):
    """A device file that the container sees. `permissions`: a combination of r, w and m."""

    container_path: str
    host_path: str
    permissions: str = "rw"


class AllocateResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of Allocate for one container: all it needs to use its devices."""

    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()
    cdi: tuple[str, ...] = ()


NOTHING_GIVEN = AllocateResult()


class Share(msgspec.Struct, frozen=True, omit_defaults=True):
    """One container's devices of one resource: their ids, and the plugin's answer on how to use them."""

    container: str
    resource: str
    ids: tuple[str, ...]
    given: AllocateResult = NOTHING_GIVEN


class Preference(msgspec.Struct, frozen=True):
    """The call GetPreferredAllocation.

    It asks which `size` of the available devices, `must` among them, go best together.
    """

    resource: str
    available: tuple[str, ...]
    must: tuple[str, ...]
    size: int


class Allocate(msgspec.Struct, frozen=True):
    """The call Allocate: make these devices ready for a container."""

    resource: str
    ids: tuple[str, ...]


class PreStart(msgspec.Struct, frozen=True):
    """The call PreStartContainer: a container with these devices is about to start."""

    resource: str
    ids: tuple[str, ...]


Call = Preference | Allocate | PreStart


class Failed(msgspec.Struct, frozen=True):
    """A failed call, with the error as Go prints it."""

    text: str


Answer = tuple[str, ...] | AllocateResult | Failed | None
"""The preferred ids, the result of Allocate, the failure, or None: PreStartContainer is done."""


class CallPlugin(msgspec.Struct, frozen=True):
    """An effect: make this call over that connection and report with `answered(number, …)`."""

    number: int
    connection: int
    call: Call


class DevicesChanged(msgspec.Struct, frozen=True):
    """An effect: the Node's devices have changed.

    `registered`: the resources that a next kubelet has to know.
    """

    registered: tuple[str, ...]
