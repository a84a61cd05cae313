"""Permission checks of expressions, answered by the rules that authorize requests."""

from __future__ import annotations

from collections.abc import Callable

from services.api.errors import ApiError
from services.api.identity import MASTERS_GROUP, SERVICE_ACCOUNT_PREFIX, Identity
from services.api.wire import Request
from services.cel.questions import Asker, Decision, Question

Check = Callable[[Identity, Request], object]
"""Function that raises Forbidden if that identity may not make the request."""


def asker(identity: Identity, check: Check) -> Asker:
    """Return the authorizer of expressions, for the caller or for a service account."""
    known: dict[Question, Decision] = {}

    def ask(question: Question) -> Decision:
        if question not in known:
            known[question] = _decide(question, identity, check)
        return known[question]

    return ask


def _decide(question: Question, identity: Identity, check: Check) -> Decision:
    user = identity
    if question.user != identity.user:
        groups: tuple[str, ...] = ()
        if question.user.startswith(SERVICE_ACCOUNT_PREFIX):
            namespace = question.user.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")[0]
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        user = Identity(question.user, groups)
    if question.path:
        return Decision(MASTERS_GROUP in user.groups)
    request = Request(
        verb=question.verb,
        resource=f"{question.resource}.{question.group}" if question.group else question.resource,
        subresource=question.subresource,
        namespace=question.namespace,
        name=question.name,
    )
    try:
        check(user, request)
    except ApiError as error:
        return Decision(False, error.message)
    return Decision(True)
