"""The events that a stage records about an object and the calls it makes, in order. Pure.

A patch's template sees the object the stage was chosen for, with `metadata`, `spec` and `status` always there.
Source: KWOK `lifecycle.Next`.
"""

from kubelet.effects import Operation, StageDelete, StageEvent, StagePatch
from kubelet.stages.stage import Finalizers, Patch, Stage
from kubelet.stages.template_functions import Context
from kubelet.stages.templates import TemplateError
from services.api.meta import Document

FINALIZERS = "/metadata/finalizers"


def operations(stage: Stage, document: Document, context: Context) -> list[Operation]:
    """Return what the stage does to this object. Raises: TemplateError naming the stage."""
    given = {"metadata": {}, "spec": {}, "status": {}, **document}
    finalizers: list[str] = list(given["metadata"].get("finalizers") or ())
    found: list[Operation] = []
    is_deleted = False
    try:
        for step in stage.steps:
            if step.event is not None:
                message = step.event.message.fill(given, context)
                found.append(StageEvent(step.event.type, step.event.reason, message))
            if is_deleted:
                continue
            if step.finalizers is not None and (changes := finalizer_changes(finalizers, step.finalizers)):
                found.append(StagePatch("json", "", changes))
                finalizers = step.finalizers.after(finalizers)
            if step.delete:
                is_deleted = True
                found.append(StageDelete())
            elif step.patch is not None:
                found.append(_patched(step.patch, given, context))
    except TemplateError as error:
        raise TemplateError(f"stage {stage.name}: {error}") from None
    return found


def finalizer_changes(held: list[str], wanted: Finalizers) -> list[Document]:
    """Return the JSON patch that changes these finalizers so; empty when nothing changes."""
    after = wanted.after(held)
    if held == after:
        return []
    if not after:
        return [{"op": "remove", "path": FINALIZERS}]
    # The test keeps a finalizer that another client set meanwhile.
    guard = [{"op": "test", "path": FINALIZERS, "value": held}] if held else []
    return [*guard, {"op": "replace" if held else "add", "path": FINALIZERS, "value": after}]


def _patched(patch: Patch, given: Document, context: Context) -> StagePatch:
    body = patch.template.fill_yaml(given, context)
    kind = patch.type or "strategic"
    if kind == "json":
        if not isinstance(body, list) or not all(isinstance(each, dict) for each in body):
            raise TemplateError("a json patch is a list of operations")
        if patch.root:
            body = [each | {"path": f"/{patch.root}{each.get('path', '')}"} for each in body]
    else:
        if not isinstance(body, dict) and (patch.root == "" or body is not None):
            raise TemplateError(f"a {kind} patch is an object")
        if patch.root:
            body = {patch.root: body or {}}
    return StagePatch(kind, patch.subresource, body)
