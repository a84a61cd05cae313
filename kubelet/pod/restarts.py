"""The back-off of containers that ended, before they run again. Pure.

Source: kubelet 3.3; upstream `pkg/kubelet/kuberuntime/kuberuntime_manager.go` (`doBackOff`).
"""

from kubelet.pod.container import Container
from kubelet.pod.context import CRASHLOOP_S, SYNC_S, PodContext
from kubelet.pod.states import ContainerState
from kubelet.timers import EARLY_S

CRASHLOOP_RESET_S = 600.0
"""Seconds that a container has to run for its back-off to begin anew."""
REDUCED_CRASHLOOP_S = (1.0, 60.0)
"""First and longest back-off with ReduceDefaultCrashLoopBackOffDecay, in seconds."""


def crashloop_bounds(
    initial_s: float, max_s: float, *, is_reduced: bool, node_max_s: float = 0.0
) -> tuple[float, float]:
    """Return a node's first and longest back-off in seconds; 0 stands for Kubernetes' own value.

    A node's own maximum below the first makes all back-offs equal to it. Source: KEP-4603.
    """
    first_s, longest_s = REDUCED_CRASHLOOP_S if is_reduced else CRASHLOOP_S
    longest_s = node_max_s or max_s or longest_s
    return min(initial_s or first_s, longest_s), longest_s


def back_off(pod: PodContext, container: Container, ended_s: float, t: float) -> bool:
    """Back off a container that ended at `ended_s`; return whether it has to wait.

    After the first crash it does not wait, then `crashloop_initial_s`, then twice as long each time up to
    `crashloop_max_s`; a run of ten minutes makes the next crash the first one. After an end by a probe it waits
    from the end of the run before, so mostly not at all (upstream looks for an ended container before it stops
    the unhealthy one).
    """
    since_s: float | None = container.former_end_s if container.unhealthy else ended_s
    if since_s is None:
        return False
    if container.backoff_s is None or since_s - container.started_s >= CRASHLOOP_RESET_S:
        container.backoff_s = 0.0
    else:
        policy = pod.node.policy
        container.backoff_s = min(container.backoff_s * 2 or policy.crashloop_initial_s, policy.crashloop_max_s)
    if since_s + container.backoff_s <= ended_s:
        if not container.hook_error:
            return False
        # There is no back-off, but a postStart hook that failed has failed the sync: wait for the next one.
        container.become(ContainerState.BACKOFF, t + SYNC_S)
        _show_hook_error(container)
        return True
    until_s = max(since_s + container.backoff_s, t)
    container.become(ContainerState.BACKOFF, until_s)
    _show_crash_loop(pod, container)
    text = f"Back-off restarting failed container {container.name} in pod {_full_name(pod)}"
    pod.event("BackOff", text, "Warning", of=container)
    if container.hook_error:
        container.backoff_until_s, container.due_s = container.due_s, min(until_s, t + SYNC_S)
        _show_hook_error(container)
    return True


def step(pod: PodContext, container: Container, t: float) -> bool:
    """Sync a container whose back-off may be over; return whether it is over."""
    until_s, container.backoff_until_s = container.backoff_until_s, None
    if until_s is None or until_s <= t + EARLY_S:
        return True
    container.due_s = until_s
    _show_crash_loop(pod, container)
    return False


def _show_hook_error(container: Container) -> None:
    """Say until the next sync that the postStart hook failed, not that the container is backed off."""
    container.waiting_reason, container.waiting_message = "PostStartHookError", container.hook_error
    container.hook_error = ""


def _show_crash_loop(pod: PodContext, container: Container) -> None:
    assert container.backoff_s is not None
    seconds = int(container.backoff_s)
    spelt = f"{seconds}s" if seconds < 60 else f"{seconds // 60}m{seconds % 60}s"  # as Go prints a duration
    container.waiting_reason = "CrashLoopBackOff"
    container.waiting_message = f"back-off {spelt} restarting failed container={container.name} pod={_full_name(pod)}"


def _full_name(pod: PodContext) -> str:
    meta = pod.pod.metadata
    return f"{meta.name}_{meta.namespace}({meta.uid})"
