"""PortForward and ClusterPortForward: targets of forwarded ports. Pure.

Source: kubernetes-sigs/kwok pkg/apis/v1alpha1/port_forward_types.go; decision 0073.
"""

import ipaddress

from services.kwok.kind import Kind, Part

PORT_MAX = 65535


class Target(Part, frozen=True):
    """Target of a connection: a port of this machine."""

    port: int
    address: str

    def __post_init__(self) -> None:
        if not 0 < self.port <= PORT_MAX:
            raise ValueError(f".port {self.port}: want 1 to {PORT_MAX}")
        if not _is_loopback(self.address):
            raise ValueError(f".address {self.address!r}: want a loopback address")


class Header(Part, frozen=True):
    """A header of an answer."""

    name: str
    value: str = ""

    def __post_init__(self) -> None:
        if not self.name or not self.name.isascii() or any(sign in self.name + self.value for sign in "\r\n\0"):
            raise ValueError(f".name {self.name!r}: want the name of a header, on one line with its value")


class Route(Part, frozen=True):
    """The answer to requests of one path."""

    location: str
    code: int
    headers: tuple[Header, ...] = ()
    body: str = ""

    def __post_init__(self) -> None:
        if not 100 <= self.code <= 599:
            raise ValueError(f".code {self.code}: want 100 to 599")


class Forward(Part, frozen=True):
    """Target of some ports: `command` takes precedence over `target`, and `target` over `http_routes`."""

    ports: tuple[int, ...] = ()
    target: Target | None = None
    command: tuple[str, ...] = ()
    http_routes: tuple[Route, ...] = ()

    def __post_init__(self) -> None:
        for number, port in enumerate(self.ports):
            if not 0 < port <= PORT_MAX:
                raise ValueError(f".ports[{number}] {port}: want 1 to {PORT_MAX}")
        if self.target is None and not self.command and not self.http_routes:
            raise ValueError(": want target, command or httpRoutes")

    @property
    def names(self) -> tuple[object, ...]:
        """The ports it applies to; empty: all."""
        return self.ports


class Spec(Part, frozen=True):
    """Spec of the document."""

    forwards: tuple[Forward, ...]


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


KIND = Kind("PortForward", Spec, "forwards")
