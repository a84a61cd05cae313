"""The events of the event log that each component writes. Pure.
Source: guarantees 1.2."""

from typing import Final

_OF_ALL: Final = ("proc.ready", "proc.start", "proc.stop")
_OF_LEADERS: Final = ("lease.acquire", "lease.lose")
EVENTS: Final[dict[str, tuple[str, ...]]] = {
    "apiserver": (
        *_OF_ALL,
        "api.request",
        "api.response",
        "store.commit",
        "store.recovered",
        "watch.bookmark",
        "watch.close",
        "watch.event",
        "watch.open",
    ),
    "scheduler": (
        *_OF_ALL,
        *_OF_LEADERS,
        "sched.assume",
        "sched.attempt",
        "sched.bind_call",
        "sched.bind_result",
        "sched.flush_rescue",
        "sched.gated",
        "sched.moved",
        "sched.nominate",
        "sched.reported",
        "sched.resize",
        "sched.ungated",
        "sched.victim",
    ),
    "controllers": (*_OF_ALL, *_OF_LEADERS, "controller.stage", "ctrl.reconcile", "ctrl.write"),
    "claim-controller": (*_OF_ALL, *_OF_LEADERS, "ctrl.reconcile", "ctrl.write"),
    "kubelet": (
        *_OF_ALL,
        "kubelet.admit",
        "kubelet.cdi_devices",
        "kubelet.checkpoint",
        "kubelet.checkpoint_lost",
        "kubelet.defer",
        "kubelet.device_register",
        "kubelet.devices",
        "kubelet.devices_listed",
        "kubelet.devices_lost",
        "kubelet.driver_away",
        "kubelet.driver_connected",
        "kubelet.driver_lost",
        "kubelet.driver_refused",
        "kubelet.driver_registered",
        "kubelet.prepared",
        "kubelet.reject",
        "kubelet.resize",
        "kubelet.session",
        "kubelet.slices_wiped",
        "kubelet.stage",
        "kubelet.start",
        "kubelet.static",
        "kubelet.stop",
        "kubelet.teardown_done",
        "kubelet.unbind_call",
        "kubelet.unbind_result",
        "kubelet.unprepared",
    ),
    "dra-driver": (
        *_OF_ALL,
        "driver.binding",
        "driver.command",
        "driver.prepare",
        "driver.refused",
        "driver.registered",
        "driver.unprepare",
    ),
    "device-plugin": (*_OF_ALL, "plugin.allocate", "plugin.command", "plugin.pre_start", "plugin.registered"),
}
"""Allowed events of a component's log, by component."""
OF_FAULTS: Final = ("fault.fired", "fault.heal", "fault.inject")
"""Events of the component that injects faults, which has a log of its own."""
