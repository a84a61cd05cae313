"""An emulated DRA driver of one node: its offered devices, its prepared claims, and its answers. Pure.

It is idempotent: a claim that is prepared stays so, across restarts as well. On command devices fall ill,
are tainted, come and go, prepares are refused or never answered, and the whole driver goes away. Source:
dra-core 1.1, 7.1; upstream `staging/src/k8s.io/dynamic-resource-allocation/kubeletplugin`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kubelet.dra.calls import HEALTHY, UNHEALTHY, ClaimName, ClaimResult, DeviceHealth
from kubelet.dra.emulated.binding import Waiting, waiting
from kubelet.dra.emulated.definition import COUNTER_SETS_MAX, DriverDefinition, PoolDefinition, chunks
from kubelet.runtime.claims import PreparedDevice
from services.api.errors import UNREADABLE
from services.api.kinds.resourceclaim import DeviceRequestAllocationResult, ResourceClaim
from services.api.meta import Document

UNBINDABLE: Final = "keplab.dev/unbindable"
"""The taint of a device whose binding failed."""
OF_DRIVER: Final = ("stop", "start", "restart", "hang", "resume", "refuse", "accept", "generation", "crash")
OF_DEVICES: Final = ("unhealthy", "healthy", "remove", "add", "taint", "untaint")
ACTS: Final = (*OF_DRIVER, *OF_DEVICES)


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command to a driver. `words`: the devices it applies to; for a taint also the taint, as the last."""

    act: str
    words: tuple[str, ...] = ()


def check_act(act: str, words: Sequence[str]) -> None:
    """Raise ValueError when the act is unknown, or does not fit these words."""
    if act not in ACTS:
        raise ValueError(f"no act {act!r}; there are: {', '.join(sorted(ACTS))}")
    if act in OF_DRIVER and words:
        raise ValueError(f"{act} is about no device, not {' '.join(words)}")
    if act in OF_DEVICES and not words:
        raise ValueError(f"{act} wants devices, for example: {act} gpu-0")
    if act == "taint":
        if len(words) < 2:
            raise ValueError("want: taint DEVICE… KEY[=VALUE]:EFFECT")
        parse_taint(words[-1])


def parse_taint(text: str) -> Document:
    """Return the taint in the form `KEY[=VALUE]:EFFECT`. Raises: ValueError."""
    key_value, _, effect = text.rpartition(":")
    key, _, value = key_value.partition("=")
    if not key or effect not in ("None", "NoSchedule", "NoExecute"):
        raise ValueError(f"taint {text!r}: want KEY[=VALUE]:EFFECT with the effect None, NoSchedule or NoExecute")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


class PreparedClaim(msgspec.Struct, frozen=True):
    """A prepared claim and its devices of this driver.

    `exclusive`: devices that no other claim may have meanwhile, as `pool/device` or `pool/device/share`.
    `pods`: the pods for which the claim was reserved; `trace_id`: the trace of the call.
    """

    namespace: str
    name: str
    devices: tuple[PreparedDevice, ...] = ()
    exclusive: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    trace_id: str = ""


