"""The page and the table of a comparison: a row a measure, medians over seeds, everything from the cluster escaped."""

import re

import pytest

from services.experiments.compare import Arm, Comparison, PodDifference, compare, fate, parse_arm, parse_arms
from services.experiments.report import MEASURES, OF_SOME, median, page, rows, shown
from services.experiments.style import ticks
from services.scenarios.invariants.auditor import Violation
from services.scenarios.measures.history import PodHistory, Sample
from services.scenarios.result import RunResult


def a_run(seed=0, pods=(), samples=(), violations=(), error="", **measures):
    return RunResult(
        scenario="s.txt", mode="simulated", seed=seed, switches=(), passed=True, expectations=[],
        violations=list(violations), violation_count=len(violations), error=error, is_mistake=False,
        virtual_s=10.0, wall_s=1.0, measures=measures, pods=list(pods), samples=list(samples), digest="d1g357" * 8,
    )  # fmt: skip


def a_pod(role, phase="Running", nodes=("n1",), running_s=2.5, **more):
    return PodHistory("u", role, role, False, 1.0, running_s=running_s, nodes=list(nodes), phase=phase, **more)


FAIL, UNBIND = Arm("fail", {}), Arm("unbind", {"kubelet.on_reject": "unbind"})


def a_comparison(first, *others):
    return Comparison("s <1>.txt", "simulated", [(FAIL, first), *((UNBIND, runs) for runs in others)])


def test_every_measure_has_a_label_of_its_own_and_a_form_for_a_number():
    labels = [label for _, label, _ in (*MEASURES, *OF_SOME)]
    keys = [key for key, _, _ in (*MEASURES, *OF_SOME)]

    assert all(labels)
    assert len(set(labels)) == len(labels)
    assert len(set(keys)) == len(keys)
    for _, _, form in (*MEASURES, *OF_SOME):
        assert re.fullmatch(r"12(\.3|\.34)?( s)?", form.format(12.34))


def test_every_measure_of_a_run_has_a_row_and_what_there_is_none_of_has_a_dash():
    found = dict(rows(a_comparison([a_run(pods_created=12, time_to_running_p50_s=1.236)])))

    assert list(found) == [label for _, label, _ in MEASURES]
    assert (found["Pods created"], found["Time to Running, p50"]) == (["12"], ["1.24 s"])
    assert found["Unbinds"] == ["–"]


def test_a_measure_of_some_scenarios_has_a_row_where_any_run_has_some_of_it():
    comparison = a_comparison([a_run(victims=0, jobs_failed=0)], [a_run(victims=3, jobs_failed=0)])
    found = dict(rows(comparison))

    assert found["Victims of preemption"] == ["0", "3"]
    assert "Jobs failed" not in found


def test_figures_are_medians_over_the_seeds_that_have_them():
    runs = [a_run(seed, unbinds=number) for seed, number in enumerate((1, 9, None, 5))]

    assert dict(rows(a_comparison(runs)))["Unbinds"] == ["5"]
    assert (median([3.0, 1.0]), median([None]), median([])) == (3.0, None, None)
    assert (shown("{:.1f} s", 0.0), shown("{:.1f} s", None)) == ("0.0 s", "–")


def test_the_page_escapes_what_came_from_a_cluster_and_has_no_script():
    broken = Violation("I3", 1.5, ("Pod <b>/x",), "", "twice & thrice")
    comparison = a_comparison([a_run(violations=[broken])], [a_run(error="no <such> file")])
    comparison.differences = [PodDifference(0, "unbind", "web#1", "Running on n1", None)]
    comparison.difference_count = 4
    text = page(comparison, "A & B", "about <it>")

    assert "<title>A &amp; B</title>" in text
    assert "about &lt;it&gt;" in text
    assert "s &lt;1&gt;.txt" in text
    assert "I3 at 1.500 s: Pod &lt;b&gt;/x: twice &amp; thrice" in text
    assert "seed 0: no &lt;such&gt; file" in text
    assert "<span class=bad>1 violations</span>" in text
    assert "<span class=good>no violation</span>" in text
    assert "<script" not in text
    assert "1 seed an arm" in text
    assert text.rstrip().endswith("</html>")
    assert "4 pods differ" in text
    assert "unbind: was never created" in text
    assert "3 more are in the JSON document" in text


def test_two_arms_whose_pods_fare_alike_say_so_and_one_arm_has_nothing_to_compare():
    assert "No pod's fate differs" in page(a_comparison([a_run()], [a_run()]), "t", "")
    assert "Pod by pod" not in page(a_comparison([a_run()]), "t", "")


