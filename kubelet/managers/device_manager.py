"""The device manager: a node's devices, their health, and the pods that have them. Pure.

Devices are known by id. Devices in a node definition exist as long as the node and need no plugin; those of
a plugin come, fall ill and go as their plugin reports. A pod keeps its device, whatever becomes of it. The
last registration of a resource wins; messages of an earlier plugin are ignored. When a plugin is gone, its
devices are unhealthy at once; five minutes later they are not counted any more, and the Node shows 0 of
them, which is how they differ from a resource that the node never had. A plugin that prefers some devices
has to be asked first: `asked` then holds the question, and the choice made meanwhile must not be used.
Source: kubelet 2.1, 5.5; upstream `pkg/kubelet/cm/devicemanager`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kubelet.managers.device_calls import Device, Options, Preference, Share
from kubelet.managers.topology import Hint, bits, masks

GRACE_S = 300.0
"""Seconds during which the devices of a plugin that is gone are still counted."""
_EARLY_S = 1e-6


class _Resource:
    """The devices of one resource. `is_registered` False: no plugin, but pods still have some of them.

    `connection`: the number of the connection to its plugin, 0 for a plugin known only from a former kubelet;
    `gone_s`: since when the plugin is gone. Invariant: a device in `taken` belongs to one pod only; it need not
    be listed or healthy.
    """

    __slots__ = ("connection", "devices", "gone_s", "is_plugged", "is_registered", "options", "taken")

    def __init__(self, devices: Iterable[Device] = (), *, is_plugged: bool, is_registered: bool = True) -> None:
        self.devices = {device.id: device for device in devices}
        self.taken: dict[str, None] = {}
        self.is_plugged, self.is_registered = is_plugged, is_registered
        self.connection = 0
        self.options = Options()
        self.gone_s: float | None = None

    @property
    def healthy(self) -> list[str]:
        return [device.id for device in self.devices.values() if device.is_healthy]

    def free(self) -> list[str]:
        return [each for each in self.healthy if each not in self.taken]

    def numa_of(self, device: str) -> tuple[int, ...]:
        listed = self.devices.get(device)
        return listed.numa if listed is not None else ()

    @property
    def has_topology(self) -> bool:
        return any(device.numa for device in self.devices.values())


_UNKNOWN = _Resource(is_plugged=False, is_registered=False)


class DeviceManager:
    """The devices of one node."""

    def __init__(self, devices_by_numa: Sequence[Mapping[str, int]], without_topology: Mapping[str, int]) -> None:
        self._numa_count = len(devices_by_numa)
        self._resources: dict[str, _Resource] = {}
        self._connections = 0
        names = sorted({name for devices in devices_by_numa for name in devices} | set(without_topology))
        for name in names:
            near = [
                Device(f"{name.rpartition('/')[2]}-{numa}-{number}", numa=(numa,))
                for numa, devices in enumerate(devices_by_numa)
                for number in range(devices.get(name, 0))
            ]
            anywhere = [Device(f"{name.rpartition('/')[2]}-{n}") for n in range(without_topology.get(name, 0))]
            self._resources[name] = _Resource([*near, *anywhere], is_plugged=False)
        self.preferences: dict[Preference, tuple[str, ...] | str] = {}
        """What plugins answered to what was asked: ids, or why there is no answer."""
        self.asked: Preference | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the node has no devices that a pod could request."""
        return not self._resources

    def _of(self, resource: str) -> _Resource:
        return self._resources.get(resource, _UNKNOWN)

    def knows(self, resource: str) -> bool:
        """Whether the resource is one of devices: of a registered plugin, declared, or still held by a pod."""
        held = self._of(resource)
        return held.is_registered or bool(held.taken)

    def is_plugged(self, resource: str) -> bool:
        """Whether the devices belong to a plugin, rather than being declared."""
        return self._of(resource).is_plugged

    def capacity(self) -> dict[str, tuple[int, int]]:
        """Return (all, healthy) of every resource with a plugin; (0, 0) if the plugin is no longer counted."""
        return {
            name: (len(held.devices), len(held.healthy)) if held.is_registered else (0, 0)
            for name, held in self._resources.items()
            if held.is_plugged
        }

    def free(self, resource: str) -> int:
        """Return how many devices of the resource pods may have in total: healthy or already allocated ones."""
        held = self._resources[resource]
        healthy = held.healthy if held.is_registered else []
        return len({*healthy, *held.taken})

    def counts_by_numa(self) -> dict[str, tuple[list[int], list[int]]]:
        """Return (healthy, free) by NUMA node of every resource whose devices have a topology."""
        return {
            name: (self._count(held, held.healthy), self._count(held, held.free()))
            for name, held in self._resources.items()
            if held.has_topology
        }

    def _count(self, held: _Resource, devices: Sequence[str]) -> list[int]:
        return [sum(numa in held.numa_of(device) for device in devices) for numa in range(self._numa_count)]

    def health(self, resource: str, device: str) -> bool:
        """Whether the device is healthy, as far as is known: a device that no plugin lists counts as healthy."""
        listed = self._of(resource).devices.get(device)
        return listed is None or listed.is_healthy

    def healthy(self) -> Iterator[tuple[str, Device]]:
        """Yield (resource, device) of all devices that are allocated or can be."""
        for name, held in self._resources.items():
            if held.is_registered:
                yield from ((name, device) for device in held.devices.values() if device.is_healthy)

    def numa_of(self, resource: str, device: str) -> tuple[int, ...]:
        """Return the NUMA nodes near a device; empty when no plugin lists it."""
        return self._of(resource).numa_of(device)

    def restore(self, resources: Iterable[str], now: float) -> None:
        """Restore the plugins of a former kubelet: their devices do not count until they register again."""
        for resource in resources:
            self._register(resource).gone_s = now

    def on_connected(self, resource: str, options: Options) -> int:
        """Register a plugin that was reached; return the number of its connection."""
        self._connections += 1
        held = self._register(resource)
        held.connection, held.options, held.gone_s = self._connections, options, None
        return self._connections

    def _register(self, resource: str) -> _Resource:
        """Return the resource of a plugin; which devices it has the plugin will say."""
        held = self._resources.get(resource)
        if held is None or not held.is_plugged:
            # A plugin's devices take the place of declared ones: it knows them better. Who has one keeps it.
            taken = held.taken if held is not None else {}
            held = self._resources[resource] = _Resource(is_plugged=True)
            held.taken = taken
        held.is_registered = True
        return held

    def update_devices(self, resource: str, number: int, devices: Sequence[Device]) -> list[str] | None:
        """Take a plugin's whole list; return the devices that are new or whose health changed.

        None: another plugin took over.
        """
        held = self._current(resource, number)
        if held is None:
            return None
        before, held.devices = held.devices, {device.id: device for device in devices}
        return [
            each.id
            for each in held.devices.values()
            if each.id not in before or before[each.id].is_healthy != each.is_healthy
        ]

    def on_disconnected(self, resource: str, number: int, now: float) -> list[str] | None:
        """Mark a plugin's devices unhealthy, because its stream ended; return the devices whose health changed.

        None: another plugin took over.
        """
        held = self._current(resource, number)
        if held is None:
            return None
        held.gone_s, lost = now, held.healthy
        held.devices = {name: Device(name, is_healthy=False, numa=each.numa) for name, each in held.devices.items()}
        return lost

    def _current(self, resource: str, number: int) -> _Resource | None:
        held = self._of(resource)
        return held if held.is_registered and held.connection == number else None

    def expire(self, now: float) -> bool:
        """Stop counting devices of plugins that have been gone for too long; return whether there were any."""
        over = [r for r in self._resources.values() if r.gone_s is not None and r.gone_s + GRACE_S <= now + _EARLY_S]
        for held in over:
            held.is_registered, held.devices = False, {}
            held.connection, held.options, held.gone_s = 0, Options(), None
        return bool(over)

    @property
    def next_expiry_s(self) -> float | None:
        """The time at which the next plugin will have been gone too long."""
        return min(
            (held.gone_s + GRACE_S for held in self._resources.values() if held.gone_s is not None), default=None
        )

    def registered_resources(self) -> tuple[str, ...]:
        """Return the resources that a next kubelet has to know, sorted."""
        return tuple(sorted(name for name, held in self._resources.items() if held.is_plugged and held.is_registered))

    def serving(self, resource: str) -> int:
        """Return the number of the connection to call; 0 when there is no plugin."""
        held = self._of(resource)
        return held.connection if held.gone_s is None else 0

    def wants_pre_start(self, resource: str) -> bool:
        """Whether PreStartContainer is to be called before containers with these devices start."""
        return self._of(resource).options.pre_start

    def hints(self, resource: str, requested: int, reusable: Sequence[str] = ()) -> list[Hint] | None:
        """Return NUMA hints, or None when the devices have no topology. `reusable` devices count as free.

        A set of NUMA nodes is a hint when enough free devices are near to it, and preferred when no smaller set
        could hold the request with all devices free.
        """
        held = self._resources[resource]
        if not held.has_topology:
            return None
        free = list(dict.fromkeys([*reusable, *held.free()]))
        if len(free) < requested:
            return []
        smallest = self._numa_count + 1
        hint_masks: list[int] = []
        for mask in masks(self._numa_count):
            near = set(bits(mask))
            if sum(not near.isdisjoint(device.numa) for device in held.devices.values()) >= requested:
                smallest = min(smallest, len(near))
            numas = [held.numa_of(device) for device in free]
            if any(n and near.isdisjoint(n) for n in (held.numa_of(device) for device in reusable)):
                continue
            if sum(not near.isdisjoint(numa) for numa in numas) >= requested:
                hint_masks.append(mask)
        return [Hint(mask, mask.bit_count() == smallest) for mask in hint_masks]

    def allocate(
        self, resource: str, requested: int, mask: int | None, reusable: Sequence[str] = ()
    ) -> tuple[str, ...] | str:
        """Take devices: `reusable` ones first, then those inside `mask`; return their ids, or why it cannot be done."""
        if problem := self.problem(resource, ()):
            return problem
        held = self._resources[resource]
        chosen = list(reusable[:requested])
        if needed := requested - len(chosen):
            free = [device for device in held.free() if device not in chosen]
            if len(free) < needed:
                return (
                    f"requested number of devices unavailable for {resource}. "
                    f"Requested: {needed}, Available: {len(free)}"
                )
            picked = self._pick(resource, held, chosen, free, mask, requested)
            if isinstance(picked, str):
                return picked
            chosen = picked
        held.taken.update(dict.fromkeys(chosen))
        return tuple(chosen)

    def problem(self, resource: str, had: Sequence[str]) -> str:
        """Return why these devices cannot be allocated now; "" when they can.

        `had`: devices that the container already has.
        """
        held = self._of(resource)
        if not held.is_registered:
            return f"cannot allocate unregistered device {resource}"
        healthy = held.healthy
        if not healthy:
            return f"no healthy devices present; cannot allocate unhealthy devices {resource}"
        if not set(had).issubset(healthy):
            return f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
        return ""

    def _pick(
        self, resource: str, held: _Resource, reused: list[str], free: list[str], mask: int | None, requested: int
    ) -> list[str] | str:
        """Return `requested` devices, the reused ones first, or why the plugin did not say which it prefers."""
        aligned, others = self._by_affinity(held, free, mask)
        chosen = list(reused)
        if requested - len(chosen) < len(aligned):
            pool, preferred = aligned, self._preferred_devices(resource, held, [*chosen, *aligned], chosen, requested)
        else:
            # All that is near, so that the alignment that was found holds; the plugin may choose the rest.
            chosen += aligned
            pool, preferred = others, ()
            if len(chosen) < requested:
                preferred = self._preferred_devices(resource, held, [*reused, *free], chosen, requested)
        if isinstance(preferred, str):
            return preferred
        for device in (*(w for w in preferred if w in pool), *pool):
            if len(chosen) == requested:
                break
            if device not in chosen:
                chosen.append(device)
        return chosen

    def _by_affinity(self, held: _Resource, free: list[str], mask: int | None) -> tuple[list[str], list[str]]:
        """Return the devices inside the mask, and the others: far ones before those without topology.

        Among equals those come first whose NUMA node has fewest, so that full nodes stay full.
        """
        if mask is None or not held.has_topology:
            return [], free
        near = set(bits(mask))
        size = Counter(numa for device in free for numa in held.numa_of(device))
        order = sorted(size, key=lambda numa: (numa not in near, size[numa], numa))
        ranked = dict.fromkeys(device for numa in order for device in free if numa in held.numa_of(device))
        aligned = [device for device in ranked if not near.isdisjoint(held.numa_of(device))]
        far = [device for device in ranked if near.isdisjoint(held.numa_of(device))]
        return aligned, [*far, *(device for device in free if device not in ranked)]

    def _preferred_devices(
        self, resource: str, held: _Resource, available: list[str], must: list[str], size: int
    ) -> tuple[str, ...] | str:
        if not held.options.prefers:
            return ()
        wanted = Preference(resource, tuple(available), tuple(must), size)
        if wanted not in self.preferences:
            self.asked = self.asked or wanted
            return ()
        return self.preferences[wanted]

    def take(self, shares: Iterable[Share]) -> None:
        """Take exactly these devices, as a checkpoint has them; health and capacity are not checked (k/k #109595)."""
        for share in shares:
            held = self._resources.get(share.resource)
            if held is None:
                held = self._resources[share.resource] = _Resource(is_plugged=True, is_registered=False)
            held.taken.update(dict.fromkeys(share.ids))

    def release(self, shares: Iterable[Share]) -> None:
        """Release these devices."""
        for share in shares:
            for device in share.ids:
                self._of(share.resource).taken.pop(device, None)
