"""Plugin sets merged into profiles: upstream's own examples, and what makes a profile impossible."""

import numpy as np
import pytest

from scheduler.cache.node_info import PodInfo
from scheduler.configuration.assembly import lineup, make_profiles, merge_plugins
from scheduler.configuration.document import PluginRef, Plugins, PluginSet, from_json
from scheduler.configuration.file import Configured
from scheduler.configuration.parser import ConfigurationError, read, with_defaults
from scheduler.configuration.plugins import defaults, plugins
from scheduler.entry import Args, PluginEntry
from scheduler.framework.arrangement import POINTS
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.runner import Runner
from scheduler.framework.status import SUCCESS, unschedulable
from scheduler.wiring import core_of
from services.api.switches import Switches
from tests.unit.scheduler.conftest import new_handle

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def refs(text: str) -> tuple[PluginRef, ...]:
    """`A:3 B` are A with weight 3 and B without."""
    found = (each.partition(":") for each in text.split())
    return tuple(PluginRef(name=name, weight=int(weight) if weight else None) for name, _, weight in found)


def spelled(found: tuple[PluginRef, ...]) -> str:
    return " ".join(p.name if p.weight is None else f"{p.name}:{p.weight}" for p in found)


# -- multiPoint (upstream TestMergePlugins) ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default", "enabled", "disabled", "expected"),
    [
        ("Default1 Default2", "Custom", "", "Default1 Default2 Custom"),
        ("Default1 Default2", "Custom Default2", "Default2", "Default1 Custom Default2"),
        ("Default1 Default2", "Custom Default1 Default2", "*", "Custom Default1 Default2"),
        ("Default1 Default2", "Default2 Default1", "*", "Default2 Default1"),
        ("Default1 Default2", "", "", "Default1 Default2"),
        ("Plugin1 Plugin2 Plugin3", "Plugin1:2 Plugin3:3", "", "Plugin1:2 Plugin2 Plugin3:3"),
        ("Plugin1 Plugin2 Plugin3", "Plugin2:2 Plugin1:1", "", "Plugin1:1 Plugin2:2 Plugin3"),
        ("Plugin1 Plugin2 Plugin3", "Plugin1 Plugin2:2 Plugin3 Plugin2:4", "", "Plugin1 Plugin2:4 Plugin3 Plugin2:2"),
        ("Default", "Default:5", "", "Default:5"),
        ("Default1 Default2", "Custom Custom2", "Default2", "Default1 Custom Custom2"),
        ("Default", "", "Default", ""),
    ],
)
def test_the_files_multi_point_is_merged_into_the_default_one(default, enabled, disabled, expected):
    given = PluginSet(enabled=refs(enabled), disabled=refs(disabled))

    assert expected == spelled(merge_plugins(refs(default), given))


# -- expansion (upstream TestNewFrameworkMultiPointExpansion) ------------------------------------------------

SERVED = {
    "test": set(POINTS),
    "score-1": {"preScore", "score"},
    "score-2": {"score"},
    "sort": {"queueSort"},
    "binder": {"bind"},
}


def expand(multi_point: str, **sets: dict[str, str]) -> tuple[dict[str, str], dict[str, int], list[str]]:
    text = {
        point: {side: [{"name": p.name, "weight": p.weight} for p in refs(names)] for side, names in given.items()}
        for point, given in sets.items()
    }
    found, problems = lineup(
        refs(multi_point), from_json(Plugins, text), "plugins", POINTS, lambda name, point: point in SERVED[name]
    )
    return {point: " ".join(names) for point, names in found.points.items()}, found.weights, problems


def test_a_plugin_in_multi_point_runs_wherever_it_serves():
    points, weights, _ = expand("test:5 score-1")

    assert {**dict.fromkeys(POINTS, "test"), "preScore": "test score-1", "score": "test score-1"} == points
    assert {"test": 5, "score-1": 1} == weights


