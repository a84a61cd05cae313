"""`compose.yaml`, with and without `deploy/distributed.env`: it names flags, files and services that there are."""

import re
from pathlib import Path

import pytest
import yaml

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.storage.etcd.client import endpoints_of
from claim_controller.config import ClaimControllerConfig
from kubelet.config import KubeletConfig
from scheduler.config import SchedulerConfig
from services.controllers.config import ControllersConfig
from services.runtime.config import PREFIX, parse
from services.runtime.credentials import main as make_credentials

ROOT = Path(__file__).parents[3]
CONFIGS = {
    "apiserver": ApiServerConfig, "scheduler": SchedulerConfig, "controllers": ControllersConfig,
    "claim-controller": ClaimControllerConfig, "kubelet": KubeletConfig,
}  # fmt: skip
DISTRIBUTED = dict(
    line.split("=", 1)
    for line in (ROOT / "deploy/distributed.env").read_text().splitlines()
    if line and not line.startswith("#")
)
SETTINGS = {"plain": {}, "distributed": DISTRIBUTED}
MEMBERS = ("etcd-0", "etcd-1", "etcd-2")


def compose_file(settings):
    """Return the document with the variables replaced as compose does."""

    def replaced(part):
        if isinstance(part, dict):
            return {name: replaced(each) for name, each in part.items()}
        if isinstance(part, list):
            return [replaced(each) for each in part]
        count = isinstance(part, str)
        while count:
            # From the innermost default outwards.
            part, count = re.subn(r"\$\{(\w+):-([^${}]*)\}", lambda found: settings.get(found[1]) or found[2], part)
        return part

    return replaced(yaml.safe_load((ROOT / "compose.yaml").read_text()))


def active(settings):
    """Return the services that `up` starts."""
    profile = settings.get("COMPOSE_PROFILES")
    services = compose_file(settings)["services"].items()
    return {name: each for name, each in services if profile in each.get("profiles", [profile])}


def component_of(service):
    """Return which component a service runs, "" for none."""
    match service.get("command"):
        case ["component", name, *_]:
            return name
    return ""


def test_without_the_settings_there_is_one_api_server_over_sqlite():
    services = active({})

    assert not {"apiserver-2", *MEMBERS} & services.keys()
    assert "sqlite" == services["apiserver"]["environment"]["KEPLAB_ENGINE"]
    assert {"apiserver:7443"} == {each["environment"]["KEPLAB_SERVER"] for each in services.values()
                                  if "KEPLAB_SERVER" in each["environment"]}  # fmt: skip


def test_with_them_every_component_knows_both_api_servers_and_those_all_members():
    services = active(DISTRIBUTED)

    assert {"apiserver-2", *MEMBERS} <= services.keys()
    for name, each in services.items():
        if component_of(each) in CONFIGS:
            assert "apiserver:7443,apiserver-2:7443" == each["environment"]["KEPLAB_SERVER"], name
    for name in ("apiserver", "apiserver-2"):
        environment = services[name]["environment"]
        assert "etcd" == environment["KEPLAB_ENGINE"]
        assert [(f"{member}:2379", True) for member in MEMBERS] == endpoints_of(environment["KEPLAB_ETCD_SERVERS"])
        assert name == environment["KEPLAB_NAME"]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_no_service_waits_for_one_whose_profile_is_off(settings):
    services = active(settings)

    assert all(services.keys() >= each.get("depends_on", {}).keys() for each in services.values())


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_variable_is_a_flag_of_the_process_and_its_value_is_read(settings):
    for name, each in active(settings).items():
        config = CONFIGS.get(component_of(each))
        if config is None:
            continue
        variables = {key: text for key, text in each["environment"].items() if key.startswith(PREFIX)}
        parse(config, [], variables)
        flags = {f"{PREFIX}{field.upper()}" for field in config.__dataclass_fields__}
        assert set(variables) - flags == set(), name


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_file_that_a_container_is_pointed_to_is_in_one_of_its_volumes(settings, tmp_path):
    services = active(settings)
    command = services["setup"]["command"]
    places = {"--out=/credentials": f"--out={tmp_path}", "--switches=/switches": f"--switches={tmp_path / 'switches'}"}
    (tmp_path / "switches").mkdir()
    make_credentials([places.get(word, word) for word in command[2:]])
    folders = {
        volume: tmp_path / Path(target).relative_to("/credentials")
        for volume, target, *_ in (text.split(":") for text in services["setup"]["volumes"])
        if target.startswith("/credentials")
    }

    for name, each in services.items():
        mounts = {target: folders[volume] for volume, target, *_ in (text.split(":") for text in each.get("volumes", []))
                  if volume in folders}  # fmt: skip
        for text in each["environment"].values():
            if str(text).startswith("/credentials/"):
                path = Path(text)
                assert (mounts[str(path.parent)] / path.name).is_file(), (name, text)


def test_only_members_and_api_servers_are_in_the_network_of_the_store_and_nothing_of_it_is_published():
    document = compose_file(DISTRIBUTED)
    inside = {name for name, each in document["services"].items() if "store" in each["networks"]}

    assert {"apiserver", "apiserver-2", *MEMBERS} == inside
    assert document["networks"]["store"]["internal"]
    for member in MEMBERS:
        assert ["store"] == document["services"][member]["networks"]
        assert "ports" not in document["services"][member]


def test_members_name_each_other():
    services = compose_file(DISTRIBUTED)["services"]
    for member in MEMBERS:
        environment = services[member]["environment"]
        peers = dict(text.split("=") for text in environment["ETCD_INITIAL_CLUSTER"].split(","))
        assert set(MEMBERS) == peers.keys()
        assert member == environment["ETCD_NAME"]
        assert peers[member] == environment["ETCD_INITIAL_ADVERTISE_PEER_URLS"]
        assert ("true", "true") == (environment["ETCD_CLIENT_CERT_AUTH"], environment["ETCD_PEER_CLIENT_CERT_AUTH"])


def test_every_container_of_compose_is_as_little_able_as_the_others():
    for name, each in compose_file(DISTRIBUTED)["services"].items():
        assert ("10001:10001", True, ["ALL"]) == (each["user"], each["read_only"], each["cap_drop"]), name
        assert ["no-new-privileges:true"] == each["security_opt"], name
        assert {"mem_limit", "cpus", "pids_limit"} <= each.keys(), name
        assert all(text.startswith("127.0.0.1:") for text in each.get("ports", [])), name
