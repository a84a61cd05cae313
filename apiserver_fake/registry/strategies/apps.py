"""Workloads of `apps`: their defaults, what may change later, and the numbers of a rolling update."""

from collections.abc import Callable

from apiserver_fake.strategy import WriteContext, declared
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import (
    Causes,
    at_most_all,
    count_or_percentage,
    forbidden,
    invalid,
    label,
    not_decremented,
    not_negative,
    number_of,
    required,
)
from apiserver_fake.validation.pod.spec import workload_fields
from services.api.kinds.daemonset import TEMPLATE_GENERATION
from services.api.kinds.statefulset import DELETE, ON_DELETE, ORDERED, PARALLEL, RETAIN, ROLLING
from services.api.meta import Document

REVISION = Struct(Field("data", required="data is mandatory", is_immutable=True), Field("revision", minimum=0))
REPLICA_SET_SPEC = Struct(*workload_fields("replicaset", has_history=False))
REPLICA_SET_COUNTERS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
DEPLOYMENT_COUNTERS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


def _rolling(defaults: Document) -> Callable[[Document], None]:
    def complete(strategy: Document) -> None:
        if strategy["type"] == "RollingUpdate":
            strategy["rollingUpdate"] = {**defaults, **(strategy.get("rollingUpdate") or {})}

    return complete


