"""Create the claims of pods and pod groups that name a template, and deallocate claims that no consumer
uses any more.

A key names its kind: `pod/NAME`, `podgroup/NAME` or `claim/NAME`. A claim is processed one step at a time, and
the change of each step triggers the next: remove consumers that are gone, and with the last one the allocation,
in one write; then the finalizer; then delete the claim if it was made for a pod that has ended. Source:
dra-core 4; kep-5194 5, 12; guarantees 5.3 (D1 to D4); upstream `pkg/controller/resourceclaim`.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from claim_controller.resourceclaim.claims_from_templates import binds_to, claim_of, is_made_for, pod_of
from claim_controller.resourceclaim.consumers import BUILT_IN, Consumers, is_done
from claim_controller.resourceclaim.made_claims import MadeClaims
from claim_controller.resourceclaim.metrics import ClaimCounts
from claim_controller.shared_pods_by_claim import PodsByClaim
from claim_controller.switches import ClaimSwitches
from services.api.identity import system_account
from services.api.kinds.pod import Pod, PodResourceClaim
from services.api.kinds.podgroup import PodGroup, PodGroupResourceClaim
from services.api.kinds.resourceclaim import CLAIMS, FINALIZER, ResourceClaim, ResourceClaimConsumerReference
from services.api.kinds.resourceclaimtemplate import ResourceClaimTemplate
from services.api.meta import Document, Key
from services.api.resources import resources
from services.api.switches import Switches
from services.api.times import parse_time
from services.dra.pod_claims import claim_keys
from services.reconcile import writes
from services.reconcile.actions import (
    NOT_PERFORMED,
    NOTHING,
    Action,
    Create,
    Delete,
    RecordEvent,
    Result,
    earliest,
    event,
)
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.interest import Interest
from services.reconcile.kind_keys import CLAIM, kind_key, split

POD, POD_GROUP = "pod", "podgroup"
WORKERS: Final = 10
USER: Final = system_account("resource-claim-controller").user
QUEUE: Final = "resource_claim"
"""The work queue's name in metrics, and the source of events."""
FAILED: Final = "FailedResourceClaimCreation"
FORBIDDEN: Final = "ReservedForOwnerCheckForbidden"
ORPHANED_AFTER_S: Final = 120.0
"""Seconds for which a claim has been allocated before it counts as orphaned."""


