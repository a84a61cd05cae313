"""A controller is a folder: a tree with one folder more runs it, with the rights that lie in it and no others."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONTROLLER = '''
"""Greet each pod by an annotation."""

from services.api.kinds.pod import Pod
from services.reconcile.actions import NOTHING, Patch, Result
from services.reconcile.controller import Controller, Registration


def reconcile(key, listers, moment):
    pod = listers.of(Pod).get(key)
    if pod is None or "greeting" in pod.metadata.annotations:
        return NOTHING
    return Result((Patch("pods", key, {"metadata": {"annotations": {"greeting": "hello"}}}),))


CONTROLLER = Registration("greeter", lambda switches: Controller("greeter", Pod, reconcile))
'''
ROLE = """
user: system:controller:greeter
rules:
  - name: greet
    verbs: [update, patch]
    resources: [pods]
    mayChange: [metadata.{field}]
"""
ACT = """
import asyncio
from services.api.meta import Key
from services.controllers.wiring import registered_controllers
from tests.component.controllers.conftest import play

async def act(world):
    await world.admin.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
                                      "spec": {"containers": [{"name": "c", "image": "i"}]}})
    await asyncio.sleep(5)
    pod = await world.admin.get("pods", Key("default", "p"))
    return pod["metadata"].get("annotations", {}).get("greeting")

print(list(registered_controllers())[-1], play(act, controllers=("greeter",)))
"""


def linked(tree):
    """Make a copy of the repository's packages whose folder of controllers can be added to."""
    for path in (*ROOT.glob("*/__init__.py"), ROOT / "protos", ROOT / "tests"):
        top = path.parent if path.name == "__init__.py" else path
        if top.name != "services" and not (tree / top.name).exists():
            (tree / top.name).symlink_to(top)
    for folder in ("services", "services/controllers"):
        (tree / folder).mkdir()
        for path in (ROOT / folder).iterdir():
            if path.name not in ("controllers", "__pycache__"):
                (tree / folder / path.name).symlink_to(path)


@pytest.mark.parametrize(("field", "greeting"), [("annotations", "hello"), ("labels", "None")])
def test_a_folder_with_a_controller_and_its_role_is_all_that_a_new_one_needs(tmp_path, field, greeting):
    linked(tmp_path)
    folder = tmp_path / "services" / "controllers" / "greeter"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "controller.py").write_text(CONTROLLER)
    (folder / "role.yaml").write_text(ROLE.format(field=field))

    done = subprocess.run(
        [sys.executable, "-c", ACT], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )

    assert (done.stdout.splitlines()[-1:], done.returncode) == ([f"greeter {greeting}"], 0), done.stderr