def _check_numbers_deployment(strategy: Document, at: str, report: Report) -> Causes:
    kind, numbers, path = strategy["type"], strategy.get("rollingUpdate"), f"{at}rollingUpdate"
    if kind == "Recreate" and numbers is not None:
        yield forbidden(path, "may not be specified when strategy `type` is 'Recreate'")
    if kind != "RollingUpdate" or numbers is None:
        return
    unavailable, surge = numbers["maxUnavailable"], numbers["maxSurge"]
    wrong = count_or_percentage(f"{path}.maxUnavailable", unavailable) + count_or_percentage(f"{path}.maxSurge", surge)
    if not wrong and number_of(unavailable) == number_of(surge) == 0:
        wrong.append(invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    elif not wrong and isinstance(unavailable, str) and number_of(unavailable) > 100:
        wrong.append(invalid(f"{path}.maxUnavailable", unavailable, "must not be greater than 100%"))
    yield from wrong


def _deadline(spec: Document, at: str, report: Report) -> Causes:
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= (spec.get("minReadySeconds") or 0):
        yield invalid(f"{at}progressDeadlineSeconds", deadline, "must be greater than minReadySeconds")


DEPLOYMENT_STRATEGY = Struct(
    Field("type", default="RollingUpdate", is_blank_absent=True, enum=("Recreate", "RollingUpdate")),
    _check_numbers_deployment,
    completion=_rolling({"maxUnavailable": "25%", "maxSurge": "25%"}),
    are_defaults_last=True,
)
DEPLOYMENT_SPEC = Struct(
    *workload_fields("deployment"),
    Field("progressDeadlineSeconds", default=600),
    Field("strategy", default={}, struct=DEPLOYMENT_STRATEGY),
    _deadline,
)


def counted(*counters: str, above: tuple[tuple[str, str], ...]) -> Struct:
    """Return the table of a status whose counters are not negative, and none above another."""

    def compare(status: Document, at: str, report: Report) -> Causes:
        for one, other in above:
            if (count := status.get(one) or 0) > (status.get(other) or 0):
                shown = "status.replicas" if other == "replicas" else other
                yield invalid(f"{at}{one}", count, f"cannot be greater than {shown}")

    return Struct(*(Field(each, minimum=0) for each in counters), compare)


REPLICA_SET_STATUS = counted(
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
    above=(
        ("fullyLabeledReplicas", "replicas"),
        ("readyReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ),
)
DEPLOYMENT_STATUS = counted(
    "observedGeneration",
    *DEPLOYMENT_COUNTERS,
    "terminatingReplicas",
    "collisionCount",
    above=(
        ("updatedReplicas", "replicas"),
        ("readyReplicas", "replicas"),
        ("availableReplicas", "replicas"),
        ("availableReplicas", "readyReplicas"),
    ),
)
DAEMON_SET_COUNTERS = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
)
DAEMON_SET_ROLLING = {"maxUnavailable": 1, "maxSurge": 0}


def _check_numbers_daemon_set(strategy: Document, at: str, report: Report) -> Causes:
    if strategy["type"] != "RollingUpdate":
        return
    path, numbers = f"{at}rollingUpdate", strategy["rollingUpdate"]
    wrong = [cause for name in DAEMON_SET_ROLLING for cause in count_or_percentage(f"{path}.{name}", numbers[name])]
    if wrong:
        yield from wrong
        return
    for name in DAEMON_SET_ROLLING:
        if isinstance(numbers[name], str) and number_of(numbers[name]) > 100:
            yield invalid(f"{path}.{name}", numbers[name], "must not be greater than 100%")
    unavailable, surge = number_of(numbers["maxUnavailable"]), number_of(numbers["maxSurge"])
    if unavailable and surge:
        yield invalid(f"{path}.maxSurge", numbers["maxSurge"], "may not be set when maxUnavailable is non-zero")
    elif not unavailable and not surge:
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


DAEMON_SET_STRATEGY = Struct(
    Field("type", default="RollingUpdate", is_blank_absent=True, enum=("RollingUpdate", "OnDelete")),
    _check_numbers_daemon_set,
    completion=_rolling(DAEMON_SET_ROLLING),
    are_defaults_last=True,
)
DAEMON_SET_SPEC = Struct(
    *workload_fields("daemonset", has_replicas=False), Field("updateStrategy", default={}, struct=DAEMON_SET_STRATEGY)
)
DAEMON_SET_STATUS = Struct(*(Field(name, minimum=0) for name in DAEMON_SET_COUNTERS))


def _number_template(new: Document, number: int) -> None:
    """Write down how often the template has changed; no client may say so (a field before apps/v1)."""
    meta = new["metadata"]
    new["metadata"] = {**meta, "annotations": {**(meta.get("annotations") or {}), TEMPLATE_GENERATION: str(number)}}


def _template_number(document: Document) -> int:
    text = (document["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _update(old: Document, new: Document, ctx: WriteContext) -> None:
    number = _template_number(old) + (new["spec"].get("template") != old["spec"].get("template"))
    if _template_number(new) != number:
        _number_template(new, number)


def _collisions(old: Document, new: Document, ctx: WriteContext) -> Causes:
    before, after = ((each.get("status") or {}).get("collisionCount") for each in (old, new))
    return not_decremented("status.collisionCount", before, after)


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
STATEFUL_SET_COUNTERS = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")
KEPT = ("whenDeleted", "whenScaled")


def _check_policy(policy: str, path: str, report: Report) -> Causes:
    if not policy:
        yield required(path)
    elif policy not in (ORDERED, PARALLEL):
        yield invalid(path, policy, f"must be '{ORDERED}' or '{PARALLEL}'")


def _with_numbers_stateful_set(strategy: Document) -> None:
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
STATEFUL_SET_SPEC = Struct(
    Field("replicas", default=1),
    Field("podManagementPolicy", default=ORDERED, rule=_check_policy),
    Field("updateStrategy", default={}, struct=Struct(completion=_with_numbers_stateful_set), rule=_check_update),
    Field(
        "persistentVolumeClaimRetentionPolicy",
        default={},
        struct=Struct(*(Field(name, default=RETAIN, enum=(RETAIN, DELETE)) for name in KEPT)),
    ),
    Field("ordinals", struct=Struct(Field("start", minimum=0))),
    *workload_fields("statefulset", has_claims=True, is_selector_fixed=False),
    Field("volumeClaimTemplates", items=CLAIM),
)
STATEFUL_SET_STATUS = Struct(
    *(Field(name, minimum=0) for name in (*STATEFUL_SET_COUNTERS, "observedGeneration", "collisionCount"))
)


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


def _fixed(old: Document, new: Document, ctx: WriteContext) -> Causes:
    before, after = old["spec"], new["spec"]
    if any(before.get(name) != after.get(name) for name in (*before, *after) if name not in CHANGEABLE):
        yield forbidden("spec", FIXED_TEXT)


def _status_rules_stateful_set(old: Document, new: Document, ctx: WriteContext) -> Causes:
    status = new.get("status") or {}
    counts = {name: status.get(name) or 0 for name in STATEFUL_SET_COUNTERS}
    for name in STATEFUL_SET_COUNTERS[1:]:
        if counts[name] > counts["replicas"]:
            yield invalid(f"status.{name}", counts[name], "cannot be greater than status.replicas")
    if counts["availableReplicas"] > counts["readyReplicas"]:
        text = "cannot be greater than status.readyReplicas"
        yield invalid("status.availableReplicas", counts["availableReplicas"], text)
    yield from _collisions(old, new, ctx)


STRATEGIES = {
    "controllerrevisions.apps": declared(REVISION),
    "replicasets.apps": declared(
        Struct(Field("spec", default={}, struct=REPLICA_SET_SPEC)),
        has_status=True,
        status=REPLICA_SET_STATUS,
        left_out_at_zero=REPLICA_SET_COUNTERS,
    ),
    "deployments.apps": declared(
        Struct(Field("spec", default={}, struct=DEPLOYMENT_SPEC)),
        has_status=True,
        status=DEPLOYMENT_STATUS,
        status_rules=_collisions,
        left_out_at_zero=DEPLOYMENT_COUNTERS,
    ),
    "daemonsets.apps": declared(
        Struct(Field("spec", default={}, struct=DAEMON_SET_SPEC)),
        has_status=True,
        on_create=lambda new, ctx: _number_template(new, max(1, _template_number(new))),
        on_update=_update,
        status=DAEMON_SET_STATUS,
        status_rules=_collisions,
        left_out_at_zero=("updatedNumberScheduled", "numberAvailable", "numberUnavailable"),
    ),
    "statefulsets.apps": declared(
        Struct(Field("spec", default={}, struct=STATEFUL_SET_SPEC)),
        # Pods are named after the set, and their names are host names.
        name=label,
        has_status=True,
        on_create=_gate,
        on_update=_gate_update,
        update_rules=_fixed,
        status=STATEFUL_SET_STATUS,
        status_rules=_status_rules_stateful_set,
        left_out_at_zero=("readyReplicas", "currentReplicas", "updatedReplicas"),
    ),
}
