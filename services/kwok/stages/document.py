"""Stage documents as KWOK publishes them, read and checked: every error names file, stage and path. Pure.

Both forms are read: `next` with `statusTemplate` or `patches`, expressions as plain texts (KWOK up to v0.7),
and `steps` with expressions below `jq` (KWOK since). Source: KWOK `kwok.x-k8s.io/v1alpha1` Stage.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import msgspec

from services.api.documents import yaml_text
from services.api.meta import Document
from services.api.resources import resources
from services.kwok.documents import KwokError, is_other_kind, read_one
from services.kwok.kind import API_VERSION
from services.kwok.stages.jq import JqError, Query
from services.kwok.stages.stage import (
    KINDS,
    OPERATORS,
    CelExpression,
    CelRequirement,
    Delay,
    Event,
    EventType,
    Finalizers,
    Impersonation,
    Part,
    Patch,
    PatchType,
    Requirement,
    Selector,
    Stage,
    Step,
)
from services.kwok.stages.templates import Template

STATUS = "status"


class StageError(ValueError):
    """Error: a stage file cannot be used."""


class _ResourceRef(Part, frozen=True):
    kind: str
    api_group: str = "v1"


class _JqRequirement(Part, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class _CelRequirement(Part, frozen=True):
    expression: str


class _Requirement(Part, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()
    jq: _JqRequirement | None = None
    cel: _CelRequirement | None = None


class _Selector(Part, frozen=True):
    match_labels: dict[str, str] | None = None
    match_annotations: dict[str, str] | None = None
    match_expressions: tuple[_Requirement, ...] | None = None


class _JqExpression(Part, frozen=True):
    expression: str


class _From(Part, frozen=True):
    expression_from: str = ""
    jq: _JqExpression | None = None
    cel: _CelRequirement | None = None


class _Delay(Part, frozen=True):
    duration_milliseconds: int | None = None
    duration_from: _From | None = None
    jitter_duration_milliseconds: int | None = None
    jitter_duration_from: _From | None = None


class _Next(Part, frozen=True):
    event: Event | None = None
    finalizers: Finalizers | None = None
    delete: bool = False
    patches: tuple[Patch, ...] | None = None
    status_template: Template = Template("")
    status_subresource: str | None = None
    status_patch_as: Impersonation | None = None

    def steps(self) -> tuple[Step, ...]:
        """Return what is done: first all that is no patch."""
        first = Step(event=self.event, finalizers=self.finalizers, delete=self.delete)
        patches = list(self.patches or ())
        if self.status_template.text:
            subresource = "status" if self.status_subresource is None else self.status_subresource
            patch = Patch(
                template=self.status_template,
                subresource=subresource,
                root="status",
                impersonation=self.status_patch_as,
            )
            patches.insert(0, patch)
        return (first, *(Step(patch=patch) for patch in patches))


class _Spec(Part, frozen=True):
    resource_ref: _ResourceRef
    selector: _Selector | None = None
    weight: int = 0
    weight_from: _From | None = None
    delay: _Delay | None = None
    next: _Next | None = None
    steps: tuple[Step, ...] | None = None
    immediate_next_stage: bool | None = None


SPEC = _Spec
"""The type of a stage's spec; templates are texts."""


def read_stages(files: Iterable[tuple[str, str]]) -> tuple[Stage, ...]:
    """Parse the stages of (file name, text), in order; those without a selector are left out.

    Documents of KWOK's other kinds are checked (`services/kwok`). Raises: StageError.
    """
    stages: list[Stage] = []
    has_others = False
    sources: dict[str, str] = {}
    for file, text in files:
        try:
            documents = list(yaml_text.load_all(text))
        except ValueError as error:
            raise StageError(f"{file}: {error}") from None
        for number, document in enumerate(documents, 1):
            if document is None:
                continue
            if is_other_kind(document):
                has_others = True
                try:
                    read_one(document, f"{file}: document {number}")
                except KwokError as error:
                    raise StageError(str(error)) from None
                continue
            name, stage = _read(document, file, number)
            if name in sources:
                raise StageError(f"{file}: stage {name}: is in {sources[name]} already")
            sources[name] = file
            if stage is not None:
                stages.append(stage)
    if not sources and not has_others:
        raise StageError(f"{', '.join(file for file, _ in files) or 'no file'}: there is no stage in it")
    return tuple(stages)


def load_stages(paths: Iterable[str]) -> tuple[Stage, ...]:
    """Return the stages of these files; empty without files. Raises: StageError, also for an unreadable file."""
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
        return name, read_stage(document)
    except StageError as error:
        raise StageError(f"{file}: {error}") from None


def _template(_kind: type, text: object) -> Template:
    """Return a template as it is written; null counts as none. Raises: TypeError, TemplateError."""
    if not isinstance(text, str | None):
        raise TypeError(f"Expected `str`, got `{type(text).__name__}`")
    return Template(text or "")


