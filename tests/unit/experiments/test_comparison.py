"""The document of a comparison: measures over seeds, pods that differ, one sentence; it is read back as it was written."""

import re

import msgspec
import pytest

from lab.experiments.document import SCHEMA, DocumentError, SwitchRow, document_of, read_document
from lab.experiments.fates import DIFFERENCES_MAX, NEVER, Fate, FateGroup, PodDifference, fate_of
from lab.experiments.figures import describe_measure, in_order, label_of, scale_of
from lab.experiments.headline import NONE_OF, RANKS
from lab.experiments.page_document import page_texts
from lab.experiments.views import markdown, text
from lab.scenarios.measures.history import PodHistory
from lab.scenarios.measures.register import MEASURES, Measure
from tests.unit.experiments.runs import FAIL, UNBIND, A, B, a_failed_run, a_run, compared, seeds_of


def a_pod(role, phase="Running", nodes=("n1",), running_s=2.5, **more):
    return PodHistory("u", role, role, False, 1.0, running_s=running_s, nodes=list(nodes), phase=phase, **more)


def measure(made, name="pods_failed"):
    return next(each for each in made.measures if each.name == name)


def test_differences_are_taken_within_a_seed():
    made = compared(seeds_of([10, 20, 30], [9, 19, 29]))
    found = measure(made).differences[0]

    assert (found.median, found.low, found.high, found.seeds) == (-1.0, -1.0, -1.0, 3)
    assert [each.median for each in measure(made).arms] == [20.0, 19.0]
    assert measure(made).state == "differs"


def test_seeds_that_one_arm_alone_has_count_in_its_spread_and_in_no_difference():
    made = compared([a_run("fail", 0, unbinds=1), a_run("unbind", 0, unbinds=3), a_run("fail", 1, unbinds=9)])

    assert [each.seeds for each in measure(made, "unbinds").arms] == [2, 1]
    assert (measure(made, "unbinds").differences[0].seeds, measure(made, "unbinds").differences[0].median) == (1, 2.0)


def test_a_run_with_an_error_counts_nowhere_and_is_named():
    made = compared([*seeds_of([5, 5], [1, 1]), a_run("fail", 2, pods_failed=7), a_failed_run("unbind", 2)])

    assert measure(made).arms[1].high == 1
    assert measure(made).differences[0].seeds == 2
    assert "1 of 3 runs of unbind did not come to the end and counts nowhere: line 3: no such node" in made.result
    assert not made.passed


def test_an_arm_whose_runs_all_fail_leaves_nothing_to_compare():
    made = compared([run for seed in (0, 1) for run in (a_run("fail", seed, unbinds=1), a_failed_run("unbind", seed))])

    assert made.result.startswith(
        "There is nothing to compare: no seed came to its end in every arm. All runs of unbind"
    )
    assert made.difference_count == 0


def test_measures_that_are_equal_or_empty_are_known_as_such():
    values = (("fail", 0), ("unbind", 1))
    made = compared([a_run(arm, 0, pods_failed=2, unbinds=value, first_running_s=None) for arm, value in values])

    states = {each.name: each.state for each in made.measures}
    assert states == {"pods_failed": "equal", "unbinds": "differs", "first_running_s": "empty"}
    assert [each.name for each in made.differing()] == ["unbinds"]


def test_what_one_arm_has_no_value_of_differs():
    made = compared([a_run("fail", 0, first_running_s=None), a_run("unbind", 0, first_running_s=1.5)])

    assert measure(made, "first_running_s").state == "differs"
    assert measure(made, "first_running_s").differences[0].seeds == 0


# --- the sentence


def test_the_sentence_names_what_became_of_pods_with_its_evidence():
    made = compared(seeds_of([1599.0 + seed for seed in range(20)], [0.0] * 20))

    assert made.result == (
        "With unbind, no pod failed: median 0 instead of 1,608 with fail (difference −1,608, 95 % interval −1,612 to "
        "−1,604, lower in 20 of 20 seeds)."
    )


