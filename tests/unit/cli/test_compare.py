"""`keplab compare`: workers, a record that goes on, what an interrupt leaves, and what an expert mistypes."""

import csv
import fcntl
import io
import json
import os
from functools import partial

import pytest

from lab.cli import sweep
from lab.cli.commands import compare
from lab.experiments import comparison_request as asked
from lab.experiments.document import ArmRun, Run, read_document
from lab.experiments.record import Record
from lab.scenarios.processes.access import Access
from lab.scenarios.processes.mesh_switches import MeshSwitches

SCENARIO = """\
# A pod runs
limit 20s
nodes n1..n2 cpu=4
pod hello cpu=1
expect within 10s each pods name=hello phase == Running
"""
ARMS = ("--arm", "fail:kubelet.on_reject=fail", "--arm", "unbind:kubelet.on_reject=unbind")
SAME = ("--arm", "a", "--arm", "b")


@pytest.fixture
def scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "hello.txt"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def compared(ended):
    """Run `keplab compare`; returns its exit code, standard output and standard error."""
    return partial(ended, "compare")


@pytest.fixture
def runs(monkeypatch):
    """The arms and seeds that were run, in their order, and how many are run before Ctrl-C."""
    made, limit = [], []
    run_it = compare.run_arm_showing

    def run_arm_showing(job, progress):
        if limit and len(made) == limit[0]:
            raise KeyboardInterrupt
        made.append((job.arm, job.seed))
        return run_it(job, progress)

    monkeypatch.setattr(compare, "run_arm_showing", run_arm_showing)
    return made, limit


def without_provenance(text):
    document = json.loads(text)
    del document["provenance"]
    for arm in document["arms"]:
        for each in arm["runs"]:
            del each["wall_s"]
    return document


@pytest.mark.timeout(300)  # two interpreters begin, which takes long beside other load
def test_two_workers_find_what_one_finds(scenario, compared):
    code, one, _ = compared(scenario, *SAME, "--seeds", 2, "--workers", 1, "-o", "json")
    _, two, _ = compared(scenario, *SAME, "--seeds", 2, "--workers", 2, "-o", "json")

    assert code == 0
    assert without_provenance(one) == without_provenance(two)
    assert json.loads(one)["result"].startswith("No difference between a and b: in 2 seeds")
    assert (json.loads(one)["provenance"]["workers"], json.loads(two)["provenance"]["workers"]) == (1, 2)


def test_arms_whose_switches_come_to_the_same_are_named_before_anything_runs(scenario, compared, runs):
    scenario.write_text(SCENARIO.replace("limit", "set kubelet.on_reject=unbind\nlimit"))

    _, out, err = compared(scenario, "--workers", 1, "--arm", "unbind:kubelet.on_reject=unbind", "--arm", "today")

    assert "arms unbind and today have the same switches: what one sets (kubelet.on_reject)" in err
    assert "The arms come to the same switches" in out
    assert "have the same switches" not in compared(scenario, "--workers", 1, *SAME)[2]


def test_a_record_goes_on_with_more_seeds_and_gives_the_same(scenario, compared, runs):
    made, _ = runs
    whole = compared(scenario, *SAME, "--seeds", 3, "--workers", 1, "-o", "json")
    made.clear()
    for seeds in (1, 3, 3):
        found = compared(scenario, *SAME, "--seeds", seeds, "--workers", 1, "--record", "some/r.jsonl", "-o", "json")

    assert made == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)], "no run twice, seed after seed"
    assert without_provenance(found[1]) == without_provenance(whole[1])


