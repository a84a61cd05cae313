"""Round numbers for axes: counts, and times from milliseconds to hours. Pure."""

from typing import Final

_STEPS_S: Final = (
    *(number * 10.0**power for power in range(-6, 0) for number in (1, 2, 5)),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 30.0),
    *(60.0 * minutes for minutes in (1, 2, 5, 10, 20, 30)),
    *(3600.0 * hours for hours in (1, 2, 4, 6, 12, 24, 48, 96, 168)),
)
_UNITS: Final = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (0.0, "µs"))
TICKS_MAX: Final = 6


def ticks(top: float) -> list[float]:
    """Return two to five round numbers from 0 up to `top`; steps are whole numbers."""
    step = 10 ** max(0, len(str(int(top))) - 1)
    while top / step > 5:
        step *= 2
    while top / step < 2 and step > 1:
        step //= 2
    return [float(i * step) for i in range(int(top / step) + 1)]


def time_ticks(end_s: float) -> list[tuple[float, str]]:
    """Return times from 0 up to `end_s` with their labels, at most `TICKS_MAX` after the 0, all in one unit."""
    step = next((each for each in _STEPS_S if end_s / each <= TICKS_MAX), _STEPS_S[-1])
    size, unit = next((size or 1e-6, unit) for size, unit in _UNITS if step >= size)
    count = int(end_s / step + 1e-9)
    return [(number * step, f"{number * step / size:g} {unit}" if number else "0") for number in range(count + 1)]
