"""A small share of T-CRASH for every run of the tests; `make crash KILLS=500` is the whole (guarantees 12.3, AS-01, AS-02)."""

import os
import random
import signal
import subprocess
import sys
from dataclasses import asdict

import pytest

from tests.durability.crash import ALL, Refused, Report, Run, crash, cut, judge_run
from tests.durability.lives import ACKNOWLEDGE_BEFORE_SYNC, FAILING_SYNC, FOLD_OFTEN

KILLS = int(os.environ.get("CRASH_KILLS", "20"))


@pytest.mark.timeout(600)
def test_as_01_as_05_as_18_s1_s2_s3_s4_s5_s9_s13_s14_kills_with_a_cut_tail_lose_nothing(tmp_path):
    report = crash(tmp_path, kills=KILLS, seed=random.SystemRandom().getrandbits(32))

    assert report.violations == [], asdict(report)
    assert report.kills == KILLS
    assert report.acknowledged > 20 * KILLS
    assert report.bytes_cut > 0
    assert report.checked["recoveries"] >= KILLS // 2
    assert report.checked["groups"] > 0
    assert report.keys["undecided"] == 0
    assert len(report.side_files_lost) == min(KILLS // 10, 6)


@pytest.mark.timeout(300)
def test_as_02_s1_a_store_that_acknowledges_before_it_syncs_is_caught(tmp_path):
    report = crash(tmp_path, kills=50, seed=5, mutants=(ACKNOWLEDGE_BEFORE_SYNC,))

    assert report.violations
    assert report.caught_at <= 50


@pytest.mark.timeout(300)
def test_as_19_s18_kills_amid_folding_bring_nothing_back_and_watches_inside_the_window_resume(tmp_path):
    report = crash(tmp_path, kills=8, seed=random.SystemRandom().getrandbits(32), mutants=(FOLD_OFTEN,))

    assert report.violations == [], asdict(report)
    assert report.checked["events"] > 500


@pytest.mark.timeout(300)
def test_s18_a_power_cut_amid_the_first_start_leaves_a_directory_that_starts(tmp_path):
    dice = random.Random(7)
    report = Report(7, [], cuts=True)
    with Run(tmp_path, report) as run:
        for _ in range(12):
            run.start()
            run.wait_or(dice.uniform(0.0, 0.7))
            run.kill()
            cut(run.store, run.watermark(), dice, report)
            assert run.log.read(run.store, run.firm()) == []
        run.start()
        run.wait_until_ready()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [60, 200])
def test_as_03_s16_a_failed_sync_ends_the_process_with_74_and_what_was_acknowledged_before_is_there(tmp_path, number):
    report = Report(number, [f"{FAILING_SYNC}{number}"], cuts=True)
    with Run(tmp_path, report) as run:
        run.start()
        run.wait_until_ready()
        run.start_load()
        assert run.wait_for_end() == "74"
        cut(run.store, run.watermark(), random.Random(number), report)
        run.rewire(())
        run.start()
        run.wait_until_ready()
        run.wait_for_writes()
        run.stop_load()
        assert run.kill(signal.SIGTERM) == "0"
        assert run.log.read(run.store, ALL) == []
        judge_run(run, report, searches=True)

    assert report.violations == []
    assert report.acknowledged > 0


@pytest.mark.timeout(120)
def test_as_07_s17_fm_a11_a_second_process_leaves_with_75_and_touches_nothing(tmp_path):
    with Run(tmp_path, Report(1, [], cuts=True)) as run:
        run.start()
        run.wait_until_ready()
        found = {path.name: path.stat().st_mtime_ns for path in run.store.iterdir()}

        second = subprocess.run(
            [sys.executable, "-m", "apiserver_fake", "--data-dir", str(run.store), "--rest-port", "none", "--grpc-port", "0"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

        assert second.returncode == 75
        assert f"apiserver: {run.store} is in use by another API server (its lock is held)" in second.stderr
        assert {path.name: path.stat().st_mtime_ns for path in run.store.iterdir()} == found
        run.kill()
        run.start()  # the lock ends with its holder, however it ends
        run.wait_until_ready()


def test_as_03_s16_a_first_sync_that_fails_ends_the_start_with_74_and_one_line(tmp_path):
    with Run(tmp_path, Report(1, [f"{FAILING_SYNC}1"], cuts=True)) as run:
        run.start()
        with pytest.raises(Refused, match="exit 74: apiserver: the journal failed: Input/output error"):
            run.wait_until_ready()
        run.rewire(())
        run.start()
        run.wait_until_ready()
