"""`namespaces/finalize`: removes a finalizer from a namespace's spec; removing the last one deletes the
namespace.

Metadata is written with it. Source: controllers 11; upstream `pkg/registry/core/namespace/strategy.go`.
"""

from apiserver_fake.registry.errors import qualified_kind
from apiserver_fake.registry.status_metadata import ALL, metadata_causes, with_written
from apiserver_fake.registry.strategies.core import is_done
from apiserver_fake.registry.strategy import DeleteOptions, Subresource, SubresourceResult, WriteContext
from services.api.errors import BadRequest, invalid
from services.api.meta import Document


def _finalize(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    spec = body.get("spec") or {}
    finalizers = (spec.get("finalizers") or []) if isinstance(spec, dict) else None
    if not isinstance(finalizers, list) or not all(isinstance(each, str) for each in finalizers):
        raise BadRequest("spec.finalizers must be a list of names")
    changed = {
        **stored,
        "metadata": with_written(stored, body, ALL),
        "spec": {**(stored.get("spec") or {}), "finalizers": finalizers},
    }
    if causes := metadata_causes(stored, changed):
        raise invalid(qualified_kind(stored), ctx.request.name, causes)
    is_over = bool(stored["metadata"].get("deletionTimestamp")) and is_done(changed)
    return SubresourceResult(document=changed, delete=DeleteOptions() if is_over else None)


SUBRESOURCES = (Subresource("namespaces", "finalize", ("update",), _finalize),)
