"""Assignment of endpoints to slices: few slices change, none exceeds a hundred endpoints, few are created.
Pure.

Endpoints that are still wanted stay in their slice. New ones fill slices that change anyway, then slices with
free capacity, then new slices; an empty slice is deleted. All endpoints of a slice have the same ports.
Source: upstream `staging/src/k8s.io/endpointslice/reconciler.go`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.api.kinds.endpointslice import Endpoint, EndpointSlice
from services.controllers.shared_endpoints import Ports

ENDPOINTS_MAX = 100
"""Maximum number of endpoints per slice (upstream `--max-endpoints-per-slice`)."""


@dataclass
class Placement:
    """Changes of a service's slices; `changed` has each existing slice with its new endpoints."""

    created: list[tuple[Ports, tuple[Endpoint, ...]]] = field(default_factory=list)
    changed: list[tuple[EndpointSlice, tuple[Endpoint, ...]]] = field(default_factory=list)
    deleted: list[EndpointSlice] = field(default_factory=list)


def _key(endpoint: Endpoint) -> tuple[str, tuple[str, ...]]:
    """Return what makes two endpoints the same: the pod, and where it is reached."""
    return endpoint.target_ref.uid if endpoint.target_ref is not None else "", endpoint.addresses


def place_endpoints(wanted: Mapping[Ports, Iterable[Endpoint]], slices: Iterable[EndpointSlice]) -> Placement:
    """Return the changes that turn the slices into these endpoints, grouped by ports."""
    result = Placement()
    by_ports: dict[Ports, list[EndpointSlice]] = {}
    for endpoint_slice in slices:
        by_ports.setdefault(endpoint_slice.ports, []).append(endpoint_slice)
    kept: list[EndpointSlice] = []
    for ports, endpoints in wanted.items():
        _place(ports, list(endpoints), by_ports.pop(ports, []), result, kept)
    leftover = [each for ports in by_ports for each in by_ports[ports]]
    if not kept and not result.created:
        # A service without endpoints has one empty slice, so that clients see that it was looked at.
        placeholder = next((each for each in leftover if not each.ports), None)
        if placeholder is None:
            result.created.append(((), ()))
        else:
            leftover.remove(placeholder)
            if placeholder.endpoints:
                result.changed.append((placeholder, ()))
    result.deleted += leftover
    return result


def _place(
    ports: Ports, endpoints: list[Endpoint], slices: list[EndpointSlice], result: Placement, kept: list[EndpointSlice]
) -> None:
    left = {_key(each): each for each in endpoints}
    contents: dict[int, list[Endpoint]] = {}
    changing: list[int] = []
    for number, endpoint_slice in enumerate(slices):
        now = [left.pop(_key(old)) for old in endpoint_slice.endpoints if _key(old) in left]
        contents[number] = now
        if tuple(now) != endpoint_slice.endpoints:
            changing.append(number)
    new = list(left.values())
    for number in (*changing, *(n for n in contents if n not in changing)):
        free = ENDPOINTS_MAX - len(contents[number])
        if not new:
            break
        # A slice that need not change is touched only if all that is new fits into it.
        if number in changing or len(new) <= free:
            contents[number] += new[: max(0, free)]
            new = new[max(0, free) :]
            if number not in changing:
                changing.append(number)
    for number, endpoint_slice in enumerate(slices):
        if not contents[number]:
            result.deleted.append(endpoint_slice)
            continue
        kept.append(endpoint_slice)
        if number in changing:
            result.changed.append((endpoint_slice, tuple(contents[number])))
    for start in range(0, len(new), ENDPOINTS_MAX):
        result.created.append((ports, tuple(new[start : start + ENDPOINTS_MAX])))
