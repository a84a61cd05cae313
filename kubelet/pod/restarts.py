"""Whether a container that ended runs again, and how long it waits for that. Pure.

Source: kubelet 3.3.
"""

from __future__ import annotations

from kubelet.runtime.fake_cri import EPHEMERAL, INIT, SIDECAR, Container
from kubelet.view import KubeletPod

CRASHLOOP_RESET_S = 600.0
"""A container that ran for this long begins its back-off anew."""
CRASHLOOP_S, REDUCED_CRASHLOOP_S = (10.0, 300.0), (1.0, 60.0)
"""First and longest back-off; the second with ReduceDefaultCrashLoopBackOffDecay."""


def crashloop_bounds(
    initial_s: float, max_s: float, *, is_reduced: bool, node_max_s: float = 0.0
) -> tuple[float, float]:
    """Return a node's first and longest back-off; 0 stands for Kubernetes' own value.

    A node's own maximum below the first makes all back-offs equal to it. Source: KEP-4603.
    """
    first_s, longest_s = REDUCED_CRASHLOOP_S if is_reduced else CRASHLOOP_S
    longest_s = node_max_s or max_s or longest_s
    return min(initial_s or first_s, longest_s), longest_s


def policy_of(container: Container, pod_policy: str) -> str:
    """Return the restart policy of one container: its own, else its pod's (KEP-5307)."""
    return "Always" if container.kind == SIDECAR else container.policy or pod_policy


def must_restart(container: Container, pod_policy: str, code: int) -> bool:
    """Whether a container that ended with this exit code runs again; one that a probe ended did not end well."""
    if container.kind in (SIDECAR, EPHEMERAL):
        return container.kind == SIDECAR
    policy = policy_of(container, pod_policy)
    if any((code in rule.exit_codes.values) == (rule.exit_codes.operator == "In") for rule in container.rules):
        return container.kind != INIT or code != 0
    if container.unhealthy:
        return policy != "Never"
    if container.kind == INIT:
        return code != 0 and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def back_off(container: Container, pod: KubeletPod, t: float, *, initial_s: float, max_s: float) -> bool:
    """The container waits from `t`: at first `initial_s`, then twice as long each time up to `max_s`.

    After an end by a probe it waits from the end of the run before, so mostly not at all (upstream looks for an
    ended container before it stops the unhealthy one). Return whether there is anything to wait for.
    """
    since_s: float | None = container.former_end_s if container.unhealthy else t
    if since_s is None:
        return False
    if container.backoff_s == 0.0 or t - container.started_s >= CRASHLOOP_RESET_S:
        container.backoff_s = min(initial_s, max_s)
    else:
        container.backoff_s = min(container.backoff_s * 2, max_s)
    if since_s + container.backoff_s <= t:
        return False
    container.state, container.due_s = "backoff", since_s + container.backoff_s
    say_crash_loop(container, pod)
    return True


def say_crash_loop(container: Container, pod: KubeletPod) -> None:
    """The container waits for its back-off: say so."""
    meta = pod.metadata
    container.waiting_reason = "CrashLoopBackOff"
    container.waiting_message = (
        f"back-off {_go_duration(container.backoff_s)} restarting failed container={container.name} "
        f"pod={meta.name}_{meta.namespace}({meta.uid})"
    )


def _go_duration(seconds: float) -> str:
    """Return whole seconds as Go prints a duration: 10s, 1m20s, 5m0s."""
    whole = int(seconds)
    return f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60}s"
