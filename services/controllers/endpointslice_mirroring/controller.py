"""Keep EndpointSlices for hand-made Endpoints, those of a Service without a selector.

There is one slice per set of ports and address family. Endpoints with the label `skip-mirror` or with a leader
election record are left out. Source: upstream `pkg/controller/endpointslicemirroring` (v1.36); KEP-752.
"""

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from services.api.kinds.endpoints import EndpointAddress, Endpoints, EndpointSubset
from services.api.kinds.endpointslice import (
    MANAGED_BY,
    SERVICE_NAME,
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
)
from services.api.kinds.service import Service
from services.api.meta import Document, Key
from services.api.switches import Switches
from services.controllers.shared_endpoints import Ports, documents, port_documents
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Action, Create, Delete, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.expectations import Expectations
from services.reconcile.writes import controller_reference

RESOURCE = "endpointslices.discovery.k8s.io"
NAME = "endpointslicemirroring-controller.k8s.io"
"""Manager name on this controller's slices; slices of other managers are left alone."""
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
ADDRESSES_MAX = 1000
"""Maximum number of mirrored addresses per subset (upstream `--mirroring-max-endpoints-per-subset`)."""
NOT_MIRRORED = ("endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration")


class Place(NamedTuple):
    """Address family and ports that the endpoints of one slice share."""

    family: str
    ports: Ports


def is_mirrored(endpoints: Endpoints | None) -> bool:
    """Whether Endpoints may be mirrored, if their Service has no selector."""
    if endpoints is None:
        return False
    meta = endpoints.metadata
    return meta.labels.get(SKIP) != "true" and LEADER not in meta.annotations


