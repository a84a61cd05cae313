"""ValidatingAdmissionPolicy: evaluates the validations of every bound policy. A failed validation denies
the request, adds a warning or an audit annotation. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/dispatcher.go,
validator.go; KEP-3488.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from apiserver_fake.extensions.admission.expressions import Compiled, Compiler, Evaluation, ExpressionError, OutOfBudget
from apiserver_fake.extensions.admission.policies import (
    Binding,
    ConfigurationError,
    Hook,
    Invocation,
    Policy,
    World,
    conditions_met,
    invocations,
    refusal,
)
from apiserver_fake.registry.admission.attributes import Attributes
from services.api.errors import ApiError
from services.api.meta import Document
from services.cel.types import BOOL, NULL, STRING
from services.cel.values import type_name

MESSAGE_MAX, ANNOTATION_MAX = 5 * 1024, 10 * 1024
FAILURE_KEY: Final = "validation.policy.admission.k8s.io/validation_failure"
_CODES: Final = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, "Invalid": 422}


@dataclass(frozen=True)
class Validation:
    """One expression that must be true, and the message when it is not."""

    expression: str
    program: Compiled
    message: str
    message_expression: str
    message_program: Compiled | None
    reason: str


@dataclass(frozen=True)
class Annotation:
    """One audit annotation."""

    key: str
    expression: str
    program: Compiled


@dataclass(frozen=True)
class Validating:
    """The compiled expressions of a validating policy."""

    validations: tuple[Validation, ...]
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True)
class _Failure:
    message: str
    reason: str = ""
    is_error: bool = False


@dataclass
class Outcome:
    """The policies' result for one request: denials in the order of evaluation (`denied`), warnings, audit
    annotations.
    """

    denied: list[tuple[Policy[Validating], Binding | None, _Failure]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    audit: dict[str, str] = field(default_factory=dict)


def validating(spec: Document, compiler: Compiler) -> Validating:
    """Return the compiled expressions of a policy's spec."""
    return Validating(
        tuple(_validation(each, compiler) for each in spec.get("validations") or ()),
        tuple(
            Annotation(
                each["key"], text := each["valueExpression"].strip(), compiler.compile_expression(text, STRING, NULL)
            )
            for each in spec.get("auditAnnotations") or ()
        ),
    )


def _validation(document: Document, compiler: Compiler) -> Validation:
    expression, text = document["expression"], document.get("messageExpression") or ""
    return Validation(
        expression=expression,
        program=compiler.compile_expression(expression, BOOL),
        message=document.get("message") or "",
        message_expression=text,
        message_program=compiler.compile_expression(text, STRING, has_authorizer=False) if text.strip() else None,
        reason=document.get("reason") or "Invalid",
    )


def examine(hooks: Iterable[Hook[Validating]], attributes: Attributes, world: World) -> Outcome:
    """Return the policies' result for a request."""
    outcome = Outcome()
    annotations: dict[str, list[str]] = {}
    for invocation in invocations(hooks, attributes, world):
        policy, binding = invocation.policy, invocation.binding
        if invocation.error or binding is None:
            if not policy.ignores_errors:
                outcome.denied.append((policy, binding, _Failure(invocation.error, is_error=True)))
            continue
        for place, failure in enumerate(_failures(invocation, attributes, world, annotations)):
            if failure is not None and not (failure.is_error and policy.ignores_errors):
                _act(outcome, policy, binding, place, failure)
    outcome.audit |= {key: ", ".join(values) for key, values in annotations.items()}
    return outcome


def _act(outcome: Outcome, policy: Policy[Validating], binding: Binding, place: int, failure: _Failure) -> None:
    for action in binding.actions:
        match action:
            case "Deny":
                outcome.denied.append((policy, binding, failure))
            case "Warn":
                outcome.warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with binding '{binding.name}': "
                    f"{failure.message}"
                )
            case "Audit":
                audit_entry = {
                    "message": failure.message,
                    "policy": policy.name,
                    "binding": binding.name,
                    "expressionIndex": place,
                    "validationActions": list(binding.actions),
                }
                outcome.audit.setdefault(FAILURE_KEY, msgspec.json.encode([audit_entry]).decode())


def _failures(
    invocation: Invocation[Validating], attributes: Attributes, world: World, annotations: dict[str, list[str]]
) -> Iterator[_Failure | None]:
    """Yield, for each validation in turn, why it failed; then errors of audit annotations."""
    policy = invocation.policy
    try:
        inputs = world.inputs(attributes, invocation.matched, invocation.params)
        if not conditions_met(policy, inputs):
            return
    except (ConfigurationError, ExpressionError) as error:
        yield _Failure(str(error), is_error=True)
        return
    try:
        yield from list(_validation_failures(policy, Evaluation(inputs, policy.variables)))
    except OutOfBudget as error:
        yield _Failure(str(error), is_error=True)
        return
    evaluation = Evaluation(inputs, policy.variables)
    for annotation in policy.own.annotations:
        try:
            value = evaluation.value(annotation.expression, annotation.program)
            if value is not None and not isinstance(value, str):
                raise ExpressionError(
                    f"valueExpression '{annotation.expression}' resulted in unsupported return type: "
                    f"{type_name(value)}. Return type must be either string or null."
                )
        except ExpressionError as error:
            yield _Failure(str(error), is_error=True)
            continue
        if text := (value or "").strip()[:ANNOTATION_MAX]:
            values = annotations.setdefault(f"{policy.name}/{annotation.key}", [])
            if text not in values:
                values.append(text)


def _validation_failures(policy: Policy[Validating], evaluation: Evaluation) -> Iterator[_Failure | None]:
    """Yield why each validation failed, None for those that did not. Raises: OutOfBudget."""
    results: list[tuple[Validation, _Failure | None]] = []
    for validation in policy.own.validations:
        failure: _Failure | None = None
        try:
            if evaluation.value(validation.expression, validation.program) is not True:
                failure = _Failure("", validation.reason)
        except OutOfBudget:
            raise
        except ExpressionError as error:
            failure = _Failure(str(error), is_error=True)
        results.append((validation, failure))
    for validation, failure in results:
        yield (
            failure
            if failure is None or failure.is_error
            else _Failure(_message(validation, evaluation), validation.reason)
        )


def _message(validation: Validation, evaluation: Evaluation) -> str:
    """Return what is said of a failed validation: by its messageExpression, its message, or its expression."""
    text = ""
    if validation.message_program is not None:
        try:
            value = evaluation.value(validation.message_expression, validation.message_program)
            text = value.strip() if isinstance(value, str) else ""
        except OutOfBudget:
            raise
        except ExpressionError:
            text = ""
        if len(text) > MESSAGE_MAX or "\n" in text:
            text = ""
    return text or validation.message.strip() or f"failed expression: {validation.expression.strip()}"


def denial(outcome: Outcome, attributes: Attributes) -> ApiError | None:
    """Return the refusal of a request that policies deny; None if they allow it."""
    if not outcome.denied:
        return None
    policy, binding, failure = outcome.denied[0]
    by = f" with binding '{binding.name}'" if binding is not None else ""
    text = f"ValidatingAdmissionPolicy '{policy.name}'{by} denied request: {failure.message}"
    reason = failure.reason or "Invalid"
    return refusal(attributes, text, reason, _CODES.get(reason, 422), [{"message": text}])
