"""Ids of runs can be typed, and what a user types names one run or says which there are."""

import msgspec
import pytest

from lab.runs.record import (
    ALPHABET,
    Origin,
    RunRecord,
    RunReference,
    UnknownRun,
    fates_of,
    id_of,
    is_version,
    resolve_reference,
)
from lab.scenarios.measures.history import PodHistory

RECORD = RunRecord("", "run", "runaway", "simulated", True, "keplab run f", Origin("f", "", "1"))
IDS = ["kxb2d", "kxc4w", "b9dpq"]


def test_an_id_is_five_letters_and_digits_that_are_no_number_and_no_word():
    found = [id_of(msgspec.structs.replace(RECORD, seed=seed)) for seed in range(300)]

    assert all(len(each) == 5 and set(each) <= set(ALPHABET) and each[0].isalpha() for each in found)
    assert len(set(found)) > 295
    assert not any(map(is_version, found))


def test_a_record_gets_the_same_id_unless_that_is_taken():
    first = id_of(RECORD)
    second = id_of(RECORD, {first})

    assert id_of(RECORD) == first
    assert first != second == id_of(RECORD, {first})
    assert id_of(RECORD, {first, second}) not in (first, second)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("kxb2d", RunReference("kxb2d")),
        ("b", RunReference("b9dpq")),
        ("latest", RunReference("kxb2d")),
        ("latest~2", RunReference("b9dpq")),
        ("kxc/fail/3", RunReference("kxc4w", "fail", 3)),
        ("latest/fail/-1", RunReference("kxb2d", "fail", -1)),
    ],
)
def test_a_run_is_named_by_id_beginning_or_age(reference, expected):
    assert resolve_reference(reference, IDS, "runs") == expected


@pytest.mark.parametrize(
    ("reference", "ids", "says"),
    [
        ("kx", IDS, "'kx' is the beginning of 2 runs: kxb2d, kxc4w"),
        ("kxb2f", IDS, "did you mean kxb2d"),
        ("zzzzz", IDS, "`keplab runs` lists them"),
        ("", IDS, "there is no run ''"),
        ("latest~3", IDS, "there are 3 runs in runs"),
        ("latest", [], "there are no runs in runs; `keplab run FILE` makes one"),
        ("kxc/fail", IDS, "want RUN, or RUN/ARM/SEED"),
        ("kxc/fail/x", IDS, "want RUN, or RUN/ARM/SEED"),
    ],
)
def test_what_names_no_run_or_several_is_one_line_that_helps(reference, ids, says):
    with pytest.raises(UnknownRun) as error:
        resolve_reference(reference, ids, "runs")

    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_pods_of_an_owner_with_one_fate_are_one_row():
    pods = [
        PodHistory(
            str(i), f"web-{i}", f"replicaset/web#{i}", True, 0.0, phase="Failed", reason="OutOfcpu", nodes=["n1"]
        )
        for i in range(3)
    ]
    pods.append(PodHistory("b", "p", "pod/p", False, 0.0, phase="Running", nodes=["n2"]))

    found = [(fate.owner, fate.outcome, fate.nodes, fate.pods, fate.first) for fate in fates_of(pods)]

    assert found == [
        ("replicaset/web", "Failed (OutOfcpu)", "n1", 3, "replicaset/web#0"),
        ("pod/p", "Running", "n2", 1, "pod/p"),
    ]


@pytest.mark.parametrize(
    ("origin", "shown"),
    [
        (Origin("f", "", "1.2", "0123456789abcdef"), "01234567"),
        (Origin("f", "", "1.2", "0123456789abcdef", changes="4711"), "01234567*"),
        (Origin("f", "", "1.2"), "1.2"),
    ],
)
def test_a_revision_is_short_and_says_whether_all_of_it_is_committed(origin, shown):
    assert origin.code == shown