class MirroredSlices:
    """The controller's memory and its reconcile function."""

    def __init__(self) -> None:
        self.expectations = Expectations()

    def service_changed(self, change: Change[Service], listers: Listers) -> Iterable[Key]:
        """Return the service if it has, or had, no selector."""
        is_concerned = any(each is not None and not each.spec.selector for each in (change.old, change.new))
        return (change.object.metadata.key,) if is_concerned else ()

    def endpoints_changed(self, change: Change[Endpoints], listers: Listers) -> Iterable[Key]:
        """Return the service of that name if the Endpoints are, or were, mirrored."""
        key = change.object.metadata.key
        if change.new is None:
            self.expectations.forget(key)
        return (key,) if is_mirrored(change.old) or is_mirrored(change.new) else ()

    def slice_changed(self, change: Change[EndpointSlice], listers: Listers) -> Iterable[Key]:
        """Lower expectations, and return the old and new service of a slice that this controller manages."""
        keys = []
        for endpoint_slice in (change.old, change.new):
            if endpoint_slice is not None and endpoint_slice.metadata.labels.get(MANAGED_BY) == NAME:
                keys.append(
                    Key(endpoint_slice.metadata.namespace, endpoint_slice.metadata.labels.get(SERVICE_NAME, ""))
                )
        if change.old is None and keys:
            self.expectations.creation_observed(keys[0])
        return dict.fromkeys(key for key in keys if key.name)

    def on_failed(self, key: Key, action: Action, reason: str) -> None:
        """Undo the expectation of a failed creation."""
        if isinstance(action, Create):
            self.expectations.creation_observed(key)

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Compare the slices with the addresses; delete the slices of services that are not mirrored."""
        if not self.expectations.are_satisfied(key, moment.now_s):
            return NOTHING
        held = [each for each in listers.of(EndpointSlice).all(key.namespace) if _is_of(each, key.name)]
        endpoints, service = listers.of(Endpoints).get(key), listers.of(Service).get(key)
        if endpoints is None or not is_mirrored(endpoints) or service is None or service.spec.selector:
            return Result(tuple(_deletion(each) for each in held))
        wanted, invalid, skipped = _desired_endpoints(endpoints.subsets)
        actions: list[Action] = []
        if invalid:
            text = f"Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices"
            actions.append(event(endpoints, "InvalidIPAddress", text, warns=True))
        if skipped > invalid:
            text = f"A max of {ADDRESSES_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. "
            actions.append(
                event(endpoints, "TooManyAddressesToMirror", f"{text}{skipped} addresses were skipped", warns=True)
            )
        changes = _changes(endpoints, wanted, held)
        if count := sum(isinstance(each, Create) for each in changes):
            self.expectations.expect(key, creations=count, now_s=moment.now_s)
        return Result((*actions, *changes))


def _is_of(each: EndpointSlice, name: str) -> bool:
    meta = each.metadata
    is_ours = meta.labels.get(MANAGED_BY) == NAME and meta.labels.get(SERVICE_NAME) == name
    return is_ours and meta.deletion_timestamp is None


def _deletion(each: EndpointSlice) -> Action:
    return Delete(RESOURCE, each.metadata.key, uid=each.metadata.uid)


def _desired_endpoints(subsets: Iterable[EndpointSubset]) -> tuple[dict[Place, tuple[Endpoint, ...]], int, int]:
    """Return the endpoints by where they belong, how many addresses are none, and how many were left out."""
    by_place: dict[Place, dict[tuple[object, ...], Endpoint]] = {}
    invalid = skipped = 0
    for subset in subsets:
        ports = _ports(subset)
        all_of_it = [(each, True) for each in subset.addresses] + [(each, False) for each in subset.not_ready_addresses]
        added = 0
        for address, is_ready in all_of_it:
            if added >= ADDRESSES_MAX:
                break
            try:
                ip = ipaddress.ip_address(address.ip)
            except ValueError:
                invalid += 1
                continue
            endpoint = _endpoint(address, str(ip), is_ready=is_ready)
            same = (endpoint.addresses, endpoint.hostname, endpoint.node_name, endpoint.target_ref)
            by_place.setdefault(Place(f"IPv{ip.version}", ports), {})[same] = endpoint
            added += 1
        skipped += len(all_of_it) - added
    return {place: tuple(each.values()) for place, each in by_place.items()}, invalid, skipped


def _ports(subset: EndpointSubset) -> Ports:
    ports = [
        EndpointPort(name=each.name, protocol=each.protocol, port=each.port, app_protocol=each.app_protocol)
        for each in subset.ports
    ]
    return _in_order(ports)


def _in_order(ports: Iterable[EndpointPort]) -> Ports:
    """Return the ports in one order: which comes first does not matter."""
    return tuple(sorted(ports, key=lambda each: (each.name, each.protocol, each.port or 0, each.app_protocol or "")))


def _endpoint(address: EndpointAddress, ip: str, *, is_ready: bool) -> Endpoint:
    return Endpoint(
        addresses=(ip,),
        conditions=EndpointConditions(ready=is_ready),
        hostname=address.hostname or None,
        target_ref=address.target_ref,
        node_name=address.node_name,
    )


def _changes(
    endpoints: Endpoints, wanted: dict[Place, tuple[Endpoint, ...]], held: list[EndpointSlice]
) -> list[Action]:
    """Return what makes the slices those endpoints; one that is not needed becomes one that is missing."""
    by_place: dict[Place, list[EndpointSlice]] = {}
    for endpoint_slice in held:
        by_place.setdefault(Place(endpoint_slice.address_type, _in_order(endpoint_slice.ports)), []).append(
            endpoint_slice
        )
    kept = {place: by_place[place].pop(0) for place in wanted if by_place.get(place)}
    spare = [each for slices in by_place.values() for each in slices]
    actions: list[Action] = []
    for place, content in wanted.items():
        old = kept.get(place) or next((each for each in spare if each.address_type == place.family), None)
        document = _document(endpoints, place, content)
        if old is None:
            if endpoints.metadata.deletion_timestamp is None:
                actions.append(Create(RESOURCE, document))
            continue
        if old in spare:
            spare.remove(old)
        if change := _change(old, document, place, content):
            actions.append(writes.patch(RESOURCE, old, change, on_version=True))
    return [*actions, *map(_deletion, spare)]


def _document(endpoints: Endpoints, place: Place, content: tuple[Endpoint, ...]) -> Document:
    meta = endpoints.metadata
    annotations = {name: value for name, value in meta.annotations.items() if name not in NOT_MIRRORED}
    metadata: Document = {
        "generateName": f"{meta.name}-",
        "namespace": meta.namespace,
        "labels": {**meta.labels, SERVICE_NAME: meta.name, MANAGED_BY: NAME},
        **({"annotations": annotations} if annotations else {}),
        "ownerReferences": [controller_reference(endpoints)],
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": place.family,
        "endpoints": documents(content),
        "ports": port_documents(place.ports) if place.ports else None,
    }


def _change(old: EndpointSlice, wanted: Document, place: Place, content: tuple[Endpoint, ...]) -> Document:
    """Return what of a slice differs from what it should be; empty when nothing does."""
    change: Document = {}
    if set(map(repr, old.endpoints)) != set(map(repr, content)) or len(old.endpoints) != len(content):
        change["endpoints"] = wanted["endpoints"]
    if {*old.ports} != {*place.ports}:
        change["ports"] = wanted["ports"]
    about: Document = {}
    for member, now in (("labels", old.metadata.labels), ("annotations", old.metadata.annotations)):
        want = wanted["metadata"].get(member) or {}
        if now != want:
            about[member] = dict.fromkeys(now.keys() - want.keys()) | want
    owner = wanted["metadata"]["ownerReferences"]
    if [each.uid for each in old.metadata.owner_references] != [each["uid"] for each in owner]:
        about["ownerReferences"] = owner
    return {**change, **({"metadata": about} if about else {})}


def _build(switches: Switches) -> Controller:
    memory = MirroredSlices()
    return Controller(
        "endpointslice-mirroring-controller",
        None,
        memory.reconcile,
        identity="system:controller:endpointslicemirroring-controller",
        watches=(
            Watch(Service, memory.service_changed),
            Watch(Endpoints, memory.endpoints_changed),
            Watch(EndpointSlice, memory.slice_changed),
        ),
        failed=memory.on_failed,
        workers=5,
        queue="endpoint_slice_mirroring",
        reporter="endpoint-slice-mirroring-controller",
    )


CONTROLLER = Registration("endpointslice-mirroring-controller", _build, start_order=32, is_for_rest=True)
