"""ReplicationControllers and PodTemplates (core/v1). The texts are upstream's (`pkg/apis/core/validation`)."""

from apiserver_fake.registry.strategies.apps import REPLICA_SET_STATUS
from apiserver_fake.registry.strategy import WriteContext, declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import Causes, invalid, labels, required
from apiserver_fake.registry.validation.pod.spec import always_restarts, pod_template
from services.api.meta import Document

COUNTERS = ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")


def _from_template(new: Document, ctx: WriteContext) -> None:
    """Take selector and labels from the template where they are left out (core/v1 defaults)."""
    spec = dict(new.get("spec") or {})
    own = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if own and not spec.get("selector"):
        new["spec"] = {**spec, "selector": dict(own)}
    if own and not new["metadata"].get("labels"):
        new["metadata"] = {**new["metadata"], "labels": dict(own)}


def _selector(spec: Document, at: str, report: Report) -> Causes:
    selector = spec.get("selector")
    own = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if not selector:
        yield required(f"{at}selector")
    elif spec.get("template") is not None and not selector.items() <= own.items():
        yield invalid(f"{at}template.metadata.labels", own, "`selector` does not match template `labels`")


CONTROLLER_SPEC = Struct(
    Field("minReadySeconds", minimum=0),
    _selector,
    Field("selector", form=labels),
    Field("replicas", default=1, minimum=0),
    Field("template", required=True, struct=pod_template(always_restarts("replicationcontroller"))),
)

STRATEGIES = {
    "replicationcontrollers": declare_strategy(
        Struct(Field("spec", default={}, struct=CONTROLLER_SPEC)),
        has_status=True,
        before_create=_from_template,
        status=REPLICA_SET_STATUS,
        left_out_at_zero=COUNTERS,
    ),
    "podtemplates": declare_strategy(Struct(Field("template", default={}, struct=pod_template()))),
}