class EmulatedDriver:
    """One driver of one node.

    Invariant: `version` grows with every change of the offered devices, `health_version` with every change of a
    device's health.
    """

    def __init__(self, definition: DriverDefinition, node: str, *, guards: bool) -> None:
        self.definition, self.name, self.node = definition, definition.name, node
        self.guards = definition.refuses_double_use if definition.refuses_double_use is not None else guards
        self.held: dict[str, PreparedClaim] = {}
        """What is prepared, by the uid of the claim."""
        self.is_away = self.is_hung = self.refuses = False
        self.generation = definition.generation
        self.version = self.health_version = self.restarts = 0
        self._pools: dict[str, PoolDefinition] = {pool.name: pool for pool in definition.all_pools(node)}
        self._devices: dict[str, dict[str, Document]] = {
            pool.name: {str(device["name"]): device for device in definition.devices_of(pool)}
            for pool in self._pools.values()
        }
        self._ill: dict[str, None] = {}
        self._taints: dict[str, list[Document]] = {}

    # --- what it offers ---

    def is_dead(self, since_s: float) -> bool:
        """Whether the definition has the driver away this many seconds after it began."""
        return any(start <= since_s + 1e-6 < end for start, end in self.definition.dead)

    def next_turn(self, since_s: float) -> float | None:
        """Return when the driver next comes or goes, in seconds after it began; None: never."""
        return min((at for span in self.definition.dead for at in span if at > since_s + 1e-6), default=None)

    def devices(self) -> list[tuple[str, str]]:
        """Return `(pool, device)` of all its devices."""
        return [(pool, device) for pool, devices in self._devices.items() for device in devices]

    def slices(self) -> dict[str, Document]:
        """Return the spec of every slice by its name, with the present generation."""
        specs: dict[str, Document] = {}
        number = 0
        for pool, devices in self._devices.items():
            counters, sizes = self._pools[pool].shared_counters, self._pools[pool].slice_sizes
            shown = [self._with_taints(device) for device in devices.values()]
            parts = [{"devices": part} for part in chunks(shown, self.definition.slices, sizes)]
            parts += [
                {"sharedCounters": counters[start : start + COUNTER_SETS_MAX]}
                for start in range(0, len(counters), COUNTER_SETS_MAX)
            ]
            for part in parts:
                specs[f"{self.node}-{self.name}-{number}"] = {
                    "driver": self.name,
                    "nodeName": self.node,
                    "pool": {"name": pool, "generation": self.generation, "resourceSliceCount": len(parts)},
                    **part,
                }
                number += 1
        return specs

    def _with_taints(self, device: Document) -> Document:
        taints = [*device.get("taints", ()), *self._taints.get(str(device["name"]), ())]
        return {**device, "taints": taints} if taints else device

    def health(self) -> list[DeviceHealth]:
        """Return the health of every device."""
        return [
            DeviceHealth(pool, device, UNHEALTHY if device in self._ill else HEALTHY) for pool, device in self.devices()
        ]

    # --- what pods wait for before they are bound ---

    def waiting(self, claim: ResourceClaim) -> dict[Waiting, DeviceRequestAllocationResult]:
        """Return the claim's devices of this driver whose binding conditions are to be reported."""
        return waiting(claim, self.name, self._pools)

    def fail_binding(self, device: str) -> bool:
        """Return whether the device's binding fails; if so, taint the device when the definition asks for it."""
        if device not in self.definition.fail_binding:
            return False
        taints = self._taints.setdefault(device, [])
        if self.definition.taints_failed and not any(taint["key"] == UNBINDABLE for taint in taints):
            taints.append({"key": UNBINDABLE, "effect": "NoSchedule"})
            self._on_changed()
        return True

    # --- what it is commanded ---

    def act(self, command: Command) -> None:
        """Perform the command. Raises: ValueError naming the unknown act or device."""
        act, words = command.act, command.words
        check_act(act, words)
        match act:
            case "stop" | "start":
                self.is_away = act == "stop"
            case "restart":
                self.restarts += 1
            case "hang" | "resume":
                self.is_hung = act == "hang"
            case "refuse" | "accept":
                self.refuses = act == "refuse"
            case "generation":
                self._on_changed()
            case "healthy" | "unhealthy":
                self._sicken(words, is_ill=act == "unhealthy")
            case "taint":
                self._check_known(words[:-1])
                for device in words[:-1]:
                    self._taints.setdefault(device, []).append(parse_taint(words[-1]))
                self._on_changed()
            case "untaint":
                self._check_known(words)
                for device in words:
                    self._taints.pop(device, None)
                self._on_changed()
            case "remove" | "add":
                self._move(words, is_added=act == "add")

    def _on_changed(self) -> None:
        self.generation += 1
        self.version += 1

    def _sicken(self, devices: Sequence[str], *, is_ill: bool) -> None:
        self._check_known(devices)
        for device in devices:
            if is_ill:
                self._ill[device] = None
            else:
                self._ill.pop(device, None)
        self.health_version += 1

    def _move(self, devices: Sequence[str], *, is_added: bool) -> None:
        if not is_added:
            self._check_known(devices)
        first = next(iter(self._devices.values()))
        for device in devices:
            if is_added:
                first.setdefault(device, {"name": device})
            else:
                for held in self._devices.values():
                    held.pop(device, None)
        self.health_version += 1
        self._on_changed()

    def _check_known(self, devices: Sequence[str]) -> None:
        there = [device for _, device in self.devices()]
        if unknown := [device for device in devices if device not in there]:
            raise ValueError(f"no device {unknown[0]!r}; there are: {', '.join(there) or 'none'}")

    # --- what it is called for ---

    def prepare(
        self, asked: ClaimName, claim: ResourceClaim | str, *, fails: bool = False, trace_id: str = ""
    ) -> ClaimResult:
        """Prepare a claim's devices.

        `claim`: the stored claim, or why it could not be read. `trace_id`: of the pod that the call is for; empty
        if there is none.
        """
        if (held := self.held.get(asked.uid)) is not None:
            return ClaimResult(held.devices)
        if isinstance(claim, str):
            return ClaimResult(error=claim)
        if self.refuses or fails:
            return ClaimResult(error="the device does not answer")
        if claim.metadata.uid != asked.uid:
            return ClaimResult(
                error=f"claim {asked.key} got replaced: its uid is {claim.metadata.uid}, not {asked.uid}"
            )
        if claim.status.allocation is None:
            return ClaimResult(error=f"claim {asked.key} is not allocated")
        devices: dict[str, PreparedDevice] = {}
        exclusive: dict[str, None] = {}
        for result in claim.status.allocation.devices.results:
            if result.driver != self.name:
                continue
            key = f"{result.pool}/{result.device}" + (f"/{result.share_id}" if result.share_id else "")
            # What another publishes for all nodes, a switch for example, is there for every node's driver.
            if result.pool in self._devices and result.device not in self._devices[result.pool]:
                return ClaimResult(error=f"there is no device {result.pool}/{result.device}")
            if not result.admin_access:
                exclusive[key] = None
                if self.guards and (other := self._holder(key, asked.uid)):
                    return ClaimResult(error=f"device {key} is prepared for claim {other}")
            request = result.request.partition("/")[0]
            known = devices.get(key)
            devices[key] = PreparedDevice(
                self.name,
                result.pool,
                result.device,
                (*known.requests, request) if known is not None else (request,),
                (f"{self.name}/device={asked.uid}-{result.device}",),
                result.share_id or "",
            )
        pods = tuple(each.name for each in claim.status.reserved_for if each.resource == "pods")
        prepared = tuple(devices.values())
        self.held[asked.uid] = PreparedClaim(asked.namespace, asked.name, prepared, tuple(exclusive), pods, trace_id)
        return ClaimResult(self.held[asked.uid].devices)

    def _holder(self, key: str, uid: str) -> str:
        """Return the claim, other than this one, for which the device is prepared; "" for none."""
        return next((other for other, held in self.held.items() if other != uid and key in held.exclusive), "")

    def unprepare(self, asked: ClaimName, *, fails: bool = False) -> tuple[ClaimResult, PreparedClaim | None]:
        """Unprepare a claim; return the result and the claim's former state here.

        A claim that was never prepared succeeds as well.
        """
        if fails:
            return ClaimResult(error="the device does not answer"), None
        return ClaimResult(), self.held.pop(asked.uid, None)

    # --- what outlives it ---

    def checkpoint(self) -> bytes:
        """Return the prepared claims in the form that is written to its disk."""
        return msgspec.json.encode(self.held)

    def restore(self, data: bytes) -> None:
        """Restore the prepared claims from its disk. Raises: ValueError."""
        try:
            self.held = dict(msgspec.json.decode(data, type=dict[str, PreparedClaim]))
        except UNREADABLE as error:
            raise ValueError(str(error)) from None


def differs(published: Mapping[str, Document], wanted: Mapping[str, Document]) -> bool:
    """Whether the published slices differ from the wanted ones, apart from generations and times of taints."""
    return {name: _plain(spec) for name, spec in published.items()} != {n: _plain(spec) for n, spec in wanted.items()}


def _plain(spec: Document) -> Document:
    devices = [
        {**device, "taints": [{k: v for k, v in taint.items() if k != "timeAdded"} for taint in device["taints"]]}
        if device.get("taints")
        else device
        for device in spec.get("devices") or ()
    ]
    return {**spec, "pool": {**spec["pool"], "generation": 0}, **({"devices": devices} if devices else {})}
