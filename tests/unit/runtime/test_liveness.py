"""Whether a process is live: not while its loop turns too slowly (P12)."""

import pytest

from services.runtime.health import HealthServer, HttpRequest


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
@pytest.mark.parametrize(("stalled_s", "status"), [(0.0, 200), (10.0, 200), (10.1, 500), (75.0, 500)])
def test_a_process_whose_loop_stood_still_for_over_ten_seconds_is_not_live(path, stalled_s, status):
    health = HealthServer(is_ready=lambda: True, stalled_s=lambda: stalled_s, metrics=dict, configuration=dict)
    handler = next(handler for pattern, handler in health._routes if pattern.match(path))

    found, _, body = handler(HttpRequest(path))
    assert status == found
    assert (f"stalled for {stalled_s:.1f} s".encode() in body) == (status == 500)
