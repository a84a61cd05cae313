"""The difference between two texts, of which the second is the first with insertions. Pure.

An object with its zero values is the stored object with a few short insertions, so a cache keeps the insertions alone.
"""

from __future__ import annotations

from typing import Final

SYNC: Final = (12, 3, 1)
"""Numbers of bytes, tried in turn, by which the place is found where a text goes on behind an insertion."""
STRIDE: Final = 512
INSERTIONS_MAX: Final = 32

Splices = tuple[tuple[int, bytes], ...]
"""Insertions by their place in the first text, in order."""


def splices_of(text: bytes, whole: bytes) -> Splices | None:
    """Return the insertions that make `whole` of `text`; None if it is not made by a few insertions."""
    splices: list[tuple[int, bytes]] = []
    at = place = 0
    while True:
        common = _common_length(text, at, whole, place)
        at, place = at + common, place + common
        if at == len(text) and place == len(whole):
            return tuple(splices)
        if len(splices) == INSERTIONS_MAX or at == len(text):
            return None
        if (behind := _sync(text, at, whole, place + 1)) < 0:
            return None
        splices.append((at, whole[place:behind]))
        place = behind


def splice(text: bytes, splices: Splices) -> bytes:
    """Return the text with these insertions."""
    if not splices:
        return text
    parts: list[bytes] = []
    before = 0
    for at, inserted in splices:
        parts += text[before:at], inserted
        before = at
    parts.append(text[before:])
    return b"".join(parts)


def _sync(text: bytes, at: int, whole: bytes, place: int) -> int:
    """Return where, from `place` on, `whole` goes on with what follows in the text; -1 if nowhere."""
    for size in SYNC:
        if (behind := whole.find(text[at : at + size], place)) >= 0:
            return behind
    return -1


def _common_length(text: bytes, at: int, whole: bytes, place: int) -> int:
    """Return how many bytes are the same from both places on."""
    same, step = 0, STRIDE
    while (part := text[at : at + STRIDE]) and part == whole[place : place + STRIDE]:
        same, at, place = same + len(part), at + STRIDE, place + STRIDE
    if not part:
        return same
    # The first difference is within this stride: halve it.
    while step > 1:
        step //= 2
        if (half := text[at : at + step]) == whole[place : place + step]:
            same, at, place = same + len(half), at + step, place + step
    return same
