"""What libraries say reaches our log in our shape, and does not fill it."""

import io
import json
import logging

import pytest
import structlog

from services.api.cel import faults
from services.telemetry import logs


@pytest.fixture
def lines():
    """Lines written so far, as documents."""
    stream = io.StringIO()
    logs.set_up("scheduler", stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logging.getLogger().handlers.clear()
    structlog.reset_defaults()


def say(at_s, sentence, *arguments):
    record = logging.LogRecord("exporter", logging.ERROR, "", 0, sentence, arguments, None)
    record.created = at_s
    logging.getLogger().handlers[0].emit(record)


def test_a_library_that_repeats_itself_is_logged_once_a_minute_with_how_often_it_was_not(lines):
    for second in range(61):
        say(1000.0 + second, "no answer from %s, attempt %d", "jaeger", second)

    assert ["no answer from jaeger, attempt 0", "no answer from jaeger, attempt 60"] == [
        line["message"] for line in lines()
    ]
    assert [None, 59] == [line.get("kept_back") for line in lines()]


def test_another_sentence_of_the_same_library_is_logged_at_once(lines):
    say(1000.0, "no answer")
    say(1000.1, "refused")

    assert ["no answer", "refused"] == [line["message"] for line in lines()]


def test_a_fault_that_ended_one_evaluation_is_a_line_with_its_subject_and_stack(lines):
    try:
        {}["a"]
    except KeyError as error:
        faults.report("the expression null.ip() of this test", error)

    [line] = lines()
    assert ("error", "scheduler", "fault.caught", "the expression null.ip() of this test") == (
        line["level"],
        line["comp"],
        line["event"],
        line["subject"],
    )
    assert "KeyError: 'a'" == line["stack"].splitlines()[-1]
