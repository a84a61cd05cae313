"""Delete finished Jobs once their `ttlSecondsAfterFinished` has passed (KEP-592).

The TTL counts from the condition Complete or Failed. The job is read again before its deletion: a client may
have raised the TTL. Garbage collection deletes its pods.
"""

from services.api.kinds.job import Job
from services.api.meta import Key
from services.controllers.shared_pods import seconds_of
from services.reconcile.actions import NOTHING, Delete, Query, Result
from services.reconcile.controller import Controller, Listers, Moment, Registration


def expires_at_s(job: Job) -> float | None:
    """Return when the job expires, in epoch seconds; None if it does not expire."""
    ttl = job.spec.ttl_seconds_after_finished
    if ttl is None or job.metadata.deletion_timestamp is not None:
        return None
    ended = [c for c in job.status.conditions if c.type in ("Complete", "Failed") and c.status == "True"]
    return seconds_of(ended[0].last_transition_time) + ttl if ended else None


def reconcile(key: Key, listers: Listers, moment: Moment) -> Result:
    """Wait for the expiry, read the job again, delete it."""
    job = listers.of(Job).get(key)
    if job is None or (due_s := expires_at_s(job)) is None:
        return NOTHING
    if due_s > moment.wall_s:
        return Result(requeue_after_s=due_s - moment.wall_s)
    query = Query(Job, key)
    if query not in moment.live:
        return Result(refresh=(query,))
    live = moment.live[query]
    if not isinstance(live, Job) or live.metadata.uid != job.metadata.uid:
        return NOTHING
    due_s = expires_at_s(live)
    if due_s is None or due_s > moment.wall_s:
        return NOTHING if due_s is None else Result(requeue_after_s=due_s - moment.wall_s)
    uid, version = live.metadata.uid, live.metadata.resource_version
    return Result((Delete("jobs.batch", key, uid=uid, resource_version=version, propagation="Foreground"),))


CONTROLLER = Registration(
    "ttl-after-finished", lambda _: Controller("ttl-after-finished", Job, reconcile), start_order=6
)
