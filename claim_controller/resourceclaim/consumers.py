"""The entries of a claim's `reservedFor` that still count: pods by live reads, workloads by the configured
design.

A pod's entry is removed when the pod is gone, replaced or done. Entries of other consumers are only checked in
the modes of KEP-5194 and KEP-5729. A pod group's entry is removed when the group is gone, even if other
consumers use the claim: the group's finalizer has waited for its pods. Another workload's entry is removed when
the object is gone and no pod that may run names the claim, except pods that another entry covers: devices are
not taken from a pod that uses them. A claim that is its own consumer is never gone, so its entry depends on the
pods alone (switch reservedFor.self). Source: dra-core 4 (claim sync), kep-5194 5, 5.3, 9, 13; guarantees 5.3
(D2); upstream `pkg/controller/resourceclaim/controller.go`, syncClaim.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from claim_controller.resourceclaim.claims_from_templates import pod_of
from claim_controller.shared_pods_by_claim import PodsByClaim
from claim_controller.switches import ClaimSwitches
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import ResourceClaim, ResourceClaimConsumerReference
from services.api.meta import AnyObject, Key
from services.api.resources import resources
from services.api.times import parse_time
from services.dra.consumers import without_entry
from services.dra.pod_claims import claim_keys
from services.reconcile.actions import Query
from services.reconcile.controller import Listers, Moment

DELETED_MAX: Final = 500
"""Most uids of deleted pods that are kept, as in upstream's cache."""
POD_GROUPS: Final = ("scheduling.k8s.io", "podgroups")
BUILT_IN: Final = (("apps", "deployments"), ("apps", "statefulsets"), ("batch", "jobs"))
"""Workload kinds that `release.design=rc_builtin` watches; any other workload must release its claims itself."""


def is_done(pod: Pod) -> bool:
    """Whether the pod no longer uses its claims: it has ended, or is being deleted without a node."""
    return pod.is_terminal or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


