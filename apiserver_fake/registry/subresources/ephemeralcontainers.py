"""`pods/ephemeralcontainers`: adds debug containers to a running pod (KEP-277, `kubectl debug`).

It is read and written as the whole pod; of the pod, only additions to `spec.ephemeralContainers` are accepted.
"""

from apiserver_fake.registry.strategy import Subresource, SubresourceResult, WriteContext, next_generation
from apiserver_fake.registry.validation.fields import Report
from apiserver_fake.registry.validation.formats import Cause, forbidden
from apiserver_fake.registry.validation.pod.spec import POD_SPEC, check_pod
from apiserver_fake.registry.validation.pod.update import difference
from services.api.errors import invalid
from services.api.kinds.pod import MIRROR_ANNOTATION
from services.api.meta import Document

_AT = "spec.ephemeralContainers"


def _join(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    name = ctx.request.name
    before = stored.get("spec") or {}
    wanted = (body.get("spec") or {}).get("ephemeralContainers") or []
    spec = POD_SPEC.complete({**before, "ephemeralContainers": wanted})
    spec = {**before, "ephemeralContainers": spec.get("ephemeralContainers") or []}
    if causes := _check(stored, {**stored, "spec": spec}, ctx):
        raise invalid("Pod", name, causes)
    if spec["ephemeralContainers"] == (before.get("ephemeralContainers") or []):
        return SubresourceResult()
    return SubresourceResult(document={**next_generation(stored), "spec": spec})


def _check(stored: Document, new: Document, ctx: WriteContext) -> list[Cause]:
    """Return what is wrong with what is added (upstream `ValidatePodEphemeralContainersUpdate`)."""
    if MIRROR_ANNOTATION in (stored["metadata"].get("annotations") or {}):
        return [forbidden("", "static pods do not support ephemeral containers")]
    report = Report(ctx.switches)
    check_pod(new, report)
    causes = report.causes
    after = {each.get("name"): each for each in new["spec"]["ephemeralContainers"]}
    for old in (stored.get("spec") or {}).get("ephemeralContainers") or ():
        name = old["name"]
        if name not in after:
            causes.append(forbidden(_AT, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif after[name] != old:
            text = f'existing ephemeral containers "{name}" may not be changed\n{difference(old, after[name])}'
            causes.append(forbidden(_AT, text))
    return causes


SUBRESOURCES = (Subresource("pods", "ephemeralcontainers", ("get", "update", "patch"), _join),)
