"""A small share of T-CRASH for every run of the tests; `make crash KILLS=500` is the whole (guarantees 12.3, AS-01, AS-02)."""

import os
import random
from dataclasses import asdict

import pytest

from tests.durability.crash import Report, Run, crash, cut
from tests.durability.lives import ACKNOWLEDGE_BEFORE_SYNC, FOLD_OFTEN

KILLS = int(os.environ.get("CRASH_KILLS", "20"))


@pytest.mark.timeout(600)
def test_as_01_as_05_as_18_kills_with_a_cut_tail_lose_no_acknowledged_write_and_explain_every_answer(tmp_path):
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
def test_as_02_a_store_that_acknowledges_before_it_syncs_is_caught(tmp_path):
    report = crash(tmp_path, kills=50, seed=5, mutants=(ACKNOWLEDGE_BEFORE_SYNC,))

    assert report.violations
    assert report.caught_at <= 50


@pytest.mark.timeout(300)
def test_as_19_kills_amid_folding_bring_nothing_back_and_watches_inside_the_window_resume(tmp_path):
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
