"""The answers of the aggregated APIs: a computed object, a list of computed objects, or an error. Pure.

Refusals have the texts of metrics-server and of `kubernetes-sigs/custom-metrics-apiserver`
(`pkg/provider/errors.go`).
"""

from collections.abc import Container, Mapping

import msgspec

from apiserver_fake.extensions.aggregated.scrape import RESOLUTION_S, Scrape, Used
from apiserver_fake.registry.errors import check_scope, method_not_allowed, not_found
from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Store
from services.api.errors import NotFound
from services.api.identity import CONTROLLER_MANAGER, SCHEDULER
from services.api.kinds.horizontalpodautoscaler import decimal_quantity
from services.api.kinds.pod import Pod
from services.api.meta import AnyObject, Document, Resource
from services.api.metrics.apis import (
    ALL_OBJECTS,
    COMPONENT_STATUSES,
    COMPUTED,
    CUSTOM_METRICS,
    EXTERNAL_METRICS,
    POD_METRICS,
)
from services.api.metrics.usage import (
    EXTERNAL_ANNOTATION,
    METRICS_ANNOTATION,
    Curves,
    UsageDocuments,
    curves_in,
    series_of,
    value_at,
)
from services.api.quantity import format_amount
from services.api.resources import resources
from services.api.selectors import parse_label_selector
from services.api.times import format_time, seconds_of
from services.api.wire import Request, Response

WINDOW = f"{RESOLUTION_S}s"
COMPONENTS = {
    "controller-manager": (CONTROLLER_MANAGER.user, 10257),
    "etcd-0": ("", 2379),
    "scheduler": (SCHEDULER.user, 10259),
}
"""Control plane components by their names in ComponentStatus: the user each calls as, and its health check port."""
_OBJECT = msgspec.json.Decoder(AnyObject)


def answer(
    request: Request, store: Store, wall_s: float, watching: Container[str] = (), usages: UsageDocuments | None = None
) -> Response:
    """Return the answer to a get or list of a computed resource.

    `watching`: the users whose watches are open. `usages`: resource usage of pods as KWOK's documents state it.

    Raises: NotFound, BadRequest for a selector or scope, MethodNotAllowed for any other verb.
    """
    resource = COMPUTED[request.resource]
    if request.verb not in verbs_of(resource):
        raise method_not_allowed()
    if resource is not CUSTOM_METRICS:  # those are of objects of either scope
        check_scope(resource, request)
    scrape = Scrape(store, wall_s, usages)
    match resource.kind:
        case CUSTOM_METRICS.kind:
            document = _list(resource, _custom(request, store, scrape))
        case EXTERNAL_METRICS.kind:
            document = _list(resource, _external(request, store, scrape))
        case COMPONENT_STATUSES.kind:
            document = _components(request, watching)
        case POD_METRICS.kind:
            document = _object_or_list(resource, request, _pods(request, scrape, wall_s))
        case _:
            document = _object_or_list(resource, request, _nodes(request, store, scrape, wall_s))
    return Response(code=200, rv=store.rv, body=msgspec.json.encode(document))


def verbs_of(resource: Resource) -> tuple[str, ...]:
    """Return the verbs of a computed resource."""
    return ("get",) if resource in (CUSTOM_METRICS, EXTERNAL_METRICS) else ("get", "list")


def _list(resource: Resource, items: list[Document]) -> Document:
    kind = resource.kind if resource.kind.endswith("List") else f"{resource.kind}List"
    return {"kind": kind, "apiVersion": resource.api_version, "metadata": {}, "items": items}


def _object_or_list(resource: Resource, request: Request, items: list[Document]) -> Document:
    if request.verb == "list":
        return _list(resource, items)
    if not items:
        raise _no_metrics(resource, f"{request.namespace}/{request.name}" if request.namespace else request.name)
    return {"kind": resource.kind, "apiVersion": resource.api_version, **items[0]}


def _components(request: Request, watching: Container[str]) -> Document:
    """Return which parts of the control plane live: who watches this server does, and its store answers.

    Source: upstream `pkg/registry/core/componentstatus/rest.go`.
    """
    labels, fields = parse_label_selector(request.label_selector), parse_label_selector(request.field_selector)
    items: list[Document] = []
    for name, (user, port) in COMPONENTS.items():
        is_meant = request.name in ("", name) and labels.matches({}) and fields.matches({"metadata.name": name})
        if not is_meant:
            continue
        condition = {"type": "Healthy", "status": "True", "message": "ok"}
        if user and user not in watching:
            where = f"127.0.0.1:{port}"
            refused = f'Get "https://{where}/healthz": dial tcp {where}: connect: connection refused'
            condition |= {"status": "False", "message": refused}
        items.append({"metadata": {"name": name}, "conditions": [condition]})
    if request.verb == "list":
        return _list(COMPONENT_STATUSES, items)
    if not items:
        raise NotFound(f"Component not found: {request.name}")
    return {"kind": COMPONENT_STATUSES.kind, "apiVersion": COMPONENT_STATUSES.api_version, **items[0]}


def _no_metrics(resource: Resource, name: str) -> NotFound:
    details = {"name": name, "group": resource.group, "kind": resource.singular}
    return NotFound(f'{resource.singular}.{resource.group} "{name}" not found', details=details)