def test_a_point_may_leave_out_what_multi_point_enables():
    points, _, _ = expand("test score-1", preScore={"disabled": "test"}, score={"disabled": "*"})

    assert ("score-1", "", "test") == (points["preScore"], points["score"], points["filter"])


def test_a_points_own_order_goes_first_for_what_multi_point_has_too():
    points, _, _ = expand("score-2 test score-1", score={"enabled": "score-1 test"})

    assert "score-1 test score-2" == points["score"]


def test_what_only_the_point_enables_goes_last():
    points, _, _ = expand("test score-1", score={"enabled": "score-2 score-1 test"})

    assert "score-1 test score-2" == points["score"]


def test_the_points_weight_wins_and_none_is_one():
    _, weights, _ = expand("test:9 score-1:9", score={"enabled": "score-1:5 test:0"})

    assert {"score-1": 5, "test": 1} == weights


def test_a_plugin_enabled_twice_or_where_it_does_not_serve_is_refused():
    _, _, problems = expand("test test", filter={"enabled": "sort"}, bind={"enabled": "binder binder"})

    assert [
        'plugins.multiPoint.enabled: Duplicate value: "test"',
        'plugins.filter.enabled[0]: Invalid value: "sort": plugin does not extend filter',
        'plugins.bind.enabled: Duplicate value: "binder"',
    ] == problems


# -- profiles of real plugins --------------------------------------------------------------------------------


def make(body: str, *more: PluginEntry, **switches):
    chosen = Switches(switches)
    known = {**plugins(), **{entry.name: entry for entry in more}}
    return make_profiles(
        with_defaults(read(HEAD + body), "default-scheduler"), known, defaults(chosen), new_handle(chosen)
    )


class AllAtOnce:
    """Filters, but cannot answer for one node."""

    name = "AllAtOnce"

    def __init__(self, args, handle):
        self.profile = handle.profile

    def filter_all(self, state, pod, columns):
        return None

    def explain_all(self, state, pod, columns, refused):
        return []


def problems(body: str, *more: PluginEntry) -> list[str]:
    with pytest.raises(ConfigurationError) as refused:
        make(body, *more)
    return refused.value.problems


def test_an_empty_file_makes_the_default_profile():
    [made] = make("")

    assert [name for name, _ in defaults(Switches())] == [enabled.name for enabled in made.plugins]
    assert {"TaintToleration": 3, "NodeAffinity": 2}.items() <= {e.name: e.weight for e in made.plugins}.items()


def test_the_documented_profile_without_scoring_still_filters():
    body = "profiles: [{schedulerName: no-scoring-scheduler, plugins: {preScore: {disabled: [{name: '*'}]}, score: {disabled: [{name: '*'}]}}}]"

    [made] = make(body)

    assert ((), ()) == (made.points["preScore"], made.points["score"])
    assert "NodeResourcesFit" in made.points["filter"]


