"""DynamicResources: pods wait for their claims, go where there are devices for these, and get them (KEP-4381).

PreEnqueue: the claims must exist. PreFilter: they must not be on their way to another pod. Filter: a claim with
devices must be usable on the node, one without must find some there. Reserve allocates them in memory, PreBind writes,
and PostFilter frees a claim whose devices keep the pod from every node. All its rejections are final for preemption: no
devices are freed by evicting pods.
Source: dra-core 6; upstream `pkg/scheduler/framework/plugins/dynamicresources` (texts of v1.36).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.node_selection import term_matches
from scheduler.dra.claim_writer import Granter
from scheduler.dra.ledger import PendingRelease, Release
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState, Diagnosis
from scheduler.framework.events import ASSIGNED_POD, NODE, POD, Action, ClusterEvent, Hint, Registration, queue_if
from scheduler.framework.plugin import PostFilterResult, PreFilterResult
from scheduler.framework.status import SKIP, SUCCESS, Status, failed, unresolvable, unschedulable
from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import CONSUMERS_MAX, AllocationResult, ResourceClaim
from services.api.kinds.resourceslice import ResourceSlice
from services.api.meta import Key
from services.api.times import Duration
from services.dra.allocator import AllocationError, Allocator
from services.dra.pod_claims import claim_keys, claim_name, problem_of, problem_with
from services.dra.pools import Slices
from services.reconcile.controller import Change

NAME: Final = "DynamicResources"
NOTHING_TO_DEALLOCATE: Final = "no new claims to deallocate"
STILL_NOT: Final = "still not schedulable"
DEALLOCATED: Final = "deallocation of ResourceClaim completed"
UNAVAILABLE: Final = "resourceclaim not available on the node"
FILTER_TIMEOUT_S: Final = 10.0
TRIES_PER_S: Final = 200_000
"""A search is cut by its steps, not by a clock, so that it ends the same everywhere; a second has about this many."""


@dataclass
class _Notes:
    """What a cycle learns. `granted` and `open`: claims with devices, and without. `unavailable`: indices of granted
    claims that some node could not use; `found`: by node, one allocation for each open claim."""

    granted: list[ResourceClaim] = field(default_factory=list)
    open: list[ResourceClaim] = field(default_factory=list)
    allocator: Allocator | None = None
    unavailable: dict[int, None] = field(default_factory=dict)
    found: dict[str, list[AllocationResult]] = field(default_factory=dict)
    reserved_on: str = ""


class DynamicResourcesArgs(Args, frozen=True):
    """How long the search for one node may take; 0: as long as it takes.
    `bindingTimeout` is for devices with binding conditions: none here."""

    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None


class DynamicResources:
    """Knows claims as the ledger assumes them to be, and classes and slices as informers hold them."""

    name = NAME

    def __init__(self, args: DynamicResourcesArgs, handle: Handle) -> None:
        self._handle = handle
        self._world = handle.world
        self._ledger = handle.claims
        timeout_s = FILTER_TIMEOUT_S if args.filter_timeout is None else float(args.filter_timeout)
        self._tries_max = int(timeout_s * TRIES_PER_S) or None
        self._granter = Granter(self._ledger, self._find, handle.wall)
        self._slices: Slices | None = None
        handle.world.on_change(ResourceSlice, self._slices_changed)
        handle.world.on_change(ResourceClaim, self._ledger.on_change)
        for claim in handle.world.all(ResourceClaim):
            self._ledger.on_change(Change(None, claim))

    def _slices_changed(self, _: Change[ResourceSlice]) -> None:
        self._slices = None

    def _find(self, key: Key) -> ResourceClaim | None:
        return self._ledger.of(key, self._world.get(ResourceClaim, key))

    def _class(self, name: str) -> DeviceClass | None:
        return self._world.get(DeviceClass, Key("", name))

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Reject while a claim of the pod is missing, not generated yet, being deleted or another pod's."""
        problem = problem_of(pod.pod, self._find)
        return unresolvable(problem) if problem else SUCCESS

    def gate_message(self, pod: PodInfo, status: Status) -> str:
        """A missing claim is news to users; one made from a template is only on its way to us (kep-5501 7)."""
        wanted = next((each for each in pod.spec.resource_claims if problem_with(pod.pod, each, self._find)), None)
        return "" if wanted is None or wanted.resource_claim_template_name else status.message

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status:
        """Look again: a claim may have gone since the pod came into the active queue; then sort the claims."""
        if not pod.spec.resource_claims:
            return SKIP
        problem = problem_of(pod.pod, self._find)
        if problem:
            return unresolvable(problem)
        notes = _Notes()
        for key in claim_keys(pod.pod):
            claim = self._find(key)
            assert claim is not None, f"{key} was there a moment ago"
            if claim.status.allocation is not None:
                is_full = len(claim.status.reserved_for) >= CONSUMERS_MAX
                if is_full and not claim.status.is_reserved_for(pod.uid):
                    return unresolvable("resourceclaim in use")
                notes.granted.append(claim)
            elif self._ledger.is_in_flight(claim.metadata.uid):
                return unresolvable(f"resource claim {key} is in the process of being allocated")
            else:
                notes.open.append(claim)
        if not notes.granted and not notes.open:
            return SKIP  # it was decided that the pod needs none of them
        if notes.open:
            try:
                notes.allocator = Allocator(notes.open, self._class, self._ledger.in_use, tries_max=self._tries_max)
            except AllocationError as error:
                return failed(str(error))
            if notes.allocator.missing:
                return unresolvable(notes.allocator.missing)
        state.data[NAME] = notes
        return SUCCESS

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Say no where a granted claim cannot be used, and where an open one finds no devices."""
        notes = _notes(state)
        if node.node is None:
            return SUCCESS
        unusable = [i for i, claim in enumerate(notes.granted) if not _is_usable(claim, node.node)]
        if unusable:
            notes.unavailable |= dict.fromkeys(unusable)
            return unresolvable(UNAVAILABLE)
        if notes.allocator is None:
            return SUCCESS
        if self._slices is None:
            self._slices = Slices(self._world.all(ResourceSlice))
        try:
            found = notes.allocator.allocate(node.name, self._slices.of_node(node.node))
        except AllocationError as error:
            return failed(str(error))
        if isinstance(found, str):
            return unresolvable(found)
        notes.found[node.name] = found
        return SUCCESS

    def post_filter(self, state: CycleState, pod: PodInfo, columns: Columns, diagnosis: Diagnosis) -> PostFilterResult:
        """Free a claim that holds the pod to nodes it cannot go to, if no other pod may use it (12.1)."""
        notes: _Notes | None = state.data.get(NAME)
        if notes is None:
            has_claims = pod.spec.resource_claims and not problem_of(pod.pod, self._find)
            return PostFilterResult(unschedulable(STILL_NOT if has_claims else NOTHING_TO_DEALLOCATE))
        own = [
            claim
            for index, claim in enumerate(notes.granted)
            if index in notes.unavailable and all(each.uid == pod.uid for each in claim.status.reserved_for)
        ]
        if own:  # which one is freed is chance, as upstream
            chosen = own[self._handle.random.randrange(0, len(own)) if len(own) > 1 else 0]
            self._release(Release.DEALLOCATE, chosen, pod)
        return PostFilterResult(unschedulable(DEALLOCATED if own else STILL_NOT))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Promise the claims the devices found on the node; no other pod is given these from now on."""
        notes: _Notes | None = state.data.get(NAME)
        if notes is None:
            return SUCCESS
        allocations = notes.found.get(node_name)
        if notes.open and allocations is None:
            return failed("claim allocation not found for node")
        for claim, allocation in zip(notes.open, allocations or (), strict=True):
            self._ledger.allocate(claim, allocation)
        notes.reserved_on = node_name
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo the allocations in memory; where the pod is listed by now, have it taken off."""
        notes: _Notes | None = state.data.get(NAME)
        if notes is None or not notes.reserved_on:
            return
        notes.reserved_on = ""
        for claim in notes.open:
            self._ledger.settle(claim)
        for claim in (*notes.granted, *notes.open):
            current = self._find(claim.metadata.key)
            if current is not None and current.status.is_reserved_for(pod.uid):
                self._release(Release.UNRESERVE, current, pod)

    def _release(self, how: Release, claim: ResourceClaim, pod: PodInfo) -> None:
        self._ledger.request_release(PendingRelease(how, claim.metadata.key, claim.metadata.uid, pod.uid))

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Skip when every claim has its devices and lists the pod already (KEP-5278)."""
        notes: _Notes | None = state.data.get(NAME)
        if notes is None:
            return SKIP
        is_done = not notes.open and all(claim.status.is_reserved_for(pod.uid) for claim in notes.granted)
        return SKIP if is_done else SUCCESS

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str, client: Any) -> Status:
        """Write down who may use which devices, claim by claim."""
        notes = _notes(state)
        allocations = notes.found[node_name] if notes.open else []
        work: list[tuple[ResourceClaim, AllocationResult | None]] = [
            *((claim, None) for claim in notes.granted if not claim.status.is_reserved_for(pod.uid)),
            *zip(notes.open, allocations, strict=True),
        ]
        for claim, allocation in work:
            status = await self._granter.grant(pod, claim, allocation, client)
            if not status.is_success:
                return status
        return SUCCESS

    def events_to_register(self) -> Sequence[Registration]:
        """Claims that come or change, classes, slices, nodes; and pods with claims that fail to reach their node."""
        change = Action.ADD | Action.UPDATE
        nodes = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT | Action.UPDATE_NODE_ALLOCATABLE
        return (
            Registration(ClusterEvent(NODE, nodes)),
            Registration(ClusterEvent("ResourceClaim", change), self._after_claim_change),
            Registration(ClusterEvent(POD, Action.UPDATE_POD_GENERATED_CLAIM), self._after_pod_change),
            Registration(ClusterEvent("DeviceClass", change)),
            Registration(ClusterEvent("ResourceSlice", change)),
            # Devices allocated to a pod whose binding failed are free again without any change of a claim.
            Registration(ClusterEvent(ASSIGNED_POD, Action.DELETE), _after_pod_left),
        )

    def _after_claim_change(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim | None) -> Hint:
        """Queue the pod when all its claims are usable now and this one is among them, and new or in a new state."""
        if new is None or problem_of(pod.pod, self._find):
            return Hint.SKIP
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return Hint.QUEUE
        names = {claim_name(pod.pod, wanted) for wanted in pod.spec.resource_claims}
        if new.metadata.namespace != pod.key.namespace or new.metadata.name not in names:
            return Hint.SKIP
        return queue_if(old is None or old.status != new.status)

    def _after_pod_change(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
        return queue_if(new is not None and new.metadata.uid == pod.uid and not problem_of(new, self._find))


def _after_pod_left(pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
    return queue_if(old is not None and bool(old.spec.resource_claims))


def _notes(state: CycleState) -> _Notes:
    notes: _Notes = state.data[NAME]
    return notes


def _is_usable(claim: ResourceClaim, node: Node) -> bool:
    allocation = claim.status.allocation
    selector = allocation.node_selector if allocation is not None else None
    return selector is None or any(term_matches(term, node) for term in selector.node_selector_terms)


PLUGIN = PluginEntry(NAME, DynamicResources, args=DynamicResourcesArgs)
