"""A workload played to the scheduler's hearts alone: cache, queue, handlers and cycles, in one process.

No API server, no wire and no waiting: pods are handed over as a watch would show them, a choice is assumed
and confirmed at once, victims leave at once. What is measured is what scheduling costs by itself.
"""

from __future__ import annotations

import copy
import gc
import heapq
import itertools
import os
import random
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from scheduler.cache import Cache
from scheduler.exclusions import Exclusions
from scheduler.framework.handle import Handle
from scheduler.nominator import Nominator
from scheduler.profiles import default_profile
from scheduler.queue import QueuedPod
from scheduler.scheduling_cycle import ScheduleResult, Unschedulable
from scheduler.wiring import hearts_of
from scheduler.world import WORLD_KINDS, FixedWorld, world_event
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import Document, View
from services.api.resources import resource_of_view
from services.api.switches import Switches
from services.experiments.bench.clocked import Clocks, clocking
from services.experiments.bench.procfs import rss_mib
from services.experiments.bench.result import Breakdown, SchedulerBench, breakdown_of, milliseconds
from services.experiments.workloads import documents
from services.experiments.workloads.documents import NewObject
from services.experiments.workloads.ops import (
    Churn,
    CreateNamespaces,
    CreateNodes,
    CreateObject,
    CreatePods,
    DeletePods,
    Size,
    Workload,
)

LIMIT_S: Final = 300.0
SEED: Final = 1
CLOCKED_PODS_MAX: Final = 1_000
"""Pods of the second, shorter play in which every plugin is clocked; clocking costs about as much again."""
PROGRESS_EVERY: Final = 256
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and of how many."""


class TooSlow(TimeoutError):
    """A step did not end within the limit."""


class Algorithm:
    """The hearts of one scheduler and the world they are shown.

    `now` is time as measured, plus what was skipped because nothing was to be done before.
    """

    def __init__(self, switches: Switches) -> None:
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
        self.hearts = hearts_of(self.handle)
        self.bound: dict[str, Pod] = {}
        self.unschedulable_total = 0
        self.latencies_s: list[float] = []
        self._skipped_s = 0.0
        self._agenda: list[tuple[float, int, Callable[[], float | None]]] = []
        self._tickets = itertools.count()
        self._views = {resource_of_view(view).plural: view for view in WORLD_KINDS}
        self._decode_pod = msgspec.json.Decoder(Pod).decode
        self._decode_node = msgspec.json.Decoder(Node).decode

    def now(self) -> float:
        """Return the hearts' time in seconds."""
        return time.perf_counter() + self._skipped_s

    # -- the world's doings -------------------------------------------------------------------------------

    def add_node(self, node: NewObject) -> Node:
        """Show a new node."""
        view = self._decode_node(node.body)
        self.hearts.handlers.on_node(None, view, self.now())
        return view

    def delete_node(self, node: Node) -> None:
        """Show that a node is gone."""
        self.hearts.handlers.on_node(node, None, self.now())

    def decode(self, pod: NewObject) -> Pod:
        """Return the pod as the scheduler's informer does."""
        return self._decode_pod(pod.body)

    def add_pod(self, pod: Pod) -> None:
        """Show a new pod."""
        self.hearts.handlers.on_pod(None, pod, self.now())

    def delete_pod(self, pod: Pod) -> None:
        """Show that a pod is gone."""
        self.hearts.handlers.on_pod(self.bound.pop(pod.metadata.uid, pod), None, self.now())

    def add_other(self, plural: str, document: Document) -> View | None:
        """Show an object of another kind; None when the scheduler does not follow it."""
        view = self._views.get(plural)
        if view is None:
            return None
        made = msgspec.convert(document, view)
        self.world.put(made)
        self.hearts.queue.move_all(world_event(view, None, made), None, made, self.now())
        return made

    def delete_other(self, made: View) -> None:
        """Show that such an object is gone."""
        self.world.delete(made)
        self.hearts.queue.move_all(world_event(type(made), made, None), made, None, self.now())

    def at(self, when: float, do: Callable[[], float | None]) -> None:
        """Do something at that time, and again after as many seconds as it returns."""
        heapq.heappush(self._agenda, (when, next(self._tickets), do))

    # -- cycles -------------------------------------------------------------------------------------------

    def run_until(self, is_done: Callable[[], bool], what: Callable[[], str]) -> None:
        """Schedule pods until that is so. Raises: TooSlow."""
        limit = time.perf_counter() + LIMIT_S
        agenda, queue = self._agenda, self.hearts.queue
        while not is_done():
            now = self.now()
            while agenda and agenda[0][0] <= now:
                when, _, do = heapq.heappop(agenda)
                after_s = do()
                if after_s is not None:
                    self.at(when + after_s, do)
            queue.flush(now)
            queued = queue.pop(now)
            if queued is not None:
                self._attempt(queued, now)
                continue
            deadline = queue.next_deadline(now)
            due = [when for when in (deadline, agenda[0][0] if agenda else None) if when is not None]
            if not due or time.perf_counter() > limit:
                raise TooSlow(f"{what()}, and nothing will change that" if not due else what())
            self._skipped_s += max(min(due) - now, 0.0)

    def _attempt(self, queued: QueuedPod, now: float) -> None:
        """Run one scheduling cycle, and the binding cycle as if the API server answered at once."""
        hearts, info = self.hearts, queued.info
        began = time.perf_counter()
        profile = hearts.profiles.of(info)
        result = profile.cycle.schedule(info, now)
        if not isinstance(result, ScheduleResult):
            self.unschedulable_total += 1
            self._fail(queued, result, now)
            return
        node, runner = result.node_name, profile.runner
        hearts.cache.assume(info, node, result.state)
        hearts.queue.nominator.remove(info.uid)
        for status in (runner.reserve(result.state, info, node), runner.permit(result.state, info, node)[0]):
            if not status.is_success:
                raise AssertionError(f"{info.key}: {status.message or 'Permit waits'}; no workload expects that")
        self.latencies_s.append(time.perf_counter() - began)
        runner.bind(result.state, info, node)
        pod = info.pod
        bound = self.bound[info.uid] = replace(pod, spec=replace(pod.spec, node_name=node))
        hearts.queue.done(info.uid)
        hearts.handlers.on_pod(pod, bound, now)
        hearts.queue.bound(queued)

    def _fail(self, queued: QueuedPod, result: Any, now: float) -> None:
        hearts = self.hearts
        if not isinstance(result, Unschedulable):
            raise AssertionError(f"{queued.key}: {result.message}; no workload expects that")
        diagnosis, post = result.error.diagnosis, result.post_filter
        hearts.queue.add_unschedulable(queued, now, rejectors=diagnosis.rejectors, pending=diagnosis.pending)
        if post is None:
            return
        if post.nominated_node is not None:
            hearts.queue.nominator.set(queued.info, post.nominated_node)
        for victim in _victims(post):
            state = hearts.cache.pods.get(victim)
            if state is not None:
                self.delete_pod(state.pod.pod)


