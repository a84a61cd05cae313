"""Meaning of an ended pod for its Job: success, failure, or ignored. Pure.

Source: controllers 5.1, 5.2; KEP-3329, KEP-3850, KEP-3939, KEP-3998.
"""

from dataclasses import dataclass

from services.api.kinds import job as jobs
from services.api.kinds.job import Job, PodFailurePolicyRule
from services.api.kinds.pod import ContainerStatus, Pod
from services.controllers.shared_pods import seconds_of


@dataclass(frozen=True)
class Meaning:
    """Meaning of a failed pod for its job. `fails_job`: why the whole job fails; empty if it does not."""

    is_counted: bool = True
    fails_job: str = ""
    fails_index: bool = False


COUNTED = Meaning()
IGNORED = Meaning(is_counted=False)


def has_failed(pod: Pod, job: Job) -> bool:
    """Whether the pod failed, or is being deleted where that is enough for a replacement (KEP-3939)."""
    if job.spec.replaces_failed_only or pod.is_terminal:
        return pod.status.phase == "Failed"
    return pod.metadata.deletion_timestamp is not None


def meaning_of(pod: Pod, job: Job, *, counts_rejections: bool = True) -> Meaning:
    """Return the meaning of a failed pod; the first matching rule of the job's policy decides.

    A policy applies only to pods that have ended. `counts_rejections` False: a pod that a kubelet refused before
    any container ran is ignored.
    """
    if not counts_rejections and is_rejection(pod):
        return IGNORED
    policy = job.spec.pod_failure_policy
    if policy is None or pod.status.phase != "Failed":
        return COUNTED
    for number, rule in enumerate(policy.rules):
        if not (match_text := _match(rule, pod)):
            continue
        match rule.action:
            case "Ignore":
                return IGNORED
            case "FailIndex":
                return Meaning(fails_index=True)
            case "FailJob":
                return Meaning(fails_job=f"{match_text} matching FailJob rule at index {number}")
            case "Count":
                return COUNTED
    return COUNTED


def is_rejection(pod: Pod) -> bool:
    """Whether a kubelet refused the pod: it failed with a reason of its own and no container ever ran."""
    status = pod.status
    if status.phase != "Failed" or not status.reason or not pod.spec.node_name:
        return False
    if any(c.type == "DisruptionTarget" and c.status == "True" for c in status.conditions):
        return False
    every = (*status.init_container_statuses, *status.container_statuses)
    return not any(c.state.running or c.state.terminated or c.restart_count for c in every)


def _match(rule: PodFailurePolicyRule, pod: Pod) -> str:
    """Return what of the pod meets the rule, for the condition's message; "" when nothing does."""
    name = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    if rule.on_exit_codes is not None:
        for container in (*pod.status.container_statuses, *pod.status.init_container_statuses):
            if (code := _exit_code(container, rule)) is not None:
                return f"Container {container.name} for {name} failed with exit code {code}"
        return ""
    for pattern in rule.on_pod_conditions:
        for condition in pod.status.conditions:
            if (condition.type, condition.status) == (pattern.type, pattern.status):
                return f"{name[0].upper()}{name[1:]} has condition {condition.type}"
    return ""


def _exit_code(container: ContainerStatus, rule: PodFailurePolicyRule) -> int | None:
    wanted = rule.on_exit_codes
    assert wanted is not None
    if container.state.terminated is None or wanted.container_name not in (None, container.name):
        return None
    code = container.state.terminated.exit_code
    is_in = code in wanted.values
    # A container that succeeded never matches, not even NotIn.
    return code if code != 0 and is_in == (wanted.operator == "In") else None


def success_rule_met(job: Job, completed: frozenset[int]) -> int | None:
    """Return the number of the first success policy rule that is met, or None."""
    policy, completions = job.spec.success_policy, job.spec.completions or 0
    for number, rule in enumerate(policy.rules if policy is not None else ()):
        if rule.succeeded_indexes is not None:
            wanted = jobs.parse_indexes(rule.succeeded_indexes, completions)
            most = len(wanted) if rule.succeeded_count is None else rule.succeeded_count
            if len(wanted & completed) >= most:
                return number
        elif rule.succeeded_count is not None and len(completed) >= rule.succeeded_count:
            return number
    return None


def index_of(pod: Pod, job: Job) -> int | None:
    """Return the pod's completion index; None if it has none within the job's range."""
    text = pod.metadata.annotations.get(jobs.COMPLETION_INDEX, "")
    if not (text.isascii() and text.isdigit()) or int(text) >= (job.spec.completions or 0):
        return None
    return int(text)


def index_failures(pod: Pod) -> tuple[int, int]:
    """Return how often the pod's index failed earlier: counted and ignored failures."""
    return _number(pod, jobs.INDEX_FAILURES), _number(pod, jobs.INDEX_IGNORED_FAILURES)


def _number(pod: Pod, annotation: str) -> int:
    text = pod.metadata.annotations.get(annotation, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def fails_index(pod: Pod, job: Job, meaning: Meaning) -> bool:
    """Whether this failed pod exhausts the limit of its index (KEP-3850)."""
    limit = job.spec.backoff_limit_per_index
    if limit is None:
        return False
    return meaning.fails_index or (meaning.is_counted and index_failures(pod)[0] >= limit)


def ended_at_s(pod: Pod, now_wall_s: float) -> float:
    """Return when the pod ended, in epoch seconds: its last container's end, its deletion, or now."""
    ends = [
        seconds_of(c.state.terminated.finished_at)
        for c in (*pod.status.container_statuses, *pod.status.init_container_statuses)
        if c.state.terminated is not None
    ]
    if latest := max(ends, default=0.0):
        return latest
    if pod.metadata.deletion_timestamp is not None:
        asked_s = pod.metadata.deletion_grace_period_seconds or 0
        return min(now_wall_s, seconds_of(pod.metadata.deletion_timestamp) - asked_s)
    ready = [seconds_of(c.last_transition_time) for c in pod.status.conditions if c.type == "Ready"]
    return max(ready, default=0.0) or now_wall_s
