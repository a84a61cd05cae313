"""A workload played to the scheduler's core alone: cache, queue, handlers and cycles, in one process.

No API server, no wire and no waiting: pods are handed over as a watch would show them, a choice is assumed
and confirmed at once, victims leave at once. What is measured is what scheduling costs by itself.
"""

import copy
import gc
import itertools
import os
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from benchmarks.clocks import Clocks, clocking
from benchmarks.result import Breakdown, SchedulerBench, breakdown_of, milliseconds
from benchmarks.running_mesh import rss_mib
from benchmarks.scheduler_cores import Algorithm
from benchmarks.workloads import documents
from benchmarks.workloads.documents import NewObject
from benchmarks.workloads.ops import (
    Churn,
    CreateNamespaces,
    CreateNodes,
    CreateObject,
    CreatePods,
    DeferResizes,
    DeletePods,
    Size,
    Workload,
)
from scheduler.configuration.plugins import default_profile
from services.api.kinds.pod import Pod
from services.api.meta import Document
from services.api.switches import Switches

CLOCKED_PODS_MAX: Final = 1_000
"""Pods of the second, shorter play in which every plugin is clocked; clocking costs about as much again."""
PROGRESS_EVERY: Final = 256
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and of how many."""


class Play:
    """One workload on one `Algorithm`, step by step."""

    def __init__(self, workload: Workload, size: Size, switches: Switches, progress: Progress) -> None:
        self._workload, self._size, self._progress = workload, size, progress
        # Pods that come at a rate wait for work that is going on; other programs on the machine must not count as work.
        is_paced = any(isinstance(op, CreatePods) and op.per_s for op in workload.ops)
        self.algorithm = Algorithm(switches, time.process_time if is_paced else time.perf_counter)
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
        algorithm.latencies_s.clear()
        gc.collect()
        gc.freeze()
        began, cpu = time.perf_counter(), time.process_time()
        if op.per_s:
            algorithm.expect(pods, op.per_s)
        else:
            for pod in pods:
                algorithm.add_pod(pod)
        self._wait(pods, "measuring")
        return time.perf_counter() - began, time.process_time() - cpu

    def _do(self, step: int, op: Any) -> None:
        algorithm, size = self.algorithm, self._size
        match op:
            case CreateNodes():
                for node in documents.nodes_of(op, size):
                    algorithm.add_node(node)
                for document in documents.csi_nodes_of(op, size):
                    algorithm.add_other("csinodes", document)
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
            case DeferResizes():
                for made, _ in documents.deferred_of(op, step, size, is_stored=True):
                    algorithm.add_pod(algorithm.decode(made))
                algorithm.rest()
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


def bench_algorithm(
    workload: Workload,
    size: Size,
    *,
    assignments: tuple[str, ...] = (),
    progress: Progress = lambda what, done, total: None,
) -> SchedulerBench:
    """Play the workload and return its figures; a second, shorter play says where the time goes.

    Raises: TooSlow.
    """
    switches = Switches.parse(assignments)
    play = Play(workload, size, switches, progress)
    step = play.prepare()
    took_s, cpu_s = play.measure(step)
    latencies = play.algorithm.latencies_s
    rss = rss_mib(os.getpid())
    unschedulable, evicted = play.algorithm.unschedulable_total, play.algorithm.evicted_total
    resize_attempts = play.algorithm.resize_attempts_total
    del play
    gc.unfreeze()
    where = where_the_time_goes(workload, size, switches, progress)
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
        evicted=evicted,
        resize_attempts=resize_attempts,
        by_plugin=where.by_plugin,
        by_extension_point=where.by_extension_point,
        by_part=where.by_part,
    )


def where_the_time_goes(workload: Workload, size: Size, switches: Switches, progress: Progress) -> Breakdown:
    """Return where the time goes, from a play in which plugins are clocked."""
    algorithm = Algorithm(switches)
    pattern = algorithm.core
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
