"""Acting as another user: what the `Impersonate-*` headers ask for, and who it makes of the caller. Pure.

Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation/impersonation.go`.
"""

from collections.abc import Callable
from urllib.parse import unquote

from multidict import MultiMapping

from apiserver_fake.rbac.policy import Attributes
from services.api.errors import BadRequest
from services.api.identity import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, Identity, account_groups, account_of

USER, GROUP, UID, EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "impersonate-extra-"
AUTHENTICATION = "authentication.k8s.io"


def impersonated(
    caller: Identity, headers: MultiMapping[str], authorize: Callable[[Identity, Attributes], object]
) -> Identity:
    """Return who the caller acts as: itself without such headers. Raises: Forbidden for what it may not be; BadRequest
    for groups, uid or extra fields without a user, where upstream has 500."""
    user = headers.get(USER, "")
    groups, uid = list(headers.getall(GROUP, ())), headers.get(UID, "")
    extra: dict[str, list[str]] = {}
    for name, value in headers.items():
        if name.lower().startswith(EXTRA):
            extra.setdefault(unquote(name.lower()[len(EXTRA) :]), []).append(value)
    if not user:
        if groups or uid or extra:
            raise _without_user(groups, uid, extra)
        return caller
    for asked in _questions(user, groups, uid, extra):
        authorize(caller, asked)
    account = account_of(user)
    if not groups and account is not None:
        groups = list(account_groups(account[0]))
    needed = UNAUTHENTICATED if user == ANONYMOUS.user else AUTHENTICATED
    if not {needed, UNAUTHENTICATED}.intersection(groups):
        groups.append(needed)
    named = tuple((key, tuple(values)) for key, values in sorted(extra.items()))
    return Identity(user, tuple(groups), uid=uid, extra=named, credential=caller.credential)


def _questions(user: str, groups: list[str], uid: str, extra: dict[str, list[str]]) -> list[Attributes]:
    """Return what the caller must be allowed to do, each thing by itself."""
    account = account_of(user)
    verb = "impersonate"
    if account is not None:
        found = [Attributes(verb, "", "serviceaccounts", name=account[1], namespace=account[0])]
    else:
        found = [Attributes(verb, "", "users", name=user)]
    found += [Attributes(verb, "", "groups", name=group) for group in groups]
    found += [
        Attributes(verb, AUTHENTICATION, "userextras", key, value) for key, values in extra.items() for value in values
    ]
    if uid:
        found.append(Attributes(verb, AUTHENTICATION, "uids", name=uid))
    return found


def _without_user(groups: list[str], uid: str, extra: dict[str, list[str]]) -> BadRequest:
    """Return upstream's refusal, which shows its own objects; as a 400, because a caller made the mistake."""
    shown = [f"{{Group  {group}    }}" for group in groups]
    shown += [
        f"{{UserExtra  {value}  {AUTHENTICATION}/v1  {key}}}" for key, values in extra.items() for value in values
    ]
    shown += [f"{{UID  {uid}  {AUTHENTICATION}/v1  }}"] if uid else []
    text = f"requested [{' '.join(shown)}] without impersonating a user"
    return BadRequest(f"Internal error occurred: {text}")
