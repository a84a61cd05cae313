"""What was used since the start is the area below a usage curve."""

import pytest

from services.api.metrics.usage import integral, parse_curves


@pytest.mark.parametrize(
    ("text", "age_s", "expected"),
    [
        ("cpu 250m", 8, 2_000),
        ("cpu 250m", 0, 0),
        ("cpu 100m; cpu 1 at 10s", 5, 500),
        ("cpu 100m; cpu 1 at 10s", 12, 3_000),
        ("cpu 1 by 10s", 10, 5_000),
        ("cpu 1 by 10s", 5, 1_250),
        ("cpu 1; cpu 3 by 10s; cpu 0 at 20s", 30, 20_000 + 30_000),
    ],
)
def test_the_area_up_to_an_age(text, age_s, expected):
    assert integral(parse_curves(text)["cpu"], age_s) == pytest.approx(expected)


def test_no_curve_has_no_area():
    assert integral((), 5) == 0
