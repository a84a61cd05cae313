"""Leases: durations above zero; the server remembers when it saw each renewal.

Source: upstream `pkg/apis/coordination/validation/validation.go`.
"""

from apiserver_fake.strategy import WriteContext, declared
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import Causes, forbidden, qualified_name, unsupported
from services.api.meta import Document

STRATEGY = "OldestEmulationVersion"


def _strategy(name: str, path: str, report: Report) -> Causes:
    # The member is named twice, as upstream does.
    if "/" in name:
        yield from qualified_name(f"{path}.strategy", name)
    elif name != STRATEGY:
        yield unsupported(f"{path}.strategy", name, (STRATEGY,))


def _preferred(spec: Document, at: str, report: Report) -> Causes:
    if spec.get("preferredHolder") and not spec.get("strategy"):
        yield forbidden(f"{at}preferredHolder", "may only be specified if `strategy` is defined")


SPEC = Struct(
    Field("leaseDurationSeconds", minimum=1, text="must be greater than 0"),
    Field("leaseTransitions", minimum=0),
    Field("strategy", rule=_strategy),
    _preferred,
)


def _remember(new: Document, ctx: WriteContext) -> None:
    meta = new["metadata"]
    ctx.memory.renewed_s[f"{meta.get('namespace', '')}/{meta.get('name', '')}"] = ctx.now_s


def _remember_renewal(old: Document, new: Document, ctx: WriteContext) -> None:
    if (old.get("spec") or {}).get("renewTime") != (new.get("spec") or {}).get("renewTime"):
        _remember(new, ctx)


STRATEGIES = {
    "leases.coordination.k8s.io": declared(
        Struct(Field("spec", struct=SPEC)), on_create=_remember, on_update=_remember_renewal
    )
}
