"""A pod that can be resized while it runs: its part of the worker. A pure machine.

The kubelet has decided (`allocation.judge`); here the promise is first made durable, then the runtime is told,
call by call, and containers that ask for it are restarted. An error is kept in the condition PodResizeInProgress
and tried again at the next sync, for ever. Source: kep-1287-in-place-resize 4, 7, 8.
"""

from __future__ import annotations

from kubelet.pod import actuation
from kubelet.pod.actions import Action, Persist, Reached, Resized, Told
from kubelet.pod.actuation import Actuation
from kubelet.pod.status import RESIZE_IN_PROGRESS, RESIZE_PENDING, PodStatus, WallTimes
from kubelet.runtime.fake_cri import EPHEMERAL, Container
from kubelet.runtime.latency import PodLatency
from kubelet.runtime.resources import overlaid, resources_of
from kubelet.view import KubeletPod, WorkerKey


class ResizablePod(PodStatus):
    """The record, the voice and the size of one pod's machine.

    Invariant: `actual is allocated` unless `actuation` is under way.
    """

    __slots__ = ("_durable", "_latency", "_out", "_seq", "actuation")

    def __init__(
        self,
        pod: KubeletPod,
        key: WorkerKey,
        *,
        host_ip: str,
        pod_ip: str,
        latency: PodLatency,
        times: WallTimes,
        now: float,
    ) -> None:
        super().__init__(pod, key, host_ip=host_ip, pod_ip=pod_ip, times=times, now=now)
        self.actuation = Actuation()
        self._latency = latency
        self._out: list[Action] = []
        self._seq = self._durable = 0

    @property
    def as_allocated(self) -> KubeletPod:
        """The pod as it would be had it always asked for what it was given."""
        return overlaid(self.pod, self.allocated)

    # --- a resize is admitted ---

    def _allocate(self, pod: KubeletPod, now: float) -> None:
        """Promise the pod what it asks for now. What was never recorded cannot be forgotten: it needs no record."""
        generation = pod.metadata.generation
        self.allocated = resources_of(pod)
        self.conditions.pop(RESIZE_PENDING, None)
        self.conditions.pop(RESIZE_IN_PROGRESS, None)
        self.set_resize_condition(now, RESIZE_IN_PROGRESS, "", "", generation)
        self._tell("ResizeStarted", f"Pod resize started: {actuation.size_text(pod, self.allocated, generation)}")
        if self._seq:
            self._persist()
        self.actuation.begin(generation, self._seq, now)
        self._actuate(now)

    def _continue_resize(self, now: float) -> None:
        """A kubelet before this one had promised more than it told the runtime."""
        generation = self.pod.metadata.generation
        if (held := self.conditions.get(RESIZE_IN_PROGRESS)) is not None:
            generation = held.generation or generation
        self.set_resize_condition(now, RESIZE_IN_PROGRESS, "", "", generation)
        self.actuation.begin(generation, self._seq, now)
        self._actuate(now)

    def _abandon_resize(self) -> None:
        """The pod ends: nobody will resize it any more."""
        self.actuation.end()
        self.actual = self.allocated
        self.conditions.pop(RESIZE_PENDING, None)
        self.conditions.pop(RESIZE_IN_PROGRESS, None)

    # --- the runtime is told ---

    def _actuate(self, now: float) -> None:
        """Go on where nothing but durability was awaited."""
        under_way = self.actuation
        if under_way.stage == "idle" or self._seq > self._durable:
            return
        if under_way.stage == "saving":
            self._attempt(now)
        elif under_way.stage == "settling" and not under_way.restarting:
            self._settle_resize(now)

    def _attempt(self, now: float) -> None:
        """Begin to carry the allocation out, from where the runtime is."""
        under_way = self.actuation
        running = [c for c in self.containers if c.is_running and c.kind != EPHEMERAL]
        specs = {c.name: c for c in (*self.pod.spec.init_containers, *self.pod.spec.containers)}
        restarting = [c for c in running if actuation.must_restart(specs[c.name], self.actual, self.allocated)]
        called = [c for c in running if c not in restarting and c.name in self.allocated.containers]
        used = {c.name: actuation.memory_in_use(self.pod, c.name, now - c.started_s) for c in called}
        under_way.started_s = now
        error = actuation.memory_error(self.actual, self.allocated, used)
        if error:
            self._resize_failed(error, now)
            return
        under_way.calls = actuation.plan(self.actual, self.allocated, used)
        under_way.stage = "calling"
        for container in restarting:
            if container.name not in under_way.restarting:
                under_way.restarting[container.name] = None
                self._tell("Killing", f"Container {container.name} resize requires restart")
                grace_s = float(self.pod.spec.termination_grace_period_seconds)
                container.stop(now, now + grace_s, grace_s, self._draw("stop", container))
        self._next_call(now)

    def _next_call(self, now: float) -> None:
        under_way = self.actuation
        if under_way.calls:
            under_way.due_s = now + self._latency.of("resize", under_way.made)
            under_way.made += 1
            return
        under_way.stage, under_way.due_s = "settling", None
        self._actuate(now)

    def _resize_step(self, t: float) -> None:
        """A call is answered, or the next sync of a pod whose resize failed has come."""
        under_way = self.actuation
        under_way.due_s = None
        if under_way.stage == "failed":
            self._attempt(t)
            return
        call = under_way.calls.pop(0)
        if under_way.refused < actuation.failing_calls(self.pod):
            under_way.refused += 1
            what = f'container "{call.container}"' if call.container else "the pod"
            self._resize_failed(f"failed to resize {call.resource} of {what}: the runtime refused", t)
            return
        self.actual = actuation.applied(self.actual, self.allocated, call)
        self._persist()
        self._next_call(t)

    def _resize_failed(self, error: str, now: float) -> None:
        generation = self.actuation.generation
        if self.set_resize_condition(now, RESIZE_IN_PROGRESS, "Error", error, generation):
            text = actuation.size_text(self.pod, self.allocated, generation, error)
            self._tell("ResizeError", f"Pod resize error: {text}", "Warning")
        self._out.append(Resized(now - self.actuation.started_s, succeeded=False))
        self.actuation.fail(now)

    def _settle_resize(self, now: float) -> None:
        """All that runs has its new size, durably."""
        took_s = now - self.actuation.started_s
        generation = self.actuation.generation
        self.actuation.end()
        self.actual = self.allocated
        self.conditions.pop(RESIZE_IN_PROGRESS, None)
        text = actuation.size_text(self.pod, self.allocated, generation)
        self._tell("ResizeCompleted", f"Pod resize completed: {text}")
        self._out.append(Resized(took_s))

    def _sized(self, container: Container) -> None:
        """A container is started, with what is allocated."""
        if self.actual is not self.allocated:
            self.actual = actuation.restarted(self.actual, self.allocated, container.name)
        self.actuation.restarting.pop(container.name, None)

    # --- what is asked for ---

    def _draw(self, stage: str, container: Container) -> float:
        # Containers draw apart from each other, restarts apart from first starts.
        place = self.containers.index(container)
        return self._latency.of(stage, place + len(self.containers) * container.created_total)

    def _persist(self) -> None:
        self._seq += 1
        self._out.append(Persist(self._seq))

    def _reached(self, stage: str) -> None:
        self._out.append(Reached(stage))

    def _tell(self, reason: str, message: str, event_type: str = "Normal") -> None:
        self._out.append(Told(reason, message, event_type))
