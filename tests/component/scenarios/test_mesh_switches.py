"""Other switches for a mesh that runs: who is given which, in which order, and that all are put back.

The engine's client is a script here, and the processes of the network are an HTTP server.
"""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lab.scenarios.mesh import MeshPlan, NotPossible
from lab.scenarios.processes import mesh_switches
from lab.scenarios.processes.containers import Containers
from lab.scenarios.processes.mesh_switches import EnginePlace, MeshSwitches, VolumePlace, wanted_by
from services.api.switches import Switches
from services.runtime.config import MeshError

HALF = "scheduler.percentage_of_nodes_to_score=50"


class Files:
    """A place that remembers what it was given."""

    def __init__(self, **texts):
        self.texts, self.puts = dict(texts), []

    def read(self):
        return dict(self.texts)

    async def put(self, texts):
        self.puts.append(dict(texts))
        self.texts.update(texts)


def plan(*assignments, own=()):
    return MeshPlan(switches=Switches.parse(assignments), own_switches=own)


def test_only_components_that_read_a_switch_are_given_it():
    assert {"scheduler": (HALF,)} == wanted_by(plan(HALF), ())


def test_what_the_mesh_has_already_is_no_change():
    assert {} == wanted_by(plan(HALF), (HALF,))


def test_a_component_is_given_none_that_only_others_read():
    found = wanted_by(plan(HALF, "kubelet.on_reject=unbind"), ())

    assert ("kubelet.on_reject=unbind",) == found["kubelet"]
    assert HALF in found["scheduler"]


def test_what_a_scenario_sets_for_one_component_is_that_components():
    assert {"scheduler": (HALF,)} == wanted_by(plan(own=(("scheduler", (HALF,)),)), ())


def test_a_single_process_has_no_switches_of_its_own():
    with pytest.raises(NotPossible, match="set kubelet/h0: of a running mesh the components have switches"):
        wanted_by(plan(own=(("kubelet/h0", ("kubelet.on_reject=unbind",)),)), ())


def test_what_differs_is_written_the_api_servers_first_and_all_is_put_back():
    place = Files()
    switching = MeshSwitches(place)

    asyncio.run(switching.set({"kubelet": ("a=b",), "apiserver": ("a=b", "c=d")}))
    asyncio.run(switching.set({"kubelet": ("a=b",)}))
    asyncio.run(switching.put_back())

    assert [{"apiserver": "a=b,c=d"}, {"kubelet": "a=b"}, {"apiserver": ""}, {"kubelet": ""}] == place.puts


def test_what_a_command_that_was_killed_left_is_put_back():
    place = Files(scheduler="x=y", kubelet="")

    asyncio.run(MeshSwitches(place).put_back())

    assert [{"scheduler": ""}] == place.puts


def test_a_restart_with_a_switch_adds_it_and_the_newer_value_counts():
    place = Files()
    switching = MeshSwitches(place)
    asyncio.run(switching.set({"scheduler": (HALF,)}))

    asyncio.run(switching.add("scheduler", ["scheduler.percentage_of_nodes_to_score=30"]))

    assert {"scheduler": "scheduler.percentage_of_nodes_to_score=30"} == place.texts


def test_switches_that_something_else_changed_meanwhile_are_named():
    place = Files()
    switching = MeshSwitches(place)
    asyncio.run(switching.set({"scheduler": (HALF,)}))
    switching.check()
    place.texts["scheduler"] = ""

    with pytest.raises(MeshError, match=f"switches of scheduler during the run: to its own, the run began with {HALF}"):
        switching.check()


# --- by the engine ---


def container(identity, service, *, is_running=True, health="healthy"):
    labels = {"com.docker.compose.project": "lab", "com.docker.compose.service": service}
    state = {"Running": is_running, "Health": {"Status": health}}
    mounts = [{"Destination": "/switches"}] if service == "setup" else []
    config = {"Labels": labels, "Hostname": identity, "Env": []}
    return {"Id": identity, "Config": config, "State": state, "Mounts": mounts, "NetworkSettings": {"Networks": {}}}


@pytest.fixture
def engine(tmp_path):
    """A client whose volume is a folder, and that writes down what it is asked."""
    (tmp_path / "switches").mkdir()

    def made(*found):
        (tmp_path / "inspected.json").write_text(json.dumps([*found, container("id-setup", "setup")]))
        script = tmp_path / "docker"
        script.write_text(
            f"""#!/bin/sh
echo "$@" >> {tmp_path}/asked
case "$1 $2" in
  "ps "*) echo some;;
  "inspect "*) cat {tmp_path}/inspected.json;;
  "cp -") tar -C {tmp_path}/switches --no-same-owner -xf -;;
  "cp "*) cp -r {tmp_path}/switches/. "$3";;
esac
"""
        )
        script.chmod(0o700)
        return Containers("lab", str(script))

    return made


def test_the_engine_restarts_the_containers_of_a_changed_component_that_run(engine, tmp_path):
    containers = engine(
        container("id-sched", "scheduler"),
        container("id-k1", "kubelet"),
        container("id-k2", "kubelet", is_running=False),
        container("id-second", "apiserver-2"),
    )
    switching = MeshSwitches(EnginePlace(containers))

    asyncio.run(switching.set({"kubelet": ("a=b",), "apiserver": ("c=d",)}))

    asked = [line for line in (tmp_path / "asked").read_text().splitlines() if line.startswith("restart")]
    assert ["restart id-second", "restart id-k1"] == asked
    assert {"apiserver": "c=d", "kubelet": "a=b"} == containers.texts("/switches")
    assert containers.has_volume("/switches")
    assert not containers.has_volume("/elsewhere")


def test_a_container_that_does_not_become_healthy_is_named(engine, monkeypatch):
    monkeypatch.setattr(mesh_switches, "READY_MAX_S", -1.0)
    containers = engine(container("id-sched", "scheduler", health="unhealthy"))

    with pytest.raises(MeshError, match="with other switches scheduler did not become healthy"):
        asyncio.run(MeshSwitches(EnginePlace(containers)).set({"scheduler": (HALF,)}))


# --- in the network ---


@pytest.fixture
def process(tmp_path):
    """A process that reads its file at each question, as one that ends and is started again would have read it."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            text = (tmp_path / "scheduler").read_text() if (tmp_path / "scheduler").exists() else ""
            body = json.dumps({"set_file": [word for word in text.split(",") if word]}).encode()
            is_known = self.path == "/readyz" or self.headers["Authorization"] == "Bearer secret"
            self.send_response(200 if is_known else 401)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address
    server.shutdown()
    thread.join()
    server.server_close()


def test_in_the_network_it_is_waited_for_until_a_process_says_that_it_has_them(process, tmp_path):
    asked = []

    def addresses(component):
        asked.append(component)
        return [process] if component == "scheduler" else []

    place = VolumePlace(tmp_path, "secret", addresses)
    asyncio.run(MeshSwitches(place).set({"scheduler": (HALF,), "claim-controller": ("a=b",)}))

    # Of a component of which nothing runs nothing is waited for.
    assert {"scheduler": HALF, "claim-controller": "a=b"} == place.read()
    assert "scheduler" in asked


def test_a_component_that_does_not_take_its_switches_is_named(process, tmp_path, monkeypatch):
    monkeypatch.setattr(mesh_switches, "READY_MAX_S", -1.0)
    place = VolumePlace(tmp_path, "wrong", lambda _: [process])

    with pytest.raises(MeshError, match=f"scheduler did not take {HALF} within"):
        asyncio.run(MeshSwitches(place).set({"scheduler": (HALF,)}))
