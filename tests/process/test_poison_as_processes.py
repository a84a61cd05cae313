"""Objects made to break a reader, over processes: none of them ends, and what is healthy goes on (V11, FM-S8)."""

import yaml

from lab.scenarios.run import load_scenario, run_as_processes
from tests.fuzz.poison import HEALTHY, NAMESPACE, hand_made_documents


def test_fm_s8_valid_and_extreme_objects_end_no_process(tmp_path):
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    (tmp_path / "space.yaml").write_text(yaml.safe_dump(space))
    (tmp_path / "poison.yaml").write_text(yaml.safe_dump_all(hand_made_documents()))
    poisoned = HEALTHY.replace("wait 90s", "apply space.yaml\napply poison.yaml\nwait 5s")
    (tmp_path / "poison.txt").write_text(poisoned)

    result = run_as_processes(load_scenario(tmp_path / "poison.txt"), engine="memory", data_dir=tmp_path / "mesh")

    assert [(each.text, each.seen) for each in result.expectations if not each.passed] == []
    assert [*result.failures, result.error] == [""]
