"""A workload run on the scheduler's core alone: cache, queue, handlers and cycles, in one process.

There is no API server, no network and no waiting. Pods are handed over as a watch would deliver them, a
chosen node is assumed and confirmed at once, and victims leave at once. The figures are therefore the
cost of scheduling itself.
"""

import copy
import dataclasses
import gc
import heapq
import itertools
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from lab.benchmarks.clocks import Clocks, clocking
from lab.benchmarks.result import Breakdown, SchedulerBench, breakdown_of, milliseconds
from lab.benchmarks.running_mesh import rss_mib
from lab.benchmarks.units import Calibrator
from lab.benchmarks.workloads import documents, ops
from lab.benchmarks.workloads.documents import NewObject
from lab.benchmarks.workloads.ops import Size, Workload
from scheduler.cache.cache import Cache
from scheduler.cache.nominator import Nominator
from scheduler.configuration.file import Configured
from scheduler.configuration.plugins import default_profile
from scheduler.cycle.result import Result, ScheduleResult, Unschedulable
from scheduler.entry import Handle
from scheduler.framework.cycle_state import Diagnosis
from scheduler.framework.world import WORLD_KINDS, FixedWorld, world_event
from scheduler.queue.exclusions import Exclusions
from scheduler.queue.scheduling_queue import QueuedPod
from scheduler.wiring import core_of
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import ResourceClaim, ResourceClaimConsumerReference
from services.api.meta import Document, Key, View
from services.api.resources import resource_of_view
from services.api.switches import Switches
from services.dra.pod_claims import claim_keys

LIMIT_S: Final = 300.0
STUCK_S: Final = 900.0
"""Limit of skipped time without a bind, in seconds. After that long, the queue has retried every rejected
pod once in its periodic flush.
"""
SEED: Final = 1
CLOCKED_PODS_MAX: Final = 1_000
"""Maximum number of pods in the second, shorter run in which every plugin is clocked. Clocking costs about
as much again.
"""
PROGRESS_EVERY: Final = 256
MEASURING: Final = "measuring"
Progress = Callable[[str, int, int], None]
"""Progress callback: `(what is being done, number done, total)`."""


class TooSlow(TimeoutError):
    """A step that did not end within its time limit."""


class Observer(Protocol):
    """Receiver of pod events: scheduling attempts and deletions."""

    def on_attempted(self, pod: Pod, diagnosis: Diagnosis | None) -> None:
        """Note a scheduling attempt: `pod` has its node if it succeeded, else `diagnosis` says why it has none."""

    def on_deleted(self, pod: Pod) -> None:
        """Note that a pod was deleted or evicted."""


