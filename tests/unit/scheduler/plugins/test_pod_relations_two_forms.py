"""Spreading, pod affinity and the index behind them: the fast form, the form for one node and a recount agree."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo, compile_selector
from scheduler.cache.pod_index import REQUIRED_AFFINITY, Clause, Question
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.status import Code
from scheduler.plugins.image_locality import with_tag
from services.api.kinds.namespace import Namespace
from services.api.kinds.node import ContainerImage, Node, NodeSpec, NodeStatus, Taint
from services.api.kinds.pod import (
    Affinity,
    Container,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from services.api.kinds.service import Service, ServiceSpec
from services.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from tests.unit.scheduler.conftest import new_handle, plugin_of

KINDS = ["PodTopologySpread", "InterPodAffinity"]
"""Each example is tried with both: drawing it is most of what it costs."""
HOST = "kubernetes.io/hostname"
KEYS = st.sampled_from(["zone", "rack", HOST])
SPACES = st.sampled_from(["d", "d", "d", "e"])
LABELS = st.one_of(
    st.sampled_from([{"app": "x"}, {"app": "y"}]),
    st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"])),
)
EXPRESSIONS = st.lists(
    st.one_of(
        st.builds(
            LabelSelectorRequirement,
            key=st.sampled_from(["app", "tier"]),
            operator=st.sampled_from(["In", "NotIn"]),
            values=st.sampled_from([("x",), ("y",), ("x", "y")]),
        ),
        st.builds(
            LabelSelectorRequirement,
            key=st.sampled_from(["app", "tier"]),
            operator=st.sampled_from(["Exists", "DoesNotExist"]),
        ),
    ),
    max_size=1,
).map(tuple)
PLAIN = st.sampled_from([LabelSelector(match_labels={"app": "x"}), LabelSelector(match_labels={"app": "y"})])
SELECTORS = st.one_of(
    PLAIN, PLAIN, st.builds(LabelSelector, match_labels=LABELS),
    st.builds(LabelSelector, match_expressions=EXPRESSIONS), st.none(),
)  # fmt: skip
TERMS = st.builds(
    PodAffinityTerm,
    label_selector=SELECTORS,
    namespaces=st.sampled_from([(), (), ("e",), ("d", "e")]),
    namespace_selector=st.sampled_from(
        [None, None, LabelSelector(), LabelSelector(match_labels={"team": "t"})]
    ),
    topology_key=KEYS,
)  # fmt: skip
SIDES = st.one_of(
    st.none(),
    st.builds(
        PodAffinity,
        required=st.lists(TERMS, max_size=2).map(tuple),
        preferred=st.lists(
            st.builds(WeightedPodAffinityTerm, weight=st.integers(1, 100), pod_affinity_term=TERMS), max_size=2
        ).map(tuple),
    ),
)
POLICIES = st.sampled_from(["", "Honor", "Ignore"])
CONSTRAINTS = st.builds(
    TopologySpreadConstraint,
    max_skew=st.integers(1, 2),
    topology_key=KEYS,
    when_unsatisfiable=st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    label_selector=SELECTORS,
    min_domains=st.sampled_from([None, None, 1, 3]),
    node_affinity_policy=POLICIES,
    node_taints_policy=POLICIES,
    match_label_keys=st.sampled_from([(), ("app",), ("gone",)]),
)
TAINTS = st.sampled_from([(), (), (Taint(key="a", effect="NoSchedule"),), (Taint(key="a", effect="PreferNoSchedule"),)])
NAMESPACES = (Namespace(metadata=ObjectMeta(name="d", labels={"team": "t"})), Namespace(metadata=ObjectMeta(name="e")))
IMAGES = st.lists(
    st.builds(
        ContainerImage,
        names=st.sampled_from([("a:latest",), ("b:1", "b@sha256:0"), ("c:2",)]),
        size_bytes=st.integers(0, 3 * 2**30),
    ),
    max_size=2,
).map(tuple)


# A strategy that is made once is checked by Hypothesis once, and not for every example.
VALUES, FOUR_OF_FIVE = st.sampled_from(["1", "2"]), st.integers(0, 4)


@functools.cache
@st.composite
def nodes(draw, name):
    labels = {key: draw(VALUES) for key in ("zone", "rack") if draw(FOUR_OF_FIVE)}
    if draw(FOUR_OF_FIVE):
        labels[HOST] = name
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=NodeSpec(taints=draw(TAINTS)),
        status=NodeStatus(allocatable={"cpu": "8", "pods": "20"}, images=draw(IMAGES)),
    )


# Few terms at a time: with many, one refusal hides all others.
BOTH_SIDES = st.sampled_from([(SIDES, st.none()), (st.none(), SIDES), (SIDES, SIDES)])
DELETIONS = st.sampled_from([None, None, None, "2026-01-01T00:00:00Z"])
IMAGE_NAMES = st.sampled_from(["a", "b:1", "none"])
SPREADS = st.lists(CONSTRAINTS, max_size=2).map(tuple)
NODE_SELECTORS = st.sampled_from([{}, {}, {"zone": "1"}])
TOLERATIONS = st.sampled_from([(), (Toleration(key="a", operator="Exists"),)])


@functools.cache
@st.composite
def pods(draw, uid):
    likes, dislikes = draw(BOTH_SIDES)
    likes, dislikes = draw(likes), draw(dislikes)
    meta = ObjectMeta(
        name=uid, namespace=draw(SPACES), uid=uid, labels=draw(LABELS), deletion_timestamp=draw(DELETIONS)
    )
    return Pod(
        metadata=meta,
        spec=PodSpec(
            containers=(Container(image=draw(IMAGE_NAMES)),),
            affinity=Affinity(pod_affinity=likes, pod_anti_affinity=dislikes),
            topology_spread_constraints=draw(SPREADS),
            node_selector=draw(NODE_SELECTORS),
            tolerations=draw(TOLERATIONS),
        ),
    )


@functools.cache
def one_of(*values):
    return st.sampled_from(values)


@functools.cache
def places(*names):
    return st.lists(one_of(*names), min_size=1, max_size=5)


@functools.cache
def choices(*names):
    return st.lists(one_of(*names), min_size=1, unique=True)


@functools.cache
@st.composite
def clusters(draw):
    cache = Cache()
    for i in range(draw(st.integers(2, 5))):
        cache.set_node(draw(nodes(f"n{i}")))
    for i, name in enumerate(draw(places(*cache.nodes))):
        cache.add_pod(PodInfo(draw(pods(f"bound{i}"))), name)
    return cache


def _handle(cache, *objects):
    return dataclasses.replace(new_handle(None, *objects), cache=cache)


def _ask(plugin, cache, pod):
    """Return each row's (reason, code) by the fast form and by the form for one node; None when skipped."""
    state, columns = CycleState(), cache.columns
    status = plugin.pre_filter(state, pod, columns)
    if status.code is Code.SKIP:
        return None
    mask = plugin.filter_all(state, pod, columns)
    passed = columns.full(True) if mask is None else mask
    refused = columns.valid & ~passed
    refusals = plugin.explain_all(state, pod, columns, refused)
    fast, slow = {}, {}
    for row in np.flatnonzero(columns.valid):
        said = [(r.reason, r.code) for r in refusals if r.mask[row]]
        assert len(said) == (0 if passed[row] else 1)
        fast[row] = said[0] if said else ("", Code.SUCCESS)
        one = plugin.filter(state, pod, columns.nodes[row])
        slow[row] = (one.message, one.code)
    return fast, slow


