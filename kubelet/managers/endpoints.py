"""Which plugin serves which resource of a node, since when it is gone, and what the Node says of its devices. Pure.

The last registration of a resource wins; what an earlier plugin still sends is ignored. A plugin that
is gone leaves its devices unhealthy at once; five minutes later they are not counted any more, and the Node shows
0 of them, which is how they differ from a resource that the node never had. Source: kubelet 2.1, 5.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kubelet.managers.device_calls import SUPPORTED_VERSIONS, Device, Options, Registration, is_extended
from kubelet.managers.device_manager import DeviceManager

GRACE_S = 300.0
_EARLY_S = 1e-6


class _Endpoint(msgspec.Struct):
    """The plugin of one resource. `number`: of the connection, 0 for one that a former kubelet knew."""

    number: int
    options: Options
    gone_s: float | None = None


class DeviceEndpoints:
    """Invariant: a resource has at most one endpoint, and the device manager expects exactly those that have one."""

    def __init__(self, devices: DeviceManager) -> None:
        self._devices = devices
        self._endpoints: dict[str, _Endpoint] = {}
        self._numbers = 0

    @staticmethod
    def refused(asked: Registration) -> str:
        """Return why a registration is refused, in Kubernetes' words; "" when it is not."""
        if asked.version not in SUPPORTED_VERSIONS:
            supported = " ".join(f'"{version}"' for version in SUPPORTED_VERSIONS)
            return (
                f'requested API version "{asked.version}" is not supported by kubelet. '
                f"Supported version is [{supported}]"
            )
        if not is_extended(asked.resource):
            return f'the ResourceName "{asked.resource}" is invalid'
        return ""

    def restore(self, resources: Iterable[str], now: float) -> None:
        """A former kubelet knew plugins for these: count none of their devices until they register again."""
        for resource in resources:
            self._endpoints[resource] = _Endpoint(0, Options(), now)
            self._devices.expect(resource)

    def connected(self, resource: str, options: Options) -> int:
        """A plugin was reached and said its options; return the number of its connection."""
        self._numbers += 1
        self._endpoints[resource] = _Endpoint(self._numbers, options)
        self._devices.expect(resource, prefers=options.prefers)
        return self._numbers

    def listed(self, resource: str, number: int, devices: Sequence[Device]) -> list[str] | None:
        """Take a plugin's list; return whose health changed. None: another plugin has taken over."""
        if not self._is_current(resource, number):
            return None
        return self._devices.listed(resource, devices)

    def gone(self, resource: str, number: int, now: float) -> list[str] | None:
        """A plugin's stream ended; return whose health changed. None: another plugin has taken over."""
        if not self._is_current(resource, number):
            return None
        self._endpoints[resource].gone_s = now
        return self._devices.lose(resource)

    def _is_current(self, resource: str, number: int) -> bool:
        endpoint = self._endpoints.get(resource)
        return endpoint is not None and endpoint.number == number

    def expire(self, now: float) -> list[str]:
        """Forget the devices of plugins that have been gone too long; return their resources."""
        over = [r for r, e in self._endpoints.items() if e.gone_s is not None and e.gone_s + GRACE_S <= now + _EARLY_S]
        for resource in over:
            del self._endpoints[resource]
            self._devices.forget(resource)
        return over

    @property
    def next_expiry_s(self) -> float | None:
        """When the next plugin will have been gone too long."""
        return min((e.gone_s + GRACE_S for e in self._endpoints.values() if e.gone_s is not None), default=None)

    def registered(self) -> list[str]:
        """Return the resources a next kubelet has to know of, sorted."""
        return sorted(self._endpoints)

    def serving(self, resource: str) -> int:
        """Return the number of the connection to call; 0 when there is no plugin."""
        endpoint = self._endpoints.get(resource)
        return endpoint.number if endpoint is not None and endpoint.gone_s is None else 0

    def wants_pre_start(self, resource: str) -> bool:
        """Whether PreStartContainer is to be called before containers with these devices."""
        endpoint = self._endpoints.get(resource)
        return endpoint is not None and endpoint.options.pre_start
