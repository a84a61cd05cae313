"""`pods/ephemeralcontainers`: join a pod that runs with containers for looking into it (KEP-277, `kubectl debug`).

It is read and written as the whole pod; only `spec.ephemeralContainers` is taken, and only additions to it.
"""

from apiserver_fake.strategy import Subresource, SubresourceResult, WriteContext, next_generation
from apiserver_fake.validation.formats import Cause, forbidden
from apiserver_fake.validation.pod.spec import POD_SPEC, check
from services.api.errors import invalid
from services.api.kinds.pod import MIRROR_ANNOTATION
from services.api.meta import Document

_AT = "spec.ephemeralContainers"
_NEVER = ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources", "resizePolicy")
"""What an ephemeral container cannot have: it is no part of what the pod offers or was allocated."""


def _join(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    name = ctx.request.name
    before = stored.get("spec") or {}
    wanted = (body.get("spec") or {}).get("ephemeralContainers") or []
    spec = POD_SPEC.complete({**before, "ephemeralContainers": wanted})
    spec = {**before, "ephemeralContainers": spec.get("ephemeralContainers") or []}
    if causes := _check(stored, before, spec):
        raise invalid("Pod", name, causes)
    if spec["ephemeralContainers"] == (before.get("ephemeralContainers") or []):
        return SubresourceResult()
    return SubresourceResult(document={**next_generation(stored), "spec": spec})


def _check(stored: Document, before: Document, spec: Document) -> list[Cause]:
    if MIRROR_ANNOTATION in (stored["metadata"].get("annotations") or {}):
        return [forbidden("", "static pods do not support ephemeral containers")]
    causes = check(spec, "spec")
    named = [c.get("name") for kind in ("initContainers", "containers") for c in spec.get(kind) or ()]
    after = {c.get("name"): c for c in spec["ephemeralContainers"]}
    for old in before.get("ephemeralContainers") or ():
        if old["name"] not in after:
            causes.append(forbidden(_AT, f'existing ephemeral containers "{old["name"]}" may not be removed\n'))
        elif after[old["name"]] != old:
            causes.append(forbidden(_AT, f'existing ephemeral containers "{old["name"]}" may not be changed\n'))
    for index, container in enumerate(spec["ephemeralContainers"]):
        for field in _NEVER:
            if container.get(field):
                causes.append(forbidden(f"{_AT}[{index}].{field}", "cannot be set for an Ephemeral Container"))
        target = container.get("targetContainerName")
        if target and target not in named:
            causes.append(Cause(f"{_AT}[{index}].targetContainerName", "FieldValueNotFound", f'Not found: "{target}"'))
    return causes


SUBRESOURCES = (Subresource("pods", "ephemeralcontainers", ("get", "update", "patch"), _join),)
