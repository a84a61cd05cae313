"""How full nodes are, how evenly, and for how long: every figure by hand."""

from __future__ import annotations

import random

import msgspec
import pytest

from lab.scenarios.measures.placement import Placement
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.reconcile.controller import Change


class Seen:
    """What a run's observer sees of nodes and pods."""

    def __init__(self):
        self.placement = Placement()
        self._objects = {}

    def node(self, at, name, cpu="10", memory="10", **more):
        allocatable = {
            "cpu": cpu,
            "memory": memory,
            "pods": "110",
            **{k.replace("__", "/"): v for k, v in more.items()},
        }
        self._change(at, Node, name, {"status": {"allocatable": allocatable}}, self.placement.on_node)
        return self

    def pod(self, at, name, node="", phase="Pending", generation=1, has=None, **requests):
        requests = {k.replace("__", "/"): v for k, v in requests.items()}
        status = {"phase": phase}
        if has is not None:
            status["containerStatuses"] = [{"name": "c", "allocatedResources": has, "resources": {"requests": has}}]
        document = {
            "metadata": {"generation": generation},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]},
            "status": status,
        }
        self._change(at, Pod, name, document, self.placement.on_pod)
        return self

    def _change(self, at, view, name, document, take):
        meta = {"name": name, "namespace": "default", "uid": name, **document.pop("metadata", {})}
        new = msgspec.convert({"metadata": meta, **document}, view)
        take(Change(self._objects.get((view, name)), new), at)
        self._objects[view, name] = new

    def gone(self, at, view, name):
        old = self._objects.pop((view, name))
        (self.placement.on_pod if view is Pod else self.placement.on_node)(Change(old, None), at)
        return self

    def figures(self, at):
        return self.placement.measures(at)


def test_utilization_is_requested_of_allocatable_over_all_nodes_at_the_end_over_time_and_at_most():
    seen = Seen().node(0, "n1").node(0, "n2")
    seen.pod(10, "a", cpu="5").pod(10, "a", "n1", cpu="5").pod(15, "b", "n2", cpu="5")
    seen.pod(20, "b", "n2", "Succeeded", cpu="5")

    figures = seen.figures(30)

    assert (figures["cpu_utilization_end"], figures["cpu_utilization_max"]) == (0.25, 0.5)
    assert figures["cpu_utilization_mean"] == pytest.approx((5 * 0.25 + 5 * 0.5 + 10 * 0.25) / 20)


def test_imbalance_is_the_standard_deviation_of_the_nodes_fractions():
    seen = Seen().node(0, "n1").node(0, "n2").node(0, "n3", cpu="20")
    seen.pod(0, "a", "n1", cpu="6").pod(0, "b", "n3", cpu="6")

    figures = seen.figures(1)

    fractions = (0.6, 0.0, 0.3)
    assert figures["cpu_imbalance_end"] == pytest.approx((sum((f - 0.3) ** 2 for f in fractions) / 3) ** 0.5)
    assert figures["cpu_imbalance_mean"] == figures["cpu_imbalance_end"]


def test_nodes_that_are_alike_are_in_balance_whatever_came_before():
    seen, names = Seen(), [f"p{i}" for i in range(60)]
    for i in range(3):
        seen.node(0, f"n{i}", cpu="7")
    chance = random.Random(4)
    for at, name in enumerate(names):
        seen.pod(at, name, f"n{chance.randrange(3)}", cpu="100m")
    for at, name in enumerate(chance.sample(names, 60), 60):
        seen.gone(at, Pod, name)

    assert seen.figures(200)["cpu_imbalance_end"] == 0.0


def test_the_deviation_within_a_node_is_that_of_the_balanced_allocation():
    seen = Seen().node(0, "n1").node(0, "n2")
    seen.pod(0, "a", "n1", cpu="6", memory="2").pod(0, "b", "n2", cpu="12", memory="10")

    assert seen.figures(1)["node_imbalance_end"] == pytest.approx((0.2 + 0.0) / 2)


def test_what_is_free_on_one_node_is_not_fragmented():
    one = Seen().node(0, "n1").node(0, "n2").pod(0, "a", "n1", cpu="10")
    apart = Seen().node(0, "n1").node(0, "n2").pod(0, "a", "n1", cpu="5").pod(0, "b", "n2", cpu="5")
    full = Seen().node(0, "n1").pod(0, "a", "n1", cpu="10")

    assert [0.0, 0.5, None] == [seen.figures(1)["cpu_fragmentation_end"] for seen in (one, apart, full)]