def _victims(post: Any) -> list[str]:
    return [action.uid for action in post.actions if getattr(action, "uid", "")]


class Play:
    """One workload on one `Algorithm`, step by step."""

    def __init__(self, workload: Workload, size: Size, switches: Switches, progress: Progress) -> None:
        self._workload, self._size, self._progress = workload, size, progress
        self.algorithm = Algorithm(switches)
        self._pods_by_namespace: dict[str, list[Pod]] = {}

    def prepare(self) -> int:
        """Do every step before the measured one; return its number."""
        for step, op in enumerate(self._workload.ops):
            if isinstance(op, CreatePods) and op.is_measured:
                return step
            self._do(step, op)
        raise AssertionError(f"{self._workload.name} measures nothing")

    def measure(self, step: int) -> tuple[float, float]:
        """Do the measured step; return its seconds and its CPU seconds."""
        op = self._workload.ops[step]
        assert isinstance(op, CreatePods)
        algorithm = self.algorithm
        pods = [algorithm.decode(pod) for pod in documents.pods_of(op, step, self._size, is_stored=True)]
        self._volumes(op, pods)
        for pod in pods:
            algorithm.add_pod(pod)
        algorithm.latencies_s.clear()
        gc.collect()
        gc.freeze()
        began, cpu = time.perf_counter(), time.process_time()
        self._wait(pods, "measuring")
        return time.perf_counter() - began, time.process_time() - cpu

    def _do(self, step: int, op: Any) -> None:
        algorithm, size = self.algorithm, self._size
        match op:
            case CreateNodes():
                for node in documents.nodes_of(op, size):
                    algorithm.add_node(node)
            case CreateNamespaces():
                for number in range(size.count(op.count)):
                    meta = {"name": f"{op.prefix}-{number}", "labels": dict(op.labels)}
                    algorithm.add_other("namespaces", {"metadata": meta})
            case CreateObject():
                meta = {**op.document["metadata"], "namespace": op.namespace}
                algorithm.add_other(op.plural, {**op.document, "metadata": meta})
            case CreatePods():
                pods = [algorithm.decode(pod) for pod in documents.pods_of(op, step, size, is_stored=True)]
                self._pods_by_namespace.setdefault(op.namespace, []).extend(pods)
                self._volumes(op, pods)
                for pod in pods:
                    algorithm.add_pod(pod)
                if not op.may_wait:
                    self._wait(pods, "preparing")
            case Churn():
                algorithm.at(algorithm.now(), self._churn(op))
            case DeletePods():
                leaving = iter(list(self._pods_by_namespace[op.of]))

                def leave() -> float | None:
                    pod = next(leaving, None)
                    if pod is None:
                        return None
                    algorithm.delete_pod(pod)
                    return 1.0 / op.per_s

                algorithm.at(algorithm.now(), leave)

    def _volumes(self, op: CreatePods, pods: list[Pod]) -> None:
        for pod in pods if op.volume else ():
            for plural, document in documents.volumes_of(op.volume, pod.metadata.namespace, pod.metadata.name):
                self.algorithm.add_other(plural, document)

    def _churn(self, op: Churn) -> Callable[[], float | None]:
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
            body = msgspec.json.encode(documents.stored(copy.deepcopy(document))).replace(b"@uid@", name.encode())
            pod = algorithm.decode(NewObject("default", name, body))
            algorithm.add_pod(pod)
            return lambda: algorithm.delete_pod(pod)
        made = algorithm.add_other(plural, document)
        return lambda: None if made is None else algorithm.delete_other(made)

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
            return current is None

        self.algorithm.run_until(is_done, lambda: f"{done} of {total} pods have a node")
        self._progress(what, total, total)


