"""What the typed views of a component say that it reads is what its code reads: the code is looked at here only."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from lab.scenarios.switch_readers import VIEWS_OF, check_readers, switches_read_by, views_of
from services.api.switches import EMULATED, REGISTER, names_of

ROOT = Path(__file__).parents[3]
NAMES = {each.name for each in REGISTER}
MANAGER = "services/runtime/manager.py"
EMULATED_PLUGINS = {"device-plugin": "kubelet/deviceplugin/emulated", "dra-driver": "kubelet/dra/emulated"}
CODE = {
    "apiserver": ("apiserver_fake",),
    "scheduler": ("scheduler",),
    "controllers": ("services/controllers", MANAGER),
    "claim-controller": ("claim_controller", MANAGER),
    "kubelet": ("kubelet",),
    **{component: (folder,) for component, folder in EMULATED_PLUGINS.items()},
}
SHARED = {"services/api/unbind.py", "services/dra/features.py", "services/reconcile/manager_switches.py"}
"""Modules with views that several components read."""


@cache
def texts_of(component):
    """Return the texts of a component's modules, without those of the processes that live in its folder."""
    others = [ROOT / folder for name, folder in EMULATED_PLUGINS.items() if name != component]
    found = {}
    for place in CODE[component]:
        path = ROOT / place
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if not any(file.is_relative_to(other) for other in others):
                found[str(file.relative_to(ROOT))] = file.read_text(encoding="utf-8")
    return found


def view_classes(text):
    """Return the classes that have a field made by `switch`."""
    return [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        and any(
            isinstance(each, ast.AnnAssign)
            and isinstance(each.value, ast.Call)
            and isinstance(each.value.func, ast.Name)
            and each.value.func.id == "switch"
            for each in node.body
        )
    ]


def names_used(text):
    """Return the names that a module's code uses; words of its docstrings are none."""
    nodes = list(ast.walk(ast.parse(text)))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return imported | {node.id for node in nodes if isinstance(node, ast.Name)}


def test_every_component_has_views():
    assert set(VIEWS_OF) == set(CODE)


@pytest.mark.parametrize("component", CODE)
def test_every_view_in_a_components_code_is_registered(component):
    registered = {view.__name__ for view in views_of(component)}

    found = {name for path, text in texts_of(component).items() if path != MANAGER for name in view_classes(text)}

    assert found <= registered


@pytest.mark.parametrize("component", CODE)
def test_a_component_whose_code_names_a_shared_view_registers_it(component):
    registered = {view.__name__ for view in views_of(component)}
    shared = {name for path in SHARED for name in view_classes((ROOT / path).read_text(encoding="utf-8"))}
    shared |= {"ReleaseSwitches"}

    used = set().union(*(names_used(text) for text in texts_of(component).values()))

    assert shared & used <= registered


@pytest.mark.parametrize("component", CODE)
def test_a_registered_view_is_read(component):
    texts = [text for path, text in texts_of(component).items() if not path.endswith("switches.py")]

    for view in views_of(component):
        assert names_of(view), view
        assert any(re.search(rf"\b{view.__name__}\b", text) for text in texts), view


@pytest.mark.parametrize("component", CODE)
def test_no_switch_is_named_that_no_view_has(component):
    text = "\n".join(texts_of(component).values())

    assert set(re.findall(r'"([\w.]+)"', text)) & NAMES <= switches_read_by(component)


@pytest.mark.parametrize("component", CODE)
def test_no_switch_is_read_past_the_views(component):
    read = re.compile(r'switches\.(?:flag|choice|number|integer)\("([\w.]+)"\)')

    assert {name for text in texts_of(component).values() for name in read.findall(text)} <= {EMULATED}


def test_a_switch_that_a_process_does_not_read_names_who_does():
    with pytest.raises(ValueError, match=r"switch cpu\.policy is not read by scheduler; it is by kubelet"):
        check_readers("scheduler", ["cpu.policy=static"])
    check_readers("kubelet/h0", ["cpu.policy=static"])
