"""The benchmark of simulations: what its load is, and that a run is the same however it is measured."""

import json
import sys

import pytest
from click.testing import CliRunner

from lab.benchmarks import simulation
from lab.benchmarks.simulation import GANG, LoadError, SimulationFailed, bench_simulation, lives_text, runaway_text
from lab.cli.commands.bench import bench as bench_group


def test_pods_arrive_at_a_rate_that_grows_with_the_nodes():
    def arriving_s(nodes):
        lines = lives_text(nodes, 400).splitlines()[4:]
        return sum(float(line.split()[1].rstrip("s")) for line in lines if line.startswith("wait"))

    assert arriving_s(20) == pytest.approx(400 / (20 * 0.4), rel=0.05)
    assert arriving_s(40) == pytest.approx(400 / (40 * 0.4), rel=0.05)


def test_gangs_are_among_the_pods_and_one_expectation_counts_them_all():
    lines = lives_text(20, 100, gangs=3).splitlines()

    assert sum(line.startswith("pod ") for line in lines) == 100
    assert sum(line.startswith("podgroup ") for line in lines) == 3
    assert sum(" group=g1 " in line for line in lines) == GANG
    assert [line for line in lines if line.startswith("expect")] == [
        "expect within 300s count pods phase=Succeeded == 100"
    ]


def test_a_seed_gives_one_load():
    assert lives_text(5, 50, seed=1) == lives_text(5, 50, seed=1) != lives_text(5, 50, seed=2)


def test_more_pods_in_gangs_than_pods_are_refused_with_both_figures():
    with pytest.raises(LoadError, match=r"--gangs 3 are 24 pods, more than --pods 20"):
        lives_text(5, 20, gangs=3)


def test_the_runaways_wait_is_cut_short():
    assert runaway_text().endswith("\nwait 6s\n")


def test_a_run_is_printed_with_units_beside_its_times():
    answer = CliRunner().invoke(
        bench_group, ["simulation", "--nodes", "2", "--pods", "16", "--gangs", "1", "--calls", "-o", "json"]
    )

    figures = json.loads(answer.stdout)
    assert (figures["nodes"], figures["pods"], figures["gangs"]) == (2, 16, 1)
    assert figures["units"] == pytest.approx(1e6 * figures["cpu_s"] / figures["unit_us"], rel=0.01)
    assert figures["units_per_pod"] == pytest.approx(figures["units"] / 16, rel=0.01)
    assert figures["calls_per_pod"] > 10 * figures["callbacks_per_pod"] > 1_000
    assert sys.getprofile() is None


def test_measuring_and_counting_do_not_change_a_run():
    counted, plain = (bench_simulation(nodes=2, pods=4, counts_calls=counts) for counts in (True, False))

    assert counted.digest == plain.digest
    assert plain.calls_per_pod is None


def test_progress_counts_the_pods_that_have_come():
    seen = []

    bench_simulation(nodes=2, pods=4, progress=lambda what, done, total: seen.append((done, total)))

    assert seen[-1] == (4, 4)


def test_a_run_that_fails_has_no_figures(monkeypatch):
    monkeypatch.setattr(simulation, "lives_text", lambda *_: "nodes n1\nexpect count pods == 1\n")

    with pytest.raises(SimulationFailed, match="expect count pods == 1"):
        bench_simulation(nodes=1, pods=1)