class ClaimController:
    """The resource claim controller. It remembers which claims it deallocated, and only removes the finalizer
    of those: another claim without devices may be about to get some.
    """

    def __init__(self, switches: Switches) -> None:
        self._switches = switches.of(ClaimSwitches)
        self._pods = PodsByClaim()
        self._consumers = Consumers(self._switches, self._pods)
        self._freed: dict[str, None] = {}
        self._refusals: dict[Key, str] = {}
        """By key, why the API server did not create a claim; said at the next try."""
        self._reserved: dict[str, dict[Key, None]] = {}
        """Claims by the uid of a consumer that is no pod."""
        self._made = MadeClaims()
        self.counts = ClaimCounts()

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Reconcile one pod, one pod group or one claim."""
        kind, own = split(key)
        if kind == POD:
            return self._pod(key, own, listers, moment)
        return self._pod_group(key, own, listers, moment) if kind == POD_GROUP else self._claim(own, listers, moment)

    def on_failed(self, key: Key, action: Action, reason: str) -> None:
        """Record that a claim could not be created."""
        if isinstance(action, Create):
            is_sent = reason != NOT_PERFORMED
            self.counts.count_refusal(action.document, is_sent=is_sent)
            self._made.refuse(action.document, reason)
            if is_sent:
                self._refusals[key] = reason.partition(": ")[2] or reason

    def _pod(self, key: Key, own: Key, listers: Listers, moment: Moment) -> Result:
        pod = listers.of(Pod).get(own)
        if pod is None or is_done(pod):
            self._refusals.pop(key, None)
            if pod is not None:
                self._made.forget(pod.metadata.uid)
            return NOTHING
        held = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
        wanted, of_group, waits = self._wanted_entries(pod, listers)
        missing = [each for each in wanted if not self._is_there(each, held, pod, listers)]
        known = {name: claim for name, claim in of_group.items() if held.get(name) != claim}
        actions: list[Action] = []
        error = waits
        if missing:
            claims_by_name, queries = self._made.claims_of(pod, missing, listers, moment)
            if queries:
                return Result(refresh=queries)
            actions, error = self._make(
                key, pod, [each for each in missing if each.name not in claims_by_name], listers
            )
            existing_claims = {each.name: claims_by_name[each.name] for each in missing if each.name in claims_by_name}
            known |= {name: claim for name, claim in existing_claims.items() if held.get(name) != claim}
        if known and not any(isinstance(action, Create) for action in actions):
            names = [{"name": name, "resourceClaimName": claim} for name, claim in known.items()]
            patch: Document = {"status": {"resourceClaimStatuses": names}}
            actions.insert(0, writes.patch("pods", pod, patch, "status", is_strategic=True))
        if not missing and not known:
            actions += self._reserve(pod, listers)
        return Result(tuple(actions), error=error)

    def _wanted_entries(self, pod: Pod, listers: Listers) -> tuple[list[PodResourceClaim], dict[str, str], str]:
        """Return the entries with a template for which the pod gets claims of its own, the claims of the pod's group by
        the pod's entry, and why it is too early to say.
        """
        entries = [each for each in pod.spec.resource_claims if each.resource_claim_template_name]
        named = pod.spec.scheduling_group
        if not self._switches.has_pod_groups or named is None or not named.pod_group_name or not entries:
            return entries, {}, ""
        group = listers.of(PodGroup).get(Key(pod.metadata.namespace, named.pod_group_name))
        if group is None:
            return [], {}, f'podgroup.scheduling.k8s.io "{named.pod_group_name}" not found'
        shared = {each.name: binds_to(each, group) for each in entries}
        claim_names = {each.name: each.resource_claim_name for each in group.status.resource_claim_statuses}
        of_group = {name: claim_names.get(name) for name, entry in shared.items() if entry is not None}
        own = [each for each in entries if shared[each.name] is None]
        return own, {name: claim for name, claim in of_group.items() if claim}, ""

    def _is_there(self, entry: PodResourceClaim, held: dict[str, str | None], pod: Pod, listers: Listers) -> bool:
        """Whether the pod's status names a claim that is the pod's, or says that it needs none."""
        if entry.name not in held:
            return False
        name = held[entry.name]
        if not name:
            return name is None
        claim = listers.of(ResourceClaim).get(Key(pod.metadata.namespace, name))
        return claim is not None and is_made_for(claim, pod.metadata.uid)

    def _make(
        self,
        key: Key,
        owner: Pod | PodGroup,
        entries: Iterable[PodResourceClaim | PodGroupResourceClaim],
        listers: Listers,
    ) -> tuple[list[Action], str]:
        """Return what creates the claims, up to the first whose template is missing, and what is wrong with that."""
        actions: list[Action] = []
        for entry in entries:
            if (refusal := self._refusals.pop(key, None)) is not None:
                actions.append(_failure(owner, entry.name, f"create ResourceClaim : {refusal}"))
            name = entry.resource_claim_template_name or ""
            template = listers.of(ResourceClaimTemplate).document(Key(owner.metadata.namespace, name))
            if template is None:
                what = f'resource claim template "{name}": resourceclaimtemplate.resource.k8s.io "{name}" not found'
                return [*actions, _failure(owner, entry.name, what)], what
            document = claim_of(owner, entry.name, template)
            self.counts.count_create(document)
            self._made.ask(owner.metadata.uid, entry.name)
            actions.append(Create(CLAIMS, document))
        return actions, ""

    def _reserve(self, pod: Pod, listers: Listers) -> list[Action]:
        """List a pod that came to its node without a scheduler with those claims of its that have devices."""
        if not pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return []
        of_pods = {each.name for each in pod.spec.resource_claims if not each.resource_claim_name}
        actions: list[Action] = []
        claim_names = {each.resource_claim_name for each in pod.status.resource_claim_statuses if each.name in of_pods}
        for key in claim_keys(pod):
            claim = listers.of(ResourceClaim).get(key)
            if claim is None or claim.status.allocation is None or self._is_reserved(claim, pod):
                continue
            if claim.metadata.deletion_timestamp is not None:
                continue
            if len(claim.status.reserved_for) >= self._switches.consumers_max:
                continue
            if key.name in claim_names and not is_made_for(claim, pod.metadata.uid):
                continue
            consumer = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
            listed = _consumer_documents((*claim.status.reserved_for, consumer))
            actions.append(writes.status(CLAIMS, claim, {"reservedFor": listed}, on_version=True))
        return actions

    def _is_reserved(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Whether the pod may use the claim: by itself, or by an entry that speaks for it."""
        if claim.status.is_reserved_for(pod.metadata.uid):
            return True
        allocation = claim.status.allocation
        if self._switches.has_workloads and allocation is not None and allocation.reserved_for_any_pod:
            return True
        named = pod.spec.scheduling_group
        return self._switches.has_pod_groups and any(
            not each.is_pod and named is not None and each.name == named.pod_group_name
            for each in claim.status.reserved_for
        )

    def _pod_group(self, key: Key, own: Key, listers: Listers, moment: Moment) -> Result:
        """Make the claims that all members share, and name them in the group's status."""
        group = listers.of(PodGroup).get(own)
        if group is None or group.metadata.deletion_timestamp is not None:
            self._refusals.pop(key, None)
            return NOTHING
        held = {each.name for each in group.status.resource_claim_statuses}
        entries = [each for each in group.spec.resource_claims if each.resource_claim_template_name]
        missing = [each for each in entries if each.name not in held]
        if not missing:
            return NOTHING
        claims_by_name, queries = self._made.claims_of(group, missing, listers, moment)
        if queries:
            return Result(refresh=queries)
        actions, error = self._make(key, group, [each for each in missing if each.name not in claims_by_name], listers)
        known = [
            {"name": each.name, "resourceClaimName": claims_by_name[each.name]}
            for each in missing
            if each.name in claims_by_name
        ]
        if known and not any(isinstance(action, Create) for action in actions):
            patch: Document = {"status": {"resourceClaimStatuses": known}}
            actions.insert(0, writes.patch("podgroups.scheduling.k8s.io", group, patch, "status", is_strategic=True))
        return Result(tuple(actions), error=error)

    def _claim(self, key: Key, listers: Listers, moment: Moment) -> Result:
        claim = listers.of(ResourceClaim).get(key)
        if claim is None:
            return NOTHING
        if problem := self._consumers.unsupported_text(claim):
            return Result(error=problem)
        queries = self._consumers.queries(claim, listers, moment)
        if queries:
            return Result(refresh=tuple(queries))
        status, meta = claim.status, claim.metadata
        if status.allocation is not None:
            self._freed.pop(meta.uid, None)
        kept = self._consumers.remaining(claim, listers, moment)
        is_going = meta.deletion_timestamp is not None
        events = self._reports(claim, kept, moment)
        is_unused = not kept and status.allocation is not None
        if len(kept) < len(status.reserved_for) or (is_unused and (is_going or self._frees_unused(claim))):
            patch: dict[str, Any] = {"reservedFor": _consumer_documents(kept)}
            if is_unused:
                patch |= {"allocation": None, "devices": None}
                self._freed[meta.uid] = None
            return Result((writes.status(CLAIMS, claim, patch, on_version=True), *events))
        is_free = status.allocation is None and not status.reserved_for
        if is_free and FINALIZER in meta.finalizers and (is_going or meta.uid in self._freed):
            self._freed.pop(meta.uid, None)
            left = (each for each in meta.finalizers if each != FINALIZER)
            return Result((writes.finalizers(CLAIMS, claim, left),))
        if not is_going and self._is_orphan(claim, listers, moment):
            return Result((Delete(CLAIMS, key, uid=meta.uid),))
        return Result(tuple(events), requeue_after_s=self._look_again_s(claim, moment))

    def _frees_unused(self, claim: ResourceClaim) -> bool:
        """Whether a claim that is found allocated and reserved for no consumer is deallocated (kep-5194 5.1)."""
        match self._switches.dealloc_when_empty:
            case "any":
                return True
            case "spec_reservedFor":
                return claim.spec.reserved_for is not None
        return False

    def _reports(
        self, claim: ResourceClaim, kept: tuple[ResourceClaimConsumerReference, ...], moment: Moment
    ) -> list[RecordEvent]:
        """Count what becomes of the entries of workloads; return the events about those that must not be looked up."""
        events = []
        for consumer, text in self._consumers.forbidden(claim, moment):
            self.counts.releases["rc", "forbidden"] += 1
            what = f'{consumer.resource}{"." * bool(consumer.api_group)}{consumer.api_group} "{consumer.name}"'
            events.append(event(claim, FORBIDDEN, f"cannot check whether {what} still exists: {text}", warns=True))
        gone = [each for each in self._consumers.missing_consumers(claim, moment) if each in kept]
        for consumer in claim.status.reserved_for:
            if not consumer.is_pod and consumer not in kept:
                self.counts.releases["rc", "released"] += 1
        if gone and self._consumers.users(claim, [each for each in kept if each not in gone], moment):
            self.counts.releases["rc", "blocked"] += 1
        if gone and claim.status.allocation is not None and self._allocated_for_s(claim, moment) >= ORPHANED_AFTER_S:
            self.counts.orphans[claim.metadata.uid] = None
        else:
            self.counts.orphans.pop(claim.metadata.uid, None)
        return events

    def _allocated_for_s(self, claim: ResourceClaim, moment: Moment) -> float:
        allocation = claim.status.allocation
        if allocation is None or allocation.allocation_timestamp is None:
            return ORPHANED_AFTER_S
        return moment.wall_s - parse_time(allocation.allocation_timestamp)

    def _look_again_s(self, claim: ResourceClaim, moment: Moment) -> float | None:
        """Return in how many seconds the claim's workloads are looked up again (kep-5194 5.3)."""
        if not self._consumers.looks_up(claim):
            return None
        left_s = ORPHANED_AFTER_S - self._allocated_for_s(claim, moment)
        is_gone = bool(self._consumers.missing_consumers(claim, moment))
        return earliest(self._switches.owner_check_s, left_s if is_gone and left_s > 0 else None)

    def _is_orphan(self, claim: ResourceClaim, listers: Listers, moment: Moment) -> bool:
        """Whether the claim was made for a pod that is gone or has ended."""
        maker = pod_of(claim)
        if maker is None or claim.status.reserved_for:
            return False
        pod = self._consumers.find(Key(claim.metadata.namespace, maker[0]), listers, moment)
        return pod is None or pod.metadata.uid != maker[1] or is_done(pod)

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Return the pod, if it has claims and exists; if it is gone, done or unbound, also its claims."""
        pod = change.object
        if not pod.spec.resource_claims:
            return []
        self._pods.note(change.old, change.new)
        if change.new is None:
            self._consumers.on_deleted(pod.metadata.uid)
            self._made.forget(pod.metadata.uid)
        keys = [] if change.new is None else [kind_key(POD, *pod.metadata.key)]
        if change.new is None or is_done(pod) or (self._switches.takes_unbound and not pod.spec.node_name):
            keys += [kind_key(CLAIM, *key) for key in claim_keys(pod)]
        return keys

    def claim_changed(self, change: Change[ResourceClaim], listers: Listers) -> list[Key]:
        """Return the claim. If it was created, deleted, allocated or deallocated, also the pods that name it or own
        it.
        """
        claim, old, new = change.object, change.old, change.new
        self.counts.note(old, new)
        self._made.note(new)
        meta, maker = claim.metadata, pod_of(claim)
        for uid in _workload_uids(old):
            self._reserved.get(uid, {}).pop(meta.key, None)
        for uid in _workload_uids(new):
            self._reserved.setdefault(uid, {})[meta.key] = None
        keys = [] if new is None else [kind_key(CLAIM, *meta.key)]
        if new is None:
            self._freed.pop(meta.uid, None)
        if old is None or new is None or (old.status.allocation is None) != (new.status.allocation is None):
            pods = dict.fromkeys(self._pods.of(meta.key))
            if maker is not None:
                pods[Key(meta.namespace, maker[0])] = None
            keys += [kind_key(POD, *key) for key in pods]
        owner = meta.controller
        if owner is not None and owner.kind == "PodGroup" and self._switches.has_pod_groups:
            keys.append(kind_key(POD_GROUP, meta.namespace, owner.name))
        return keys

    def template_changed(self, change: Change[ResourceClaimTemplate], listers: Listers) -> list[Key]:
        """Return the pods and pod groups that wait for a template that was just created."""
        if change.old is not None or change.new is None:
            return []
        meta = change.new.metadata
        keys = [
            kind_key(POD, *pod.metadata.key)
            for pod in listers.of(Pod).all(meta.namespace)
            if any(each.resource_claim_template_name == meta.name for each in pod.spec.resource_claims)
        ]
        groups = listers.of(PodGroup).all(meta.namespace) if self._switches.has_pod_groups else []
        return keys + [
            kind_key(POD_GROUP, *group.metadata.key)
            for group in groups
            if any(each.resource_claim_template_name == meta.name for each in group.spec.resource_claims)
        ]

    def pod_group_changed(self, change: Change[PodGroup], listers: Listers) -> list[Key]:
        """Return the group, its members if claims were made for it, and the claims reserved for it if it is gone."""
        group, meta = change.object, change.object.metadata
        if change.new is None:
            self._made.forget(meta.uid)
            return self.workload_changed(change, listers)
        keys = [kind_key(POD_GROUP, *meta.key)] if group.spec.resource_claims else []
        old = change.old
        if old is None or old.status.resource_claim_statuses != group.status.resource_claim_statuses:
            for pod in listers.of(Pod).all(meta.namespace):
                named = pod.spec.scheduling_group
                if named is not None and named.pod_group_name == meta.name and pod.spec.resource_claims:
                    keys.append(kind_key(POD, *pod.metadata.key))
        return keys

    def workload_changed(self, change: Change[Any], listers: Listers) -> list[Key]:
        """Return the claims that were reserved for an object that is gone."""
        if change.new is not None:
            return []
        return [kind_key(CLAIM, *key) for key in self._reserved.get(change.object.metadata.uid, ())]


def _failure(owner: Pod | PodGroup, entry: str, what: str) -> RecordEvent:
    kind = "PodResourceClaim" if isinstance(owner, Pod) else "PodGroupResourceClaim"
    return event(owner, FAILED, f"{kind} {entry}: {what}", warns=True)


def _workload_uids(claim: ResourceClaim | None) -> list[str]:
    return [] if claim is None else [each.uid for each in claim.status.reserved_for if not each.is_pod]


def _consumer_documents(consumers: tuple[ResourceClaimConsumerReference, ...]) -> list[Document] | None:
    return [msgspec.to_builtins(each) for each in consumers] or None


def _build(switches: Switches) -> Controller:
    memory = ClaimController(switches)
    view = switches.of(ClaimSwitches)
    watches: list[Watch[Any]] = [
        Watch(Pod, memory.pod_changed, Interest(has="spec.resource_claims")),
        Watch(ResourceClaim, memory.claim_changed),
        Watch(ResourceClaimTemplate, memory.template_changed),
    ]
    if view.has_pod_groups or (view.has_workloads and view.design == "podgroup"):
        watches.append(Watch(PodGroup, memory.pod_group_changed))
    elif view.has_workloads and view.design == "rc_builtin":
        kinds = (resources()[f"{resource}.{group}"].view for group, resource in BUILT_IN)
        watches += [Watch(kind, memory.workload_changed) for kind in kinds]
    return Controller(
        "resourceclaim",
        None,
        memory.reconcile,
        USER,
        watches=tuple(watches),
        failed=memory.on_failed,
        workers=WORKERS,
        gives_up=False,
        queue=QUEUE,
        reporter=QUEUE,
        metrics=memory.counts.samples,
    )


CONTROLLER = Registration("resourceclaim", _build, start_order=18)