class Consumers:
    """Evaluates the entries of one claim at a time, and remembers which pods were deleted."""

    def __init__(self, switches: ClaimSwitches, pods: PodsByClaim) -> None:
        self._switches = switches
        self._pods_of = pods.of
        self._deleted: dict[str, None] = {}

    def on_deleted(self, uid: str) -> None:
        """Remember that the pod of this uid is deleted: its entries need no live read."""
        self._deleted.pop(uid, None)
        self._deleted[uid] = None
        if len(self._deleted) > DELETED_MAX:
            del self._deleted[next(iter(self._deleted))]

    def unsupported_text(self, claim: ResourceClaim) -> str:
        """Return the error for an entry of an unknown kind of consumer; "" if the claim can be processed.

        Source: kep-5194 1 (the trap): nothing is written, so one such entry keeps those of pods as well.
        """
        if self._switches.skips_unknown:
            return ""
        for consumer in claim.status.reserved_for:
            if not consumer.is_pod and not self._is_known(consumer):
                return (
                    "unsupported ReservedFor entry: "
                    f"{{{consumer.api_group} {consumer.resource} {consumer.name} {consumer.uid}}}"
                )
        return ""

    def queries(self, claim: ResourceClaim, listers: Listers, moment: Moment) -> list[Query]:
        """Return the live reads that are needed before a consumer counts as gone, in two rounds."""
        needed = [*self._pods(claim, listers), *(query for _, query in self._workloads(claim))]
        missing = [query for query in needed if query not in moment.live and query not in moment.refused]
        if missing:
            return missing
        pods = Query(Pod, Key(claim.metadata.namespace, ""))
        is_needed = self._seems_unused(claim, listers) or any(
            self._may_remove(each) and not _is_group(each) for each in self.missing_consumers(claim, moment)
        )
        return [pods] if is_needed and pods not in moment.listed else []

    def remaining(
        self, claim: ResourceClaim, listers: Listers, moment: Moment
    ) -> tuple[ResourceClaimConsumerReference, ...]:
        """Return the entries that still count. A pod group's entry goes with the group, a workload's after those of
        all pods.
        """
        entries = claim.status.reserved_for
        pods = {each.uid for each in entries if each.is_pod and self._holds(each, claim, listers, moment)}
        gone = [each for each in self.missing_consumers(claim, moment) if self._may_remove(each)]
        groups = {each.uid for each in gone if _is_group(each)}
        workloads = {each.uid for each in gone} - groups
        if self._seems_unused(claim, listers):
            workloads.add(claim.metadata.uid)
        left = groups | workloads
        if pods or (workloads and self.users(claim, [each for each in entries if each.uid not in left], moment)):
            left = groups
        return tuple(each for each in entries if each.uid in pods or (not each.is_pod and each.uid not in left))

    def missing_consumers(self, claim: ResourceClaim, moment: Moment) -> list[ResourceClaimConsumerReference]:
        """Return the workloads and pod groups that live reads did not find, or found under another uid."""
        return [each for each, query in self._workloads(claim) if query in moment.live and not _is(each, query, moment)]

    def forbidden(self, claim: ResourceClaim, moment: Moment) -> list[tuple[ResourceClaimConsumerReference, str]]:
        """Return the entries that could be removed but that the controller may not look up, each with the server's
        refusal.
        """
        found = ((each, moment.refused.get(query)) for each, query in self._workloads(claim) if self._may_remove(each))
        return [(each, text) for each, text in found if text is not None]

    def users(
        self, claim: ResourceClaim, entries: Iterable[ResourceClaimConsumerReference], moment: Moment
    ) -> list[Pod]:
        """Return the pods, listed live, that name the claim, may still run, and are covered by none of `entries`."""
        listed = moment.listed.get(Query(Pod, Key(claim.metadata.namespace, "")), ())
        pods = (each for each in listed if isinstance(each, Pod) and not each.is_terminal)
        return without_entry((pod for pod in pods if claim.metadata.key in claim_keys(pod)), entries)

    def looks_up(self, claim: ResourceClaim) -> bool:
        """Whether the claim has an entry whose consumer must be looked up again periodically."""
        return self._switches.looks_again and any(True for _ in self._workloads(claim))

    def find(self, key: Key, listers: Listers, moment: Moment) -> Pod | None:
        """Return the pod from the live read, or else from the cache."""
        query = Query(Pod, key)
        found = moment.live[query] if query in moment.live else listers.of(Pod).get(key)
        return found if isinstance(found, Pod) else None

    def has_left(self, pod: Pod, claim: ResourceClaim) -> bool:
        """Whether the pod was unbound after the claim was allocated (switch unbind.claim_release=rc).

        Devices allocated after the unbind are for the next node, to which the pod is about to be bound.
        """
        history, allocation = pod.status.unbind_history, claim.status.allocation
        if not self._switches.takes_unbound or pod.spec.node_name or not history or allocation is None:
            return False
        granted, left = allocation.allocation_timestamp, history[0].time
        return granted is not None and left is not None and parse_time(granted) < parse_time(left)

    def _seems_unused(self, claim: ResourceClaim, listers: Listers) -> bool:
        """Whether the claim is its own consumer and the cache has no pod that may run and names it."""
        if not self._switches.has_workloads or not any(each.is_claim for each in claim.status.reserved_for):
            return False
        found = (listers.of(Pod).get(key) for key in self._pods_of(claim.metadata.key))
        return not any(pod is not None and not pod.is_terminal for pod in found)

    def _is_known(self, entry: ResourceClaimConsumerReference) -> bool:
        if self._switches.has_pod_groups or self._switches.design == "podgroup":
            return _is_group(entry) and self._switches.mode != "pods"
        return self._switches.has_workloads

    def _may_remove(self, entry: ResourceClaimConsumerReference) -> bool:
        """Whether this controller removes the entry once the object is gone."""
        kind = (entry.api_group, entry.resource)
        if self._switches.has_pod_groups or self._switches.design == "podgroup":
            return kind == POD_GROUPS
        if self._switches.design == "rc_builtin":
            return kind in BUILT_IN
        return self._switches.removes_workloads

    def _workloads(self, claim: ResourceClaim) -> Iterator[tuple[ResourceClaimConsumerReference, Query]]:
        """Yield the entries that are looked up, with the read that does it."""
        for consumer in claim.status.reserved_for:
            resource = f"{consumer.resource}.{consumer.api_group}" if consumer.api_group else consumer.resource
            # Of a kind that is not served every object would seem to be gone.
            is_other = not consumer.is_pod and not consumer.is_claim
            if is_other and self._is_known(consumer) and resource in resources():
                yield (
                    consumer,
                    Query(AnyObject, Key(claim.metadata.namespace, consumer.name), resource, may_be_refused=True),
                )

    def _pods(self, claim: ResourceClaim, listers: Listers) -> list[Query]:
        names = {
            each.name: each.uid for each in claim.status.reserved_for if each.is_pod and each.uid not in self._deleted
        }
        maker = pod_of(claim)
        if maker is not None and maker[1] not in self._deleted:
            names.setdefault(maker[0], maker[1])
        queries = []
        for name, uid in names.items():
            key = Key(claim.metadata.namespace, name)
            pod = listers.of(Pod).get(key)
            if pod is None or pod.metadata.uid != uid or self.has_left(pod, claim):
                queries.append(Query(Pod, key))
        return queries

    def _holds(
        self, entry: ResourceClaimConsumerReference, claim: ResourceClaim, listers: Listers, moment: Moment
    ) -> bool:
        """Whether a pod still counts."""
        if entry.uid in self._deleted:
            return False
        pod = self.find(Key(claim.metadata.namespace, entry.name), listers, moment)
        if pod is None or pod.metadata.uid != entry.uid:
            return False
        return not is_done(pod) and not self.has_left(pod, claim)


def _is_group(entry: ResourceClaimConsumerReference) -> bool:
    return (entry.api_group, entry.resource) == POD_GROUPS


def _is(entry: ResourceClaimConsumerReference, query: Query, moment: Moment) -> bool:
    """Whether a live read found this very object."""
    found = moment.live[query]
    return isinstance(found, AnyObject) and found.metadata.uid == entry.uid
