"""Indexes of an Indexed Job as one text: numbers in order, three and more in a row as an interval: `1,3-5,7`."""

from __future__ import annotations

from collections.abc import Iterable


def parse_indexes(text: str, completions: int) -> frozenset[int]:
    """Return the indexes below `completions`. Raises: ValueError saying what is wrong."""
    found: set[int] = set()
    last = -1
    for part in filter(None, text.split(",")) if text else ():
        first, sign, end = part.partition("-")
        if not (first.isascii() and first.isdigit()) or (sign and not (end.isascii() and end.isdigit())):
            raise ValueError(f"cannot convert {part!r} to an index or an interval of indexes")
        low, high = int(first), int(end) if sign else int(first)
        if low <= last or high < low:
            raise ValueError(f"{part!r} is not in increasing order")
        found.update(range(low, min(high + 1, completions)))
        last = high
    return frozenset(found)


def format_indexes(indexes: Iterable[int]) -> str:
    """Return the text of these indexes."""
    parts: list[str] = []
    run: list[int] = []
    for index in sorted(indexes):
        if run and index == run[-1] + 1:
            run.append(index)
            continue
        parts += _texts(run)
        run = [index]
    return ",".join(parts + _texts(run))


def _texts(run: list[int]) -> list[str]:
    return [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(index) for index in run]
