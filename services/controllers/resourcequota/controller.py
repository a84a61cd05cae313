"""Report the usage of each quota, and the enforced limits; admission charges against these numbers.

Admission adds; this controller recounts when usage may have dropped: an object was deleted, a pod ended, its
node allocated a smaller size, or the quota changed. It reads live and writes on the resource version of the
quota from before. A charge in between changes the quota, so the write is refused and the count starts over. No
charge is lost. Kinds that the process does not read, above all Secrets, are followed with this controller's
rights once a quota counts them.
Source: upstream `pkg/controller/resourcequota` (which counts its caches, and may lose one); KEP-1287 "Notes".
"""

from collections.abc import Iterable
from functools import partial

from services.api import quotas
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.kinds.deviceclass import CLASSES, DeviceClass
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.kinds.resourcequota import ResourceQuota
from services.api.meta import AnyObject, Document, Key, Resource, View
from services.api.podresources import Amounts
from services.api.resources import Kinds
from services.api.switches import Switches
from services.controllers.shared_switches import QuotaSwitches
from services.reconcile import writes
from services.reconcile.actions import Patch, Query, Result
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch, is_cached
from services.reconcile.interest import Interest

RESYNC_S = 300.0
"""Interval in seconds between full recounts (upstream `--resource-quota-sync-period`)."""
_MEASURED = (quotas.PODS, quotas.CLAIMS, quotas.DEVICE_CLAIMS, quotas.SERVICES)
"""Kinds with usage beyond their number; other kinds are counted by their metadata."""
_OF_USAGE = Interest(updates_of=(quotas.CLAIMS, quotas.DEVICE_CLAIMS, quotas.SERVICES, DEFINITIONS))
"""Of all kinds; pods have a watch of their own, and of kinds that are not measured an update changes no number."""
EVENTS = "events"
"""Kind that is never counted: too many to follow, and upstream does not count it (`pkg/quota/v1/install`)."""


def quota_changed(change: Change[ResourceQuota], listers: Listers) -> Iterable[Key]:
    """Return the quota when its status does not match its spec; a charge alone is no reason."""
    new = change.new
    if new is None or (new.spec.hard == new.status.hard and _is_reported(new, listers)):
        return ()
    return (new.metadata.key,)


def _is_reported(quota: ResourceQuota, listers: Listers) -> bool:
    """Whether the status says how much is used of everything that is asked for and can be counted."""
    unreported = [name for name in quota.spec.hard if name not in quota.status.used]
    return all(listers.kinds.get(quotas.resource_of(name)) is None for name in unreported)


def pod_changed(change: Change[Pod], listers: Listers) -> Iterable[Key]:
    """Return the quotas that count pods when this pod may use less than before."""
    old, new = change.old, change.new
    if old is None:
        return ()
    affected = _counting(quotas.PODS, old.metadata.namespace, listers)
    if not affected or new is None or _uses_otherwise(old, new):
        return affected
    return ()


def _uses_otherwise(old: Pod, new: Pod) -> bool:
    if old.is_terminal != new.is_terminal or old.metadata.deletion_timestamp != new.metadata.deletion_timestamp:
        return True
    # No time passes between the two: only sizes and scopes count.
    return quotas.usage_of(quotas.PODS, old, 0.0) != quotas.usage_of(quotas.PODS, new, 0.0) or (
        old.spec.active_deadline_seconds != new.spec.active_deadline_seconds
    )


def object_changed(change: Change[AnyObject], listers: Listers) -> Iterable[Key]:
    """Return the quotas that count a deleted object, or a changed one with usage beyond its number.

    For a newly defined kind: the quotas that name it.
    """
    seen = change.object
    resource = listers.kinds.of_kind(seen.api_version, seen.kind)
    if resource is not None and resource.name == DEFINITIONS:
        return [each.metadata.key for each in listers.of(ResourceQuota).all() if not _is_reported(each, listers)]
    if change.old is None or resource is None or resource.name == quotas.PODS:
        return ()
    if change.new is not None and resource.name not in _MEASURED:
        return ()
    return _counting(resource.name, seen.metadata.namespace, listers)


def _counting(resource: str, namespace: str, listers: Listers) -> list[Key]:
    return [
        quota.metadata.key
        for quota in listers.of(ResourceQuota).all(namespace)
        if namespace and any(_counts(name, resource) for name in quota.spec.hard)
    ]


def _counts(name: str, resource: str) -> bool:
    if resource == quotas.DEVICE_CLAIMS and quotas.is_extended_request(name):
        return True
    return quotas.resource_of(name) == resource