def test_ctrl_c_shows_what_is_there_and_the_same_command_goes_on(scenario, compared, runs, tmp_path):
    made, limit = runs
    limit.append(3)
    words = (scenario, *SAME, "--seeds", 4, "--workers", 1, "--record", "r.jsonl", "--report", "r.html")
    code, out, err = compared(*words)
    kept = read_document((tmp_path / "r.json").read_bytes(), "r.json")

    assert code == 130
    assert "3 of 8 runs; the same command goes on from there" in err
    assert out.startswith("Interrupted after 3 of 8 runs. No difference between a and b: in 1 seed")
    assert (kept.is_interrupted, kept.runs_made, kept.runs_planned) == (True, 3, 8)
    assert "Interrupted after 3 of 8 runs" in (tmp_path / "r.html").read_text()

    limit.clear()
    code, out, _ = compared(*words)
    assert code == 0
    assert "Interrupted" not in out
    assert len(made) == 8


def test_ctrl_c_without_a_record_says_how_to_have_one(scenario, compared, runs):
    runs[1].append(2)
    code, _, err = compared(scenario, *SAME, "--seeds", 2, "--workers", 1)

    assert (code, "2 of 4 runs; with --record FILE the same command would go on" in err) == (130, True)


def test_ctrl_c_before_the_first_run_leaves_nothing(scenario, compared, runs, tmp_path):
    runs[1].append(0)
    code, out, _ = compared(scenario, *SAME, "--workers", 1, "--report", "r.html")

    assert (code, out, (tmp_path / "r.html").exists()) == (130, "", False)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--arm", "a", "--arm", "c"), "it has arms a b, this command has a c"),
        (
            ("--arm", "a", "--arm", "b:kubelet.on_reject=unbind"),
            "it has arms a b, this command has a b:kubelet.on_reject=unbind",
        ),
        (
            (*SAME, "--set", "kubelet.on_reject=unbind"),
            "switches of all arms (none), this command has kubelet.on_reject=unbind",
        ),
        ((*SAME, "--processes"), "it has mode simulated, this command has processes"),
    ],
)
def test_a_record_of_another_comparison_is_refused_with_both_values(scenario, compared, words, says):
    compared(scenario, *SAME, "--workers", 1, "--record", "r.jsonl")
    code, out, err = compared(scenario, *words, "--record", "r.jsonl")

    assert (code, out) == (2, "")
    assert "r.jsonl is the record of another comparison: " in err
    assert says in err


def test_a_record_is_refused_when_scenario_or_code_have_changed(scenario, compared, monkeypatch):
    compared(scenario, *SAME, "--workers", 1, "--record", "r.jsonl")
    scenario.write_text(SCENARIO.replace("cpu=1", "cpu=2"))
    code, _, err = compared(scenario, *SAME, "--record", "r.jsonl")
    assert (code, "it was made when hello.txt had SHA-256 " in err) == (2, True)

    scenario.write_text(SCENARIO)
    known = asked.revision()
    monkeypatch.setattr(asked, "revision", lambda: type(known)("9.9", "feed" * 10, ""))
    code, _, err = compared(scenario, *SAME, "--record", "r.jsonl")
    assert (code, f"it was made by revision {known.text}, this is {'feed' * 10}" in err) == (2, True)


def test_a_torn_line_is_run_again_and_swallows_no_other(scenario, compared, runs, tmp_path):
    words = (scenario, *SAME, "--seeds", 2, "--workers", 1, "--record", "r.jsonl")
    compared(*words)
    path = tmp_path / "r.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    runs[0].clear()

    for _ in range(2):
        assert compared(*words)[0] == 0
    assert runs[0] == [("b", 1)]


def test_what_is_no_record_and_what_cannot_be_one_is_refused(scenario, compared, tmp_path):
    (tmp_path / "notes.txt").write_text("milk\n")
    (tmp_path / "folder").mkdir()

    for name, says in (
        ("notes.txt", "notes.txt: no record of a comparison"),
        ("folder", "cannot write the record folder: Is a directory"),
        ("notes.txt/r.jsonl", "cannot write the record notes.txt/r.jsonl: "),
    ):
        code, _, err = compared(scenario, *SAME, "--record", name)
        assert (code, says in err) == (2, True), err
    assert (tmp_path / "notes.txt").read_text() == "milk\n"


