"""`scale` of workloads: replicas as autoscaling/v1 Scale, for kubectl and autoscalers. Source: kubectl-requests 8."""

import msgspec

from apiserver_fake.registry.strategy import Subresource, SubresourceResult, WriteContext, next_generation
from apiserver_fake.registry.validation.formats import value_text
from services.api.errors import BadRequest, invalid
from services.api.meta import Document, LabelSelector
from services.api.selectors import selector_text


def _read(stored: Document) -> Document:
    meta, spec, status = stored["metadata"], stored.get("spec") or {}, stored.get("status") or {}
    given = spec.get("selector") or {}
    # A ReplicationController's selector is a map of labels.
    is_plain = stored.get("kind") == "ReplicationController"
    selector = LabelSelector(match_labels=given) if is_plain else msgspec.convert(given, LabelSelector)
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: meta[name] for name in names if name in meta},
        "spec": {"replicas": spec.get("replicas", 1)},
        "status": {"replicas": status.get("replicas", 0), "selector": selector_text(selector)},
    }


def _write(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    spec = body.get("spec")
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        text = (
            f"Scale in version v1 cannot be handled as a Scale: spec.replicas is {value_text(replicas)}, not a number"
        )
        raise BadRequest(text)
    if not 0 <= replicas <= 2**31 - 1:
        text = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise invalid("Scale.autoscaling", ctx.request.name, [("spec.replicas", "FieldValueInvalid", text)])
    if stored["spec"].get("replicas") == replicas:
        return SubresourceResult()
    return SubresourceResult(document={**next_generation(stored), "spec": {**stored["spec"], "replicas": replicas}})


SUBRESOURCES = tuple(
    Subresource(resource, "scale", ("get", "update", "patch"), _write, _read, body=("autoscaling/v1", "Scale"))
    for resource in ("deployments.apps", "replicasets.apps", "statefulsets.apps", "replicationcontrollers")
)
