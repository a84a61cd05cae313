"""The scalar and the vectorised form of every built-in say the same, and memory never lies (walls 5)."""

from __future__ import annotations

import functools
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.configuration.plugins import default_profile
from scheduler.entry import Handle
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, ScorePlugin
from scheduler.framework.runner import Runner
from scheduler.framework.status import Code
from scheduler.framework.utilization_shape import ShapePoint
from scheduler.framework.vectorized import VectorFilterPlugin, VectorScorePlugin
from scheduler.framework.world import FixedWorld
from scheduler.plugins.node_resources_balanced_allocation import ResourceSpec
from scheduler.plugins.node_resources_fit import RatioArgs, ResourceArgs, StrategyArgs
from scheduler.queue.exclusions import Exclusions
from services.api.kinds.node import Node, NodeSpec, NodeStatus, Taint
from services.api.kinds.pod import (
    Affinity,
    Container,
    ContainerPort,
    ContainerRestartRule,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Toleration,
    UnbindRecord,
)
from services.api.meta import ObjectMeta
from services.api.switches import Switches
from tests.unit.scheduler.conftest import new_handle, plugin_of

NAMES = st.sampled_from([f"n{i}" for i in range(6)])
KEYS, VALUES = st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", "-3", "x"])
EFFECTS = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
CPU = st.integers(0, 4000).map(lambda m: f"{m}m")
MEMORY = st.integers(0, 2**33).map(str)
QUANTITIES = st.fixed_dictionaries(
    {}, optional={"cpu": CPU, "memory": MEMORY, "x.io/gpu": st.integers(0, 4).map(str), "ephemeral-storage": MEMORY}
)
FEATURES = st.sampled_from([(), ("Anything",), ("RestartAllContainersOnContainerExits",)])
RULES = st.sampled_from(
    [(), (ContainerRestartRule(action="Restart"),), (ContainerRestartRule(action="RestartAllContainers"),)]
)
TAINTS = st.lists(st.builds(Taint, key=KEYS, value=VALUES, effect=EFFECTS), max_size=2).map(tuple)
TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        key=st.sampled_from(["", "a", "b"]),
        value=VALUES,
        effect=st.one_of(st.just(""), EFFECTS),
        operator=st.sampled_from(["", "Equal", "Exists"]),
    ),
    max_size=2,
).map(tuple)
PORTS = st.lists(
    st.builds(
        ContainerPort,
        host_port=st.sampled_from([0, 80, 81]),
        host_ip=st.sampled_from(["", "10.0.0.1", "10.0.0.2"]),
        protocol=st.sampled_from(["TCP", "UDP"]),
    ),
    max_size=2,
).map(tuple)
REQUIREMENT = st.builds(
    NodeSelectorRequirement,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    values=st.lists(VALUES, min_size=1, max_size=2).map(tuple),
)
FIELD = st.builds(
    NodeSelectorRequirement,
    key=st.just("metadata.name"),
    operator=st.sampled_from(["In", "NotIn"]),
    values=NAMES.map(lambda n: (n,)),
)
TERM = st.builds(
    NodeSelectorTerm,
    match_expressions=st.lists(REQUIREMENT, max_size=2).map(tuple),
    match_fields=st.lists(FIELD, max_size=1).map(tuple),
)
AFFINITY = st.builds(
    NodeAffinity,
    required=st.one_of(st.none(), st.builds(NodeSelector, node_selector_terms=st.lists(TERM, max_size=2).map(tuple))),
    preferred=st.lists(st.builds(PreferredSchedulingTerm, weight=st.integers(1, 100), preference=TERM), max_size=2).map(
        tuple
    ),
)


# A strategy that is made once is checked by Hypothesis once, and not for every example.
LABELS, A_LABEL = st.dictionaries(KEYS, VALUES), st.dictionaries(KEYS, VALUES, max_size=1)
HISTORIES = st.lists(
    st.builds(
        UnbindRecord, node_name=NAMES, reason=st.just("R"), request_id=NAMES, exclude_seconds=st.sampled_from([0, 60])
    ),
    max_size=2,
)
NODE_NAMES = st.sampled_from(["", "", "", "n1"])
AFFINITIES = st.one_of(st.none(), st.builds(Affinity, node_affinity=AFFINITY))


@functools.cache
@st.composite
def nodes(draw):
    name = draw(NAMES)
    allocatable = {**draw(QUANTITIES), "pods": str(draw(st.integers(0, 4)))}
    return Node(
        metadata=ObjectMeta(name=name, labels=draw(LABELS)),
        spec=NodeSpec(taints=draw(TAINTS), unschedulable=draw(st.booleans())),
        status=NodeStatus(allocatable=allocatable, declared_features=draw(FEATURES)),
    )


@functools.cache
@st.composite
def pods(draw, node="", uid="p"):
    container = Container(
        resources=ResourceRequirements(requests=draw(QUANTITIES)), ports=draw(PORTS), restart_policy_rules=draw(RULES)
    )
    sidecar = Container(restart_policy="Always", resources=ResourceRequirements(requests=draw(QUANTITIES)))
    history = draw(HISTORIES)
    return Pod(
        metadata=ObjectMeta(name="p", namespace="d", uid=uid),
        spec=PodSpec(
            node_name=node or draw(NODE_NAMES),
            containers=(container,),
            init_containers=draw(st.sampled_from([(), (sidecar,)])),
            tolerations=draw(TOLERATIONS),
            node_selector=draw(A_LABEL),
            affinity=draw(AFFINITIES),
        ),
        status=PodStatus(unbind_history=tuple(history)),
    )


SEVERAL_NODES = st.lists(nodes(), min_size=1, max_size=6)


