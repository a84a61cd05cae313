"""MutatingAdmissionPolicy: expressions that change an object, as apply configurations or JSON patches.
Pure.

An apply configuration is merged as the object's schema says. It may not set an atomic list, map or struct,
because that would remove the members it does not name. A JSON patch whose `test` fails changes nothing.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go,
patch/smd.go, patch/json_patch.go; KEP-3962.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from apiserver_fake.extensions.admission.expressions import (
    OBJECT,
    PATCH,
    Compiled,
    Compiler,
    Evaluation,
    ExpressionError,
    MutationError,
    plain,
)
from apiserver_fake.extensions.admission.policies import (
    ConfigurationError,
    Hook,
    Invocation,
    Policy,
    World,
    conditions_met,
    invocations,
    refusal,
)
from apiserver_fake.registry.admission.attributes import Attributes, Complete
from apiserver_fake.registry.patch.json_patch import json_patch
from apiserver_fake.registry.schema.schemas import ANYTHING, Shape
from services.api.errors import ApiError
from services.api.meta import Document
from services.cel.types import list_of

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Mutation:
    """One expression that changes an object; `is_patch`: it yields a JSON patch."""

    expression: str
    program: Compiled
    is_patch: bool


@dataclass(frozen=True)
class Mutating:
    """The compiled expressions of a mutating policy."""

    mutations: tuple[Mutation, ...]


@dataclass
class Mutated:
    """The result of mutation. `object`: the object after the last change.

    `again`: evaluations to repeat if something else changes the object. `due`: those to repeat because the object
    has already changed after them.
    """

    object: Document
    again: dict[Key, None] = field(default_factory=dict)
    due: dict[Key, None] = field(default_factory=dict)
    errors: list[tuple[str, str]] = field(default_factory=list)


def mutating(spec: Document, compiler: Compiler) -> Mutating:
    """Return the compiled expressions of a policy's spec."""
    mutations = []
    for mutation in spec.get("mutations") or ():
        is_patch = mutation["patchType"] == "JSONPatch"
        expression = (mutation.get("jsonPatch" if is_patch else "applyConfiguration") or {}).get("expression", "")
        wanted = list_of(PATCH) if is_patch else OBJECT
        mutations.append(
            Mutation(expression, compiler.compile_expression(expression, wanted, is_mutation=True), is_patch)
        )
    return Mutating(tuple(mutations))


def mutate(
    hooks: Iterable[Hook[Mutating]],
    attributes: Attributes,
    world: World,
    complete: Complete,
    only: Container[Key] | None = None,
) -> Mutated:
    """Return the request's object as the policies change it. `only`: the keys of evaluations to repeat, in a
    reinvocation.

    Raises: ApiError when a policy that does not ignore errors fails.
    """
    assert attributes.object is not None
    result = Mutated(attributes.object)
    for invocation in list(invocations(hooks, attributes, world)):
        if only is not None and invocation.key not in only:
            continue
        if invocation.error:
            _fail(result, invocation, invocation.error, "")
            continue
        before = result.object
        _perform(invocation, replace(attributes, object=before), world, complete, result)
        if result.object != before:
            result.due |= result.again
        if invocation.policy.is_reinvoked:
            result.again[invocation.key] = None
    if result.errors:
        causes: list[Document] = [{"message": text} for text, _ in result.errors]
        text, reason = result.errors[0]
        refused = refusal(attributes, text, reason or "Forbidden", 403, causes)
        refused.message = text
        raise refused
    return result


def _fail(result: Mutated, each: Invocation[Mutating], why: str, reason: str) -> None:
    if each.policy.ignores_errors:
        return
    name = each.policy.name
    by = f"'{name}' with binding '{each.binding.name}'" if each.binding is not None else f'"{name}"'
    result.errors.append((f"policy {by} denied request: {why}", reason))


