"""Workloads of `apps`: their defaults, their mutable fields, and the numbers of a rolling update.

Source: upstream `pkg/apis/apps/validation/validation.go`.
"""

from collections.abc import Callable

from apiserver_fake.registry.strategy import WriteContext, declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    count_or_percentage,
    forbidden,
    invalid,
    label,
    not_above_all,
    not_decremented,
    not_negative,
    not_supported,
    number_of,
    required,
)
from apiserver_fake.registry.validation.pod.spec import selected_template
from apiserver_fake.registry.validation.volumeclaim import CLAIM_SPEC
from services.api.kinds.daemonset import TEMPLATE_GENERATION
from services.api.kinds.statefulset import DELETE, ON_DELETE, ORDERED, PARALLEL, RETAIN, ROLLING
from services.api.meta import Document

REVISION = Struct(Field("data", required="data is mandatory", is_immutable=True), Field("revision", minimum=0))
REPLICAS, MIN_READY = Field("replicas", default=1, minimum=0), Field("minReadySeconds", minimum=0)
HISTORY = Field("revisionHistoryLimit", default=10, minimum=0)
REPLICA_SET_SPEC = Struct(REPLICAS, MIN_READY, *selected_template("replicaset"))
REPLICA_SET_COUNTERS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
DEPLOYMENT_COUNTERS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


def _rolling(defaults: Document) -> Callable[[Document], None]:
    def complete(strategy: Document) -> None:
        if strategy["type"] == "RollingUpdate":
            strategy["rollingUpdate"] = {**defaults, **(strategy.get("rollingUpdate") or {})}

    return complete


def _internal(strategy: Document, *names: str) -> Document:
    """Return a strategy as upstream's internal type is written, which has no JSON names."""
    numbers = strategy.get("rollingUpdate")
    shown = numbers and {f"{name[0].upper()}{name[1:]}": numbers.get(name) for name in names}
    return {"Type": strategy["type"], "RollingUpdate": shown}


def _check_numbers_deployment(strategy: Document, at: str, report: Report) -> Causes:
    kind, numbers, path = strategy["type"], strategy.get("rollingUpdate"), f"{at}rollingUpdate"
    if kind not in ("Recreate", "RollingUpdate"):
        shown = _internal(strategy, "maxUnavailable", "maxSurge")
        yield not_supported(at[:-1], shown, ("Recreate", "RollingUpdate"))
    elif kind == "Recreate" and numbers is not None:
        yield forbidden(path, "may not be specified when strategy `type` is 'Recreate'")
    if kind != "RollingUpdate" or numbers is None:
        return
    unavailable, surge = numbers["maxUnavailable"], numbers["maxSurge"]
    yield from count_or_percentage(f"{path}.maxUnavailable", unavailable)
    yield from count_or_percentage(f"{path}.maxSurge", surge)
    if number_of(unavailable) == number_of(surge) == 0:
        yield invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
    yield from not_above_all(f"{path}.maxUnavailable", unavailable)


def _deadline(deadline: int, path: str, report: Report) -> Causes:
    if deadline <= (report.scope or 0):
        yield invalid(path, deadline, "must be greater than minReadySeconds")


def _lend_readiness(spec: Document, at: str, report: Report) -> Causes:
    report.scope = spec.get("minReadySeconds")
    return ()


DEPLOYMENT_STRATEGY = Struct(
    Field("type", default="RollingUpdate", is_blank_absent=True),
    _check_numbers_deployment,
    completion=_rolling({"maxUnavailable": "25%", "maxSurge": "25%"}),
    are_defaults_last=True,
)
DEPLOYMENT_SPEC = Struct(
    REPLICAS,
    *selected_template("deployment"),
    Field("strategy", default={}, struct=DEPLOYMENT_STRATEGY),
    MIN_READY,
    HISTORY,
    _lend_readiness,
    Field("progressDeadlineSeconds", default=600, minimum=0, rule=_deadline),
)


def counter_struct(*counters: str, above: tuple[tuple[str, str], ...]) -> Struct:
    """Return the table of a status whose counters are not negative; each first counter of `above` is at most
    the second.
    """

    def compare(status: Document, at: str, report: Report) -> Causes:
        for one, other in above:
            if (count := status.get(one) or 0) > (status.get(other) or 0):
                shown = "status.replicas" if other == "replicas" else other
                yield invalid(f"{at}{one}", count, f"cannot be greater than {shown}")

    return Struct(*(Field(each, minimum=0) for each in counters), compare)


