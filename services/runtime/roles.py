"""Roles: the permissions of an identity, as data. Each controller's role is in its folder, as `role.yaml`.

The API server authorizes by these files and the token files name their users; neither imports a controller,
which is a process of its own (decision 0022). The form is a ClusterRole's, with wire names for resources. It
adds what RBAC cannot express: the fields an update may touch and the preconditions a delete must name.
Source: guarantees 8.3.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from services.api.documents import yaml_text
from services.api.identity import CONTROLLER_PREFIX, SERVICE_ACCOUNT_PREFIX, STAGE_PLAYER, Identity

T = TypeVar("T")

FOLDER: Final = Path(__file__).parents[1] / "controllers"
CLAIM_FOLDER: Final = Path(__file__).parents[2] / "claim_controller"
FILE: Final = "role.yaml"
SERVICE_ACCOUNT: Final = re.compile(f"{SERVICE_ACCOUNT_PREFIX}([a-z0-9-]+):([a-z0-9.-]+)")
CHANGE: Final = ("update", "patch")
LEASES: Final = "leases.coordination.k8s.io"


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One rule: verbs on resources, `*` for every resource itself.

    `may_change`: paths that an update or patch may touch; empty: all. `needs`: preconditions a delete must name,
    `uid` and `rv`; `unless`: a switch setting under which it need not. `where`: "" anywhere, `own` in namespaces of
    that user, `lease` for the caller's own lease only, `node` for slices of the node that the caller's token is
    bound to, `host` for nodes of that kubelet host and pods bound to them, including fields that its stages change,
    `driver` for devices of the driver that the caller's service account is named after. `to_unknown`: conditions
    may be changed to Unknown only. `resource_names`: only objects of these names; checked where the permission is
    for a driver's claims (dra-core 9).
    """

    name: str
    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    may_change: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unless: tuple[str, bool] = ("", False)
    where: str = ""
    to_unknown: bool = False
    resource_names: tuple[str, ...] = ()


class Role(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Permissions of one user; `group:<name>` is every member of a group, `user:*` every `user:<name>`."""

    user: str
    rules: tuple[Rule, ...]


OF_EVERY_CONTROLLER: Final = (
    Rule(name="events", verbs=("create", *CHANGE), resources=("events",)),
    Rule(name="lease", verbs=("get", "create", *CHANGE), resources=(LEASES,), where="lease"),
)
"""Rules that every controller has; no controller's file repeats them."""


_CONTROLLERS: Final = (CONTROLLER_PREFIX, SERVICE_ACCOUNT_PREFIX)


@cache
def controller_roles(folder: Path = FOLDER) -> tuple[Role, ...]:
    """Return the roles of one process's controllers, in the order of their folders. Raises: ValueError naming a
    file that is not a valid role.
    """
    roles = [_decode(path, Role) for path in sorted(folder.glob(f"*/{FILE}"))]
    return tuple(
        Role(role.user, (*role.rules, *OF_EVERY_CONTROLLER)) if role.user.startswith(_CONTROLLERS) else role
        for role in roles
    )


def controller_identities() -> tuple[Identity, ...]:
    """Return the users of the controller manager's controllers, and the stage player."""
    return (*(Identity(role.user) for role in controller_roles()), STAGE_PLAYER)


def claim_controller_identities() -> tuple[Identity, ...]:
    """Return the users of the claim controller's process."""
    return tuple(Identity(role.user) for role in controller_roles(CLAIM_FOLDER))


def read_role(path: Path) -> Role:
    """Return the role of a controller that is not part of keplab; it acts as a service account. Raises: ValueError
    naming the file, when it is unreadable, is no role or has a user of another kind.
    """
    try:
        role = _decode(path, Role)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    if not SERVICE_ACCOUNT.fullmatch(role.user):
        raise ValueError(f"{path}: user {role.user!r} is no service account, system:serviceaccount:NAMESPACE:NAME")
    return role


def read_roles(path: Path) -> list[Role]:
    """Return the roles in a file with a list of them. Raises: ValueError naming the file."""
    return _decode(path, list[Role])


def _decode(path: Path, form: type[T]) -> T:
    try:
        return msgspec.convert(yaml_text.load(path.read_bytes()), form)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None
