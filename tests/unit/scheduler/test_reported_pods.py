"""A pod on a node that changes only in what its node reports: counted and queued as if all of it were looked at."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.event_handlers import UNCHANGED
from services.api.kinds.pod import (
    Affinity,
    ContainerStatus,
    PodAffinity,
    PodAffinityTerm,
    PodStatus,
    ResourceRequirements,
)
from services.api.meta import LabelSelector

TERM = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": "web"}), topology_key="kubernetes.io/hostname")
APART = Affinity(pod_anti_affinity=PodAffinity(required=(TERM,)))
SIZES = ({"cpu": "1", "memory": "1Gi"}, {"cpu": "3", "memory": "1Gi"})


def _next(chance, pod):
    """Return a later form of a pod on its node: mostly of its status, sometimes of what counts."""
    what = chance.choice(("phase", "phase", "size", "labels", "deletion", "nominated", "annotations"))
    metadata, status = pod.metadata, pod.status
    if what == "phase":
        status = replace(status, phase=chance.choice(("Pending", "Running")))
    elif what == "size":
        held = ContainerStatus(name="c", resources=ResourceRequirements(requests=chance.choice(SIZES)))
        status = replace(status, container_statuses=(held,))
    elif what == "labels":
        metadata = replace(metadata, labels={"app": chance.choice(("web", "db"))})
    elif what == "deletion":
        metadata = replace(metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    elif what == "nominated":
        status = replace(status, nominated_node_name="n2")
    else:
        metadata = replace(metadata, annotations={"k": str(chance.random())})
    return replace(pod, metadata=metadata, status=status)


def _sight(world):
    """Return all that plugins see of nodes and pods."""
    nodes = {
        name: (
            sorted(node.pods),
            [node.pods[uid].pod for uid in sorted(node.pods)],
            {k: v for k, v in node.requested.items() if v},
            (node.nonzero_cpu, node.nonzero_memory, node.used_ports),
        )
        for name, node in world.cache.nodes.items()
    }
    populations = {k: v for k, v in world.cache.index._populations.items() if v}
    columns = {name: row.tolist() for name, row in world.cache.columns.requested.items()}
    return nodes, columns, populations, world.cache.index.term_count


def _play(world, a, seed):
    """Return what each change of a random history did."""
    chance = random.Random(seed)
    world.nodes(a.node("n1"), a.node("n2"))
    kinds = [{}, {"affinity": APART}]
    pods = [a.pod(f"p{i}", node=chance.choice(("n1", "n2")), cpu="1", **chance.choice(kinds)) for i in range(4)]
    world.pods(*pods, a.pod("waits", cpu="9"), a.pod("alone", cpu="1", affinity=APART, labels={"app": "web"}))
    moves, seen = [], []
    world.queue.on_move = lambda queued, pool, by, hint: moves.append((queued.key.name, str(pool), by, hint))
    for at in range(1, 12):
        world.attempt(float(at))
        number = chance.randrange(4)
        old, pods[number] = pods[number], _next(chance, pods[number])
        effects = world.handlers.on_pod(old, pods[number], float(at))
        seen.append((list(effects), list(moves), _sight(world)))
    return seen


@pytest.mark.parametrize("seed", range(25))
def test_what_is_seen_of_a_reported_pod_is_the_same_as_when_all_of_it_is_looked_at(cluster, a, monkeypatch, seed):
    seen = _play(cluster(), a, seed)

    monkeypatch.setattr(PodInfo, "counts_like", lambda self, before: False)

    assert _play(cluster(), a, seed) == seen


def test_a_report_of_a_pods_node_leads_to_nothing_and_a_change_of_its_labels_may(cluster, a):
    pod = a.pod("p", node="n1")
    world = cluster().nodes(a.node("n1")).pods(pod)
    assert world.cache.pods["p"].pod.identity.labels == ()
    running = replace(pod, status=PodStatus(phase="Running"))

    reported = world.handlers.on_pod(pod, running, 1.0)
    labeled = world.handlers.on_pod(running, replace(running, metadata=replace(pod.metadata, labels={"a": "b"})), 2.0)

    assert reported is UNCHANGED
    assert labeled is not UNCHANGED
    assert world.cache.pods["p"].pod.pod.metadata.labels == {"a": "b"}


def test_a_report_that_moves_a_pod_in_the_queue_is_not_taken_for_nothing(cluster, a):
    pod = a.pod("p", node="n1")
    world = cluster().nodes(a.node("n1")).pods(pod, a.pod("waits", cpu="9"))
    assert world.attempt(0.0) == "waits!"
    world.queue.move_all = lambda event, old, new, now, **_: 1

    assert world.handlers.on_pod(pod, replace(pod, status=PodStatus(phase="Running")), 1.0) is not UNCHANGED
