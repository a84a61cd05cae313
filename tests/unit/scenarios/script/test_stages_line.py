"""The scenario line `stages FILE…`."""

import pytest

from lab.scenarios.script.scenario import ScriptError, parse_scenario
from lab.scenarios.script.verbs import VERBS


def test_stage_files_are_beside_the_scenario_and_in_order():
    scenario = parse_scenario("stages a.yaml b.yaml\nstages sub/c.yaml\npod x\n", "dir/tale.txt", VERBS)

    assert scenario.stages == ("dir/a.yaml", "dir/b.yaml", "dir/sub/c.yaml")
    assert parse_scenario("pod x\n", "t.txt", VERBS).stages == ()


def test_stages_without_a_file_or_after_the_first_act_are_refused():
    with pytest.raises(ScriptError, match="stages wants FILE, files beside the scenario"):
        parse_scenario("stages\npod x\n", "t.txt", VERBS)
    with pytest.raises(ScriptError, match="before the first act"):
        parse_scenario("pod x\nstages a.yaml\n", "t.txt", VERBS)
