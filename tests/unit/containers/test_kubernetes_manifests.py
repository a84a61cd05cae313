"""The manifests of `deploy/kubernetes` name flags and files that there are, and each container may do next to nothing."""

from pathlib import Path

import pytest
import yaml

from apiserver_fake.config import ApiServerConfig
from claim_controller.config import ClaimControllerConfig
from kubelet.config import KubeletConfig
from scheduler.config import SchedulerConfig
from services.controllers.config import ControllersConfig
from services.runtime.config import PREFIX, parse
from services.runtime.credentials import main as make_credentials

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
CONFIGS = {
    "apiserver": ApiServerConfig, "scheduler": SchedulerConfig, "controllers": ControllersConfig,
    "claim-controller": ClaimControllerConfig, "kubelet": KubeletConfig,
}  # fmt: skip


def workloads():
    documents = [
        each for name in KUSTOMIZATION["resources"] for each in yaml.safe_load_all((FOLDER / name).read_text())
    ]
    return {each["metadata"]["name"]: each for each in documents if each["kind"] in ("Deployment", "StatefulSet")}


OURS = [name for name in workloads() if name != "etcd"]


def container_of(name):
    return workloads()[name]["spec"]["template"]["spec"]["containers"][0]


def environment(name):
    settings = dict(text.split("=", 1) for text in KUSTOMIZATION["configMapGenerator"][0]["literals"])
    return settings | {each["name"]: each.get("value", "name") for each in container_of(name)["env"]}


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_flag_of_the_process_and_its_value_is_read(name):
    config = CONFIGS[container_of(name)["args"][1]]
    variables = environment(name)

    parse(config, [], variables)

    flags = {f"{PREFIX}{field.upper()}" for field in config.__dataclass_fields__}
    assert set(variables) - flags == set()


@pytest.fixture(scope="module")
def credentials(tmp_path_factory):
    out = tmp_path_factory.mktemp("credentials")
    words = [
        "--out",
        str(out),
        "--host",
        "cluster",
        "--node-prefix",
        "kubelet-",
        "--server-name",
        "apiserver",
        "--rest-url",
        "https://127.0.0.1:7080",
    ]
    make_credentials(words)
    return out


def test_secrets_are_made_of_files_that_there_are_and_no_component_has_the_authority_s_key(credentials):
    files = [file for secret in KUSTOMIZATION["secretGenerator"] for file in secret["files"]]

    assert all((credentials.parent / file.replace("credentials", credentials.name, 1)).is_file() for file in files)
    assert not any("authority" in file or file.endswith("ca.key") for file in files)


@pytest.mark.parametrize("name", OURS)
def test_every_file_that_a_container_is_pointed_to_is_in_its_secret(name):
    given = {Path(file).name for each in KUSTOMIZATION["secretGenerator"] if each["name"] == f"{name}-credentials"
             for file in each["files"]}  # fmt: skip

    named = {Path(value).name for value in environment(name).values() if value.startswith("/credentials/")}

    assert named == given


@pytest.mark.parametrize("name", [*OURS, "etcd"])
def test_every_container_meets_the_level_that_the_namespace_enforces(name):
    pod = workloads()[name]["spec"]["template"]["spec"]
    security = container_of(name)["securityContext"]

    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
    assert not pod["automountServiceAccountToken"]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container_of(name).keys()
    assert "memory" in container_of(name)["resources"]["limits"]
