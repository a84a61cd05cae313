"""What libraries say reaches our log in our shape, and does not fill it."""

import io
import json
import logging

import pytest
import structlog

from services.cel import faults
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


@pytest.mark.parametrize("value", ["\ud800", {"a": ["\udcff"]}, 1 << 70, UnicodeError("\ud800")])
def test_a_line_is_written_whatever_is_in_it(lines, value):
    structlog.get_logger().error("request.failed", path="/a\udcffb", value=value)

    [line] = lines()
    assert ("request.failed", "/a\\udcffb") == (line["event"], line["path"])


def test_a_line_for_people_is_written_whatever_is_in_it(tmp_path):
    with (tmp_path / "lines").open("w", encoding="ascii") as stream:
        logs.set_up("scheduler", stream=stream, is_plain=True, is_final=False)
        structlog.get_logger().error("request.failed", path="/a\udcffb")

    assert "/a\\udcffb" in (tmp_path / "lines").read_text()
    structlog.reset_defaults()


def test_a_traceback_about_a_text_without_a_form_is_written(lines):
    try:
        "\ud800".encode()
    except UnicodeEncodeError as error:
        structlog.get_logger().error("request.failed", exc_info=error)

    [line] = lines()
    assert "UnicodeEncodeError" in line["exception"]


def test_a_sentence_of_a_library_whose_arguments_do_not_fit_is_logged(lines):
    say(1000.0, "attempt %d", "x")

    assert ["attempt %d ['x']"] == [line["message"] for line in lines()]


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
