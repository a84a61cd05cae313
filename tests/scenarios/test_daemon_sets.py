"""DaemonSets observed as scenarios, with the figures read from the event log."""

from itertools import pairwise
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate

FOLDER = Path(__file__).parents[2] / "experiments"


def test_kubelet_unbinding_21_a_daemon_set_has_a_back_off_of_its_own_and_no_kubelet_asks_for_an_unbind():
    lines = []
    result = simulate(load_scenario(FOLDER / "unbinding/daemon-set.txt"), seed=1, on_line=lines.append)
    failed_s = [
        line.mono_ns / 1e9
        for line in lines
        if line.ev == "store.commit" and line.obj["kind"] == "Pod" and line.data.get("phase") == "Failed"
        and line.data["type"] == "MODIFIED" and "deletion" not in line.data
    ]  # fmt: skip

    assert [(j.text, j.seen) for j in result.expectations if not j.passed] == []
    assert result.violations == []
    gaps = [later - earlier for earlier, later in pairwise(failed_s)]
    assert gaps == [pytest.approx(wait_s, abs=0.2) for wait_s in (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)]
    assert [line for line in lines if line.ev == "kubelet.unbind_call"] == []