def test_outcomes_come_before_costs_and_what_a_scenario_measures_itself_before_both():
    values = {"api_writes": (5, 9), "pods_failed": (3, 4), "own_thing_s": (1, 2)}
    arms = enumerate(("fail", "unbind"))
    runs = [a_run(arm, 0, **{name: pair[place] for name, pair in values.items()}) for place, arm in arms]

    assert compared(runs).result.startswith("With unbind, own_thing: 2 s instead of 1 s with fail")
    for run in runs:
        del run.run.measures["own_thing_s"]
    second = "With unbind, pods failed: 4 instead of 3 with fail (difference +1, seed 0). 1 other measure differs"
    assert compared(runs).result.startswith(second)


def test_one_seed_shows_no_spread_and_few_have_no_interval():
    assert "One seed shows no spread" in compared(seeds_of([5], [1])).result
    few = compared(seeds_of([5, 6, 7], [1, 1, 1])).result
    assert "(difference −5, −6 to −4, lower in 3 of 3 seeds)" in few
    assert "3 seeds are too few for an interval: 6 or more have one." in few
    assert "too few" not in compared(seeds_of([5] * 6, [1] * 6)).result
    assert "(difference −4 in each of 6 seeds)" in compared(seeds_of([5] * 6, [1] * 6)).result


def test_signs_that_chance_could_have_made_are_no_clear_difference():
    made = compared(seeds_of([5] * 8, [6, 4, 6, 4, 6, 4, 6, 4]))

    assert made.result.startswith(
        "No clear difference between fail and unbind: pods failed is higher with unbind in 4 and lower in 4 of 8 seeds"
    )


@pytest.mark.parametrize(("seeds", "runs"), [(1, "One run"), (2, "2 runs"), (5, "5 runs")])
def test_few_runs_of_real_processes_have_why_not_judged_however_alike_their_signs_are(seeds, runs):
    made = compared(seeds_of([600.0] * seeds, [800.0] * seeds, "time_to_running_p50_s"), mode="processes")

    assert made.result.startswith(f"{runs} of real processes an arm, no verdict: ")
    assert "--seeds 6 does" in made.result
    assert not re.search("median|better|worse|instead of", made.result)
    assert made.why_not_judged
    (found,) = page_texts(made).rows
    assert ("", False, "") == (found.differences[0].judged, found.differences[0].is_clear, found.differences[0].p)
    assert not re.search("better|worse", text(made) + markdown(made))
    assert made == read_document(msgspec.json.encode(document_of(made)), "kept")


def test_six_runs_of_real_processes_have_one():
    made = compared(seeds_of([600.0] * 6, [800.0] * 6, "time_to_running_p50_s"), mode="processes")

    assert made.result.startswith("With unbind, time to Running, p50: median ")
    assert "" == made.why_not_judged
    assert "worse" in text(made)


def test_what_arms_with_the_same_switches_differ_by_is_scatter_with_its_size_however_many_seeds():
    values = [1.0 + seed / 10 for seed in range(6)]
    made = compared(seeds_of(values, [2.0] * 6, "first_running_s", ("a", "b")), (A, B), mode="processes")

    assert made.result.startswith(
        "6 runs of real processes an arm, no verdict: the arms come to the same switches, so what differs is scatter of "
        "this size. First pod Running after: 1.25 s (1.00 to 1.50 s) with a and 2.00 s with b."
    )
    assert "worse" not in text(made)


def test_one_simulated_run_is_no_median():
    made = compared(seeds_of([600.0], [800.0], "time_to_running_p50_s"))

    assert "median" not in made.result


STATED = (Measure("overfreed", "cores", "CPU freed beyond what the resize needs", "lower", "scenario", relevant=0.5),)


