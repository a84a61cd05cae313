"""Which fields of the served schema keplab acts by, and which it keeps without effect.

A field is a member of a type that a served kind leads to. Three things are known of it: whether a feature gate takes it
from what is written (`apiserver_fake/registry/gated_fields.py`), whether `fields.txt` says that nothing acts by it, and
whether any code but that which checks and converts has its name. A field of which none of the three is true is
`unread`: it is to be obeyed, dropped or said. `python docs/_sphinx/fields.py` lists those.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

ROOT: Final = Path(__file__).parents[2]
REVIEWED: Final = Path(__file__).with_suffix(".txt")
_COMPONENTS: Final = ("apiserver_fake", "claim_controller", "kubelet", "lab", "scheduler", "services")
_NO_ACTION: Final = (
    "apiserver_fake/extensions/conversion", "apiserver_fake/registry/differences.py",
    "apiserver_fake/registry/gated_fields.py",
    "apiserver_fake/registry/strategies", "apiserver_fake/registry/warnings.py", "apiserver_fake/rest/openapi.py",
    "apiserver_fake/registry/schema", "apiserver_fake/registry/validation", "services/cel", "services/kwok", "lab/cli",
    "lab/exchange", "lab/scenarios/script",
)  # fmt: skip
"""Code that names a field to check it, default it, convert it or write it."""
_METADATA: Final = ("apiVersion", "kind", "metadata")
_BUILT_IN: Final = "io.k8s."


class Field(NamedTuple):
    """A member of a type; `type` as `core.v1.PodSpec`."""

    type: str
    name: str


class Reviewed(NamedTuple):
    """What `fields.txt` says of fields, and why; `is_obeyed`: they have an effect all the same."""

    reason: str
    is_obeyed: bool = False
    fields: tuple[Field, ...] = ()


@cache
def served() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the types that served kinds lead to: of each its fields, and to which types each of those leads."""
    from apiserver_fake.registry.schema.schemas import schemas

    table, found = schemas(), dict[str, dict[str, tuple[str, ...]]]()
    left = [target for kind in _roots().values() for target in _targets(table.get(kind, {}))]
    while left:
        name = left.pop()
        if name in found or not name.startswith(_BUILT_IN) or name.startswith(f"{_BUILT_IN}apimachinery."):
            continue
        members = table[name].get("properties", {})
        found[name] = {field: tuple(_targets(of)) for field, of in members.items() if field not in _METADATA}
        left += chain.from_iterable(found[name].values())
    return {_short(name): {f: tuple(map(_short, to)) for f, to in of.items()} for name, of in found.items()}


def _roots() -> dict[str, str]:
    """Return the schema's name of each served kind by the resource's name, `deployments.apps`."""
    from apiserver_fake.extensions.register import whole_catalogue

    found = [each.resource for versions in whole_catalogue().served_versions.values() for each in versions.values()]
    names = ((".".join(filter(None, (r.plural, r.group))), f"{r.group}/{r.version}/{r.kind}") for r in found)
    return {f"{name} {kind}": kind for name, kind in names}


