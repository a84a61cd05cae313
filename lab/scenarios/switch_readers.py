"""Which components read a switch, found where they do: in their code.

A table of readers would be one more place to edit with each switch, and to forget.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from services.api.switches import EMULATED, REGISTER, Switches, names_of
from services.api.unbind import UnbindSwitches
from services.dra.features import Features
from services.reconcile.claim_release import ReleaseSwitches
from services.runtime.components import CLAIM_CONTROLLER, DEVICE_PLUGIN, DRA_DRIVER, component_of

_ROOT: Final = Path(__file__).parents[2]
_EMULATED: Final = {DEVICE_PLUGIN: "kubelet/deviceplugin/emulated", DRA_DRIVER: "kubelet/dra/emulated"}
_MANAGER: Final = "services/runtime/manager.py"
_CODE: Final = {
    "apiserver": ("apiserver_fake",),
    "scheduler": ("scheduler",),
    "controllers": ("services/controllers", _MANAGER),
    CLAIM_CONTROLLER: ("claim_controller", _MANAGER),
    "kubelet": ("kubelet",),
    **{component: (folder,) for component, folder in _EMULATED.items()},
}
_SHARED: Final = (UnbindSwitches, Features, ReleaseSwitches)
"""Views that more than one component may have; whose code names the view reads its switches."""


def _files(component: str) -> Iterable[Path]:
    """Return the source files of a component, without those of the processes that live in its folder."""
    others = [_ROOT / folder for name, folder in _EMULATED.items() if name != component]
    for place in _CODE[component]:
        path = _ROOT / place
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        yield from (file for file in found if not any(file.is_relative_to(other) for other in others))


@cache
def switches_read_by(component: str) -> frozenset[str]:
    """Return the names of the switches that change what a component (`kubelet`, `scheduler`) does."""
    text = "\n".join(file.read_text(encoding="utf-8") for file in _files(component))
    named = frozenset(re.findall(r'"([\w.]+)"', text)) & {each.name for each in REGISTER}
    shared = (names_of(view) for view in _SHARED if re.search(rf"\b{view.__name__}\b", text))
    # The release decides what every other switch is that was not set.
    return named.union({EMULATED}, *shared)


def check_readers(process: str, assignments: Iterable[str]) -> None:
    """Raise ValueError for a switch that the process does not read; the message says which components do."""
    component = component_of(process)
    if component not in _CODE:
        raise ValueError(f"no component {process!r}; there are: {', '.join(sorted(_CODE))}")
    for name in Switches.parse(assignments).chosen:
        if name not in switches_read_by(component):
            readers = ", ".join(each for each in _CODE if name in switches_read_by(each))
            raise ValueError(f"switch {name} is not read by {process}; it is by {readers}")
