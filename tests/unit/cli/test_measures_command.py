"""`keplab measures` shows the register, and what packages offer."""

import json

from lab.cli.__main__ import run
from lab.scenarios.measures.register import MEASURES, find, reference


def test_the_json_document_has_each_measure_with_what_tables_need(capsys):
    code = run(["measures", "-o", "json"])
    document = json.loads(capsys.readouterr().out)

    assert code == 0
    assert [each.name for each in MEASURES] == [each["name"] for each in document["measures"]]
    assert {"lower", "higher", "none"} == {each["better"] for each in document["measures"]}
    assert all(each["meaning"] and each["source"] for each in document["measures"])


def test_a_pattern_keeps_what_has_it_in_name_or_meaning(capsys):
    assert run(["measures", "FRAGMENTATION"]) == 0
    assert ["NAME", "RESOURCE_fragmentation_end"] == [line.split()[0] for line in capsys.readouterr().out.splitlines()]


def test_a_pattern_that_fits_nothing_is_exit_code_1(capsys):
    assert run(["measures", "zzz"]) == 1
    assert "no measure has 'zzz' in its name or meaning" in capsys.readouterr().err


def test_a_resources_measure_is_found_by_its_own_name():
    found = find("example.com/gpu_utilization_mean")

    meaning = "example.com/gpu requested of allocatable over time, 0 to 1"
    assert (found.name, found.meaning) == ("example.com/gpu_utilization_mean", meaning)
    assert find("example.com/gpu") is None


def test_the_reference_has_a_row_for_each():
    assert [each.name for each in MEASURES] == [line.split("`")[1] for line in reference().splitlines()[2:]]
