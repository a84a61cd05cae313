"""DynamicResources: pods wait for their claims, go where there are devices for these, and get them (KEP-4381).

PreEnqueue: the claims must exist. PreFilter: they must not be in allocation for another pod. Filter: a
claim with devices must be usable on the node, one without must find some there. Score prefers early
alternatives. Reserve allocates in memory, PreBind writes and waits for devices to be attached, and
PostFilter frees a claim whose devices keep the pod from every node. All its rejections are final for
preemption: no devices are freed by evicting pods. Source: dra-core 6; kep-5194-reservedfor-workloads 3, 12;
upstream `pkg/scheduler/framework/plugins/dynamicresources` (texts of v1.36).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.node_selection import term_matches
from scheduler.cache.pod_group_membership import group_of
from scheduler.dra.binding_conditions import drivers_to_wait_for, failure_of, is_ready, is_timed_out
from scheduler.dra.claim_releaser import deallocate_moved
from scheduler.dra.claim_writer import Granter
from scheduler.dra.extended_resources import BackedResources, Mappings, claim_in_memory, made_for, requests_for
from scheduler.dra.ledger import PendingRelease, Release
from scheduler.dra.outcomes import Outcomes, Remembered
from scheduler.dra.reservation import POD_GROUPS, is_group_entry
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState, Diagnosis
from scheduler.framework.events import (
    ASSIGNED_POD,
    NODE,
    POD,
    Action,
    ClusterEvent,
    Hint,
    Registration,
    Subjects,
    queue_if,
)
from scheduler.framework.plugin import PostFilterResult, PreFilterResult
from scheduler.framework.runner import default_normalize
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, error_status, unresolvable, unschedulable
from scheduler.framework.vectorized import Refusal
from scheduler.switches import DraSwitches, ReservationSwitches
from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.devicetaintrule import DeviceTaintRule
from services.api.kinds.node import Node
from services.api.kinds.pod import NodeSelector, Pod
from services.api.kinds.podgroup import PodGroup
from services.api.kinds.resourceclaim import ALTERNATIVES_MAX, AllocationResult, ResourceClaim, ResourceClaimStatus
from services.api.kinds.resourceslice import ResourceSlice
from services.api.meta import Key
from services.api.node_selection import NAME_FIELD
from services.api.times import Duration
from services.dra.allocator import Allocator, Outcome
from services.dra.features import Features
from services.dra.pod_claims import claim_keys, problem_of, problem_with
from services.dra.pools import Slices
from services.dra.requests import AllocationError, problem_of_requests
from services.dra.shortage import Shortage, shortages
from services.dra.solution import Solution, share_ids
from services.reconcile.controller import Change

NAME: Final = "DynamicResources"
NOT_FOUND: Final = "not found"
NOTHING_TO_DEALLOCATE: Final = "no new claims to deallocate"
STILL_NOT: Final = "still not schedulable"
DEALLOCATED: Final = "deallocation of ResourceClaim completed"
UNRESERVED: Final = "ResourceClaim unreserved for PodGroup"
DELETED: Final = "deletion of ResourceClaim completed"
UNAVAILABLE: Final = "resourceclaim not available on the node"
STALE_CLAIM: Final = "cannot schedule extended resource claim"
CANNOT_FIT: Final = "cannot fit resource"
CLAIM_DELAY_S: Final = 3.0
"""Seconds that a claim may be missing before that is reported, where plugins choose delays.

There are delays in general, for a claim that the user made, and for one from a template. The numbers are
our own: KEP-5501's review asks for delays of plugins and gives none.
"""
NAMED_DELAY_S: Final = 1.0
TEMPLATE_DELAY_S: Final = 10.0
DEVICES_EXPLAINED: Final = 20_000
"""Maximal number of devices, or those of one node, that are searched to explain why a pod waits."""
FREED: Final = f"{NAME}/freed"
"""The key of the state where a retry finds the claims, by uid, whose devices PostFilter has freed in memory."""
CONDITIONS_PENDING: Final = "BindingConditionsPending"
TRIES_PER_S: Final = 200_000
"""Steps of a search that count as one second; the shortest time that cuts has one step.

