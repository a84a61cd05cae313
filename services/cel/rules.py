"""Validation rules of structural schemas (`x-kubernetes-validations`): checked with them, applied to documents.
Pure.

    causes = list(check(schema, "spec.validation.openAPIV3Schema"))    # when the schema is written
    rules = Rules.of(schema)                                           # None: the schema has no rules
    found = rules.validate(document, old)                              # causes, warnings, rest of the budget

Names, limits and messages are upstream's. A rule's estimate times its maximum number of runs may be 10,000,000,
that of a whole schema 100,000,000; one evaluation may cost 1,000,000, all evaluations of one object 10,000,000.

Source: kubernetes/kubernetes staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go,
pkg/apis/apiextensions/validation/validation.go; KEP-2876 "Resource constraints"; KEP-4008 (ratcheting).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from services.cel import schemas, types
from services.cel.environment import CANCELLED, KUBERNETES, CompileError, Environment, EvaluationError, Program
from services.cel.schemas import Declared, Schema
from services.cel.values import NONE, Optional, utf8

RULES: Final = "x-kubernetes-validations"
CALL_LIMIT, OBJECT_LIMIT = 1_000_000, 10_000_000
"""Cost limits of one evaluation, and of all evaluations for one object."""
RULE_ESTIMATE_MAX, SCHEMA_ESTIMATE_MAX = 10_000_000, 100_000_000
"""Limits on the estimated cost of one rule, and of all rules of a schema."""
MESSAGE_MAX: Final = 5 * 1024
_COST_MAX: Final = 2**64 - 1
_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_WORDS: Final = {"FieldValueForbidden": "Forbidden", "FieldValueRequired": "Required value"}
_LINE_BREAK: Final = re.compile(r"[\n\r]+")
_NO_TYPE: Final = (
    "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert "
    "structural schema to CEL declarations"
)
_SPENT: Final = "no further validation rules will be run due to call cost exceeds limit for"
_OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"
_ADVICE: Final = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)


class Cause(NamedTuple):
    """One validation error: field path, cause reason (`FieldValueInvalid`, …) and message."""

    path: str
    reason: str
    message: str


@dataclass(frozen=True)
class Rule:
    """A rule as written, with its programs. `error` and `message_error` say why a program is missing.

    `cost` and `message_cost` are estimates of one evaluation. `is_transition`: the rule compares with `oldSelf`.
    """

    text: Mapping[str, Any]
    program: Program | None = None
    message: Program | None = None
    error: str = ""
    message_error: str = ""
    is_transition: bool = False
    field_path: str = ""

    @property
    def cost(self) -> int:
        """Estimated cost of the rule."""
        return 0 if self.program is None else self.program.cost.most

    @property
    def message_cost(self) -> int:
        """Estimated cost of its messageExpression."""
        return 0 if self.message is None else self.message.cost.most

    @property
    def label(self) -> str:
        """Name of the rule in errors: its message, or its text."""
        return str(self.text.get("message") or self.text.get("rule", "")).strip()


def compile_rules(texts: Sequence[Mapping[str, Any]], declared: Declared) -> tuple[Rule, ...]:
    """Return the compiled rules of one place of a schema."""
    plain, optional = _environment(declared, is_optional=False), _environment(declared, is_optional=True)
    return tuple(_rule(each, optional if each.get("optionalOldSelf") else plain, declared) for each in texts)


def _environment(declared: Declared, *, is_optional: bool) -> Environment:
    old = types.optional_of(declared.type) if is_optional else declared.type
    return Environment(
        {"self": declared.type, "oldSelf": old},
        objects=schemas.objects(declared),
        libraries=KUBERNETES,
        cost_limit=CALL_LIMIT,
        sizes=schemas.sizes(declared),
    )


def _rule(text: Mapping[str, Any], among: Environment, declared: Declared) -> Rule:
    if not str(text.get("rule", "")).strip():
        return Rule(text)
    program, error = _program(text["rule"], among)
    if program is None:
        return Rule(text, error=error)
    if program.type != types.BOOL:
        return Rule(text, error="cel expression must evaluate to a bool")
    rule = Rule(text, program, is_transition="oldSelf" in program.names)
    if expression := text.get("messageExpression"):
        message, error = _program(expression, among)
        if message is not None and message.type != types.STRING:
            message, error = None, "messageExpression must evaluate to a string"
        elif message is None:
            error = f"messageExpression {error.removeprefix('program ')}"
        rule = replace(rule, message=message, message_error=error)
    path = text.get("fieldPath")
    return replace(rule, field_path=field_path(path, declared.schema) or "") if path else rule


def _program(expression: str, among: Environment) -> tuple[Program | None, str]:
    try:
        return among.compile(expression), ""
    except CompileError as error:
        return None, f"compilation failed: {error}"
    except EvaluationError as error:
        return None, f"program instantiation failed: {error}"


_STEP: Final = re.compile(r"\.(?P<name>[^.\[\]']+)|\['(?P<key>(?:[^'\\]|\\.)*)'\]")
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def field_path(text: str, schema: Schema) -> str | None:
    """Return a rule's `fieldPath`, such as `.spec.map['key']`, as errors write it; None if the schema has no such
    place.
    """
    path, at = "", 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            return None
        at = step.end()
        name = step["name"]
        if name is None:
            if any(each not in _ESCAPES for each in re.findall(r"\\(.)", step["key"])):
                return None
            name = re.sub(r"\\(.)", lambda match: _ESCAPES[match[1]], step["key"])
        inner = schema.get("properties")
        if inner is not None:
            if name not in inner:
                return None
            schema, path = inner[name], f"{path}.{name}" if path else name
        elif isinstance(schema.get("additionalProperties"), Mapping):
            schema, path = schema["additionalProperties"], f"{path}[{name}]"
        else:
            return None
    return path


# When a schema is written.


@dataclass
class _Total:
    cost: int = 0
    malformed: int = 0
    most_expensive: list[tuple[int, str]] = field(default_factory=list)

    def add(self, path: str, cost: int) -> None:
        self.cost = min(self.cost + cost, _COST_MAX)
        if cost >= SCHEMA_ESTIMATE_MAX // 100:
            self.most_expensive = sorted([*self.most_expensive, (cost, path)], key=lambda each: -each[0])[:4]


def check(schema: Schema, path: str) -> Iterator[Cause]:
    """Yield the causes for refusing the rules of a resource's schema. `path`: where the schema is in its object."""
    total = _Total()
    declared = schemas.declare(schema, is_root=True)
    yield from _check(schema, schema, declared, path, 1, "", total)
    if total.cost > SCHEMA_ESTIMATE_MAX:
        whole = "for entire OpenAPIv3 schema"
        for _, where in total.most_expensive:
            yield _forbidden(where, f"contributed to estimated rule cost total exceeding cost limit {whole}")
        what = f"x-kubernetes-validations estimated rule cost total {whole}"
        yield _forbidden(path, _too_expensive(what, total.cost, SCHEMA_ESTIMATE_MAX))


