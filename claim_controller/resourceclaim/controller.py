"""Make the claims of pods that name a template, and deallocate claims that no pod uses any more.

A key names its kind: `pod/NAME` or `claim/NAME`. Of what is to be done for a claim one step is taken at a time, and
the change it makes leads to the next: take consumers off the list that are gone, and with the last one the devices,
in one write; then the finalizer; then delete the claim if it was made for a pod that has ended.
Source: dra-core 4; guarantees 5.3 (D1 to D4); upstream `pkg/controller/resourceclaim`.
"""

from typing import Any, Final

import msgspec

from services.api.identity import system_account
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import (
    CLAIMS,
    CONSUMERS_MAX,
    FINALIZER,
    POD_CLAIM_NAME,
    ResourceClaim,
    ResourceClaimConsumerReference,
)
from services.api.kinds.resourceclaimtemplate import ResourceClaimTemplate
from services.api.meta import Document, Key
from services.api.switches import Switches
from services.api.times import parse_time
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Action, Create, Delete, Query, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.kind_keys import CLAIM, kind_key, split

POD = "pod"
PREFIX_MAX: Final = 57
"""What is left of a name's 63 characters before the five that the server makes up, and the dash."""
WORKERS: Final = 10
USER: Final = system_account("resource-claim-controller").user