def _targets(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(target := schema.get("$ref"), str):
            yield target.rpartition("/")[2]
        schema = list(schema.values())
    if isinstance(schema, list):
        for each in schema:
            yield from _targets(each)


def _short(name: str) -> str:
    return name.removeprefix("io.k8s.api.").removeprefix(_BUILT_IN)


@cache
def reviewed() -> tuple[Reviewed, ...]:
    """Return what `fields.txt` says. Raises: ValueError for a line that names a type or field that is not served."""
    found: list[Reviewed] = []
    for number, line in enumerate(REVIEWED.read_text().splitlines(), 1):
        if line.startswith("["):
            found.append(Reviewed(line.strip("[+ ]"), line.startswith("[+")))
        elif line and not line.startswith("#"):
            of, _, names = line.partition(": ")
            known = served().get(of, {})
            wanted = tuple(known) if names == "*" else tuple(names.split())
            if unknown := [name for name in wanted if name not in known]:
                raise ValueError(f"{REVIEWED.name}:{number}: {of} has no {', '.join(unknown)}")
            found[-1] = found[-1]._replace(fields=found[-1].fields + tuple(Field(of, name) for name in wanted))
    return tuple(found)


@cache
def gated() -> dict[Field, bool]:
    """Return the fields that a gate takes from writes, and whether it does so in every release."""
    from apiserver_fake.registry.gated_fields import GATED, never

    found: dict[Field, bool] = {}
    for name, kind in _roots().items():
        for row in GATED.get(name.partition(" ")[0], ()):
            for path in row.paths:
                if (field := _field_at(kind, path)) is not None:
                    found[field] = row.is_on is never
    return found


def _field_at(kind: str, path: tuple[str, ...]) -> Field | None:
    """Return the last field of a path; None if this version of the kind has no such field."""
    from apiserver_fake.registry.schema.schemas import schemas

    of = [*_targets(schemas().get(kind, {}))]
    field = None
    for step in (each.rstrip("?!") for each in path if each not in ("[]", "{}")):
        holders = [Field(_short(name), step) for name in of if step in served().get(_short(name), {})]
        if not holders:
            return None
        field = holders[0]
        of = [f"io.k8s.api.{name}" for name in served()[field.type][step]]
    return field


@cache
def without_effect() -> frozenset[Field]:
    """Return the fields nothing acts by: those that are said, and those of types that only such fields lead to."""
    found = {field for each in reviewed() for field in each.fields if not each.is_obeyed}
    found |= {field for field, always in gated().items() if always}
    leading: dict[str, set[Field]] = {}
    for of, members in served().items():
        for name, targets in members.items():
            for target in targets:
                leading.setdefault(target, set()).add(Field(of, name))
    while (
        added := {Field(of, name) for of, by in leading.items() if by <= found for name in served().get(of, {})} - found
    ):
        found |= added
    return frozenset(found)


@cache
def _words() -> frozenset[str]:
    """Return every name that acting code has: members of documents in texts, attributes in their JSON form."""
    found: set[str] = set()
    for path in chain.from_iterable((ROOT / each).rglob("*.py") for each in _COMPONENTS):
        if not str(path.relative_to(ROOT)).startswith(_NO_ACTION):
            found |= _names(ast.parse(path.read_text()))
    return frozenset(found)


def _names(tree: ast.AST) -> set[str]:
    nodes = [*ast.walk(tree)]
    texts = {id(n.value) for n in nodes if isinstance(n, ast.Expr)}
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Attribute):
            found.add(_in_json(node.attr))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            # A text with a space is a sentence.
            found |= set() if " " in node.value else set(re.findall(r"\$?[A-Za-z][\w-]*", node.value))
    return found


def _in_json(attribute: str) -> str:
    first, *rest = attribute.strip("_").split("_")
    return first + "".join(each[:1].upper() + each[1:] for each in rest)


def unread() -> list[Field]:
    """Return the fields that nothing is known of: no code acts by their name, no gate drops them, no line has them."""
    known = without_effect() | gated().keys() | {field for each in reviewed() for field in each.fields}
    return sorted(each for each in _every() if each not in known and each.name not in _words())


def _every() -> list[Field]:
    return [Field(of, name) for of, members in served().items() for name in members]


SERVED, READ, GATED_ONLY, DROPPED, IDLE = (
    "served",
    "read or written by a component",
    "the same, and dropped where their gate is off",
    "dropped, as their gate is off in every release",
    "kept, without effect",
)


def counted() -> dict[str, int]:
    """Return how many fields are served, and how many of them are in each state."""
    states = Counter(_state(each) for each in _every())
    return {SERVED: states.total(), **{name: states[name] for name in (READ, GATED_ONLY, DROPPED, IDLE)}}


def _state(field: Field) -> str:
    if gated().get(field):
        return DROPPED
    if field in without_effect():
        return IDLE
    return GATED_ONLY if field in gated() else READ


def table() -> str:
    """Return the page's text: the counts, and for each reason the fields."""
    rows = "\n".join(f"| {name} | {number:,} |" for name, number in counted().items())
    always = tuple(sorted(field for field, always in gated().items() if always))
    dropped = Reviewed("Dropped from every write: the gate is off in each release that can be emulated.", fields=always)
    reasons = (dropped, *(each for each in reviewed() if not each.is_obeyed))
    named = {field for each in reasons for field in each.fields}
    inherited = sorted({each.type for each in without_effect() - named})
    parts = [f"| Fields | |\n|---|---|\n{rows}"]
    parts += [f"**{each.reason}**\n\n{_listed(each.fields)}" for each in reasons]
    parts.append(f"**Types that only these fields lead to:** {', '.join(f'`{name}`' for name in inherited)}.")
    return "\n\n".join(parts)


def _listed(fields: tuple[Field, ...]) -> str:
    by_type: dict[str, list[str]] = {}
    for field in fields:
        by_type.setdefault(field.type, []).append(f"`{field.name}`")
    return "\n".join(f"* `{of}`: {', '.join(names)}" for of, names in by_type.items())


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for each in unread():
        click.echo(f"{each.type}.{each.name}: no component names it, no gate drops it, {REVIEWED.name} is silent")
    for state, number in counted().items():
        click.echo(f"{number:6,} {state}")
    sys.exit(bool(unread()))
