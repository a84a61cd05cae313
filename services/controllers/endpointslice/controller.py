"""Keep EndpointSlices of every Service that selects pods: addresses and readiness of the pods.

When a pod becomes unready, terminates, ends or is unbound, the same change updates its endpoint or removes it.
Addresses are IPv4 only, as emulated nodes assign no others. Hints say which zones and nodes should send to an
endpoint, by the Service's `trafficDistribution`; nothing routes by them here.
Source: controllers 19; upstream `pkg/controller/endpointslice/endpointslice_controller.go`,
`staging/src/k8s.io/endpointslice/reconciler.go`; KEP-752, KEP-1672, KEP-4444, KEP-3015.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from services.api.kinds.endpointslice import MANAGED_BY, SERVICE_NAME, Endpoint, EndpointSlice
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.kinds.service import Service
from services.api.meta import Document, Key
from services.api.selectors import Selector
from services.api.switches import Switches
from services.controllers.endpointslice.placement import Placement, place_endpoints
from services.controllers.shared_endpoints import (
    Ports,
    ServiceSelectors,
    documents,
    endpoint_of,
    is_endpoint,
    port_documents,
    ports_of,
)
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Action, Create, Delete, Patch, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.expectations import Expectations
from services.reconcile.writes import controller_reference
from services.telemetry.metrics import Counts, Metrics, counter, gauge

RESOURCE = "endpointslices.discovery.k8s.io"
NAME = "endpointslice-controller.k8s.io"
"""Manager name on this controller's slices; slices of other managers are left alone."""
HEADLESS = "service.kubernetes.io/headless"
NO_NODE_AGAIN_S = 1.0
"""Seconds until a pod whose node is not known yet is checked again."""


CHANGES = "endpoint_slice_controller_changes"


class EndpointSlices:
    """The controller's memory and its reconcile function."""

    def __init__(self) -> None:
        self.expectations = Expectations()
        self.counts = Counts()
        self.desired: dict[Key, tuple[int, int]] = {}
        """How many endpoints and slices each service has, as of its last reconcile."""
        self._selectors = ServiceSelectors()

    def service_changed(self, change: Change[Service], listers: Listers) -> Iterable[Key]:
        """Update the selectors, and return the service."""
        key = change.object.metadata.key
        self._selectors.keep(change)
        if change.new is None:
            self.expectations.forget(key)
            self.desired.pop(key, None)
        return (key,)

    def pod_changed(self, change: Change[Pod], listers: Listers) -> Iterable[Key]:
        """Return the services that select the old or new pod, if the change affects endpoints."""
        return self._selectors.of_pod(change)

    def slice_changed(self, change: Change[EndpointSlice], listers: Listers) -> Iterable[Key]:
        """Lower expectations, and return the service of a slice that this controller manages."""
        meta = change.object.metadata
        name = meta.labels.get(SERVICE_NAME)
        if not name or meta.labels.get(MANAGED_BY) != NAME:
            return ()
        key = Key(meta.namespace, name)
        if change.old is None:
            self.expectations.creation_observed(key)
        return (key,)

    def on_failed(self, key: Key, action: Action, reason: str) -> None:
        """Undo the expectation of a failed creation."""
        if isinstance(action, Create):
            self.expectations.creation_observed(key)

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Compare the slices with the pods, and change as few slices as possible."""
        service, selector = listers.of(Service).get(key), self._selectors.of(key)
        if service is None or selector is None or service.metadata.deletion_timestamp is not None:
            return NOTHING  # slices of a service that is gone follow by garbage collection
        if not self.expectations.are_satisfied(key, moment.now_s):
            return NOTHING
        wanted, homeless = _desired_endpoints(service, selector, listers)
        own = [
            each
            for each in listers.of(EndpointSlice).owned_by(service.metadata.uid)
            if each.metadata.labels.get(MANAGED_BY) == NAME and each.metadata.deletion_timestamp is None
        ]
        placement = place_endpoints(wanted, own)
        actions = _actions(service, placement, own)
        for kind, number in _count_by_verb(actions).items():
            self.counts.add(CHANGES, kind, by=number)
        endpoints = sum(map(len, wanted.values()))
        self.desired[key] = endpoints, len(own) + len(placement.created) - len(placement.deleted)
        if count := len(placement.created):
            self.expectations.expect(key, creations=count, now_s=moment.now_s)
        if not homeless:
            return Result(tuple(actions))
        text = f"Error updating Endpoint Slices for Service {key}: {homeless}"
        return Result((event(service, "FailedToUpdateEndpointSlices", text, warns=True), *actions), NO_NODE_AGAIN_S)


def _desired_endpoints(
    service: Service, selector: Selector, listers: Listers
) -> tuple[dict[Ports, list[Endpoint]], str]:
    """Return the endpoints by their ports, and why a pod was passed over, or ""."""
    wanted: dict[Ports, list[Endpoint]] = {}
    homeless = ""
    for pod in listers.of(Pod).all(service.metadata.namespace):
        if not is_endpoint(pod) or not selector.matches(pod.metadata.labels):
            continue
        name = pod.spec.node_name
        node = listers.of(Node).get(Key("", name))
        if node is None and not service.spec.publish_not_ready_addresses:
            where = f"Service {service.metadata.key}: Node {name} Not Found"
            homeless = homeless or f"skipping Pod {pod.metadata.name} for {where}"
            continue
        wanted.setdefault(ports_of(service, pod), []).append(endpoint_of(pod, service, node))
    return wanted, homeless


def _labels(service: Service) -> dict[str, str]:
    """Return the labels of a service's slices: its own, and what they are."""
    reserved = (SERVICE_NAME, MANAGED_BY, HEADLESS)
    labels = {name: value for name, value in service.metadata.labels.items() if name not in reserved}
    labels |= {SERVICE_NAME: service.metadata.name, MANAGED_BY: NAME}
    return labels | ({HEADLESS: ""} if service.spec.cluster_ip == "None" else {})


