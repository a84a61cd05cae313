"""Hooks of a replay, as SimKube has them: commands on this machine, before and after. Pure but for reading the file.

Source: simulator 6.2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from lab.exchange.reading import Piece, Source, document_of
from lab.exchange.stream import Place, Refused

STAGES: Final = ("preStart", "preRun", "postRun", "postStop")
_FIELDS: Final = ("cmd", "args", "sendSim", "ignoreFailure")


class Hook(NamedTuple):
    """A hook's command: its program, arguments, and whether the replay goes on when it fails."""

    cmd: str
    args: tuple[str, ...] = ()
    ignore_failure: bool = False


def hooks_of(file: Path) -> dict[str, list[Hook]]:
    """Return the hooks by stage. Raises: Refused naming the stage and field."""
    with Source(file).open() as opened:
        document = document_of(Piece(opened.read(), Place(str(file), 1, 1)))
    hooks: dict[str, list[Hook]] = {}
    for stage, entries in document.items():
        name = stage.removesuffix("Hooks")
        if name not in STAGES:
            raise Refused(f"{file}: {stage}: want {', '.join(STAGES)}")
        if not isinstance(entries, list):
            raise Refused(f"{file}: {stage}: want a list")
        hooks[name] = [_hook(file, f"{stage}[{number}]", entry) for number, entry in enumerate(entries)]
    return hooks


def _hook(file: Path, where: str, entry: Any) -> Hook:
    if not isinstance(entry, dict) or not isinstance(entry.get("cmd"), str):
        raise Refused(f"{file}: {where}.cmd: want the program to run")
    if unknown := next((each for each in entry if each not in _FIELDS), None):
        raise Refused(f"{file}: {where}.{unknown}: want {', '.join(_FIELDS)}")
    if entry.get("sendSim"):
        raise Refused(f"{file}: {where}.sendSim: a replay has no Simulation object to send")
    args = entry.get("args") or []
    if not isinstance(args, list) or not all(isinstance(each, str) for each in args):
        raise Refused(f"{file}: {where}.args: want a list of texts")
    return Hook(entry["cmd"], tuple(args), bool(entry.get("ignoreFailure")))