def reconcile(key: Key, listers: Listers, moment: Moment, *, is_backed: bool = True) -> Result:
    """Update the status of one quota, or of all. `is_backed`: claims also consume extended resources."""
    known = listers.of(ResourceQuota)
    wanted = [found for found in [known.get(key)] if found is not None] if key.name else known.all()
    missing = dict.fromkeys(
        query
        for quota in wanted
        for query in _queries(quota, is_backed, listers.kinds).values()
        if query not in moment.listed
    )
    if missing:
        return Result(refresh=tuple(missing))
    queries = [_queries(quota, is_backed, listers.kinds) for quota in wanted]
    statuses = (_status(quota, moment, read) for quota, read in zip(wanted, queries, strict=True))
    counted = dict.fromkeys(name for read in queries for name in read)
    follow = tuple(name for name in counted if name != EVENTS and not is_cached(listers, name))
    return Result(tuple(patch for patch in statuses if patch is not None), follow=follow)


def _queries(quota: ResourceQuota, is_backed: bool, kinds: Kinds) -> dict[str, Query]:
    """Return the live reads that this quota is counted from, by resource."""
    names = dict.fromkeys(quotas.resource_of(name) for name in sorted(quota.spec.hard))
    if is_backed and _has_extended(quota):
        names |= dict.fromkeys((quotas.PODS, quotas.DEVICE_CLAIMS))
    counted = [each for each in map(kinds.get, names) if each is not None and each.namespaced]
    queries = {each.name: Query(_view(each), Key(quota.metadata.namespace, ""), each.name) for each in counted}
    if is_backed and _has_extended(quota):
        queries[CLASSES] = Query(DeviceClass, Key("", ""), CLASSES)
    return queries


def _has_extended(quota: ResourceQuota) -> bool:
    return any(name.startswith(quotas.DEVICES_BY_CLASS) or quotas.is_extended_request(name) for name in quota.spec.hard)


def _add_backed(used: Amounts, quota: ResourceQuota, queries: dict[str, Query], moment: Moment) -> None:
    """Add what claims use of extended resources that their classes back."""
    listed = {name: moment.listed[query] for name, query in queries.items()}
    backing = quotas.Backing.by(each for each in listed[CLASSES] if isinstance(each, DeviceClass))
    pods = {each.metadata.name: each for each in listed[quotas.PODS] if isinstance(each, Pod)}
    claims = [each for each in listed[quotas.DEVICE_CLAIMS] if isinstance(each, ResourceClaim)]
    names = [name for name in used if backing.counts(name)]
    for claim in claims if names and quotas.is_in_scope(quota, DeviceClass()) else ():
        pod = pods.get(quotas.pod_of(claim))
        amounts = backing.usage(claim, quotas.charged_pod_usage(claim, pod, claims, moment.wall_s))
        for name in names:
            used[name] += amounts.get(name, 0)


def _view(resource: Resource) -> type[View]:
    return resource.view if resource.name in _MEASURED else AnyObject


def _status(quota: ResourceQuota, moment: Moment, queries: dict[str, Query]) -> Patch | None:
    """Return the patch that reports what is enforced and used, None when the status says so already."""
    used: Amounts = {}
    for resource, query in queries.items():
        names = [name for name in quota.spec.hard if quotas.resource_of(name) == resource]
        used.update(dict.fromkeys(names, 0))
        for view in moment.listed[query]:
            if quotas.is_in_scope(quota, view):
                amounts = quotas.usage_of(resource, view, moment.wall_s)
                for name in names:
                    used[name] += amounts.get(name, 0)
    if CLASSES in queries:
        _add_backed(used, quota, queries, moment)
    status = quota.status
    before = {name: quotas.amount_of(name, text) for name, text in status.used.items()}
    if before == used and status.hard == quota.spec.hard:
        return None
    document: Document = {
        "hard": {**dict.fromkeys(name for name in status.hard if name not in quota.spec.hard), **quota.spec.hard},
        "used": {
            **dict.fromkeys(name for name in status.used if name not in used),
            **{name: quotas.text_of(name, used[name]) for name in sorted(used)},
        },
    }
    return writes.status(quotas.RESOURCE, quota, document, on_version=True)


def _build(switches: Switches) -> Controller:
    watches = (
        Watch(ResourceQuota, quota_changed),
        Watch(Pod, pod_changed),
        Watch(AnyObject, object_changed, _OF_USAGE),
    )
    counting = partial(reconcile, is_backed=switches.of(QuotaSwitches).has_extended_resources)
    return Controller("resourcequota", None, counting, watches=watches, period_s=RESYNC_S)


CONTROLLER = Registration("resourcequota", _build, start_order=15)