def _actions(service: Service, placement: Placement, own: list[EndpointSlice]) -> list[Action]:
    labels = _labels(service)
    changes: dict[str, tuple[EndpointSlice, Document]] = {}
    for old, endpoints in placement.changed:
        changes[old.metadata.uid] = old, {"endpoints": documents(endpoints)}
    deleted = {each.metadata.uid for each in placement.deleted}
    for old in own:
        if old.metadata.uid not in deleted and old.metadata.labels != labels:
            gone: dict[str, str | None] = dict.fromkeys(old.metadata.labels.keys() - labels.keys())
            about: Document = {"labels": gone | labels}
            changes[old.metadata.uid] = old, {**changes.get(old.metadata.uid, (old, {}))[1], "metadata": about}
    actions: list[Action] = [
        Create(RESOURCE, _slice(service, labels, ports, each)) for ports, each in placement.created
    ]
    actions += [writes.patch(RESOURCE, old, change, on_version=True) for old, change in changes.values()]
    actions += [Delete(RESOURCE, each.metadata.key, uid=each.metadata.uid) for each in placement.deleted]
    return actions


def _count_by_verb(actions: list[Action]) -> dict[str, int]:
    """Return how many slices are created, updated and deleted."""
    kinds = {Create: "create", Patch: "update", Delete: "delete"}
    return Counter(kinds[type(each)] for each in actions if type(each) in kinds)


def _slice(service: Service, labels: dict[str, str], ports: Ports, endpoints: tuple[Endpoint, ...]) -> Document:
    meta = service.metadata
    metadata: Document = {
        "generateName": f"{meta.name}-",
        "namespace": meta.namespace,
        "labels": labels,
        "ownerReferences": [controller_reference(service)],
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "endpoints": documents(endpoints),
        "ports": port_documents(ports) if ports else None,
    }


METRICS: Final[Metrics[EndpointSlices]] = Metrics(
    counter(CHANGES, "Number of EndpointSlice changes.", lambda controller: controller.counts.of(CHANGES), "operation"),
    gauge(
        "endpoint_slice_controller_endpoints_desired",
        "Number of endpoints desired.",
        lambda controller: sum(endpoints for endpoints, _ in controller.desired.values()),
    ),
    gauge(
        "endpoint_slice_controller_num_endpoint_slices",
        "Number of EndpointSlices.",
        lambda controller: sum(slices for _, slices in controller.desired.values()),
    ),
)


def _build(switches: Switches) -> Controller:
    memory = EndpointSlices()
    watches = (
        Watch(Service, memory.service_changed),
        Watch(Pod, memory.pod_changed),
        Watch(EndpointSlice, memory.slice_changed),
    )
    name = "endpointslice-controller"
    return Controller(
        name,
        None,
        memory.reconcile,
        watches=watches,
        reads=(Node,),
        failed=memory.on_failed,
        workers=5,
        reporter="endpoint-slice-controller",
        metrics=lambda: METRICS.of(memory),
    )


CONTROLLER = Registration("endpointslice-controller", _build, start_order=24)
