"""`namespaces/finalize`: take off its controller's finalizer; the last one gone ends it. Source: controllers 11."""

from apiserver_fake.registry.strategies.core import is_done
from apiserver_fake.strategy import DeleteOptions, Subresource, SubresourceResult, WriteContext
from services.api.errors import BadRequest
from services.api.meta import Document


def _finalize(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    spec = body.get("spec") or {}
    finalizers = (spec.get("finalizers") or []) if isinstance(spec, dict) else None
    if not isinstance(finalizers, list) or not all(isinstance(each, str) for each in finalizers):
        raise BadRequest("spec.finalizers must be a list of names")
    changed = {**stored, "spec": {**(stored.get("spec") or {}), "finalizers": finalizers}}
    is_over = bool(stored["metadata"].get("deletionTimestamp")) and is_done(changed)
    return SubresourceResult(document=changed, delete=DeleteOptions() if is_over else None)


SUBRESOURCES = (Subresource("namespaces", "finalize", ("update",), _finalize),)
