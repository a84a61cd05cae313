"""StatefulSets: defaults, how they are updated and what stays of their claims, and a spec of which little changes."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import (
    Cause,
    Causes,
    at_most_all,
    forbidden,
    invalid,
    label,
    not_decremented,
    not_negative,
    number_of,
    required,
)
from apiserver_fake.validation.pod.spec import workload_fields
from services.api.kinds.statefulset import DELETE, ON_DELETE, ORDERED, PARALLEL, RETAIN, ROLLING
from services.api.meta import Document

CHANGEABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
FIXED_TEXT = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
COUNTERS = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
KEPT = ("whenDeleted", "whenScaled")


def _check_policy(policy: str, path: str, report: Report) -> Causes:
    if not policy:
        yield required(path)
    elif policy not in (ORDERED, PARALLEL):
        yield invalid(path, policy, f"must be '{ORDERED}' or '{PARALLEL}'")


def _with_numbers(strategy: Document) -> None:
    if not strategy.get("type"):
        strategy.setdefault("rollingUpdate", {})
        strategy["type"] = ROLLING
    if strategy["type"] == ROLLING and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"] = {"partition": 0, **strategy["rollingUpdate"]}


def _check_update(strategy: Document, path: str, report: Report) -> Causes:
    kind, numbers, at = strategy["type"], strategy.get("rollingUpdate"), f"{path}.rollingUpdate"
    if kind not in (ROLLING, ON_DELETE):
        yield invalid(path, strategy, f"must be '{ROLLING}' or '{ON_DELETE}'")
    elif numbers is not None and kind == ON_DELETE:
        yield invalid(at, numbers, f"only allowed for updateStrategy '{ROLLING}'")
    elif numbers is not None:
        yield from not_negative(f"{at}.partition", numbers["partition"])
        if (most := numbers.get("maxUnavailable")) is not None:
            wrong = at_most_all(f"{at}.maxUnavailable", most)
            if not wrong and number_of(most) == 0:
                wrong = [invalid(f"{at}.maxUnavailable", most, "cannot be 0")]
            yield from wrong


CLAIM = Struct(
    Field("apiVersion", default="v1"),
    Field("kind", default="PersistentVolumeClaim"),
    Field("status", default={"phase": "Pending"}),
    Field("spec", default={}, struct=Struct(Field("volumeMode", default="Filesystem"))),
)
SPEC = Struct(
    Field("replicas", default=1),
    Field("podManagementPolicy", default=ORDERED, rule=_check_policy),
    Field("updateStrategy", default={}, struct=Struct(completion=_with_numbers), rule=_check_update),
    Field(
        "persistentVolumeClaimRetentionPolicy",
        default={},
        struct=Struct(*(Field(name, default=RETAIN, enum=(RETAIN, DELETE)) for name in KEPT)),
    ),
    Field("ordinals", struct=Struct(Field("start", minimum=0))),
    # As upstream: a pod's volumes are known only with its claims, so that a wrong pod is refused when it is made.
    *workload_fields("statefulset", is_whole=False, is_selector_fixed=False),
    Field("volumeClaimTemplates", items=CLAIM),
)
STATUS = Struct(*(Field(name, minimum=0) for name in (*COUNTERS, "observedGeneration", "collisionCount")))


def _gate(new: Document, ctx: WriteContext) -> None:
    """Give `maxUnavailable` its default, or leave it out where the feature gate is off (KEP-961)."""
    strategy = new["spec"]["updateStrategy"]
    numbers = strategy.get("rollingUpdate")
    if strategy["type"] != ROLLING or numbers is None:
        return
    if ctx.switches.stateful_set_max_unavailable:
        numbers.setdefault("maxUnavailable", 1)
    else:
        numbers.pop("maxUnavailable", None)


def _gate_update(old: Document, new: Document, ctx: WriteContext) -> None:
    if new["spec"] is not old.get("spec"):
        _gate(new, ctx)


def _fixed(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    before, after = old["spec"] if old else new["spec"], new["spec"]
    fixed = [name for name in (*before, *after) if name not in CHANGEABLE]
    return [forbidden("spec", FIXED_TEXT)] if any(before.get(name) != after.get(name) for name in fixed) else []


def _status_rules(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    counts = {name: status.get(name) or 0 for name in COUNTERS}
    causes = [
        invalid(f"status.{name}", counts[name], "cannot be greater than status.replicas")
        for name in COUNTERS[1:]
        if counts[name] > counts["replicas"]
    ]
    if counts["availableReplicas"] > counts["readyReplicas"]:
        text = "cannot be greater than status.readyReplicas"
        causes.append(invalid("status.availableReplicas", counts["availableReplicas"], text))
    return causes + not_decremented("status.collisionCount", before.get("collisionCount"), status.get("collisionCount"))


STRATEGIES = {
    "statefulsets.apps": declared(
        Struct(Field("spec", default={}, struct=SPEC)),
        # Pods are named after the set, and their names are host names.
        name=label,
        has_status=True,
        on_create=_gate,
        on_update=_gate_update,
        rules=_fixed,
        status=STATUS,
        status_rules=_status_rules,
    )
}
