"""Conditions under which a workload that still exists makes no more pods, so that its claim can be released.

Source: controllers 1.6; kep-5194 5.2.
"""

from collections.abc import Callable

from services.api.kinds.deployment import Deployment
from services.api.kinds.job import Job
from services.api.kinds.replicaset import ReplicaSet
from services.api.kinds.statefulset import StatefulSet
from services.api.switches import Switches
from services.reconcile.claim_release import ReleaseSwitches
from services.reconcile.controller import Listers

Scaled = ReplicaSet | StatefulSet | Deployment


def is_scaled_to_zero(switches: Switches) -> Callable[[Scaled, Listers], bool]:
    """Return a check whether a workload has no replicas and its controller has observed that."""
    is_on = switches.of(ReleaseSwitches).on_scale_to_zero
    return lambda owner, listers: is_on and _is_empty(owner)


def is_rolled_to_zero(switches: Switches) -> Callable[[Deployment, Listers], bool]:
    """Return a check whether a Deployment and all its ReplicaSets have no replicas; during a rollout they share the
    claim.
    """
    is_on = switches.of(ReleaseSwitches).on_scale_to_zero

    def is_done(deployment: Deployment, listers: Listers) -> bool:
        sets = listers.of(ReplicaSet).owned_by(deployment.metadata.uid)
        return is_on and _is_empty(deployment) and all(_is_empty(each) for each in sets)

    return is_done


def is_over_or_suspended(switches: Switches) -> Callable[[Job, Listers], bool]:
    """Return a check whether a Job has ended and no pod of it terminates; or, if so configured, is suspended and
    idle.
    """
    on_suspend = switches.of(ReleaseSwitches).on_suspend

    def is_done(job: Job, listers: Listers) -> bool:
        if job.is_finished:
            return not job.status.terminating
        return on_suspend and job.spec.suspend and job.status.active == 0

    return is_done


def _is_empty(owner: Scaled) -> bool:
    return owner.spec.replicas == 0 and owner.status.observed_generation >= owner.metadata.generation
