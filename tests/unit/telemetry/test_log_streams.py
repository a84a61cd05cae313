"""What one test logs does not go where another had its own."""

import io

import pytest
import structlog

from services.telemetry import logs

log = structlog.get_logger()


@pytest.mark.parametrize("order", ["first", "second"])
def test_a_logger_that_an_earlier_test_set_up_for_good_writes_to_the_stream_of_this_one(order, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    logs.set_up("test", "error")

    log.error(order)

    assert order in out.getvalue()
    out.close()