def test_what_the_scenario_states_comes_first_equal_or_not_and_stands_in_the_table():
    runs = [
        a_run(arm, seed, overfreed=0.0, queue_unschedulable_s=waited)
        for seed in range(6)
        for arm, waited in (("fail", 1.0), ("unbind", 2.0 + seed))
    ]
    made = compared(runs, stated=STATED)

    assert made.result.startswith(
        "CPU freed beyond what the resize needs does not differ: 0 cores in both arms. "
        "With unbind, time of all pods in the queue's unschedulable pool: median "
    )
    assert ["overfreed", "queue_unschedulable_s"] == [each.name for each in made.tabled_measures()]
    assert "equal in 6 of 6" in text(made)
    assert ["overfreed", "queue_unschedulable_s"] == page_texts(made).first


def test_a_difference_that_does_not_matter_is_folded_and_neither_named_nor_judged():
    runs = [
        a_run(arm, seed, overfreed=freed, queue_unschedulable_s=waited)
        for seed in range(6)
        for arm, freed, waited in (("fail", 2.0, 0.0999), ("unbind", 2.25, 0.0985))
    ]
    made = compared(runs, stated=STATED)

    assert {"overfreed": "small", "queue_unschedulable_s": "small"} == {each.name: each.state for each in made.measures}
    assert made.result.startswith(
        "CPU freed beyond what the resize needs does not differ by 0.50 cores or more: 2.00 cores (2.00 to 2.25 cores) in both arms."
    )
    assert not re.search("better|worse", text(made))
    assert "1 measure differs by less than 5 %" in text(made)
    assert not made.is_equal


def test_each_pod_that_fails_matters_however_many_do():
    made = compared(seeds_of([1000.0] * 6, [1001.0] * 6))

    assert "differs" == measure(made).state
    assert made.result.startswith("With unbind, pods failed")


def test_with_many_measures_it_says_how_many_would_differ_by_chance():
    named = [each.name for each in MEASURES if "RESOURCE" not in each.name][:40]
    runs = [
        a_run(arm, seed, **dict.fromkeys(named, 1.0 + 2.0 * ((seed + place) % 2) + seed))
        for seed in range(8)
        for place, arm in enumerate(("fail", "unbind"))
    ]

    assert "Of 40 differences about 2 would look clear by chance alone." in compared(runs).result
    assert "by chance" not in compared(seeds_of([1.0, 2.0] * 4, [2.0, 1.0] * 4)).result


def test_several_arms_stand_in_one_sentence():
    values = (("fail", 9), ("unbind", 0), ("recreate", 4))
    runs = [a_run(arm, seed, pods_failed=value) for seed in range(6) for arm, value in values]
    made = compared(runs, (FAIL, UNBIND, ("recreate", ("kubelet.on_reject=recreate",))))

    assert made.result == (
        "With unbind, no pod failed: median 0 instead of 9 with fail (difference −9 in each of 6 seeds); "
        "with recreate, 4 (difference −5 in each of 6 seeds)."
    )


def test_equal_arms_say_what_was_compared_and_why_that_means_something():
    runs = [a_run(arm, seed, {"web#1": ("Running on n1", 1.5)}, pods_failed=2) for seed in range(3) for arm in "ab"]
    made = compared(runs, (A, B))

    assert (made.passed, made.is_equal) == (True, True)
    assert made.result == (
        "No difference between a and b: in 3 seeds 21 decisions, 1 measure and 3 pods are equal, and so are the digests "
        "of the event logs. The arms have the same switches and the same seeds, and the simulation is deterministic: "
        "whatever two arms of this scenario differ in comes from their switches, not from chance."
    )


def test_different_arms_that_do_not_differ_name_the_switches_that_did_nothing():
    made = compared([a_run(arm, 0, pods_failed=2) for arm in ("fail", "unbind")])

    assert "Nothing in this scenario depends on kubelet.on_reject with the values compared." in made.result
    assert "the same switches" not in made.result