def test_a_plugin_may_filter_in_a_profile_and_not_score(a, cluster):
    body = "profiles: [{plugins: {score: {disabled: [{name: NodeResourcesFit}, {name: NodeResourcesBalancedAllocation}]}, preScore: {disabled: [{name: NodeResourcesBalancedAllocation}, {name: NodeResourcesFit}]}}}]"
    [made] = make(body)
    world = cluster()
    world.nodes(a.node("small", cpu="1"), a.node("full", cpu="8"), a.node("empty", cpu="8"))
    world.pods(a.pod("sitting", cpu="6", node="full"))
    runner = Runner(made.plugins, made.points)
    pod = PodInfo(a.pod("p", cpu="2"))

    state = CycleState()
    found = runner.filter(state, pod, world.cache.columns)
    totals, status = runner.score(state, pod, world.cache.columns, found)

    assert status.is_success
    rows = world.cache.columns.slots
    assert [False, True, True] == [bool(found.mask[rows[n]]) for n in ("small", "full", "empty")]
    assert totals[rows["full"]] == totals[rows["empty"]] == np.max(totals)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NodeResourcesFit", 'error reading "PreFilterNodeResourcesFit" from cycleState: not found'),
        ("NodePorts", 'reading "PreFilterNodePorts" from cycleState: not found'),
        ("InterPodAffinity", 'error reading "PreFilterInterPodAffinity" from cycleState: not found'),
        ("PodTopologySpread", 'reading "PreFilterPodTopologySpread" from cycleState: not found'),
    ],
)
def test_a_profile_without_a_plugins_pre_filter_starts_and_each_of_its_pods_ends_in_an_error(a, cluster, name, text):
    [made] = make(f"profiles: [{{plugins: {{preFilter: {{disabled: [{{name: {name}}}]}}}}}}]")
    world = cluster()
    world.nodes(a.node("empty", cpu="8"))
    runner = Runner(made.plugins, made.points)

    for _ in range(2):  # nothing is remembered of an error
        state = CycleState()
        found = runner.filter(state, PodInfo(a.pod("p", cpu="2")), world.cache.columns)

        assert state.error == f'running "{name}" filter plugin: {text}'
        assert not found.mask.any()


def test_a_profile_without_the_pre_filter_of_node_affinity_filters_by_it_all_the_same(a, cluster):
    [made] = make("profiles: [{plugins: {preFilter: {disabled: [{name: NodeAffinity}]}}}]")
    world = cluster()
    world.nodes(a.node("one", labels={"disk": "ssd"}), a.node("two"))
    runner = Runner(made.plugins, made.points)
    state = CycleState()

    found = runner.filter(state, PodInfo(a.pod("p", node_selector={"disk": "ssd"})), world.cache.columns)

    rows = world.cache.columns.slots
    assert (state.error, [bool(found.mask[rows[name]]) for name in ("one", "two")]) == ("", [True, False])


@pytest.mark.parametrize("name", ["NodeResourcesFit", "NodeResourcesBalancedAllocation"])
def test_a_profile_without_the_pre_score_of_a_plugin_that_computes_by_itself_starts(name):
    [made] = make(f"profiles: [{{plugins: {{preScore: {{disabled: [{{name: {name}}}]}}}}}}]")

    assert name in made.points["score"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("profiles: [{plugins: {filter: {enabled: [{name: Nope}]}}}]",
         'profiles[0].plugins.filter.enabled[0]: Invalid value: "Nope": no plugin is called so'),
        ("profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignored: []}}]}]",
         "profiles[0].pluginConfig[0].args.ignored: unknown field"),
        ("profiles: [{pluginConfig: [{name: NodeAffinity, args: {addedAffinity: {requireds: 1}}}]}]",
         "profiles[0].pluginConfig[0].args.addedAffinity.requireds: unknown field"),
        ("profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {kind: NodeAffinityArgs}}]}]",
         'profiles[0].pluginConfig[0].args.kind: Invalid value: "NodeAffinityArgs": want NodeResourcesFitArgs'),
        ("profiles: [{plugins: {bind: {disabled: [{name: '*'}]}}}]",
         'profiles[0]: at least one bind plugin is needed for profile with scheduler name "default-scheduler"'),
        ("profiles: [{plugins: {queueSort: {disabled: [{name: PrioritySort}]}}}]",
         ("profiles[0]: only one queue sort plugin required for profile with scheduler name "
         '"default-scheduler", but got 0')),
        ("profiles: [{plugins: {preScore: {disabled: [{name: NodeAffinity}]}}}]",
         'profiles[0].plugins.preScore: Invalid value: "NodeAffinity": it runs at score, which needs its preScore'),
    ],
)  # fmt: skip
def test_a_profile_that_cannot_be_made_is_refused(body, expected):
    assert [expected] == problems(body)