@functools.cache
def some_of(*names):
    return st.lists(st.sampled_from(names), max_size=4)


@st.composite
def clusters(draw):
    """A cache with nodes (one of them removed again), and pods on some of them."""
    cache = Cache()
    for node in draw(SEVERAL_NODES):
        cache.set_node(node)
    for i, name in enumerate(draw(some_of(*cache.nodes))):
        cache.add_pod(PodInfo(draw(pods(name, f"bound{i}"))), name)
    if draw(st.booleans()):
        cache.remove_node(draw(NAMES))
    return cache


HARD, SOFT, V135 = (
    new_handle(Switches({name: value}))
    for name, value in (("scheduler.exclusion", "hard"), ("scheduler.exclusion", "soft"), ("balanced.formula", "v135"))
)
SHAPE = (ShapePoint(0, 10), ShapePoint(40, 2), ShapePoint(100, 7))
THREE = (ResourceArgs("cpu", 2), ResourceArgs("memory", 1), ResourceArgs("x.io/gpu", 3))
RATIO = StrategyArgs("RequestedToCapacityRatio", THREE, RatioArgs(SHAPE))
BUILT_IN = [
    plugin_of("NodeUnschedulable"),
    plugin_of("NodeName"),
    plugin_of("NodeDeclaredFeatures"),
    plugin_of("TaintToleration"),
    plugin_of("NodeAffinity"),
    plugin_of("NodeAffinity", added_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(
        NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="a", operator="Exists"),)),)))),
    plugin_of("NodePorts"),
    plugin_of("NodeResourcesFit"),
    plugin_of("NodeResourcesFit", scoring_strategy=StrategyArgs(resources=THREE), ignored_resources=("x.io/gpu",)),
    plugin_of("NodeResourcesFit", scoring_strategy=StrategyArgs("MostAllocated", THREE)),
    plugin_of("NodeResourcesFit", scoring_strategy=RATIO),
    plugin_of("NodeResourcesBalancedAllocation"),
    plugin_of("NodeResourcesBalancedAllocation", V135, resources=tuple(ResourceSpec(each.name) for each in THREE)),
    plugin_of("NodeRejection", HARD),
    plugin_of("NodeRejection", SOFT),
]  # fmt: skip


@settings(max_examples=120)
@given(cache=clusters(), pod=pods())
def test_both_forms_of_a_plugin_agree(cache, pod):
    """Each example is tried with every plugin: drawing it is most of what it costs."""
    info = PodInfo(pod)
    for handle in (HARD, SOFT):
        handle.exclusions.forget_pod(info.uid)
        handle.exclusions.learn(pod, 0.0)
    for plugin in BUILT_IN:
        _check_both_forms(plugin, info, cache.columns)


def _check_both_forms(plugin, info, columns):
    state = CycleState()
    rows = np.flatnonzero(columns.valid)
    if isinstance(plugin, VectorFilterPlugin) and isinstance(plugin, FilterPlugin):
        mask = plugin.filter_all(state, info, columns)
        passed = columns.full(True) if mask is None else mask
        refused = columns.valid & ~passed
        reasons = plugin.explain_all(state, info, columns, refused) if refused.any() else []
        for row in rows:
            status = plugin.filter(CycleState(), info, columns.nodes[row])
            assert status.is_success == passed[row], plugin
            said = [(r.reason, r.code) for r in reasons if r.mask[row]]
            assert sorted(said) == sorted((reason, status.code) for reason in status.reasons), plugin
            assert status.is_success or status.code is not Code.ERROR, plugin
    if isinstance(plugin, VectorScorePlugin) and isinstance(plugin, ScorePlugin):
        scores = plugin.score_all(state, info, columns)
        for row in rows:
            expected = plugin.score(CycleState(), info, columns.nodes[row])
            assert expected == (scores if isinstance(scores, int) else scores[row]), plugin


@settings(max_examples=40)
@given(cache=clusters(), pod=pods(), more=st.lists(st.tuples(nodes(), pods("n1", "more")), max_size=5))
def test_remembered_answers_equal_fresh_ones(cache, pod, more):
    handle = Handle(Switches(), cache, Nominator(), FixedWorld(), Exclusions(), random.Random(1), lambda: 0.0)
    remembering = Runner(default_profile(handle))
    info = PodInfo(pod)
    remembering.filter(CycleState(), info, cache.columns)
    for node, other in more:
        cache.set_node(node)
        if other.metadata.uid not in cache.pods:
            cache.add_pod(PodInfo(other), "n1")
        state = CycleState()
        found = remembering.filter(state, info, cache.columns)
        totals, _ = remembering.score(state, info, cache.columns, found)

        fresh, blank = Runner(default_profile(handle)), CycleState()
        expected = fresh.filter(blank, PodInfo(pod), cache.columns)
        wanted, _ = fresh.score(blank, PodInfo(pod), cache.columns, expected)
        assert np.array_equal(found.mask, expected.mask)
        # Where no plugin's normalised score varies, a constant may be left out of all.
        assert np.array_equal(totals == totals.max(), wanted == wanted.max())


@settings(max_examples=40)
@given(cache=clusters())
def test_columns_equal_the_sum_over_pods(cache):
    columns = cache.columns
    for name, row in columns.slots.items():
        info = cache.nodes[name]
        for resource, column in columns.requested.items():
            assert column[row] == sum(p.requests.amounts.get(resource, 0) for p in info.pods.values())
        assert columns.pod_count[row] == len(info.pods)
        assert columns.nonzero_cpu[row] == sum(p.requests.nonzero_cpu for p in info.pods.values())
    assert columns.valid.sum() == len(columns.slots)
