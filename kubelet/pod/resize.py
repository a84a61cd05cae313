"""The resize of a running pod: the allocated size is applied to the runtime, call by call. Pure.

The node has decided (`resize.allocation.judge`); here the allocation is first made durable, then the
runtime is called, and containers whose resize policy requires it are restarted. An error is kept in the
condition PodResizeInProgress and the resize is tried again at the next sync, for ever. Source:
kep-1287-in-place-resize 4, 7, 8.
"""

from enum import IntEnum

from kubelet.effects import ResizeAttempted
from kubelet.pod import actuation
from kubelet.pod.actuation import Call
from kubelet.pod.container import EPHEMERAL, Container
from kubelet.pod.context import RESIZE_IN_PROGRESS, RESIZE_PENDING, SYNC_S, PodContext
from kubelet.view import KubeletPod


class ResizeState(IntEnum):
    """The progress of a pod's newest admitted resize."""

    IDLE = 0
    """No resize is under way: `actual is allocated`."""
    SAVING = 1
    """The allocation is not durable yet."""
    CALLING = 2
    """`calls` are to be made; the first is answered at `due_s`."""
    FAILED = 3
    """A call failed, or was not possible; the resize is tried again at the pod's next sync, at `due_s`."""
    SETTLING = 4
    """All calls are made. The last record is not durable, or containers of `restarting` are being restarted."""


class Resize:
    """The resize of one pod. Invariant: `actual is allocated` unless a resize is under way."""

    __slots__ = ("_calls", "_failures", "_generation", "_made", "_pod", "_started_s", "due_s", "restarting", "state")

    def __init__(self, pod: PodContext) -> None:
        self._pod = pod
        self.state = ResizeState.IDLE
        self.due_s: float | None = None
        self.restarting: dict[str, None] = {}
        """Containers that are stopped to be resized."""
        self._generation = 0
        self._started_s = 0.0
        self._calls: list[Call] = []
        self._made = self._failures = 0

    def allocate(self, pod: KubeletPod, now: float) -> None:
        """Allocate the size that the pod requests now. A pod without any record needs none for this either."""
        context, generation = self._pod, pod.metadata.generation
        context.allocated = context.desired_resources(pod)
        context.conditions.pop(RESIZE_PENDING, None)
        context.conditions.pop(RESIZE_IN_PROGRESS, None)
        context.set_resize_condition(now, RESIZE_IN_PROGRESS, "", "", generation)
        size = actuation.size_text(pod, context.allocated, generation)
        context.event("ResizeStarted", f"Pod resize started: {size}")
        if context.saved_seq:
            context.save()
        self._begin(generation, now)

    def recover(self, now: float) -> None:
        """Go on with a resize that an earlier kubelet allocated and did not apply."""
        context = self._pod
        if context.actual is context.allocated:
            context.conditions.pop(RESIZE_IN_PROGRESS, None)
            return
        generation = context.pod.metadata.generation
        if (held := context.conditions.get(RESIZE_IN_PROGRESS)) is not None:
            generation = held.generation or generation
        context.set_resize_condition(now, RESIZE_IN_PROGRESS, "", "", generation)
        self._begin(generation, now)

    def _begin(self, generation: int, now: float) -> None:
        """What was under way for an earlier resize is superseded."""
        self.state, self._generation, self._started_s = ResizeState.SAVING, generation, now
        self.due_s, self._calls = None, []
        self.go_on(now)

    def _end(self) -> None:
        self.state, self.due_s, self._calls = ResizeState.IDLE, None, []
        self.restarting.clear()
        self._pod.actual = self._pod.allocated

    def abandon(self) -> None:
        """End the resize, because the pod ends."""
        self._end()
        self._pod.conditions.pop(RESIZE_PENDING, None)
        self._pod.conditions.pop(RESIZE_IN_PROGRESS, None)

    def go_on(self, now: float) -> None:
        """Go on if the resize only waited for a durable record."""
        if self.state == ResizeState.IDLE or self._pod.saved_seq > self._pod.durable_seq:
            return
        if self.state == ResizeState.SAVING:
            self._attempt(now)
        elif self.state == ResizeState.SETTLING and not self.restarting:
            self._complete(now)

    def retry(self, now: float) -> None:
        """Retry a failed resize now, because the pod is synced early."""
        if self.state == ResizeState.FAILED:
            self.due_s = now

    def _attempt(self, now: float) -> None:
        """Begin to carry the allocation out, from where the runtime is."""
        context = self._pod
        pod, allocated, actual = context.pod, context.allocated, context.actual
        running = [c for c in context.containers if c.is_running and c.kind != EPHEMERAL]
        specs = {c.name: c for c in (*pod.spec.init_containers, *pod.spec.containers)}
        restarting = [c for c in running if actuation.must_restart(specs[c.name], actual, allocated)]
        called = [c for c in running if c not in restarting and c.name in allocated.containers]
        used = {c.name: actuation.memory_in_use(pod, c.name, now - c.started_s) for c in called}
        self._started_s = now
        error = actuation.memory_error(actual, allocated, used)
        if error:
            self._fail(error, now)
            return
        self._calls = actuation.plan(actual, allocated, used)
        self.state = ResizeState.CALLING
        for container in restarting:
            if container.name not in self.restarting:
                self.restarting[container.name] = None
                context.event("Killing", f"Container {container.name} resize requires restart", of=container)
                context.stop_container(container, now, float(pod.spec.termination_grace_period_seconds))
        self._next_call(now)

    def _next_call(self, now: float) -> None:
        if self._calls:
            self.due_s = now + self._pod.latency.of("resize", self._made)
            self._made += 1
            return
        self.state, self.due_s = ResizeState.SETTLING, None
        self.go_on(now)

    def step(self, t: float) -> None:
        """Take the answer to a call, or retry a failed resize at the next sync."""
        context = self._pod
        self.due_s = None
        if self.state == ResizeState.FAILED:
            self._attempt(t)
            return
        call = self._calls.pop(0)
        if self._failures < actuation.failing_calls(context.pod):
            self._failures += 1
            what = f'container "{call.container}"' if call.container else "the pod"
            self._fail(f"failed to resize {call.resource} of {what}: the runtime refused", t)
            return
        context.actual = actuation.resources_after_call(context.actual, context.allocated, call)
        context.save()
        self._next_call(t)

    def _fail(self, error: str, now: float) -> None:
        context = self._pod
        if context.set_resize_condition(now, RESIZE_IN_PROGRESS, "Error", error, self._generation):
            text = actuation.size_text(context.pod, context.allocated, self._generation, error)
            context.event("ResizeError", f"Pod resize error: {text}", "Warning")
        context.effects.append(ResizeAttempted(now - self._started_s, succeeded=False))
        self.state, self.due_s, self._calls = ResizeState.FAILED, now + SYNC_S, []

    def _complete(self, now: float) -> None:
        context = self._pod
        took_s = now - self._started_s
        self._end()
        context.conditions.pop(RESIZE_IN_PROGRESS, None)
        text = actuation.size_text(context.pod, context.allocated, self._generation)
        context.event("ResizeCompleted", f"Pod resize completed: {text}")
        context.effects.append(ResizeAttempted(took_s))

    def container_created(self, container: Container) -> None:
        """Note that a container was started with the allocated size."""
        context = self._pod
        if context.actual is not context.allocated:
            context.actual = actuation.resources_after_restart(context.actual, context.allocated, container.name)
        self.restarting.pop(container.name, None)