def _check(
    holder: Schema,
    node: Schema,
    declared: Declared | None,
    path: str,
    often: int | None,
    uncorrelated: str,
    total: _Total,
) -> Iterator[Cause]:
    """Check the rules of `holder`, which is a place of the schema, `node`, or an `allOf` of it, and what is inside.

    `often`: how often the place can be in an object; None: as often as it fits. `uncorrelated`: the list or map
    whose items have no old value.
    """
    before = total.malformed
    causes: list[Cause] = []
    for inner, inner_node, inner_declared, name, fraction in _inner(holder, node, declared):
        below = uncorrelated
        if not (node.get("x-kubernetes-list-type") == "map" if name == "items" else _relates(node)):
            below = below or path
        times = None if often is None or fraction is None else often * fraction
        causes += _check(inner, inner_node, inner_declared, f"{path}.{name}", times, below, total)
    for place, branch in enumerate(holder.get("allOf") or ()):
        causes += _check(branch, node, declared, f"{path}.allOf[{place}]", often, uncorrelated, total)
    yield from causes
    texts = holder.get(RULES) or ()
    wrong = [
        cause for place, text in enumerate(texts) for cause in malformed_causes(text, f"{path}.{RULES}[{place}]", node)
    ]
    yield from wrong
    total.malformed += len(wrong)
    if not texts or total.malformed > before:
        return
    if declared is None:
        yield Cause(f"{path}.{RULES}", "InternalError", f"Internal error: {_NO_TYPE}")
        return
    times = declared.cardinality if often is None else often
    for place, rule in enumerate(compile_rules(texts, declared)):
        yield from _rule_causes(rule, f"{path}.{RULES}[{place}]", times, uncorrelated, total)


