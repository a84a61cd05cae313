"""The switches a kubelet reads."""

from __future__ import annotations

import msgspec

from kubelet.status.resize_policy import Form, form_of
from services.api.switches import Switches
from services.api.unbind import nodes_may, spelling


class Settings(msgspec.Struct, frozen=True):
    """The switches a kubelet asks, read once."""

    on_reject: str = "fail"
    unbind_api: str = "subresource"
    unbind_spelling: tuple[str, str] = ("create", "unbind")
    """Verb and subresource of the call, where the kubelet makes it."""
    has_unbinding: bool = True
    teardown: str = "before"
    fallback: str = "fail"
    fence: str = "session"
    user_bound: str = "exempt"
    request_deadline_s: float = 120.0
    unbind_reasons: tuple[str, ...] = ()
    defer_period_s: float = 5.0
    defer_timeout_s: float = 30.0
    defer_reasons: tuple[str, ...] = ("UnexpectedAdmissionError",)
    device_defer_timeout_s: float = 0.0
    tells_device_health: bool = False
    writes_at_once: bool = False
    evicts_for_resizes: bool = True
    resize_policy: Form | None = None
    guards_devices: bool = False
    pleg_mode: str = "evented"
    readmits_running: bool = True

    @classmethod
    def of(cls, switches: Switches) -> Settings:
        """Return what these switches say."""
        return cls(
            on_reject=switches.choice("kubelet.on_reject"),
            unbind_api=_unbind_form(switches),
            unbind_spelling=spelling(switches),
            has_unbinding=switches.flag("PodUnbinding"),
            teardown=switches.choice("kubelet.unbind_teardown"),
            fallback=switches.choice("unbind.fallback"),
            fence=switches.choice("unbind.fence"),
            user_bound=switches.choice("unbind.user_bound"),
            request_deadline_s=switches.number("unbind.request_deadline_s"),
            unbind_reasons=_patterns(switches.choice("unbind.reasons")),
            defer_period_s=switches.number("defer.period_s"),
            defer_timeout_s=switches.number("defer.timeout_s"),
            defer_reasons=_patterns(switches.choice("defer.reasons")),
            device_defer_timeout_s=switches.number("device.defer_timeout_s"),
            tells_device_health=switches.flag("ResourceHealthStatus"),
            writes_at_once=switches.choice("kubelet.status_batching") == "immediate",
            evicts_for_resizes=_evicts_for_resizes(switches),
            resize_policy=form_of(switches),
            guards_devices=switches.choice("dra.double_allocation_guard") == "driver",
            pleg_mode=switches.choice("pleg.mode"),
            readmits_running=switches.flag("restart.readmit_running"),
        )


def _evicts_for_resizes(switches: Switches) -> bool:
    """Whether the kubelet makes room itself for a critical pod's resize: not where only the scheduler is to."""
    has_heir = switches.flag("InPlacePodVerticalScalingSchedulerPreemption")
    return not (has_heir and switches.choice("resize.generation") in ("G3", "G4"))


def _unbind_form(switches: Switches) -> str:
    """Return how this kubelet may give pods back: none when it would have to call and must not."""
    form = switches.choice("unbind.api")
    return "none" if form in ("subresource", "binding_delete") and not nodes_may(switches) else form


def _patterns(text: str) -> tuple[str, ...]:
    """Return the reasons of `A+B`; empty for `all`."""
    return () if text == "all" else tuple(part for part in text.split("+") if part)