def test_pods_are_counted_by_node_while_they_neither_failed_nor_succeeded():
    seen = Seen().node(0, "n1").node(0, "n2").node(0, "n3")
    for i in range(3):
        seen.pod(0, f"a{i}", "n1", cpu="1")
    seen.pod(0, "b", "n2", cpu="1").pod(0, "c", "n3", cpu="1").pod(5, "c", "n3", "Failed", cpu="1").pod(0, "d", cpu="1")

    figures = seen.figures(10)

    assert (3, 0, 3) == tuple(figures[f"pods_per_node_{what}"] for what in ("max", "min", "spread"))
    assert figures["pods_per_node_spread_mean"] == pytest.approx((5 * 2 + 5 * 3) / 10)
    assert figures["nodes_used_mean"] == pytest.approx((5 * 3 + 5 * 2) / 10)


def test_a_pod_that_is_unbound_leaves_its_node_and_counts_on_the_next():
    seen = Seen().node(0, "n1").node(0, "n2")
    seen.pod(0, "a", "n1", cpu="5").pod(1, "a", "", cpu="5").pod(2, "a", "n2", cpu="5")

    assert seen.placement.node("n1")["utilization"]["cpu"] == 0.0
    assert seen.placement.node("n2") == {
        "requested": {"cpu": 5.0, "memory": 0.0, "pods": 0.0}, "allocatable": {"cpu": 10.0, "memory": 10.0, "pods": 110.0},
        "utilization": {"cpu": 0.5, "memory": 0.0, "pods": 0.0}, "pods": 1,
    }  # fmt: skip


def test_a_resize_counts_with_all_that_it_may_hold_until_it_is_done():
    seen, small, large = Seen().node(0, "n1"), {"cpu": "2"}, {"cpu": "6"}
    seen.pod(0, "a", "n1", has=small, **small)
    seen.pod(1, "a", "n1", generation=2, has=large, **small)
    held = seen.figures(2)["cpu_utilization_end"]
    seen.pod(2, "a", "n1", generation=2, has=small, **small)

    assert (0.6, 0.2) == (held, seen.figures(3)["cpu_utilization_end"])


def test_a_node_that_comes_late_or_goes_changes_what_there_is():
    seen = Seen().pod(0, "a", "n1", cpu="5").node(1, "n1").node(2, "n2")
    both = seen.figures(3)
    seen.gone(4, Node, "n2").node(5, "n1", cpu="20")

    assert (0.25, 0.25) == (both["cpu_utilization_end"], seen.figures(6)["cpu_utilization_end"])
    assert (0, 1) == (both["pods_per_node_min"], seen.figures(6)["pods_per_node_min"])


def test_only_what_a_pod_requests_has_figures():
    plain = Seen().node(0, "n1", example__gpu="4").pod(0, "a", "n1", cpu="5").figures(1)
    gpu = Seen().node(0, "n1", example__gpu="4").pod(0, "a", "n1", example__gpu="1").figures(1)

    assert not any(name.startswith(("memory", "example", "node_imbalance")) for name in plain)
    assert gpu["example/gpu_utilization_end"] == 0.25


def test_a_run_without_a_pod_on_a_node_has_no_figures_of_placement():
    assert Seen().node(0, "n1").pod(0, "a", cpu="5").figures(5) == {}


@pytest.mark.parametrize("seed", range(5))
def test_sums_that_are_kept_agree_with_counting_anew(seed):
    chance, seen, where = random.Random(seed), Seen(), {}
    there = {}
    for at in range(200):
        if chance.random() < 0.2:
            name = f"n{chance.randrange(5)}"
            if name in there and chance.random() < 0.4:
                del there[name]
                seen.gone(at, Node, name)
            else:
                there[name] = chance.randint(1, 9)
                seen.node(at, name, cpu=str(there[name]))
        else:
            name = f"p{chance.randrange(12)}"
            if name in where and chance.random() < 0.4:
                del where[name]
                seen.gone(at, Pod, name)
            else:
                where[name] = f"n{chance.randrange(5)}"
                seen.pod(at, name, where[name], cpu="1")
    counts = {node: sum(on == node for on in where.values()) for node in there}

    figures = seen.figures(300)

    assert figures["cpu_utilization_end"] == pytest.approx(sum(counts.values()) / sum(there.values()))
    assert (max(counts.values()), min(counts.values())) == (figures["pods_per_node_max"], figures["pods_per_node_min"])
    fractions = [counts[node] / there[node] for node in there]
    mean = sum(fractions) / len(fractions)
    expected = (sum((f - mean) ** 2 for f in fractions) / len(fractions)) ** 0.5
    assert figures["cpu_imbalance_end"] == pytest.approx(expected, abs=1e-8)
