"""What a soak judges: slopes with their intervals, faults by time, figures from metrics."""

from random import Random

import pytest

from lab.benchmarks.soak.faults import LATER, SERVER, faults
from lab.benchmarks.soak.figures import FIGURES, Counts, Sample, of_metrics
from lab.benchmarks.soak.report import Soak, page
from lab.benchmarks.soak.run import warm_up_s
from lab.benchmarks.soak.trend import FULL_HOURS, Limit, Trend, fit, judge

HOUR = [60.0 * minute for minute in range(61)]


def test_a_straight_line_has_its_slope_and_no_doubt():
    trend = fit(HOUR, [100 + at_s / 3600 * 26 for at_s in HOUR], [1] * len(HOUR))

    assert trend is not None
    assert (26, 26, 26, 113) == pytest.approx((trend.per_hour, trend.low, trend.high, trend.mean))
    assert trend.hours == pytest.approx(1)


def test_noise_around_a_level_is_no_growth_and_its_interval_holds_nought():
    random = Random(3)

    trend = fit(HOUR, [random.gauss(80, 2) for _ in HOUR], [1] * len(HOUR))

    assert trend is not None
    assert trend.low < 0 < trend.high


def test_a_slow_wave_has_a_wider_interval_than_independent_noise_of_its_size():
    random = Random(5)
    independent = [random.gauss(0, 1) for _ in HOUR]
    slow = [sum(independent[max(0, i - 9) : i + 1]) / 3.16 for i in range(len(HOUR))]

    trends = [fit(HOUR, values, [1] * len(HOUR)) for values in (independent, slow)]

    widths = [trend.high - trend.low for trend in trends if trend is not None]
    assert widths[1] > 1.5 * widths[0]


def test_what_a_restart_takes_away_does_not_hide_growth_within_lives():
    """Each life grows by 30 an hour and begins at 50: the line through all is flat."""
    lives = [minute // 20 for minute in range(61)]
    values = [50 + (minute % 20) / 60 * 30 for minute in range(61)]

    trend = fit(HOUR, values, lives)

    assert trend is not None
    assert trend.per_hour == pytest.approx(30)


def test_lives_too_short_for_a_line_do_not_count():
    assert fit(HOUR, HOUR, list(range(len(HOUR)))) is None


def test_the_limit_of_eight_hours_is_the_one_of_as_46():
    trend = Trend(1.5, 1.4, 1.6, 80, FULL_HOURS, 400)

    assert FIGURES["memory"].limit is not None
    assert FIGURES["memory"].limit.per_hour(trend) == 1
    assert judge(trend, FIGURES["memory"].limit, FULL_HOURS) == "grows"


@pytest.mark.parametrize(
    ("per_hour", "low", "limit", "expected"),
    [
        (7.9, 7.0, Limit(growth=8), "ok"),
        (8.1, 7.0, Limit(growth=8), "grows"),
        (8.1, -1.0, Limit(growth=8), "unclear"),
        (9.9, 7.0, Limit(growth=8, share=0.1), "ok"),
        (8.1, 7.0, None, "reported"),
    ],
)
def test_a_slope_is_judged_by_its_limit_and_by_whether_it_may_be_chance(per_hour, low, limit, expected):
    assert expected == judge(Trend(per_hour, low, 20, 100, 1, 60), limit, 1)


def test_a_trend_over_less_than_half_of_the_time_says_nothing():
    assert judge(Trend(100, 90, 110, 1, 0.4, 60), Limit(growth=8), 1) == "too short"
    assert judge(None, Limit(growth=8), 1) == "too short"


def test_the_first_hour_of_eight_is_warm_up_and_a_third_of_one():
    assert (3600, 1200) == (warm_up_s(8), warm_up_s(1))


def test_every_process_is_killed_once_in_the_warm_up_and_few_are_later():
    names = ["apiserver", "scheduler", "controllers", "claim-controller", "kubelet/h0", "kubelet/h1"]

    found = faults(names, period_s=20, warm_up_s=1200, hours=1, random=Random(0))

    kills = [fault for fault in found if fault.kind == "kill"]
    assert names == [fault.process for fault in kills if fault.at_s < 1200]
    assert {*LATER, SERVER} == {fault.process for fault in kills if fault.at_s >= 1200}
    assert [3300] == [fault.at_s for fault in kills if fault.at_s >= 1200 and fault.process == SERVER]
    assert found == sorted(found, key=lambda fault: fault.at_s)
    assert 180 == pytest.approx(sum(fault.kind == "pause" for fault in found), rel=0.1)


def test_the_api_server_is_left_for_hours_and_killed_once_more_before_the_end():
    found = faults([SERVER], period_s=3600, warm_up_s=3600, hours=8, random=Random(0))

    assert [fault.at_s for fault in found if fault.kind == "kill" and fault.at_s > 3600] == [18_000, 28_500]


def test_metrics_become_figures_of_their_process_or_of_the_mesh():
    text = """# HELP x y
keplab_python_allocated_blocks 250000
keplab_asyncio_tasks 12
workqueue_depth{name="a"} 2
workqueue_depth{name="b"} 3
apiserver_longrunning_requests{verb="WATCH",group="",resource="pods"} 6
apiserver_longrunning_requests{verb="WATCH",group="",resource="nodes"} 5
apiserver_storage_objects{resource="events"} 40
apiserver_storage_objects{resource="pods"} 7
"""

    found = {(s.figure, s.of, s.life): s.value for s in of_metrics(1.0, "apiserver", 42, text)}

    assert {
        ("blocks", "apiserver", 42): 250, ("tasks", "apiserver", 42): 12, ("queue", "apiserver", 42): 5,
        ("watches", "", 0): 11, ("events", "", 0): 40, ("objects", "", 0): 7,
    } == found  # fmt: skip


def _soak(memory, **more):
    samples = [Sample(at_s, "memory", "scheduler", 7, value) for at_s, value in zip(HOUR, memory, strict=True)]
    return Soak(1, 1200, 3600, 6, 0, (1, 1), Counts(), {"kill": 1}, samples, **more)


def test_a_leak_after_the_warm_up_is_seen_and_one_that_has_ended_by_then_is_not():
    leaking = _soak([80 + at_s / 60 for at_s in HOUR])
    filling = _soak([80 + min(at_s, 1200) / 60 for at_s in HOUR])

    assert ["grows"] == [row.result for row in leaking.rows()]
    assert ["ok"] == [row.result for row in filling.rows()]
    assert (True, False) == (leaking.document()["grows"], filling.document()["grows"])


def test_a_process_that_has_just_been_restarted_is_left_out_until_it_has_settled():
    """It grows for its first minutes, as after every start: a quarter of the warm-up."""
    memory = [80.0] * 31 + [40 + min(minute, 5) for minute in range(30)]
    samples = [
        Sample(at_s, "memory", "scheduler", 7 if at_s <= 1800 else 8, value)
        for at_s, value in zip(HOUR, memory, strict=True)
    ]

    row = Soak(1, 1200, 3600, 6, 0, (1, 1), Counts(), {}, samples).rows()[0]

    assert row.trend is not None
    assert row.trend.per_hour == pytest.approx(0)


def test_the_page_has_the_table_and_a_picture_with_a_line_for_each_life():
    text = page(_soak([80.0] * 61, is_interrupted=True))

    assert "| memory (RSS), MiB | scheduler | 80.0 |" in text
    assert 1 == text.count("<polyline")
