"""Delegated authorization of requests to a process beyond its health, by TokenReview and SubjectAccessReview.

Every process of the mesh, the API server included, asks in the same way, as kube-scheduler and kubelets do.
Answers are cached for ten seconds, so that a scrape costs no call and a revoked token is soon refused.
Source: guarantees X-RES; upstream
`staging/src/k8s.io/apiserver/pkg/authentication/authenticatorfactory/delegating.go`.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from services.api.errors import ApiError, UnknownOutcome
from services.api.identity import Identity
from services.api.seams import Clock
from services.api.wire import Api, Request

KEPT_S: Final = 10.0
KEPT_MAX: Final = 1_000
ASK_MAX_S: Final = 5.0
TOKEN_REVIEWS: Final = "tokenreviews.authentication.k8s.io"
ACCESS_REVIEWS: Final = "subjectaccessreviews.authorization.k8s.io"
OPEN_PATHS: Final = frozenset(("/healthz", "/livez", "/readyz"))
"""Paths that are answered for every caller, in one word."""

T = TypeVar("T")


class Right(NamedTuple):
    """A required permission: a verb on a path, or with `subresource` on a node's subresource ("": on all nodes)."""

    verb: str
    path: str
    subresource: str = ""
    node: str = ""

    def attributes(self) -> dict[str, Any]:
        """Return the permission as attributes of a SubjectAccessReview."""
        if not self.subresource:
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}
        attributes = {"verb": self.verb, "resource": "nodes", "subresource": self.subresource, "version": "v1"}
        return {"resourceAttributes": {**attributes, **({"name": self.node} if self.node else {})}}


class Refusal(NamedTuple):
    """Status and text of a refusal."""

    code: int
    text: str


@dataclass(frozen=True)
class Caller:
    """A caller as its connection shows it. `peer`: the client's certificate as `ssl` describes it, if any."""

    method: str
    path: str
    authorization: str = ""
    peer: dict[str, Any] | None = field(default=None, compare=False)


class NotSaid(Exception):
    """Error: the API server gave no answer."""


class Delegation:
    """Reviews by the API server, with this process's credentials. `api`: None while there are none."""

    def __init__(self, api: Callable[[], Api | None], clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._users: dict[bytes, tuple[float, Identity | None]] = {}
        self._rights: dict[tuple[str, tuple[str, ...], Right], tuple[float, bool]] = {}

    async def refusal(self, caller: Caller, certified: Identity | None, rights: Sequence[Right]) -> Refusal | None:
        """Return the refusal of a caller; None for a caller with one of these rights.

        `certified`: the identity in the client's certificate; once it has expired the token counts, if there is one.
        """
        if certified is not None and certified.credential.is_over(self._clock.wall()):
            certified = None
        scheme, _, token = caller.authorization.partition(" ")
        try:
            if certified is None and scheme.lower() == "bearer" and token.strip():
                certified = await self._user(token.strip())
            if certified is None:
                return Refusal(401, "Unauthorized")
            for right in rights:
                if await self._may(certified, right):
                    return None
        except NotSaid as error:
            return Refusal(503, f"the API server does not say who is calling: {error}")
        first = rights[0]
        if not first.subresource:
            return Refusal(403, f'forbidden: User "{certified.user}" cannot {first.verb} path "{first.path}"')
        asked = " ".join(right.subresource for right in rights)
        return Refusal(
            403, f"Forbidden (user={certified.user}, verb={first.verb}, resource=nodes, subresource(s)=[{asked}])"
        )

    async def _user(self, token: str) -> Identity | None:
        key = hashlib.sha256(token.encode()).digest()
        if (known := _fresh_entry(self._users, key, self._clock.now())) is not None:
            return known[1]
        review = await self._ask(TOKEN_REVIEWS, {"token": token})
        user_info, user = review.get("user") or {}, None
        if review.get("authenticated"):
            extra = tuple((name, tuple(values)) for name, values in sorted((user_info.get("extra") or {}).items()))
            user = Identity(
                user_info["username"], tuple(user_info.get("groups") or ()), uid=user_info.get("uid", ""), extra=extra
            )
        _keep(self._users, key, (self._clock.now(), user))
        return user

    async def _may(self, user: Identity, right: Right) -> bool:
        key = (user.user, user.groups, right)
        if (known := _fresh_entry(self._rights, key, self._clock.now())) is not None:
            return known[1]
        about = {"user": user.user, "groups": list(user.groups), "uid": user.uid}
        extra = {name: list(values) for name, values in user.extra}
        allowed = (await self._ask(ACCESS_REVIEWS, {**about, "extra": extra, **right.attributes()})).get("allowed")
        _keep(self._rights, key, (self._clock.now(), bool(allowed)))
        return bool(allowed)

    async def _ask(self, review: str, spec: dict[str, Any]) -> dict[str, Any]:
        api = self._api()
        if api is None:
            raise NotSaid("this process has no credentials to ask it with")
        body = msgspec.json.encode({"spec": spec})
        try:
            answer = await api.call(Request(verb="create", resource=review, body=body, deadline_s=ASK_MAX_S))
            return dict(msgspec.json.decode(answer.unwrap().body).get("status") or {})
        except (ApiError, UnknownOutcome) as error:
            raise NotSaid(str(error)) from None


def _fresh_entry(kept: dict[Any, tuple[float, T]], key: Any, now_s: float) -> tuple[float, T] | None:
    found = kept.get(key)
    return found if found is not None and now_s - found[0] < KEPT_S else None


def _keep(kept: dict[Any, tuple[float, T]], key: Any, value: tuple[float, T]) -> None:
    if len(kept) >= KEPT_MAX:
        kept.clear()
    kept[key] = value


def rights_on_paths(caller: Caller) -> Sequence[Right] | None:
    """Return the rights that a process requires of its callers; None if it answers all."""
    if caller.path.rstrip("/") in OPEN_PATHS:
        return None
    return (Right(_VERBS.get(caller.method, caller.method.lower()), caller.path),)


_VERBS: Final = {"HEAD": "get"}
_NODE_VERBS: Final = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_PARTS: Final = {"stats": ("stats",), "metrics": ("metrics",), "logs": ("log",)} | {
    path: (part, "proxy")
    for path, part in {"pods": "pods", "runningpods": "pods", "healthz": "healthz", "configz": "configz"}.items()
}


def rights_on_nodes(caller: Caller, node: str = "") -> Sequence[Right]:
    """Return the rights that a kubelet accepts from its callers; any one is enough.

    Source: upstream `pkg/kubelet/server/auth.go`; KEP-2862, Design Details.
    """
    first = caller.path.lstrip("/").partition("/")[0]
    verb = _NODE_VERBS.get(caller.method, caller.method.lower())
    return tuple(Right(verb, caller.path, part, node) for part in _PARTS.get(first, ("proxy",)))
