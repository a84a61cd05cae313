"""`certificatesigningrequests/approval`: a request is approved or denied.

Source: upstream `pkg/registry/certificates/certificates/strategy.go`.
"""

from apiserver_fake.admission.certificates import check_approver
from apiserver_fake.errors import qualified_kind
from apiserver_fake.registry.strategies.certificates import check_conditions, conditions_of, stamped
from apiserver_fake.strategy import Subresource, SubresourceResult, WriteContext
from apiserver_fake.validation.formats import forbidden
from services.api.errors import invalid
from services.api.kinds.certificatesigningrequest import APPROVED, DENIED, REQUESTS
from services.api.meta import Document

_DECISIONS = (APPROVED, DENIED)


def _approve(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    """Take the two conditions from the body and nothing else; a decision once made stays."""
    before = conditions_of(stored)
    asked = [each for each in conditions_of(body) if each.get("type") in _DECISIONS]
    others = [each for each in before if each.get("type") not in _DECISIONS]
    causes = check_conditions([*others, *asked])
    kinds = {each.get("type") for each in asked}
    for each in before:
        if each.get("type") in _DECISIONS and each["type"] not in kinds:
            causes.append(
                forbidden("status.conditions", f'updates may not remove a condition of type "{each["type"]}"')
            )
    if causes:
        raise invalid(qualified_kind(stored), ctx.request.name, causes)
    check_approver(stored, ctx)
    status = {**(stored.get("status") or {}), "conditions": stamped([*others, *asked], before, ctx.wall_s)}
    return SubresourceResult(document={**stored, "status": status})


SUBRESOURCES = (Subresource(REQUESTS, "approval", ("get", "update", "patch"), _approve),)
