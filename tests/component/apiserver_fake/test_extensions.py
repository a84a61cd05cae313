"""Each extension of the API server can be left out in one place, and one that is not needed is never imported."""

import subprocess
import sys
from pathlib import Path

import pytest

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.extensions.register import ALL, extensions_of
from apiserver_fake.registry.authorization.access import Access
from lab.scenarios.simulation import simloop
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.runtime.config import StartError
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
print(*sorted(name for name in sys.modules if name.startswith(("services.cel.", "services.kwok.expressions", "cryptography"))))
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
    ("name", "resource"),
    [
        ("customresources", DEFINITIONS),
        ("admission", "validatingadmissionpolicies.admissionregistration.k8s.io"),
        ("aggregated", "nodes.metrics.k8s.io"),
        ("fairness", "flowschemas.flowcontrol.apiserver.k8s.io"),
        ("rbac", "clusterroles.rbac.authorization.k8s.io"),
    ],
)
def test_what_an_extension_serves_is_there_with_it_and_nowhere_without(name, resource):
    async def listed(extensions):
        async with Machine().cluster(extensions) as cluster:
            return await cluster.call("list", resource)

    assert "items" in simloop.run(listed(ALL))
    assert simloop.run(listed(ALL - {name}))["reason"] == "NotFound"


@pytest.mark.parametrize(
    ("name", "flag", "settings"),
    [
        ("rbac", "--authorization-mode RBAC", {"authorization_mode": "RBAC"}),
        ("audit", "--audit-log-path", {"audit_log_path": "audit.log"}),
        ("audit", "--audit-policy-file", {"audit_policy_file": "policy.yaml"}),
        ("customresources", "--enable-crds", {"enable_crds": ("Stage",)}),
    ],
)
def test_a_flag_of_an_extension_that_is_left_out_is_refused(name, flag, settings):
    config = ApiServerConfig(engine="memory", grpc_port=None, rest_port=None, **settings)

    with pytest.raises(StartError, match=f"{flag} needs the extension {name}, which this server is built without"):
        extensions_of(config, None, Access(), None, ALL - {name})


def test_a_signing_key_without_the_extension_that_signs_is_refused():
    config = ApiServerConfig(engine="memory", grpc_port=None, rest_port=None, service_account_signing_key_file="sa.key")

    with pytest.raises(StartError, match="--service-account-signing-key-file needs the extension accounts"):
        extensions_of(config, None, Access(), None, ALL - {"accounts"})


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
            assert cluster.server.extensions._definitions is None
            await cluster.define(a_definition())
            assert cluster.is_served()

    simloop.run(run())


def test_a_simulation_that_needs_no_extension_imports_none_and_no_server_and_no_expressions():
    command = [sys.executable, "-c", ALONE, str(ROOT / "experiments" / "unbinding" / "limit.txt")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

    extensions, servers, expressions = (line.split() for line in done.stdout.split("\n")[:3])
    assert extensions == ["apiserver_fake.extensions.points", "apiserver_fake.extensions.register"]
    assert servers == []
    assert expressions == ["services.cel.faults", "services.cel.questions"]
