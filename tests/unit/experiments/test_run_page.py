"""The page of a run says whether it passed and why not, and takes nothing on trust that came from a cluster."""

from lab.experiments.run_page import RunPage, plain_runs, runs_document

MET = {"line": 3, "text": "expect count pods == 1", "passed": True, "seen": "1 found", "at_s": 1.25}
BROKEN = {"invariant": "I5", "at": 2.0, "objects": ["node <n1>"], "trace_id": "", "detail": "9 > 8"}


def document(**more):
    made = {"scenario": "some", "mode": "simulated", "seed": 3, "switches": ["kubelet.on_reject=unbind"]}
    made |= {"digest": "0a1b", "passed": True, "error": "", "expectations": [MET], "violations": []}
    return made | {"measures": {}, "virtual_s": 5.0, "wall_s": 0.5} | more


def shown(*runs):
    return runs_document([RunPage(*given) if isinstance(given, tuple) else RunPage(given) for given in runs])["runs"]


def tables(run):
    return {table["title"]: table["rows"] for table in (*run["checks"], *run["tables"])}


def test_a_run_that_passed_says_so_and_what_repeats_it():
    made = RunPage(document(), "A pod runs", "About\nit.\n\nMore.", command="keplab run some.txt --seed 3")
    (run,) = runs_document([made])["runs"]

    assert "Passed: 1 of 1 expectations are met, no invariant was broken." == run["result"]
    assert [["1.250 s", "3", "expect count pods == 1", "1 found", "met"]] == tables(run)["Expectations"]
    assert [["kubelet.on_reject", "unbind"]] == tables(run)["Switches"]
    assert ("keplab run some.txt --seed 3", ["About it.", "More."]) == (run["command"], run["about"])
    assert ("mode and seed", "simulated, seed 3") in run["where"]
    assert "<pre>keplab run some.txt --seed 3</pre>" in plain_runs([made])


def test_a_run_that_failed_names_what_was_missed_and_broken():
    missed = {**MET, "passed": False, "seen": "<b>2 found"}
    failed = document(passed=False, expectations=[MET, missed], violations=[BROKEN], violation_count=7)
    (run,) = shown(failed)
    plain = plain_runs([RunPage(failed)])

    assert "Failed: 1 of 2 expectations are met, 7 violations of invariants." == run["result"]
    assert ["met", "not met"] == [row[-1] for row in tables(run)["Expectations"]]
    assert [["I5", "2.000 s", "node <n1>", "9 > 8"]] == tables(run)["Violations"]
    assert "&lt;b&gt;2 found" in plain
    assert "node &lt;n1&gt;" in plain
    assert "<b>2" not in plain


def test_pods_by_phase_are_given_where_they_are_known():
    rows = [(0.0, 1.0, 0.0, 0.0, 0.0), (2.0, 0.0, 1.0, 0.0, 0.0)]
    (run,) = runs_document([RunPage(document(), samples=rows)])["runs"]

    assert ["pending", "running"] == [band["phase"] for band in run["arm"]["bands"]["phases"]]
    assert shown(document())[0]["arm"] is None


def test_figures_have_units_and_those_that_are_zero_are_folded():
    (run,) = shown(document(measures={"time_to_running_p50_s": 1.5, "unbinds": 0.0, "failed_per_min": None}))

    assert [["Time to Running, p50", "1.50 s"]] == tables(run)["Figures"]
    assert "1 measure is 0: Unbinds." == run["zeros"]


def test_long_tables_are_cut_and_say_so():
    (run,) = shown(document(violations=[BROKEN] * 45))

    assert (40, 5) == (len(run["checks"][1]["rows"]), run["checks"][1]["left"])
    assert "5 more are in the JSON document." in plain_runs([RunPage(document(violations=[BROKEN] * 45))])


def test_several_runs_stand_on_one_page():
    made = runs_document([RunPage(document(scenario="one")), RunPage(document(scenario="two"))])

    assert ("2 runs", ["one", "two"]) == (made["title"], [run["title"] for run in made["runs"]])
