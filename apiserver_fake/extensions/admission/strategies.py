"""Write rules of webhook configurations, admission policies and their bindings: defaults and validation.

Every expression is compiled as it will be evaluated, so that a broken expression is refused here. The
generation of a webhook configuration counts changes of its webhooks.

Source: kubernetes/kubernetes pkg/apis/admissionregistration/validation/validation.go,
pkg/apis/admissionregistration/v1/defaults.go, staging/src/k8s.io/apiserver/pkg/util/webhook/validation.go.
"""

import re
from collections.abc import Iterable
from typing import Any

from apiserver_fake.extensions.admission.expressions import OBJECT, PATCH, CompileFailure, Compiler
from apiserver_fake.extensions.customresources.conversion import service_problems, url_problems
from apiserver_fake.registry.strategy import Strategy, WriteContext, declare_strategy
from apiserver_fake.registry.validation.conditions import CONDITION
from apiserver_fake.registry.validation.fields import Check, Field, Report, Struct, not_repeated, unique
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    duplicate,
    forbidden,
    invalid,
    label_1035,
    label_selector,
    not_supported,
    path_segment,
    qualified_name,
    required,
    subdomain,
    too_many,
)
from services.api.meta import Document
from services.cel.syntax import RESERVED
from services.cel.types import BOOL, NULL, STRING, Type, list_of

GROUP = "admissionregistration.k8s.io"
FAILURE_POLICIES, MATCH_POLICIES = ("Fail", "Ignore"), ("Equivalent", "Exact")
REINVOCATIONS, REASONS = ("IfNeeded", "Never"), ("Forbidden", "Invalid", "RequestEntityTooLarge")
OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
MUTATED = ("*", "CONNECT", "CREATE", "UPDATE")
"""Operations that a mutating policy may match; DELETE is not among them, since it changes no object."""
REVIEW_VERSIONS = ("v1", "v1beta1")
NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
CONDITIONS_MAX, ANNOTATIONS_MAX, VALUE_EXPRESSION_MAX = 64, 20, 5 * 1024
_LINE_BREAK = re.compile(r"[\n\r]+")
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = RESERVED | {"true", "false", "null", "in"}


def _wildcard(values: list[str], path: str, what: str) -> Causes:
    if len(values) > 1 and "*" in values:
        yield invalid(path, values, f"if '*' is present, must not specify other {what}")


def _groups(values: list[str], path: str, report: Report) -> Causes:
    return _wildcard(values, path, "API groups")


def _versions(values: list[str], path: str, report: Report) -> Causes:
    yield from _wildcard(values, path, "API versions")
    yield from [required(f"{path}[{place}]") for place, each in enumerate(values) if not each]


def _operations(values: list[str], path: str, report: Report) -> Causes:
    return _wildcard(values, path, "operations")


def _resources(values: list[str], path: str, report: Report) -> Causes:
    with_all_below: set[str] = set()
    below_all: set[str] = set()
    is_plain = False
    for place, pattern in enumerate(values):
        here = f"{path}[{place}]"
        if not pattern:
            yield required(here)
            continue
        resource, slash, below = pattern.partition("/")
        if not slash:
            is_plain = pattern != "*"
            continue
        if resource in with_all_below:
            yield invalid(here, pattern, f"if '{resource}/*' is present, must not specify {pattern}")
        if below in below_all:
            yield invalid(here, pattern, f"if '*/{below}' is present, must not specify {pattern}")
        if below == "*":
            with_all_below.add(resource)
        if resource == "*":
            below_all.add(below)
    if len(values) > 1 and "*/*" in values:
        yield invalid(path, values, "if '*/*' is present, must not specify other resources")
    if "*" in values and is_plain:
        yield invalid(path, values, "if '*' is present, must not specify other resources without subresources")


