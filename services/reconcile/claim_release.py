"""Release of a workload's claims: the controller removes its reference when no pod uses them and none will
come.

`releasing` wraps a controller's reconcile, so that one place decides, in sequence, on creating pods and on
releasing claims. The claim's version guards the write that removes a reference. It is sent only when the
controller awaits none of its own creations, no pod entry is left, and a live list shows no unfinished pod, of
any owner, that names the claim, except pods of another listed consumer. With `owner_deletion=finalizer` the
workload stays until then, and its controller deletes its pods, which the garbage collector would do only after
the workload is gone. Out-of-tree controllers use the same module.
Source: kep-5194 5.2, 5.3, 6 and 9; controllers 1.5 and 1.6.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import CLAIMS, ResourceClaim, ResourceClaimConsumerReference
from services.api.meta import Document, Key, ObjectMeta, View
from services.api.resources import resource_of_view
from services.api.switches import Switches, switch
from services.dra.consumers import without_entry
from services.reconcile import writes
from services.reconcile.actions import Action, Batch, Delete, Described, Patch, Query, Result, earliest, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Watch, refusal_message

RELEASE_FINALIZER: Final = "resource.emulation/claim-release"
RELEASED, BLOCKED = "ClaimReleased", "ClaimReleaseBlocked"
AGAIN_S: Final = 10.0
"""Seconds between attempts of a release that was refused for good: rights may come."""
_BY_COLLECTOR: Final = ("foregroundDeletion", "orphan")
"""Finalizers with which the garbage collector handles the dependents before the owner is deleted."""


@dataclass(frozen=True)
class ReleaseSwitches:
    """Switches of the release of workloads' claims: by whom, and when."""

    mode: str = switch("reserved_for.mode")
    design: str = switch("release.design")
    owner_deletion: str = switch("owner_deletion")
    on_scale_to_zero: bool = switch("release.on_scale_to_zero")
    on_suspend: bool = switch("release.on_suspend")
    clear_allocation_by: str = switch("release.clear_allocation_by")
    owner_types: str = switch("release.owner_types")

    def is_owners_duty(self, resource: str) -> bool:
        """Whether controllers of that resource, by wire name, release claims."""
        is_chosen = self.owner_types == "*" or resource in self.owner_types.split("+")
        return self.mode == "kep5194" and self.design == "owner" and is_chosen


def _always(key: Key, now_s: float) -> bool:
    return True


@dataclass(frozen=True)
class Releases:
    """Facts about one kind of workload that the release needs.

    `is_done`: no more pods will come, although the workload is not being deleted. `is_settled`: no requested pods
    of its controller are still awaited. `dependents`: the kind it creates, to be deleted with it.
    """

    view: type[View]
    is_done: Callable[[Any, Listers], bool]
    is_settled: Callable[[Key, float], bool] = _always
    dependents: type[View] = Pod


def releasing(controller: Controller, switches: Switches, releases: Releases) -> Controller:
    """Return the controller with release of claims; the same controller if releasing is not its duty."""
    own = switches.of(ReleaseSwitches)
    if not own.is_owners_duty(resource_of_view(releases.view).name):
        return controller
    memory = ClaimReleaser(releases, own, controller)
    watches = (*controller.watches, Watch(ResourceClaim, memory.claim_changed), Watch(Pod, memory.pod_changed))
    return replace(controller, reconcile=memory.reconcile, watches=watches, failed=memory.on_failed)


