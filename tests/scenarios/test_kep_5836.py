"""The acceptance scenarios of KEP-5836, observed as scenarios; what a scenario's expectations cannot say is judged here.

Each scenario is in `experiments/kep-5836`, and its expectations hold in every arm that is observed here unless said otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate

SCENARIOS = Path(__file__).parents[2] / "experiments" / "kep-5836"
GENERATIONS = ("G0", "G1", "G2", "G3", "G4")


class Observed:
    """One scenario, observed in simulation."""

    def __init__(self, name, **switches):
        self.lines = []
        overrides = {name.replace("__", "."): value for name, value in switches.items()}
        scenario = load_scenario(name if isinstance(name, Path) else SCENARIOS / f"{name}.txt")
        self.result = simulate(scenario, seed=1, overrides=overrides, on_line=self.lines.append)

    @property
    def missed(self):
        found = [f"line {j.line}: {j.text} ({j.seen})" for j in self.result.expectations if not j.passed]
        return found + [f"{v.invariant}: {v.detail}" for v in self.result.violations] + self.result.failures

    def said(self, ev, name="", **data):
        """Return `(seconds since the scenario began, data)` of the lines about that pod."""
        return [
            (line.mono_ns / 1e9 - self.result.started_s, line.data)
            for line in self.lines
            if line.ev == ev
            and (not name or (line.obj is not None and line.obj["name"] == name))
            and all(line.data.get(key) == value for key, value in data.items())
        ]

    @property
    def victims(self):
        return sorted({line.obj["name"] for line in self.lines if line.ev == "sched.victim"})

    def attempts(self, name):
        return [(data["outcome"], data["waits_for"]) for _, data in self.said("sched.resize", name)]


def test_kep_5836_01_a_single_victim_leaves_and_the_pod_is_out_of_the_queue():
    observed = Observed("one-victim")

    assert (observed.missed, observed.victims) == ([], ["v"])
    (granted, _) = observed.said("kubelet.resize", "h")[0]
    assert [at for at, _ in observed.said("sched.resize", "h") if at > granted + 0.5] == []


@pytest.mark.parametrize("generation", GENERATIONS)
def test_kep_5836_01_every_generation_makes_capacity_free(generation):
    observed = Observed("one-victim", resize__generation=generation)

    assert (observed.missed, observed.victims) == ([], ["v"])


def test_kep_5836_02_both_of_two_victims_where_both_must_go_and_one_where_one_is_enough():
    observed = Observed("two-victims")

    assert (observed.missed, observed.victims) == ([], ["v1", "v2", "w1"])


def test_kep_5836_03_a_pod_that_never_preempts_waits_in_the_queue():
    observed = Observed("never")

    assert (observed.missed, observed.victims) == ([], [])
    assert observed.attempts("h")[0] == ("unschedulable", "capacity")


def test_kep_5836_04_an_infeasible_resize_is_not_queued():
    observed = Observed("infeasible")

    (asked_again, _) = observed.said("store.commit", "h", subresource="resize")[1]

    assert (observed.missed, observed.victims) == ([], ["n"])
    assert all(at > asked_again for at, _ in observed.said("sched.resize", "h"))


@pytest.mark.parametrize(("generation", "waits_for"), [("G3", "kubelet"), ("G4", "nothing")])
def test_kep_5836_05_a_resize_that_fits_is_parked_or_leaves_the_queue_and_nothing_is_bound(generation, waits_for):
    observed = Observed("fits", resize__generation=generation)

    (asked_again, _) = observed.said("store.commit", "h", subresource="resize")[1]
    first = [
        (data["outcome"], data["waits_for"]) for at, data in observed.said("sched.resize", "h") if at < asked_again
    ]

    assert (observed.missed, observed.victims) == ([], ["v"])
    assert first == [("fits", waits_for)]
    assert len(observed.said("store.commit", "h", subresource="binding")) == 1  # the first, long before


def test_kep_5836_06_what_is_deferred_is_reserved():
    assert Observed("reserved").missed == []


def test_kep_5836_07_only_what_happens_on_its_own_node_wakes_a_deferred_pod():
    observed = Observed("other-node")
    attempts = observed.said("sched.resize", "d")
    (shrunk, _), (shrunk_again, _) = observed.said("kubelet.resize", "other")

    assert observed.missed == []
    assert len([at for at, _ in attempts if at < shrunk]) == 1
    assert len([at for at, _ in attempts if shrunk <= at < min(shrunk + 5, shrunk_again)]) == 1


def test_kep_5836_08_only_a_resize_that_eviction_can_meet_evicts():
    observed = Observed("superseded")
    (evicted, _) = observed.said("sched.victim", "v")[0]

    assert (observed.missed, observed.victims) == ([], ["v"])
    assert evicted > 15  # the first resize waited that long in vain


@pytest.mark.parametrize(
    ("scenario", "generation", "attempts"),
    [
        ("competing-resize", "G3", ["unschedulable", "fits"]),
        ("competing-resize-woken", "G4", ["unschedulable", "fits", "unschedulable"]),
        ("competing-resize-woken", "G2", ["unschedulable", "fits", "unschedulable"]),
    ],
)
def test_kep_5836_09_a_competitor_is_served_first_and_the_pod_that_fitted_is_woken_or_not(
    scenario, generation, attempts
):
    observed = Observed(scenario, resize__generation=generation)
    (asked, _) = observed.said("store.commit", "c", subresource="resize")[0]
    again = [at for at, _ in observed.said("sched.resize", "a") if at > asked]

    assert (observed.missed, observed.victims) == ([], ["b"])
    assert [outcome for outcome, _ in observed.attempts("a")] == attempts
    assert all(asked <= at <= asked + 1 for at in again)


@pytest.mark.parametrize(("scenario", "victims"), [("over-eviction", 3), ("over-eviction-allocated", 1)])
def test_kep_5836_10_desired_resources_count_while_victims_are_chosen_or_allocated_ones(scenario, victims):
    observed = Observed(scenario)

    assert (observed.missed, len(observed.victims)) == ([], victims)


@pytest.mark.parametrize("scenario", ["opt-out", "opt-out-condition", "opt-out-annotation"])
def test_kep_5836_11_a_node_opts_out_in_the_form_of_every_generation_that_has_one(scenario):
    observed = Observed(scenario)

    assert (observed.missed, observed.victims) == ([], ["v"])


def test_kep_5836_12_a_budget_spares_the_lesser_pod_unless_there_is_no_other_way():
    observed = Observed("disruption-budget")

    assert (observed.missed, observed.victims) == ([], ["alone", "mid"])


def test_kep_5836_13_two_resizes_evict_exactly_two():
    observed = Observed("two-resizes")

    assert (observed.missed, len(observed.victims)) == ([], 2)


@pytest.mark.parametrize(("scenario", "victims"), [("newcomer", ["r"]), ("newcomer-beside", [])])
def test_kep_5836_14_a_newcomer_evicts_the_resizing_pod_or_takes_what_is_only_desired(scenario, victims):
    observed = Observed(scenario)

    assert (observed.missed, observed.victims) == ([], victims)


@pytest.mark.parametrize(
    ("scenario", "mode", "victims"),
    [
        ("restart", "accept", ["v", "w2"]),
        ("restart", "memory", ["v", "w2"]),
        ("restart-guarded", "nnn", ["v"]),
        ("restart-guarded", "spec_node_name", ["v"]),
    ],
)
def test_kep_5836_15_a_scheduler_that_restarts_evicts_again_unless_something_outlives_it(scenario, mode, victims):
    observed = Observed(scenario, resize__double_preemption=mode)

    assert (observed.missed, observed.victims) == ([], victims)


@pytest.mark.parametrize(("scenario", "victims"), [("group", ["g1", "g2"]), ("group-single", ["g1"])])
def test_kep_5836_16_a_group_leaves_as_a_whole_over_nodes_or_one_by_one(scenario, victims):
    observed = Observed(scenario)

    assert (observed.missed, observed.victims) == ([], victims)


def test_kep_5836_17_a_resize_that_is_taken_back_evicts_no_pod_afterwards():
    observed = Observed("taken-back")

    assert (observed.missed, observed.victims) == ([], [])
    assert observed.attempts("h")[0] == ("unschedulable", "policy")
    # Taken back, the request fits; that is no reason to evict either, if an attempt comes before the kubelet's answer.
    assert set(observed.attempts("h")) <= {("unschedulable", "policy"), ("fits", "kubelet")}
    assert all(at < 2 for at, _ in observed.said("sched.resize", "h"))  # none once the node would not mind


def test_kep_5836_18_a_deferred_pod_that_is_deleted_is_forgotten():
    observed = Observed("deleted")

    assert (observed.missed, observed.victims) == ([], [])


def test_kep_5836_19_a_victim_is_never_bound_again_and_its_successor_gets_the_new_node():
    observed = Observed("autoscaler")
    webs = [pod for pod in observed.result.pods if pod.name.startswith("web")]

    assert observed.missed == []
    assert [pod.nodes for pod in webs] == [["n1"], ["n2"]]
    assert webs[0].gone_s is not None


@pytest.mark.parametrize(("scenario", "evicted_at_once"), [("between-queue-and-cache", False), ("cache-first", True)])
def test_kep_5836_13_4_the_beta_loses_a_pod_which_the_queue_sees_first(scenario, evicted_at_once):
    observed = Observed(scenario)
    (asked, _) = observed.said("store.commit", "h", subresource="resize")[0]
    (evicted, _) = observed.said("sched.victim", "v")[0]

    assert (observed.missed, observed.victims) == ([], ["v"])
    assert (evicted < asked + 1) == evicted_at_once


def test_what_a_scheduler_reported_is_taken_back_by_the_next_one(tmp_path):
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(
        "# A resize is taken back while no scheduler looks\n"
        "set InPlacePodVerticalScalingSchedulerPreemption=true resize.generation=G1\n"
        "limit 60s\nnodes n1 cpu=300m\npod o cpu=200m\npod h cpu=100m\n"
        "expect within 10s count pods phase=Running == 2\n"
        "resize pod/h cpu=300m\n"
        "expect within 2s each pods name=h status.conditions[ResizeUnschedulable].reason == PreemptionFailed\n"
        "kill scheduler down=3s\n"
        "resize pod/h cpu=100m\n"
        "expect within 2s count pods name=h status.conditions[PodResizePending].status=True == 0\n"
        "expect each pods name=h status.conditions[ResizeUnschedulable].reason == PreemptionFailed\n"
        "expect within 10s count pods name=h status.conditions[ResizeUnschedulable].status=True == 0\n"
    )

    assert Observed(scenario).missed == []


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("scenario", ["two-resizes", "superseded-mid-preemption", "taken-back", "group", "never"])
def test_what_does_not_distinguish_generations_is_so_in_all(scenario, generation):
    if scenario in ("taken-back", "never") and generation in ("G0", "G1", "G2"):
        pytest.skip("expects the words of a later generation")

    assert Observed(scenario, resize__generation=generation).missed == []