@settings(max_examples=250)
@given(cache=clusters(), pod=pods("p"))
def test_the_filters_agree_with_the_rule_for_one_node(cache, pod):
    for kind in KINDS:
        answers = _ask(plugin_of(kind, _handle(cache, *NAMESPACES)), cache, PodInfo(pod))

        assert answers is None or answers[0] == answers[1], kind


@settings(max_examples=250)
@given(cache=clusters(), pod=pods("p"), other=pods("other"), data=st.data())
def test_a_pod_added_in_thought_counts_like_one_that_is_there(cache, pod, other, data):
    # Upstream's what-if looks neither at termination nor for an empty selector: keep to pods where it is right.
    live = PodInfo(replace(other, metadata=replace(other.metadata, deletion_timestamp=None)))
    pod = PodInfo(pod)
    if any(
        c.label_selector is None or not compile_selector(c.label_selector).terms
        for c in pod.spec.topology_spread_constraints
    ):
        return
    target = data.draw(one_of(*cache.nodes))
    plugins = {kind: plugin_of(kind, _handle(cache, *NAMESPACES)) for kind in KINDS}

    def answers(plugin, state):
        return {name: plugin.filter(state, pod, info) for name, info in cache.nodes.items()}

    imagined = {}
    for kind, plugin in plugins.items():
        state = CycleState()
        if plugin.pre_filter(state, pod, cache.columns).code is Code.SKIP:
            continue
        thought = state.clone()
        plugin.add_pod(thought, pod, live, cache.nodes[target])
        imagined[kind] = answers(plugin, thought)
        back = thought.clone()
        plugin.remove_pod(back, pod, live, cache.nodes[target])
        assert answers(plugin, back) == answers(plugin, state), kind

    cache.add_pod(live, target)
    for kind, found in imagined.items():
        fresh = CycleState()
        plugins[kind].pre_filter(fresh, pod, cache.columns)
        assert found == answers(plugins[kind], fresh), kind


