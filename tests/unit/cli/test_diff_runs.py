"""`keplab diff RUN RUN`: the first decision that differs, then all, by role; equal runs differ in nothing."""

import json
from pathlib import Path

import msgspec
import pytest

from lab.runs.folder import DECISIONS_FILE, RECORD_FILE, RunsFolder
from lab.runs.record import RunRecord

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
PACKED = EXPERIMENTS / "scheduling" / "packed.txt"
SPREAD = "scheduler.scoring_strategy=LeastAllocated"


@pytest.fixture
def made(ended):
    def go(*words):
        _, out, _ = ended("run", *words, "-o", "json")
        return json.loads(out)[0]["run"]

    return go


def compared(ended, *words):
    code, out, err = ended("diff", *words, "-o", "json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_another_score_is_the_first_difference_and_the_scores_say_why(at_home, ended, made):
    packed, spread = made(PACKED), made(PACKED, "--set", SPREAD)

    found = compared(ended, packed, spread)
    _, out, _ = ended("diff", packed, spread)

    first = found["first"]
    assert (first["role"], first["a"]["event"]) == ("pod/second", "sched.attempt")
    assert [first[side]["node"] for side in "ab"] == ["n1", "n2"]
    assert [max(first[side]["why"]["total"], key=first[side]["why"]["total"].get) for side in "ab"] == ["n1", "n2"]
    assert found["last_same"]["role"] == "pod/first"
    assert {each["role"] for each in found["differences"]} == {"pod/second"}
    assert found["a"]["decisions"] == found["same"] + found["difference_count"]
    assert "First difference: pod/second (default/second) at " in out
    assert "NodeResourcesFit ×1" in out
    assert "ImageLocality" not in out  # which gives both nodes the same


def test_two_equal_runs_differ_in_nothing(at_home, ended, made):
    first, second = made(PACKED), made(PACKED)

    found = compared(ended, first, second, "--when")

    assert (found["difference_count"], found["first"], found["differences"]) == (0, None, [])
    _, out, _ = ended("diff", first, second)
    assert out.splitlines()[-1] == f"no difference in {found['a']['decisions']} decisions"


def test_times_count_with_when_alone(at_home, ended, made):
    first, second = made(PACKED), made(PACKED, "--seed", 1)

    assert compared(ended, first, second)["difference_count"] == 0
    assert compared(ended, first, second, "--when")["difference_count"] > 0


def test_arms_of_the_runaway_part_where_the_kubelet_unbinds(at_home, ended):
    text = (EXPERIMENTS / "runaway" / "runaway.txt").read_text().replace("wait 30s", "wait 200ms")
    assert "wait 200ms" in text
    (at_home / "short.txt").write_text(text)
    # A seed in which a rejection is the last that both do, whatever order Python 3.14 has within an instant.
    arms = ("--arm", "fail:kubelet.on_reject=fail", "--arm", "unbind:kubelet.on_reject=unbind", "--seed", 1)

    found = compared(ended, "short.txt", *arms)
    _, out, _ = ended("diff", "short.txt", *arms)

    assert (found["first"]["role"], found["first"]["a"]["outcome"]) == ("replicaset/web#0", "Failed")
    assert found["first"]["b"]["event"] == "kubelet.unbind_call"
    assert found["last_same"]["event"] == "kubelet.reject"
    assert {"phase"} <= {each["a"]["event"] for each in found["differences"] if each["a"] and not each["b"]}
    assert "both, kubelet.reject: Resources cannot be allocated with Topology locality" in out
    assert "(default/web-" in out
    assert out.count("kubelet.unbind_call TopologyAffinityError on n1") == 2
    assert len(out.splitlines()) < 40  # pods that differ alike are one row


def test_runs_of_two_revisions_are_compared_by_what_they_kept(at_home, ended, made):
    first, second = made(PACKED), made(PACKED, "--set", SPREAD)
    path = at_home / "runs" / first / RECORD_FILE
    record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
    origin = msgspec.structs.replace(record.origin, revision="0123456789", changes="", path="/gone.txt")
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, origin=origin)))

    code, out, err = ended("diff", first, second)

    assert (code, err) == (0, "")
    assert "revision 01234567," in out.splitlines()[0]
    assert compared(ended, first, second)["difference_count"] == 3


