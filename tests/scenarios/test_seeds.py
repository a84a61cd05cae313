"""Seeds: one seed is one run, whatever the interpreter's hash seed; crashes break no invariant."""

import random
from pathlib import Path

import msgspec
import pytest

from lab.chaos.plan import KINDS, draw
from lab.chaos.run import ChaosJob, digest_elsewhere, run_seed
from lab.experiments.execution import ArmJob, run_arm
from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.sweep import Outcome, run_jobs

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
RUNAWAY = str(EXPERIMENTS / "runaway" / "runaway.txt")
UNBIND = ("kubelet.on_reject=unbind",)


@pytest.mark.parametrize("seed", range(50))
def test_the_runaway_with_unbinding_survives_random_crashes(seed):
    outcome = run_seed(ChaosJob(RUNAWAY, UNBIND, seed))

    assert outcome.problem == ""


@pytest.mark.parametrize("scenario", ["crashes/killed-apiserver", "crashes/power-cut", "first-life/a-pods-first-life"])
@pytest.mark.parametrize("seed", range(3))
def test_other_scenarios_survive_random_crashes(scenario, seed):
    outcome = run_seed(ChaosJob(str(EXPERIMENTS / f"{scenario}.txt"), (), seed))

    assert outcome.problem == ""


def test_the_failing_arm_breaks_no_invariant_under_random_crashes():
    outcome = run_seed(ChaosJob(RUNAWAY, ("kubelet.on_reject=fail",), 1, must_rest=False))

    assert outcome.problem == ""


def test_seeds_draw_every_kind_of_fault_for_every_component():
    components = ("apiserver", "claim-controller", "controllers", "kubelet/h0", "scheduler")
    nodes = ("n1", "n2")
    drawn = [fault for seed in range(300) for fault in draw(random.Random(seed), components, 20.0, nodes)]

    assert {f.kind for f in drawn} == {*KINDS, "corrupt"}
    assert {f.component for f in drawn if f.kind == "kill"} == set(components)
    for kind in ("cut", "node-cut"):
        assert {f.detail for f in drawn if f.kind == kind} == {"requests", "replies", "both"}
    assert {f.component for f in drawn if f.kind.startswith("node-")} == {"node/n1", "node/n2"}
    assert {f.component for f in drawn if f.kind in ("disk", "boot", "corrupt")} == {"kubelet/h0"}
    assert len({f.detail for f in drawn if f.kind == "corrupt"}) == 6
    assert all(0 <= f.at_s <= 20.0 for f in drawn)
    aimed = [bool(f.site) for f in drawn if f.kind == "kill"]
    assert 0.4 < sum(aimed) / len(aimed) < 0.7


def test_finished_seeds_are_not_run_again_and_failed_ones_are(tmp_path):
    record = tmp_path / "seeds.jsonl"
    jobs = [ChaosJob(RUNAWAY, UNBIND, 0), ChaosJob(RUNAWAY, UNBIND, 1)]
    passed, failed = (
        Outcome(RUNAWAY, job.seed, job.command, "digest", problem) for job, problem in zip(jobs, ("", "x"), strict=True)
    )
    record.write_bytes(b"\n".join(map(msgspec.json.encode, (passed, failed))) + b'\n{"torn')
    outcomes = []

    run_jobs(jobs, record, outcomes.append, workers=1, run=run_seed)

    assert outcomes[0] == passed
    assert outcomes[1].seed == 1
    assert outcomes[1].problem == ""
    again = []
    run_jobs(jobs, record, again.append, workers=1, run=run_seed)
    assert again == outcomes


def test_one_seed_has_one_digest_in_five_interpreters_with_different_hash_seeds():
    job = ChaosJob(RUNAWAY, UNBIND, 7)

    assert {run_seed(job).digest} == {digest_elsewhere(job, hash_seed) for hash_seed in range(5)}


def test_different_seeds_have_different_digests():
    scenario = load_scenario(EXPERIMENTS / "first-life" / "a-pods-first-life.txt")

    assert 10 == len({simulate(scenario, seed=seed).digest for seed in range(10)})


def test_an_a_a_comparison_shows_exactly_no_difference():
    path = str(EXPERIMENTS / "runaway" / "runaway-unbind.txt")
    first, second = ([run_arm(ArmJob(path, arm, (), seed)) for seed in range(2)] for arm in "ab")

    assert [each.fates for each in first] == [each.fates for each in second]
    assert [each.run.digest for each in first] == [each.run.digest for each in second]
    assert [each.run.measures for each in first] == [each.run.measures for each in second]
    assert [each.run.decisions_digest for each in first] == [each.run.decisions_digest for each in second]
    assert all(each.run.decisions for each in first)