def generate_name(pod: str, entry: str) -> str:
    """Return `<pod>-<entry>-`, both parts cut in proportion when that is too long."""
    length_max = PREFIX_MAX - 2
    if len(pod) + len(entry) > length_max:
        kept = max(1, length_max * len(pod) // (len(pod) + len(entry)))
        pod, entry = pod[:kept].rstrip("-."), entry[: length_max - kept].rstrip("-.")
    return f"{pod}-{entry}-"


def is_done(pod: Pod) -> bool:
    """Whether the pod will not use its claims any more: it has ended, or is being deleted without a node."""
    return pod.is_terminal or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


class ClaimController:
    """Remembers which claims it freed, to take the finalizer off: one without devices may be about to get some."""

    def __init__(self, switches: Switches) -> None:
        self._takes_unbound = switches.choice("unbind.claim_release") == "rc"
        self._freed: dict[str, None] = {}

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Reconcile one pod or one claim."""
        kind, own = split(key)
        return self._pod(own, listers, moment) if kind == POD else self._claim(own, listers, moment)

    def _pod(self, key: Key, listers: Listers, moment: Moment) -> Result:
        pod = listers.of(Pod).get(key)
        if pod is None or is_done(pod):
            return NOTHING
        named = {each.name for each in pod.status.resource_claim_statuses}
        wanted = (each for each in pod.spec.resource_claims if not each.resource_claim_name)
        missing = [each for each in wanted if each.resource_claim_template_name and each.name not in named]
        if not missing:
            return Result(tuple(self._reserve(pod, listers)))
        made = {
            claim.metadata.annotations.get(POD_CLAIM_NAME, ""): claim.metadata.name
            for claim in listers.of(ResourceClaim).owned_by(pod.metadata.uid)
        }
        if any(each.name not in made for each in missing):
            # The cache may not show yet what was made before this process began (D1).
            query = Query(ResourceClaim, Key(key.namespace, ""))
            if query not in moment.listed:
                return Result(refresh=(query,))
            for claim in moment.listed[query]:
                owner = claim.metadata.controller if isinstance(claim, ResourceClaim) else None
                if isinstance(claim, ResourceClaim) and owner is not None and owner.uid == pod.metadata.uid:
                    made[claim.metadata.annotations.get(POD_CLAIM_NAME, "")] = claim.metadata.name
        lacking = [(each.name, each.resource_claim_template_name or "") for each in missing if each.name not in made]
        actions = [self._make(pod, name, template, listers) for name, template in lacking]
        known = [{"name": each.name, "resourceClaimName": made[each.name]} for each in missing if each.name in made]
        if known and not any(isinstance(action, Create) for action in actions):
            patch: Document = {"status": {"resourceClaimStatuses": known}}
            actions.append(writes.patch("pods", pod, patch, "status", is_strategic=True))
        return Result(tuple(actions))

    def _make(self, pod: Pod, entry: str, template_name: str, listers: Listers) -> Action:
        key, meta = pod.metadata.key, pod.metadata
        template = listers.of(ResourceClaimTemplate).document(Key(key.namespace, template_name))
        if template is None:
            message = f'PodResourceClaim {entry}: resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            return event(pod, "FailedResourceClaimCreation", message, warns=True)
        spec = template["spec"]
        given = spec.get("metadata") or {}
        metadata: Document = {
            "generateName": generate_name(meta.name, entry),
            "namespace": key.namespace,
            "ownerReferences": [writes.controller_reference(pod)],
            "annotations": {**(given.get("annotations") or {}), POD_CLAIM_NAME: entry},
        }
        if given.get("labels"):
            metadata["labels"] = given["labels"]
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        return Create(CLAIMS, {**kind, "metadata": metadata, "spec": spec.get("spec") or {}})

    def _reserve(self, pod: Pod, listers: Listers) -> list[Action]:
        """List a pod that came to its node without a scheduler with those claims of its that have devices."""
        if not pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return []
        actions: list[Action] = []
        for name in _claim_names(pod):
            claim = listers.of(ResourceClaim).get(Key(pod.metadata.namespace, name))
            if claim is None or claim.status.allocation is None or claim.status.is_reserved_for(pod.metadata.uid):
                continue
            if claim.metadata.deletion_timestamp is not None or len(claim.status.reserved_for) >= CONSUMERS_MAX:
                continue
            consumer = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
            listed = _listed((*claim.status.reserved_for, consumer))
            actions.append(writes.status(CLAIMS, claim, {"reservedFor": listed}, on_version=True))
        return actions

    def _claim(self, key: Key, listers: Listers, moment: Moment) -> Result:
        claim = listers.of(ResourceClaim).get(key)
        if claim is None:
            return NOTHING
        queries = self._unknown(claim, listers)
        if any(query not in moment.live for query in queries):
            return Result(refresh=tuple(queries))
        status, meta = claim.status, claim.metadata
        if status.allocation is not None:
            self._freed.pop(meta.uid, None)
        kept = tuple(each for each in status.reserved_for if self._holds(each, claim, listers, moment))
        is_going = meta.deletion_timestamp is not None
        if len(kept) < len(status.reserved_for) or (is_going and not kept and status.allocation is not None):
            patch: dict[str, Any] = {"reservedFor": _listed(kept)}
            if not kept and status.allocation is not None:
                patch |= {"allocation": None, "devices": None}
                self._freed[meta.uid] = None
            return Result((writes.status(CLAIMS, claim, patch, on_version=True),))
        is_free = status.allocation is None and not status.reserved_for
        if is_free and FINALIZER in meta.finalizers and (is_going or meta.uid in self._freed):
            self._freed.pop(meta.uid, None)
            left = (each for each in meta.finalizers if each != FINALIZER)
            return Result((writes.finalizers(CLAIMS, claim, left),))
        if not is_going and self._is_orphan(claim, listers, moment):
            return Result((Delete(CLAIMS, key, uid=meta.uid),))
        return NOTHING

    def _unknown(self, claim: ResourceClaim, listers: Listers) -> list[Query]:
        """Return the live reads that are needed before a consumer is taken to be gone (D2)."""
        names = {each.name: each.uid for each in claim.status.reserved_for if _is_pod(each)}
        if (maker := _maker(claim)) is not None:
            names.setdefault(maker[0], maker[1])
        queries = []
        for name, uid in names.items():
            key = Key(claim.metadata.namespace, name)
            pod = listers.of(Pod).get(key)
            if pod is None or pod.metadata.uid != uid or self._has_left(pod, claim):
                queries.append(Query(Pod, key))
        return queries

    def _find(self, key: Key, listers: Listers, moment: Moment) -> Pod | None:
        """Return the pod as it was read live, or else as the cache has it."""
        query = Query(Pod, key)
        found = moment.live[query] if query in moment.live else listers.of(Pod).get(key)
        return found if isinstance(found, Pod) else None

    def _holds(
        self, each: ResourceClaimConsumerReference, claim: ResourceClaim, listers: Listers, moment: Moment
    ) -> bool:
        """Whether a consumer still counts. What is no pod is not judged here."""
        if not _is_pod(each):
            return True
        pod = self._find(Key(claim.metadata.namespace, each.name), listers, moment)
        if pod is None or pod.metadata.uid != each.uid:
            return False
        return not is_done(pod) and not self._has_left(pod, claim)

    def _has_left(self, pod: Pod, claim: ResourceClaim) -> bool:
        """Whether the pod was unbound after the claim was allocated (switch unbind.claim_release=rc).

        Devices that are newer than the unbind were granted for the next node, which the pod is on its way to.
        """
        history, allocation = pod.status.unbind_history, claim.status.allocation
        if not self._takes_unbound or pod.spec.node_name or not history or allocation is None:
            return False
        granted, left = allocation.allocation_timestamp, history[0].time
        return granted is not None and left is not None and parse_time(granted) < parse_time(left)

    def _is_orphan(self, claim: ResourceClaim, listers: Listers, moment: Moment) -> bool:
        """Whether the claim was made for a pod that is gone or has ended."""
        maker = _maker(claim)
        if maker is None or claim.status.reserved_for:
            return False
        pod = self._find(Key(claim.metadata.namespace, maker[0]), listers, moment)
        return pod is None or pod.metadata.uid != maker[1] or is_done(pod)

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """A pod with claims that came or changed, and the claims of one that leaves."""
        pod = change.object
        if not pod.spec.resource_claims:
            return []
        namespace = pod.metadata.namespace
        keys = [] if change.new is None else [kind_key(POD, *pod.metadata.key)]
        if change.new is None or is_done(pod) or (self._takes_unbound and not pod.spec.node_name):
            keys += [kind_key(CLAIM, namespace, name) for name in _claim_names(pod)]
        return keys

    def claim_changed(self, change: Change[ResourceClaim], listers: Listers) -> list[Key]:
        """The claim, and the pod that it was made for when it came or went."""
        claim = change.object
        meta, maker = claim.metadata, _maker(claim)
        keys = [] if change.new is None else [kind_key(CLAIM, *meta.key)]
        if change.new is None:
            self._freed.pop(meta.uid, None)
        if maker is not None and (change.old is None or change.new is None):
            keys.append(kind_key(POD, meta.namespace, maker[0]))
        return keys


def template_changed(change: Change[ResourceClaimTemplate], listers: Listers) -> list[Key]:
    """Pods that wait for a template that has just come."""
    if change.old is not None or change.new is None:
        return []
    meta = change.new.metadata
    return [
        kind_key(POD, *pod.metadata.key)
        for pod in listers.of(Pod).all(meta.namespace)
        if any(each.resource_claim_template_name == meta.name for each in pod.spec.resource_claims)
    ]


def _claim_names(pod: Pod) -> list[str]:
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
    names = (each.resource_claim_name or made.get(each.name) for each in pod.spec.resource_claims)
    return list(dict.fromkeys(name for name in names if name))


def _is_pod(consumer: ResourceClaimConsumerReference) -> bool:
    return not consumer.api_group and consumer.resource == "pods"


def _maker(claim: ResourceClaim) -> tuple[str, str] | None:
    """Return name and uid of the pod that the claim was made for."""
    owner = claim.metadata.controller
    if owner is None or owner.kind != "Pod" or POD_CLAIM_NAME not in claim.metadata.annotations:
        return None
    return owner.name, owner.uid


def _listed(consumers: tuple[ResourceClaimConsumerReference, ...]) -> list[Document] | None:
    return [msgspec.to_builtins(each) for each in consumers] or None


def _build(switches: Switches) -> Controller:
    memory = ClaimController(switches)
    of_templates = Watch(ResourceClaimTemplate, template_changed)
    watches = (Watch(Pod, memory.pod_changed), Watch(ResourceClaim, memory.claim_changed), of_templates)
    return Controller("resourceclaim", None, memory.reconcile, USER, watches=watches, workers=WORKERS)


CONTROLLER = Registration("resourceclaim", _build, start_order=18)
