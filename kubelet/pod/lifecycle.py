"""The life of a running container: its hooks, when the node notices it, its probes, its memory. Pure.

As long as a postStart hook runs no other container of the pod starts, its container is not shown as
running, and no probe runs. A hook that fails ends its container, which comes back as its restart policy
says; the pod is synced again 10 s later. After a hook that succeeds the container is shown running once the
node has noticed (`pleg`). A container that fails a startup or liveness probe is stopped, within the probe's
own grace period if it has one. A container that uses more memory (`usage`) than the limit the runtime last
applied is ended by the kernel, so a resize moves that time. The container keeps the times of all these:
`hook_at_s`, `seen_s`, `probes`, `oom_at_s`. Source: kubelet 3.3, 3.4, 7, 8; upstream `startContainer`,
`killContainer`, `pkg/kubelet/lifecycle/handlers.go`.
"""

import math

from kubelet.pod.container import Container
from kubelet.pod.context import PodContext
from kubelet.runtime import usage
from kubelet.runtime.latency import pod_seed
from kubelet.timers import EARLY_S
from services.api.kinds.pod import ContainerStatus
from services.api.metrics.usage import next_above_s
from services.api.quantity import amount


def begin(pod: PodContext, container: Container, now: float) -> None:
    """Begin the postStart hook of a container that runs now, if it has one."""
    hook = container.script.poststart
    if hook is None:
        _notice(pod, container, now)
        return
    own = container.exit_at()
    ends_s = now + hook.takes_s
    container.conceal(math.inf, ends_s if own is None else min(ends_s, own[0]))


def _notice(pod: PodContext, container: Container, now: float) -> None:
    at_s = pod.node.pleg.notices_s(now)
    if at_s > now:
        container.conceal(at_s)
    elif container.is_hidden:
        container.reveal(now)


def step_hooks(pod: PodContext, container: Container, t: float) -> bool:
    """End the hook that is due, or show the container; return whether another container may start now."""
    if container.hook_at_s is not None and container.hook_at_s <= t + EARLY_S:
        container.hook_at_s = None
        if container.stop_at_s is not None:
            pod.event("FailedPreStopHook", "PreStopHook failed", "Warning", of=container)
            return False
        return _end_hook(pod, container, t)
    if container.seen_s is not None and container.seen_s <= t + EARLY_S:
        container.reveal(t)
        return True
    return False


def _end_hook(pod: PodContext, container: Container, t: float) -> bool:
    hook, own = container.script.poststart, container.exit_at()
    assert hook is not None
    is_cut = hook.kind != "Sleep" and own is not None and own[0] <= t
    if not hook.fails and not is_cut:
        _notice(pod, container, t)
        return True
    pod.event("FailedPostStartHook", "PostStartHook failed", "Warning", of=container)
    pod.event("Killing", "FailedPostStartHook", of=container)
    container.hook_error = hook.failure(container.name, pod.pod)
    pod.stop_container(container, t, float(pod.pod.spec.termination_grace_period_seconds))
    return False


def pleg_changed(pod: PodContext, container: Container, now: float) -> None:
    """Update when the node will notice the container, because the relist timing changed."""
    if container.is_hidden and not container.is_hooked and container.stop_at_s is None:
        _notice(pod, container, now)
    container.turn(now)


def step_probes(pod: PodContext, container: Container, t: float) -> bool:
    """Run the probes that are due. Return whether the container has started by that, so that another may start."""
    if container.probes is None or not container.is_seen:
        return False
    has_started = False
    for seen in container.probes.step(t, pod.pod_ip):
        has_started = has_started or seen.has_started
        if seen.failure:
            pod.event("Unhealthy", seen.failure, "Warning", of=container)
        if seen.warning:
            pod.event("ProbeWarning", seen.warning, "Warning", of=container)
        if seen.kills and container.stop_at_s is None:
            container.unhealthy = seen.probe
            comes_back = container.policy(pod.pod.spec.restart_policy) != "Never"
            will = ", will be restarted" if comes_back else ""
            pod.event("Killing", f"Container {container.name} failed {seen.probe} probe{will}", of=container)
            own = container.probes.grace_s(seen.probe)
            grace_s = pod.pod.spec.termination_grace_period_seconds if own is None else own
            pod.stop_container(container, t, float(grace_s))
    return has_started


def resume_probes(pod: PodContext, container: Container, status: ContainerStatus | None, now: float) -> None:
    """Resume the probes of a run that an earlier kubelet probed: its last results hold until a new result."""
    if container.probes is None:
        return
    container.probes.resume(
        container.started_s,
        now,
        was_started=status is not None and bool(status.started),
        was_ready=status is not None and status.ready,
        share=pod_seed(0, pod.node.name, f"{pod.key.uid}/{container.name}") / 2**64,
    )
    container.turn(now)


def step_memory(pod: PodContext, now: float) -> None:
    """Compute when each running container will exceed its memory limit, after its size has changed."""
    if pod.measured_for is not pod.actual:
        pod.measured_for = pod.actual
        for container in pod.containers:
            if container.is_running:
                measure(pod, container, now)


def measure(pod: PodContext, container: Container, since_s: float) -> None:
    """Compute when this container will exceed its memory limit, not before `since_s`."""
    if not usage.describes_usage(pod.pod):
        return
    limit = pod.actual.limits_of(container.name).get("memory")
    age_s: float | None = None
    if limit is not None:
        points = usage.curves(pod.pod, container.name).get("memory", ())
        age_s = next_above_s(points, amount("memory", limit), since_s - container.started_s)
    container.oom_at_s = None if age_s is None else container.started_s + age_s
    container.turn(since_s)