def test_a_record_has_one_writer(scenario, compared, tmp_path):
    compared(scenario, *SAME, "--workers", 1, "--record", "r.jsonl")
    header = compare.Header("other", {}, [], [], "", "")
    with (tmp_path / "r.jsonl").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(compare.RecordError, match="another keplab compare is writing to it"):
            Record(tmp_path / "r.jsonl", header)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--report", "/dev/null/r.html"), "cannot write /dev/null/r.html: "),
        (("--report", "r.json"), "r.json is where the JSON document goes"),
        (("--picture", "/dev/null/r.svg"), "cannot write /dev/null/r.svg: "),
    ],
)
def test_a_path_that_cannot_be_written_is_found_before_the_first_run(scenario, compared, runs, words, says):
    code, _, err = compared(scenario, *SAME, "--workers", 1, *words)

    assert (code, runs[0], says in err) == (2, [], True), err


def test_a_mistake_in_the_scenario_ends_it_with_its_line(scenario, compared, runs):
    scenario.write_text(SCENARIO + "expect each pods name=hello phase == $nothing\n")
    code, _, err = compared(scenario, *SAME, "--seeds", 50, "--workers", 1)

    assert (code, len(runs[0])) == (2, 1)
    assert "arm a, seed 0: " in err
    assert "hello.txt:6: " in err


def test_an_arm_whose_runs_do_not_end_is_said_and_fails(scenario, compared):
    scenario.write_text(SCENARIO.replace("limit 20s", "limit 1s") + "wait 5s\n")
    code, out, _ = compared(scenario, *SAME, "--seeds", 2, "--workers", 1, "--record", "r.jsonl")

    assert code == 1
    assert out.startswith("There is nothing to compare: no seed came to its end in every arm. All runs of a did not")
    assert "ran for longer than its limit of 1 s" in out


def test_documents_on_standard_output_are_nothing_else(scenario, compared):
    code, text, _ = compared(scenario, *ARMS, "--workers", 1, "-o", "csv")
    assert (code, {row["arm"] for row in csv.DictReader(io.StringIO(text))}) == (0, {"fail", "unbind"})
    assert compared(scenario, *ARMS, "--workers", 1, "-o", "markdown")[1].startswith(
        "### A pod runs\n\n**No difference"
    )


def test_the_page_the_document_and_both_pictures_are_written(scenario, compared, tmp_path):
    compared(scenario, *ARMS, "--workers", 1, "--report", "x/r.html", "--picture", "x/p.svg")

    assert sorted(each.name for each in (tmp_path / "x").iterdir()) == ["p-dark.svg", "p.svg", "r.html", "r.json"]
    made = read_document((tmp_path / "x" / "r.json").read_bytes(), "r.json")
    assert made.provenance.command == f"keplab compare {scenario} {' '.join(ARMS)}"
    assert [(row.name, row.values) for row in made.switches] == [("kubelet.on_reject", ["fail", "unbind"])]


def test_files_that_a_scenario_reads_are_part_of_where_it_comes_from(scenario, compared, tmp_path):
    (tmp_path / "pod.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: i}]}\n"
    )
    scenario.write_text(SCENARIO + "# notes.yaml is none\napply pod.yaml\n")
    (tmp_path / "notes.yaml").write_text("")
    _, text, _ = compared(scenario, *SAME, "--workers", 1, "-o", "json")

    assert list(json.loads(text)["provenance"]["inputs"]) == ["pod.yaml"]


def test_a_pipe_gets_a_line_now_and_then_and_none_beside_a_document(scenario, compared, monkeypatch):
    monkeypatch.setattr(sweep.RunsBar, "LINE_EVERY_S", 0.0)

    err = compared(scenario, *SAME, "--workers", 1)[2]
    assert "0 of 2 runs; a, seed 0, " in err
    assert "1 of 2 runs, about " in err
    assert compared(scenario, *SAME, "--workers", 1, "-o", "json")[2] == ""


