"""Whether a container that ended runs again, and how long it waits for that. Pure.

Source: kubelet 3.3; upstream `pkg/kubelet/kuberuntime/kuberuntime_manager.go` (`doBackOff`).
"""

from __future__ import annotations

import msgspec

from kubelet.pod.container import EPHEMERAL, INIT, SIDECAR, Container
from kubelet.pod.context import PodContext
from kubelet.timers import EARLY_S

CRASHLOOP_RESET_S = 600.0
"""A container that ran for this long begins its back-off anew."""
CRASHLOOP_S, REDUCED_CRASHLOOP_S = (10.0, 300.0), (1.0, 60.0)
"""First and longest back-off; the second with ReduceDefaultCrashLoopBackOffDecay."""
SYNC_S = 10.0
"""From a sync that failed to the next."""


class Policy(msgspec.Struct, frozen=True):
    """What all pods of a node share. Seconds."""

    crashloop_initial_s: float = CRASHLOOP_S[0]
    crashloop_max_s: float = CRASHLOOP_S[1]
    start_fence: bool = False
    """Whether containers wait until a status with `startTime` is acknowledged."""


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


class Restarts:
    """The restarts of one pod's containers, and the back-off before them."""

    __slots__ = ("_initial_s", "_max_s", "_pod")

    def __init__(self, pod: PodContext, policy: Policy) -> None:
        self._pod = pod
        self._initial_s, self._max_s = policy.crashloop_initial_s, policy.crashloop_max_s

    def must_restart(self, container: Container, code: int) -> bool:
        """Whether a container that ended with this exit code runs again."""
        return must_restart(container, self._pod.pod.spec.restart_policy, code)

    def back_off(self, container: Container, ended_s: float, t: float) -> bool:
        """Have a container that ended at `ended_s` wait; return whether there is anything to wait for.

        After the first crash it does not wait, then `crashloop_initial_s`, then twice as long each time up to
        `crashloop_max_s`; a run of ten minutes makes the next crash the first one. After an end by a probe it waits
        from the end of the run before, so mostly not at all (upstream looks for an ended container before it stops the
        unhealthy one).
        """
        since_s: float | None = container.former_end_s if container.unhealthy else ended_s
        if since_s is None:
            return False
        if container.backoff_s is None or since_s - container.started_s >= CRASHLOOP_RESET_S:
            container.backoff_s = 0.0
        else:
            container.backoff_s = min(container.backoff_s * 2 or self._initial_s, self._max_s)
        if since_s + container.backoff_s <= ended_s:
            return self._await_sync(container, t)
        until_s = max(since_s + container.backoff_s, t)
        container.back_off_until(until_s)
        self._show_crash_loop(container)
        meta = self._pod.pod.metadata
        self._pod.event(
            "BackOff",
            f"Back-off restarting failed container {container.name} in pod {meta.name}_{meta.namespace}({meta.uid})",
            "Warning",
        )
        if container.hook_error:
            container.backoff_until_s, container.due_s = container.due_s, min(until_s, t + SYNC_S)
            self._show_hook_error(container)
        return True

    def _await_sync(self, container: Container, t: float) -> bool:
        """There is no back-off, but a postStart hook that failed has failed the sync: wait for the next one."""
        if not container.hook_error:
            return False
        container.back_off_until(t + SYNC_S)
        self._show_hook_error(container)
        return True

    @staticmethod
    def _show_hook_error(container: Container) -> None:
        """Say until the next sync that the postStart hook failed, not that the container is backed off."""
        container.waiting_reason, container.waiting_message = "PostStartHookError", container.hook_error
        container.hook_error = ""

    def step(self, container: Container, t: float) -> bool:
        """Sync a container whose back-off may be over; return whether it is."""
        until_s, container.backoff_until_s = container.backoff_until_s, None
        if until_s is None or until_s <= t + EARLY_S:
            return True
        container.due_s = until_s
        self._show_crash_loop(container)
        return False

    def _show_crash_loop(self, container: Container) -> None:
        meta = self._pod.pod.metadata
        assert container.backoff_s is not None
        container.waiting_reason = "CrashLoopBackOff"
        container.waiting_message = (
            f"back-off {_go_duration(container.backoff_s)} restarting failed container={container.name} "
            f"pod={meta.name}_{meta.namespace}({meta.uid})"
        )


def _go_duration(seconds: float) -> str:
    """Return whole seconds as Go prints a duration: 10s, 1m20s, 5m0s."""
    whole = int(seconds)
    return f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60}s"
