"""Cluster objects beyond those of `initial_objects`; the setting `cluster_objects` turns them on.

The Service `default/kubernetes` and its endpoints, a default storage class, the mandatory and suggested objects
of priority and fairness, the range of Services' addresses, and the authority of clients' certificates for
extension API servers. A simulation has none of them. Source: upstream `pkg/controlplane/controller`,
`pkg/controlplane/apiserver`.
"""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from services.api.documents import yaml_text
from services.api.errors import AlreadyExists
from services.api.meta import Document
from services.api.resources import resource_of_kind
from services.api.times import format_time
from services.api.wire import Api, Request

FLOW_CONTROL = "flowcontrol.apiserver.k8s.io/v1"
AUTO_UPDATE = {"apf.kubernetes.io/autoupdate-spec": "true"}
QUEUE_LENGTH = 50
KUBERNETES = "kubernetes"
ADDRESS = "10.96.0.1"
"""Cluster IP of the Service `kubernetes`: the first address of the range."""
LABELS = {"component": "apiserver", "provider": "kubernetes"}
FRONT_PROXY = {
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-uid-headers": "[]",
    "requestheader-username-headers": '["X-Remote-User"]',
}


@cache
def standing_objects() -> tuple[Document, ...]:
    """Return the objects that are the same in every cluster; they are shared and must not be changed."""
    found = yaml_text.load(files("apiserver_fake.registry.controlplane").joinpath("cluster_objects.yaml").read_bytes())
    return tuple(_level(each) if "level" in each else _flow(each) if "flow" in each else each for each in found)


def _level(given: dict[str, Any]) -> Document:
    spec = given.get("spec") or {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": given["shares"],
            "lendablePercent": given["lendable"],
            "limitResponse": {
                "type": "Queue",
                "queuing": {"queues": given["queues"], "handSize": given["hand"], "queueLengthLimit": QUEUE_LENGTH},
            },
        },
    }
    meta = {"name": given["level"], "annotations": AUTO_UPDATE}
    return {"apiVersion": FLOW_CONTROL, "kind": "PriorityLevelConfiguration", "metadata": meta, "spec": spec}


def _flow(given: dict[str, Any]) -> Document:
    subjects = [{"kind": "User", "user": {"name": name}} for name in given.get("users", ())]
    subjects += [
        {"kind": "ServiceAccount", "serviceAccount": {"name": name, "namespace": "kube-system"}}
        for name in given.get("accounts", ())
    ]
    subjects += [{"kind": "Group", "group": {"name": name}} for name in given.get("groups", ())]
    rule: Document = {"subjects": subjects}
    if given.get("everything"):
        every = {name: ["*"] for name in ("verbs", "apiGroups", "resources", "namespaces")}
        rule["resourceRules"] = [{**every, "clusterScope": True}]
        rule["nonResourceRules"] = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    if "resources" in given:
        rule["resourceRules"] = given["resources"]
    if "urls" in given:
        rule["nonResourceRules"] = [{"verbs": ["get"], "nonResourceURLs": given["urls"]}]
    spec: Document = {
        "priorityLevelConfiguration": {"name": given["to"]},
        "matchingPrecedence": given["precedence"],
        "rules": [rule],
    }
    if "by" in given:
        spec["distinguisherMethod"] = {"type": given["by"]}
    text = f'This FlowSchema references the PriorityLevelConfiguration object named "{given["to"]}" and it exists'
    return {
        "apiVersion": FLOW_CONTROL,
        "kind": "FlowSchema",
        "metadata": {"name": given["flow"], "annotations": AUTO_UPDATE},
        "spec": spec,
        "status": {"conditions": [{"type": "Dangling", "status": "False", "reason": "Found", "message": text}]},
    }


def own_service(servers: Sequence[tuple[str, int]]) -> tuple[Document, ...]:
    """Return the Service of the API servers and its endpoints: the hosts and ports where they listen.

    Each port beyond the first has an EndpointSlice of its own.
    """
    about = {"namespace": "default", "name": KUBERNETES}
    mirrored = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    by_port: dict[int, list[str]] = {}
    for host, port in servers:
        by_port.setdefault(port, []).append(host)
    first = servers[0][1]
    return (
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**about, "labels": LABELS},
            "spec": {
                "clusterIP": ADDRESS,
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": first}],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {**about, "labels": mirrored},
            "subsets": [
                {"addresses": [{"ip": host} for host in hosts], "ports": _ports(port)}
                for port, hosts in by_port.items()
            ],
        },
        *(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    **about,
                    "name": KUBERNETES if port == first else f"{KUBERNETES}-{port}",
                    "labels": {"kubernetes.io/service-name": KUBERNETES},
                },
                "addressType": "IPv6" if ":" in hosts[0] else "IPv4",
                "endpoints": [{"addresses": [host], "conditions": {"ready": True}} for host in hosts],
                "ports": _ports(port),
            }
            for port, hosts in by_port.items()
        ),
    )


def _ports(port: int) -> list[Document]:
    return [{"name": "https", "port": port, "protocol": "TCP"}]


def client_authority(pem: str) -> Document:
    """Return the ConfigMap from which extension API servers read the authorities of client and front proxy
    certificates.

    One authority signs both, so only one certificate name may act as front proxy: otherwise each client could.
    Source: upstream `pkg/controlplane/controller/clusterauthenticationtrust`.
    """
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "kube-system", "name": "extension-apiserver-authentication"},
        "data": {"client-ca-file": pem, "requestheader-client-ca-file": pem, **FRONT_PROXY},
    }


async def ensure(api: Api, document: Document, wall_s: float, *, is_current: bool = False) -> None:
    """Create the object with its status if it does not exist. `is_current`: patch an existing object to the
    same content.

    An object that another API server creates at the same time is left to that server. Raises: ApiError.
    """
    kind = resource_of_kind(document["apiVersion"], document["kind"])
    assert kind is not None, document["kind"]
    meta = document["metadata"]
    place = {"resource": kind.name, "namespace": meta.get("namespace", ""), "name": meta["name"]}
    content = {name: value for name, value in document.items() if name != "status"}
    read_response = await api.call(Request(verb="get", **place))
    if read_response.is_ok:
        if is_current:
            body = msgspec.json.encode({name: value for name, value in content.items() if name != "metadata"})
            (await api.call(Request(verb="patch", patch_type="merge", body=body, **place))).unwrap()
        return
    body = msgspec.json.encode(content)
    create_response = await api.call(Request(verb="create", body=body, **{**place, "name": ""}))
    if create_response.code == AlreadyExists.code:
        return
    create_response.unwrap()
    if "status" not in document:
        return
    conditions = [{**each, "lastTransitionTime": format_time(wall_s)} for each in document["status"]["conditions"]]
    body = msgspec.json.encode({"status": {"conditions": conditions}})
    request = Request(verb="patch", patch_type="merge", subresource="status", body=body, **place)
    assert create_response.code == 201
    (await api.call(request)).unwrap()
