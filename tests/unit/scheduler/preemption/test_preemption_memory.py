"""What preemption remembers of nodes never differs from what it would find out anew."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.plugins.default_preemption import DefaultPreemption, DefaultPreemptionArgs
from services.api.kinds.poddisruptionbudget import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from services.api.meta import LabelSelector, ObjectMeta


def budget(allowed):
    return PodDisruptionBudget(
        metadata=ObjectMeta(name="x", namespace="default"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "x"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


class Churn:
    """A small cluster where anything may change between two attempts."""

    def __init__(self, a, world, seed):
        self.a, self.world, self.chance = a, world, random.Random(seed)
        self.pods, self.made = [], 0
        world.nodes(*(a.node(f"n{i}") for i in range(6)))
        for _ in range(60):
            self.add()

    def add(self):
        chance, self.made = self.chance, self.made + 1
        node = self.world.cache.nodes[f"n{chance.randrange(6)}"]
        cpu = chance.choice((500, 1000, 1500))
        if node.allocatable["cpu"] - node.requested.get("cpu", 0) < cpu:
            return
        pod = self.a.pod(
            f"v{self.made}",
            cpu=f"{cpu}m",
            node=node.name,
            priority=chance.choice((0, 5, 50)),
            labels=chance.choice(({}, {"app": "x"})),
        )
        self.world.pods(pod)
        self.pods.append(pod)

    def change(self):
        chance = self.chance
        at = chance.randrange(len(self.pods)) if self.pods else -1
        match chance.randrange(7):
            case 0 if at >= 0:
                self.world.handlers.on_pod(self.pods.pop(at), None, 0.0)
            case 1 if at >= 0:
                old = self.pods[at]
                new = replace(
                    old, status=replace(old.status, start_time=f"2026-01-01T10:{chance.randrange(60):02}:00Z")
                )
                self.pods[at] = new
                self.world.handlers.on_pod(old, new, 0.0)
            case 2 if at >= 0:
                old = self.pods[at]
                new = replace(old, metadata=replace(old.metadata, labels=chance.choice(({}, {"app": "x"}))))
                self.pods[at] = new
                self.world.handlers.on_pod(old, new, 0.0)
            case 3:
                self.world.world.put(budget(chance.randrange(2)))
            case 4:
                rival = self.a.pod(f"r{chance.randrange(3)}", cpu="1", priority=chance.choice((50, 100)))
                self.world.handle.nominator.set(PodInfo(rival), chance.choice(("", "n1", "n2")))
            case 5:
                name = f"n{chance.randrange(6)}"
                old = self.world.cache.nodes[name].node
                self.world.handlers.on_node(old, self.a.node(name, cpu=chance.choice(("3", "4"))), 0.0)
            case _:
                self.add()


def answer(plugin, runner, columns, pod):
    """What the plugin makes of the pod: node, victims, text; nothing when it fits anyway."""
    state = CycleState(0.0)
    found = runner.filter(state, pod, columns)
    if found.mask.any():
        return ()
    diagnosis = runner.diagnose(state, pod, columns, found)
    result = plugin.decide(state, pod, columns, diagnosis)
    return result.nominated_node, [v.uid for e in result.actions for v in e.victims], result.status.message


@pytest.mark.parametrize("seed", range(12))
def test_remembered_results_are_those_a_fresh_look_gives(cluster, a, seed):
    world = cluster()
    churn = Churn(a, world, seed)
    known = world.runner.plugins_by_name["DefaultPreemption"]
    preemptors = [PodInfo(a.pod(f"p{cpu}", cpu=cpu, priority=priority)) for cpu, priority in (("2", 60), ("3", 20))]
    for _ in range(40):
        churn.change()
        fresh = DefaultPreemption(DefaultPreemptionArgs(), world.handle)
        fresh.use_filters(world.runner)
        for pod in preemptors:
            columns = world.cache.columns
            assert answer(known, world.runner, columns, pod) == answer(fresh, world.runner, columns, pod)
