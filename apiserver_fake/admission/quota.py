"""What is created or resized is charged to the quotas of its namespace, in the same commit, or refused.

A quota binds from the moment its status says what is enforced and used: the quota controller writes that first, and
counts anew whenever less may be in use. Because the charge and the object are one group of changes, two creations
never take the same capacity. Source: kep-1287-in-place-resize 3.2; decision 0014; upstream
`plugin/pkg/admission/resourcequota` (v1.36).
"""

import msgspec

from apiserver_fake.errors import forbidden
from apiserver_fake.strategy import WriteContext
from services.api import quotas
from services.api.errors import Forbidden
from services.api.kinds.pod import Pod
from services.api.kinds.resourcequota import ResourceQuota
from services.api.meta import Document, Resource, View
from services.api.podresources import Amounts

CHARGED_ON_UPDATE = frozenset((quotas.CLAIMS, quotas.SERVICES))
"""Kinds that may use more after a plain update; pods do by `resize` alone."""
_FREE = frozenset(("events",))


def charges(resource: Resource, old: Document | None, new: Document, ctx: WriteContext) -> list[Document]:
    """Return the namespace's quotas with the use of `new` (beyond that of `old`) added: to be stored with it.

    Raises: Forbidden when one of them would be exceeded, misses what it must know, or was not counted yet.
    """
    if not resource.namespaced or resource.name in _FREE:
        return []
    found: list[Document] = []
    view: View | None = None
    for document in ctx.list(quotas.RESOURCE, ctx.request.namespace):
        quota = msgspec.convert(document, ResourceQuota)
        names = [name for name in quota.status.hard if quotas.resource_of(name) == resource.name]
        if not names:
            continue
        if view is None:
            view = msgspec.convert(new, resource.view)
        if not quotas.is_in_scope(quota, view):
            continue
        _require(quota, names, view, resource, new)
        before = None if old is None else msgspec.convert(old, resource.view)
        if before is not None and not quotas.is_in_scope(quota, before):
            before = None
        more = _more(resource, before, view, names, ctx.wall_s)
        if more:
            found.append(_charged(document, quota, more, resource, new))
    return found


def _require(quota: ResourceQuota, names: list[str], view: View, resource: Resource, new: Document) -> None:
    name = quota.metadata.name
    if isinstance(view, Pod) and (unsaid := quotas.unsaid(view, names)):
        raise _forbidden(resource, new, f"failed quota: {name}: must specify {unsaid}")
    if any(each not in quota.status.used for each in names):
        why = f"status unknown for quota: {name}, resources: {','.join(sorted(names))}"
        raise _forbidden(resource, new, why)


def _more(resource: Resource, before: View | None, view: View, names: list[str], wall_s: float) -> Amounts:
    """Return what is newly used of what the quota limits."""
    was = {} if before is None else quotas.usage_of(resource.name, before, wall_s)
    now = quotas.usage_of(resource.name, view, wall_s)
    more = {name: now.get(name, 0) - was.get(name, 0) for name in names}
    return {name: value for name, value in more.items() if value > 0}


def _charged(document: Document, quota: ResourceQuota, more: Amounts, resource: Resource, new: Document) -> Document:
    hard = {name: quotas.amount_of(name, quota.status.hard[name]) for name in more}
    used = {name: quotas.amount_of(name, quota.status.used[name]) for name in more}
    over = sorted(name for name, value in more.items() if used[name] + value > hard[name])
    if over:
        shown = [
            ",".join(f"{name}={quotas.text_of(name, values[name])}" for name in over) for values in (more, used, hard)
        ]
        text = "exceeded quota: {}, requested: {}, used: {}, limited: {}".format(quota.metadata.name, *shown)
        raise _forbidden(resource, new, text)
    total = {name: quotas.text_of(name, used[name] + value) for name, value in more.items()}
    status = document["status"]
    return {**document, "metadata": {**document["metadata"]}, "status": {**status, "used": {**status["used"], **total}}}


def _forbidden(resource: Resource, new: Document, why: str) -> Forbidden:
    return forbidden(resource.name, new["metadata"].get("name") or "", why)