def test_pods_by_phase_are_lines_over_time_that_end_with_the_last_sample():
    samples = [Sample(t * 10 / 999, 0, t, 0, 0) for t in range(1000)]
    text = page(a_comparison([a_run(samples=samples)]), "t", "")
    lines = {
        name: [point.split(",") for point in points.split()]
        for points, name in re.findall(r"points='([^']*)' /><text [^>]*>(\w+) \d+<", text)
    }

    assert set(lines) == {"failed", "running", "pending"}
    assert 400 <= len(lines["running"]) <= 502
    xs, ys = ([float(each[axis]) for each in lines["running"]] for axis in (0, 1))
    assert xs == sorted(xs)
    assert (xs[0], xs[-1]) == (42.0, 490.0)
    assert ys == sorted(ys, reverse=True), "more pods stand higher"
    assert {y for _, y in lines["failed"]} == {y for _, y in lines["pending"]} == {str(ys[0])}
    assert ">running 999<" in text


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        (1, [0, 1]),
        (3, [0, 1, 2, 3]),
        (7, [0, 2, 4, 6]),
        (10, [0, 5, 10]),
        (45, [0, 10, 20, 30, 40]),
        (60, [0, 20, 40, 60]),
        (999, [0, 200, 400, 600, 800]),
    ],
)
def test_an_axis_has_two_to_five_round_steps(top, expected):
    assert ticks(top) == expected


def test_pods_are_matched_by_role_and_each_whose_fate_differs_is_named_once_a_seed():
    fates = {
        "fail": [
            a_pod("web#1", "Failed", reason="OutOfcpu"),
            a_pod("web#2"),
            a_pod("gone#1", running_s=None, gone_s=3.0),
        ],
        "unbind": [a_pod("web#1", nodes=("n1", "n2"), unbinds=1), a_pod("web#2")],
    }

    found = compare("s", "simulated", (FAIL, UNBIND), range(2), lambda arm, seed: a_run(seed, fates[arm.name]))

    assert found.difference_count == 4
    assert found.differences[:2] == [
        PodDifference(
            0, "unbind", "web#1", "Failed (OutOfcpu) on n1, Running after 1.500 s",
            "Running on n1→n2, 1 unbinds, Running after 1.500 s",
        ),
        PodDifference(0, "unbind", "gone#1", "gone on n1", None),
    ]  # fmt: skip
    assert [each.seed for each in found.differences] == [0, 0, 1, 1]


def test_times_are_part_of_a_fate_in_simulation_only():
    pod = a_pod("web#1", nodes=())

    assert fate(pod, exact=True) == "Running on nowhere, Running after 1.500 s"
    assert fate(pod, exact=False) == "Running on nowhere"


def test_a_comparison_passes_whose_runs_broke_nothing_and_came_to_their_end():
    broken = Violation("I3", 1.5, (), "", "")

    assert a_comparison([a_run()], [a_run()]).passed
    assert not a_comparison([a_run()], [a_run(violations=[broken])]).passed
    assert not a_comparison([a_run(error="no")], [a_run()]).passed


def test_the_document_has_each_run_of_each_arm_and_what_differs():
    comparison = a_comparison([a_run(3, pods_created=1)], [a_run(3, error="no")])
    comparison.differences = [PodDifference(3, "unbind", "web#1", "Running on n1", None)]
    comparison.difference_count = 1
    document = comparison.document("report.html")

    run = {
        "seed": 3,
        "digest": "d1g357" * 8,
        "measures": {"pods_created": 1},
        "passed": True,
        "violations": 0,
        "error": "",
    }
    assert document == {
        "scenario": "s <1>.txt",
        "mode": "simulated",
        "arms": [
            {"name": "fail", "switches": [], "runs": [run]},
            {
                "name": "unbind",
                "switches": ["kubelet.on_reject=unbind"],
                "runs": [{**run, "measures": {}, "error": "no"}],
            },
        ],
        "differences": [{"seed": 3, "pod": "web#1", "arm": "unbind", "arm_a": "Running on n1", "arm_b": None}],
        "difference_count": 1,
        "report": "report.html",
    }


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (("a b",), "arm 'a b': want NAME:SWITCH=VALUE"),
        ((":kubelet.on_reject=fail",), "want NAME:SWITCH=VALUE"),
        (("a:kubelet.on_reject",), "arm a: 'kubelet.on_reject': want SWITCH=VALUE"),
        (("a:kubelet.on_reject=maybe",), "want one of fail"),
        (("a", "b", "a:kubelet.on_reject=fail"), "two arms are called 'a'"),
    ],
)
def test_an_arm_that_means_nothing_is_named(texts, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_arms(texts)


def test_an_arm_is_a_name_with_its_switches():
    assert parse_arm("new-one_2: kubelet.on_reject = unbind ,PodUnbinding=true") == Arm(
        "new-one_2", {"kubelet.on_reject": "unbind", "PodUnbinding": True}
    )
    assert parse_arm("plain") == Arm("plain", {})
