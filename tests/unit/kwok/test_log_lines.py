"""Lines of log files in the forms of CRI and of Docker."""

import pytest

from services.kwok.log_lines import LogText, read_line

STAMP = "2026-01-01T00:00:00.5Z"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f"{STAMP} stdout F hello  world", LogText(1767225600.5, STAMP, 1, b"hello  world\n")),
        (f"{STAMP} stderr P half", LogText(1767225600.5, STAMP, 2, b"half")),
        (f"{STAMP} stdout F:x ", LogText(1767225600.5, STAMP, 1, b"\n")),
        (f'{{"log":"hi\\n","stream":"stderr","time":"{STAMP}"}}', LogText(1767225600.5, STAMP, 2, b"hi\n")),
    ],
)
def test_a_line_has_a_time_a_stream_and_a_text(line, found):
    assert found == read_line(line.encode())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a plain line", "unexpected timestamp format 'a'"),
        ("word", "unsupported log format: b'word'"),
        (f"{STAMP} stdnull F x", "unexpected stream type 'stdnull'"),
        ("{no json", "unsupported log format: b'{no json'"),
    ],
)
def test_any_other_line_is_named(line, said):
    with pytest.raises(ValueError, match=said):
        read_line(line.encode())
