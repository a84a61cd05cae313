"""`status` of every kind: the observed state, apart from the desired state (S21), and the metadata written
with it.

Ownership and the fence against a status of an earlier binding are checked against the *requested* object,
before the other fields are restored: a node that tries to change a label is refused, not ignored.
"""

from apiserver_fake.registry.authorization.authorizer import admit
from apiserver_fake.registry.errors import qualified_kind
from apiserver_fake.registry.status_metadata import metadata_causes, with_written, writable_members
from apiserver_fake.registry.strategy import Subresource, SubresourceResult, WriteContext
from services.api.errors import invalid
from services.api.meta import Document


def _write(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    admit(ctx.identity, ctx.request, stored, body, ctx)
    strategy = ctx.strategy
    new = dict(body)
    strategy.prepare_status(stored, new, ctx)
    new["metadata"] = with_written(stored, body, writable_members(ctx.request.resource))
    if causes := [*metadata_causes(stored, new), *strategy.validate_status(stored, new, ctx)]:
        raise invalid(qualified_kind(stored), ctx.request.name, causes)
    if strategy.check_status is not None:
        strategy.check_status(stored, new, ctx)
    return SubresourceResult(document=new)


SUBRESOURCES = (Subresource("*", "status", ("get", "update", "patch"), _write, admits=True),)
