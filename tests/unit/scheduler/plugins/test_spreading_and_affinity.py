"""Topology spread, pod affinity and image locality, rule by rule (scheduler-queue-and-cycles 6, 12.4, 12.5)."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import ASSIGNED_POD_ADD, ASSIGNED_POD_DELETE
from scheduler.framework.status import SKIP, Code
from scheduler.plugins.inter_pod_affinity.plugin import PLUGIN as INTER_POD_AFFINITY
from scheduler.plugins.pod_topology_spread.plugin import PLUGIN as POD_TOPOLOGY_SPREAD
from services.api.kinds.namespace import Namespace
from services.api.kinds.node import ContainerImage, Taint
from services.api.kinds.pod import (
    Affinity,
    Container,
    PodAffinity,
    PodAffinityTerm,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from services.api.kinds.replicaset import ReplicaSet, ReplicaSetSpec
from services.api.kinds.service import Service, ServiceSpec
from services.api.kinds.statefulset import StatefulSet, StatefulSetSpec
from services.api.meta import LabelSelector, ObjectMeta, OwnerReference
from tests.unit.scheduler.conftest import plugin_of

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
APP = {"app": "x"}
SELECTS_APP = LabelSelector(match_labels=APP)
OWNED_BY = ObjectMeta(name="owner", namespace="default")
UNEVEN = "node(s) didn't match pod topology spread constraints"


def _spread(key=ZONE, *, skew=1, soft=False, selector=SELECTS_APP, **more):
    action = "ScheduleAnyway" if soft else "DoNotSchedule"
    return TopologySpreadConstraint(
        max_skew=skew, topology_key=key, when_unsatisfiable=action, label_selector=selector, **more
    )


def _term(key=HOST, selector=SELECTS_APP, **more):
    return PodAffinityTerm(topology_key=key, label_selector=selector, **more)


def _near(*terms, preferred=()):
    return Affinity(pod_affinity=PodAffinity(required=terms, preferred=preferred))


def _far(*terms, preferred=()):
    return Affinity(pod_anti_affinity=PodAffinity(required=terms, preferred=preferred))


@pytest.fixture
def zones(cluster, a):
    """Zones a, b, c with a node each and so many pods of the app on it."""

    def build(**pods):
        world = cluster().nodes(*(a.node(zone, labels={ZONE: zone}) for zone in pods))
        return world.pods(*(a.pod(f"{z}{i}", labels=APP, node=z) for z, count in pods.items() for i in range(count)))

    return build


def _fitting(world, pod):
    """Return the names of the nodes where the pod fits."""
    state_mask = world.runner.filter(_state(), PodInfo(pod), world.cache.columns).mask
    return "".join(sorted(name for name, row in world.cache.columns.slots.items() if state_mask[row]))


def _state():
    return CycleState()


def _scores(world, pod, plugin):
    return world.schedule(pod).ranking.scores[plugin]


# -- spread: filter ------------------------------------------------------------------------------------


def test_scheduler_queue_and_cycles_13_only_zones_that_stay_within_the_skew_are_allowed(zones, a):
    pod = a.pod(labels=APP, topology_spread_constraints=(_spread(),))

    assert _fitting(zones(a=3, b=1, c=1), pod) == "bc"


def test_scheduler_queue_and_cycles_13_with_fewer_domains_than_min_domains_the_least_counts_as_zero(zones, a):
    pod = a.pod(labels=APP, topology_spread_constraints=(_spread(min_domains=4),))
    error = zones(a=3, b=1, c=1).refuse(pod)

    assert error.message.startswith(f"0/3 nodes are available: 3 {UNEVEN}. ")
    assert not error.unresolvable.any()


def test_a_node_without_the_key_is_beyond_help_and_forms_no_domain_for_any_constraint(cluster, a):
    world = cluster().nodes(a.node("a", labels={ZONE: "a"}), a.node("b", labels={ZONE: "b"}), a.node("c"))
    world.pods(a.pod("x", labels=APP, node="a"), a.pod("y", labels=APP, node="b"))
    pod = a.pod(labels=APP, topology_spread_constraints=(_spread(), _spread(HOST)))

    # Host c has no pod, but no zone either: it does not count as the emptiest host.
    assert _fitting(world, pod) == "ab"


def test_the_missing_label_is_named(cluster, a):
    error = cluster().nodes(a.node("n")).refuse(a.pod(labels=APP, topology_spread_constraints=(_spread(),)))

    assert error.message.startswith(f"0/1 nodes are available: 1 {UNEVEN} (missing required label). ")
    assert error.unresolvable.sum() == 1


def test_an_empty_selector_counts_no_pod_but_means_the_pod_itself(zones, a):
    everyone = _spread(selector=LabelSelector())
    no_pod = _spread(selector=None)

    assert _fitting(zones(a=3, b=0), a.pod(labels=APP, topology_spread_constraints=(everyone,))) == "ab"
    assert _fitting(zones(a=3, b=0), a.pod(labels=APP, topology_spread_constraints=(no_pod,))) == "ab"


def test_terminating_pods_and_those_of_other_namespaces_do_not_count(zones, a):
    world = zones(a=1, b=0)
    leaving = a.pod("a0", labels=APP, node="a", rv=2)
    world.pods(replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))

    assert _fitting(world, a.pod(labels=APP, topology_spread_constraints=(_spread(),))) == "ab"
    unrelated = a.pod(labels=APP, topology_spread_constraints=(_spread(),))
    unrelated = replace(unrelated, metadata=replace(unrelated.metadata, namespace="else"))
    assert _fitting(zones(a=3, b=0), unrelated) == "ab"


@pytest.mark.parametrize(("policy", "fitting"), [("", "ab"), ("Honor", "ab"), ("Ignore", "")])
def test_the_affinity_policy_says_whether_unreachable_zones_are_domains(zones, a, policy, fitting):
    world = zones(a=1, b=1, c=0)
    pod = a.pod(labels=APP, topology_spread_constraints=(_spread(node_affinity_policy=policy),))
    term = {"key": ZONE, "operator": "In", "values": ["a", "b"]}
    affinity = msgspec.convert(
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
            }
        },
        Affinity,
    )

    assert _fitting(world, replace(pod, spec=replace(pod.spec, affinity=affinity))) == fitting


@pytest.mark.parametrize(
    ("policy", "effect", "fitting"),
    [
        ("", "NoSchedule", ""),
        ("Honor", "NoSchedule", "a"),
        ("Honor", "NoExecute", "a"),
        ("Honor", "PreferNoSchedule", "b"),
    ],
)
def test_the_taints_policy_says_whether_tainted_zones_are_domains(cluster, a, policy, effect, fitting):
    taint = Taint(key="t", effect=effect)
    world = cluster().nodes(a.node("a", labels={ZONE: "a"}), a.node("b", labels={ZONE: "b"}, taints=(taint,)))
    world.pods(a.pod("x", labels=APP, node="a"))

    pod = a.pod(labels=APP, topology_spread_constraints=(_spread(node_taints_policy=policy),))
    assert _fitting(world, pod) == fitting


def test_pods_that_come_to_nodes_which_form_no_domain_are_not_counted(cluster, a):
    taint = Taint(key="t", effect="NoSchedule")
    world = cluster().nodes(
        a.node("a", labels={ZONE: "a"}),
        a.node("a2", labels={ZONE: "a"}, taints=(taint,)),
        a.node("b", labels={ZONE: "b"}),
    )
    pod = a.pod(labels=APP, topology_spread_constraints=(_spread(node_taints_policy="Honor"),))
    assert _fitting(world, pod) == "ab"

    world.pods(a.pod("x", labels=APP, node="a2"))

    assert _fitting(world, pod) == "ab"


def test_match_label_keys_narrow_the_selector_to_the_pods_own_values(zones, a):
    world = zones(a=1, b=0)
    keys = _spread(match_label_keys=("hash", "absent"))

    assert _fitting(world, a.pod(labels={**APP, "hash": "2"}, topology_spread_constraints=(keys,))) == "ab"
    assert _fitting(world, a.pod(labels=APP, topology_spread_constraints=(keys,))) == "b"


# -- spread: score -------------------------------------------------------------------------------------


def test_scheduler_queue_and_cycles_14_spread_scores_are_0_60_100(zones, a):
    pod = a.pod(labels=APP, topology_spread_constraints=(_spread(soft=True),))

    assert _scores(zones(a=3, b=1, c=0), pod, "PodTopologySpread") == {"a": 0, "b": 60, "c": 100}


def test_soft_constraints_leave_nodes_without_the_key_at_zero(cluster, a):
    world = cluster().nodes(a.node("a", labels={ZONE: "a"}), a.node("b"))
    pod = a.pod(labels=APP, topology_spread_constraints=(_spread(soft=True),))

    assert _scores(world, pod, "PodTopologySpread") == {"a": 100, "b": 0}


def test_soft_hostname_counts_look_at_the_node_alone(cluster, a):
    taint = Taint(key="t", effect="NoSchedule")
    world = cluster().nodes(a.node("a", taints=(taint,)), a.node("b")).pods(a.pod("x", labels=APP, node="a"))
    honest = _spread(HOST, soft=True, node_taints_policy="Honor")
    pod = a.pod(labels=APP, topology_spread_constraints=(honest,), tolerations=(Toleration(operator="Exists"),))

    assert _scores(world, pod, "PodTopologySpread") == {"a": 0, "b": 100}


def test_a_pod_without_soft_constraints_is_not_scored(zones, a):
    scores = zones(a=1, b=0).schedule(a.pod(labels=APP)).ranking.scores

    assert "PodTopologySpread" not in scores
    assert "InterPodAffinity" not in scores


@pytest.mark.parametrize(
    ("kind", "workload"),
    [
        ("ReplicaSet", ReplicaSet(metadata=OWNED_BY, spec=ReplicaSetSpec(selector=SELECTS_APP))),
        ("StatefulSet", StatefulSet(metadata=OWNED_BY, spec=StatefulSetSpec(selector=SELECTS_APP))),
    ],
    ids=["ReplicaSet", "StatefulSet"],
)
def test_the_system_defaults_spread_what_a_service_or_a_workload_holds_together(zones, a, kind, workload):
    world = zones(a=2, b=0)
    owner = OwnerReference(api_version="apps/v1", kind=kind, name="owner", uid="owner", controller=True)
    pod = a.pod(labels=APP)
    owned = replace(pod, metadata=replace(pod.metadata, owner_references=(owner,)))
    world.world.put(workload)

    assert _scores(world, owned, "PodTopologySpread") == {"a": 50, "b": 100}
    world.world.put(Service(metadata=ObjectMeta(name="s", namespace="default"), spec=ServiceSpec(selector=APP)))
    assert _scores(world, pod, "PodTopologySpread") == {"a": 50, "b": 100}


def test_the_system_defaults_tolerate_nodes_without_a_zone(cluster, a):
    world = cluster().nodes(a.node("a"), a.node("b")).pods(a.pod("x", labels=APP, node="a"))
    world.world.put(Service(metadata=ObjectMeta(name="s", namespace="default"), spec=ServiceSpec(selector=APP)))

    assert _scores(world, a.pod(labels=APP), "PodTopologySpread") == {"a": 66, "b": 100}


def test_an_administrators_list_of_defaults_may_refuse(cluster, a):
    world = cluster().nodes(a.node("a", labels={ZONE: "a"}), a.node("b", labels={ZONE: "b"}))
    world.pods(a.pod("x", labels=APP, node="a"))
    world.world.put(Service(metadata=ObjectMeta(name="s", namespace="default"), spec=ServiceSpec(selector=APP)))
    given = {
        "defaultingType": "List",
        "defaultConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}],
    }
    plugin = POD_TOPOLOGY_SPREAD.make(msgspec.convert(given, POD_TOPOLOGY_SPREAD.args), world.handle)
    state, pod = _state(), PodInfo(a.pod(labels=APP))

    assert plugin.pre_filter(state, pod, world.cache.columns).is_success
    assert [plugin.filter(state, pod, world.cache.nodes[n]).code for n in "ab"] == [Code.UNSCHEDULABLE, Code.SUCCESS]


# -- affinity: filter ----------------------------------------------------------------------------------


def test_the_checks_come_in_order_and_only_missing_friends_are_beyond_help(cluster, a):
    world = cluster().nodes(*(a.node(n) for n in "abcd"))
    enemy = {"app": "enemy"}
    shy = _far(_term(selector=LabelSelector(match_labels={"app": "me"})))
    world.pods(*(a.pod(f"f{n}", labels=APP, node=n) for n in "bcd"))
    world.pods(a.pod("e", labels=enemy, node="c"), a.pod("s", labels={"app": "z"}, affinity=shy, node="d"))
    affinity = Affinity(
        pod_affinity=PodAffinity(required=(_term(),)),
        pod_anti_affinity=PodAffinity(required=(_term(selector=LabelSelector(match_labels=enemy)),)),
    )
    pod = a.pod(labels={"app": "me"}, affinity=affinity)

    assert _fitting(world, pod) == "b"
    error = world.pods(a.pod("e2", labels=enemy, node="b")).refuse(pod)
    assert error.message.startswith(
        "0/4 nodes are available: 1 node(s) didn't match pod affinity rules, 1 node(s) didn't satisfy existing pods "
        "anti-affinity rules, 2 node(s) didn't match pod anti-affinity rules. "
    )
    assert error.unresolvable.sum() == 1


def test_an_existing_pod_counts_only_if_all_terms_mean_it(cluster, a):
    world = cluster().nodes(a.node("a"), a.node("b"))
    both = {"app": "x", "tier": "y"}
    world.pods(a.pod("half", labels=APP, node="a"), a.pod("whole", labels=both, node="b"))
    pod = a.pod(affinity=_near(_term(), _term(selector=LabelSelector(match_labels={"tier": "y"}))))

    assert _fitting(world, pod) == "b"


def test_the_first_of_pods_that_want_each_other_may_go_anywhere_with_the_keys(cluster, a):
    world = cluster().nodes(a.node("a", labels={ZONE: "a"}), a.node("b"))
    pod = a.pod("one", labels=APP, affinity=_near(_term(ZONE)))

    assert _fitting(world, pod) == "a"
    assert _fitting(world, a.pod("loner", affinity=_near(_term(ZONE)))) == ""
    world.nodes(a.node("c", labels={ZONE: "c"})).pods(replace(pod, spec=replace(pod.spec, node_name="a")))
    assert _fitting(world, a.pod("two", labels=APP, affinity=_near(_term(ZONE)))) == "a"


def test_terminating_pods_still_attract_and_repel(cluster, a):
    world = cluster().nodes(a.node("a"), a.node("b"))
    leaving = a.pod("x", labels=APP, node="a")
    world.pods(replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))

    assert _fitting(world, a.pod(affinity=_far(_term()))) == "b"
    assert _fitting(world, a.pod(affinity=_near(_term()))) == "a"


@pytest.mark.parametrize(
    ("where", "fitting"),
    [
        ({}, "ab"),
        ({"namespaces": ("other",)}, "b"),
        ({"namespace_selector": LabelSelector()}, "b"),
        ({"namespace_selector": LabelSelector(match_labels={"team": "t"})}, "b"),
        ({"namespace_selector": LabelSelector(match_labels={"team": "u"})}, "ab"),
    ],
)
def test_a_term_means_its_own_namespace_unless_it_says_otherwise(cluster, a, where, fitting):
    world = cluster().nodes(a.node("a"), a.node("b"))
    world.world.put(Namespace(metadata=ObjectMeta(name="other", labels={"team": "t"})))
    there = a.pod("x", labels=APP, node="a")
    world.pods(replace(there, metadata=replace(there.metadata, namespace="other")))

    assert _fitting(world, a.pod(affinity=_far(_term(**where)))) == fitting


def test_existing_pods_namespace_selectors_ask_for_the_labels_of_the_newcomers_namespace(cluster, a):
    world = cluster().nodes(a.node("a"), a.node("b"))
    shy = _far(_term(namespace_selector=LabelSelector(match_labels={"team": "t"})))
    there = a.pod("x", affinity=shy, node="a")
    world.pods(replace(there, metadata=replace(there.metadata, namespace="other")))
    pod = a.pod(labels=APP)

    assert _fitting(world, pod) == "ab"
    world.world.put(Namespace(metadata=ObjectMeta(name="default", labels={"team": "t"})))
    assert _fitting(world, pod) == "b"


def test_pods_whose_labels_change_are_counted_as_they_are_now(cluster, a):
    world = cluster().nodes(a.node("a"), a.node("b")).pods(a.pod("x", labels=APP, node="a"))
    pod = a.pod(affinity=_far(_term()))
    assert _fitting(world, pod) == "b"

    world.pods(a.pod("x", labels={"app": "other"}, node="a", rv=2))

    assert _fitting(world, pod) == "ab"


def _in_thought(world, plugin, pod, change):
    """Return which nodes fit after a change that is made in thought only: (method, pod, node)."""
    state, info = _state(), PodInfo(pod)
    assert plugin.pre_filter(state, info, world.cache.columns).is_success
    method, other, node = change
    getattr(plugin, method)(state, info, PodInfo(other), world.cache.nodes[node])
    return "".join(n for n, there in world.cache.nodes.items() if plugin.filter(state, info, there).is_success)


def test_in_thought_the_emptiest_zone_may_be_another_one(zones, a):
    world = zones(a=1, b=0)
    plugin = plugin_of("PodTopologySpread", world.handle)
    pod = a.pod(labels=APP, topology_spread_constraints=(_spread(),))

    assert _in_thought(world, plugin, pod, ("add_pod", a.pod("x", labels=APP), "b")) == "ab"
    assert _in_thought(world, plugin, pod, ("remove_pod", a.pod("a0", labels=APP), "a")) == "ab"
    assert _in_thought(world, plugin, pod, ("add_pod", a.pod("x", labels=APP), "a")) == "b"


def test_in_thought_a_pod_may_become_the_first_of_its_kind(cluster, a):
    friend = a.pod("x", labels=APP, node="a")
    world = cluster().nodes(a.node("a"), a.node("b")).pods(friend)
    pod = a.pod(labels=APP, affinity=_near(_term()))
    plugin = world.runner.plugins_by_name["InterPodAffinity"]

    assert _fitting(world, pod) == "a"
    assert _in_thought(world, plugin, pod, ("remove_pod", friend, "a")) == "ab"
    assert _in_thought(world, plugin, pod, ("add_pod", friend, "b")) == "ab"
    world.nodes(a.node("c")).pods(a.pod("y", labels=APP, node="c"))
    assert _in_thought(world, plugin, pod, ("remove_pod", friend, "a")) == "c"


def test_the_affinity_filter_is_skipped_unless_a_pod_requires_something(cluster, a):
    def skips(pod, *there):
        world = cluster().nodes(a.node("a")).pods(*there)
        plugin = world.runner.plugins_by_name["InterPodAffinity"]
        return plugin.pre_filter(_state(), PodInfo(pod), world.cache.columns) == SKIP

    plain, likes = a.pod(labels=APP), WeightedPodAffinityTerm(weight=1, pod_affinity_term=_term())
    assert skips(plain, a.pod("x", node="a", affinity=_near(_term(), preferred=(likes,))))
    assert skips(a.pod(affinity=_far(preferred=(likes,))), a.pod("x", labels=APP, node="a"))
    assert not skips(plain, a.pod("x", node="a", affinity=_far(_term())))
    assert skips(plain, a.pod("x", node="a", affinity=_far(_term(ZONE))))  # the node has no such label
    assert not skips(a.pod(affinity=_near(_term())))


# -- affinity: score -----------------------------------------------------------------------------------


def test_affinity_scores_are_cut_after_floating_point(cluster, a):
    world = cluster().nodes(a.node("a"), a.node("b"), a.node("c"))
    world.pods(a.pod("x", labels={"v": "29"}, node="a"), a.pod("y", labels={"v": "100"}, node="b"))

    def likes(value, weight):
        term = _term(selector=LabelSelector(match_labels={"v": value}))
        return WeightedPodAffinityTerm(weight=weight, pod_affinity_term=term)

    pod = a.pod(affinity=_near(preferred=(likes("29", 29), likes("100", 100))))
    assert _scores(world, pod, "InterPodAffinity") == {"a": 28, "b": 100, "c": 0}


def test_existing_pods_pull_and_push_a_pod_without_affinity(cluster, a):
    world = cluster().nodes(a.node("a"), a.node("b"), a.node("c"))
    hater = WeightedPodAffinityTerm(weight=3, pod_affinity_term=_term())
    world.pods(a.pod("x", affinity=_near(_term()), node="a"), a.pod("y", affinity=_far(preferred=(hater,)), node="b"))

    assert _scores(world, a.pod(labels=APP), "InterPodAffinity") == {"a": 100, "b": 0, "c": 75}


def test_the_arguments_say_what_existing_pods_preferences_are_worth(cluster, a):
    world = cluster().nodes(a.node("a"), a.node("b")).pods(a.pod("x", affinity=_near(_term()), node="a"))

    def skips(args):
        plugin = INTER_POD_AFFINITY.make(msgspec.convert(args, INTER_POD_AFFINITY.args), world.handle)
        columns = world.cache.columns
        return plugin.pre_score(_state(), PodInfo(a.pod(labels=APP)), columns, columns.valid).code is Code.SKIP

    assert not skips({})
    assert skips({"hardPodAffinityWeight": 0})
    assert skips({"ignorePreferredTermsOfExistingPods": True})


# -- images --------------------------------------------------------------------------------------------


def test_an_image_that_left_every_node_may_come_back_in_another_size(cluster, a):
    def node(*images):
        plain = a.node("a")
        return replace(plain, status=replace(plain.status, images=images))

    world = cluster().nodes(node(ContainerImage(names=("big:1",), size_bytes=2**20)), a.node("b"))
    world.nodes(node()).nodes(node(ContainerImage(names=("big:1",), size_bytes=1000 * 2**20)))

    pod = a.pod(containers=(Container(name="c", image="big:1"),))
    assert _scores(world, pod, "ImageLocality") == {"a": 48, "b": 0}


def test_images_attract_by_size_and_by_how_many_nodes_have_them(cluster, a):
    def node(name, *images):
        plain = a.node(name)
        return replace(plain, status=replace(plain.status, images=images))

    big = ContainerImage(names=("big:latest",), size_bytes=1000 * 2**20)
    world = cluster().nodes(node("a", big), node("b", big), node("c"), node("d"))
    pod = a.pod(containers=(Container(name="c", image="big"),))
    # Half of 1000 MiB, less 23, of 977.
    assert _scores(world, pod, "ImageLocality") == {"a": 48, "b": 48, "c": 0, "d": 0}
    world.nodes(node("b"))
    assert _scores(world, pod, "ImageLocality") == {"a": 23, "b": 0, "c": 0, "d": 0}
    two = a.pod(containers=(Container(name="c", image="big"),), init_containers=(Container(name="i", image="none"),))
    assert _scores(world, two, "ImageLocality")["a"] == 11


# -- who is woken --------------------------------------------------------------------------------------


def _is_woken(world, event, old, new, now=100.0):
    world.queue.move_all(event, old, new, now)
    return world.queue.pop(now) is not None


@pytest.fixture
def rejected(cluster, a):
    """A world in which the pod has just been refused."""

    def build(pod, *there, plugin, nodes=(), switches=None):
        world = cluster(**(switches or {})).nodes(a.node("a", labels={ZONE: "a"}), *nodes).pods(*there, pod)
        queued = world.queue.pop(0.0)
        world.queue.add_unschedulable(queued, 0.0, rejectors={plugin})
        return world

    return build


def test_a_spread_pod_waits_for_pods_that_count_and_for_domains(rejected, a):
    def world():
        return rejected(a.pod(labels=APP, topology_spread_constraints=(_spread(),)), plugin="PodTopologySpread")

    assert _is_woken(world(), ASSIGNED_POD_DELETE, a.pod("x", labels=APP, node="a"), None)
    assert not _is_woken(world(), ASSIGNED_POD_DELETE, a.pod("x", node="a"), None)
    assert _is_woken(world(), ASSIGNED_POD_ADD, None, a.pod("x", labels=APP, node="a"))
    for node, woken in ((a.node("n", labels={ZONE: "n"}), True), (a.node("n"), False)):
        there = world().nodes(node, now=100.0)
        assert (there.queue.pop(100.0) is not None) is woken


def test_a_spread_pod_waits_for_labels_of_others_and_tolerations_of_its_own(rejected, a):
    honest = _spread(node_taints_policy="Honor")
    pod = a.pod(labels=APP, topology_spread_constraints=(honest,))
    mate = a.pod("x", labels=APP, node="a")

    moved = rejected(pod, mate, plugin="PodTopologySpread").pods(a.pod("x", node="a", rv=2), now=100.0)
    assert moved.queue.pop(100.0) is not None
    idle = rejected(pod, mate, plugin="PodTopologySpread").pods(a.pod("x", labels=APP, node="a", rv=2), now=100.0)
    assert idle.queue.pop(100.0) is None
    tolerant = replace(
        pod,
        metadata=replace(pod.metadata, resource_version="2"),
        spec=replace(pod.spec, tolerations=(Toleration(operator="Exists"),)),
    )
    assert rejected(pod, plugin="PodTopologySpread").pods(tolerant, now=100.0).queue.pop(100.0) is not None


def test_a_pod_waits_for_friends_to_come_and_for_enemies_to_go(rejected, a):
    friend, unrelated = a.pod("x", labels=APP, node="a"), a.pod("x", node="a")

    def seeker():
        return rejected(a.pod(affinity=_near(_term())), plugin="InterPodAffinity")

    def loner(**spec):
        return rejected(a.pod(affinity=_far(_term()), **spec), plugin="InterPodAffinity")

    assert _is_woken(seeker(), ASSIGNED_POD_ADD, None, friend)
    assert not _is_woken(seeker(), ASSIGNED_POD_ADD, None, unrelated)
    assert _is_woken(loner(), ASSIGNED_POD_DELETE, friend, None)
    assert not _is_woken(loner(), ASSIGNED_POD_DELETE, unrelated, None)
    shy = a.pod("x", node="a", affinity=_far(_term()))
    assert _is_woken(rejected(a.pod(labels=APP), plugin="InterPodAffinity"), ASSIGNED_POD_DELETE, shy, None)


@pytest.mark.parametrize(("is_faithful", "is_woken"), [(True, False), (False, True)])
def test_a_pod_that_others_keep_away_waits_for_nodes_to_leave_their_domain(rejected, a, is_faithful, is_woken):
    shy = a.pod("x", node="a", affinity=_far(_term(ZONE)))
    nodes, switches = (a.node("b", labels={ZONE: "a"}),), {"interpodaffinity.faithful_hints": is_faithful}
    world = rejected(a.pod(labels=APP), shy, plugin="InterPodAffinity", nodes=nodes, switches=switches)

    assert world.nodes(a.node("b", labels={ZONE: "a", "other": "1"}), now=100.0).queue.pop(100.0) is None
    assert (world.nodes(a.node("b", labels={ZONE: "b"}), now=101.0).queue.pop(101.0) is not None) is is_woken


def test_a_shrunken_pod_wakes_only_who_asks_for_what_it_gave_up(rejected, a):
    def woken_by(after):
        there = a.pod("x", requests={"cpu": "2", "memory": "2Gi"}, node="a")
        world = rejected(a.pod(cpu="3"), there, plugin="NodeResourcesFit")
        return world.pods(a.pod("x", requests=after, node="a", rv=2), now=100.0).queue.pop(100.0) is not None

    assert woken_by({"cpu": "1", "memory": "2Gi"})
    assert not woken_by({"cpu": "2", "memory": "1Gi"})


def test_a_spread_plugin_skips_the_filter_of_pods_with_soft_constraints_only(cluster, a):
    world = cluster().nodes(a.node("a"))
    plugin = plugin_of("PodTopologySpread", world.handle)

    pod = PodInfo(a.pod(topology_spread_constraints=(_spread(soft=True),)))
    assert plugin.pre_filter(_state(), pod, world.cache.columns).code is Code.SKIP
