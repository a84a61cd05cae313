"""Mutants that no test can notice, declared in `equivalent.yaml`: the change, the line it stands in, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from tests.mutation.operators import Change

FILE = Path(__file__).with_name("equivalent.yaml")


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`code`: the line as it stands in `file`, without its indentation; `change`: `before -> after`, as the run prints it."""

    file: str
    code: str
    change: str
    reason: str


@dataclass(frozen=True)
class Declared:
    """What is declared."""

    entries: tuple[Equivalent, ...]

    def reason(self, change: Change) -> str | None:
        """Return why a change cannot be noticed, None when that is not declared."""
        return next((entry.reason for entry in self.entries if matches(entry, change)), None)


def matches(entry: Equivalent, change: Change) -> bool:
    """Say whether an entry means this change."""
    return (entry.file, entry.code, entry.change) == (change.file, change.code, f"{change.before} -> {change.after}")


def declared_changes() -> Declared:
    """Read the file. Raises: msgspec.ValidationError."""
    return Declared(tuple(msgspec.convert(yaml.safe_load(FILE.read_text()) or [], list[Equivalent])))