def _perform(
    invocation: Invocation[Mutating], attributes: Attributes, world: World, complete: Complete, result: Mutated
) -> None:
    policy: Policy[Mutating] = invocation.policy
    try:
        if not conditions_met(policy, world.inputs(attributes, invocation.matched, invocation.params)):
            return
    except (ConfigurationError, ExpressionError) as error:
        _fail(result, invocation, str(error), "Invalid")
        return
    shape = world.shape_in(attributes, invocation.matched)
    for mutation in policy.own.mutations:
        now = replace(attributes, object=result.object)
        try:
            inputs = world.inputs(now, invocation.matched, invocation.params)
            value = Evaluation(inputs, policy.variables).value(mutation.expression, mutation.program)
            changed = (
                _apply_patch(inputs["object"], value)
                if mutation.is_patch
                else _apply_configuration(inputs["object"], value, shape)
            )
            result.object = complete(world.as_stored(now, changed, invocation.matched))
        except (ConfigurationError, ExpressionError, MutationError) as error:
            _fail(result, invocation, str(error), "Invalid")


def _apply_patch(document: Document, operations: Any) -> Document:
    patch = [
        {name: plain(value, "") for name, value in each.fields.items() if name != "from" or value}
        for each in operations
    ]
    try:
        patched_object: Document = json_patch(document, patch)
    except ApiError as error:
        why = str((error.details.get("causes") or [{}])[0].get("message") or error.message)
        if why.startswith("testing value"):
            return document
        raise MutationError(f"JSONPath: {why}") from None
    return patched_object


def _apply_configuration(document: Document, value: Any, shape: Shape) -> Document:
    """Return the object with an apply configuration merged into it. Raises: MutationError."""
    config = plain(value)
    assert isinstance(config, dict)
    if wrong := next(_undeclared_field_errors(config, shape, ""), None):
        raise MutationError(f"error applying patch: failed to convert patch object to typed object: {wrong}")
    if atomic := list(_atomics(config, shape, "")):
        why = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise MutationError(f"error applying patch: invalid ApplyConfiguration: {why}")
    return {**merge_by_schema(document, config, shape)}


def _undeclared_field_errors(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if isinstance(value, dict) and shape.fields is not None:
        for name, child in value.items():
            if name not in shape.fields:
                yield f"{path}.{name}: field not declared in schema"
            else:
                yield from _undeclared_field_errors(child, shape.fields[name], f"{path}.{name}")
    elif isinstance(value, list):
        for place, child in enumerate(value):
            yield from _undeclared_field_errors(child, shape.items or ANYTHING, f"{path}[{place}]")


def _atomics(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        if shape.is_atomic:
            yield path
        for name, child in value.items():
            yield from _atomics(child, shape.member(name), f"{path}.{name}")
    elif isinstance(value, list):
        if shape.type == "array" and shape.list_type not in ("map", "set"):
            yield path
        for place, child in enumerate(value):
            yield from _atomics(child, shape.items or ANYTHING, f"{path}[{place}]")


def merge_by_schema(live: Any, wanted: Any, shape: Shape) -> Any:
    """Return `live` merged with every field that `wanted` names: objects member by member, lists as their
    schema says.
    """
    if isinstance(wanted, dict) and not shape.is_atomic:
        base = dict(live) if isinstance(live, dict) else {}
        for name, entry in wanted.items():
            base[name] = merge_by_schema(base.get(name), entry, shape.member(name))
        return base
    if isinstance(wanted, list) and shape.list_type == "set":
        known = live if isinstance(live, list) else []
        return [*known, *(each for each in wanted if each not in known)]
    if isinstance(wanted, list) and shape.list_type == "map":
        items = list(live) if isinstance(live, list) else []
        places = {_key(each, shape): place for place, each in enumerate(items)}
        for entry in wanted:
            place = places.get(_key(entry, shape))
            if place is None:
                items.append(merge_by_schema(None, entry, shape.items or ANYTHING))
            else:
                items[place] = merge_by_schema(items[place], entry, shape.items or ANYTHING)
        return items
    return wanted


def _key(item: Any, shape: Shape) -> tuple[Any, ...]:
    # A port without a protocol is a TCP port: the defaults of keys are part of upstream's schema.
    defaults = {"protocol": "TCP"}
    return tuple(item.get(name, defaults.get(name)) for name in shape.map_keys) if isinstance(item, dict) else (item,)
