"""The registered DRA drivers of one node: which instance of each is called, and when slices are wiped. Pure.

A driver may have several instances at once, while it is updated. If no instance of a driver can be called,
its slices are deleted after a while, so that the scheduler does not count on them. Source: dra-core 7, 7.1;
upstream `pkg/kubelet/cm/dra/plugin` (DRAPluginManager).
"""

from collections.abc import Sequence

import msgspec

from kubelet.dra.calls import SERVICES
from kubelet.effects import NODE_KEY, Outbox, SetTimer, WipeSlices

TIMER = "drivers"


class Instance(msgspec.Struct):
    """One registered instance of a driver.

    `service`: the gRPC service to call; `is_connected`: whether it can be reached now.
    """

    number: int
    driver: str
    endpoint: str
    service: str
    is_connected: bool = False


def choose_service(driver: str, endpoint: str, offered: Sequence[str]) -> str:
    """Return the service by which a driver is called. Raises: ValueError in Kubernetes' words."""
    why = "empty list of supported gRPC services (aka supported versions)"
    if offered:
        if (service_name := next((service for service in offered if service in SERVICES), "")) != "":
            return service_name
        why = (
            f"none of services supported by the plugin ({_quoted_list(offered)}) are supported by the kubelet "
            f"({_quoted_list(SERVICES)})"
        )
    raise ValueError(f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}: {why}")


def _quoted_list(texts: Sequence[str]) -> str:
    """Return a list as Go prints it with %q."""
    return "[" + " ".join(f'"{text}"' for text in texts) + "]"


class Drivers:
    """The registered drivers of one node.

    Invariant: if a driver has registered once and cannot be called, its slices are going to be wiped, or were.
    """

    def __init__(self, out: Outbox, *, wipe_delay_s: float) -> None:
        self._out, self._wipe_delay_s = out, wipe_delay_s
        self._instances: dict[str, list[Instance]] = {}
        self._wipes: dict[str, float] = {}
        """When the slices of drivers that cannot be called are deleted."""
        self._last = 0

    def find(self, driver: str) -> Instance | None:
        """Return the newest reachable instance, else the newest; None: the driver is not registered."""
        instances = self._instances.get(driver, ())
        connected = [each for each in instances if each.is_connected]
        found = connected or list(instances)
        return found[-1] if found else None

    @property
    def all(self) -> list[Instance]:
        """All instances, in the order of drivers and registrations."""
        return [each for instances in self._instances.values() for each in instances]

    def register(self, driver: str, endpoint: str, offered: Sequence[str], now: float) -> Instance:
        """Register an instance. Raises: ValueError in Kubernetes' words."""
        service = choose_service(driver, endpoint, offered)
        instances = self._instances.setdefault(driver, [])
        if any(each.endpoint == endpoint for each in instances):
            raise ValueError(f"endpoint {endpoint} already registered for DRA driver plugin {driver}")
        self._last += 1
        instance = Instance(self._last, driver, endpoint, service)
        instances.append(instance)
        self._sync(driver, now)
        return instance

    def unregister(self, instance: Instance, now: float) -> None:
        """Remove an instance whose registration socket is gone."""
        left = [each for each in self._instances.get(instance.driver, ()) if each is not instance]
        if left:
            self._instances[instance.driver] = left
        else:
            self._instances.pop(instance.driver, None)
        self._sync(instance.driver, now)

    def set_connected(self, instance: Instance, now: float, *, is_connected: bool) -> None:
        """Note whether the instance can be reached."""
        instance.is_connected = is_connected
        self._sync(instance.driver, now)

    def _sync(self, driver: str, now: float) -> None:
        if any(each.is_connected for each in self._instances.get(driver, ())):
            self._wipes.pop(driver, None)
        elif driver not in self._wipes:
            self._wipes[driver] = now + self._wipe_delay_s
            self._out.effects.append(SetTimer(self._wipes[driver], TIMER, NODE_KEY))

    def due(self, now: float) -> None:
        """Wipe the slices of drivers that have been away for too long."""
        wiped = tuple(driver for driver, at_s in self._wipes.items() if at_s <= now + 1e-6)
        for driver in wiped:
            del self._wipes[driver]
        if wiped:
            self._out.effects.append(WipeSlices(wiped))
