"""Seeds: one seed is one run, whatever the interpreter's hash seed; crashes break no invariant."""

from pathlib import Path

import pytest

from services.chaos.seeds import Job, digest_elsewhere, run_job
from services.experiments.arms import parse_arms
from services.experiments.compare import compare
from services.scenarios.run import load_story, simulate

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
RUNAWAY = str(EXPERIMENTS / "runaway" / "runaway.txt")
UNBIND = ("kubelet.on_reject=unbind",)


@pytest.mark.parametrize("seed", range(50))
def test_the_runaway_with_unbinding_survives_random_crashes(seed):
    outcome = run_job(Job(RUNAWAY, UNBIND, seed))

    assert outcome.problem == ""


def test_one_seed_has_one_digest_in_five_interpreters_with_different_hash_seeds():
    job = Job(RUNAWAY, UNBIND, 7)

    assert {run_job(job).digest} == {digest_elsewhere(job, hash_seed) for hash_seed in range(5)}


def test_different_seeds_have_different_digests():
    story = load_story(EXPERIMENTS / "first-life" / "a-pods-first-life.txt")

    assert 10 == len({simulate(story, seed=seed).digest for seed in range(10)})


def test_an_a_a_comparison_shows_exactly_no_difference():
    story = load_story(EXPERIMENTS / "runaway" / "runaway-unbind.txt")
    made = compare(
        "aa",
        "simulated",
        parse_arms(("a", "b")),
        range(2),
        lambda arm, seed: simulate(story, seed=seed, overrides=arm.switches),
    )
    (_, first), (_, second) = made.arms

    assert made.difference_count == 0
    assert [run.digest for run in first] == [run.digest for run in second]
    assert [run.measures for run in first] == [run.measures for run in second]
