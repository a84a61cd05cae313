"""Expressions of webhooks and admission policies: their declarations for compiling, and one evaluation's
budget. Pure.

`object`, `oldObject` and `params` have no declared type; `request` and `namespaceObject` have one.
`variables.NAME` is evaluated when it is first used, and its cost is charged to the expression that used it.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/admission/plugin/cel/compile.go, condition.go,
composition.go, staging/src/k8s.io/apiserver/pkg/apis/cel/config.go; KEP-3488; KEP-3962.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from services.api.meta import Document
from services.cel import schemas, times, types
from services.cel.declarations import Library, Message, of
from services.cel.environment import CANCELLED, KUBERNETES, CompileError, Environment, EvaluationError, Program
from services.cel.libraries.authorization import AUTHORIZATION, AUTHORIZER, RESOURCE_CHECK
from services.cel.libraries.messages import as_json
from services.cel.schemas import Declared
from services.cel.types import BOOL, DYN, INT, STRING, Type, list_of, map_of, object_of
from services.cel.values import Uint, register, value_of

BUDGET, CONDITIONS_BUDGET = 10_000_000, 2_500_000
"""Cost limits of one request: for all expressions of one policy, and for all its match conditions."""
CALL_LIMIT: Final = 1_000_000
OUT_OF_BUDGET: Final = "validation failed due to running out of cost budget, no further validation rules will be run"

REQUEST, NAMESPACE, VARIABLES = (
    object_of("kubernetes.AdmissionRequest"),
    object_of("kubernetes.Namespace"),
    object_of("kubernetes.variables"),
)
_OBJECTS: Final[Mapping[str, Mapping[str, Type]]] = {
    "kubernetes.AdmissionRequest": {
        "kind": object_of("kubernetes.GroupVersionKind"),
        "resource": object_of("kubernetes.GroupVersionResource"),
        "subResource": STRING,
        "requestKind": object_of("kubernetes.GroupVersionKind"),
        "requestResource": object_of("kubernetes.GroupVersionResource"),
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": object_of("kubernetes.UserInfo"),
        "dryRun": BOOL,
        "options": DYN,
    },
    "kubernetes.GroupVersionKind": {"group": STRING, "version": STRING, "kind": STRING},
    "kubernetes.GroupVersionResource": {"group": STRING, "version": STRING, "resource": STRING},
    "kubernetes.UserInfo": {
        "username": STRING,
        "uid": STRING,
        "groups": list_of(STRING),
        "extra": map_of(STRING, list_of(STRING)),
    },
    "kubernetes.Namespace": {
        "metadata": object_of("kubernetes.NamespaceMetadata"),
        "spec": object_of("kubernetes.NamespaceSpec"),
        "status": object_of("kubernetes.NamespaceStatus"),
    },
    "kubernetes.NamespaceMetadata": {
        "name": STRING,
        "generateName": STRING,
        "namespace": STRING,
        "labels": map_of(STRING, STRING),
        "annotations": map_of(STRING, STRING),
        "UID": STRING,
        "creationTimestamp": types.TIMESTAMP,
        "deletionGracePeriodSeconds": INT,
        "deletionTimestamp": types.TIMESTAMP,
        "generation": INT,
        "resourceVersion": STRING,
        "finalizers": list_of(STRING),
    },
    "kubernetes.NamespaceSpec": {"finalizers": list_of(STRING)},
    "kubernetes.NamespaceStatus": {"phase": STRING},
}

OBJECT, PATCH = object_of("Object"), object_of("JSONPatch")
_CREATED: Final = re.compile(r"\bObject(?:\.[A-Za-z_][A-Za-z0-9_]*)*(?=\s*\{)")
"""Pattern of the object types that an expression creates: `Object.spec.template{…}`."""


class _AnyField(dict[str, Type]):
    """The fields of an object without declared fields: each has the dynamic type."""

    def get(self, name: str, default: Any = None) -> Type:
        return DYN


@dataclass(frozen=True, slots=True)
class Created:
    """An object that an expression created: the name of its type, and its fields."""

    name: str
    fields: Mapping[str, Any]


register(Created, OBJECT)


def _object_message(name: str) -> Message:
    return Message(object_of(name), _AnyField(), lambda given: Created(name, dict(given)))


_PATCH_MESSAGE: Final = Message(
    PATCH, {"op": STRING, "path": STRING, "from": STRING, "value": DYN}, lambda given: Created("JSONPatch", dict(given))
)


def _escaped_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


class MutationError(ValueError):
    """The result of an expression cannot change an object; the text is upstream's."""


