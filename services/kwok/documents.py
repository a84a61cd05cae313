"""Documents of KWOK's kinds, read and checked: every error names file, document, object and field. Pure.

Stages are read elsewhere, in `services/kwok/stages/document`. Source: simulator 5.4 and 11.
"""

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from services.api.documents import yaml_text
from services.api.meta import Key, key_of
from services.kwok.kind import API_VERSION, Kind, Rule, Rules, Selector

STAGE: Final = "Stage"


class KwokError(ValueError):
    """Error: a document cannot be used."""


@cache
def kinds() -> dict[str, Kind]:
    """Return every kind by its names in documents, sorted by name."""
    # By name, not by import statement: expressions are large, and few processes have such documents.
    folder = importlib.import_module("services.kwok.kinds")
    by_name: dict[str, Kind] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        kind: Kind = importlib.import_module(f"{folder.__name__}.{module}").KIND
        for name in kind.names:
            if name in by_name:
                raise ValueError(f"two files in kwok/kinds/ offer {name}")
            by_name[name] = kind
    return dict(sorted(by_name.items()))


def is_other_kind(document: Any) -> bool:
    """Whether this is a document of a KWOK kind other than Stage."""
    return isinstance(document, dict) and document.get("apiVersion") == API_VERSION and document.get("kind") != STAGE


class Configuration:
    """Contents of the files, by the plain name of a kind: `logs = configuration["Logs"]`."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.all = tuple(rules)
        found: dict[str, list[Rule]] = {}
        for rule in self.all:
            found.setdefault(rule.kind, []).append(rule)
        self._rules = {kind: Rules(tuple(some)) for kind, some in found.items()}

    def __bool__(self) -> bool:
        return bool(self.all)

    def __getitem__(self, kind: str) -> Rules:
        return self._rules.get(kind) or Rules()


def read(files: Iterable[tuple[str, str]]) -> Configuration:
    """Parse documents of (file name, text); Stages and empty documents are left out. Raises: KwokError."""
    rules: list[Rule] = []
    for file, text in files:
        try:
            documents = list(yaml_text.load_all(text))
        except ValueError as error:
            raise KwokError(f"{file}: {error}") from None
        for number, document in enumerate(documents, 1):
            if not is_other_kind(document):
                continue
            rule = read_one(document, f"{file}: document {number}", str(Path(file).parent))
            check_among(rule, rules)
            rules.append(rule)
    return Configuration(rules)


def check_among(rule: Rule, others: Iterable[Rule]) -> None:
    """Raise KwokError when another document has the name of `rule`, or its value of a unique field."""
    field = kinds()[rule.kind].unique
    for other in others:
        if (other.kind, other.key, other.selector is None) == (rule.kind, rule.key, rule.selector is None):
            raise KwokError(f"{rule.where}: is there already: {other.where}")
        if field and other.kind == rule.kind and getattr(other.spec, field) == (value := getattr(rule.spec, field)):
            raise KwokError(f"{rule.where}: spec.{field} {value!r}: is that of {other.where} already")


def load(paths: Iterable[str], *, runs_commands: bool = True) -> Configuration:
    """Load these files. Raises: KwokError, also for an unreadable file, and for a forward to a command unless this
    machine runs commands.
    """
    files: list[tuple[str, str]] = []
    for path in paths:
        try:
            files.append((path, Path(path).read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise KwokError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    configuration = read(files)
    for rule in () if runs_commands else configuration["PortForward"].all:
        for number, entry in enumerate(rule.entries):
            if entry.command:
                text = "it runs a command on this machine, which only --host-commands allows"
                raise KwokError(f"{rule.where}: spec.forwards[{number}].command: {text}")
    return configuration


def read_one(document: dict[str, Any], where: str, folder: str = "") -> Rule:
    """Parse one document; its paths are relative to `folder`. Raises: KwokError beginning with `where`."""
    name = str(document.get("kind"))
    if not name or (kind := kinds().get(name)) is None:
        raise KwokError(f"{where}: kind {name} is not known; {', '.join((STAGE, *kinds()))} are")
    is_cluster = name != kind.name
    key = key_of(document)
    if not key.name:
        raise KwokError(f"{where}: {name}: metadata.name: want a name")
    if kind.is_of_pods and not is_cluster:
        key = Key(key.namespace or "default", key.name)
    else:
        key = Key("", key.name)
    where = f"{where}: {name} {key}"
    if unknown := sorted(document.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}):
        raise KwokError(f"{where}: {unknown[0]}: is no field of this kind")
    spec = document.get("spec")
    if not isinstance(spec, dict):
        raise KwokError(f"{where}: spec: want an object")
    given = dict(spec)
    selector = None
    try:
        if is_cluster:
            selector = msgspec.convert(given.pop("selector", None) or {}, Selector)
    except msgspec.ValidationError as error:
        raise KwokError(f"{where}: {_error_text(error, 'spec.selector')}") from None
    try:
        settings = msgspec.convert(given, kind.spec)
    except msgspec.ValidationError as error:
        raise KwokError(f"{where}: {_error_text(error, 'spec')}") from None
    if (wrong := kind.check(settings)) is not None:
        raise KwokError(f"{where}: spec.{wrong[0]}: {wrong[1]}")
    return Rule(kind.name, key, selector, settings, tuple(getattr(settings, kind.field)), folder, where)


def _error_text(error: msgspec.ValidationError, root: str) -> str:
    message, _, place = str(error).partition(" - at `$")
    return f"{root}{place.rstrip('`')}{'' if message.startswith(('.', ':')) else ': '}{message}"