def _metrics_of(name: str, labels: Mapping[str, str], scrape: Scrape, wall_s: float) -> Document:
    metadata: Document = {"name": name, "creationTimestamp": format_time(wall_s)}
    if labels:
        metadata["labels"] = dict(labels)
    return {"metadata": metadata, "timestamp": format_time(scrape.at_s), "window": WINDOW}


def _usage(used: Used) -> Document:
    return {"cpu": format_amount("cpu", used.cpu), "memory": format_amount("memory", used.memory)}


def _selection(resource: str, request: Request) -> Selection:
    fields = f"metadata.name={request.name}" if request.verb == "get" else request.field_selector
    return Selection.parse(resources()[resource], request.namespace, request.label_selector, fields)


def _pods(request: Request, scrape: Scrape, wall_s: float) -> list[Document]:
    if request.verb == "get" and scrape.pod(request.namespace, request.name) is None:
        raise not_found(resources()["pods"], request.name)
    metrics = []
    for pod in scrape.pods(_selection("pods", request)):
        if containers := scrape.containers(pod):
            document = _metrics_of(pod.metadata.name, pod.metadata.labels, scrape, wall_s)
            document["metadata"]["namespace"] = pod.metadata.namespace
            document["containers"] = [{"name": name, "usage": _usage(used)} for name, used in containers.items()]
            metrics.append(document)
    return metrics


def _nodes(request: Request, store: Store, scrape: Scrape, wall_s: float) -> list[Document]:
    if request.verb == "get" and store.get("nodes", "", request.name) is None:
        raise not_found(resources()["nodes"], request.name)
    records = store.select("nodes", _selection("nodes", request)).records
    used = {record.name: [0, 0] for record in records if scrape.is_alive(record.name)}
    for pod in scrape.pods(Selection()) if used else ():
        if (total := used.get(pod.spec.node_name)) is not None:
            for usage in scrape.containers(pod).values():
                total[0] += usage.cpu
                total[1] += usage.memory
    return [
        {**_metrics_of(record.name, record.labels, scrape, wall_s), "usage": _usage(Used(*used[record.name]))}
        for record in records
        if record.name in used
    ]


def _custom(request: Request, store: Store, scrape: Scrape) -> list[Document]:
    """Return the values of a custom metric. The name is the path `RESOURCE/NAME/METRIC`, or `metrics/METRIC` for the
    namespace itself."""
    match request.name.split("/"):
        case ["metrics", metric]:
            plural, name, namespace = "namespaces", request.namespace, ""
        case [plural, name, metric]:
            namespace = request.namespace if (resources().get(plural) or POD_METRICS).namespaced else ""
        case _:
            raise NotFound("the server could not find the requested resource")
    resource = resources().get(plural)
    if resource is None:
        raise NotFound("the server could not find the requested resource")
    asked, values = parse_label_selector(request.field_selector), list[Document]()
    fields = "" if name == ALL_OBJECTS else f"metadata.name={name}"
    selection = Selection.parse(resource, namespace, request.label_selector if not fields else "", fields)
    for record in store.select(resource.name, selection).records:
        seen = _OBJECT.decode(record.body).metadata
        curves, age_s = curves_in(seen.annotations.get(METRICS_ANNOTATION, ""), ()), scrape.at_s
        matching = [series for series in curves if _is_series(series, metric) and asked.matches(series_of(series)[1])]
        if resource.name == "pods":
            pod = msgspec.json.decode(record.body, type=Pod)
            if not scrape.is_scraped(pod):
                continue
            age_s -= seconds_of(pod.status.start_time)
            share = scrape.share(pod)
            shared = [each for each in share if _is_series(each, metric) and asked.matches(series_of(each)[1])]
        else:
            age_s -= seconds_of(seen.creation_timestamp)
            share, shared = {}, []
        if matching or shared:
            total = sum(value_at(curves[each], max(0.0, age_s)) for each in matching) + sum(
                share[each] for each in shared
            )
            described = {"kind": resource.kind, "apiVersion": resource.api_version, "name": record.name}
            if record.namespace:
                described["namespace"] = record.namespace
            values.append(
                {
                    "describedObject": described,
                    "metric": {"name": metric, "selector": None},
                    "timestamp": format_time(scrape.at_s),
                    "value": decimal_quantity(total),
                }
            )
    if not values:
        named = f" {name}" if fields else ""
        raise NotFound(f"the server could not find the metric {metric} for {plural}{named}")
    return values


def _is_series(series: str, metric: str) -> bool:
    return series_of(series)[0] == metric


def _external(request: Request, store: Store, scrape: Scrape) -> list[Document]:
    """Return the series of an external metric that the label selector matches; none is no error."""
    record = store.get("namespaces", "", request.namespace)
    curves: Curves = {}
    age_s = scrape.at_s
    if record is not None:
        seen = _OBJECT.decode(record.body).metadata
        curves = curves_in(seen.annotations.get(EXTERNAL_ANNOTATION, ""), ())
        age_s -= seconds_of(seen.creation_timestamp)
    if not any(_is_series(series, request.name) for series in curves):
        raise NotFound(f"the server could not find the metric {request.name} for namespaces {request.namespace}")
    asked = parse_label_selector(request.label_selector)
    return [
        {
            "metricName": request.name,
            "metricLabels": dict(series_of(series)[1]),
            "timestamp": format_time(scrape.at_s),
            "value": decimal_quantity(value_at(points, max(0.0, age_s))),
        }
        for series, points in curves.items()
        if _is_series(series, request.name) and asked.matches(series_of(series)[1])
    ]