def bench_algorithm(workload: Workload, size: Size, *, assignments: tuple[str, ...] = (),
                    progress: Progress = lambda what, done, total: None) -> SchedulerBench:  # fmt: skip
    """Play the workload and return its figures; a second, shorter play says where the time goes.

    Raises: TooSlow.
    """
    switches = Switches.parse(assignments)
    play = Play(workload, size, switches, progress)
    step = play.prepare()
    took_s, cpu_s = play.measure(step)
    latencies = play.algorithm.latencies_s
    rss = rss_mib(os.getpid())
    unschedulable = play.algorithm.unschedulable_total
    del play
    gc.unfreeze()
    where = _breakdown(workload, size, switches, progress)
    return SchedulerBench(
        workload=workload.name,
        form="algorithm",
        nodes=size.nodes,
        pods=size.pods,
        init_pods=size.init_pods,
        switches=assignments,
        pods_per_s=round(size.pods / took_s, 1),
        cpu_us_per_pod=round(1e6 * cpu_s / size.pods, 1),
        p50_ms=milliseconds(latencies, 0.5),
        p99_ms=milliseconds(latencies, 0.99),
        rss_mib={"algorithm": round(rss, 1)},
        unschedulable_attempts=unschedulable,
        by_plugin=where.by_plugin,
        by_extension_point=where.by_extension_point,
        by_part=where.by_part,
    )


def _breakdown(workload: Workload, size: Size, switches: Switches, progress: Progress) -> Breakdown:
    """Return where the time goes, from a play in which plugins are clocked."""
    algorithm = Algorithm(switches)
    pattern = algorithm.hearts
    plugins = [type(each.plugin) for each in default_profile(algorithm.handle)]
    parts = [(type(pattern.queue), "queue"), (type(pattern.cache), "cache"), (type(pattern.handlers), "handlers")]
    clocks = Clocks()
    shorter = Size(size.nodes, size.init_pods, min(size.pods, CLOCKED_PODS_MAX))
    with clocking(clocks, plugins, parts):
        play = Play(workload, shorter, switches, lambda what, done, total: progress("clocking", done, total))
        step = play.prepare()
        clocks.reset()
        took_s, _ = play.measure(step)
    return breakdown_of(clocks.spent_s, took_s, shorter.pods)
