"""`certificatesigningrequests/approval`: approves or denies a request.

Source: upstream `pkg/registry/certificates/certificates/strategy.go`.
"""

from apiserver_fake.registry.admission.certificates import check_approver
from apiserver_fake.registry.errors import qualified_kind
from apiserver_fake.registry.status_metadata import metadata_causes, with_written, writable_members
from apiserver_fake.registry.strategies.certificates import (
    check_conditions,
    conditions_of,
    removed_conditions,
    with_times,
)
from apiserver_fake.registry.strategy import Subresource, SubresourceResult, WriteContext
from services.api.errors import invalid
from services.api.kinds.certificatesigningrequest import REQUESTS
from services.api.meta import Document


def _approve(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    """Take the conditions and the metadata from the body and nothing else; a decision once made stays."""
    conditions = with_times(conditions_of(body), conditions_of(stored), ctx.wall_s)
    status = {name: value for name, value in (stored.get("status") or {}).items() if name != "conditions"}
    if conditions:
        status["conditions"] = conditions
    metadata = with_written(stored, body, writable_members(REQUESTS))
    new = {**stored, "metadata": metadata, "status": status}
    causes = [*check_conditions(conditions), *removed_conditions(stored, new), *metadata_causes(stored, new)]
    if causes:
        raise invalid(qualified_kind(stored), ctx.request.name, causes)
    check_approver(stored, ctx)
    return SubresourceResult(document=new)


SUBRESOURCES = (Subresource(REQUESTS, "approval", ("get", "update", "patch"), _approve),)
