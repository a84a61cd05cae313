"""`pods/eviction`: delete a pod if its disruption budget allows it (policy/v1; controllers 10)."""

from typing import Any

from apiserver_fake.registry.errors import MODIFIED_TEXT
from apiserver_fake.registry.strategies.pod import transition
from apiserver_fake.registry.strategy import DeleteOptions, Subresource, SubresourceResult, WriteContext
from apiserver_fake.registry.subresources.binding import SUCCESS, conflict
from apiserver_fake.registry.validation.formats import selects
from services.api.errors import ApiError, BadRequest, Forbidden, TooManyRequests
from services.api.meta import Document
from services.api.times import format_time

BUDGETS = "poddisruptionbudgets.policy"
DISRUPTED_MAX = 2000
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


def _evict(stored: Document, body: Document, ctx: WriteContext) -> SubresourceResult:
    name = ctx.request.name
    options, is_dry_run = _read(body, name)
    _check_preconditions(stored, options, ctx)
    if ctx.identity.node and (stored.get("spec") or {}).get("nodeName") != ctx.identity.node:
        raise Forbidden("node may only act on objects it owns")
    evicted: Document | None = None
    also: tuple[tuple[str, Document], ...] = ()
    phase = (stored.get("status") or {}).get("phase") or "Pending"
    # Nothing that serves is lost by deleting the others.
    if phase not in ("Pending", "Succeeded", "Failed") and not stored["metadata"].get("deletionTimestamp"):
        budgets = _budgets_of(stored, ctx)
        if len(budgets) > 1:
            text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise ApiError(text)
        if budgets and not _is_unhealthy_and_free(stored, budgets[0]):
            also = ((BUDGETS, _spend(budgets[0], name, ctx)),)
        evicted = _with_target(stored, ctx)
    if is_dry_run:
        return SubresourceResult(response=SUCCESS, code=201)
    return SubresourceResult(document=evicted, delete=options, also=also, response=SUCCESS, code=201)


def _read(body: Document, name: str) -> tuple[DeleteOptions, bool]:
    meta, options = body.get("metadata") or {}, body.get("deleteOptions") or {}
    if not isinstance(meta, dict) or not isinstance(options, dict):
        raise BadRequest("an Eviction's metadata and deleteOptions must be objects")
    if (meta.get("name") or name) != name:
        raise BadRequest(f"name in URL does not match name in Eviction object: {name} and {meta['name']}")
    return DeleteOptions.from_document(options), "All" in (options.get("dryRun") or [])


def _check_preconditions(stored: Document, options: DeleteOptions, ctx: WriteContext) -> None:
    meta = stored["metadata"]
    uid, version = options.uid or ctx.request.uid, options.resource_version or ctx.request.resource_version
    if uid and uid != meta["uid"]:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']})"
        raise conflict(meta["name"], why, subresource="eviction")
    if version and version != meta["resourceVersion"]:
        raise conflict(meta["name"], MODIFIED_TEXT, subresource="eviction")


def _budgets_of(pod: Document, ctx: WriteContext) -> list[Document]:
    labels = pod["metadata"].get("labels") or {}
    return [
        budget
        for budget in ctx.list(BUDGETS, ctx.request.namespace)
        if (selector := (budget.get("spec") or {}).get("selector")) is not None and selects(selector, labels)
    ]


def _is_unhealthy_and_free(pod: Document, budget: Document) -> bool:
    """Whether the pod is not Ready anyway and its budget lets such pods go (unhealthyPodEvictionPolicy)."""
    conditions: list[Any] = (pod.get("status") or {}).get("conditions") or []
    if any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    healthy, desired = status.get("currentHealthy") or 0, status.get("desiredHealthy") or 0
    return bool(healthy >= desired > 0)


def _spend(budget: Document, pod: str, ctx: WriteContext) -> Document:
    """Return the budget with one disruption less. Raises: TooManyRequests when none is left."""
    name, status = budget["metadata"]["name"], dict(budget.get("status") or {})
    if (status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
        raise _too_many(f"The disruption budget {name} is still being processed by the server.", retry_after_s=10)
    allowed = status.get("disruptionsAllowed") or 0
    disrupted = status.get("disruptedPods") or {}
    if allowed < 0:
        raise Forbidden(f'poddisruptionbudgets.policy "{name}" is forbidden: pdb disruptions allowed is negative')
    if len(disrupted) > DISRUPTED_MAX:
        raise Forbidden(
            f'poddisruptionbudgets.policy "{name}" is forbidden: '
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        )
    if allowed == 0:
        raise _too_many(
            f"The disruption budget {name} needs {status.get('desiredHealthy') or 0} healthy pods "
            f"and has {status.get('currentHealthy') or 0} currently"
        )
    status["disruptionsAllowed"] = allowed - 1
    status["disruptedPods"] = {**disrupted, pod: format_time(ctx.wall_s)}
    if allowed == 1:
        empty = {
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
            "observedGeneration": status["observedGeneration"],
        }
        status["conditions"] = transition(status.get("conditions") or [], empty, ctx.wall_s)
    return {**budget, "status": status}


def _too_many(message: str, *, retry_after_s: int | None = None) -> TooManyRequests:
    causes = [{"reason": "DisruptionBudget", "message": message}]
    return TooManyRequests(_REFUSED, details={"causes": causes}, retry_after_s=retry_after_s)


def _with_target(pod: Document, ctx: WriteContext) -> Document:
    status = pod.get("status") or {}
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    conditions = transition(status.get("conditions") or [], target, ctx.wall_s)
    return {**pod, "status": {**status, "conditions": conditions}}


SUBRESOURCES = (Subresource("pods", "eviction", ("create",), _evict, body=("policy/v1", "Eviction")),)
