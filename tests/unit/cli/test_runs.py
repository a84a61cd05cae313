"""`keplab runs`, and the record that each run leaves."""

import json


def listed(ended, *words):
    code, out, _ = ended("runs", *words, "-o", "json")
    assert code == 0
    return json.loads(out)


def test_each_run_is_listed_with_what_repeats_it(at_home, ended):
    _, out, _ = ended("run", "passes.txt", "--seed", 3, "--set", "kubelet.on_reject=unbind", "-o", "json")
    (made,) = json.loads(out)

    (found,) = listed(ended)

    assert found["run"] == made["run"]
    assert (found["scenario"], found["seed"], found["passed"], found["kind"]) == ("passes", 3, True, "run")
    assert (found["digest"], found["measures"]) == (made["digest"], made["measures"])
    assert found["set"] == ["kubelet.on_reject=unbind"]
    assert found["path"] == str(at_home / "passes.txt")
    assert found["decisions"] > 0
    assert found["event_log"] == "made again"
    assert found["version"]
    _, out, _ = ended(*found["command"].split()[1:], "-o", "json")
    assert [each["digest"] for each in json.loads(out)] == [found["digest"]]


def test_runs_are_shown_newest_first_and_filtered(at_home, ended):
    for words in (("passes.txt",), ("fails.txt",), ("passes.txt", "--seed", 1)):
        ended("run", *words)

    assert [(each["scenario"], each["seed"]) for each in listed(ended)] == [("passes", 1), ("fails", 0), ("passes", 0)]
    assert [each["scenario"] for each in listed(ended, "--failed")] == ["fails"]
    assert [each["seed"] for each in listed(ended, "--scenario", "pass*", "-n", 1)] == [1]
    _, out, err = ended("runs", "-n", 2)
    assert [row.split()[2] for row in out.splitlines()] == ["SCENARIO", "passes", "fails"]
    assert "1 older runs are not shown" in err


def test_a_run_for_people_names_its_record(at_home, ended):
    _, out, _ = ended("run", "passes.txt")

    assert out.rstrip().endswith(f"run {listed(ended)[0]['run']}")


def test_a_sweep_is_one_record_with_what_failed(at_home, ended):
    ended("run", "passes.txt", "fails.txt", "--seeds", 2, "--workers", 1)

    (found,) = listed(ended)

    assert (found["kind"], found["passed"], found["seeds"]) == ("sweep", False, [0, 1])
    assert found["command"] == "keplab run passes.txt fails.txt --seed 0 --seeds 2"


def test_no_record_is_kept_when_none_is_wanted(at_home, ended):
    code, out, err = ended("run", "passes.txt", "--runs", "none", "-o", "json")

    assert (code, json.loads(out)[0]["run"], err) == (0, "", "")
    assert not (at_home / "runs").exists()


def test_the_folder_may_be_named_by_the_environment(at_home, ended, monkeypatch):
    monkeypatch.setenv("KEPLAB_RUNS", "elsewhere")
    ended("run", "passes.txt")

    assert len(listed(ended)) == len(list((at_home / "elsewhere").iterdir())) == 1


def test_a_run_succeeds_where_no_record_can_be_written_and_says_so_in_one_line(at_home, ended):
    (at_home / "runs").write_text("a file")

    code, out, err = ended("run", "passes.txt", "-o", "json")

    assert (code, json.loads(out)[0]["passed"]) == (0, True)
    assert err.splitlines() == ["keplab: no record of this run in runs: File exists"]


def test_a_folder_without_runs_is_one_line(at_home, ended):
    assert ended("runs") == (0, "", "no runs in runs; `keplab run FILE` makes one\n")
    assert listed(ended) == []


def test_a_run_that_is_bad_input_leaves_no_record(at_home, ended):
    code, _, _ = ended("run", "passes.txt", "--set", "kubelet.on_reject=maybe")

    assert code == 2
    assert listed(ended) == []