def test_a_filter_that_cannot_be_asked_about_one_node_is_refused():
    body = "profiles: [{plugins: {filter: {enabled: [{name: AllAtOnce}]}}}]"

    [found] = problems(body, PluginEntry("AllAtOnce", AllAtOnce))

    assert found.startswith('profiles[0].plugins.filter: Invalid value: "AllAtOnce": it has filter_all alone')


class GoldArgs(Args, frozen=True):
    label: str = "gold"


class OnlyGold:
    """Fits only nodes that carry a label."""

    name = "OnlyGold"

    def __init__(self, args, handle):
        self.label, self.profile = args.label, handle.profile

    def filter(self, state, pod, node):
        return SUCCESS if self.label in node.labels else unschedulable("not gold")


GOLD = PluginEntry("OnlyGold", OnlyGold, args=GoldArgs, default_args=lambda switches: GoldArgs())


def test_a_plugin_gets_its_arguments_and_its_profiles_name():
    body = (
        "profiles: [{schedulerName: a, plugins: {multiPoint: {enabled: [{name: OnlyGold}]}}, "
        "pluginConfig: [{name: OnlyGold, args: {label: tier}}]}, {schedulerName: b}]"
    )

    first, second = make(body, GOLD)

    assert [("tier", "a")] == [(e.plugin.label, e.plugin.profile) for e in first.plugins if e.name == "OnlyGold"]
    assert "OnlyGold" not in second.points["filter"]


def test_arguments_left_out_come_from_the_switches():
    body = "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [e.com/x]}}]}]"

    [made] = make(body, **{"scheduler.scoring_strategy": "MostAllocated"})

    [fit] = [e.plugin for e in made.plugins if e.name == "NodeResourcesFit"]
    assert ("MostAllocated", {"e.com/x"}) == (fit._strategy, fit._ignored)


def test_resources_that_an_extender_answers_for_are_not_filtered(a):
    body = (
        "extenders: [{urlPrefix: 'http://e', filterVerb: f, managedResources: "
        "[{name: e.com/gpu, ignoredByScheduler: true}]}]"
    )

    [made] = make(body)

    [fit] = [e.plugin for e in made.plugins if e.name == "NodeResourcesFit"]
    assert {"e.com/gpu"} == fit._ignored


def test_arguments_of_all_of_upstreams_plugins_are_taken():
    body = """
profiles:
- pluginConfig:
  - name: InterPodAffinity
    args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: InterPodAffinityArgs, hardPodAffinityWeight: 5,
      ignorePreferredTermsOfExistingPods: true}
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: ScheduleAnyway}]}
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 60, shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}]}
  - name: DynamicResources
    args: {filterTimeout: 5s, bindingTimeout: 1m}
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 20, minCandidateNodesAbsolute: 7}
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: cpu, weight: 1}]}
  - name: NodeAffinity
    args: {addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
      {matchExpressions: [{key: a, operator: Exists}]}]}}}
  - name: NodeResourcesFit
    args: {ignoredResourceGroups: [e.com], scoringStrategy: {type: RequestedToCapacityRatio, resources:
      [{name: cpu, weight: 3}], requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}]}}}
"""

    assert 1 == len(make(body))


# -- precedence ----------------------------------------------------------------------------------------------


def configured(body: str, **switches) -> Configured:
    return Configured(Switches(switches), "f", with_defaults(read(HEAD + body), "default-scheduler"))


def test_a_switch_that_was_set_wins_over_the_file_and_the_file_over_the_default():
    body = "percentageOfNodesToScore: 30\npodInitialBackoffSeconds: 3\n"

    from_file = configured(body)
    from_switch = configured(
        body, **{"scheduler.percentage_of_nodes_to_score": 100, "scheduler.backoff_initial_s": 2.0}
    )

    assert (30, 40, 3.0, 10.0) == (
        from_file.percentage(),
        from_file.percentage(40),
        from_file.backoff_initial_s,
        from_file.backoff_max_s,
    )
    assert (100, 100, 2.0) == (from_switch.percentage(), from_switch.percentage(40), from_switch.backoff_initial_s)
    assert 100 == configured("").percentage()
    delay = "preEnqueuePodStatusDelay: 2s\n"
    set_too = configured(delay, **{"preenqueue_report.delay_s": 3.0})
    assert (2.0, 3.0, 5.0) == (configured(delay).report_delay_s, set_too.report_delay_s, configured("").report_delay_s)