def test_arms_that_come_to_the_same_switches_are_not_taken_for_a_result():
    runs = [a_run(arm, 0, pods_failed=2) for arm in ("fail", "unbind")]
    rows = [SwitchRow("kubelet.on_reject", "fail", ["unbind", "unbind"], False, "")]
    made = compared(runs, (("fail", ()), UNBIND), switches=rows)

    assert made.result.endswith(
        "The arms come to the same switches: what one sets, the others have from the scenario or by default."
    )


def test_equal_switches_with_different_runs_are_a_defect_and_no_result():
    runs = [a_run("a", 0, pods_failed=2), a_run("b", 0, pods_failed=3)]
    made, real = compared(runs, (A, B)), compared(runs, (A, B), mode="processes")

    assert "not deterministic" in made.result
    assert (made.passed, real.passed) == (False, True)
    assert real.result.startswith("One run of real processes an arm, no verdict: the arms come to the same switches")


def test_decisions_that_differ_without_a_measure_are_said():
    made = compared([a_run(arm, 0, decisions=arm, pods_failed=1) for arm in ("fail", "unbind")])

    assert not made.is_equal
    assert "no measure differs in 1 seed, but the decisions on the way differ" in made.result


def test_an_interrupt_and_one_arm_are_said():
    made = compared(seeds_of([1], [2]), planned=40, is_interrupted=True)

    assert made.result.startswith("Interrupted after 2 of 40 runs. With")
    assert compared([a_run("fail", 0, pods_failed=1)], (FAIL,)).result == (
        "One arm, 1 seed: there is nothing to compare it with."
    )


def test_ranks_and_phrases_are_of_measures_that_exist():
    names = {measure.name for measure in MEASURES}

    assert set(RANKS) <= names
    assert set(NONE_OF) <= names


# --- pods


def test_pods_are_matched_by_role_and_each_whose_fate_differs_is_named_once_a_seed():
    fates = {
        "fail": {"web#1": ("Failed (OutOfcpu) on n1",), "web#2": ("Running on n1", 1.5), "gone#1": ("gone on n1",)},
        "unbind": {"web#1": ("Running on n1→n2, 1 unbind", 2.5), "web#2": ("Running on n1", 1.75)},
    }
    made = compared([a_run(arm, seed, fates[arm]) for seed in range(2) for arm in fates])

    assert made.difference_count == 6
    assert made.differences[0] == PodDifference(
        0, "web#1", "unbind", "Failed (OutOfcpu) on n1", "Running on n1→n2, 1 unbind, Running after 2.500 s"
    )
    assert PodDifference(1, "gone#1", "unbind", "gone on n1", None) in made.differences
    assert FateGroup("unbind", "gone on n1", NEVER, 2, 2, "gone#1") in made.difference_groups
    assert FateGroup("unbind", "Running on n1", "Running on n1", 2, 2, "web#2") in made.difference_groups


def test_groups_count_what_the_list_of_pods_leaves_out():
    fates = {f"web#{number}": ("Failed on n1",) for number in range(DIFFERENCES_MAX + 70)}
    made = compared([a_run("fail", 0, fates), a_run("unbind", 0)])

    assert (len(made.differences), made.difference_count) == (DIFFERENCES_MAX, DIFFERENCES_MAX + 70)
    assert [group.pods for group in made.difference_groups] == [DIFFERENCES_MAX + 70]


def test_times_are_part_of_a_fate_in_simulation_only():
    pod = a_pod("web#1", nodes=())

    assert fate_of(pod, exact=True) == Fate("Running, on no node", 1.5)
    assert fate_of(pod, exact=False) == Fate("Running, on no node")
    assert fate_of(a_pod("web#1", unbinds=2, nodes=("n1", "n2")), exact=False).whole == "Running on n1→n2, 2 unbinds"


# --- the document


