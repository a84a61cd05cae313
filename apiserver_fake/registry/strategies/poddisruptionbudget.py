"""PodDisruptionBudgets: one bound, not both; the status belongs to the disruption controller."""

from apiserver_fake.registry.strategy import declare_strategy
from apiserver_fake.registry.validation.conditions import CONDITION
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import Causes, at_most_all, invalid, label_selector, path_segment
from services.api.meta import Document

BOUNDS = ("minAvailable", "maxUnavailable")


def _one_bound(spec: Document, at: str, report: Report) -> Causes:
    if all(spec.get(name) is not None for name in BOUNDS):
        # The value is shown as upstream's internal type is written.
        names = (*BOUNDS, "selector", "unhealthyPodEvictionPolicy")
        shown = {f"{name[0].upper()}{name[1:]}": spec.get(name) for name in names}
        yield invalid(at[:-1], shown, "minAvailable and maxUnavailable cannot be both set")


def _percentage_limit(value: int | str, path: str, report: Report) -> Causes:
    yield from at_most_all(path, value)


SPEC = Struct(
    _one_bound,
    *(Field(name, rule=_percentage_limit) for name in BOUNDS),
    Field("selector", form=label_selector),
    Field("unhealthyPodEvictionPolicy", enum=("AlwaysAllow", "IfHealthyBudget")),
)
COUNTERS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
STATUS = Struct(Field("conditions", items=CONDITION), *(Field(name, minimum=0) for name in COUNTERS))
STRATEGIES = {
    "poddisruptionbudgets.policy": declare_strategy(
        Struct(Field("spec", default={}, struct=SPEC)), name=path_segment, has_status=True, status=STATUS
    )
}
