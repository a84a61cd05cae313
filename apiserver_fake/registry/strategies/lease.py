"""Leases: durations are above zero; the server records when it saw each renewal.

Source: upstream `pkg/apis/coordination/validation/validation.go`.
"""

from apiserver_fake.registry.strategy import WriteContext, declare_strategy
from apiserver_fake.registry.validation.fields import Field, Struct
from services.api.meta import Document

SPEC = Struct(
    Field("leaseDurationSeconds", minimum=1, text="must be greater than 0"), Field("leaseTransitions", minimum=0)
)


def _remember(new: Document, ctx: WriteContext) -> None:
    meta = new["metadata"]
    ctx.memory.renewed_s[f"{meta.get('namespace', '')}/{meta.get('name', '')}"] = ctx.now_s


def _remember_renewal(old: Document, new: Document, ctx: WriteContext) -> None:
    if (old.get("spec") or {}).get("renewTime") != (new.get("spec") or {}).get("renewTime"):
        _remember(new, ctx)


STRATEGIES = {
    "leases.coordination.k8s.io": declare_strategy(
        Struct(Field("spec", struct=SPEC)), on_create=_remember, on_update=_remember_renewal
    )
}