def _spread_by_hand(pod, cache, feasible):
    """scheduler-queue-and-cycles 6, read aloud: raw scores of the feasible nodes, then normalised."""
    soft = [c for c in pod.spec.topology_spread_constraints if c.when_unsatisfiable == "ScheduleAnyway"]
    every = [info for info in cache.nodes.values() if info.node is not None]

    def selects(constraint, other):
        own = {k: pod.metadata.labels[k] for k in constraint.match_label_keys if k in pod.metadata.labels}
        selector = compile_selector(constraint.label_selector)
        if selector is None:
            return bool(own) and own.items() <= other.metadata.labels.items()
        if not selector.terms and not own:
            return False
        return selector.matches(other.metadata.labels) and own.items() <= other.metadata.labels.items()

    def count(constraint, info):
        return sum(
            o.key.namespace == pod.key.namespace and o.metadata.deletion_timestamp is None and selects(constraint, o)
            for o in info.pods.values()
        )

    def suits(constraint, info):
        spec = pod.spec
        if constraint.node_affinity_policy != "Ignore" and not spec.node_selector.items() <= info.labels.items():
            return False
        hard = [t for t in info.node.spec.taints if t.effect == "NoSchedule"]
        return constraint.node_taints_policy != "Honor" or not hard or bool(spec.tolerations)

    complete = [info for info in every if all(c.topology_key in info.labels for c in soft)]
    scored = [info for info in feasible if info in complete]
    raw = {}
    for info in scored:
        total = 0.0
        for c in soft:
            if c.topology_key == HOST:
                there, size = count(c, info), len(scored)
            else:
                value = info.labels[c.topology_key]
                size = len({i.labels[c.topology_key] for i in scored})
                there = sum(count(c, i) for i in complete if i.labels[c.topology_key] == value and suits(c, i))
            total += there * math.log(size + 2) + (c.max_skew - 1)
        raw[info.name] = math.floor(total) + (total - math.floor(total) >= 0.5)
    most, least = max(raw.values(), default=0), min(raw.values(), default=0)
    scores = {info.name: 0 for info in feasible}
    for name, each in raw.items():
        scores[name] = 100 if most == 0 else 100 * (most + least - each) // most
    return scores


