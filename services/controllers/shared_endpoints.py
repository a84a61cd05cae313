"""Endpoints of a Service's pods, and their ports. Pure.

A pod is an endpoint while it has an address and has not ended. A terminating pod stays, not ready; an unbound
one has no address any more. Source: upstream `staging/src/k8s.io/endpointslice/utils.go`,
`staging/src/k8s.io/endpointslice/util/controller_utils.go`.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from services.api.kinds.endpointslice import Endpoint, EndpointConditions, EndpointHints, EndpointPort, Place
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.kinds.service import Service, ServicePort
from services.api.meta import Document, Key, LabelSelector, ObjectReference
from services.api.selectors import Selector, from_label_selector
from services.controllers.shared_pods import is_ready
from services.reconcile.controller import Change

ZONE_LABEL = "topology.kubernetes.io/zone"
Ports = tuple[EndpointPort, ...]


def is_endpoint(pod: Pod) -> bool:
    """Whether the pod is an endpoint: it has an address and a node, and has not ended."""
    return bool(pod.status.pod_ip) and bool(pod.spec.node_name) and not pod.is_terminal


def matters(old: Pod | None, new: Pod | None) -> bool:
    """Whether a change of a pod may change an endpoint."""
    return old is None or new is None or _endpoint_state(old) != _endpoint_state(new)


def _endpoint_state(pod: Pod) -> tuple[object, ...]:
    meta, spec = pod.metadata, pod.spec
    where = (pod.status.pod_ip, spec.node_name, spec.hostname, spec.subdomain)
    return (*where, pod.is_terminal, is_ready(pod), meta.deletion_timestamp is not None, meta.labels, meta.uid)


class ServiceSelectors:
    """Services that select pods, by namespace. Most pods are in none, and most changes affect no service."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[Key, Selector]] = {}

    def keep(self, change: Change[Service]) -> None:
        """Store the service's selector, or remove a deleted service."""
        key, new = change.object.metadata.key, change.new
        selectors = self._by_namespace.setdefault(key.namespace, {})
        selectors.pop(key, None)
        if new is not None and new.spec.selector and new.spec.type != "ExternalName":
            selectors[key] = from_label_selector(LabelSelector(match_labels=new.spec.selector))
        if not selectors:
            del self._by_namespace[key.namespace]

    def of(self, key: Key) -> Selector | None:
        """Return a service's selector; None if it selects no pods."""
        return self._by_namespace.get(key.namespace, {}).get(key)

    def of_pod(self, change: Change[Pod]) -> Sequence[Key]:
        """Return the services that select the old or new pod, if the change affects endpoints."""
        selectors = self._by_namespace.get(change.object.metadata.namespace)
        if selectors is None or not matters(change.old, change.new):
            return ()
        labels = [pod.metadata.labels for pod in (change.old, change.new) if pod is not None]
        return [key for key, selector in selectors.items() if any(map(selector.matches, labels))]


def endpoint_of(pod: Pod, service: Service, node: Node | None) -> Endpoint:
    """Return the endpoint of a pod."""
    is_serving, is_leaving = is_ready(pod), pod.metadata.deletion_timestamp is not None
    ready = service.spec.publish_not_ready_addresses or (is_serving and not is_leaving)
    named = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    meta = pod.metadata
    zone = node.metadata.labels.get(ZONE_LABEL) if node is not None else None
    return Endpoint(
        addresses=(pod.status.pod_ip,),
        conditions=EndpointConditions(ready=ready, serving=is_serving, terminating=is_leaving),
        hostname=pod.spec.hostname if named else None,
        target_ref=ObjectReference(kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid),
        node_name=pod.spec.node_name,
        zone=zone,
        hints=_hints(service, pod.spec.node_name, zone) if ready else None,
    )


def _hints(service: Service, node: str, zone: str | None) -> EndpointHints | None:
    """Return who is to send to a ready endpoint: its zone, and its node where the Service prefers that.

    Source: KEP-4444, KEP-3015 (PreferSameNode names the zone as well, for proxies that know zones alone).
    """
    if not service.spec.traffic_distribution:
        return None
    zones = (Place(name=zone),) if zone is not None else ()
    nodes = (Place(name=node),) if node and service.spec.traffic_distribution == "PreferSameNode" else ()
    return EndpointHints(for_zones=zones, for_nodes=nodes) if zones or nodes else None


def ports_of(service: Service, pod: Pod) -> Ports:
    """Return the service's ports as target ports of this pod; a named port that the pod lacks is left out."""
    ports = []
    for port in service.spec.ports:
        if (number := _number(port, pod)) is not None:
            ports.append(
                EndpointPort(name=port.name, protocol=port.protocol, port=number, app_protocol=port.app_protocol)
            )
    return tuple(ports)


def _number(port: ServicePort, pod: Pod) -> int | None:
    target = port.target_port
    if isinstance(target, int) or target is None:
        return target or port.port
    containers = (*pod.spec.containers, *(c for c in pod.spec.init_containers if c.restart_policy == "Always"))
    for container in containers:
        for container_port in container.ports:
            if container_port.name == target and container_port.protocol == port.protocol:
                return container_port.container_port
    return None


def documents(views: tuple[Any, ...]) -> list[Document]:
    """Return views as documents, with False conditions included."""
    return [msgspec.to_builtins(each) for each in views]


def port_documents(ports: Ports) -> list[Document]:
    """Return ports as documents, with name and protocol even if they are the defaults."""
    return [{"name": each.name, "protocol": each.protocol, **msgspec.to_builtins(each)} for each in ports]
