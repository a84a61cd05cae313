"""An emulated driver of devices on one node: what it offers, and what it does when it is asked. Pure.

It answers as `dra.v1` does, an error or none for each claim, and is idempotent: a claim that is prepared stays so.
How long calls take and when the driver is away stands in the node's definition; that a prepare fails stands as other
failures of a start are (`kubelet/runtime/script.py`).
Source: dra-core 7, 7.1 (emulated driver knobs).
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kubelet.runtime.records import HeldClaim
from services.api.meta import Document

SLICE_MAX: Final = 128
"""Devices a slice may have."""


class DriverDefinition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One driver on a node.

    `devices`: how many, called `<first word of the name>-0` and so on, or what each is, as ResourceSlices spell it.
    `prepare` and `unprepare` take so many seconds. The driver is away in the spans `dead`: seconds since the kubelet
    began.
    """

    name: str
    devices: int | list[dict[str, Any]] = 0
    prepare: float = 0.2
    unprepare: float = 0.1
    dead: tuple[tuple[float, float], ...] = ()

    def offered(self) -> list[Document]:
        """Return the devices as a ResourceSlice lists them."""
        if isinstance(self.devices, list):
            return list(self.devices)
        word = self.name.partition(".")[0]
        return [{"name": f"{word}-{number}"} for number in range(self.devices)]


def parse_drivers(text: str) -> list[dict[str, Any]]:
    """Return what `gpu.example.com:4:prepare=2+nic.example.com:1:dead=60-100` defines. Raises: ValueError."""
    found = []
    for each in text.split("+"):
        name, *rest = each.split(":")
        if not name or not rest or not rest[0].isdigit():
            raise ValueError(f"drivers: {each!r}, want NAME:DEVICES[:prepare=S][:unprepare=S][:dead=FROM-TO]")
        made: dict[str, Any] = {"name": name, "devices": int(rest[0])}
        for option in rest[1:]:
            key, sign, value = option.partition("=")
            if not sign or key not in ("prepare", "unprepare", "dead"):
                raise ValueError(f"drivers: {option!r}, want prepare=S, unprepare=S or dead=FROM-TO")
            try:
                if key == "dead":
                    start, _, end = value.partition("-")
                    made[key] = [[float(start), float(end)]]
                else:
                    made[key] = float(value)
            except ValueError:
                raise ValueError(f"drivers: {option!r}: {value!r} is not a number") from None
        found.append(made)
    return found


class Driver:
    """One driver of one node, since second `began_s` of the clock. `guards`: it refuses a device twice (I7)."""

    def __init__(self, definition: DriverDefinition, node: str, *, guards: bool = False) -> None:
        self.definition = definition
        self.name = definition.name
        self.generation = 0
        self.began_s = 0.0
        self._node, self._guards = node, guards
        self._holders: dict[str, str] = {}

    def is_there(self, now: float) -> bool:
        """Whether it is registered with the kubelet."""
        since_s = now - self.began_s
        return not any(start <= since_s < end for start, end in self.definition.dead)

    def next_turn(self, now: float) -> float | None:
        """Return when it next comes or goes; None: never."""
        since_s = now - self.began_s
        later = [at for span in self.definition.dead for at in span if at > since_s + 1e-6]
        return min(later) + self.began_s if later else None

    def slices(self, owner_uid: str) -> list[Document]:
        """Return what it publishes now, as a new generation of its pool, owned by its Node."""
        devices = self.definition.offered()
        chunks = [devices[at : at + SLICE_MAX] for at in range(0, len(devices), SLICE_MAX)]
        self.generation += 1
        owner = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": owner_uid, "controller": True}
        return [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"{self._node}-{self.name}-{number}", "ownerReferences": [owner]},
                "spec": {
                    "driver": self.name,
                    "nodeName": self._node,
                    "pool": {"name": self._node, "generation": self.generation, "resourceSliceCount": len(chunks)},
                    "devices": chunk,
                },
            }
            for number, chunk in enumerate(chunks)
        ]

    def recover(self, claim: HeldClaim) -> None:
        """Know that the claim may be prepared, from the kubelet's checkpoint."""
        for device in claim.devices.get(self.name, ()):
            self._holders.setdefault(device, claim.uid)

    def prepare(self, claims: Sequence[HeldClaim], *, is_broken: bool) -> dict[str, str]:
        """Prepare the claims' devices; return by claim uid why not, "" where it was done."""
        return {claim.uid: "the device does not answer" if is_broken else self._prepare(claim) for claim in claims}

    def _prepare(self, claim: HeldClaim) -> str:
        devices = claim.devices.get(self.name, ())
        offered = {f"{self._node}/{each['name']}" for each in self.definition.offered()}
        for device in devices:
            if device not in offered:
                return f"there is no device {device}"
            holder = self._holders.get(device, claim.uid)
            if self._guards and holder != claim.uid:
                return f"device {device} is prepared for claim {holder}"
        for device in devices:
            self._holders[device] = claim.uid
        return ""

    def unprepare(self, claim: HeldClaim) -> None:
        """Take the claim's devices back; nothing to do for one that was never prepared."""
        for device in claim.devices.get(self.name, ()):
            if self._holders.get(device) == claim.uid:
                del self._holders[device]