def test_a_comparison_is_one_run_whose_arms_are_compared_again(at_home, ended):
    spread = ("--arm", "packed", "--arm", f"spread:{SPREAD}")
    ended("compare", PACKED, *spread, "--seeds", 2, "--workers", 1)
    _, out, _ = ended("runs", "-o", "json")
    (record,) = json.loads(out)

    found = compared(ended, "latest")
    seeds = compared(ended, "latest/spread/0", "latest/spread/1", "--when")

    assert (record["kind"], [arm["name"] for arm in record["arms"]], record["seeds"]) == (
        "comparison",
        ["packed", "spread"],
        [0, 1],
    )
    assert [found[side]["arm"] for side in "ab"] == ["packed", "spread"]
    assert found["first"]["role"] == "pod/second"
    assert [seeds[side]["seed"] for side in "ab"] == [0, 1]
    assert seeds["difference_count"] > 0
    code, _, err = ended("diff", "latest", "latest/spread/0")
    assert (code, "name one of its runs, such as " in err) == (2, True)


def test_a_run_that_this_tree_does_not_repeat_is_refused_with_both_revisions(at_home, ended):
    copy = at_home / "packed.txt"
    copy.write_text(PACKED.read_text())
    ended("compare", copy, "--arm", "a", "--arm", f"b:{SPREAD}", "--workers", 1)
    _, out, _ = ended("runs", "-o", "json")
    (run_id,) = (each["run"] for each in json.loads(out))
    path = at_home / "runs" / run_id / RECORD_FILE
    record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
    origin = msgspec.structs.replace(record.origin, revision="0123456789", changes="")
    other = msgspec.structs.replace(record, origin=origin, arms={"a": [SPREAD], "b": [SPREAD]})
    path.write_bytes(msgspec.json.encode(other))

    code, _, err = ended("diff", run_id)
    copy.write_text("# changed\n" + PACKED.read_text())
    _, _, changed = ended("diff", run_id)

    assert code == 2
    assert "cannot be made again here: digest " in err
    assert "made by revision 01234567, and here is " in err
    assert f"{copy} was " in changed


def test_runs_of_two_scenarios_are_compared_with_a_remark(at_home, ended, made):
    (at_home / "other.txt").write_text(PACKED.read_text())

    _, out, _ = ended("diff", made(PACKED), made("other.txt"))

    assert "of two scenarios, packed and other" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("12", "kxb2d"), "12 is a resource version and 'kxb2d' is not"),
        (("kxb2d",), "there are no runs in runs; `keplab run FILE` makes one"),
        (("a", "b", "c"), "want two runs, not 3: a b c"),
        (("a.txt", "--arm", "a"), "want one FILE and two --arm, not 1 and 1"),
        (("a.txt", "--arm", "a", "--arm", "b"), "a.txt: No such file"),
        (("{packed}", "--arm", "a", "--arm", "a"), "two arms are called 'a'"),
        (("12",), "want two resource versions, two runs, or FILE with two --arm"),
        ((), "want two resource versions, two runs, or FILE with two --arm"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(at_home, ended, words, says):
    code, out, err = ended("diff", *(word.format(packed=PACKED) for word in words))

    assert (code, out) == (2, "")
    assert says in err.splitlines()[-1]


def test_a_sweep_and_one_run_are_refused_with_what_to_do(at_home, ended, made):
    ended("run", PACKED, "--workers", 1)
    one = made(PACKED)

    _, _, sweep = ended("diff", "latest~1", one)
    _, _, alone = ended("diff", one)

    assert f"is a sweep, whose runs are not kept; make one of them: keplab run {PACKED}" in sweep
    assert "want two runs, or a comparison" in alone


def test_decisions_that_are_damaged_are_named(at_home, ended, made):
    first, second = made(PACKED), made(PACKED)
    RunsFolder(at_home / "runs").file(second, DECISIONS_FILE).write_text("{")

    code, out, err = ended("diff", first, second)

    assert (code, out) == (2, "")
    assert f"{second}/{DECISIONS_FILE}" in err
