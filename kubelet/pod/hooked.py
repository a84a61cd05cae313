"""A pod whose containers are begun by hooks, and noticed when their node looks: its part of the worker. A pure machine.

As long as a postStart hook runs nothing else of the pod starts, its container is not shown as running, and nobody
probes it. A hook that fails ends its container, which comes back as its restart policy says; the pod is synced again
10 s later. After a hook that succeeds the container is shown running once the node has noticed (`pleg`).
Source: kubelet 3.3, 3.4; upstream `startContainer`, `killContainer`, `pkg/kubelet/lifecycle/handlers.go`.
"""

from __future__ import annotations

import math

from kubelet.pod.probed import ProbedPod
from kubelet.pod.restarts import say_crash_loop
from kubelet.runtime.fake_cri import Container
from kubelet.runtime.pleg import Pleg
from kubelet.timers import EARLY_S

SYNC_S = 10.0
"""From a sync that failed to the next."""


class HookedPod(ProbedPod):
    """The hooks of one pod's machine, and when it is seen what its containers do."""

    __slots__ = ("_pleg",)

    _pleg: Pleg

    def _come_up(self, container: Container, now: float) -> None:
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

    def _hooked(self, container: Container, t: float) -> bool:
        """End the hook that is due, or show the container; return whether another container may start now."""
        if container.hook_at_s is not None and container.hook_at_s <= t + EARLY_S:
            container.hook_at_s = None
            if container.stop_at_s is not None:
                self._tell("FailedPreStopHook", "PreStopHook failed", "Warning")
                return False
            return self._hook_ended(container, t)
        if container.seen_s is not None and container.seen_s <= t + EARLY_S:
            container.reveal(t)
            return True
        return False

    def _hook_ended(self, container: Container, t: float) -> bool:
        hook, own = container.script.poststart, container.exit_at()
        assert hook is not None
        is_cut = not hook.is_sleep and own is not None and own[0] <= t
        if not hook.fails and not is_cut:
            self._notice(container, t)
            return True
        self._tell("FailedPostStartHook", "PostStartHook failed", "Warning")
        self._tell("Killing", "FailedPostStartHook")
        container.hook_error = hook.failure(container.name, self.pod)
        grace_s = float(self.pod.spec.termination_grace_period_seconds)
        container.stop(t, t + grace_s, grace_s, self._draw("stop", container))
        return False

    def _excuse(self, container: Container, t: float) -> None:
        """Say until the next sync that the hook failed, not that the container is waited for."""
        assert container.due_s is not None
        container.backoff_until_s, container.due_s = container.due_s, min(container.due_s, t + SYNC_S)
        container.waiting_reason, container.waiting_message = "PostStartHookError", container.hook_error
        container.hook_error = ""

    def _still_waits(self, container: Container, t: float) -> bool:
        """Return whether the container's back-off goes on after this sync."""
        until_s, container.backoff_until_s = container.backoff_until_s, None
        if until_s is None or until_s <= t + EARLY_S:
            return False
        container.due_s = until_s
        say_crash_loop(container, self.pod)
        self.refresh(t)
        return True

    def _look_again(self, container: Container, now: float) -> None:
        """The node notices what containers do at other times than it did."""
        if container.is_hidden and not container.is_hooked and container.stop_at_s is None:
            self._notice(container, now)
        container.turn(now)
