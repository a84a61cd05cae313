"""Type checking of a ValidatingAdmissionPolicy's expressions against the kinds it names:
`status.typeChecking`. Pure.

The findings are only warnings, because at a request an expression is evaluated on the actual object. Rules with
wildcards name no kind, and at most ten kinds are checked.

Source: kubernetes/kubernetes
staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/typechecking.go; KEP-3488 "Type checking".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from apiserver_fake.extensions.admission.expressions import CompileFailure, Compiler
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.schema.schemas import component_of, components
from services.api.meta import Document, Resource
from services.cel import schemas as cel_schemas
from services.cel.schemas import Declared

TYPES_MAX: Final = 10
_COMPILATION: Final = "compilation failed: "


def status_of(policy: Document, catalogue: Catalogue) -> Document:
    """Return the current status of a policy."""
    spec = policy.get("spec") or {}
    kinds = list(_kinds(spec, catalogue))[:TYPES_MAX]
    warnings: list[Document] = []
    for place, validation in enumerate(spec.get("validations") or ()):
        for name in ("expression", "messageExpression"):
            if text := validation.get(name):
                warning = "\n".join(_warnings(text, spec, kinds, has_authorizer=name == "expression"))
                if warning:
                    warnings.append({"fieldRef": f"spec.validations[{place}].{name}", "warning": warning})
    generation = int(policy["metadata"].get("generation") or 0)
    return {"observedGeneration": generation, "typeChecking": {"expressionWarnings": warnings} if warnings else {}}


def _warnings(text: str, spec: Document, kinds: list[Resource], *, has_authorizer: bool) -> Iterator[str]:
    for kind in kinds:
        compiler = Compiler(has_params="paramKind" in spec, declared=_declared_type(kind))
        for variable in spec.get("variables") or ():
            compiler.variable(variable["name"], variable["expression"])
        program = compiler.compile_expression(text, has_authorizer=has_authorizer)
        if isinstance(program, CompileFailure):
            group, version = kind.group, kind.version
            yield f"{group}/{version}, Kind={kind.kind}: {program.removeprefix(_COMPILATION)}\n"


def _kinds(spec: Document, catalogue: Catalogue) -> Iterator[Resource]:
    """Yield the kinds that rules name without wildcards."""
    seen: set[str] = set()
    for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
        named = [rule.get(name) or [] for name in ("apiGroups", "apiVersions", "resources")]
        if any("*" in each for values in named for each in values):
            continue
        for group, version, plural in ((g, v, r) for g in named[0] for v in named[1] for r in named[2]):
            served = catalogue.served_versions.get((group, version), {}).get(plural)
            if served is not None and f"{group}/{version}/{plural}" not in seen:
                seen.add(f"{group}/{version}/{plural}")
                yield served.resource


def _declared_type(kind: Resource) -> Declared | None:
    """Return the type of a kind's objects, None for one without schema."""
    name = component_of(kind.api_version, kind.kind)
    return cel_schemas.declare(_whole(name, ()), name=f"selfType.{kind.kind}") if name else None


def _whole(name: str, above: tuple[str, ...]) -> Mapping[str, Any]:
    """Return a component with what it refers to in its place; a type that contains itself ends in anything."""
    if name in above:
        return {"x-kubernetes-int-or-string": True}
    return _resolve(components().get(name) or {}, (*above, name))


def _resolve(schema: Mapping[str, Any], above: tuple[str, ...]) -> Mapping[str, Any]:
    if "$ref" in schema:
        return _whole(str(schema["$ref"]).rpartition("/")[2], above)
    if schema.get("format") in ("quantity", "int-or-string"):
        return {"x-kubernetes-int-or-string": True}
    resolved_schema = dict(schema)
    if "properties" in schema:
        resolved_schema["properties"] = {name: _resolve(each, above) for name, each in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            resolved_schema[name] = _resolve(schema[name], above)
    return resolved_schema