def test_the_document_keeps_the_keys_that_scripts_read_and_is_read_back():
    made = compared(seeds_of([5, 6], [1, None]))
    document = document_of(made)

    assert {"scenario", "mode", "arms", "differences", "difference_count", "report"} <= document.keys()
    assert (document["schema"], document["schema_version"]) == (SCHEMA, 1)
    assert [(arm["name"], arm["switches"]) for arm in document["arms"]] == [(n, list(s)) for n, s in (FAIL, UNBIND)]
    assert [run["seed"] for run in document["arms"][0]["runs"]] == [0, 1]
    assert document["arms"][1]["runs"][1]["measures"] == {"pods_failed": None}
    assert read_document(msgspec.json.encode(made), "x.json") == made


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"nothing", "x.json: no document of a comparison"),
        (b"\xff\xfe", "x.json: no document of a comparison"),
        (b"[]", "x.json: no document of a comparison"),
        (b"{}", "x.json: it has no schema 0, want keplab.comparison 1"),
        (b'{"schema":"keplab.comparison","schema_version":9}', "it has keplab.comparison 9, want keplab.comparison 1"),
        (b'{"schema":"keplab.comparison","schema_version":1}', "x.json: Object missing required field"),
    ],
)
def test_what_is_no_comparison_is_refused_with_what_it_has(text, says):
    with pytest.raises(DocumentError, match=re.escape(says)):
        read_document(text, "x.json")


# --- how figures are written


def test_a_label_leaves_the_unit_to_the_figure_and_is_one_measures_own():
    labels = [label_of(measure) for measure in MEASURES]

    assert len(set(labels)) == len(labels)
    assert label_of(describe_measure("status_stale_min")) == "Pods' status is stale"
    assert label_of(describe_measure("claim_kib_written")) == "ResourceClaims written, size"


def test_a_measure_that_is_not_described_is_shown_by_its_name_and_ending():
    stated = Measure("queue_wait_s", "ms", "Wait", "lower", "")

    assert (label_of(describe_measure("imbalance")), describe_measure("imbalance").unit) == ("imbalance", "")
    assert (label_of(describe_measure("queue_wait_s")), describe_measure("queue_wait_s").unit) == ("queue_wait", "s")
    assert describe_measure("queue_wait_s", [stated]) == stated
    assert label_of(describe_measure("cpu_imbalance_end")) == "Imbalance of cpu over nodes at the end"


def test_what_a_scenario_states_stands_first_then_the_register_s_order():
    names = ["queue_active_s", "cpu_imbalance_end", "pods_failed", "zeal", "pods_created", "ardour"]

    assert in_order(names) == ["zeal", "ardour", "pods_created", "pods_failed", "cpu_imbalance_end", "queue_active_s"]


@pytest.mark.parametrize(
    ("unit", "values", "texts"),
    [
        ("", [1599, 0, None], ["1,599", "0", "–"]),
        ("", [1.5, 20], ["1.50", "20.00"]),
        ("", [0.25], ["0.250"]),
        ("s", [1.516, 1.5], ["1.52 s", "1.50 s"]),
        ("s", [0.0123, 0.1], ["12.3 ms", "100.0 ms"]),
        ("s", [7200.0, 90.0], ["120.0 min", "1.5 min"]),
        ("1/min", [3198.2], ["3,198/min"]),
        ("cores", [-2.0, 0.0], ["−2 cores", "0 cores"]),
        ("", [-10174.5], ["−10,174"]),
    ],
)
def test_a_row_has_one_unit_and_one_precision(unit, values, texts):
    scale = scale_of(unit, values)

    assert [scale.text(value) for value in values] == texts


def test_a_difference_has_a_sign_and_none_has_none():
    scale = scale_of("s", [2.0])

    assert [scale.text(value, signed=True) for value in (2.0, -2.0, 0.0)] == ["+2 s", "−2 s", "0 s"]
    assert scale.between(-2, 1, signed=True) == "−2 to +1 s"