class Algorithm:
    """The core of one scheduler, and the objects it has been shown.

    `now` is the time by `clock` plus the idle time that was skipped.
    """

    def __init__(
        self,
        switches: Switches,
        clock: Callable[[], float] = time.perf_counter,
        *,
        config: str = "",
        observer: "Observer | None" = None,
    ) -> None:
        """Create the core from `switches`.

        `config`: path of a KubeSchedulerConfiguration file. `observer`: receives pod events; with one, attempts,
        plugins and events are timed as well. Raises: StartError for a file that is not a valid configuration.
        """
        self._clock, self._observer = clock, observer
        self.world = FixedWorld()
        self.handle = Handle(
            switches=switches,
            cache=Cache(),
            nominator=Nominator(),
            world=self.world,
            exclusions=Exclusions(),
            random=random.Random(SEED),
            wall=time.time,
        )
        configured = Configured.read(config, self.handle.profile, switches)
        timed_by = clock if observer is not None else None
        self.core = core_of(self.handle, configured, configured.profiles((), self.handle), timed_by)
        self.bound: dict[str, Pod] = {}
        self.unschedulable_total = 0
        self.evaluated_total = 0
        self.evicted_total = 0
        self.resize_attempts_total = 0
        self.latencies_s: list[float] = []
        self._due_s: dict[str, float] = {}
        self._skipped_s = self._skipped_at_bind_s = 0.0
        self._agenda: list[tuple[float, int, Callable[[], float | None]]] = []
        self._tickets = itertools.count()
        self._views = {resource_of_view(view).plural: view for view in WORLD_KINDS}
        self._decode_pod = msgspec.json.Decoder(Pod).decode
        self._decode_node = msgspec.json.Decoder(Node).decode

    def now(self) -> float:
        """Return the core's time in seconds."""
        return self._clock() + self._skipped_s

    def add_node(self, node: NewObject) -> Node:
        """Deliver a new node to the core."""
        view = self._decode_node(node.body)
        self.core.handlers.on_node(None, view, self.now())
        return view

    def delete_node(self, node: Node) -> None:
        """Deliver the deletion of a node."""
        self.core.handlers.on_node(node, None, self.now())

    def decode(self, pod: NewObject) -> Pod:
        """Decode a pod as the scheduler's informer does."""
        return self._decode_pod(pod.body)

    def add_pod(self, pod: Pod) -> None:
        """Deliver a new pod to the core."""
        self.core.handlers.on_pod(None, pod, self.now())

    def expect(self, pods: Sequence[Pod], per_s: float) -> None:
        """Deliver pods from now on at the rate `per_s`; the latency of each counts from the time it was due."""
        began, coming = self.now(), iter(enumerate(pods))

        def come() -> float | None:
            number, pod = next(coming)
            due = self._due_s[pod.metadata.uid] = began + number / per_s
            self.add_pod(pod)
            return None if number + 1 == len(pods) else max(due + 1 / per_s - self.now(), 0.0)

        self.at(began, come)

    def delete_pod(self, pod: Pod) -> None:
        """Deliver the deletion of a pod."""
        self.core.handlers.on_pod(self.bound.pop(pod.metadata.uid, pod), None, self.now())
        if self._observer is not None:
            self._observer.on_deleted(pod)

    def add_other(self, plural: str, document: Document) -> View | None:
        """Deliver a new or changed object of another kind. Return None when the scheduler does not watch that kind."""
        view = self._views.get(plural)
        if view is None:
            return None
        new: Any = msgspec.convert(document, view)
        old = self.world.get(view, new.metadata.key)
        self.world.put(new)
        if isinstance(new, ResourceClaim) and new.status.allocation is not None:
            self.handle.claims.settle(new)
        self.core.queue.move_all(world_event(view, old, new), old, new, self.now())
        shown: View = new
        return shown

    def delete_other(self, made: View) -> None:
        """Deliver the deletion of an object that `add_other` returned."""
        self.world.delete(made)
        self.core.queue.move_all(world_event(type(made), made, None), made, None, self.now())

    def drop_other(self, plural: str, key: Key) -> None:
        """Deliver the deletion of the object with this resource and key, if it exists."""
        view = self._views.get(plural)
        made = self.world.get(view, key) if view is not None else None
        if made is not None:
            self.delete_other(made)

    def at(self, when: float, do: Callable[[], float | None]) -> None:
        """Call `do` at that time, and again after as many seconds as it returns, until it returns None."""
        heapq.heappush(self._agenda, (when, next(self._tickets), do))

    def rest(self) -> None:
        """Run every scheduling attempt that is possible now."""
        queue = self.core.queue
        while (queued := queue.pop(self.now())) is not None:
            self._attempt(queued, self.now())

    def run_until(self, is_done: Callable[[], bool], what: Callable[[], str], limit_s: float = LIMIT_S) -> None:
        """Schedule pods until `is_done` returns true. Raises: TooSlow."""
        limit = time.perf_counter() + limit_s
        agenda, queue = self._agenda, self.core.queue
        resizes = self.core.resizes
        while not is_done():
            now = self.now()
            while agenda and agenda[0][0] <= now:
                when, _, do = heapq.heappop(agenda)
                after_s = do()
                if after_s is not None:
                    self.at(when + after_s, do)
            queue.flush(now)
            if resizes is not None:
                resizes.flush(now)
            queued = queue.pop(now)
            if queued is not None:
                self._attempt(queued, now)
                continue
            deadline = queue.next_deadline(now)
            clock = resizes.next_deadline() if resizes is not None else None
            due = [when for when in (deadline, clock, agenda[0][0] if agenda else None) if when is not None]
            if not due or self._skipped_s - self._skipped_at_bind_s > STUCK_S:
                raise TooSlow(f"{what()}, and nothing will change that")
            if time.perf_counter() > limit:
                raise TooSlow(f"{what()} after {limit_s:g} s")
            self._skipped_s += max(min(due) - now, 0.0)

    def _attempt(self, queued: QueuedPod, now: float) -> None:
        """Run one scheduling cycle, and the binding cycle as if the API server answered at once."""
        core, info = self.core, queued.info
        if info.spec.node_name:
            self._resize(queued, now)
            return
        began = time.perf_counter()
        profile = core.profiles.of(info)
        result = profile.cycle.schedule(info, now)
        self.evaluated_total += _evaluation_count(result)
        if not isinstance(result, ScheduleResult):
            self.unschedulable_total += 1
            self._observe(
                "unschedulable", info.pod, began, result.diagnosis if isinstance(result, Unschedulable) else None
            )
            self._fail(queued, result, now)
            return
        node, runner = result.node_name, profile.runner
        core.cache.assume(info, node, result.state)
        core.queue.nominator.remove(info.uid)
        for status in (runner.reserve(result.state, info, node), runner.permit(result.state, info, node)[0]):
            if not status.is_success:
                raise AssertionError(f"{info.key}: {status.message or 'Permit waits'}; no workload expects that")
        due_s = self._due_s.pop(info.uid, None)
        self.latencies_s.append(time.perf_counter() - began if due_s is None else self.now() - due_s)
        self._skipped_at_bind_s = self._skipped_s
        self._write_claims(info.pod)
        runner.bind(result.state, info, node)
        pod = info.pod
        bound = self.bound[info.uid] = replace(pod, spec=replace(pod.spec, node_name=node))
        core.queue.done(info.uid)
        core.handlers.on_pod(pod, bound, now)
        core.queue.on_bound(queued)
        self._observe("scheduled", bound, began)

    def _observe(self, result: str, pod: Pod, began: float, diagnosis: Diagnosis | None = None) -> None:
        if self._observer is not None:
            self.core.metrics.observe_attempt(result, time.perf_counter() - began)
            self._observer.on_attempted(pod, diagnosis)

    def _write_claims(self, pod: Pod) -> None:
        """Show the pod's claims with the devices that Reserve promised them, as PreBind writes them."""
        ledger = self.handle.claims
        for key in claim_keys(pod) if pod.spec.resource_claims else ():
            claim = self.world.get(ResourceClaim, key)
            if claim is None or claim.status.is_reserved_for(pod.metadata.uid):
                continue
            consumer = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
            allocation = claim.status.allocation or ledger.pending(claim.metadata.uid)
            users = (*claim.status.reserved_for, consumer)
            written = replace(claim, status=replace(claim.status, allocation=allocation, reserved_for=users))
            self.world.put(written)
            ledger.settle(written)
            event = world_event(ResourceClaim, claim, written)
            self.core.queue.move_all(event, claim, written, self.now())

    def _resize(self, queued: QueuedPod, now: float) -> None:
        """Make one attempt to preempt for a deferred resize; victims leave at once."""
        resizes = self.core.resizes
        assert resizes is not None, f"{queued.key} has a node and is queued, although no plugin follows resizes"
        outcome = resizes.cycle.decide(queued.info)
        self.resize_attempts_total += 1
        resizes.settle(queued, outcome, now)
        for victim in outcome.eviction.pending if outcome is not None and outcome.eviction is not None else ():
            self.evicted_total += 1
            self.delete_pod(victim.pod)

    def _fail(self, queued: QueuedPod, result: Any, now: float) -> None:
        core = self.core
        if not isinstance(result, Unschedulable):
            raise AssertionError(f"{queued.key}: {result.message}; no workload expects that")
        diagnosis, post = result.diagnosis, result.post_filter
        core.queue.add_unschedulable(queued, now, rejectors=diagnosis.rejectors, pending=diagnosis.pending)
        if post is None:
            return
        if post.nominated_node is not None:
            core.queue.nominator.set(queued.info, post.nominated_node)
        for eviction in post.actions:
            for node in eviction.nodes:
                for lesser in core.queue.nominator.of_lower_priority(node, eviction.preemptor.priority):
                    core.queue.nominator.remove(lesser.uid)
            for victim in eviction.pending:
                self.evicted_total += 1
                self.delete_pod(victim.pod)