@pytest.mark.parametrize(("seconds", "text"), [(3.4, "3 s"), (99.0, "99 s"), (150.0, "2 min"), (7000.0, "1.9 h")])
def test_what_is_left_is_written_as_people_say_it(seconds, text):
    assert sweep.duration_text(seconds) == text


@pytest.mark.parametrize(("asked", "runs", "workers"), [(0, 100, os.cpu_count()), (3, 100, 3), (8, 2, 2), (4, 0, 1)])
def test_there_are_no_more_workers_than_runs(asked, runs, workers):
    assert sweep.workers_of(asked, runs) == workers


@pytest.fixture
def on_mesh(monkeypatch, tmp_path):
    """Have the command find a mesh with these switches that runs already, whose runs all pass; returns the jobs."""

    def made(*own, is_switched=True):
        jobs = []
        switching = MeshSwitches(None) if is_switched else None
        access = Access("apiserver:7443", tmp_path, switches=own, switching=switching)
        monkeypatch.setattr(compare, "running_mesh", lambda server, containers: access if server else None)

        def run_arm_showing(job, progress):
            jobs.append((job.arm, job.seed, job.access))
            return ArmRun(job.arm, Run(job.seed, measures={"pods_running": 1.0}))

        monkeypatch.setattr(compare, "run_arm_showing", run_arm_showing)
        return jobs, access

    return made


def test_on_a_running_mesh_runs_follow_each_other_and_the_document_says_which_mesh_it_was(scenario, ended, on_mesh):
    jobs, access = on_mesh("kubelet.on_reject=fail")

    code, printed, _ = ended("compare", scenario, *ARMS, "--seeds", "2", "--server", "apiserver:7443", "-o", "json")

    assert 0 == code
    assert [("fail", 0, access), ("unbind", 0, access), ("fail", 1, access), ("unbind", 1, access)] == jobs
    found = json.loads(printed)
    assert ("containers", 1) == (found["mode"], found["provenance"]["workers"])
    assert "server apiserver:7443, its own switches: kubelet.on_reject=fail" == found["provenance"]["mesh"]
    assert found["provenance"]["command"].endswith("--server apiserver:7443")


def test_arms_that_need_other_switches_than_a_mesh_can_have_are_refused_before_the_first_run(scenario, ended, on_mesh):
    jobs, _ = on_mesh(is_switched=False)

    code, _, said = ended("compare", scenario, *ARMS, "--server", "apiserver:7443")

    assert (2, []) == (code, jobs)
    assert "arm unbind: the running mesh has other values of kubelet.on_reject=unbind; start it so: KEPLAB_SET=" in said


def test_a_mesh_without_other_switches_compares_arms_that_are_alike(scenario, ended, on_mesh):
    jobs, _ = on_mesh(is_switched=False)

    assert 0 == ended("compare", scenario, *SAME, "--server", "apiserver:7443")[0]
    assert ["a", "b"] == [arm for arm, _, _ in jobs]


def test_a_record_of_a_mesh_with_other_switches_of_its_own_is_refused(scenario, ended, on_mesh):
    words = ("compare", scenario, *ARMS, "--server", "apiserver:7443", "--record", "r.jsonl")
    on_mesh()
    ended(*words)
    on_mesh("PodUnbinding=false")

    code, _, said = ended(*words)

    assert 2 == code
    assert "it has mesh server apiserver:7443, its own switches: none, this command has" in said


@pytest.mark.parametrize("words", [("--processes",), ("--workers", "2")])
def test_a_running_mesh_has_one_run_at_a_time_and_processes_of_its_own(scenario, ended, on_mesh, words):
    on_mesh()

    code, _, said = ended("compare", scenario, *ARMS, "--server", "apiserver:7443", *words)

    assert 2 == code
    assert "use a mesh that runs already, and make one run after the other" in said
