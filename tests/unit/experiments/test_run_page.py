"""The page of a run says whether it passed and why not, and takes nothing on trust that came from a cluster."""

from services.experiments.run_page import RunPage, run_page

MET = {"line": 3, "text": "expect count pods == 1", "passed": True, "seen": "1 found", "at_s": 1.25}
BROKEN = {"invariant": "I5", "at": 2.0, "objects": ["node <n1>"], "trace_id": "", "detail": "9 > 8"}


def document(**more):
    made = {"scenario": "some", "mode": "simulated", "seed": 3, "switches": ["kubelet.on_reject=unbind"]}
    made |= {"digest": "0a1b", "passed": True, "error": "", "expectations": [MET], "violations": []}
    return made | {"measures": {}, "virtual_s": 5.0, "wall_s": 0.5} | more


def test_a_run_that_passed_says_so_and_what_repeats_it():
    page = run_page([RunPage(document(), "A pod runs", command="keplab run some.txt --seed 3")])

    assert page.lower().startswith("<!doctype html>")
    assert "Passed: 1 of 1 expectations are met, no invariant was broken." in page
    assert "<code>keplab run some.txt --seed 3</code>" in page
    assert "<td>kubelet.on_reject<td class=text>unbind" in page
    assert "simulated, seed 3" in page


def test_a_run_that_failed_names_what_was_missed_and_broken_escaped():
    missed = {**MET, "passed": False, "seen": "<b>2 found"}
    page = run_page(
        [RunPage(document(passed=False, expectations=[MET, missed], violations=[BROKEN], violation_count=7))]
    )

    assert "Failed: 1 of 2 expectations are met, 7 violations of invariants." in page
    assert "<span class=bad>not met</span>" in page
    assert "&lt;b&gt;2 found" in page
    assert "node &lt;n1&gt;" in page
    assert "<b>" not in page


def test_pods_by_phase_are_drawn_where_they_are_known():
    rows = [(0.0, 1.0, 0.0, 0.0, 0.0), (2.0, 0.0, 1.0, 0.0, 0.0)]

    assert "<svg" in run_page([RunPage(document(), samples=rows)])
    assert "<svg" not in run_page([RunPage(document())])


def test_figures_have_units_and_those_that_are_zero_are_folded():
    page = run_page(
        [RunPage(document(measures={"time_to_running_p50_s": 1.5, "unbinds": 0.0, "failed_per_min": None}))]
    )

    assert "<td>Time to Running, p50<td class=text>1.5" in page
    assert "1 measures are 0" in page
    assert "Failed pods per minute" not in page


def test_several_runs_stand_on_one_page():
    page = run_page([RunPage(document(scenario="one")), RunPage(document(scenario="two"))])

    assert page.count("<p class=result>") == 2
    assert "<title>2 runs</title>" in page
