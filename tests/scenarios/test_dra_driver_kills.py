"""Kubelet or DRA driver killed at each point between prepare, unprepare, unbind and release (FM-K2, FM-K9, I7, I30)."""

from pathlib import Path

import pytest

from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS

PLACE = Path(__file__).parents[2] / "experiments" / "devices" / "kills.txt"
UNBOUND = """
set kubelet.on_reject=unbind unbind.claim_release={release}
limit 900s
nodes n1 cpu=8 drivers=gpu.example.com:1
nodes n2 cpu=8 drivers=gpu.example.com:1
apply gpus.yaml
wait 1s
cordon n2
dra-driver n1 gpu.example.com refuse
wait 1s
kill kubelet/n1 at={site}
pod guest claim-templates=gpu grace=1
expect within 10s each pods name=guest spec.nodeName == n1
uncordon n2
expect within 600s count pods name=guest spec.nodeName=n2 phase=Running == 1
expect each pods name=guest status.unbindCount >= 1
expect count resourceclaims == 1
delete pod/guest
expect within 60s count pods == 0
expect within 60s count resourceclaims == 0
wait 110s
"""
PREPARED = """
limit 400s
nodes n1 cpu=8 drivers=gpu.example.com:2
apply gpus.yaml
wait 1s
{act}
pod a claim-templates=gpu grace=1
expect within 90s each pods name=a phase == Running
expect each pods name=a status.containerStatuses[main].restartCount == 0
delete pod/a
expect within 90s count pods == 0
expect within 60s count resourceclaims == 0
wait 110s
"""


def went_well(text, seed=1):
    lines = []
    scenario = parse_scenario(text, str(PLACE), VERBS)
    result = simulate(scenario, seed=seed, on_line=lines.append)
    assert [] == [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert [] == [f"{v.invariant}: {v.detail}" for v in result.violations]
    assert result.error == ""
    return lines


@pytest.mark.parametrize("release", ["scheduler", "postfilter", "rc"])
@pytest.mark.parametrize(
    "site", ["kubelet.prepared", "kubelet.unprepared", "kubelet.unbind_call", "before:pods/unbind", "after:pods/unbind"]
)
def test_fm_k2_a_kubelet_killed_on_the_way_to_an_unbind_leaves_no_device_and_no_claim(site, release):
    # A kubelet that starts wipes its node's slices, and a driver that offers its devices anew ends the exclusion of its
    # node early (kubelet-unbinding 7.3): a pod whose claim still ties it to n1 may come back once more.
    assert went_well(UNBOUND.format(site=site, release=release))


@pytest.mark.parametrize("site", ["kubelet.prepared", "kubelet.checkpoint", "kubelet.unprepared"])
def test_fm_k2_a_kubelet_killed_between_prepare_and_checkpoint_prepares_again_and_starts_once(site):
    lines = went_well(PREPARED.format(act=f"kill kubelet/n1 at={site}"))

    assert len([line for line in lines if line.ev == "kubelet.start"]) == 1


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("site", ["driver.registered", "driver.prepare", "driver.unprepare"])
def test_fm_k9_a_driver_killed_before_it_answers_knows_what_it_prepared_when_it_is_back(site, seed):
    act = f"kill dra-driver/n1/gpu.example.com at={site}"
    if site == "driver.registered":
        act = f"{act}\ndra-driver n1 gpu.example.com restart"
    lines = went_well(PREPARED.format(act=act), seed)

    assert len([line for line in lines if line.ev == "kubelet.start"]) == 1


@pytest.mark.parametrize("act", ["pause dra-driver/n1/gpu.example.com for=50s at=driver.prepare",
                                 "dra-driver n1 gpu.example.com crash down=20s"])  # fmt: skip
def test_fm_k9_a_driver_that_hangs_or_is_away_costs_time_and_nothing_else(act):
    assert went_well(PREPARED.format(act=act))
