"""`pods/resize`: change what the containers of a pod ask for while it lives (KEP-1287).

It is read and written as the whole pod; what it says besides cpu and memory is left out or refused. What becomes of
the request is the node's affair, shown by the conditions PodResizePending and PodResizeInProgress. A request that its
namespace's limit ranges or quotas do not allow is refused (3.2); if that is wanted, so is one that its node never could
meet.
"""

from __future__ import annotations

from apiserver_fake.admission import limit_ranger
from apiserver_fake.admission.resize import check_feasible
from apiserver_fake.strategy import Subresource, SubresourceResult, WriteContext, next_generation
from apiserver_fake.validation.pod.resize import check_resize, resized_spec
from services.api.errors import invalid
from services.api.meta import Document


def _resize(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    before, wanted = stored.get("spec") or {}, body.get("spec") or {}
    spec = resized_spec(before, wanted)
    ranges = limit_ranger.ranges_of(ctx, ctx.request.namespace)
    if ranges and spec != before:
        spec, _ = limit_ranger.with_default_limits(spec, ranges)
    if causes := check_resize(stored, spec, with_level=ctx.switches.pod_level_resize):
        raise invalid("Pod", ctx.request.name, causes)
    if spec == before:
        return SubresourceResult()
    resized = {**next_generation(stored), "spec": spec}
    if ranges:
        limit_ranger.check_pod(stored, resized, ctx)
    check_feasible(resized, ctx)
    return SubresourceResult(document=resized)


SUBRESOURCES = (Subresource("pods", "resize", ("get", "update", "patch"), _resize, is_charged=True),)