OPERATION = Field("operations", required=True, missing=[], rule=_operations, items=Field(enum=OPERATIONS))
RULE_FIELDS = (
    OPERATION,
    Field("apiGroups", required=True, missing=[], rule=_groups),
    Field("apiVersions", required=True, missing=[], rule=_versions),
    Field("resources", required=True, missing=[], rule=_resources),
    Field("scope", default="*", enum=("*", "Cluster", "Namespaced")),
)


def _segment(value: str, path: str, report: Report) -> Causes:
    yield from path_segment(path, value)
    yield from not_repeated(value, path, report)


NAMED_RULE = Struct(Field("resourceNames", items=Field(rule=_segment)), *RULE_FIELDS)


def _webhook_name(value: str, path: str, report: Report) -> Causes:
    causes = subdomain(path, value)
    yield from causes
    if not causes and value.count(".") < 2:
        yield invalid(path, value, "should be a domain with at least three segments separated by dots")


def _client(config: Document, path: str, report: Report) -> Causes:
    url, service = config.get("url"), config.get("service")
    if (url is None) is (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from url_problems(url, f"{path}.url")
    else:
        yield from service_problems(service or {}, f"{path}.service")


def _review_versions(values: list[str], path: str, report: Report) -> Causes:
    if not values:
        yield required(path, f"must specify one of {', '.join(REVIEW_VERSIONS)}")
        return
    seen: set[str] = set()
    for place, version in enumerate(values):
        if version in seen:
            yield invalid(f"{path}[{place}]", version, "duplicate version")
            continue
        seen.add(version)
        yield from label_1035(f"{path}[{place}]", version)
    if not seen.intersection(REVIEW_VERSIONS):
        yield invalid(path, values, f"must include at least one of {', '.join(REVIEW_VERSIONS)}")


def _match_conditions(conditions: list[Document], path: str, compiler: Compiler) -> Causes:
    yield from too_many(path, len(conditions), CONDITIONS_MAX)
    names: set[str] = set()
    for place, condition in enumerate(conditions):
        here, name, expression = (
            f"{path}[{place}]",
            condition.get("name") or "",
            (condition.get("expression") or "").strip(),
        )
        if not expression:
            yield required(f"{here}.expression")
        else:
            yield from _expression(f"{here}.expression", expression, compiler, BOOL)
        if not name:
            yield required(f"{here}.name")
            continue
        yield from qualified_name(f"{here}.name", name)
        if name in names:
            yield duplicate(f"{here}.name", name)
        names.add(name)


def _expression(
    path: str,
    expression: str,
    compiler: Compiler,
    *wanted: Type,
    has_authorizer: bool = True,
    is_mutation: bool = False,
) -> Causes:
    program = compiler.compile_expression(expression, *wanted, has_authorizer=has_authorizer, is_mutation=is_mutation)
    if isinstance(program, CompileFailure):
        yield invalid(path, expression, str(program))


def _conditions_of_webhook(conditions: list[Document], path: str, report: Report) -> Causes:
    return _match_conditions(conditions, path, Compiler(has_params=False))


HOOK_FIELDS = (
    Field("name", required=True, rule=_webhook_name),
    Field("rules", items=Struct(*RULE_FIELDS)),
    Field("failurePolicy", default="Fail", enum=FAILURE_POLICIES),
    Field("matchPolicy", default="Equivalent", enum=MATCH_POLICIES),
    Field("sideEffects", required=f"must specify one of {', '.join(NO_SIDE_EFFECTS)}", enum=NO_SIDE_EFFECTS),
    Field(
        "timeoutSeconds", default=10, minimum=1, maximum=30, text="the timeout value must be between 1 and 30 seconds"
    ),
    Field("namespaceSelector", default={}, form=label_selector),
    Field("objectSelector", default={}, form=label_selector),
)
HOOK_END = (
    Field(
        "clientConfig",
        missing={},
        rule=_client,
        is_checked=False,
        struct=Struct(Field("service", struct=Struct(Field("port", default=443)))),
    ),
    Field("matchConditions", rule=_conditions_of_webhook),
    Field("admissionReviewVersions", missing=[], rule=_review_versions),
    unique("name", is_empty_a_key=False),
)
VALIDATING_HOOK = Struct(*HOOK_FIELDS, *HOOK_END)
MUTATING_HOOK = Struct(*HOOK_FIELDS, Field("reinvocationPolicy", default="Never", enum=REINVOCATIONS), *HOOK_END)


def _create_configuration(new: Document, ctx: WriteContext) -> None:
    new["metadata"] = {**new["metadata"], "generation": 1}


def _update_configuration(old: Document, new: Document, ctx: WriteContext) -> None:
    generation = int(old["metadata"].get("generation") or 0) + (old.get("webhooks") != new.get("webhooks"))
    new["metadata"] = {**new["metadata"], "generation": generation}


def _configuration(hook: Struct) -> Strategy:
    return declare_strategy(
        Struct(Field("webhooks", items=hook)), on_create=_create_configuration, on_update=_update_configuration
    )


MATCH_RESOURCES = Struct(
    Field("matchPolicy", default="Equivalent", enum=MATCH_POLICIES),
    Field("namespaceSelector", default={}, form=label_selector),
    Field("objectSelector", default={}, form=label_selector),
    Field("resourceRules", items=NAMED_RULE),
    Field("excludeResourceRules", items=NAMED_RULE),
)


def _some_rules(spec: Document, at: str, report: Report) -> Causes:
    if spec.get("matchConstraints") is None:
        yield required(f"{at}matchConstraints")
    elif not spec["matchConstraints"].get("resourceRules"):
        yield required(f"{at}matchConstraints.resourceRules")


def _only_mutated(member: str) -> Check:
    """Return a rule for the operations of a mutating policy or its binding, after all others about `member`."""

    def check(spec: Document, at: str, report: Report) -> Causes:
        for rule in (spec.get(member) or {}).get("resourceRules") or ():
            for each in rule.get("operations") or ():
                if each not in MUTATED:
                    yield not_supported(f"{at}{member}.resourceRules.operations", each, MUTATED)

    return check


def _param_kind(kind: Document, path: str, report: Report) -> Causes:
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    group, _, short = version.rpartition("/")
    here = f"{path}.apiVersion"
    if not version:
        yield required(here)
    elif version.count("/") > 1:
        yield invalid(here, version, f"unexpected GroupVersion string: {version}")
    else:
        yield from subdomain(here, group) if group else ()
        yield from label_1035(here, short) if short else [invalid(here, version, "version must be specified")]
    if not name:
        yield required(f"{path}.kind")
    elif wrong := label_1035(f"{path}.kind", name.lower()):
        why = wrong[0].message.split(": ", 2)[2]
        yield invalid(f"{path}.kind", name, f"may have mixed case, but should otherwise match: {why}")


def _shared_rules(spec: Document, at: str, compiler: Compiler) -> Causes:
    yield from _match_conditions(
        spec.get("matchConditions") or [], f"{at}matchConditions", Compiler(has_params=bool(spec.get("paramKind")))
    )
    for place, variable in enumerate(spec.get("variables") or ()):
        here, name, expression = f"{at}variables[{place}]", variable.get("name") or "", variable.get("expression") or ""
        if not name.strip():
            yield required(f"{here}.name", "name is not specified")
        elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
            yield invalid(f"{here}.name", name, "name is not a valid CEL identifier")
        if not expression.strip():
            yield required(f"{here}.expression", "expression is not specified")
        elif isinstance(program := compiler.variable(name, expression), CompileFailure):
            yield invalid(f"{here}.expression", expression, str(program))


def _validating(spec: Document, at: str, report: Report) -> Causes:
    compiler = Compiler(has_params=bool(spec.get("paramKind")))
    yield from _shared_rules(spec, at, compiler)
    validations, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
    if not validations and not annotations:
        why = "validations or auditAnnotations must contain at least one item"
        yield required(f"{at}validations", why)
        yield required(f"{at}auditAnnotations", why)
        return
    for place, entry in enumerate(validations):
        yield from _validation(entry, f"{at}validations[{place}]", compiler)
    if len(annotations) > ANNOTATIONS_MAX:
        why = f"must not have more than {ANNOTATIONS_MAX} auditAnnotations"
        yield invalid(f"{at}auditAnnotations", annotations, why)
    keys: set[str] = set()
    for place, entry in enumerate(annotations):
        here, key = f"{at}auditAnnotations[{place}]", entry.get("key") or ""
        yield from _annotation(entry, here, str(report.scope or ""), compiler)
        if key in keys:
            yield duplicate(f"{here}.key", key)
        keys.add(key)


def _validation(validation: Document, path: str, compiler: Compiler) -> Causes:
    expression, text = validation.get("expression") or "", validation.get("messageExpression") or ""
    message, reason = validation.get("message") or "", validation.get("reason")
    if not expression.strip():
        yield required(f"{path}.expression", "expression is not specified")
    else:
        yield from _expression(f"{path}.expression", expression, compiler, BOOL)
    if text and not text.strip():
        yield invalid(f"{path}.messageExpression", text, "must be non-empty if specified")
    elif text:
        yield from _expression(f"{path}.messageExpression", text, compiler, STRING, has_authorizer=False)
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "message must be non-empty if specified")
    elif _LINE_BREAK.search(message.strip()):
        yield invalid(f"{path}.message", message, "message must not contain line breaks")
    if reason is not None and reason not in REASONS:
        supported = ", ".join(f'"{one}"' for one in REASONS)
        text = f'Unsupported value: "{reason}": supported values: {supported}'
        yield Cause(f"{path}.reason", "FieldValueNotSupported", text)


