"""`-o json` documents keep the keys that scripts read (walls 10); commands end with the promised exit codes."""

import json

import pytest

from lab.cli.__main__ import run

SCENARIO = """\
limit 20s
nodes n1..n2 cpu=4
pod hello cpu=1
expect within 10s each pods name=hello phase == Running
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "hello.txt"
    path.write_text("# A pod runs\n" + SCENARIO)
    return path


@pytest.fixture
def printed(capsys):
    """Run a command; returns its exit code and the one document on standard output."""

    def go(*arguments):
        try:
            code = run([*map(str, arguments), "-o", "json"])
        except SystemExit as end:
            code = end.code
        return code, json.loads(capsys.readouterr().out)

    return go


def test_scenarios_have_what_their_folder_found(printed, scenario):
    (scenario.parent / "README.md").write_text("# Pods\n\nFinding: a pod runs.\n")
    code, documents = printed("scenarios", "--dir", scenario.parent)

    assert code == 0
    assert documents == [
        {"file": str(scenario), "title": "A pod runs", "about": "", "switches": [], "finding": "a pod runs."}
    ]


RUN = {"scenario", "mode", "seed", "digest", "passed", "expectations", "violations", "virtual_s", "wall_s"}


def test_run_prints_a_list_also_of_one_run_with_its_keys(printed, scenario):
    code, documents = printed("run", scenario, "--seed", "3")
    (document,) = documents

    assert (code, document["passed"], document["mode"], document["seed"]) == (0, True, "simulated", 3)
    assert RUN <= document.keys()
    assert len(document["expectations"]) == 1


def test_run_of_several_files_fails_with_1_when_one_fails(printed, scenario, tmp_path):
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("# Never\n" + SCENARIO.replace("== Running", "== Failed").replace("10s", "2s"))

    code, documents = printed("run", scenario, wrong)

    assert (code, [d["passed"] for d in documents]) == (1, [True, False])


def test_compare_prints_arms_runs_measures_and_the_report(printed, scenario, tmp_path):
    report = tmp_path / "report.html"

    code, document = printed(
        "compare", scenario, "--arm", "a", "--arm", "b", "--seeds", "2", "--workers", "1", "--report", report
    )

    assert code == 0
    assert {"arms", "differences", "report"} <= document.keys()
    assert [arm["name"] for arm in document["arms"]] == ["a", "b"]
    for arm in document["arms"]:
        assert {"name", "switches", "runs"} <= arm.keys()
        assert [run["seed"] for run in arm["runs"]] == [0, 1]
        assert all(run["measures"] for run in arm["runs"])
    assert (document["differences"], document["report"]) == ([], str(report))
    assert report.read_text().lstrip().lower().startswith("<!doctype html>")


def test_trace_prints_spans_and_the_critical_path(printed, scenario):
    code, document = printed("trace", "pod/hello", "--run", scenario)

    assert code == 0
    assert {"trace_id", "spans", "critical_path", "total_ms"} <= document.keys()
    assert {"service", "name", "start_ns", "end_ns", "parent", "links"} <= document["spans"][0].keys()
    assert {"what", "ms"} <= document["critical_path"][0].keys()
    assert document["total_ms"] > 0


def test_status_without_a_mesh_has_the_same_keys_and_fails_with_1(printed, tmp_path):
    code, document = printed("status", "--data", tmp_path)

    assert code == 1
    assert {"kubeconfig", "rest_url", "grpc_target", "processes"} <= document.keys()


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "/nowhere.txt"),
        ("compare", "/nowhere.txt", "--arm", "a"),
        ("run", "{scenario}", "--set", "nope=1"),
        ("compare", "{scenario}", "--arm", "a:nope=1"),
        ("trace", "node/n1", "--run", "{scenario}"),
        ("scenarios", "--dir", "/nowhere"),
    ],
)
def test_bad_input_is_one_line_beside_the_output_and_2(arguments, scenario, capsys):
    try:
        code = run([word.replace("{scenario}", str(scenario)) for word in arguments])
    except SystemExit as end:
        code = end.code

    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    assert "Traceback" not in shown.err


def test_a_mesh_that_cannot_start_is_exit_code_3(capsys):
    assert run(["up", "--data", "/dev/null/mesh"]) == 3
    assert capsys.readouterr().err.startswith("Error: /dev/null")
