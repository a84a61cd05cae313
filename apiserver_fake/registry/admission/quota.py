"""Resource quota: a created or resized object is charged to its namespace's quotas in the same commit, or
refused.

A quota is enforced once its status says what is enforced and used: the quota controller writes that first, and
recounts whenever less may be in use. Because the charge and the object are one group of changes, two creations
never take the same capacity. Source: kep-1287-in-place-resize 3.2; decision 0014; upstream
`plugin/pkg/admission/resourcequota` (v1.36).
"""

import msgspec

from apiserver_fake.registry.errors import forbidden
from apiserver_fake.registry.strategy import WriteContext
from services.api import quotas
from services.api.errors import Forbidden
from services.api.kinds.deviceclass import CLASSES, DeviceClass
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.kinds.resourcequota import ResourceQuota
from services.api.meta import Document, Resource, View
from services.api.podresources import Amounts
from services.api.quotas import Backing

CHARGED_ON_UPDATE = frozenset((quotas.CLAIMS, quotas.SERVICES))
"""Kinds whose usage may grow on a plain update; that of pods only grows on `resize`."""
_FREE = frozenset(("events",))


def charges(resource: Resource, old: Document | None, new: Document, ctx: WriteContext) -> list[Document]:
    """Return the namespace's quotas with the additional use of `new` over `old`, to be stored in the same
    commit.

    Raises: Forbidden when a quota would be exceeded, needs a value that is not specified, or was not counted yet.
    """
    if not resource.namespaced or resource.name in _FREE:
        return []
    charged_quotas: list[Document] = []
    view: View | None = None
    backing = _backing(resource, ctx)
    for document in ctx.list(quotas.RESOURCE, ctx.request.namespace):
        quota = msgspec.convert(document, ResourceQuota)
        names = [name for name in quota.status.hard if _concerns(name, resource, backing)]
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
        more = _more(_usage(resource, before, backing, ctx), _usage(resource, view, backing, ctx), names)
        if more:
            charged_quotas.append(_charge(document, quota, more, resource, new))
    return charged_quotas


def _require(quota: ResourceQuota, names: list[str], view: View, resource: Resource, new: Document) -> None:
    name = quota.metadata.name
    if isinstance(view, Pod) and (unsaid := quotas.unsaid(view, names)):
        raise _forbidden(resource, new, f"failed quota: {name}: must specify {unsaid}")
    if any(each not in quota.status.used for each in names):
        why = f"status unknown for quota: {name}, resources: {','.join(sorted(names))}"
        raise _forbidden(resource, new, why)


def _backing(resource: Resource, ctx: WriteContext) -> Backing:
    """Return which extended resources claims use up; asked only when a claim is written."""
    if resource.name != quotas.DEVICE_CLAIMS or not ctx.switches.dra_extended_resource:
        return Backing()
    return Backing.by(msgspec.convert(each, DeviceClass) for each in ctx.list(CLASSES, ""))


def _concerns(name: str, resource: Resource, backing: Backing) -> bool:
    if name.startswith(quotas.DEVICES_BY_CLASS):
        return resource.name == quotas.DEVICE_CLAIMS and backing.counts(name)
    if quotas.resource_of(name) == resource.name:
        return True
    return resource.name == quotas.DEVICE_CLAIMS and backing.counts(name)


def _usage(resource: Resource, view: View | None, backing: Backing, ctx: WriteContext) -> Amounts:
    if view is None:
        return {}
    used = quotas.usage_of(resource.name, view, ctx.wall_s)
    if not isinstance(view, ResourceClaim) or not ctx.switches.dra_extended_resource:
        return used
    charged: Amounts = {}
    if name := quotas.pod_of(view):
        namespace = ctx.request.namespace
        document = ctx.lookup(quotas.PODS, namespace, name)
        pod = None if document is None else msgspec.convert(document, Pod)
        claims = [msgspec.convert(each, ResourceClaim) for each in ctx.list(quotas.DEVICE_CLAIMS, namespace)]
        charged = quotas.charged_pod_usage(view, pod, claims, ctx.wall_s)
    return used | backing.usage(view, charged)


def _more(was: Amounts, now: Amounts, names: list[str]) -> Amounts:
    """Return what is newly used of what the quota limits."""
    more = {name: now.get(name, 0) - was.get(name, 0) for name in names}
    return {name: value for name, value in more.items() if value > 0}


def _charge(document: Document, quota: ResourceQuota, more: Amounts, resource: Resource, new: Document) -> Document:
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
