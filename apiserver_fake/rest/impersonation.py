"""Parsing of the `Impersonate-*` headers. Pure.

Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation/impersonation.go`.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from multidict import MultiMapping

from apiserver_fake.registry.authorization.impersonation import GROUP as AUTHENTICATION
from apiserver_fake.registry.authorization.impersonation import acting_as
from apiserver_fake.registry.policy import Attributes
from services.api.errors import BadRequest
from services.api.identity import Identity

PREFIX: Final = "impersonate-"
USER, GROUP, UID, EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "impersonate-extra-"


def impersonate(
    caller: Identity, headers: MultiMapping[str], authorize: Callable[[Identity, Attributes], object]
) -> Identity:
    """Return the identity that the caller acts as: its own without such headers.

    Raises: Forbidden if it may not impersonate that identity; BadRequest for groups, uid or extra fields without a
    user, where upstream has 500.
    """
    if PREFIX not in ",".join(headers).lower():
        return caller
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
    return acting_as(caller, user, authorize, groups=groups, uid=uid, extra=extra)


def _without_user(groups: list[str], uid: str, extra: dict[str, list[str]]) -> BadRequest:
    """Return upstream's refusal, which shows its own objects; as a 400, because a caller made the mistake."""
    shown = [f"{{Group  {group}    }}" for group in groups]
    shown += [
        f"{{UserExtra  {value}  {AUTHENTICATION}/v1  {key}}}" for key, values in extra.items() for value in values
    ]
    shown += [f"{{UID  {uid}  {AUTHENTICATION}/v1  }}"] if uid else []
    text = f"requested [{' '.join(shown)}] without impersonating a user"
    return BadRequest(f"Internal error occurred: {text}")
