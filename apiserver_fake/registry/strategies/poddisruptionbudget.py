"""Disruption budgets: one bound, not both; the status belongs to the disruption controller."""

from apiserver_fake.strategy import declared
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import Causes, at_most_all, invalid, label_selector
from services.api.meta import Document

BOUNDS = ("minAvailable", "maxUnavailable")


def _one_bound(spec: Document, at: str, report: Report) -> Causes:
    if all(spec.get(name) is not None for name in BOUNDS):
        yield invalid(at[:-1], spec, "minAvailable and maxUnavailable cannot be both set")


def _bound(value: int | str, path: str, report: Report) -> Causes:
    yield from at_most_all(path, value)


SPEC = Struct(
    _one_bound,
    *(Field(name, rule=_bound) for name in BOUNDS),
    Field("selector", form=label_selector),
    Field("unhealthyPodEvictionPolicy", enum=("AlwaysAllow", "IfHealthyBudget")),
)
STRATEGIES = {"poddisruptionbudgets.policy": declared(Struct(Field("spec", default={}, struct=SPEC)), has_status=True)}
