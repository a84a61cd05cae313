"""Each extension of the API server can be left out in one place, and one that nobody needs is never imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from apiserver_fake.extensions.register import ALL
from lab.scenarios.simulation import simloop
from services.api.kinds.customresourcedefinition import DEFINITIONS
from tests.component.apiserver_fake.custom_resources import Machine, a_definition

ROOT = Path(__file__).parents[3]
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
FOLDERS = {path.parent.name for path in (ROOT / "apiserver_fake" / "extensions").glob("*/__init__.py")}
ALONE = """
import sys
from lab.scenarios.run import load_scenario, simulate

result = simulate(load_scenario(sys.argv[1]), seed=1)
assert result.passed, result.error
print(*sorted(name for name in sys.modules if name.startswith("apiserver_fake.extensions.")))
print(*sorted(name for name in sys.modules if name.startswith(("apiserver_fake.rest.", "apiserver_fake.grpc.", "aiohttp"))))
"""


def test_every_extension_has_a_folder_and_a_name():
    assert FOLDERS == ALL


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_server_without_one_extension_serves_pods_all_the_same(name):
    async def run():
        machine = Machine()
        for _ in range(2):  # the second time it recovers what the first has stored
            async with machine.cluster(ALL - {name}) as cluster:
                made = await cluster.call("create", "pods", body=POD)
                assert made["kind"] == "Pod" or made["reason"] == "AlreadyExists"
                assert (await cluster.call("get", "pods", "p", code=200))["metadata"]["name"] == "p"

    simloop.run(run())


@pytest.mark.parametrize(
    ("name", "resource", "code"),
    [
        ("customresources", DEFINITIONS, 404),
        ("admission", "validatingadmissionpolicies.admissionregistration.k8s.io", 404),
        ("aggregated", "nodes.metrics.k8s.io", 404),
        ("fairness", "flowschemas.flowcontrol.apiserver.k8s.io", 404),
        ("rbac", "clusterroles.rbac.authorization.k8s.io", 404),
    ],
)
def test_what_an_extension_serves_is_there_with_it_and_nowhere_without(name, resource, code):
    async def run():
        async with Machine().cluster() as cluster:
            await cluster.call("list", resource, code=200)
        async with Machine().cluster(ALL - {name}) as cluster:
            await cluster.call("list", resource, code=code)

    simloop.run(run())


def test_without_managers_nothing_can_be_applied_and_nothing_is_managed():
    applying = {"patch_type": "apply", "field_manager": "m", "field_validation": "Strict"}

    async def run(extensions, codes):
        async with Machine().cluster(extensions) as cluster:
            made = await cluster.call("create", "pods", body=POD, field_validation="Strict", code=201)
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}}
            await cluster.call("patch", "configmaps", "m", body, code=codes, **applying)
            return "managedFields" in made["metadata"]

    assert simloop.run(run(ALL, 201))
    assert not simloop.run(run(ALL - {"managedfields"}, 415))


def test_without_conversions_a_kind_is_served_in_its_stored_version_alone():
    async def versions(extensions):
        async with Machine().cluster(extensions) as cluster:
            return [each.resource.version for each in cluster.server.catalogue.kind("events").versions]

    assert simloop.run(versions(ALL)) == ["v1", "v1"]
    assert simloop.run(versions(ALL - {"conversion"})) == ["v1"]


def test_a_definition_is_served_though_nothing_was_loaded_for_it_before():
    async def run():
        async with Machine().cluster() as cluster:
            assert cluster.server._definitions is None
            await cluster.define(a_definition())
            assert cluster.is_served()

    simloop.run(run())


def test_a_simulation_that_needs_no_extension_imports_none_and_no_server():
    command = [sys.executable, "-c", ALONE, str(ROOT / "experiments" / "unbinding" / "limit.txt")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

    extensions, servers = (line.split() for line in done.stdout.split("\n")[:2])
    assert extensions == ["apiserver_fake.extensions.points", "apiserver_fake.extensions.register"]
    assert servers == []