def _evaluation_count(result: Result) -> int:
    """Return the number of nodes on which filters judged a pod."""
    if isinstance(result, ScheduleResult):
        return result.evaluated
    return result.diagnosis.node_count if isinstance(result, Unschedulable) else 0


class Play:
    """Run of one workload on one `Algorithm`, step by step."""

    def __init__(self, workload: Workload, size: Size, switches: Switches, progress: Progress) -> None:
        self._workload, self._size, self._progress = workload, size, progress
        # Pods that come at a rate wait for work that is going on; other programs on the machine must not count as work.
        is_paced = any(isinstance(op, ops.CreatePods) and op.per_s for op in workload.ops)
        self.algorithm = Algorithm(switches, time.process_time if is_paced else time.perf_counter)
        self.units = Calibrator()
        self._pods_by_namespace: dict[str, list[Pod]] = {}

    def prepare(self) -> int:
        """Run every step before the measured one; return the number of the measured step."""
        for step, op in enumerate(self._workload.ops):
            if isinstance(op, ops.CreatePods) and op.is_measured:
                return step
            self._do(step, op)
        raise AssertionError(f"{self._workload.name} measures nothing")

    def measure(self, step: int) -> tuple[float, float]:
        """Run the measured step; return its wall seconds and its CPU seconds, without those of measuring units."""
        op = self._workload.ops[step]
        assert isinstance(op, ops.CreatePods)
        algorithm = self.algorithm
        pods = [algorithm.decode(pod) for pod in documents.pods_of(op, step, self._size, is_stored=True)]
        self._brought_by(op, step, pods)
        algorithm.latencies_s.clear()
        algorithm.evaluated_total = 0
        gc.collect()
        gc.freeze()
        began, cpu = time.perf_counter(), time.process_time()
        if op.per_s:
            algorithm.expect(pods, op.per_s)
        else:
            for pod in pods:
                algorithm.add_pod(pod)
        self._wait(pods, MEASURING)
        spent_s = self.units.spent_s
        return time.perf_counter() - began - spent_s, time.process_time() - cpu - spent_s

    def _do(self, step: int, op: Any) -> None:
        algorithm, size = self.algorithm, self._size
        match op:
            case ops.CreateNodes():
                total = size.count(op.count)
                for number, node in enumerate(documents.nodes_of(op, size), 1):
                    algorithm.add_node(node)
                    if number % PROGRESS_EVERY == 0:
                        self._progress("adding nodes", number, total)
                for document in documents.csi_nodes_of(op, size):
                    algorithm.add_other("csinodes", document)
            case ops.CreateDevices():
                for plural, document in documents.devices_of(op, size):
                    algorithm.add_other(plural, document)
            case ops.CreateNamespaces():
                for number in range(size.count(op.count)):
                    meta = {"name": f"{op.prefix}-{number}", "labels": dict(op.labels)}
                    algorithm.add_other("namespaces", {"metadata": meta})
            case ops.CreateObject():
                meta = {**op.document["metadata"], "namespace": op.namespace}
                algorithm.add_other(op.plural, {**op.document, "metadata": meta})
            case ops.CreatePods():
                pods = [algorithm.decode(pod) for pod in documents.pods_of(op, step, size, is_stored=True)]
                self._pods_by_namespace.setdefault(op.namespace, []).extend(pods)
                self._brought_by(op, step, pods)
                for pod in pods:
                    algorithm.add_pod(pod)
                if not op.may_wait:
                    self._wait(pods, "preparing")
            case ops.DeferResizes():
                for new_pod, _ in documents.deferred_of(op, step, size, is_stored=True):
                    algorithm.add_pod(algorithm.decode(new_pod))
                algorithm.rest()
            case ops.Churn():
                algorithm.at(algorithm.now(), self._churn(op))
            case ops.DeletePods():
                leaving = iter(list(self._pods_by_namespace[op.of]))

                def leave() -> float | None:
                    pod = next(leaving, None)
                    if pod is None:
                        return None
                    algorithm.delete_pod(pod)
                    return 1.0 / op.per_s

                algorithm.at(algorithm.now(), leave)

    def _brought_by(self, op: ops.CreatePods, step: int, pods: list[Pod]) -> None:
        for claim in documents.claims_of(op, step, self._size):
            meta = claim["metadata"]
            self.algorithm.add_other("resourceclaims", {**claim, "metadata": {**meta, "uid": meta["name"]}})
        for pod in pods if op.volume else ():
            for plural, document in documents.volumes_of(op.volume, pod.metadata.namespace, pod.metadata.name):
                self.algorithm.add_other(plural, document)

    def _churn(self, op: ops.Churn) -> Callable[[], float | None]:
        numbers, last = itertools.count(), list[Callable[[], None]]()

        def create() -> float | None:
            for undo in last if op.recreate else ():
                undo()
            number = next(numbers)
            made = [(plural, documents.with_name(each, f"churn-{number}")) for plural, each in op.templates]
            last[:] = [self._create(plural, document) for plural, document in made]
            return op.interval_s

        return create

    def _create(self, plural: str, document: Document) -> Callable[[], None]:
        """Create one object; return what deletes it."""
        algorithm = self.algorithm
        name = document["metadata"]["name"]
        if plural == "nodes":
            node = algorithm.add_node(NewObject("", name, msgspec.json.encode(document)))
            return lambda: algorithm.delete_node(node)
        document["metadata"]["namespace"] = "default"
        if plural == "pods":
            body = msgspec.json.encode(documents.stored_pod(copy.deepcopy(document))).replace(b"@uid@", name.encode())
            pod = algorithm.decode(NewObject("default", name, body))
            algorithm.add_pod(pod)
            return lambda: algorithm.delete_pod(pod)
        view = algorithm.add_other(plural, document)
        return lambda: None if view is None else algorithm.delete_other(view)

    def _wait(self, pods: list[Pod], what: str) -> None:
        """Return when all of them have a node."""
        bound, total = self.algorithm.bound, len(pods)
        waiting = iter([pod.metadata.uid for pod in pods])
        current = next(waiting, None)
        done = 0

        def is_done() -> bool:
            nonlocal current, done
            while current is not None and current in bound:
                current = next(waiting, None)
                done += 1
                if done % PROGRESS_EVERY == 0:
                    self._progress(what, done, total)
                    if what == MEASURING:
                        self.units.measure()
            return current is None

        self.algorithm.run_until(is_done, lambda: f"{done} of {total} pods have a node")
        self._progress(what, total, total)