def _affinity_by_hand(pod, cache, world, feasible):
    """scheduler-queue-and-cycles 6, read aloud; None when no term meant any pod."""
    sums, is_any = {info.name: 0 for info in feasible}, False

    def spaces(term, owner):
        if not term.namespaces and term.namespace_selector is None:
            return {owner.key.namespace}
        selector = compile_selector(term.namespace_selector)
        chosen = {n.metadata.name for n in world.all(Namespace) if selector and selector.matches(n.metadata.labels)}
        return set(term.namespaces) | chosen

    def weigh(term, owner, about, where, weight):
        nonlocal is_any
        selector, key = compile_selector(term.label_selector), term.topology_key
        if selector is None or not selector.matches(about.metadata.labels) or key not in where.labels:
            return
        if about.key.namespace in spaces(term, owner):
            is_any = True
            for info in feasible:
                if info.labels.get(key) == where.labels[key]:
                    sums[info.name] += weight

    def sides(owner):
        affinity = owner.spec.affinity
        return affinity.pod_affinity or PodAffinity(), affinity.pod_anti_affinity or PodAffinity()

    mine, not_mine = sides(pod)
    for info in cache.nodes.values():
        for other in info.pods.values():
            for each in mine.preferred:
                weigh(each.pod_affinity_term, pod, other, info, each.weight)
            for each in not_mine.preferred:
                weigh(each.pod_affinity_term, pod, other, info, -each.weight)
            theirs, not_theirs = sides(other)
            for term in theirs.required:
                weigh(term, other, pod, info, 1)
            for each in theirs.preferred:
                weigh(each.pod_affinity_term, other, pod, info, each.weight)
            for each in not_theirs.preferred:
                weigh(each.pod_affinity_term, other, pod, info, -each.weight)
    if not is_any:
        return None
    low, high = min(sums.values()), max(sums.values())
    return {name: int(100.0 * ((s - low) / (high - low))) if high > low else 0 for name, s in sums.items()}


def _fast_scores(plugin, cache, pod, feasible):
    state = CycleState()
    if plugin.pre_score(state, pod, cache.columns, feasible).code is Code.SKIP:
        return None
    scores = plugin.normalize(state, plugin.score_all(state, pod, cache.columns), feasible)
    return {
        cache.columns.nodes[row].name: scores if isinstance(scores, int) else scores[row]
        for row in np.flatnonzero(feasible)
    }


def _some(cache, data):
    names = data.draw(choices(*cache.nodes))
    return cache.columns.mask_of(names), [info for name, info in cache.nodes.items() if name in names]


@settings(max_examples=250)
@given(cache=clusters(), pod=pods("p"), data=st.data())
def test_spread_scores_follow_the_formula(cache, pod, data):
    info = PodInfo(pod)
    mask, feasible = _some(cache, data)
    scores = _fast_scores(plugin_of("PodTopologySpread", _handle(cache, *NAMESPACES)), cache, info, mask)

    assert scores is None or scores == _spread_by_hand(info, cache, feasible)


@settings(max_examples=250)
@given(cache=clusters(), pod=pods("p"), data=st.data())
def test_affinity_scores_follow_the_formula(cache, pod, data):
    info, handle = PodInfo(pod), _handle(cache, *NAMESPACES)
    mask, feasible = _some(cache, data)

    assert _fast_scores(plugin_of("InterPodAffinity", handle), cache, info, mask) == _affinity_by_hand(
        info, cache, handle.world, feasible
    )


@settings(max_examples=80)
@given(cache=clusters(), pod=pods("p"))
def test_image_scores_of_one_node_and_of_all_agree(cache, pod):
    plugin, info = plugin_of("ImageLocality", _handle(cache)), PodInfo(pod)
    scores = plugin.score_all(CycleState(), info, cache.columns)
    for row in np.flatnonzero(cache.columns.valid):
        expected = plugin.score(CycleState(), info, cache.columns.nodes[row])
        assert expected == (scores if isinstance(scores, int) else scores[row])


STEPS = st.lists(st.sampled_from(["add", "remove", "relabel", "node", "no node", "ask"]), max_size=14)
QUESTIONS = st.builds(
    lambda spaces, selector, ends: Question((Clause(spaces, compile_selector(selector)),), ends),
    st.sampled_from([None, frozenset({"d"}), frozenset({"d", "e"})]),
    SELECTORS.filter(lambda s: s is not None),
    st.booleans(),
)


