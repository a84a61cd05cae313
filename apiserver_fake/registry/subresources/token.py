"""`serviceaccounts/token`: a token of that account, bound to a pod, a secret or a node if the request says so
(KEP-1205, KEP-4193). Source: upstream `pkg/registry/core/serviceaccount/storage/token.go`.
"""

from apiserver_fake.accounts.tokens import Bound
from apiserver_fake.errors import RECREATED_TEXT, no_such_path
from apiserver_fake.strategy import Subresource, SubresourceResult, WriteContext
from apiserver_fake.validation.formats import Cause
from apiserver_fake.validation.formats import invalid as invalid_value
from services.api.errors import BadRequest, Conflict, NotFound, invalid
from services.api.meta import Document
from services.api.times import format_time

HOUR_S, SHORTEST_S, LONGEST_S = 3600, 600, 1 << 32


def _issue(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    tokens = ctx.accounts.tokens
    if tokens is None:
        raise no_such_path()
    spec = body.get("spec") or {}
    lives_s = HOUR_S if (asked := spec.get("expirationSeconds")) is None else asked
    _check(lives_s)
    audiences = spec.get("audiences") or list(tokens.audiences)
    bound = _bound(stored["metadata"]["name"], spec.get("boundObjectRef") or {}, ctx)
    bits = ctx.random.getrandbits(128) & ~(0xF << 76) | (4 << 76)
    text = f"{bits & ~(0x3 << 62) | (0x2 << 62):032x}"
    token_id = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    token = tokens.issue(stored, audiences, lives_s, bound, token_id=token_id, now_s=ctx.wall_s)
    answer = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": stored["metadata"]["name"],
            "namespace": stored["metadata"]["namespace"],
            "creationTimestamp": format_time(ctx.wall_s),
        },
        "spec": {"audiences": audiences, "expirationSeconds": lives_s, "boundObjectRef": spec.get("boundObjectRef")},
        "status": {"token": token, "expirationTimestamp": format_time(int(ctx.wall_s) + lives_s)},
    }
    return SubresourceResult(response=answer, code=201)


def _check(lives_s: object) -> None:
    at, causes = "spec.expirationSeconds", list[Cause]()
    if not isinstance(lives_s, int) or isinstance(lives_s, bool):
        raise BadRequest(f"{at}: {lives_s!r} is not an integer")
    if lives_s < SHORTEST_S:
        causes.append(invalid_value(at, lives_s, "may not specify a duration less than 10 minutes"))
    if lives_s > LONGEST_S:
        causes.append(invalid_value(at, lives_s, "may not specify a duration larger than 2^32 seconds"))
    if causes:
        raise invalid("TokenRequest.authentication.k8s.io", "", causes)


def _bound(account: str, ref: Document, ctx: WriteContext) -> Bound | None:
    """Return what the token is bound to. Raises: NotFound, BadRequest, Conflict."""
    if not ref:
        return None
    kind, version, name = str(ref.get("kind") or ""), str(ref.get("apiVersion") or ""), str(ref.get("name") or "")
    resource = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(kind, "") if version == "v1" else ""
    if not resource:
        group, _, version = version.rpartition("/")
        raise BadRequest(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    found = ctx.lookup(resource, "" if resource == "nodes" else ctx.request.namespace, name)
    if found is None:
        raise NotFound(f'{resource} "{name}" not found', details={"name": name, "kind": resource})
    node = None
    if kind == "Pod":
        spec = found.get("spec") or {}
        if (runs_as := spec.get("serviceAccountName") or "") != account:
            text = f'cannot bind token for serviceaccount "{account}" to pod running with serviceaccount "{runs_as}"'
            raise BadRequest(text)
        node = ctx.lookup("nodes", "", spec["nodeName"]) if spec.get("nodeName") else None
    uid = str(ref.get("uid") or "")
    if uid and uid != found["metadata"]["uid"]:
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record "
            f"({found['metadata']['uid']}). {RECREATED_TEXT}"
        )
        text = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
        raise Conflict(text, details={"name": name, "kind": kind})
    return Bound(kind.lower(), found, node)


SUBRESOURCES = (Subresource("serviceaccounts", "token", ("create",), _issue),)
