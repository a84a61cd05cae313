"""`serviceaccounts/token`: issues a token of the account, bound to a pod, a secret or a node if the request
says so (KEP-1205, KEP-4193). Source: upstream `pkg/registry/core/serviceaccount/storage/token.go`.
"""

from apiserver_fake.registry.accounts import BoundObject
from apiserver_fake.registry.errors import RECREATED_TEXT, no_such_path
from apiserver_fake.registry.policy import Attributes
from apiserver_fake.registry.strategy import Subresource, SubresourceResult, WriteContext
from apiserver_fake.registry.validation.formats import Cause, value_text
from apiserver_fake.registry.validation.formats import invalid as invalid_value
from services.api.errors import BadRequest, Conflict, Forbidden, NotFound, invalid
from services.api.meta import Document
from services.api.times import format_time

HOUR_S, SHORTEST_S, LONGEST_S = 3600, 600, 1 << 32


def _check_issuer(stored: Document | None, body: object, ctx: WriteContext) -> None:
    """Raise NotFound where no tokens are issued, whether or not there is the account."""
    if ctx.accounts.tokens is None:
        raise no_such_path()


def _issue(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    tokens = ctx.accounts.tokens
    assert tokens is not None
    spec = body.get("spec") or {}
    lives_s = HOUR_S if (asked := spec.get("expirationSeconds")) is None else asked
    _check(lives_s)
    audiences = spec.get("audiences") or list(tokens.audiences)
    if ctx.identity.node:
        _check_node(stored["metadata"]["name"], spec, ctx)
    bound = _bound_object(stored["metadata"]["name"], spec.get("boundObjectRef") or {}, ctx)
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


def _check_node(account: str, spec: Document, ctx: WriteContext) -> None:
    """Check what a node asks for: a token bound to a pod of its own, for an audience of that pod's volumes (X-TOK3).

    Source: upstream `plugin/pkg/admission/noderestriction/admission.go`. Raises: Forbidden, NotFound.
    """
    ref = spec.get("boundObjectRef") or {}
    name, uid = str(ref.get("name") or ""), str(ref.get("uid") or "")
    pod = ctx.lookup("pods", ctx.request.namespace, name) if name else None
    if (ref.get("apiVersion"), ref.get("kind")) != ("v1", "Pod") or not name:
        why = "node requested token not bound to a pod"
    elif not uid:
        why = "node requested token with a pod binding without a uid"
    elif pod is None:
        raise NotFound(f'pods "{name}" not found', details={"name": name, "kind": "pods"})
    elif uid != pod["metadata"]["uid"]:
        why = f"the UID in the bound object reference ({uid}) does not match the UID in record. {RECREATED_TEXT}"
    elif (pod.get("spec") or {}).get("nodeName") != ctx.identity.node:
        why = "node requested token bound to a pod scheduled on a different node"
    else:
        why = _audience_fault(account, pod, list(spec.get("audiences") or ()), ctx)
    if why:
        raise Forbidden(f'serviceaccounts "{account}" is forbidden: {why}')


def _audience_fault(account: str, pod: Document, audiences: list[str], ctx: WriteContext) -> str:
    """Return why a node may not ask for these audiences; "" when it may (ServiceAccountNodeAudienceRestriction)."""
    if len(audiences) > 1:
        return "node may only request 0 or 1 audiences"
    asked = audiences[0] if audiences else ""
    if asked in _audiences_of(pod, ctx):
        return ""
    right = Attributes("request-serviceaccounts-token-audience", "", asked, "", account, ctx.request.namespace)
    if ctx.policy is not None and ctx.policy.decide(ctx.identity, right).allowed:
        return ""
    user = ctx.identity.user
    return (
        f'audience "{asked}" not found in pod spec volume, {user} is not authorized to request tokens for this audience'
    )


def _audiences_of(pod: Document, ctx: WriteContext) -> set[str]:
    """Return the audiences that the pod's volumes name, and those its storage drivers ask for; "" is the server's."""
    audiences, drivers, namespace = set[str](), list[str](), ctx.request.namespace
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                audiences.add(str(source["serviceAccountToken"].get("audience") or ""))
        claim = str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "")
        if volume.get("ephemeral"):
            claim = f"{pod['metadata']['name']}-{volume['name']}"
        if claim:
            stored = ctx.lookup("persistentvolumeclaims", namespace, claim) or {}
            bound = ctx.lookup("persistentvolumes", "", str((stored.get("spec") or {}).get("volumeName") or "")) or {}
            drivers.append(str(((bound.get("spec") or {}).get("csi") or {}).get("driver") or ""))
        drivers.append(str((volume.get("csi") or {}).get("driver") or ""))
    for name in filter(None, drivers):
        driver = ctx.lookup("csidrivers.storage.k8s.io", "", name) or {}
        audiences |= {str(each.get("audience") or "") for each in (driver.get("spec") or {}).get("tokenRequests") or ()}
    return audiences


def _check(lives_s: object) -> None:
    at, causes = "spec.expirationSeconds", list[Cause]()
    if not isinstance(lives_s, int) or isinstance(lives_s, bool):
        raise BadRequest(f"{at}: {value_text(lives_s)} is not an integer")
    if lives_s < SHORTEST_S:
        causes.append(invalid_value(at, lives_s, "may not specify a duration less than 10 minutes"))
    if lives_s > LONGEST_S:
        causes.append(invalid_value(at, lives_s, "may not specify a duration larger than 2^32 seconds"))
    if causes:
        raise invalid("TokenRequest.authentication.k8s.io", "", causes)


def _bound_object(account: str, ref: Document, ctx: WriteContext) -> BoundObject | None:
    """Return what the token is bound to. Raises: NotFound, BadRequest, Conflict."""
    if not ref:
        return None
    kind, version, name = str(ref.get("kind") or ""), str(ref.get("apiVersion") or ""), str(ref.get("name") or "")
    resource = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(kind, "") if version == "v1" else ""
    if not resource:
        group, _, version = version.rpartition("/")
        raise BadRequest(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    target = ctx.lookup(resource, "" if resource == "nodes" else ctx.request.namespace, name)
    if target is None:
        raise NotFound(f'{resource} "{name}" not found', details={"name": name, "kind": resource})
    node = None
    if kind == "Pod":
        spec = target.get("spec") or {}
        if (runs_as := spec.get("serviceAccountName") or "") != account:
            text = f'cannot bind token for serviceaccount "{account}" to pod running with serviceaccount "{runs_as}"'
            raise BadRequest(text)
        node = ctx.lookup("nodes", "", spec["nodeName"]) if spec.get("nodeName") else None
    uid = str(ref.get("uid") or "")
    if uid and uid != target["metadata"]["uid"]:
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record "
            f"({target['metadata']['uid']}). {RECREATED_TEXT}"
        )
        text = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
        raise Conflict(text, details={"name": name, "kind": kind})
    return BoundObject(kind.lower(), target, node)


SUBRESOURCES = (
    Subresource(
        "serviceaccounts",
        "token",
        ("create",),
        _issue,
        body=("authentication.k8s.io/v1", "TokenRequest"),
        check_first=_check_issuer,
    ),
)