def _annotation(annotation: Document, path: str, policy: str, compiler: Compiler) -> Causes:
    key, expression = annotation.get("key") or "", (annotation.get("valueExpression") or "").strip()
    if policy:
        yield from qualified_name(f"{path}.key", f"{policy}/{key}")
    else:
        yield invalid(f"{path}.key", key, "requires metadata.name be non-empty")
    if not expression:
        yield required(f"{path}.valueExpression", "valueExpression is not specified")
    elif len(expression) > VALUE_EXPRESSION_MAX:
        yield required(f"{path}.valueExpression", f"must not exceed {VALUE_EXPRESSION_MAX} bytes in length")
    else:
        yield from _expression(f"{path}.valueExpression", expression, compiler, STRING, NULL)


_PATCHES: dict[str, tuple[str, Type]] = {
    "ApplyConfiguration": ("applyConfiguration", OBJECT),
    "JSONPatch": ("jsonPatch", list_of(PATCH)),
}


def _mutating(spec: Document, at: str, report: Report) -> Causes:
    compiler = Compiler(has_params=bool(spec.get("paramKind")))
    yield from _shared_rules(spec, at, compiler)
    mutations = spec.get("mutations") or []
    if not mutations:
        yield required(f"{at}mutations", "mutations must contain at least one item")
    for place, mutation in enumerate(mutations):
        here, kind = f"{at}mutations[{place}]", mutation.get("patchType") or ""
        if kind not in _PATCHES:
            supported = ", ".join(f'"{one}"' for one in _PATCHES)
            text = f'Unsupported value: "{kind}": supported values: {supported}'
            is_missing = Cause(f"{here}.patchType", "FieldValueRequired", "Required value")
            yield Cause(f"{here}.patchType", "FieldValueNotSupported", text) if kind else is_missing
            continue
        name, wanted = _PATCHES[kind]
        if mutation.get(name) is None:
            yield required(f"{here}.{name}", f"must be specified when patchType is {kind}")
        elif not (expression := (mutation[name].get("expression") or "").strip()):
            yield required(f"{here}.{name}.expression")
        else:
            yield from _expression(f"{here}.{name}.expression", expression, compiler, wanted, is_mutation=True)
        for other, (member, _) in _PATCHES.items():
            if other != kind and mutation.get(member) is not None:
                why = f"must not be specified when patchType is {kind}"
                yield invalid(f"{here}.{member}", f"{{{member}}}", why)


