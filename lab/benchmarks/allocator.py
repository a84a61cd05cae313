"""Benchmark of the device allocator alone: search rate, backtracking among partitions, and memory of many devices."""

import gc
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from lab.benchmarks.result import Result
from lab.benchmarks.running_mesh import rss_mib
from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.node import Node
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.kinds.resourceslice import ResourceSlice
from services.api.meta import Document, ObjectMeta
from services.dra.allocated_devices import Allocated
from services.dra.allocator import Allocator
from services.dra.pools import Slices
from services.dra.solution import Solution

DRIVER: Final = "gpu.example.com"
CLASS: Final = DeviceClass(metadata=ObjectMeta(name="gpu"))
SEARCHES: Final = 2_000
CARDS, PARTITIONS = 8, 8
PER_NODE: Final = 20


@dataclass
class AllocatorBench(Result):
    """Figures of the device allocator.

    `searches_per_s`: allocations of one device out of 20 on a node not searched before, results included.
    `back_ms`: CPU time of one allocation of 8 partitions of one card out of 8 cards, where only the last card
    has all of its partitions left. `mib`: memory of the slices, pools and devices, 20 devices on a node, by
    number of devices.
    """

    searches_per_s: float
    back_ms: float
    mib: dict[int, float]


def bench_allocator(devices: tuple[int, ...] = (10_000, 100_000)) -> AllocatorBench:
    """Measure the allocator; memory is measured in a fresh interpreter for each number of devices."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        mib = {count: pool.submit(_held_mib, count).result() for count in devices}
    return AllocatorBench(_searches_per_s(), _back_ms(), mib)


def _slice(name: str, node: str, count: int = 1, **spec: Any) -> ResourceSlice:
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    document = {"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": pool, "nodeName": node, **spec}}
    return msgspec.convert(document, ResourceSlice)


def _claim(**more: Any) -> ResourceClaim:
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": more.pop("count", 1)}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}], **more}}
    return msgspec.convert({"metadata": {"name": "c", "namespace": "default", "uid": "c"}, "spec": spec}, ResourceClaim)


def _node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name))


def _device(number: int) -> Document:
    return {
        "name": f"gpu-{number}",
        "attributes": {"model": {"string": "A100"}, "uuid": {"string": f"GPU-{number:032x}"}},
        "capacity": {"memory": {"value": "80Gi"}},
    }


def _searches_per_s() -> float:
    nodes = [_node(f"n{number}") for number in range(SEARCHES)]
    slices = Slices(_slice(n.metadata.name, n.metadata.name, devices=[_device(i) for i in range(20)]) for n in nodes)
    claim, allocated = _claim(), Allocated()

    def search() -> None:
        for node in nodes:
            allocator = Allocator([claim], {"gpu": CLASS}.get, allocated)
            found = allocator.allocate(node.metadata.name, slices.of_node(node))
            assert isinstance(found, Solution)
            (allocation,) = found.allocations(node.metadata.name, str)
            allocated.put(node.metadata.name, allocation)

    return round(SEARCHES / _cpu_s(search), 1)


def _back_ms() -> float:
    partitions = [
        {
            "name": f"card-{card}-part-{part}",
            "attributes": {"card": {"int": card}},
            "consumesCounters": [{"counterSet": f"card-{card}", "counters": {"memory": {"value": "10Gi"}}}],
        }
        for card in range(CARDS)
        for part in range(PARTITIONS)
    ]
    # All cards but the last have memory for one partition less.
    sets = [
        {"name": f"card-{card}", "counters": {"memory": {"value": "80Gi" if card == CARDS - 1 else "70Gi"}}}
        for card in range(CARDS)
    ]
    slices = Slices([_slice("d", "n", 2, devices=partitions), _slice("c", "n", 2, sharedCounters=sets)])
    claim = _claim(count=PARTITIONS, constraints=[{"matchAttribute": f"{DRIVER}/card"}])
    pools = slices.of_node(_node("n"))

    def search() -> None:
        found = Allocator([claim], {"gpu": CLASS}.get, Allocated()).allocate("n", pools)
        assert isinstance(found, Solution)
        assert found.picks[0].candidate.device.name.startswith(f"card-{CARDS - 1}-")

    return round(1e3 * _cpu_s(search), 2)


def _held_mib(devices: int) -> float:
    gc.collect()
    before = rss_mib(os.getpid())
    nodes = [_node(f"n{number}") for number in range(devices // PER_NODE)]
    slices = Slices()
    for at, node in enumerate(nodes):
        own = [_device(at * PER_NODE + number) for number in range(PER_NODE)]
        slices.put(_slice(node.metadata.name, node.metadata.name, devices=own))
    reached = sum(len(pool.candidates) for node in nodes for pool in slices.of_node(node))
    gc.collect()
    assert reached == devices
    return round(rss_mib(os.getpid()) - before, 1)


def _cpu_s(do: Callable[[], None]) -> float:
    began = time.process_time()
    do()
    return time.process_time() - began
