"""`pods/resize`: change what the containers of a pod ask for while it lives (KEP-1287).

It is read and written as the whole pod; what it says besides cpu and memory is left out or refused. What
becomes of the wish is the node's affair, told in the conditions PodResizePending and PodResizeInProgress.
"""

from __future__ import annotations

from apiserver_fake.pod_resize_rules import check_resize, resized_spec
from apiserver_fake.rules import Subresource, SubresourceResult, WriteContext
from services.api.errors import NotFound, invalid
from services.api.meta import Document


def _resize(stored: Document | None, body: Document, ctx: WriteContext) -> SubresourceResult:
    name = ctx.request.name
    if stored is None:
        raise NotFound(f'pods "{name}" not found', details={"name": name, "kind": "pods"})
    before, wanted = stored.get("spec") or {}, body.get("spec") or {}
    spec = resized_spec(before, wanted)
    if causes := check_resize(stored, spec):
        raise invalid("Pod", name, [*causes])
    if spec == before:
        return SubresourceResult()
    meta = {**stored["metadata"], "generation": int(stored["metadata"].get("generation") or 0) + 1}
    return SubresourceResult(document={**stored, "metadata": meta, "spec": spec})


SUBRESOURCES = (Subresource("pods", "resize", ("get", "update", "patch"), _resize),)