def _with_name(document: Document, at: str, report: Report) -> Causes:
    report.scope = document["metadata"].get("name")
    return ()


SHARED = (
    Field("failurePolicy", default="Fail", enum=FAILURE_POLICIES),
    Field("paramKind", rule=_param_kind),
    Field("matchConstraints", struct=MATCH_RESOURCES),
    _some_rules,
)
VALIDATING_POLICY = Struct(_with_name, Field("spec", missing={}, struct=Struct(*SHARED, _validating)))
WARNING = Struct(Field("warning", required=True), Field("fieldRef", required=True))
POLICY_STATUS = Struct(
    Field("typeChecking", struct=Struct(Field("expressionWarnings", items=WARNING))),
    Field("conditions", items=CONDITION),
)
MUTATING_POLICY = Struct(
    Field(
        "spec",
        missing={},
        struct=Struct(
            *SHARED,
            _only_mutated("matchConstraints"),
            _mutating,
            Field("reinvocationPolicy", default="Never", enum=REINVOCATIONS, is_blank_absent=True),
        ),
    )
)


def _param_ref(ref: Document, path: str, report: Report) -> Causes:
    name, selector, action = ref.get("name") or "", ref.get("selector"), ref.get("parameterNotFoundAction")
    both = "name and selector are mutually exclusive"
    if name:
        yield from path_segment(f"{path}.name", name)
    if name and selector is not None:
        yield forbidden(f"{path}.name", both)
    if selector is not None:
        yield from label_selector(f"{path}.selector", selector)
        if name:
            yield forbidden(f"{path}.selector", both)
    elif not name:
        yield required(path, "one of name or selector must be specified")
    if not action:
        yield required(f"{path}.parameterNotFoundAction")
    elif action not in ("Allow", "Deny"):
        text = f'Unsupported value: "{action}": supported values: "Deny", "Allow"'
        yield Cause(f"{path}.parameterNotFoundAction", "FieldValueNotSupported", text)


