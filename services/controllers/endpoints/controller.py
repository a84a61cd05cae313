"""Keep the Endpoints of every Service that selects pods: ready and unready addresses, grouped by equal ports.

One object with the Service's name holds at most a thousand addresses; EndpointSlices have the rest (KEP-752).
Source: upstream `pkg/controller/endpoint/endpoints_controller.go`, `pkg/api/v1/endpoints/util.go`.
"""

from collections.abc import Iterable

from services.api.kinds.endpoints import Endpoints
from services.api.kinds.pod import Pod
from services.api.kinds.service import Service
from services.api.meta import Document, Key
from services.api.selectors import Selector
from services.api.switches import Switches
from services.controllers.shared_endpoints import ServiceSelectors, is_endpoint, port_documents, ports_of
from services.controllers.shared_pods import is_ready
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Create, Delete, Result
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch

RESOURCE = "endpoints"
HEADLESS = "service.kubernetes.io/headless"
MANAGED_BY, NAME = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
ADDRESSES_MAX = 1000


class EndpointsController:
    """The controller's memory and its reconcile function."""

    def __init__(self) -> None:
        self._selectors = ServiceSelectors()

    def service_changed(self, change: Change[Service], listers: Listers) -> Iterable[Key]:
        """Update the selectors, and return the service."""
        self._selectors.keep(change)
        return (change.object.metadata.key,)

    def pod_changed(self, change: Change[Pod], listers: Listers) -> Iterable[Key]:
        """Return the services that select the old or new pod, if the change affects endpoints."""
        return self._selectors.of_pod(change)

    def endpoints_changed(self, change: Change[Endpoints], listers: Listers) -> Iterable[Key]:
        """Return the service with the same name."""
        return (change.object.metadata.key,)

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Write the subsets if they differ; delete the Endpoints of a deleted service."""
        service, held = listers.of(Service).get(key), listers.of(Endpoints).get(key)
        if service is None:
            is_ours = held is not None and held.metadata.labels.get(MANAGED_BY) == NAME
            if held is None or not is_ours or held.metadata.deletion_timestamp is not None:
                return NOTHING
            return Result((Delete(RESOURCE, key, uid=held.metadata.uid),))
        selector = self._selectors.of(key)
        if selector is None or service.metadata.deletion_timestamp is not None:
            return NOTHING
        subsets, is_cut = _subsets(service, selector, listers)
        labels = {**service.metadata.labels, MANAGED_BY: NAME}
        labels.pop(HEADLESS, None)
        if service.spec.cluster_ip == "None":
            labels[HEADLESS] = ""
        notes = {OVER_CAPACITY: "truncated"} if is_cut else {}
        metadata: Document = {"labels": labels, **({"annotations": notes} if notes else {})}
        if held is None:
            about = {"name": key.name, "namespace": key.namespace, **metadata}
            document = {"apiVersion": "v1", "kind": "Endpoints", "metadata": about, "subsets": subsets}
            return Result((Create(RESOURCE, document),))
        stored = listers.of(Endpoints).document(key) or {}
        has_notes = bool(held.metadata.annotations.get(OVER_CAPACITY)) == is_cut
        if (stored.get("subsets") or []) == subsets and held.metadata.labels == labels and has_notes:
            return NOTHING
        gone: dict[str, str | None] = dict.fromkeys(held.metadata.labels.keys() - labels.keys())
        change: Document = {
            "metadata": {"labels": gone | labels, "annotations": {OVER_CAPACITY: "truncated" if is_cut else None}},
            "subsets": subsets or None,
        }
        return Result((writes.patch(RESOURCE, held, change, on_version=True),))


def _subsets(service: Service, selector: Selector, listers: Listers) -> tuple[list[Document], bool]:
    """Return addresses with the same ports together, sorted, and whether some had to be left out."""
    ports_by_key: dict[str, list[Document]] = {}
    grouped: dict[str, dict[str, list[Document]]] = {}
    count = 0
    for pod in sorted(listers.of(Pod).all(service.metadata.namespace), key=lambda each: _octets(each.status.pod_ip)):
        if not is_endpoint(pod) or not selector.matches(pod.metadata.labels):
            continue
        publishes = service.spec.publish_not_ready_addresses
        if pod.metadata.deletion_timestamp is not None and not publishes:
            continue
        ports = ports_of(service, pod)
        if service.spec.ports and not ports:
            continue
        count += 1
        if count > ADDRESSES_MAX:
            continue
        key = repr(ports)
        ports_by_key[key] = sorted(port_documents(ports), key=lambda port: (port["name"], port["port"]))
        member = "addresses" if publishes or is_ready(pod) else "notReadyAddresses"
        grouped.setdefault(key, {}).setdefault(member, []).append(_address(service, pod))
    subsets = [
        {**addresses, **({"ports": [_port(port) for port in ports_by_key[key]]} if ports_by_key[key] else {})}
        for key, addresses in grouped.items()
    ]
    return subsets, count > ADDRESSES_MAX


def _port(port: Document) -> Document:
    return {name: value for name, value in port.items() if value}


def _octets(address: str) -> tuple[int, ...]:
    return tuple(int(part) for part in address.split(".")) if "." in address else ()


def _address(service: Service, pod: Pod) -> Document:
    meta = pod.metadata
    found: Document = {"ip": pod.status.pod_ip}
    if pod.spec.hostname and pod.spec.subdomain == service.metadata.name:
        found["hostname"] = pod.spec.hostname
    target = {"kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
    return {**found, "nodeName": pod.spec.node_name, "targetRef": target}


def _build(switches: Switches) -> Controller:
    memory = EndpointsController()
    return Controller(
        "endpoints-controller",
        None,
        memory.reconcile,
        watches=(
            Watch(Service, memory.service_changed),
            Watch(Pod, memory.pod_changed),
            Watch(Endpoints, memory.endpoints_changed),
        ),
        workers=5,
        reporter="endpoint-controller",
    )


CONTROLLER = Registration("endpoints-controller", _build, start_order=31, is_for_rest=True)
