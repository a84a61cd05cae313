"""DynamicResources, as far as it comes before devices: a pod waits until the claims it names exist (KEP-4381).

A pod names a ResourceClaim, or a template that the claim controller makes one from; until that one is there, is
the pod's own and is not going away, the pod stays out of the active queue. Allocating devices, scoring and
reserving them are a later piece of work: a pod whose claims exist is placed without looking at devices.
Source: upstream `plugins/dynamicresources`; texts of v1.36. Deviates: no allocation, so nothing to give back either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.columns import Columns
from scheduler.entry import Args, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.events import NODE, POD, Action, ClusterEvent, Hint, Registration
from scheduler.framework.interface import (
    SKIP,
    SUCCESS,
    PostFilterResult,
    PreFilterResult,
    Status,
    unresolvable,
    unschedulable,
)
from scheduler.node_info import PodInfo
from scheduler.world import World
from services.api.duration import Duration
from services.api.kinds.pod import Pod, PodResourceClaim
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.meta import Key

NOTHING_TO_DEALLOCATE: Final = "no new claims to deallocate"
STILL_NOT: Final = "still not schedulable"


class DynamicResources:
    """Knows the claims as informers hold them."""

    name = "DynamicResources"

    def __init__(self, world: World) -> None:
        self._world = world

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Say no while a claim of the pod is missing, not generated yet, being deleted or somebody else's."""
        problem = self._problem(pod.pod)
        return unresolvable(problem) if problem else SUCCESS

    def gate_message(self, pod: PodInfo, status: Status) -> str:
        """A missing claim is news to users; one made from a template is only on its way to us (kep-5501 7)."""
        wanted = next((each for each in pod.spec.resource_claims if self._problem_with(pod.pod, each)), None)
        return "" if wanted is None or wanted.resource_claim_template_name else status.message

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> PreFilterResult | Status:
        """Look again: a claim may have gone since the pod came into the active queue."""
        if not pod.spec.resource_claims:
            return SKIP
        problem = self._problem(pod.pod)
        return unresolvable(problem) if problem else SKIP

    def post_filter(self, state: CycleState, pod: PodInfo, columns: Columns, diagnosis: Diagnosis) -> PostFilterResult:
        """Give back a claim that holds the pod to a full node; there is none, so this only says so (12.1)."""
        has_usable_claims = pod.spec.resource_claims and not self._problem(pod.pod)
        return PostFilterResult(unschedulable(STILL_NOT if has_usable_claims else NOTHING_TO_DEALLOCATE))

    def events_to_register(self) -> Sequence[Registration]:
        """A claim that comes or changes, the pod's status that names a generated one, and, as upstream, nodes."""
        nodes = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return (
            Registration(ClusterEvent(NODE, nodes)),
            Registration(ClusterEvent("ResourceClaim", Action.ADD | Action.UPDATE), self._after_claim_change),
            Registration(ClusterEvent(POD, Action.UPDATE_POD_GENERATED_CLAIM), self._after_pod_change),
        )

    def _after_claim_change(self, pod: PodInfo, old: ResourceClaim | None, new: ResourceClaim | None) -> Hint:
        """Queue the pod when all its claims are usable now and this one is among them, and new or in a new state."""
        if new is None or self._problem(pod.pod):
            return Hint.SKIP
        if old is not None and old.status.allocation is not None and new.status.allocation is None:
            return Hint.QUEUE
        names = {_claim_name(pod.pod, wanted) for wanted in pod.spec.resource_claims}
        if new.metadata.namespace != pod.key.namespace or new.metadata.name not in names:
            return Hint.SKIP
        return Hint.QUEUE if old is None or old.status != new.status else Hint.SKIP

    def _after_pod_change(self, pod: PodInfo, old: Pod | None, new: Pod | None) -> Hint:
        if new is None or new.metadata.uid != pod.uid or self._problem(new):
            return Hint.SKIP
        return Hint.QUEUE

    def _problem(self, pod: Pod) -> str:
        """Return what is wrong with the first claim that is not usable, "" when all are."""
        for wanted in pod.spec.resource_claims:
            problem = self._problem_with(pod, wanted)
            if problem:
                return problem
        return ""

    def _problem_with(self, pod: Pod, wanted: PodResourceClaim) -> str:
        namespace = pod.metadata.namespace
        if not wanted.resource_claim_name and not wanted.resource_claim_template_name:
            return (f'pod "{pod.metadata.key}", spec.resourceClaim "{wanted.name}": '
                    "none of the supported fields are set")  # fmt: skip
        if self._is_being_generated(pod, wanted):
            return f'pod "{pod.metadata.key}": ResourceClaim not created yet'
        name = _claim_name(pod, wanted)
        if name is None:
            return ""  # the controller decided that this pod needs no claim
        claim = self._world.get(ResourceClaim, Key(namespace, name))
        if claim is None:
            return f'could not find ResourceClaim "{namespace}/{name}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'resourceclaim "{name}" is being deleted'
        owner = claim.metadata.controller
        if wanted.resource_claim_template_name and (owner is None or owner.uid != pod.metadata.uid):
            return (f"ResourceClaim {namespace}/{name} was not created for pod {pod.metadata.key} "
                    "(pod is not owner)")  # fmt: skip
        return ""

    @staticmethod
    def _is_being_generated(pod: Pod, wanted: PodResourceClaim) -> bool:
        """Whether the claim is to be made from a template, and nobody has said yet what became of that."""
        if wanted.resource_claim_name or not wanted.resource_claim_template_name:
            return False
        return all(status.name != wanted.name for status in pod.status.resource_claim_statuses)


def _claim_name(pod: Pod, wanted: PodResourceClaim) -> str | None:
    """Return the name of the claim, None when there is none."""
    if wanted.resource_claim_name:
        return wanted.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == wanted.name:
            return status.resource_claim_name
    return None


class DynamicResourcesArgs(Args, frozen=True):
    """How long allocating for a node, and waiting for devices, may take. Nothing here allocates, so neither is used."""

    filter_timeout: Duration | None = None
    binding_timeout: Duration | None = None


PLUGIN = PluginEntry("DynamicResources", lambda args, handle: DynamicResources(handle.world), args=DynamicResourcesArgs)
