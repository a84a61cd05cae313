"""`pods/resize`: changes the resources of a running pod's containers (KEP-1287).

It is read and written as the whole pod; changes other than to cpu and memory are left out or refused. The node
decides about the request and reports by the conditions PodResizePending and PodResizeInProgress. A request that
exceeds its namespace's limit ranges or quotas is refused (3.2).

A request that the node could never meet is refused, too, by default (`resize.feasibility`). Up to v1.35 such a
resize is accepted, and the node calls it Infeasible; since v1.36 the admission plugin PodResizeValidator
refuses it, so that the client learns of it at once. Limits that only the kubelet knows (swap, static managers)
are left to the kubelet. Source: upstream `plugin/pkg/admission/podresize` (v1.36).
"""

from typing import Final

import msgspec

from apiserver_fake.registry.admission import limit_ranger
from apiserver_fake.registry.admission.declared_features import check_pod_update
from apiserver_fake.registry.errors import forbidden
from apiserver_fake.registry.strategy import Subresource, SubresourceResult, WriteContext, next_generation
from apiserver_fake.registry.validation.fields import Report
from apiserver_fake.registry.validation.pod.update import check_resize, resized_spec
from services.api.errors import invalid
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import Document
from services.api.podresources import amounts, pod_requests

BY_ADMISSION: Final = "admission"
OS_LABEL: Final = "kubernetes.io/os"


def _problem(pod: Document, node_name: str, node_document: Document | None) -> str:
    if node_document is None:
        return f'node "{node_name}" not found'
    node = msgspec.convert(node_document, Node)
    requests, allocatable = pod_requests(msgspec.convert(pod, Pod)), amounts(node.status.allocatable)
    short = [
        f"{name}, requested: {requests[name]}, allocatable: {allocatable.get(name, 0)}"
        for name in ("cpu", "memory")
        if requests.get(name, 0) > allocatable.get(name, 0)
    ]
    if short:
        return f"Node didn't have enough allocatable resources: {'; '.join(short)}"
    system = node.metadata.labels.get(OS_LABEL, "")
    return "" if system == "linux" else f'pod resize is only supported on linux nodes, node "{node_name}" is "{system}"'


def _resize(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    before, wanted = stored.get("spec") or {}, body.get("spec") or {}
    spec = resized_spec(before, wanted)
    ranges = limit_ranger.ranges_of(ctx, ctx.request.namespace)
    if ranges and spec != before:
        spec, _ = limit_ranger.with_default_limits(spec, ranges)
    resized = {**stored, "spec": spec}
    if causes := check_resize(stored, resized, Report(ctx.switches)):
        raise invalid("Pod", ctx.request.name, causes)
    if spec == before:
        return SubresourceResult()
    resized = {**next_generation(stored), "spec": spec}
    if ranges:
        limit_ranger.check_pod(stored, resized, ctx)
    check_pod_update(stored, resized, ctx)
    node_name = before.get("nodeName") or ""
    if node_name and ctx.switches.resize_feasibility == BY_ADMISSION:
        problem = _problem(resized, node_name, ctx.lookup("nodes", "", node_name))
        if problem:
            raise forbidden("pods", stored["metadata"]["name"], problem)
    return SubresourceResult(document=resized)


SUBRESOURCES = (Subresource("pods", "resize", ("get", "update", "patch"), _resize, is_charged=True),)