@settings(max_examples=250)
@given(cache=clusters(), steps=STEPS, questions=st.lists(QUESTIONS, min_size=1, max_size=3), data=st.data())
def test_the_index_equals_a_recount_whatever_happens(cache, steps, questions, data):
    for question in questions:
        cache.index.tally(question).by("zone")
    for i, step in enumerate(steps):
        if step == "add":
            name = data.draw(one_of("n0", "n1", "n9"))
            cache.add_pod(PodInfo(data.draw(pods(f"later{i}"))), name)
        elif step == "remove" and cache.pods:
            cache.remove_pod(data.draw(one_of(*cache.pods)))
        elif step == "relabel" and cache.pods:
            cache.update_pod(PodInfo(data.draw(pods(data.draw(one_of(*cache.pods))))))
        elif step == "node":
            cache.set_node(data.draw(nodes(data.draw(one_of("n0", "n7", "n9")))))
        elif step == "no node":
            cache.remove_node(data.draw(one_of("n0", "n1")))
        else:
            cache.index.tally(data.draw(QUESTIONS)).by("rack")

    columns = cache.columns
    for question in questions:
        tally = cache.index.tally(question)
        grouping, values = tally.by("zone"), columns.label_ids("zone")[1]
        expected = {}
        for name, row in columns.slots.items():
            info = cache.nodes[name]
            here = sum(question.matches(p.identity, p.metadata.labels) for p in info.pods.values())
            assert tally.on_rows()[row] == here
            if "zone" in info.labels:
                expected[info.labels["zone"]] = expected.get(info.labels["zone"], 0) + here
        assert {v: grouping.counts[i] for v, i in values.items() if np.isfinite(grouping.floors[i])} == expected
        assert grouping.least == min(expected.values(), default=0)
    _check_terms(cache)


def _check_terms(cache):
    asking = PodInfo(Pod(metadata=ObjectMeta(name="q", namespace="d", labels={"app": "x"})))
    found = {(kind, term): tally for kind, term, tally in cache.index.terms_about(asking, {"team": "t"})}
    counted = {}
    for info in cache.nodes.values():
        for pod in info.pods.values() if info.slot >= 0 else ():
            for term in pod.terms.required_affinity:
                if term.matches("d", {"app": "x"}, {"team": "t"}):
                    counted.setdefault(term, {}).setdefault(info.slot, []).append(pod)
    assert {term for kind, term in found if kind == REQUIRED_AFFINITY} == set(counted)
    for term, rows in counted.items():
        on_rows = found[REQUIRED_AFFINITY, term].on_rows()
        assert {int(r): on_rows[r] for r in np.flatnonzero(on_rows)} == {r: len(p) for r, p in rows.items()}


def test_a_question_that_was_dropped_is_counted_anew():
    cache = Cache()
    cache.set_node(Node(metadata=ObjectMeta(name="n"), status=NodeStatus(allocatable={"pods": "9"})))
    cache.add_pod(PodInfo(Pod(metadata=ObjectMeta(name="a", namespace="d", uid="a", labels={"app": "0"}))), "n")

    def ask(value):
        selector = compile_selector(LabelSelector(match_labels={"app": str(value)}))
        return cache.index.tally(Question((Clause(None, selector),))).total

    assert ask(0) == 1
    assert [ask(i) for i in range(1, 300)] == [0] * 299
    cache.add_pod(PodInfo(Pod(metadata=ObjectMeta(name="b", namespace="d", uid="b", labels={"app": "0"}))), "n")
    assert ask(0) == 2


def test_an_image_without_tag_or_digest_is_the_latest():
    assert [with_tag(n) for n in ("a", "r:5000/a", "a:1", "a@sha256:0")] == [
        "a:latest",
        "r:5000/a:latest",
        "a:1",
        "a@sha256:0",
    ]


def test_services_give_pods_without_constraints_a_selector():
    service = Service(metadata=ObjectMeta(name="s", namespace="d"), spec=ServiceSpec(selector={"app": "x"}))
    cache = Cache()
    for name, zone in (("n0", "1"), ("n1", "2")):
        labels = {HOST: name, "topology.kubernetes.io/zone": zone}
        cache.set_node(Node(metadata=ObjectMeta(name=name, labels=labels)))
    mate = Pod(metadata=ObjectMeta(name="m", namespace="d", uid="m", labels={"app": "x"}))
    cache.add_pod(PodInfo(mate), "n0")
    plugin = plugin_of("PodTopologySpread", _handle(cache, service))

    def scores(labels, namespace="d"):
        pod = Pod(metadata=ObjectMeta(name="p", namespace=namespace, labels=labels))
        return _fast_scores(plugin, cache, PodInfo(pod), cache.columns.valid)

    assert scores({"app": "x"})["n1"] > scores({"app": "x"})["n0"]
    assert scores({"app": "y"}) is None
    assert scores({"app": "x"}, "e") is None