def _actions(values: Iterable[str], path: str, report: Report) -> Causes:
    actions = list(values)
    if "Deny" in actions and "Warn" in actions:
        yield invalid(
            path,
            actions,
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)",
        )
    if not actions:
        yield required(path, "at least one validation action is required")


def _binding(*others: Any) -> Strategy:
    spec = Struct(
        Field("policyName", required=True, form=subdomain),
        Field("paramRef", rule=_param_ref),
        Field("matchResources", struct=MATCH_RESOURCES),
        *others,
    )
    return declare_strategy(Struct(Field("spec", missing={}, struct=spec)))


ACTION = Field(enum=("Audit", "Deny", "Warn"), rule=not_repeated)
STRATEGIES = {
    f"validatingwebhookconfigurations.{GROUP}": _configuration(VALIDATING_HOOK),
    f"mutatingwebhookconfigurations.{GROUP}": _configuration(MUTATING_HOOK),
    f"validatingadmissionpolicies.{GROUP}": declare_strategy(VALIDATING_POLICY, has_status=True, status=POLICY_STATUS),
    f"validatingadmissionpolicybindings.{GROUP}": _binding(
        Field("validationActions", missing=[], items=ACTION), Field("validationActions", missing=[], rule=_actions)
    ),
    f"mutatingadmissionpolicies.{GROUP}": declare_strategy(MUTATING_POLICY),
    f"mutatingadmissionpolicybindings.{GROUP}": _binding(_only_mutated("matchResources")),
}
