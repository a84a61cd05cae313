"""The engine's client as a scenario uses it: which words it is given, in which order. The client is a script here."""

import asyncio
import json

import pytest

from lab.scenarios.mesh import NotPossible
from lab.scenarios.processes.containers import Containers
from services.runtime.config import MeshError

NETWORK = "lab_mesh"


def inspected(identity, service, hostname, **labels):
    labels = {"com.docker.compose.project": "lab", "com.docker.compose.service": service, **labels}
    config = {"Labels": labels, "Hostname": hostname, "Env": ["KEPLAB_SET=a=b", "KEPLAB_SECURITY=strict"]}
    return {"Id": identity, "Config": config, "NetworkSettings": {"Networks": {NETWORK: {}}}}


@pytest.fixture
def docker(tmp_path):
    """A client that writes down what it is asked, and knows five containers."""
    found = [
        inspected("id-api", "apiserver", "aaa"),
        inspected("id-sched", "scheduler", "bbb"),
        inspected("id-k", "kubelet", "ccc"),
        inspected("id-setup", "setup", "ddd"),
        inspected("id-run", "kubelet", "eee", **{"com.docker.compose.oneoff": "True"}),
    ]
    (tmp_path / "inspected.json").write_text(json.dumps(found))
    script = tmp_path / "docker"
    script.write_text(
        f"""#!/bin/sh
echo "$@" >> {tmp_path}/asked
case "$1" in
  ps) case "$*" in *=lab) echo id-api; echo id-sched;; esac;;
  inspect) cat {tmp_path}/inspected.json;;
  port) echo 127.0.0.1:7443;;
  pause) echo "Error response from daemon: cannot pause" >&2; exit 1;;
esac
"""
    )
    script.chmod(0o700)
    return script


def asked(docker):
    words = (docker.parent / "asked").read_text().splitlines()
    return [line for line in words if not line.startswith(("ps", "inspect"))]


def test_containers_are_named_as_components_and_a_kubelets_by_its_host(docker):
    found = Containers("lab", str(docker)).by_name()

    assert ["apiserver", "kubelet/ccc", "scheduler"] == sorted(found)
    assert "id-k" == found["kubelet/ccc"].id


def test_a_project_without_containers_is_one_line(docker):
    with pytest.raises(MeshError, match="no container belongs to the compose project 'other'"):
        Containers("other", str(docker)).by_name()


def test_what_is_killed_is_started_again_by_hand(docker):
    containers = Containers("lab", str(docker))

    asyncio.run(containers.kill(containers.by_name()["scheduler"], 0.0))

    assert ["kill -s KILL id-sched", "start id-sched"] == asked(docker)


def test_what_is_cut_off_is_put_back_under_the_name_of_its_service_once(docker):
    containers = Containers("lab", str(docker))
    scheduler = containers.by_name()["scheduler"]

    containers.cut(scheduler, is_cut=True)
    containers.cut(scheduler, is_cut=True)
    containers.heal([scheduler])
    containers.heal([scheduler])

    assert [f"network disconnect {NETWORK} id-sched", f"network connect --alias scheduler {NETWORK} id-sched"] == asked(
        docker
    )


def test_the_last_line_of_what_the_client_says_is_why_it_is_not_possible(docker):
    containers = Containers("lab", str(docker))

    with pytest.raises(NotPossible, match="pause: Error response from daemon: cannot pause"):
        asyncio.run(containers.pause(containers.by_name()["scheduler"], 0.0))


def test_settings_and_the_published_port_are_the_containers_own(docker):
    containers = Containers("lab", str(docker))

    assert ("a=b", "strict", "") == tuple(
        containers.setting("apiserver", name) for name in ("KEPLAB_SET", "KEPLAB_SECURITY", "KEPLAB_NONE")
    )
    assert "127.0.0.1:7443" == containers.server()


def test_a_client_that_is_not_there_is_one_line():
    with pytest.raises(MeshError, match=r"no-docker ps: .*No such file"):
        Containers("lab", "/no-docker").by_name()