def plain(value: Any, path: str = "Object") -> Any:
    """Return an expression's value as JSON. Raises: MutationError for an object whose type is that of another field."""
    match value:
        case Created():
            if value.name != path and path:
                raise MutationError(
                    f'type mismatch: unexpected type name "{value.name}", expected "{path}", which matches field name '
                    "path from root Object type"
                )
            return {name: plain(each, f"{value.name}.{name}") for name, each in value.fields.items()}
        case bool() | float() | str() | None:
            return value
        case int() | Uint():
            return int(value)
        case list() | tuple():
            return [plain(each, path) for each in value]
        case Mapping():
            return {str(value_of(key)): plain(each, path) for key, each in value.items()}
    try:
        return as_json(value)
    except EvaluationError as error:
        raise MutationError(str(error)) from None


class CompileFailure(str):
    """The reason why an expression could not be compiled."""

    __slots__ = ()


Compiled = Program | CompileFailure
Spend = Callable[[int], None]


@lru_cache(maxsize=256)
def _environment(
    variables: tuple[tuple[str, Type], ...], has_params: bool, has_authorizer: bool, created: tuple[str, ...]
) -> Environment:
    return _new_environment(variables, has_params, has_authorizer, created, None)


def _new_environment(
    variables: tuple[tuple[str, Type], ...],
    has_params: bool,
    has_authorizer: bool,
    created: tuple[str, ...],
    type_: Declared | None,
) -> Environment:
    what = DYN if type_ is None else type_.type
    declared: dict[str, Type] = {
        "object": what,
        "oldObject": what,
        "request": REQUEST,
        "namespaceObject": NAMESPACE,
        "variables": VARIABLES,
    }
    if has_params:
        declared["params"] = DYN
    if has_authorizer:
        declared |= {"authorizer": AUTHORIZER, "authorizer.requestResource": RESOURCE_CHECK}
    libraries = [*KUBERNETES, *([AUTHORIZATION] if has_authorizer else [])]
    if created:
        libraries.append(_mutations(created))
    own = {} if type_ is None else schemas.objects(type_)
    objects = {**_OBJECTS, **own, VARIABLES.name: dict(variables)}
    return Environment(declared, objects=objects, libraries=libraries, cost_limit=CALL_LIMIT)


def _mutations(created: tuple[str, ...]) -> Library:
    escape = of("jsonpatch_escapeKey_string_string", (STRING,), STRING, _escaped_key)
    return Library(
        {"jsonpatch.escapeKey": (escape,)},
        messages={"JSONPatch": _PATCH_MESSAGE} | {n: _object_message(n) for n in created},
    )


class Compiler:
    """Compiles the expressions of one policy or webhook. Later expressions can use the variables compiled
    before them.
    """

    def __init__(self, *, has_params: bool, declared: Declared | None = None) -> None:
        """Start without variables. `declared`: the objects' type, for type checking; None: any type, as at a
        request.
        """
        self._has_params, self._declared = has_params, declared
        self._types: dict[str, Type] = {}
        self.variables: dict[str, tuple[str, Compiled]] = {}

    def variable(self, name: str, expression: str) -> Compiled:
        """Compile a variable and declare it for later expressions."""
        program = self.compile_expression(expression)
        self.variables[name] = (expression, program)
        self._types[name] = program.type if isinstance(program, Program) else DYN
        return program

    def compile_expression(
        self, expression: str, *wanted: Type, has_authorizer: bool = True, is_mutation: bool = False
    ) -> Compiled:
        """Return the program, or a `CompileFailure`. `wanted`: the accepted result types; empty: any."""
        created = ("Object", *sorted(set(_CREATED.findall(expression)) - {"Object"})) if is_mutation else ()
        known = tuple(self._types.items())
        if self._declared is None:
            among = _environment(known, self._has_params, has_authorizer, created)
        else:
            among = _new_environment(known, self._has_params, has_authorizer, created, self._declared)
        try:
            program = among.compile(expression)
        except CompileError as error:
            return CompileFailure(f"compilation failed: {error}")
        except EvaluationError as error:
            return CompileFailure(f"program instantiation failed: {error}")
        if wanted and program.type not in wanted:
            names = f"one of [{' '.join(map(str, wanted))}]" if len(wanted) > 1 else str(wanted[0])
            return CompileFailure(f"must evaluate to {names}")
        return program


