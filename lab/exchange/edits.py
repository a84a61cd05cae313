"""A file of rules that change objects in transit: set, remove and drop, by selector and JSON pointer. Pure.

    - select: {kind: Pod, namespace: shop, labels: app=web}
      set: {/spec/schedulerName: mine}
      remove: [/spec/affinity]
    - select: {kind: ConfigMap}
      drop: true

Pointers are those of RFC 6901. Source: simulator 4.2.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from lab.exchange.stream import Refused
from services.api.documents import yaml_text
from services.api.errors import BadRequest
from services.api.meta import Document, metadata_of
from services.api.selectors import Selector, parse_label_selector

_FIELDS: Final = ("select", "set", "remove", "drop")
_SELECTS: Final = ("kind", "namespace", "name", "labels")


@dataclass(frozen=True)
class Edit:
    """One rule. `kind`, `namespace` and `name` are patterns with `*`; empty: any."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    labels: Selector | None = None
    assigns: tuple[tuple[tuple[str, ...], Any], ...] = ()
    removes: tuple[tuple[str, ...], ...] = ()
    drops: bool = False

    def fits(self, document: Document) -> bool:
        """Return whether the rule selects an object."""
        metadata = metadata_of(document)
        pairs = (
            (self.kind, str(document.get("kind") or "")),
            (self.namespace, str(metadata.get("namespace") or "")),
            (self.name, str(metadata.get("name") or "")),
        )
        if any(pattern and not fnmatchcase(value, pattern) for pattern, value in pairs):
            return False
        return self.labels is None or self.labels.matches(metadata.get("labels") or {})


@dataclass(frozen=True)
class Edits:
    """Rules in their order; each sees the result of those before it."""

    rules: Sequence[Edit] = field(default_factory=tuple)

    def of(self, document: Document) -> Document | None:
        """Return the object after all rules, None if it is dropped."""
        new_document = document
        for rule in self.rules:
            if not rule.fits(new_document):
                continue
            if rule.drops:
                return None
            new_document = copy.deepcopy(new_document)
            for pointer, value in rule.assigns:
                _assign(new_document, pointer, value)
            for pointer in rule.removes:
                _remove(new_document, pointer)
        return new_document


def read_edits(path: Path) -> Edits:
    """Return the rules of a file. Raises: Refused naming the rule, the field and its value."""
    try:
        rules = yaml_text.load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise Refused(f"{path}: {error}") from None
    if not isinstance(rules, list):
        raise Refused(f"{path}: want a list of rules, not {type(rules).__name__}")
    return Edits(tuple(_edit(f"{path}: rule {number}", each) for number, each in enumerate(rules, 1)))


def _edit(where: str, value: Any) -> Edit:
    if not isinstance(value, dict):
        raise Refused(f"{where}: want select, and set, remove or drop")
    if unknown := [name for name in value if name not in _FIELDS]:
        raise Refused(f"{where}: {unknown[0]}: want one of {', '.join(_FIELDS)}")
    select, assigns, removes = value.get("select") or {}, value.get("set") or {}, value.get("remove") or []
    if not isinstance(select, dict) or [name for name in select if name not in _SELECTS]:
        raise Refused(f"{where}: select {select!r}: want {', '.join(_SELECTS)}")
    if not isinstance(assigns, dict):
        raise Refused(f"{where}: set {assigns!r}: want pointers with values")
    if not isinstance(removes, list):
        raise Refused(f"{where}: remove {removes!r}: want a list of pointers")
    drops = value.get("drop", False)
    if not isinstance(drops, bool):
        raise Refused(f"{where}: drop {drops!r}: want true or false")
    if not (assigns or removes or drops):
        raise Refused(f"{where}: want set, remove or drop: it changes nothing")
    try:
        labels = parse_label_selector(str(select["labels"])) if select.get("labels") else None
    except BadRequest as error:
        raise Refused(f"{where}: select.labels: {error.message}") from None
    return Edit(
        str(select.get("kind") or ""),
        str(select.get("namespace") or ""),
        str(select.get("name") or ""),
        labels,
        tuple((_pointer(where, each), given) for each, given in assigns.items()),
        tuple(_pointer(where, each) for each in removes),
        drops,
    )


def _pointer(where: str, text: Any) -> tuple[str, ...]:
    if not isinstance(text, str) or not text.startswith("/") or len(text) < 2:
        raise Refused(f"{where}: {text!r}: want a JSON pointer such as /spec/schedulerName")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def _assign(document: Any, pointer: tuple[str, ...], value: Any) -> None:
    """Set a value; objects on the way are made, elements of lists must be there, `-` is one more."""
    at = document
    for part in pointer[:-1]:
        at = at[int(part)] if isinstance(at, list) and part.isdigit() and int(part) < len(at) else _below(at, part)
        if at is None:
            return
    last = pointer[-1]
    if isinstance(at, dict):
        at[last] = copy.deepcopy(value)
    elif isinstance(at, list) and last == "-":
        at.append(copy.deepcopy(value))
    elif isinstance(at, list) and last.isdigit() and int(last) < len(at):
        at[int(last)] = copy.deepcopy(value)


def _below(at: Any, part: str) -> Any:
    return at.setdefault(part, {}) if isinstance(at, dict) else None


def _remove(document: Any, pointer: tuple[str, ...]) -> None:
    at = document
    for part in pointer[:-1]:
        if isinstance(at, list) and part.isdigit() and int(part) < len(at):
            at = at[int(part)]
        elif isinstance(at, dict) and part in at:
            at = at[part]
        else:
            return
    last = pointer[-1]
    if isinstance(at, dict):
        at.pop(last, None)
    elif isinstance(at, list) and last.isdigit() and int(last) < len(at):
        del at[int(last)]
