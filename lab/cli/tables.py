"""Rows as lines for a terminal of some width: a table where it fits, else a block for each row.

Words are never broken. Words are separated by spaces: names of objects and switches, paths, figures. A word
that is wider than the terminal stays whole, so that it can be copied and searched for.
"""

import textwrap
from collections.abc import Sequence

GAP, PIPED_GAP = "  ", "   "
PROSE_MIN = 24
"""Smallest width of a column of sentences; if a table needed a narrower one, its rows become blocks."""
WIDE = 120
"""Terminal width from which a table that does not fit leaves out spare columns before its rows become blocks."""


def plain(columns: Sequence[str], rows: Sequence[Sequence[str]], is_text: Sequence[bool]) -> list[str]:
    """Return aligned lines, each row uncut, however wide. `is_text`: which columns are aligned to the left."""
    lines = [list(columns), *map(list, rows)]
    return _align_lines(lines, [max(map(len, column)) for column in zip(*lines, strict=True)], is_text, PIPED_GAP)


def fit_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    is_text: Sequence[bool],
    width: int,
    spare: Sequence[str] = (),
) -> list[tuple[str, bool]]:
    """Return lines for a terminal, each with whether it is a heading.

    `spare`: columns that may be left out when the table does not fit, on a terminal of at least `WIDE` columns; the
    last line names them. Columns that are empty in all rows are left out first.
    """
    empty = [i for i in range(len(columns)) if rows and not any(row[i] for row in rows)]
    left_out = [i for i, name in enumerate(columns) if name in spare and i not in empty]
    tries = [[], empty, *([*empty, *left_out[-count:]] for count in range(1, len(left_out) + 1) if width >= WIDE)]
    for without in tries:
        kept = [i for i in range(len(columns)) if i not in without]
        lines = _table(
            [columns[i] for i in kept], [[row[i] for i in kept] for row in rows], [is_text[i] for i in kept], width
        )
        if lines:
            gone = ", ".join(columns[i] for i in left_out if i in without)
            note = [f"Not shown at this width: {gone}; piped, or with -o json, all is."] if gone else []
            return [(line, i == 0) for i, line in enumerate([*lines, *note])]
    return _blocks(columns, rows, width)


def hanging(first: str, text: str, width: int, *, indent: int | None = None) -> str:
    """Return `first` and then a text, wrapped between words; further lines are indented to the text, or by `indent`."""
    at = " " * (len(first) if indent is None else indent)
    return textwrap.fill(
        text,
        max(width, len(at) + 10),
        initial_indent=first,
        subsequent_indent=at,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], is_text: Sequence[bool], width: int
) -> list[str] | None:
    """Return a table no wider than `width`, with sentences wrapped; None when it cannot be."""
    whole = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    least = [_least(cells, natural) for cells, natural in zip(zip(columns, *rows, strict=True), whole, strict=True)]
    left = width - len(GAP) * (len(columns) - 1) - sum(least)
    if left < 0:
        return None
    widths = list(least)
    while left and (narrow := [i for i, given in enumerate(widths) if given < whole[i]]):
        i = min(narrow, key=lambda i: widths[i] / whole[i])
        widths[i], left = widths[i] + 1, left - 1
    text_lines = _align_lines([list(columns)], widths, is_text)
    for row in rows:
        wrapped = [_wrap_cell(cell, given) for cell, given in zip(row, widths, strict=True)]
        deep = max(map(len, wrapped))
        cells = [[*lines, *[""] * (deep - len(lines))] for lines in wrapped]
        text_lines += _align_lines([list(line) for line in zip(*cells, strict=True)], widths, is_text)
    return text_lines


def _least(cells: Sequence[str], natural: int) -> int:
    """Return how narrow a column may become: its longest word, and not less than `PROSE_MIN` where it has sentences."""
    words = max((len(word) for cell in cells for word in cell.split()), default=0)
    return min(natural, max(words, PROSE_MIN))


def _wrap_cell(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width, break_long_words=False, break_on_hyphens=False) or [""]


def _align_lines(
    lines: Sequence[Sequence[str]], widths: Sequence[int], is_text: Sequence[bool], gap: str = GAP
) -> list[str]:
    return [
        gap.join(
            cell.ljust(given) if left else cell.rjust(given)
            for cell, given, left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in lines
    ]


def _blocks(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[tuple[str, bool]]:
    """Return a block a row: its first cell, and below it the others that are not empty, each under its heading."""
    found: list[tuple[str, bool]] = []
    for row in rows:
        found += [*block(row[0], list(zip(columns[1:], row[1:], strict=True)), width), ("", False)]
    return found[:-1]


def block(heading: str, entries: Sequence[tuple[str, str]], width: int) -> list[tuple[str, bool]]:
    """Return a heading, and below it each entry that is not empty, under its name; each line with whether it is a
    heading.
    """
    return [(heading, True), *((line, False) for line in _entries(entries, width))]


def _entries(entries: Sequence[tuple[str, str]], width: int) -> list[str]:
    labels = max((len(name) for name, _ in entries), default=0)
    lines: list[str] = []
    for name, cell in entries:
        first = f"  {name.ljust(labels)}{GAP}"
        if not cell:
            continue
        longest = max(map(len, cell.split()), default=0)
        if len(first) + min(longest, len(cell)) > width:  # the longest word would not fit beside its heading
            lines += [f"  {name}", *hanging("    ", cell, width).splitlines()]
        else:
            lines += hanging(first, cell, width).splitlines()
    return lines