def test_who_leads_is_said_by_the_file_only_if_it_says_so():
    assert {} == configured("leaderElection: {leaseDuration: 30s}").election()
    assert {
        "leader_elect": True,
        "leader_elect_resource_name": "mine",
        "leader_elect_lease_duration_s": 30,
        "leader_elect_renew_deadline_s": 10.0,
        "leader_elect_retry_period_s": 2.0,
    } == configured("leaderElection: {leaderElect: true, leaseDuration: 30s, resourceName: mine}").election()


# -- two profiles in one scheduler ---------------------------------------------------------------------------

TWO = (
    "profiles: [{schedulerName: plain}, {schedulerName: gold, percentageOfNodesToScore: 5, "
    "plugins: {multiPoint: {enabled: [{name: OnlyGold}]}}}]"
)


def test_two_profiles_share_the_nodes_and_judge_by_their_own_rules(a):
    handle = new_handle()
    made = make_profiles(
        with_defaults(read(HEAD + TWO), "x"), {**plugins(), "OnlyGold": GOLD}, defaults(Switches()), handle
    )
    core = core_of(handle, configured(TWO), made)
    core.handlers.on_node(None, a.node("lead", cpu="8"), 0.0)
    core.handlers.on_node(None, a.node("goldmine", cpu="2", labels={"gold": "yes"}), 0.0)
    chosen = {}

    for name in ("plain", "gold"):
        pod = a.pod(f"p-{name}", cpu="1", scheduler_name=name)
        core.handlers.on_pod(None, pod, 0.0)
        queued = core.queue.pop(0.0)
        chosen[queued.info.spec.scheduler_name] = core.profiles.of(queued.info).cycle.schedule(queued.info, 0.0)

    assert ("lead", "goldmine") == (chosen["plain"].node_name, chosen["gold"].node_name)
    core.handlers.on_pod(None, a.pod("stranger", scheduler_name="absent"), 0.0)
    assert core.queue.pop(0.0) is None


def test_a_plugin_that_names_no_events_is_asked_again_after_any(a):
    handle = new_handle()
    made = make_profiles(
        with_defaults(read(HEAD + TWO), "x"), {**plugins(), "OnlyGold": GOLD}, defaults(Switches()), handle
    )
    core = core_of(handle, configured(TWO), made)
    core.handlers.on_node(None, a.node("lead"), 0.0)
    core.handlers.on_pod(None, a.pod("p", scheduler_name="gold"), 0.0)
    queued = core.queue.pop(0.0)
    error = core.profiles.of(queued.info).cycle.schedule(queued.info, 0.0).diagnosis
    core.queue.add_unschedulable(queued, 0.0, rejectors=error.rejectors)

    core.handlers.on_pod(None, a.pod("stranger", node="lead"), 5.0)

    assert {"OnlyGold"} == error.rejectors
    assert core.queue.pop(20.0) is queued


def test_configz_shows_who_runs_where():
    handle = new_handle()
    made = make_profiles(
        with_defaults(read(HEAD + TWO), "x"), {**plugins(), "OnlyGold": GOLD}, defaults(Switches()), handle
    )

    shown = configured(TWO).document(core_of(handle, configured(TWO), made).profiles.lineups())

    plain, gold = shown["profiles"]
    assert (100, 5) == (plain["percentageOfNodesToScore"], gold["percentageOfNodesToScore"])
    assert {"name": "TaintToleration", "weight": 3} in plain["plugins"]["score"]["enabled"]
    assert {"name": "OnlyGold"} == gold["plugins"]["filter"]["enabled"][-1]
