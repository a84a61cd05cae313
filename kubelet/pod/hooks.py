"""The hooks of a pod's containers, and when the node notices that a container runs. Pure.

As long as a postStart hook runs nothing else of the pod starts, its container is not shown as running, and no probe
runs. A hook that fails ends its container, which comes back as its restart policy says; the pod is synced again
10 s later. After a hook that succeeds the container is shown running once the node has noticed (`pleg`).
Source: kubelet 3.3, 3.4; upstream `startContainer`, `killContainer`, `pkg/kubelet/lifecycle/handlers.go`.
"""

from __future__ import annotations

import math

from kubelet.pod.container import Container
from kubelet.pod.context import PodContext
from kubelet.runtime.pleg import Pleg
from kubelet.timers import EARLY_S


class Hooks:
    """The hooks of one pod; when one ends is kept by its container (`hook_at_s`, `seen_s`)."""

    __slots__ = ("_pleg", "_pod")

    def __init__(self, pod: PodContext, pleg: Pleg) -> None:
        self._pod, self._pleg = pod, pleg

    def begin(self, container: Container, now: float) -> None:
        """The container runs: its postStart hook begins, if it has one."""
        hook = container.script.poststart
        if hook is None:
            self._notice(container, now)
            return
        own = container.exit_at()
        ends_s = now + hook.takes_s
        container.conceal(math.inf, ends_s if own is None else min(ends_s, own[0]))

    def _notice(self, container: Container, now: float) -> None:
        at_s = self._pleg.notices_s(now)
        if at_s > now:
            container.conceal(at_s)
        elif container.is_hidden:
            container.reveal(now)

    def step(self, container: Container, t: float) -> bool:
        """End the hook that is due, or show the container; return whether another container may start now."""
        if container.hook_at_s is not None and container.hook_at_s <= t + EARLY_S:
            container.hook_at_s = None
            if container.stop_at_s is not None:
                self._pod.event("FailedPreStopHook", "PreStopHook failed", "Warning")
                return False
            return self._end(container, t)
        if container.seen_s is not None and container.seen_s <= t + EARLY_S:
            container.reveal(t)
            return True
        return False

    def _end(self, container: Container, t: float) -> bool:
        hook, own = container.script.poststart, container.exit_at()
        assert hook is not None
        is_cut = not hook.is_sleep and own is not None and own[0] <= t
        if not hook.fails and not is_cut:
            self._notice(container, t)
            return True
        self._pod.event("FailedPostStartHook", "PostStartHook failed", "Warning")
        self._pod.event("Killing", "FailedPostStartHook")
        container.hook_error = hook.failure(container.name, self._pod.pod)
        self._pod.stop_container(container, t, float(self._pod.pod.spec.termination_grace_period_seconds))
        return False

    def pleg_changed(self, container: Container, now: float) -> None:
        """The node notices what containers do at other times than before."""
        if container.is_hidden and not container.is_hooked and container.stop_at_s is None:
            self._notice(container, now)
        container.turn(now)