@dataclass
class ClaimReleaser:
    """One controller's memory of claims that name its workloads, and of pods that use them.

    `_claims`: claims that are for a workload or reserved for it, by the workload's uid. `_users`: unfinished pods
    by claim. `_blocked`: why a release had to wait, by workload and claim, so that each reason is one event;
    `_refused`: why the server refused one, until it is reported by an event.
    """

    releases: Releases
    switches: ReleaseSwitches
    inner: Controller
    _claims: dict[str, dict[Key, None]] = field(default_factory=dict)
    _users: dict[Key, dict[Key, None]] = field(default_factory=dict)
    _blocked: dict[tuple[Key, str], str] = field(default_factory=dict)
    _refused: dict[Key, str] = field(default_factory=dict)
    _parents: dict[Key, set[str]] = field(default_factory=dict)
    """Controller uids of the workload's pods: its own uid, and for a Deployment those of its ReplicaSets."""

    def claim_changed(self, change: Change[ResourceClaim], listers: Listers) -> list[Key]:
        """Track the claims; return the workloads that a claim is for or was reserved for."""
        keys: dict[Key, None] = {}
        if change.old is not None:
            for reference in self._references(change.old):
                keys[Key(change.old.metadata.namespace, reference.name)] = None
                self._claims.get(reference.uid, {}).pop(change.old.metadata.key, None)
        if change.new is not None:
            for reference in self._references(change.new):
                keys[Key(change.new.metadata.namespace, reference.name)] = None
                self._claims.setdefault(reference.uid, {})[change.new.metadata.key] = None
        return list(keys)

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Track the pods that use claims; return the workloads whose claims lose their last user."""
        pod_key = change.object.metadata.key
        for key in _claims_in_use(change.old):
            self._users.get(key, {}).pop(pod_key, None)
        for key in _claims_in_use(change.new):
            self._users.setdefault(key, {})[pod_key] = None
        keys: dict[Key, None] = {}
        for key in _claims_in_use(change.old):
            if self._users.get(key):
                continue
            self._users.pop(key, None)
            if (claim := listers.of(ResourceClaim).get(key)) is not None:
                keys.update({Key(key.namespace, each.name): None for each in self._references(claim)})
        return list(keys)

    def on_failed(self, key: Key, action: Action, reason: str) -> None:
        """Keep the reason of a refused release for an event; pass all other failures on."""
        if isinstance(action, Patch) and action.resource == CLAIMS:
            if not reason.startswith(("not performed", "Conflict", "NotFound")):
                self._refused[key] = f"claim {action.key} cannot be released: {refusal_message(reason)}"
        elif self.inner.failed is not None:
            self.inner.failed(key, action, reason)

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Reconcile the workload, then release the claims that it no longer needs."""
        owner: Any = listers.of(self.releases.view).get(key)
        if owner is None:
            self._refused.pop(key, None)
            self._parents.pop(key, None)
            return self.inner.reconcile(key, listers, moment)
        queries = self._queries(owner, listers, moment)
        if any(query not in moment.listed for query in queries):
            return Result(refresh=queries)
        result = self.inner.reconcile(key, listers, moment)
        if result.refresh:
            return result
        actions = self._mark_for_release(owner)
        if (refusal := self._refused.pop(key, "")) and self._is_news(owner, "", refusal):
            actions.append(event(owner, BLOCKED, refusal, warns=True))
        again_s = result.requeue_after_s
        if queries and self.releases.is_settled(key, moment.now_s):
            own = self._parents.setdefault(key, {owner.metadata.uid})
            if self.releases.dependents is not Pod:
                dependents: list[Any] = listers.of(self.releases.dependents).owned_by(owner.metadata.uid)
                own |= {each.metadata.uid for each in dependents}
            freed = self._release(owner, moment)
            actions += freed
            again_s = earliest(again_s, AGAIN_S if freed else None)
        return Result((*result.actions, *actions), again_s)

    def _references(self, claim: ResourceClaim) -> Iterable[ResourceClaimConsumerReference]:
        """Yield the references of a claim to workloads of this kind."""
        resource = resource_of_view(self.releases.view)
        wanted = [claim.spec.reserved_for] if claim.spec.reserved_for is not None else []
        for each in (*wanted, *claim.status.reserved_for):
            if (each.api_group, each.resource) == (resource.group, resource.plural):
                yield each

    def _queries(self, owner: Any, listers: Listers, moment: Moment) -> tuple[Query, ...]:
        """Return the live reads without which nothing is released; none when it is not time to."""
        meta: ObjectMeta = owner.metadata
        held = self._claims.get(meta.uid, {})
        is_going = meta.deletion_timestamp is not None
        if is_going:
            is_due = bool(held) or RELEASE_FINALIZER in meta.finalizers
        else:
            entries = (listers.of(ResourceClaim).get(key) for key in held)
            is_held = any(c is not None and c.status.is_reserved_for(meta.uid) for c in entries)
            is_due = is_held and self.releases.is_done(owner, listers)
        if not is_due or not self.releases.is_settled(meta.key, moment.now_s):
            return ()
        views: list[type[View]] = [Pod, ResourceClaim]
        if is_going and self.releases.dependents is not Pod:
            views.append(self.releases.dependents)
        return tuple(Query(view, Key(meta.namespace, "")) for view in views)

    def _mark_for_release(self, owner: Any) -> list[Action | Batch]:
        """Return the write that keeps a workload until its claims are released, if it is due."""
        meta: ObjectMeta = owner.metadata
        is_wanted = self.switches.owner_deletion == "finalizer" and bool(self._claims.get(meta.uid))
        if not is_wanted or meta.deletion_timestamp is not None or RELEASE_FINALIZER in meta.finalizers:
            return []
        resource = resource_of_view(self.releases.view).name
        return [writes.finalizers(resource, owner, (*meta.finalizers, RELEASE_FINALIZER))]

    def _release(self, owner: Any, moment: Moment) -> list[Action | Batch]:
        meta: ObjectMeta = owner.metadata
        pods = [p for p in self._list_live(Pod, owner, moment) if isinstance(p, Pod) and not p.is_terminal]
        claims = [c for c in self._list_live(ResourceClaim, owner, moment) if isinstance(c, ResourceClaim)]
        mine = [c for c in claims if any(each.uid == meta.uid for each in self._references(c))]
        reserved = [c for c in mine if c.status.is_reserved_for(meta.uid)]
        users = {c.metadata.key: _left_to(meta.uid, c, pods) for c in mine}
        actions: list[Action | Batch] = []
        for claim in reserved:
            if using := users[claim.metadata.key]:
                actions += self._blocked_by(owner, claim, using)
            elif not any(each.is_pod for each in claim.status.reserved_for):
                self._blocked.pop((meta.key, claim.metadata.name), None)
                text = f"released claim {claim.metadata.key}"
                actions.append(Batch((self._give_back(claim, meta.uid), event(owner, RELEASED, text))))
        if meta.deletion_timestamp is None or RELEASE_FINALIZER not in meta.finalizers:
            return actions
        if not reserved and not any(users.values()):
            left = (each for each in meta.finalizers if each != RELEASE_FINALIZER)
            return [*actions, writes.finalizers(resource_of_view(type(owner)).name, owner, left)]
        return [*actions, *self._deletions(owner, moment)]

    def _give_back(self, claim: ResourceClaim, uid: str) -> Patch:
        left = [each for each in claim.status.reserved_for if each.uid != uid]
        change: Document = {"reservedFor": [msgspec.to_builtins(each) for each in left] or None}
        if not left and self.switches.clear_allocation_by == "owner":
            change |= {"allocation": None, "devices": None}
        return writes.status(CLAIMS, claim, change, on_version=True)

    def _blocked_by(self, owner: Any, claim: ResourceClaim, using: list[Pod]) -> list[Action | Batch]:
        """Return the event that names the first pod that the claim must wait for, unless all of them are on their way.

        The workload's own pods are leaving once it is being deleted, or has ended.
        """
        own = self._parents[owner.metadata.key]
        staying = [p for p in using if p.metadata.deletion_timestamp is None and not _is_of(p.metadata, own)]
        if not staying:
            return []
        more = f" and {len(staying) - 1} more" if len(staying) > 1 else ""
        text = f"claim {claim.metadata.key} is in use by pod {staying[0].metadata.key}{more}"
        is_news = self._is_news(owner, claim.metadata.name, text)
        return [event(owner, BLOCKED, text, warns=True)] if is_news else []

    def _is_news(self, owner: Any, claim: str, text: str) -> bool:
        key = (owner.metadata.key, claim)
        if self._blocked.get(key) == text:
            return False
        self._blocked[key] = text
        return True

    def _deletions(self, owner: Any, moment: Moment) -> list[Action | Batch]:
        """Return the deletions of the workload's own dependents, which the garbage collector leaves while it exists."""
        if any(each in owner.metadata.finalizers for each in _BY_COLLECTOR):
            return []
        resource = resource_of_view(self.releases.dependents).name
        listed: list[Any] = self._list_live(self.releases.dependents, owner, moment)
        own = (each.metadata for each in listed if _is_of(each.metadata, {owner.metadata.uid}))
        return [Delete(resource, m.key, uid=m.uid) for m in own if m.deletion_timestamp is None]

    @staticmethod
    def _list_live(view: type[View], owner: Described, moment: Moment) -> list[View]:
        return list(moment.listed[Query(view, Key(owner.metadata.namespace, ""))])


def _is_of(meta: ObjectMeta, owners: set[str]) -> bool:
    return meta.controller is not None and meta.controller.uid in owners


def _left_to(uid: str, claim: ResourceClaim, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that use the claim and that no other consumer's entry speaks for."""
    using = (pod for pod in pods if claim.metadata.key in _claims_of(pod))
    return without_entry(using, (each for each in claim.status.reserved_for if not each.is_pod and each.uid != uid))


def _claims_of(pod: Pod) -> list[Key]:
    """Return the claims that the pod has by now, by name or made for it."""
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    names = (each.resource_claim_name or made.get(each.name) for each in pod.spec.resource_claims)
    return [Key(pod.metadata.namespace, name) for name in dict.fromkeys(names) if name]


def _claims_in_use(pod: Pod | None) -> list[Key]:
    return _claims_of(pod) if pod is not None and not pod.is_terminal else []
