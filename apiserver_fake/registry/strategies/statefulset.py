"""StatefulSets: defaults, how they are updated and what stays of their claims, and a spec of which little changes."""

from __future__ import annotations

from apiserver_fake.registry.strategies.deployment import count_or_percentage
from apiserver_fake.strategy import Cause, Strategy, WriteContext, drop_status, keep_status
from apiserver_fake.validation.formats import forbidden, invalid, label, metadata, not_negative, required, unsupported
from apiserver_fake.validation.pod import defaults as pod_defaults
from apiserver_fake.validation.pod import spec as pod_rules
from services.api.kinds.statefulset import DELETE, ON_DELETE, ORDERED, PARALLEL, RETAIN, ROLLING
from services.api.meta import Document

_CHANGEABLE = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip
_FIXED_TEXT = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_COUNTERS = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")


def _with_defaults(spec: Document, ctx: WriteContext) -> Document:
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    completed: Document = {
        "replicas": 1,
        "podManagementPolicy": ORDERED,
        "revisionHistoryLimit": 10,
        **spec,
        "updateStrategy": _strategy(spec.get("updateStrategy") or {}, ctx),
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": RETAIN, "whenScaled": RETAIN, **retention},
    }
    if templates := spec.get("volumeClaimTemplates"):
        completed["volumeClaimTemplates"] = [_claim(each) for each in templates]
    if template := spec.get("template"):
        completed["template"] = pod_defaults.template_with_defaults(template)
    return completed


def _strategy(given: Document, ctx: WriteContext) -> Document:
    strategy = dict(given)
    if not strategy.get("type"):
        strategy = {"rollingUpdate": {}, **strategy, "type": ROLLING}
    numbers = strategy.get("rollingUpdate")
    if strategy["type"] != ROLLING or numbers is None:
        return strategy
    numbers = {"partition": 0, **numbers}
    if ctx.switches.flag("MaxUnavailableStatefulSet"):
        numbers.setdefault("maxUnavailable", 1)
    else:
        numbers.pop("maxUnavailable", None)
    return {**strategy, "rollingUpdate": numbers}


def _claim(template: Document) -> Document:
    spec = {"volumeMode": "Filesystem", **(template.get("spec") or {})}
    whole = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "status": {"phase": "Pending"}, **template}
    return {**whole, "spec": spec}


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    new["spec"] = _with_defaults(new.get("spec") or {}, ctx)
    drop_status(new, ctx)


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if new.get("spec") is not old.get("spec"):
        new["spec"] = _with_defaults(new.get("spec") or {}, ctx)


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    # Pods are named after the set, and their names are host names.
    causes, spec = metadata(new, label), new["spec"]
    if old is not None and spec is old["spec"]:
        return causes
    causes += _check_policies(spec)
    causes += not_negative("spec.ordinals.start", (spec.get("ordinals") or {}).get("start"))
    # As upstream: a pod's volumes are known only with its claims, so that a wrong pod is refused when it is made.
    causes += pod_rules.check_template(spec, "statefulset", is_whole=False)
    if old is not None and any(
        old["spec"].get(name) != spec.get(name) for name in (*old["spec"], *spec) if name not in _CHANGEABLE
    ):
        causes.append(forbidden("spec", _FIXED_TEXT))
    return causes


def _check_policies(spec: Document) -> list[Cause]:
    causes: list[Cause] = []
    policy, strategy = spec["podManagementPolicy"], spec["updateStrategy"]
    at = "spec.updateStrategy"
    if not policy:
        causes.append(required("spec.podManagementPolicy"))
    elif policy not in (ORDERED, PARALLEL):
        causes.append(invalid("spec.podManagementPolicy", policy, f"must be '{ORDERED}' or '{PARALLEL}'"))
    numbers = strategy.get("rollingUpdate")
    if strategy["type"] not in (ROLLING, ON_DELETE):
        causes.append(invalid(at, strategy, f"must be '{ROLLING}' or '{ON_DELETE}'"))
    elif numbers is not None and strategy["type"] == ON_DELETE:
        causes.append(invalid(f"{at}.rollingUpdate", numbers, f"only allowed for updateStrategy '{ROLLING}'"))
    elif numbers is not None:
        causes += _check_numbers(f"{at}.rollingUpdate", numbers)
    for name, value in spec["persistentVolumeClaimRetentionPolicy"].items():
        if name in ("whenDeleted", "whenScaled") and value not in (RETAIN, DELETE):
            causes.append(unsupported(f"spec.persistentVolumeClaimRetentionPolicy.{name}", value, (RETAIN, DELETE)))
    return causes


def _check_numbers(at: str, numbers: Document) -> list[Cause]:
    causes = not_negative(f"{at}.partition", numbers["partition"])
    if (most := numbers.get("maxUnavailable")) is None:
        return causes
    wrong = count_or_percentage(f"{at}.maxUnavailable", most)
    if wrong:
        return causes + wrong
    count = int(most[:-1]) if isinstance(most, str) else most
    if count == 0:
        causes.append(invalid(f"{at}.maxUnavailable", most, "cannot be 0"))
    elif isinstance(most, str) and count > 100:
        causes.append(invalid(f"{at}.maxUnavailable", most, "must not be greater than 100%"))
    return causes


def _validate_status(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    counts = {name: status.get(name) or 0 for name in _COUNTERS}
    causes: list[Cause] = []
    for name in (*_COUNTERS, "observedGeneration", "collisionCount"):
        causes += not_negative(f"status.{name}", status.get(name))
    for name in _COUNTERS[1:]:
        if counts[name] > counts["replicas"]:
            causes.append(invalid(f"status.{name}", counts[name], "cannot be greater than status.replicas"))
    if counts["availableReplicas"] > counts["readyReplicas"]:
        text = "cannot be greater than status.readyReplicas"
        causes.append(invalid("status.availableReplicas", counts["availableReplicas"], text))
    if (status.get("collisionCount") or 0) < (before.get("collisionCount") or 0):
        causes.append(invalid("status.collisionCount", status.get("collisionCount") or 0, "cannot be decremented"))
    return causes


STRATEGIES = {
    "statefulsets.apps": Strategy(
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_status=_validate_status,
    )
}
