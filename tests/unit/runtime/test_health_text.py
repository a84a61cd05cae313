"""Metrics are text that Prometheus reads."""

from services.runtime.health import render_metrics


def test_families_are_typed_once_and_keep_their_samples_together():
    text = render_metrics(
        {
            'pods_total{phase="Running"}': 3,
            "queue_depth": 2.5,
            'wait_seconds_bucket{le="0.1"}': 1,
            'pods_total{phase="Failed"}': 1,
            "wait_seconds_sum": 0.05,
            "wait_seconds_count": 1,
        }
    ).decode()

    assert (
        "# TYPE pods_total counter\n"
        'pods_total{phase="Running"} 3\n'
        'pods_total{phase="Failed"} 1\n'
        "# TYPE queue_depth gauge\n"
        "queue_depth 2.5\n"
        "# TYPE wait_seconds histogram\n"
        'wait_seconds_bucket{le="0.1"} 1\n'
        "wait_seconds_sum 0.05\n"
        "wait_seconds_count 1\n"
    ) == text
