"""Deployments: defaults, the rolling-update numbers, and a selector that never changes."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import Causes, count_or_percentage, forbidden, invalid, number_of
from apiserver_fake.validation.pod.spec import workload_fields
from services.api.meta import Document

ROLLING = {"maxUnavailable": "25%", "maxSurge": "25%"}


def _with_numbers(strategy: Document) -> None:
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {**ROLLING, **(strategy.get("rollingUpdate") or {})}


def _check_numbers(strategy: Document, at: str, report: Report) -> Causes:
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


STRATEGY = Struct(
    Field("type", default="RollingUpdate", is_blank_absent=True, enum=("Recreate", "RollingUpdate")),
    _check_numbers,
    completion=_with_numbers,
    are_defaults_last=True,
)
SPEC = Struct(
    *workload_fields("deployment"),
    Field("progressDeadlineSeconds", default=600),
    Field("strategy", default={}, struct=STRATEGY),
    _deadline,
)
STRATEGIES = {"deployments.apps": declared(Struct(Field("spec", default={}, struct=SPEC)), has_status=True)}
