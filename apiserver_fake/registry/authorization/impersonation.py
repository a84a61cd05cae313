"""Impersonation: the permissions that a caller needs for it, and the resulting identity. Pure.

Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation/impersonation.go`.
"""

from collections.abc import Callable, Mapping, Sequence

from apiserver_fake.registry.policy import Attributes
from services.api.identity import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, Identity, account_groups, account_of

GROUP = "authentication.k8s.io"
"""API group of the impersonated attributes other than users, groups and service accounts."""


def acting_as(
    caller: Identity,
    user: str,
    authorize: Callable[[Identity, Attributes], object],
    *,
    groups: Sequence[str] = (),
    uid: str = "",
    extra: Mapping[str, Sequence[str]] = {},
) -> Identity:
    """Return the identity of the caller when it impersonates that user. Raises: Forbidden if `authorize` denies it."""
    for asked in _questions(user, groups, uid, extra):
        authorize(caller, asked)
    held, account = list(groups), account_of(user)
    if not held and account is not None:
        held = list(account_groups(account[0]))
    needed = UNAUTHENTICATED if user == ANONYMOUS.user else AUTHENTICATED
    if not {needed, UNAUTHENTICATED}.intersection(held):
        held.append(needed)
    named = tuple((key, tuple(values)) for key, values in sorted(extra.items()))
    return Identity(user, tuple(held), uid=uid, extra=named, credential=caller.credential)


def _questions(user: str, groups: Sequence[str], uid: str, extra: Mapping[str, Sequence[str]]) -> list[Attributes]:
    """Return what the caller must be allowed to do, each thing by itself."""
    account = account_of(user)
    verb = "impersonate"
    if account is not None:
        questions = [Attributes(verb, "", "serviceaccounts", name=account[1], namespace=account[0])]
    else:
        questions = [Attributes(verb, "", "users", name=user)]
    questions += [Attributes(verb, "", "groups", name=group) for group in groups]
    questions += [
        Attributes(verb, GROUP, "userextras", key, value) for key, values in extra.items() for value in values
    ]
    if uid:
        questions.append(Attributes(verb, GROUP, "uids", name=uid))
    return questions
