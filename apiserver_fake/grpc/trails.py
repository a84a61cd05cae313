"""Audit trails of gRPC calls. A call is recorded under its REST path."""

from apiserver_fake.extensions.audit.auditor import Auditor, Trail
from apiserver_fake.extensions.audit.event import Source
from apiserver_fake.registry.authorization.authorizer import attributes_of
from apiserver_fake.registry.authorization.callers import Callers
from apiserver_fake.registry.catalogue import Catalogue
from services.api.identity import Identity
from services.api.wire import Request


def begin_trail(
    audit: Auditor,
    callers: Callers,
    catalogue: Catalogue,
    identity: Identity,
    request: Request,
    ips: tuple[str, ...],
    user_agent: str,
) -> Trail | None:
    """Begin the audit trail of a call and record the authorization decision; None if the policy records no such call.

    `ips`: addresses of the caller, the nearest last.
    """
    resource = catalogue.resources.get(request.resource)
    version = resource.version if resource is not None else ""
    source = Source(uri_of(request, catalogue), ips, user_agent)
    trail = audit.begin(identity, attributes_of(request), source, version=version)
    if trail is not None:
        trail.on_decision(*callers.decision(identity, request))
        trail.on_request_body(request.body, is_patch=request.verb == "patch")
    return trail


def uri_of(request: Request, catalogue: Catalogue) -> str:
    """Return the REST path that corresponds to a gRPC call."""
    resource = catalogue.resources.get(request.resource)
    version = resource.version if resource is not None else "v1"
    plural, _, group = request.resource.partition(".")
    parts = ["apis", group, version] if group else ["api", version]
    if request.namespace and plural != "namespaces":
        parts += ["namespaces", request.namespace]
    parts += [each for each in (plural, request.name, request.subresource) if each]
    return "/" + "/".join(parts) + ("?watch=true" if request.verb == "watch" else "")
