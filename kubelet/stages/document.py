"""Stage documents as KWOK publishes them, read and checked: every error names file, stage and path. Pure.

Both forms are read: `next` with `statusTemplate` or `patches`, expressions as plain texts (KWOK up to v0.7),
and `steps` with expressions below `jq` (KWOK since). Source: KWOK `kwok.x-k8s.io/v1alpha1` Stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import msgspec

from kubelet.stages import yaml_text
from kubelet.stages.jq import JqError, Query
from kubelet.stages.selectors import OPERATORS, Requirement, Selector
from kubelet.stages.stage import Delay, Event, Finalizers, Patch, PatchType, Stage, Step
from kubelet.stages.template_tree import TemplateError
from kubelet.stages.templates import Template

API_VERSION = "kwok.x-k8s.io/v1alpha1"
KINDS = ("Pod", "Node")
M = TypeVar("M")


class StageError(ValueError):
    """A stage file that cannot be used."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base: camelCase, unknown fields are an error that names them."""


class _ResourceRef(_Part, frozen=True):
    kind: str
    api_group: str = "v1"


class _JqRequirement(_Part, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class _Requirement(_Part, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()
    jq: _JqRequirement | None = None
    cel: Any = None


class _Selector(_Part, frozen=True):
    match_labels: dict[str, str] | None = None
    match_annotations: dict[str, str] | None = None
    match_expressions: tuple[_Requirement, ...] | None = None


class _JqExpression(_Part, frozen=True):
    expression: str


class _From(_Part, frozen=True):
    expression_from: str = ""
    jq: _JqExpression | None = None
    cel: Any = None


class _Delay(_Part, frozen=True):
    duration_milliseconds: int | None = None
    duration_from: _From | None = None
    jitter_duration_milliseconds: int | None = None
    jitter_duration_from: _From | None = None


EventType = Literal["Normal", "Warning"]


class _Event(_Part, frozen=True):
    type: EventType = "Normal"
    reason: str = ""
    message: str = ""


class _Finalizer(_Part, frozen=True):
    value: str


class _Finalizers(_Part, frozen=True):
    add: tuple[_Finalizer, ...] | None = None
    remove: tuple[_Finalizer, ...] | None = None
    empty: bool = False


class _Patch(_Part, frozen=True):
    subresource: str = ""
    root: str = ""
    template: str = ""
    type: PatchType | None = None
    impersonation: Any = None


class _Step(_Part, frozen=True):
    event: _Event | None = None
    finalizers: _Finalizers | None = None
    delete: bool = False
    patch: _Patch | None = None


class _Next(_Part, frozen=True):
    event: _Event | None = None
    finalizers: _Finalizers | None = None
    delete: bool = False
    patches: tuple[_Patch, ...] | None = None
    status_template: str = ""
    status_subresource: str | None = None
    status_patch_as: Any = None


class _Spec(_Part, frozen=True):
    resource_ref: _ResourceRef
    selector: _Selector | None = None
    weight: int = 0
    weight_from: _From | None = None
    delay: _Delay | None = None
    next: _Next | None = None
    steps: tuple[_Step, ...] | None = None
    immediate_next_stage: bool | None = None


def read_stages(files: Iterable[tuple[str, str]]) -> tuple[Stage, ...]:
    """Return the stages of (file name, text) in order; those without a selector are for nothing and left out.

    Raises: StageError naming file, stage and path.
    """
    found: list[Stage] = []
    sources: dict[str, str] = {}
    for file, text in files:
        try:
            documents = list(yaml_text.load_all(text))
        except ValueError as error:
            raise StageError(f"{file}: {error}") from None
        for number, document in enumerate(documents, 1):
            if document is None:
                continue
            name, stage = _read(document, file, number)
            if name in sources:
                raise StageError(f"{file}: stage {name}: is in {sources[name]} already")
            sources[name] = file
            if stage is not None:
                found.append(stage)
    if not sources:
        raise StageError(f"{', '.join(file for file, _ in files) or 'no file'}: there is no stage in it")
    return tuple(found)


def load_stages(paths: Iterable[str]) -> tuple[Stage, ...]:
    """Return the stages of these files; none for no files. Raises: StageError, also when one cannot be read."""
    files: list[tuple[str, str]] = []
    for path in paths:
        try:
            files.append((path, Path(path).read_text()))
        except (OSError, UnicodeDecodeError) as error:
            raise StageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return read_stages(files) if files else ()


def _read(document: Any, file: str, number: int) -> tuple[str, Stage | None]:
    if not isinstance(document, dict):
        raise StageError(f"{file}: document {number}: want a Stage, found {type(document).__name__}")
    if document.get("kind") != "Stage" or document.get("apiVersion") != API_VERSION:
        raise StageError(
            f"{file}: document {number}: want {API_VERSION} Stage, "
            f"found {document.get('apiVersion')} {document.get('kind')}"
        )
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not name or not isinstance(name, str):
        raise StageError(f"{file}: document {number}: metadata.name: a stage wants a name")
    try:
        spec = msgspec.convert(document.get("spec"), _Spec)
        return name, _stage(spec, name, file)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        raise StageError(f"{file}: stage {name}: spec{where.rstrip('`')}: {_with_choices(message, where)}") from None
    except _PathError as error:
        raise StageError(f"{file}: stage {name}: {error}") from None


def _with_choices(message: str, where: str) -> str:
    """Return a decoder's complaint, with what may stand there where only certain words may."""
    if not message.startswith("Invalid enum value"):
        return message
    choices = get_args(EventType if where.rstrip("`").endswith(".event.type") else PatchType)
    return f"{message}, want one of {', '.join(choices)}"


class _PathError(ValueError):
    def __init__(self, path: str, message: object) -> None:
        super().__init__(f"{path}: {message}")


def _made(path: str, make: Callable[[str], M], text: str) -> M:
    try:
        return make(text)
    except (JqError, TemplateError) as error:
        raise _PathError(path, error) from None


def _stage(spec: _Spec, name: str, file: str) -> Stage | None:
    if spec.resource_ref.api_group not in ("v1", "") or spec.resource_ref.kind not in KINDS:
        what = f"{spec.resource_ref.api_group} {spec.resource_ref.kind}"
        raise _PathError("spec.resourceRef", f"{what} is not supported; v1 Pod and v1 Node are")
    if (spec.next is None) == (spec.steps is None):
        raise _PathError("spec", "want either next or steps")
    if spec.weight < 0:
        raise _PathError("spec.weight", f"{spec.weight}, want 0 or more")
    if spec.next is not None:
        steps = _next(spec.next)
    else:
        steps = tuple(_step(each, f"spec.steps[{i}]") for i, each in enumerate(spec.steps or ()))
    selector = _selector(spec.selector) if spec.selector is not None else None
    delay = _delay(spec.delay) if spec.delay is not None else None
    weight_from = _query(spec.weight_from, "spec.weightFrom")
    if selector is None:
        return None
    return Stage(
        name,
        file,
        spec.resource_ref.kind,
        selector,
        steps,
        spec.weight,
        weight_from,
        delay,
        bool(spec.immediate_next_stage),
    )


# --- selector, delay ---


def _selector(selector: _Selector) -> Selector:
    return Selector(
        tuple(sorted((selector.match_labels or {}).items())),
        tuple(sorted((selector.match_annotations or {}).items())),
        tuple(
            _requirement(each, f"spec.selector.matchExpressions[{i}]")
            for i, each in enumerate(selector.match_expressions or ())
        ),
    )


def _requirement(given: _Requirement, path: str) -> Requirement:
    if given.cel is not None:
        raise _PathError(f"{path}.cel", "CEL is not supported; jq expressions are")
    plain = given.jq or given
    if given.jq is not None:
        if given.key or given.operator or given.values:
            raise _PathError(path, "want either jq or key, operator and values")
        path += ".jq"
    if not plain.key:
        raise _PathError(f"{path}.key", "want an expression")
    if plain.operator not in OPERATORS:
        raise _PathError(f"{path}.operator", f"{plain.operator!r}, want one of {', '.join(OPERATORS)}")
    if plain.operator in ("In", "NotIn") and not plain.values:
        raise _PathError(f"{path}.values", f"{plain.operator} wants at least one")
    if plain.operator not in ("In", "NotIn") and plain.values:
        raise _PathError(f"{path}.values", f"{plain.operator} wants none")
    return Requirement(_made(f"{path}.key", Query, plain.key), plain.operator, plain.values)


def _query(given: _From | None, path: str) -> Query | None:
    if given is None:
        return None
    if given.cel is not None:
        raise _PathError(f"{path}.cel", "CEL is not supported; jq expressions are")
    if given.jq is not None and given.expression_from:
        raise _PathError(path, "want either expressionFrom or jq, not both")
    if given.jq is not None:
        return _made(f"{path}.jq.expression", Query, given.jq.expression)
    if not given.expression_from:
        raise _PathError(path, "want expressionFrom or jq")
    return _made(f"{path}.expressionFrom", Query, given.expression_from)


def _delay(given: _Delay) -> Delay:
    def seconds(milliseconds: int | None, path: str) -> float | None:
        if milliseconds is not None and milliseconds < 0:
            raise _PathError(path, f"{milliseconds}, want 0 or more")
        return None if milliseconds is None else milliseconds / 1000

    return Delay(
        seconds(given.duration_milliseconds, "spec.delay.durationMilliseconds"),
        _query(given.duration_from, "spec.delay.durationFrom"),
        seconds(given.jitter_duration_milliseconds, "spec.delay.jitterDurationMilliseconds"),
        _query(given.jitter_duration_from, "spec.delay.jitterDurationFrom"),
    )


# --- steps ---


def _next(given: _Next) -> tuple[Step, ...]:
    first = Step(_event(given.event, "spec.next.event"), _finalizers(given.finalizers), deletes=given.delete)
    if given.status_patch_as is not None:
        raise _PathError("spec.next.statusPatchAs", "patches in another's name are not supported")
    patches: list[Patch] = []
    if given.status_template:
        subresource = "status" if given.status_subresource is None else given.status_subresource
        _check_subresource(subresource, "spec.next.statusSubresource")
        template = _made("spec.next.statusTemplate", Template, given.status_template)
        patches.append(Patch(template, subresource=subresource, root="status"))
    patches += [_patch(each, f"spec.next.patches[{i}]") for i, each in enumerate(given.patches or ())]
    return (first, *(Step(patch=patch) for patch in patches))


def _step(given: _Step, path: str) -> Step:
    return Step(
        _event(given.event, f"{path}.event"),
        _finalizers(given.finalizers),
        given.delete,
        _patch(given.patch, f"{path}.patch") if given.patch is not None else None,
    )


def _event(given: _Event | None, path: str) -> Event | None:
    if given is None:
        return None
    if not given.reason:
        raise _PathError(f"{path}.reason", "an event wants a reason")
    return Event(given.type, given.reason, _made(f"{path}.message", Template, given.message))


def _finalizers(given: _Finalizers | None) -> Finalizers | None:
    if given is None:
        return None
    return Finalizers(
        tuple(each.value for each in given.add or ()), tuple(each.value for each in given.remove or ()), given.empty
    )


def _patch(given: _Patch, path: str) -> Patch:
    if given.impersonation is not None:
        raise _PathError(f"{path}.impersonation", "patches in another's name are not supported")
    if not given.template.strip():
        raise _PathError(f"{path}.template", "want a template")
    _check_subresource(given.subresource, f"{path}.subresource")
    template = _made(f"{path}.template", Template, given.template)
    return Patch(template, given.type or "strategic", given.subresource, given.root)


def _check_subresource(subresource: str, path: str) -> None:
    if subresource not in ("", "status"):
        raise _PathError(path, f"{subresource!r} is not supported; status and the object itself are")
