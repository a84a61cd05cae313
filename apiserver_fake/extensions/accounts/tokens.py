"""Tokens of service accounts: their claims, and whether these still hold.

A token of the TokenRequest API has a limited lifetime and may be bound to a pod, a secret or a node. A token in
a secret of the type `kubernetes.io/service-account-token` lives as long as its secret. Both become invalid with
their account. Source: KEP-1205, KEP-4193; upstream `pkg/serviceaccount/claims.go`, `legacy.go`, `jwt.go`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from apiserver_fake.extensions.accounts.jwt import JwtError, SigningKey, claims_of
from apiserver_fake.registry.accounts import BoundObject, Find, Rejected
from services.api.identity import (
    CREDENTIAL_ID_KEY,
    NODE_NAME_KEY,
    NODE_UID_KEY,
    POD_NAME_KEY,
    POD_UID_KEY,
    SERVICE_ACCOUNT_PREFIX,
    Identity,
    account_groups,
)
from services.api.meta import Document
from services.api.times import parse_time

LEGACY_ISSUER: Final = "kubernetes/serviceaccount"
_LEGACY: Final = "kubernetes.io/serviceaccount/"
LEEWAY_S: Final = 60
"""Seconds after its deletion began for which an object that a token is bound to still counts."""
EXTENDED_S: Final = 365 * 24 * 3600
WARNED_S: Final = 3607
"""Lifetime that a pod's own token requests, in seconds. The token gets a year instead, and its use is
warned of after the requested time (KEP-1205).
"""
KINDS: Final = {"pod": "pods", "secret": "secrets", "node": "nodes"}


class AccountTokens:
    """Issues and verifies the tokens of service accounts."""

    def __init__(self, key: SigningKey, issuer: str, audiences: Sequence[str] = ()) -> None:
        """Take the key and the issuer. `audiences`: audiences of this API server; the issuer if empty."""
        self.key, self.issuer = key, issuer
        self.audiences = tuple(audiences) or (issuer,)

    def issue(
        self,
        account: Document,
        audiences: Sequence[str],
        lives_s: int,
        bound: BoundObject | None,
        *,
        token_id: str,
        now_s: float,
    ) -> str:
        """Return a token of the account for these audiences."""
        meta, now = account["metadata"], int(now_s)
        about: Document = {"namespace": meta["namespace"], "serviceaccount": _reference(account)}
        if bound is not None:
            about[bound.kind] = _reference(bound.object)
            if bound.node is not None:
                about["node"] = _reference(bound.node)
        if bound is not None and bound.kind == "pod" and lives_s == WARNED_S and set(audiences) == set(self.audiences):
            about["warnafter"], lives_s = now + lives_s, EXTENDED_S
        return self.key.sign(
            {
                "aud": list(audiences),
                "exp": now + lives_s,
                "iat": now,
                "iss": self.issuer,
                "jti": token_id,
                "kubernetes.io": dict(sorted(about.items())),
                "nbf": now,
                "sub": f"{SERVICE_ACCOUNT_PREFIX}{meta['namespace']}:{meta['name']}",
            }
        )

    def legacy(self, account: Document, secret: Document) -> str:
        """Return the token that a service account token secret holds for its account."""
        meta = account["metadata"]
        return self.key.sign(
            {
                "iss": LEGACY_ISSUER,
                f"{_LEGACY}namespace": meta["namespace"],
                f"{_LEGACY}secret.name": secret["metadata"]["name"],
                f"{_LEGACY}service-account.name": meta["name"],
                f"{_LEGACY}service-account.uid": meta["uid"],
                "sub": f"{SERVICE_ACCOUNT_PREFIX}{meta['namespace']}:{meta['name']}",
            }
        )

    def configuration(self) -> Document:
        """Return the document that `/.well-known/openid-configuration` serves for this issuer."""
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer.rstrip('/')}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [self.key.algorithm],
        }

    def key_set(self) -> Document:
        """Return the public key as a JSON Web Key Set."""
        return self.key.key_set()

    def is_own(self, bearer: str) -> bool:
        """Whether a token names this server as its issuer; the signature is not checked."""
        return bearer.count(".") == 2 and claims_of(bearer).get("iss") in (self.issuer, LEGACY_ISSUER)

    def verified_claims(self, bearer: str) -> Document:
        """Return the claims of a token that this server signed; the token may have expired. Raises: Rejected."""
        try:
            return self.key.verify(bearer)
        except JwtError:
            raise Rejected("invalid signature, no keys found") from None

    def identity(
        self, bearer: str, claims: Document, find: Find, now_s: float, audiences: Sequence[str] = ()
    ) -> tuple[Identity, tuple[str, ...]]:
        """Return the token's identity, and those of `audiences` for which it is valid (empty: those of this API
        server).

        Raises: Rejected, also when the account or the object that the token is bound to is gone.
        """
        try:
            if claims.get("iss") == LEGACY_ISSUER:
                return self._legacy_identity(bearer, claims, find, audiences or self.audiences)
            return self._bound_identity(claims, find, now_s, audiences or self.audiences)
        except (KeyError, TypeError, AttributeError):
            raise Rejected("service account token claims could not be validated") from None

    def _bound_identity(
        self, claims: Document, find: Find, now_s: float, wanted: Sequence[str]
    ) -> tuple[Identity, tuple[str, ...]]:
        meant = tuple(each for each in wanted if each in claims["aud"])
        if not meant:
            token_audiences, asked = (" ".join(f'"{each}"' for each in texts) for texts in (claims["aud"], wanted))
            raise Rejected(f"token audiences [{token_audiences}] is invalid for the target audiences [{asked}]")
        if now_s > claims["exp"] + LEEWAY_S:
            raise Rejected("service account token has expired")
        if now_s < claims["nbf"] - LEEWAY_S:
            raise Rejected("service account token is not valid yet")
        about = claims["kubernetes.io"]
        namespace, account = about["namespace"], about["serviceaccount"]
        _check_account(find, namespace, account["name"], account["uid"], now_s)
        extra: dict[str, tuple[str, ...]] = {}
        if token_id := claims.get("jti"):
            extra[CREDENTIAL_ID_KEY] = (f"JTI={token_id}",)
        is_of_pod = "pod" in about
        for kind, resource in KINDS.items():
            if kind not in about:
                continue
            named = about[kind]
            # The node of a pod's token says where it runs; the pod is what the token lives with.
            if not (kind == "node" and is_of_pod):
                place = "" if kind == "node" else namespace
                _check_bound(kind, find(resource, place, named["name"]), named, now_s)
            if kind == "pod":
                extra |= {POD_NAME_KEY: (named["name"],), POD_UID_KEY: (named["uid"],)}
            elif kind == "node":
                extra |= {NODE_NAME_KEY: (named["name"],), NODE_UID_KEY: (named["uid"],)}
        node = extra.get(NODE_NAME_KEY, ("",))[0]
        return _identity(namespace, account["name"], account["uid"], extra, node), meant

    def _legacy_identity(
        self, bearer: str, claims: Document, find: Find, wanted: Sequence[str]
    ) -> tuple[Identity, tuple[str, ...]]:
        namespace, secret_name = claims[f"{_LEGACY}namespace"], claims[f"{_LEGACY}secret.name"]
        name, uid = claims[f"{_LEGACY}service-account.name"], claims[f"{_LEGACY}service-account.uid"]
        meant = tuple(each for each in wanted if each in self.audiences)
        if not meant:
            raise Rejected("token audiences are invalid for the target audiences")
        secret = find("secrets", namespace, secret_name)
        if secret is None or secret["metadata"].get("deletionTimestamp"):
            raise Rejected("service account token has been invalidated")
        if base64.b64decode((secret.get("data") or {}).get("token") or "") != bearer.encode():
            raise Rejected("service account token does not match server's copy")
        account = find("serviceaccounts", namespace, name)
        if account is None or account["metadata"].get("deletionTimestamp"):
            raise Rejected(f"service account {namespace}/{name} has been deleted")
        if account["metadata"]["uid"] != uid:
            raise Rejected(f"service account UID ({account['metadata']['uid']}) does not match claim ({uid})")
        return _identity(namespace, name, uid, {}, ""), meant


def _reference(document: Document) -> Document:
    return {"name": document["metadata"]["name"], "uid": document["metadata"]["uid"]}


def _identity(namespace: str, name: str, uid: str, extra: dict[str, tuple[str, ...]], node: str) -> Identity:
    user = f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"
    return Identity(user, account_groups(namespace), node, uid, tuple(sorted(extra.items())))


def _is_over(document: Document, now_s: float) -> bool:
    deleted: Any = document["metadata"].get("deletionTimestamp")
    return bool(deleted) and parse_time(deleted) < now_s - LEEWAY_S


def _check_account(find: Find, namespace: str, name: str, uid: str, now_s: float) -> None:
    account = find("serviceaccounts", namespace, name)
    if account is None:
        raise Rejected(f'serviceaccounts "{name}" not found')
    if _is_over(account, now_s):
        raise Rejected(f"service account {namespace}/{name} has been deleted")
    if account["metadata"]["uid"] != uid:
        raise Rejected(f"service account UID ({account['metadata']['uid']}) does not match claim ({uid})")


def _check_bound(kind: str, found: Document | None, named: Document, now_s: float) -> None:
    if found is None or _is_over(found, now_s):
        raise Rejected("service account token has been invalidated")
    if (uid := found["metadata"]["uid"]) != named["uid"]:
        said = {"pod": "pod UID", "secret": "secret UID", "node": "node UID"}[kind]
        raise Rejected(f"{said} ({uid}) does not match service account {kind} ref claim ({named['uid']})")