def _inner(
    holder: Schema, node: Schema, declared: Declared | None
) -> Iterator[tuple[Schema, Schema, Declared | None, str, int | None]]:
    """Yield the places in a place: schema with rules, structural schema, type, name, and how many there can be."""
    for name, inner_schema in (holder.get("properties") or {}).items():
        if name in (node.get("properties") or {}):
            yield inner_schema, node["properties"][name], _field(node, declared, name), f"properties[{name}]", 1
    for name, limit in (("items", "maxItems"), ("additionalProperties", "maxProperties")):
        inner_schema = holder.get(name)
        if isinstance(inner_schema, Mapping) and isinstance(node.get(name), Mapping):
            most = node.get(limit)
            inner = declared.items if declared is not None else None
            yield inner_schema, node[name], inner, name, None if most is None else max(most, 0)


def _field(node: Schema, declared: Declared | None, name: str) -> Declared | None:
    """Return the type of a property, also of one that no expression can name."""
    said = schemas.escape(name)
    if said is not None and declared is not None:
        return declared.fields.get(said)
    inner = node["properties"][name]
    return schemas.declare(inner, is_root=bool(inner.get("x-kubernetes-embedded-resource")))


def malformed_causes(text: Mapping[str, Any], path: str, node: Schema) -> Iterator[Cause]:
    """Yield the errors in the form of a rule at a place of a schema, before it is compiled."""
    rule, message = str(text.get("rule") or ""), str(text.get("message") or "")
    if not rule.strip():
        yield _required_cause(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield _invalid(f"{path}.message", message, "message must be non-empty if specified")
    elif _LINE_BREAK.search(message.strip()):
        yield _invalid(f"{path}.message", message, "message must not contain line breaks")
    elif _LINE_BREAK.search(rule.strip()) and not message.strip():
        yield _required_cause(f"{path}.message", "message must be specified if rule contains line breaks")
    expression = text.get("messageExpression")
    if expression and not expression.strip():
        yield _required_cause(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    reason = text.get("reason")
    if reason is not None and reason not in _REASONS:
        supported = ", ".join(f'"{each}"' for each in _REASONS)
        yield Cause(
            f"{path}.reason", "FieldValueNotSupported", f'Unsupported value: "{reason}": supported values: {supported}'
        )
    where = text.get("fieldPath") or ""
    if where and not where.strip():
        yield _invalid(f"{path}.fieldPath", where, "fieldPath must be non-empty if specified")
    if _LINE_BREAK.search(where):
        yield _invalid(f"{path}.fieldPath", where, "fieldPath must not contain line breaks")
    if where and field_path(where, node) is None:
        yield _invalid(f"{path}.fieldPath", where, "fieldPath must be a valid path")


def _rule_causes(rule: Rule, path: str, often: int, uncorrelated: str, total: _Total) -> Iterator[Cause]:
    cost = min(rule.cost * often, _COST_MAX)
    if cost > RULE_ESTIMATE_MAX:
        yield _forbidden(f"{path}.rule", _too_expensive("estimated rule cost", cost, RULE_ESTIMATE_MAX))
    total.add(f"{path}.rule", cost)
    if rule.error:
        yield _invalid(f"{path}.rule", _as_go(rule.text), rule.error)
    if rule.message_error:
        yield _invalid(f"{path}.messageExpression", _as_go(rule.text), rule.message_error)
    elif rule.message is not None:
        if rule.message_cost > RULE_ESTIMATE_MAX:
            why = _too_expensive("estimated messageExpression cost", rule.message_cost, RULE_ESTIMATE_MAX)
            yield _forbidden(f"{path}.messageExpression", why)
        total.add(f"{path}.messageExpression", rule.message_cost)
    if rule.is_transition and uncorrelated:
        why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
        yield _invalid(f"{path}.rule", rule.text["rule"], why)
    elif not rule.is_transition and rule.program is not None and rule.text.get("optionalOldSelf") is not None:
        is_optional = bool(rule.text["optionalOldSelf"])
        yield _invalid(f"{path}.optionalOldSelf", is_optional, "may not be set if oldSelf is not used in rule")


def _as_go(text: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule as the API server writes it into an error."""
    return {
        "Rule": text.get("rule", ""),
        "Message": text.get("message", ""),
        "MessageExpression": text.get("messageExpression", ""),
        "Reason": text.get("reason"),
        "FieldPath": text.get("fieldPath", ""),
        "OptionalOldSelf": text.get("optionalOldSelf"),
    }


def _too_expensive(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    said = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {said} {_ADVICE}"


def _required_cause(path: str, detail: str) -> Cause:
    return Cause(path, "FieldValueRequired", f"Required value: {detail}")


def _forbidden(path: str, detail: str) -> Cause:
    return Cause(path, "FieldValueForbidden", f"Forbidden: {detail}")


def _invalid(path: str, value: Any, detail: str) -> Cause:
    shown = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Cause(path, "FieldValueInvalid", f"Invalid value: {shown}: {detail}")


# When a document is written.


@dataclass(frozen=True)
class RuleFaults:
    """Causes for refusing a document. `warnings` concern unchanged parts, which stay allowed (KEP-4008).

    `left`: the rest of the cost budget; below 0, not every rule was evaluated.
    """

    causes: list[Cause]
    warnings: list[Cause]
    left: int


class _Stop(Exception):
    """Signal to evaluate no further rule."""


@dataclass
class _Run:
    """One validation: its findings so far, and the rest of its cost budget."""

    left: int
    causes: list[Cause] = field(default_factory=list)
    warnings: list[Cause] = field(default_factory=list)

    def stop(self, path: str, kind: Any, detail: str) -> _Stop:
        self.causes.append(_invalid(path, kind, detail))
        self.left = -1
        return _Stop()


_NOTHING: Final = object()


@dataclass(frozen=True)
class _Was:
    """Earlier state of a place, for ratcheting.

    Without a value of its own: whether the surrounding value is unchanged.
    """

    value: Any = _NOTHING
    unchanged: bool = False

    @staticmethod
    def of(value: Any, now: Any) -> _Was:
        return _Was(value, value == now)

    def at(self, old: Any, now: Any) -> _Was:
        """Return the same of a part; `old` is `_NOTHING` when nothing corresponds to it."""
        return _Was(unchanged=self.unchanged) if old is _NOTHING else _Was.of(old, now)


@dataclass(frozen=True)
class Rules:
    """The rules of a schema and of its nested schemas."""

    declared: Declared
    is_root: bool
    rules: tuple[Rule, ...]
    properties: Mapping[str, Rules]
    additional: Rules | None
    items: Rules | None
    all_of: tuple[Rules, ...]

    @staticmethod
    def of(schema: Schema, *, is_root: bool = True) -> Rules | None:
        """Return the compiled rules of a schema; None if it has none. A rule that does not compile refuses every
        document.
        """
        if not _has_rules(schema):
            return None
        declared = schemas.declare(schema, is_root=is_root)
        return None if declared is None else _rules(schema, declared.schema, declared, is_root)

    def validate(self, document: Any, old: Any = None, *, path: str = "", budget: int = OBJECT_LIMIT) -> RuleFaults:
        """Evaluate the rules for a document. `old`: the stored document, for an update."""
        run = _Run(budget)
        was = _Was() if old is None else _Was.of(old, document)
        with suppress(_Stop):
            self._validate(run, path, document, old, was, is_top=True)
        return RuleFaults(run.causes, run.warnings, run.left)

    def _validate(self, run: _Run, path: str, now: Any, old: Any, was: _Was, *, is_top: bool = False) -> None:
        if now is None:
            return
        self._evaluate(run, path, now, old, was)
        for rules in self.all_of:
            rules._validate(run, path, now, old, _Was(unchanged=was.unchanged and not is_top))
        if isinstance(now, list):
            if self.items is not None:
                self._items(run, path, now, old, was)
        elif isinstance(now, Mapping):
            self._fields(run, path, now, old, was, is_top)

    def _items(self, run: _Run, path: str, now: list[Any], old: Any, was: _Was) -> None:
        assert self.items is not None
        keys = self._keys()
        before = {_key(each, keys): each for each in old} if keys and isinstance(old, list) else {}
        for place, item in enumerate(now):
            matching = before.get(_key(item, keys), _NOTHING) if keys else _NOTHING
            its_old = None if matching is _NOTHING else matching
            self.items._validate(run, f"{path}[{place}]", item, its_old, was.at(matching, item))

    def _keys(self) -> tuple[str, ...]:
        schema = self.declared.schema
        return (
            tuple(schema.get("x-kubernetes-list-map-keys") or ())
            if schema.get("x-kubernetes-list-type") == "map"
            else ()
        )

    def _fields(self, run: _Run, path: str, now: Mapping[str, Any], old: Any, was: _Was, is_top: bool) -> None:
        related = _relates(self.declared.schema)
        before = old if isinstance(old, Mapping) else {}
        for name, field_value in now.items():
            inner = self.properties.get(name) or self.additional
            if inner is None:
                continue
            matching = before.get(name, _NOTHING)
            its_was = _Was() if is_top and name in ("apiVersion", "kind") else was.at(matching, field_value)
            its_old = matching if related and matching is not _NOTHING else None
            is_property = name in self.properties
            where = (f"{path}.{name}" if path else name) if is_property else f"{path}[{name}]"
            inner._validate(run, where, field_value, its_old, its_was)

    def _evaluate(self, run: _Run, path: str, now: Any, old: Any, was: _Was) -> None:
        if not self.rules:
            return
        kind = self.declared.schema.get("type", "")
        if run.left <= 0:
            raise run.stop(path, kind, _OUT_OF_BUDGET)
        value, value_error = _convert(now, self.declared)
        old_value = None if old is None else _convert(old, self.declared)[0]
        for rule in self.rules:
            optional = bool(rule.text.get("optionalOldSelf"))
            if rule.error:
                run.causes.append(_invalid(path, kind, f"rule compile error: {rule.error}"))
            if rule.program is None or (rule.is_transition and old is None and not optional):
                continue
            given = (NONE if old is None else Optional(old_value)) if optional else old_value
            inputs = {"self": value, "oldSelf": given}
            outcome, error, cost = (None, value_error, 1) if value_error else rule.program.outcome(inputs)
            if error is not None and str(error) == CANCELLED:
                why = f"'{error}': {_SPENT} rule: {rule.label}"
                raise run.stop(path, kind, _OUT_OF_BUDGET if cost > run.left else why)
            if cost > run.left:
                raise run.stop(path, kind, _OUT_OF_BUDGET)
            run.left -= cost
            if error is not None:
                run.causes.append(_invalid(path, kind, _failure_text(error, rule)))
            elif outcome is not True:
                self._record_failure(run, rule, path, now, inputs, was)

    def _record_failure(self, run: _Run, rule: Rule, path: str, now: Any, inputs: Mapping[str, Any], was: _Was) -> None:
        """Record that a rule does not hold, with its message."""
        kind = self.declared.schema.get("type", "")
        if rule.field_path:
            path = f"{path}.{rule.field_path}" if path else rule.field_path
        ratchets = not rule.is_transition and was.unchanged
        detail = ""
        if rule.message is not None:
            text, error, cost = rule.message.outcome(inputs)
            why = ""
            if cost > run.left:
                why = _OUT_OF_BUDGET.replace("validation failed", "messageExpression evaluation failed")
            elif error is not None and str(error) == CANCELLED:
                quoted = json.dumps(rule.text["messageExpression"], ensure_ascii=False)
                why = f"{_SPENT} messageExpression: {quoted}"
            if why:
                (run.warnings if ratchets else run.causes).append(_invalid(path, kind, why))
                run.left = -1
                raise _Stop
            run.left -= cost
            if error is None and isinstance(text, str):
                message_text = text.strip()
                detail = message_text if len(utf8(message_text)) <= MESSAGE_MAX and "\n" not in message_text else ""
        if not detail:
            message = str(rule.text.get("message") or "")
            detail = message.strip() if message else f"failed rule: {rule.label}"
        (run.warnings if ratchets else run.causes).append(_cause(rule, path, now, detail))


def _convert(document: Any, declared: Declared) -> tuple[Any, EvaluationError | None]:
    try:
        return schemas.value(document, declared), None
    except EvaluationError as error:
        return None, error


def _failure_text(error: EvaluationError, rule: Rule) -> str:
    if str(error).startswith("no such overload"):
        why = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{error}': {why}: {rule.label}"
    return f"{error} evaluating rule: {rule.label}"


def _cause(rule: Rule, path: str, now: Any, detail: str) -> Cause:
    reason = rule.text.get("reason") or "FieldValueInvalid"
    if reason in _WORDS:
        return Cause(path, reason, f"{_WORDS[reason]}: {detail}")
    shown = "" if isinstance(now, Mapping | list) else json.dumps(now, ensure_ascii=False)
    if reason == "FieldValueDuplicate":
        return Cause(path, reason, f"Duplicate value: {shown}" if shown else "Duplicate value")
    return Cause(path, reason, f"Invalid value: {shown}: {detail}" if shown else f"Invalid value: {detail}")


def _relates(schema: Schema) -> bool:
    """Whether the fields of an object have those of the old object as their old values."""
    return schema.get("x-kubernetes-map-type") in (None, "granular", "atomic")


def _key(item: Any, keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(json.dumps(item.get(each)) for each in keys) if isinstance(item, Mapping) else ()


def _has_rules(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    inner = [*(schema.get("properties") or {}).values(), *(schema.get("allOf") or ())]
    return bool(schema.get(RULES)) or any(
        map(_has_rules, (*inner, schema.get("items"), schema.get("additionalProperties")))
    )


def _rules(holder: Schema, node: Schema, declared: Declared, is_root: bool) -> Rules:
    properties: dict[str, Rules] = {}
    items: dict[str, Rules] = {}
    for inner, inner_node, inner_declared, name, _ in _inner(holder, node, declared):
        if inner_declared is None or not _has_rules(inner):
            continue
        embedded = bool(inner_node.get("x-kubernetes-embedded-resource"))
        inner_rules = _rules(inner, inner_node, inner_declared, embedded)
        if name in ("items", "additionalProperties"):
            items[name] = inner_rules
        else:
            properties[name.removeprefix("properties[").removesuffix("]")] = inner_rules
    all_of = tuple(_rules(each, node, declared, is_root) for each in holder.get("allOf") or () if _has_rules(each))
    rules = compile_rules(holder.get(RULES) or (), declared)
    return Rules(declared, is_root, rules, properties, items.get("additionalProperties"), items.get("items"), all_of)


@lru_cache(maxsize=256)
def rules_of(schema: bytes) -> Rules | None:
    """Return the rules of a resource's schema, given as JSON; cached, because every write of the kind needs them."""
    return Rules.of(json.loads(schema))
