"""Metadata of pods and nodes that stages change: the keys that their patches name. Pure.

Patches are templates. Literal keys are listed; a key computed at play time counts as every key. Source:
guarantees X-NR3; decision 0039.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from services.api.documents import yaml_text
from services.api.identity import ANY, StageFields, Stages
from services.kwok.stages.stage import Patch, Stage, Step

_ACTION = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_ONLY_ACTIONS = re.compile(r"^[ \t]*(?:\{\{.*?\}\}[ \t]*)+$", re.DOTALL | re.MULTILINE)
_COMPUTED = "COMPUTED"
_PARTS = ("labels", "annotations", "finalizers")


def rights_of(stages: Iterable[Stage]) -> Stages:
    """Return the permissions that a host needs for these stages, beyond those of its nodes."""
    names_by_kind: dict[str, dict[str, set[str]]] = {}
    for stage in stages:
        if not stage.is_of_kubelets:
            continue
        named = names_by_kind.setdefault(stage.kind, {part: set() for part in _PARTS})
        for step in stage.steps:
            _note(step, named)
    fields = {
        kind: StageFields(*(tuple(sorted(named[part])) for part in _PARTS)) for kind, named in names_by_kind.items()
    }
    return Stages(fields.get("Pod"), fields.get("Node"))


def _note(step: Step, found: Mapping[str, set[str]]) -> None:
    if (changed := step.finalizers) is not None:
        named = [each.value for each in (*(changed.add or ()), *(changed.remove or ()))]
        found["finalizers"].update([*named, *([ANY] if changed.empty else ())])
    if step.patch is not None and not step.patch.subresource:
        _note_patch(step.patch, found)


def _note_patch(patch: Patch, names: Mapping[str, set[str]]) -> None:
    text = _ACTION.sub(_COMPUTED, _ONLY_ACTIONS.sub("", patch.template.text))
    try:
        body: Any = yaml_text.load(text)
    except (ValueError, RecursionError):
        _note_metadata(_COMPUTED, names)
        return
    if patch.type == "json":
        for operation in body if isinstance(body, list) else [{}]:
            path = str(operation.get("path", _COMPUTED)) if isinstance(operation, dict) else _COMPUTED
            _note_pointer(f"/{patch.root}{path}" if patch.root else path, operation, names)
        return
    whole = {patch.root: body} if patch.root else body
    if not isinstance(whole, dict) or _COMPUTED in whole:
        _note_metadata(_COMPUTED, names)
    elif "metadata" in whole:
        _note_metadata(whole["metadata"], names)


def _note_pointer(pointer: str, operation: Any, names: Mapping[str, set[str]]) -> None:
    first, *rest = [part.replace("~1", "/").replace("~0", "~") for part in pointer.removeprefix("/").split("/")]
    if _COMPUTED in first:
        _note_metadata(_COMPUTED, names)
    elif first == "metadata":
        value = operation.get("value") if isinstance(operation, dict) else None
        for part in reversed(rest):
            value = {part: value}
        _note_metadata(value, names)


def _note_metadata(metadata: Any, names: Mapping[str, set[str]]) -> None:
    """Note what a patch of metadata names; what is computed may be anything."""
    if not isinstance(metadata, dict):
        metadata = dict.fromkeys(_PARTS, _COMPUTED)
    if any(_COMPUTED in str(key) for key in metadata):
        metadata = {**dict.fromkeys(_PARTS, _COMPUTED), **metadata}
    for part in _PARTS:
        if part not in metadata:
            continue
        named = metadata[part]
        if (part == "finalizers" and isinstance(named, list) and not any(_COMPUTED in str(name) for name in named)) or (
            part != "finalizers" and isinstance(named, dict) and not any(_COMPUTED in str(key) for key in named)
        ):
            names[part].update(map(str, named))
        else:
            names[part].add(ANY)
