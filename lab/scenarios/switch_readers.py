"""Components that read each switch, according to their typed views.

A component's module of switches lists its views, `VIEWS`; every switch that it reads is a field of one of
them.
"""

import importlib
from collections.abc import Iterable
from functools import cache
from typing import Final

from services.api.switches import EMULATED, Switches, names_of
from services.runtime.components import CLAIM_CONTROLLER, DEVICE_PLUGIN, DRA_DRIVER, component_of

VIEWS_OF: Final = {
    "apiserver": "apiserver_fake.registry.switches",
    "scheduler": "scheduler.switches",
    "controllers": "services.controllers.shared_switches",
    CLAIM_CONTROLLER: "claim_controller.switches",
    "kubelet": "kubelet.switches",
    DEVICE_PLUGIN: "",
    DRA_DRIVER: "kubelet.dra.emulated.switches",
}
"""Module with the views of each component; empty for a component that reads no switch."""


def views_of(component: str) -> tuple[type, ...]:
    """Return the typed views of a component."""
    module = VIEWS_OF[component]
    views: tuple[type, ...] = importlib.import_module(module).VIEWS if module else ()
    return views


@cache
def switches_read_by(component: str) -> frozenset[str]:
    """Return the names of the switches that change what a component (`kubelet`, `scheduler`) does."""
    # The release decides what every other switch is that was not set.
    return frozenset({EMULATED}).union(*(names_of(view) for view in views_of(component)))


def check_readers(process: str, assignments: Iterable[str]) -> None:
    """Raise ValueError for a switch that the process does not read; the message says which components do."""
    component = component_of(process)
    if component not in VIEWS_OF:
        raise ValueError(f"no component {process!r}; there are: {', '.join(sorted(VIEWS_OF))}")
    for name in Switches.parse(assignments).chosen_values:
        if name not in switches_read_by(component):
            readers = ", ".join(each for each in VIEWS_OF if name in switches_read_by(each))
            raise ValueError(f"switch {name} is not read by {process}; it is by {readers}")