class _Lazy(dict[str, Any]):
    """The values of variables, evaluated when they are first used."""

    def __init__(self, variables: Mapping[str, tuple[str, Compiled]], inputs: Mapping[str, Any], spend: Spend) -> None:
        super().__init__()
        self._variables, self._inputs, self._spend = variables, inputs, spend

    def __missing__(self, name: str) -> Any:
        variable = self._variables.get(name)
        if variable is None:
            raise KeyError(name)
        program = variable[1]
        if isinstance(program, CompileFailure):
            raise EvaluationError(f'composited variable "{name}" fails to compile: {program}')
        value, error, cost = program.outcome(self._inputs)
        self._spend(cost)
        if error is not None:
            raise EvaluationError(f'composited variable "{name}" fails to evaluate: {error}')
        self[name] = value
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._variables


class ExpressionError(ValueError):
    """The evaluation of an expression failed for a request; the text is upstream's."""


class OutOfBudget(ExpressionError):
    """The expressions of a policy together exceed its cost budget."""

    def __init__(self) -> None:
        super().__init__(OUT_OF_BUDGET)


class Evaluation:
    """The evaluation of one policy's expressions for one request, with the remaining budget."""

    def __init__(
        self, inputs: Mapping[str, Any], variables: Mapping[str, tuple[str, Compiled]], budget: int = BUDGET
    ) -> None:
        self._inputs = {**inputs}
        self._inputs["variables"] = _Lazy(variables, self._inputs, self._spend)
        self._left = budget

    def _spend(self, cost: int) -> None:
        self._left -= cost

    def value(self, expression: str, program: Compiled) -> Any:
        """Return the result of an expression. Raises: ExpressionError, OutOfBudget."""
        if isinstance(program, CompileFailure):
            raise ExpressionError(f"compilation error: {program}")
        value, error, cost = program.outcome(self._inputs)
        self._spend(cost)
        if self._left < 0:
            raise OutOfBudget
        if error is not None and str(error) == CANCELLED:
            raise ExpressionError(f"expression '{expression}' resulted in error: {CANCELLED}")
        if error is not None:
            raise ExpressionError(f"expression '{expression}' resulted in error: {error}")
        return value


@dataclass(frozen=True)
class Condition:
    """One match condition."""

    name: str
    expression: str
    program: Compiled


def conditions_of(holder: Document, compiler: Compiler) -> tuple[Condition, ...]:
    """Return the compiled match conditions of a webhook or of a policy's spec."""
    return tuple(
        Condition(
            str(each.get("name", "")), text := str(each.get("expression", "")), compiler.compile_expression(text, BOOL)
        )
        for each in holder.get("matchConditions") or ()
    )


def are_met(conditions: Sequence[Condition], inputs: Mapping[str, Any]) -> bool:
    """Whether all conditions are true. A false condition decides, even when others fail. Raises: ExpressionError."""
    if not conditions:
        return True
    evaluation = Evaluation(inputs, {}, CONDITIONS_BUDGET)
    wrong: list[str] = []
    for condition in conditions:
        try:
            if evaluation.value(condition.expression, condition.program) is False:
                return False
        except OutOfBudget:
            raise
        except ExpressionError as error:
            wrong.append(str(error))
    if wrong:
        unique = list(dict.fromkeys(wrong))
        raise ExpressionError(unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")
    return True


_SHOWN: Final = frozenset(
    (
        *("name", "generateName", "namespace", "labels", "annotations", "uid", "creationTimestamp", "generation"),
        *("deletionGracePeriodSeconds", "deletionTimestamp", "resourceVersion", "finalizers"),
    )
)


def namespace_object(namespace: Document | None) -> Document | None:
    """Return the value of `namespaceObject`: the fields of a namespace that expressions may read."""
    if namespace is None:
        return None
    meta = namespace["metadata"].items()
    metadata = {"UID" if name == "uid" else name: value for name, value in meta if name in _SHOWN}
    for name in ("creationTimestamp", "deletionTimestamp"):
        if name in metadata:
            metadata[name] = times.timestamp(metadata[name])
    parts = (("spec", "finalizers"), ("status", "phase"))
    shown = {
        part: {name: (namespace.get(part) or {})[name]} if name in (namespace.get(part) or {}) else {}
        for part, name in parts
    }
    return {"metadata": metadata, **shown}