A search is cut by its steps, not by a clock, so that it ends the same everywhere.
"""


@dataclass
class _Extended:
    """The pod's extended resources that are devices of a class (KEP-5004).

    `stale`: a claim that an earlier attempt left; `by_need`: the claim, the allocator and the part of each
    container, by the resources that a node does not offer itself; `need`: these resources for each node that
    fits; `claim`: the written claim.
    """

    resources: frozenset[str]
    stale: ResourceClaim | None
    by_need: dict[frozenset[str], tuple[ResourceClaim, Allocator, Mappings]] = field(default_factory=dict)
    need: dict[str, frozenset[str]] = field(default_factory=dict)
    claim: ResourceClaim | None = None


@dataclass
class _Notes:
    """The notes of one cycle. `granted` and `open`: claims with devices, and without.

    `shared`: allocations in flight that the pod relies on, by claim uid; these claims are among the granted.
    `unavailable`: indices of granted claims that some node could not use; `found`: by node, devices for all
    open claims; `allocations`: one for each of them, on the node that was chosen. `freed`: claims whose devices
    count as free, as they are stored, by uid: they are among the open ones; `has_retried`: even with the
    devices that PostFilter can free in memory there is no node.
    """

    granted: list[ResourceClaim] = field(default_factory=list)
    open: list[ResourceClaim] = field(default_factory=list)
    shared: dict[str, AllocationResult] = field(default_factory=dict)
    allocator: Allocator | None = None
    unavailable: dict[int, None] = field(default_factory=dict)
    found: dict[str, Solution] = field(default_factory=dict)
    allocations: list[AllocationResult] = field(default_factory=list)
    reserved_on: str = ""
    extended: _Extended | None = None
    freed: dict[str, ResourceClaim] = field(default_factory=dict)
    has_retried: bool = False

    def to_allocate(self, node_name: str) -> list[ResourceClaim]:
        """Return the claims without devices, with the one for extended resources as that node needs it."""
        need = self.extended.need.get(node_name) if self.extended is not None else None
        return [*self.open, self.extended.by_need[need][0]] if self.extended is not None and need else self.open

    rows: list[Outcome | None] = field(default_factory=list)
    slots: Mapping[str, int] = field(default_factory=dict)

    def solution(self, node_name: str) -> Solution | None:
        """Return the devices found on a node, by whichever form of Filter was asked last."""
        if node_name in self.found:
            return self.found[node_name]
        row = self.slots.get(node_name)
        found = self.rows[row] if row is not None and row < len(self.rows) else None
        return found if isinstance(found, Solution) else None


_NONE: Final = _Notes()
"""The notes for a pod without claims, or whose claims were not all looked at; never changed."""


class DynamicResourcesArgs(Args, frozen=True):
    """The plugin's arguments. `filterTimeout`: how long the search for one node may take; 0: no limit.

    `bindingTimeout`: how long after the allocation devices may take to be attached.
    """

    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None


class DynamicResources:
    """The plugin: it uses claims as the ledger assumes them, and classes and slices as informers hold them."""

    name = NAME
    gate_delay_s = CLAIM_DELAY_S

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._handle = handle
        self._world = handle.world
        self._ledger = handle.claims
        self._rules = handle.switches.of(ReservationSwitches)
        self._switches = handle.switches.of(DraSwitches)
        given = args.filter_timeout
        timeout_s = self._switches.filter_timeout_s if given is None else float(given)
        self._tries_max = max(int(timeout_s * TRIES_PER_S), 1) if timeout_s else None
        given = args.binding_timeout
        self._binding_timeout_s = self._switches.binding_timeout_s if given is None else float(given)
        self._features = handle.switches.of(Features)
        self._granter = Granter(
            self._ledger,
            self._find,
            handle.wall,
            handle.random,
            self._rules,
            has_binding_conditions=self._features.binding_conditions,
        )
        self._backed = BackedResources()
        if self._switches.has_extended_resources:
            handle.world.on_change(DeviceClass, self._backed.on_change)
            for device_class in handle.world.all(DeviceClass):
                self._backed.on_change(Change(None, device_class))
        self._slices = Slices(handle.world.all(ResourceSlice), self._features)
        for rule in handle.world.all(DeviceTaintRule):
            self._slices.put_rule(rule)
        handle.world.on_change(DeviceTaintRule, self._rule_changed)
        self._outcomes = Outcomes(self._slices, self._ledger.allocated)
        handle.world.on_change(ResourceSlice, self._slice_changed)
        handle.world.on_change(ResourceClaim, self._ledger.on_change)
        for claim in handle.world.all(ResourceClaim):
            self._ledger.on_change(Change(None, claim))

    def _slice_changed(self, change: Change[ResourceSlice]) -> None:
        if change.new is not None:
            self._slices.put(change.new)
        else:
            self._slices.drop(change.object.metadata.name)

    def _rule_changed(self, change: Change[DeviceTaintRule]) -> None:
        if change.new is not None:
            self._slices.put_rule(change.new)
        else:
            self._slices.drop_rule(change.object.metadata.name)

    def _find(self, key: Key) -> ResourceClaim | None:
        return self._ledger.of(key, self._world.get(ResourceClaim, key))

    def _class(self, name: str) -> DeviceClass | None:
        return self._world.get(DeviceClass, Key("", name))

    def _problem_of(self, pod: Pod) -> str:
        return problem_of(pod, self._find, self._group(pod))

    def _group(self, pod: Pod) -> PodGroup | None:
        key = group_of(pod) if self._rules.mode == POD_GROUPS else None
        return None if key is None else self._world.get(PodGroup, key)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject while a claim of the pod is missing, not generated yet, being deleted or another pod's."""
        if not pod.spec.resource_claims:
            return SUCCESS
        problem = self._problem_of(pod.pod)
        return unresolvable(problem) if problem else SUCCESS

    def gate_message(self, pod: PodInfo, status: Status) -> str:
        """Return the message for users about a missing claim; "" for one from a template, which only takes time.

        Source: kep-5501 7.
        """
        wanted = next(
            (
                each
                for each in pod.spec.resource_claims
                if problem_with(pod.pod, each, self._find, self._group(pod.pod))
            ),
            None,
        )
        return "" if wanted is None or wanted.resource_claim_template_name else status.message

    def delay_of_gate(self, pod: PodInfo, status: Status) -> float:
        """Return the report's delay: longer for a claim from a template, which is only on its way."""
        return NAMED_DELAY_S if self.gate_message(pod, status) else TEMPLATE_DELAY_S

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status:
        """Check the claims again: one may have gone since the pod came into the active queue; then sort them."""
        state.data[NAME] = _NONE
        extended = self._backed.among(pod.requests.wanted) if self._backed.classes else None
        if not pod.spec.resource_claims and not extended:
            return SKIP
        problem = self._problem_of(pod.pod)
        if problem:
            return unresolvable(problem)
        notes = _Notes()
        if extended:
            known = self._world.all(ResourceClaim, pod.key.namespace)
            notes.extended = _Extended(extended, made_for(pod.pod, known))
        freed: Mapping[str, ResourceClaim] = state.data.get(FREED, {})
        for key in claim_keys(pod.pod):
            claim = self._find(key)
            assert claim is not None, f"{key} was there a moment ago"
            uid = claim.metadata.uid
            is_moving = uid in freed or self._ledger.moved_from(uid) is not None
            pending = self._ledger.pending(uid) if claim.status.allocation is None or is_moving else None
            if claim.status.allocation is not None and not is_moving:
                notes.granted.append(claim)
            elif pending is None:
                if claim.status.allocation is not None:
                    notes.freed[uid] = claim
                    claim = replace(claim, status=ResourceClaimStatus())
                problem = problem_of_requests(claim, self._class, self._features)
                if problem:
                    return unresolvable(problem)
                notes.open.append(claim)
            elif self._may_share(pod, uid):
                notes.shared[uid] = pending
                notes.granted.append(replace(claim, status=replace(claim.status, allocation=pending)))
            else:
                return unresolvable(f"resource claim {key} is in the process of being allocated")
        if not notes.granted and not notes.open and not notes.extended:
            return SKIP  # it was decided that the pod needs none of them
        if notes.open:
            notes.allocator = self._allocator(notes.open, notes.freed)
        state.data[NAME] = notes
        return SUCCESS

    def _allocator(self, claims: Sequence[ResourceClaim], freed: Iterable[str] = ()) -> Allocator:
        """`freed`: the uids of claims whose devices count as free."""
        allocated = self._ledger.allocated.without(freed) if freed else self._ledger.allocated
        return Allocator(claims, self._class, allocated, self._features, tries_max=self._tries_max)

    def _may_share(self, pod: PodInfo, claim_uid: str) -> bool:
        """Whether the pod may rely on an allocation that another pod's binding will write (`dra.inflight_sharing`)."""
        if self._switches.sharing != "podgroup":
            return self._switches.sharing == "any"
        group = self._handle.groups.group_of(pod)
        if group is None:
            return False
        members = set(self._handle.groups.uids(group))
        return all(uid in members for uid in self._ledger.sharers(claim_uid))

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Reject nodes where an open claim finds no devices, or where a granted one cannot be used."""
        notes = _notes(state)
        if node.node is None:
            return SUCCESS
        solution: Solution | str = ""
        allocator = notes.allocator
        if notes.extended is not None:
            asked = self._extended_allocator(notes, notes.extended, pod, node)
            if isinstance(asked, Status):
                return asked
            allocator = asked or allocator
        if allocator is not None:
            try:
                solution = allocator.allocate(node.name, self._slices.of_node(node.node))
            except AllocationError as error:
                return error_status(str(error))
            if isinstance(solution, str):
                return unresolvable(solution) if self._switches.is_final else unschedulable(solution)
        unusable = [i for i, claim in enumerate(notes.granted) if not self._is_usable(claim, node.node)]
        if unusable:
            notes.unavailable |= dict.fromkeys(unusable)
            return unresolvable(UNAVAILABLE)
        if isinstance(solution, Solution):
            notes.found[node.name] = solution
        return SUCCESS

    def filter_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Mask | None:
        """Return the rows where all claims can be satisfied; outcomes of pods of the same kind are reused."""
        notes = _notes(state)
        reached = state.alive if state.alive is not None else columns.valid
        if notes.extended is not None:
            return self._filter_each(state, pod, columns, reached)
        passed: Mask | None = None
        if notes.allocator is not None:
            # What is remembered is about the devices that are in use, and so is not for a cycle that frees some.
            remembered = (
                Remembered(self._slices, notes.allocator.allocated)
                if notes.freed
                else self._outcomes.of(notes.allocator)
            )
            try:
                remembered.ask(notes.allocator, columns, reached)
            except AllocationError as error:
                state.error = f'running "{NAME}" filter plugin: {error}'
                return columns.full(False)
            # A copy, for what is remembered moves on before a binding that waits has ended.
            notes.rows, notes.slots = remembered.found.copy(), columns.slots
            passed = remembered.passed.copy()
            reached = reached & passed
        for index, claim in enumerate(notes.granted):
            usable = self._usable_rows(claim, columns, reached)
            if (reached & ~usable).any():
                notes.unavailable[index] = None
            passed = usable if passed is None else passed & usable
        return passed

    def explain_all(self, state: CycleState, pod: PodInfo, columns: Columns, refused: Mask) -> list[Refusal]:
        """Return the allocator's reasons for the rows, or else that a claim cannot be used there."""
        notes, by_reason = _notes(state), dict[tuple[str, Code], Mask]()
        final = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        for row in np.flatnonzero(refused):
            answer, node = (notes.rows[row] if notes.rows else None), columns.nodes[row]
            refusal = UNAVAILABLE, final
            # Another filter may have refused the node before; what this one would have said was not asked.
            is_unasked = answer is None and notes.allocator is not None
            if node is not None and (notes.extended is not None or is_unasked):
                status = self.filter(state, pod, node)
                if status.is_success:
                    continue
                refusal = status.message, status.code
            elif isinstance(answer, str):
                refusal = answer, final if self._switches.is_final else Code.UNSCHEDULABLE
            by_reason.setdefault(refusal, columns.full(False))[row] = True
        return [Refusal(reason, mask, code) for (reason, code), mask in by_reason.items()]

    def device_shortages(self, pod: Pod, nodes: Sequence[Node]) -> list[Shortage] | str:
        """Return, for `keplab explain`, the allocator's result on each node for the pod's claims without devices.

        If they cannot be allocated at all, return why.
        """
        claims = [self._find(key) for key in claim_keys(pod)]
        wanted = [claim for claim in claims if claim is not None and claim.status.allocation is None]
        problem = next(
            (text for each in wanted if (text := problem_of_requests(each, self._class, self._features))), ""
        )
        if problem or not wanted:
            return problem
        allocator = self._allocator(wanted)
        holders = {
            result.id: str(claim.metadata.key)
            for claim in self._world.all(ResourceClaim)
            for result in (claim.status.allocation.devices.results if claim.status.allocation is not None else ())
        }
        node_shortages: list[Shortage] = []
        looked_at = 0
        for node in nodes:
            pools = self._slices.of_node(node)
            looked_at += sum(len(pool.candidates) for pool in pools)
            if node_shortages and looked_at > DEVICES_EXPLAINED:
                break  # decisions wait meanwhile
            try:
                node_shortages += shortages(allocator, node.metadata.name, pools, lambda key: holders.get(key, ""))
            except AllocationError as error:
                return str(error)
        return node_shortages

    def _filter_each(self, state: CycleState, pod: PodInfo, columns: Columns, reached: Mask) -> Mask:
        """Return the rows that pass, asked one by one: what is to be allocated differs from node to node."""
        passed = columns.full(False)
        for row in np.flatnonzero(reached):
            node = columns.nodes[row]
            status = self.filter(state, pod, node) if node is not None else SUCCESS
            if status.code is Code.ERROR:
                state.error = f'running "{NAME}" filter plugin: {status.message}'
                return columns.full(False)
            passed[row] = status.is_success
        return passed

    def _usable_rows(self, claim: ResourceClaim, columns: Columns, alive: Mask) -> Mask:
        allocation = claim.status.allocation
        selector = allocation.node_selector if allocation is not None else None
        only = _only_nodes(selector)  # what the devices of one node say
        rows = np.flatnonzero(alive if only is None else columns.mask_of(only))
        usable = columns.full(False)
        for row in rows:
            node = columns.nodes[row]
            usable[row] = node is not None and node.node is not None and self._is_usable(claim, node.node)
        return usable

    def _extended_allocator(
        self, notes: _Notes, extended: _Extended, pod: PodInfo, node: NodeInfo
    ) -> Allocator | Status | None:
        """Return the allocator for what the node does not offer itself, None when it offers everything; or why not."""
        if extended.stale is not None:
            return unresolvable(STALE_CLAIM)  # PostFilter deletes it, and the next attempt begins anew
        need = frozenset(name for name in extended.resources if not node.allocatable.get(name, 0))
        for name, _ in pod.requests.wanted:
            if "/" in name and name not in extended.resources and name not in node.allocatable:
                return unresolvable(CANNOT_FIT)
        extended.need[node.name] = need
        if not need:
            return None
        if need not in extended.by_need:
            requests, mappings = requests_for(pod.pod, need, self._backed)
            claim = claim_in_memory(pod.pod, requests)
            extended.by_need[need] = claim, self._allocator([*notes.open, claim], notes.freed), mappings
        return extended.by_need[need][1]

    def _is_usable(self, claim: ResourceClaim, node: Node) -> bool:
        """Whether the claim's devices can be reached from the node, and may still become ready to be bound to."""
        allocation = claim.status.allocation
        selector = allocation.node_selector if allocation is not None else None
        if selector is not None and not any(term_matches(term, node) for term in selector.node_selector_terms):
            return False
        if not self._features.binding_conditions:
            return True
        if failure_of(claim):
            return False
        return is_ready(claim) or not is_timed_out(claim, self._handle.wall(), self._binding_timeout_s)

    def post_filter(self, state: CycleState, pod: PodInfo, columns: Columns, diagnosis: Diagnosis) -> PostFilterResult:
        """Free a claim that confines the pod to unsuitable nodes, if no other pod may use it (12.1).

        When the pod was rejected before PreFilter came to this plugin, it has no state to read, which is an error
        (as upstream).
        """
        notes: _Notes | None = state.data.get(NAME)
        if notes is None:
            return PostFilterResult(error_status(NOT_FOUND))
        if notes is _NONE:
            return PostFilterResult(unschedulable(NOTHING_TO_DEALLOCATE))
        releases = {
            claim.metadata.uid: (claim, release)
            for index, claim in enumerate(notes.granted)
            if index in notes.unavailable
            and claim.metadata.uid not in notes.shared
            and (release := self._release_for(claim, pod)) is not None
        }
        stale = notes.extended.stale if notes.extended is not None else None
        if not releases and stale is not None:
            self._delete(stale, pod)
            return PostFilterResult(unschedulable(DELETED))
        if not releases:
            return PostFilterResult(unschedulable(STILL_NOT))
        if self._rules.postfilter == "in_memory":
            if notes.has_retried:
                return PostFilterResult(unschedulable(STILL_NOT))
            notes.has_retried = True
            freed = {uid: claim for uid, (claim, _) in releases.items()}
            return PostFilterResult(unschedulable(STILL_NOT), retry_with={FREED: freed})
        # Which one is freed is chance, as upstream; a group is taken off its claim when there is none to be freed.
        all_releases = [release for _, release in releases.values()]
        candidates = [each for each in all_releases if each.how is Release.DEALLOCATE] or all_releases
        chosen = candidates[self._handle.random.randrange(0, len(candidates)) if len(candidates) > 1 else 0]
        self._ledger.request_release(chosen)
        if chosen.how is Release.UNRESERVE_GROUP:
            return PostFilterResult(unresolvable(UNRESERVED))
        return PostFilterResult(unschedulable(DEALLOCATED))

    def _delete(self, claim: ResourceClaim, pod: PodInfo) -> None:
        meta = claim.metadata
        self._ledger.request_release(PendingRelease(Release.DELETE, meta.key, meta.uid, pod.uid))

    def _release_for(self, claim: ResourceClaim, pod: PodInfo) -> PendingRelease | None:
        """Return how the claim is freed, None when others hold it (kep-5194 3.4)."""
        entries = claim.status.reserved_for
        if any(each.is_pod and each.uid != pod.uid for each in entries):
            return None
        of_claim = (claim.metadata.key, claim.metadata.uid, pod.uid)
        if all(each.uid == pod.uid for each in entries):
            return PendingRelease(Release.DEALLOCATE, *of_claim)
        if self._has_scheduled_pods(claim, pod):
            return None
        if self._rules.mode == POD_GROUPS:
            is_only_groups = all(is_group_entry(each) or each.uid == pod.uid for each in entries)
            return PendingRelease(Release.UNRESERVE_GROUP, *of_claim, with_workload=True) if is_only_groups else None
        if self._rules.postfilter == "never_nonpod":
            return None
        return PendingRelease(Release.DEALLOCATE, *of_claim, with_workload=True)

    def _has_scheduled_pods(self, claim: ResourceClaim, pod: PodInfo) -> bool:
        """Whether another pod with a node, or assumed on one, has the claim, as far as this scheduler knows."""
        key = claim.metadata.key
        return any(
            key in claim_keys(other.pod)
            for node in self._handle.cache.nodes.values()
            for other in node.pods.values()
            if other.uid != pod.uid and other.key.namespace == key.namespace and other.spec.resource_claims
        )

    def pre_score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Status:
        """Skip unless a claim of the pod has alternatives."""
        notes: _Notes = state.data.get(NAME, _NONE)
        if notes is _NONE or not self._features.prioritized_list:
            return SKIP
        claims = (*notes.granted, *notes.open)
        has_alternatives = any(request.first_available for claim in claims for request in claim.spec.devices.requests)
        return SUCCESS if has_alternatives else SKIP

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the points for the chosen alternatives: 8 for a first one in its list, 7 for a second."""
        notes = _notes(state)
        solution = notes.solution(node.name)
        if solution is None:
            return 0  # as upstream: where nothing is allocated, all nodes are alike
        return sum(ALTERNATIVES_MAX - index for index in solution.alternatives) + sum(
            _points(claim) for claim in notes.granted
        )

    def normalize(self, state: CycleState, raw: Scores | int, feasible: Mask) -> Scores | int:
        """Scale to 100 for the best node."""
        return default_normalize(raw, feasible, reverse=False)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Allocate the devices found on the node in memory; no other pod gets these from now on."""
        notes: _Notes = state.data.get(NAME, _NONE)
        if notes is _NONE:
            return SUCCESS
        solution = notes.solution(node_name)
        if notes.open and solution is None:
            return error_status("claim allocation not found for node")
        notes.allocations = (
            solution.allocations(node_name, share_ids(self._handle.random)) if solution is not None else []
        )
        for claim, allocation in zip(notes.to_allocate(node_name), notes.allocations, strict=True):
            self._ledger.allocate(claim, allocation, pod.uid, moved_from=notes.freed.get(claim.metadata.uid))
        for claim in notes.granted:
            if claim.metadata.uid in notes.shared:
                self._ledger.allocate(claim, notes.shared[claim.metadata.uid], pod.uid)
        notes.reserved_on = node_name
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo the allocations in memory; if the pod is listed in a claim by now, request its removal.

        A workload stays listed, even if this pod put it there: other pods may rely on it.
        """
        notes: _Notes = state.data.get(NAME, _NONE)
        if not notes.reserved_on:
            return
        notes.reserved_on = ""
        for claim in (*notes.granted, *notes.to_allocate(node_name)):
            self._ledger.retract(claim, pod.uid)
            current = self._find(claim.metadata.key)
            if current is not None and current.status.is_reserved_for(pod.uid):
                release = PendingRelease(Release.UNRESERVE, current.metadata.key, current.metadata.uid, pod.uid)
                self._ledger.request_release(release)
        written = notes.extended.claim if notes.extended is not None else None
        if written is not None:
            self._ledger.retract(written, pod.uid)
            self._delete(written, pod)

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Skip when the pod has no claims (KEP-5278)."""
        return SKIP if state.data.get(NAME, _NONE) is _NONE else SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str, client: Any) -> Status:
        """Write the consumers and devices, claim by claim; then wait until the devices are attached."""
        notes, group = _notes(state), self._group(pod.pod)
        work: list[tuple[ResourceClaim, AllocationResult | None]] = [
            *((claim, notes.shared.get(claim.metadata.uid)) for claim in notes.granted),
            *zip(notes.open, notes.allocations, strict=False),
        ]
        for claim, _ in work:
            # All before the first is granted: one may get what another had.
            status = await deallocate_moved(claim, pod.uid, self._ledger, client)
            if not status.is_success:
                return status
        for claim, allocation in work:
            status = await self._granter.grant(pod, claim, allocation, client, group)
            if not status.is_success:
                return status
        keys = [claim.metadata.key for claim, _ in work]
        extended = notes.extended
        if extended is not None and extended.need.get(node_name):
            in_memory, _, mappings = extended.by_need[extended.need[node_name]]
            created_claim = await self._granter.create(pod, in_memory, client)
            if isinstance(created_claim, Status):
                return created_claim
            extended.claim = created_claim
            status = await self._granter.grant(pod, created_claim, notes.allocations[-1], client)
            if status.is_success:
                status = await self._granter.name_in_status(pod, created_claim, mappings, client)
            if not status.is_success:
                return status
            keys.append(created_claim.metadata.key)
        return await self._wait_for_devices(pod, node_name, keys)

    async def _wait_for_devices(self, pod: PodInfo, node_name: str, keys: Sequence[Key]) -> Status:
        """Return once the binding conditions of all devices are True, or why they will not be."""
        claims = [claim for key in keys if (claim := self._find(key)) is not None]
        drivers = list(dict.fromkeys(driver for claim in claims for driver in drivers_to_wait_for(claim)))
        if not drivers or not self._features.binding_conditions:
            return SUCCESS
        text = f"waiting for binding conditions for device on node {node_name}"
        self._handle.events.send(pod, CONDITIONS_PENDING, text, action="Scheduling")
        clock = asyncio.get_running_loop().time
        began = clock()
        ended_as, problem = await self._poll(keys, began + self._binding_timeout_s)
        for driver in drivers:
            self._ledger.metrics.observe_wait(pod.spec.scheduler_name, driver, ended_as, clock() - began)
        return error_status(problem) if problem else SUCCESS

    async def _poll(self, keys: Sequence[Key], due: float) -> tuple[str, str]:
        """Return how the wait ended, in the words of the metric, and the error; "" for none."""
        clock = asyncio.get_running_loop().time
        while True:
            is_waiting = False
            for key in keys:
                claim = self._find(key)
                if claim is None:
                    return "error", f'resourceclaim.resource.k8s.io "{key.name}" not found'
                problem = failure_of(claim)
                if problem:
                    return "failure", problem
                if not is_ready(claim):
                    if is_timed_out(claim, self._handle.wall(), self._binding_timeout_s):
                        return "timeout", f"device binding timeout: claim={key.name}"
                    is_waiting = True
                    break
            if not is_waiting:
                return "success", ""
            left = due - clock()
            if left <= 0:
                return "timeout", "device binding timeout: context deadline exceeded"
            await asyncio.sleep(min(self._switches.binding_poll_s, left))

    def events_to_register(self) -> Sequence[Registration]:
        """Return events of claims, classes, slices and nodes; and of pods with claims that fail to reach their node."""
        change = Action.ADD | Action.UPDATE
        nodes = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
        return (
            Registration(ClusterEvent(NODE, nodes)),
            Registration(
                ClusterEvent("ResourceClaim", change | Action.DELETE),
                self._after_claim_change,
                Subjects(_claims_named_by, _claim_concerned),
            ),
            Registration(ClusterEvent(POD, Action.UPDATE_POD_GENERATED_CLAIM), self._after_pod_change),
            Registration(ClusterEvent("DeviceClass", change)),
            Registration(ClusterEvent("ResourceSlice", change)),
            # Devices allocated to a pod whose binding failed are free again without any change of a claim.
            Registration(ClusterEvent(ASSIGNED_POD, Action.DELETE), _after_pod_left),
        )

    def _after_claim_change(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim | None) -> Hint:
        """Queue the pod when all its claims are usable now and this one is among them, and new or in a new state."""
        if new is None:  # of its devices, and of a claim that an earlier attempt left
            return queue_if(
                old is not None and (old.status.allocation is not None or made_for(pod.pod, (old,)) is not None)
            )
        concerned = _claim_concerned(old, new)
        if concerned is not None and not any(key in _claims_named_by(pod) for key in concerned):
            return Hint.SKIP
        return queue_if(not self._problem_of(pod.pod))

    def _after_pod_change(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
        return queue_if(new is not None and new.metadata.uid == pod.uid and not self._problem_of(new))


def _claim_concerned(old: ResourceClaim | None, new: ResourceClaim | None) -> tuple[Key, ...] | None:
    """Return the claim that a pod must name for a change of it to help; None: devices became free for any pod."""
    if new is None or (old is not None and old.status.allocation is not None and new.status.allocation is None):
        return None
    return () if old is not None and old.status == new.status else (new.metadata.key,)


def _claims_named_by(pod: PodInfo) -> tuple[Key, ...]:
    """Return the pod's claims; while none was made for it, those that its spec names."""
    return tuple(claim_keys(pod.pod))


def _after_pod_left(pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
    return queue_if(old is not None and bool(old.spec.resource_claims))


def _only_nodes(selector: NodeSelector | None) -> tuple[str, ...] | None:
    """Return the names, when the selector says nothing but the names of nodes."""
    terms = selector.node_selector_terms if selector is not None else ()
    if len(terms) != 1 or terms[0].match_expressions or len(terms[0].match_fields) != 1:
        return None
    field = terms[0].match_fields[0]
    return field.values if field.key == NAME_FIELD and field.operator == "In" else None


def _notes(state: CycleState) -> _Notes:
    notes: _Notes = state.data[NAME]
    return notes


def _points(claim: ResourceClaim) -> int:
    allocation = claim.status.allocation
    chosen = {each.request for each in allocation.devices.results} if allocation is not None else frozenset()
    return sum(
        ALTERNATIVES_MAX - index
        for request in claim.spec.devices.requests
        for index, alternative in enumerate(request.first_available)
        if f"{request.name}/{alternative.name}" in chosen
    )


PLUGIN = PluginEntry(NAME, DynamicResources, args=DynamicResourcesArgs)