def read_stage(document: Document) -> Stage | None:
    """Parse a Stage; None if it has no selector. Raises: StageError beginning with the stage's name."""
    name = document["metadata"]["name"]
    try:
        spec = msgspec.convert(document.get("spec"), _Spec, dec_hook=_template)
        return _stage(spec, name)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        where = where.rstrip("`") + ("" if message.startswith(".") else ": ")
        if message.startswith("Invalid enum value"):
            choices = get_args(EventType if where.endswith(".event.type: ") else PatchType)
            message += f", want one of {', '.join(choices)}"
        raise StageError(f"stage {name}: spec{where}{message}") from None
    except _PathError as error:
        raise StageError(f"stage {name}: {error}") from None


class _PathError(ValueError):
    def __init__(self, path: str, message: object) -> None:
        super().__init__(f"{path}: {message}")


def _read_query(path: str, text: str) -> Query:
    try:
        return Query(text)
    except JqError as error:
        raise _PathError(path, error) from None


def _stage(spec: _Spec, name: str) -> Stage | None:
    api_version = spec.resource_ref.api_group or "v1"
    kind = spec.resource_ref.kind
    if not kind:
        raise _PathError("spec.resourceRef.kind", "want a kind")
    served = sorted({each.api_version for each in resources().values() if each.kind == kind})
    if served and api_version not in served and "." not in api_version:
        # A group with a dot may be one's own.
        raise _PathError("spec.resourceRef", f"{api_version} {kind} is no kind; {', '.join(served)} {kind} is")
    if (spec.next is None) == (spec.steps is None):
        raise _PathError("spec", "want either next or steps")
    if spec.weight < 0:
        raise _PathError("spec.weight", f"{spec.weight}, want 0 or more")
    steps = spec.next.steps() if spec.next is not None else spec.steps or ()
    if KINDS.get(kind) == api_version:
        _check_patches(spec)
    selector = _selector(spec.selector) if spec.selector is not None else None
    delay = _delay(spec.delay) if spec.delay is not None else None
    weight_from = _query(spec.weight_from, "spec.weightFrom")
    if selector is None:
        return None
    return Stage(
        name, kind, selector, steps, spec.weight, weight_from, delay, bool(spec.immediate_next_stage), api_version
    )


def _check_patches(spec: _Spec) -> None:
    """Raise _PathError for what kubelets do not: patch as another user, or another subresource than status."""
    for patched in _patches(spec):
        if patched.user is not None:
            kind = spec.resource_ref.kind
            why = f"of a {kind} it is not supported, nor in KWOK: the kubelet patches in its node's name"
            raise _PathError(patched.user_path, why)
        if patched.subresource not in ("", STATUS):
            why = f"{patched.subresource!r} is not supported; status and the object itself are"
            raise _PathError(patched.subresource_path, why)


class _Patched(NamedTuple):
    """Subresource and impersonated user of a patch, each with the path of its field."""

    subresource_path: str
    subresource: str
    user_path: str
    user: Impersonation | None


def _patches(spec: _Spec) -> Iterator[_Patched]:
    patches = [(f"spec.steps[{n}].patch", step.patch) for n, step in enumerate(spec.steps or ())]
    if (following := spec.next) is not None:
        subresource = following.status_subresource or "" if following.status_template.text else ""
        yield _Patched("spec.next.statusSubresource", subresource, "spec.next.statusPatchAs", following.status_patch_as)
        patches = [(f"spec.next.patches[{n}]", each) for n, each in enumerate(following.patches or ())]
    for path, patch in patches:
        if patch is not None:
            yield _Patched(f"{path}.subresource", patch.subresource, f"{path}.impersonation", patch.impersonation)


def _selector(selector: _Selector) -> Selector:
    return Selector(
        tuple(sorted((selector.match_labels or {}).items())),
        tuple(sorted((selector.match_annotations or {}).items())),
        tuple(
            _requirement(each, f"spec.selector.matchExpressions[{i}]")
            for i, each in enumerate(selector.match_expressions or ())
        ),
    )


def _requirement(given: _Requirement, path: str) -> Requirement | CelRequirement:
    if given.cel is not None:
        if given.jq is not None or given.key or given.operator or given.values:
            raise _PathError(path, "want either cel, jq or key, operator and values")
        try:
            return CelRequirement.read(given.cel.expression)
        except ValueError as error:
            raise _PathError(f"{path}.cel.expression", error) from None
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
    return Requirement(_read_query(f"{path}.key", plain.key), plain.operator, plain.values)


def _query(given: _From | None, path: str) -> Query | CelExpression | None:
    if given is None:
        return None
    if sum(bool(each) for each in (given.cel, given.jq, given.expression_from)) > 1:
        raise _PathError(path, "want one of expressionFrom, jq and cel")
    if given.cel is not None:
        try:
            return CelExpression(given.cel.expression)
        except ValueError as error:
            raise _PathError(f"{path}.cel.expression", error) from None
    if given.jq is not None:
        return _read_query(f"{path}.jq.expression", given.jq.expression)
    if not given.expression_from:
        raise _PathError(path, "want expressionFrom, jq or cel")
    return _read_query(f"{path}.expressionFrom", given.expression_from)


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
