"""`node_groups`: what the filters answer, nodes with one answer as one group."""

import numpy as np

from scheduler.cache.node_info import PodInfo
from scheduler.explain.node_groups import NAMED_MAX, NodeGroup, node_groups
from services.api.kinds.node import Taint


def ask(world, pod):
    return node_groups(world.runner, world.cache.columns, world.queue.nominator, 0.0, PodInfo(pod))


def test_nodes_with_the_same_answer_are_one_group_and_reasons_keep_together(cluster, a):
    gpu = Taint(key="dedicated", value="gpu", effect="NoSchedule")
    world = cluster().nodes(
        a.node("n1", cpu="2"),
        a.node("n2", cpu="2"),
        a.node("n3", cpu="8", taints=(gpu,)),
        a.node("n4", cpu="2", memory="1Gi"),
    )

    asked, groups = ask(world, a.pod(cpu="4", memory="2Gi"))

    assert asked.index("TaintToleration") < asked.index("NodeResourcesFit")
    assert [
        NodeGroup("NodeResourcesFit", ("Insufficient cpu",), False, 2, ("n1", "n2")),
        NodeGroup("NodeResourcesFit", ("Insufficient cpu", "Insufficient memory"), False, 1, ("n4",)),
        NodeGroup("TaintToleration", ("node(s) had untolerated taint(s)",), False, 1, ("n3",)),
    ] == groups


def test_a_node_that_fits_is_a_group_of_no_plugin(cluster, a):
    _, groups = ask(cluster().nodes(a.node("n1"), a.node("n2")), a.pod())

    assert [NodeGroup("", (), False, 2, ("n1", "n2"))] == groups


def test_what_preemption_may_help_is_said(cluster, a):
    world = cluster().nodes(a.node("n1", cpu="4")).pods(a.pod("x", cpu="3", node="n1"))

    _, (group,) = ask(world, a.pod(cpu="4"))

    assert ("NodeResourcesFit", True) == (group.plugin, group.is_resolvable)


def test_without_nodes_there_is_no_group(cluster, a):
    assert [] == ask(cluster(), a.pod())[1]


def test_every_node_is_in_one_group_and_names_are_bounded(cluster, a):
    random = np.random.default_rng(1)
    sizes = random.choice(["1", "2", "8"], 300)
    world = cluster().nodes(*(a.node(f"n{at:03}", cpu=size) for at, size in enumerate(sizes)))

    _, groups = ask(world, a.pod(cpu="2"))

    assert {("", int((sizes != "1").sum())), ("NodeResourcesFit", int((sizes == "1").sum()))} == {
        (group.plugin, group.count) for group in groups
    }
    assert all(len(group.nodes) == min(group.count, NAMED_MAX) for group in groups)
    assert groups == sorted(groups, key=lambda group: -group.count)