def bench_algorithm(
    workload: Workload,
    size: Size,
    *,
    assignments: tuple[str, ...] = (),
    progress: Progress = lambda what, done, total: None,
) -> SchedulerBench:
    """Run the workload and return its figures; a second, shorter run says where the time goes. Raises: TooSlow."""
    switches = Switches.parse(assignments)
    play = Play(workload, size, switches, progress)
    step = play.prepare()
    took_s, cpu_s = play.measure(step)
    algorithm = play.algorithm
    result = SchedulerBench(
        workload=workload.name,
        form="algorithm",
        nodes=size.nodes,
        pods=size.pods,
        init_pods=size.init_pods,
        switches=assignments,
        pods_per_s=round(size.pods / took_s, 1),
        cpu_us_per_pod=round(1e6 * cpu_s / size.pods, 1),
        p50_ms=milliseconds(algorithm.latencies_s, 0.5),
        p99_ms=milliseconds(algorithm.latencies_s, 0.99),
        rss_mib={"algorithm": round(rss_mib(os.getpid()), 1)},
        unschedulable_attempts=algorithm.unschedulable_total,
        evicted=algorithm.evicted_total,
        resize_attempts=algorithm.resize_attempts_total,
        node_evaluations_per_core_s=round(algorithm.evaluated_total / cpu_s),
        units_per_pod=round(play.units.units(cpu_s) / size.pods, 3),
        unit_us=round(1e6 * play.units.unit_s, 1),
    )
    del play, algorithm
    gc.unfreeze()
    return dataclasses.replace(result, **where_the_time_goes(workload, size, switches, progress))


def where_the_time_goes(workload: Workload, size: Size, switches: Switches, progress: Progress) -> Breakdown:
    """Return where the time goes, from a run in which plugins are clocked."""
    algorithm = Algorithm(switches)
    core = algorithm.core
    plugins = [type(each.plugin) for each in default_profile(algorithm.handle)]
    parts = [(type(core.queue), "queue"), (type(core.cache), "cache"), (type(core.handlers), "handlers")]
    clocks = Clocks()
    shorter = Size(size.nodes, size.init_pods, min(size.pods, CLOCKED_PODS_MAX))
    with clocking(clocks, plugins, parts):
        play = Play(workload, shorter, switches, lambda what, done, total: progress("clocking", done, total))
        step = play.prepare()
        clocks.reset()
        took_s, _ = play.measure(step)
    return breakdown_of(clocks.spent_s, took_s, shorter.pods)