REPLICA_SET_STATUS = counter_struct(
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
DEPLOYMENT_STATUS = counter_struct(
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
    if strategy["type"] == "OnDelete":
        return
    if strategy["type"] != "RollingUpdate":
        yield not_supported(at[:-1], _internal(strategy, *DAEMON_SET_ROLLING), ("RollingUpdate", "OnDelete"))
        return
    path, numbers = f"{at}rollingUpdate", strategy["rollingUpdate"]
    for rule in (count_or_percentage, not_above_all):
        for name in DAEMON_SET_ROLLING:
            yield from rule(f"{path}.{name}", numbers[name])
    unavailable, surge = number_of(numbers["maxUnavailable"]), number_of(numbers["maxSurge"])
    if unavailable and surge:
        yield invalid(f"{path}.maxSurge", numbers["maxSurge"], "may not be set when maxUnavailable is non-zero")
    elif not unavailable and not surge:
        yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


DAEMON_SET_STRATEGY = Struct(
    Field("type", default="RollingUpdate", is_blank_absent=True),
    _check_numbers_daemon_set,
    completion=_rolling(DAEMON_SET_ROLLING),
    are_defaults_last=True,
)
DAEMON_SET_SPEC = Struct(
    *selected_template("daemonset"), MIN_READY, Field("updateStrategy", default={}, struct=DAEMON_SET_STRATEGY), HISTORY
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
    shown = _internal(strategy, "partition", "maxUnavailable")
    if kind not in (ROLLING, ON_DELETE):
        yield invalid(path, shown, f"must be '{ROLLING}' or '{ON_DELETE}'")
    elif numbers is not None and kind == ON_DELETE:
        yield invalid(at, shown["RollingUpdate"], f"only allowed for updateStrategy '{ROLLING}'")
    elif numbers is not None:
        yield from not_negative(f"{at}.partition", numbers["partition"])
        if (most := numbers.get("maxUnavailable")) is not None:
            yield from count_or_percentage(f"{at}.maxUnavailable", most)
            if number_of(most) == 0:
                yield invalid(f"{at}.maxUnavailable", most, "cannot be 0")
            yield from not_above_all(f"{at}.maxUnavailable", most)


CLAIM = Struct(
    Field("apiVersion", default="v1"),
    Field("kind", default="PersistentVolumeClaim"),
    Field("status", default={"phase": "Pending"}),
    Field("spec", default={}, struct=Struct(Field("volumeMode", default="Filesystem"))),
)


def _claims(spec: Document, at: str, report: Report) -> Causes:
    """Check the claims of a set; they may stay wrong where they are stored so (upstream since v1.34)."""
    wrong = _wrong_claims(spec, at, report)
    if wrong and (report.update is None or not _wrong_claims(report.update[0]["spec"], at, report)):
        yield from wrong


def _wrong_claims(spec: Document, at: str, report: Report) -> list[Cause]:
    found = Report(report.switches)
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        CLAIM_SPEC.check(claim.get("spec") or {}, f"{at}volumeClaimTemplates[{index}].spec.", found)
    return found.causes


def _service_name(name: str, path: str, report: Report) -> Causes:
    if report.update is None and name:
        yield from label(path, name)


STATEFUL_SET_SPEC = Struct(
    # Defaults keep their order, which hashes of revisions are taken over; the count is checked below.
    Field("replicas", default=1),
    Field("podManagementPolicy", default=ORDERED, rule=_check_policy),
    Field("updateStrategy", default={}, struct=Struct(completion=_with_numbers_stateful_set), rule=_check_update),
    Field(
        "persistentVolumeClaimRetentionPolicy",
        default={},
        struct=Struct(*(Field(name, default=RETAIN, enum=(RETAIN, DELETE)) for name in KEPT)),
    ),
    Field("serviceName", rule=_service_name),
    _claims,
    REPLICAS,
    MIN_READY,
    Field("ordinals", struct=Struct(Field("start", minimum=0))),
    HISTORY,
    *selected_template("statefulset", has_claims=True, is_selector_fixed=False),
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


def _immutable_fields(old: Document, new: Document, ctx: WriteContext) -> Causes:
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
    "controllerrevisions.apps": declare_strategy(REVISION),
    "replicasets.apps": declare_strategy(
        Struct(Field("spec", default={}, struct=REPLICA_SET_SPEC)),
        has_status=True,
        status=REPLICA_SET_STATUS,
        left_out_at_zero=REPLICA_SET_COUNTERS,
    ),
    "deployments.apps": declare_strategy(
        Struct(Field("spec", default={}, struct=DEPLOYMENT_SPEC)),
        has_status=True,
        status=DEPLOYMENT_STATUS,
        status_rules=_collisions,
        left_out_at_zero=DEPLOYMENT_COUNTERS,
    ),
    "daemonsets.apps": declare_strategy(
        Struct(Field("spec", default={}, struct=DAEMON_SET_SPEC)),
        has_status=True,
        on_create=lambda new, ctx: _number_template(new, max(1, _template_number(new))),
        on_update=_update,
        status=DAEMON_SET_STATUS,
        status_rules=_collisions,
        left_out_at_zero=("updatedNumberScheduled", "numberAvailable", "numberUnavailable"),
    ),
    "statefulsets.apps": declare_strategy(
        Struct(Field("spec", default={}, struct=STATEFUL_SET_SPEC)),
        # Pods are named after the set, and their names are host names.
        name=label,
        has_status=True,
        on_create=_gate,
        on_update=_gate_update,
        update_rules=_immutable_fields,
        status=STATEFUL_SET_STATUS,
        status_rules=_status_rules_stateful_set,
        left_out_at_zero=("readyReplicas", "currentReplicas", "updatedReplicas"),
    ),
}
