"""Which processes a mesh has, with which arguments each is started, and what the status document says of them.

No process runs: each is ready as soon as it is to be started, with ports that count from 7001.
"""

import asyncio
import itertools
import os

import msgspec
import pytest

from services.api.identity import Identity
from services.client import channel
from services.runtime.child import Child
from services.runtime.components import Schedulers, block_sizes
from services.runtime.config import MeshError
from services.runtime.credentials import CLIENTS_FOLDER
from services.runtime.mesh.keeper import ProcessKeeper
from services.runtime.mesh.options import MeshOptions
from services.runtime.mesh_directory import RUN_FOLDER, STATE_FILE
from services.runtime.supervisor import Supervisor
from services.telemetry.pieces import MIB, Budget


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Start a mesh with these options, stop it again, and return the supervisor with the order of starts and stops."""
    ports, order = itertools.count(7001), []

    async def start_all(self, children):
        order.extend(child.name for child in children)
        for child in children:
            child.ports = child.ports or (
                {"grpc": next(ports), "rest": next(ports)}
                if child.name.startswith("apiserver")
                else {"health": next(ports)}
            )
            child.is_ready = child.is_wanted = True

    async def stop(self, *, at_once=False):
        order.append(f"-{self.name}")

    monkeypatch.setattr(ProcessKeeper, "start_all", start_all)
    monkeypatch.setattr(Child, "stop", stop)

    def start(look=lambda _: None, **options):
        supervisor = Supervisor(MeshOptions(data_dir=tmp_path / "mesh", **options))

        async def run():
            await supervisor.start()
            found = look(supervisor)
            if asyncio.iscoroutine(found):
                found = await found
            await supervisor.stop()
            return found

        supervisor.found = asyncio.run(run())
        supervisor.order = order
        return supervisor

    return start


def flags(child):
    """Return each flag of a process with its values; one that has none is given True."""
    found = {}
    words = [*child.arguments, "--"]
    for place, word in enumerate(words[:-1]):
        if word.startswith("--"):
            value = words[place + 1]
            found.setdefault(word.removeprefix("--"), []).append(True if value.startswith("--") else value)
    return {name: values if len(values) > 1 else values[0] for name, values in found.items()}


def flags_of(supervisor, name):
    return flags(supervisor.children[name])


def test_an_api_server_that_is_started_again_has_the_ports_it_had_and_all_others_know_them(started):
    """Clients hold on to them; port 0, which it is started with first, would be another one."""
    mesh = started(nodes=1)

    assert mesh.children["apiserver"].arguments[-4:] == ["--grpc-port", "7001", "--rest-port", "7002"]
    others = [name for name in mesh.children if name != "apiserver"]
    assert others == ["scheduler", "controllers", "claim-controller", "kubelet/h0"]
    assert {flags_of(mesh, name)["server"] for name in others} == {"127.0.0.1:7001"}
    assert "server" not in flags_of(mesh, "apiserver")


def test_ports_that_were_chosen_are_the_first_api_servers(started):
    mesh = started(apiservers=2, grpc_port=6000, rest_port=6001)

    first, second = (flags_of(mesh, name) for name in ("apiserver", "apiserver-2"))
    assert (first["grpc-port"], first["rest-port"]) == (["6000", "7001"], ["6001", "7002"])
    assert (second["grpc-port"], second["rest-port"]) == (["0", "7003"], ["0", "7004"])
    assert first["data-dir"] != second["data-dir"]
    assert flags_of(mesh, "scheduler")["server"] == "127.0.0.1:7001,127.0.0.1:7003"
    assert mesh.rest_urls == ["https://127.0.0.1:7002", "https://127.0.0.1:7004"]
    assert mesh.rest_url == mesh.rest_urls[0]
    assert channel.targets_of(mesh.grpc_target) == ["127.0.0.1:7001", "127.0.0.1:7003"]


def test_every_process_has_files_of_its_own_below_the_data_directory(started, tmp_path):
    mesh = started(nodes=1)
    data = tmp_path / "mesh"

    for name, child in mesh.children.items():
        plain, found = name.replace("/", "_"), flags(child)
        assert found["name"] == name
        assert (found["events-dir"], found["spans-dir"]) == (str(data / "events"), str(data / "spans"))
        assert found["ready-file"] == str(data / RUN_FOLDER / f"{plain}.ready") == str(child.ready_file)
        assert found["log-file"] == str(data / "logs" / f"{plain}.log") == str(child.log)
        assert found["die-with-parent"] is True
        assert found["log-level"] == "info"
        assert "seed" not in found
        assert "faults-file" not in found
        assert "set" not in found
    tokens = [flags(child)["token-file"] for child in mesh.children.values()]
    assert len(set(tokens)) == len(tokens), "each is someone of its own"


def test_every_process_traces_with_the_runs_attributes(started):
    mesh = started(nodes=1, resource={"keplab.seed": "7"})

    found = {child.environment({}).get("OTEL_RESOURCE_ATTRIBUTES") for child in mesh.children.values()}
    assert found == {"keplab.seed=7"}


def test_options_go_to_every_process_and_arguments_to_those_they_are_for(started, tmp_path):
    data = tmp_path / "mesh"
    mesh = started(
        nodes=2,
        hosts=2,
        seed=7,
        log_level="debug",
        has_faults=True,
        switches=("PodUnbinding=true", "unbind.max_attempts=2"),
        arguments={"kubelet": ["--latency", "a"], "kubelet/h1": ["--latency", "b"], "apiserver": ["--x"]},
    )

    for name, child in mesh.children.items():
        found = flags(child)
        assert (found["seed"], found["log-level"]) == ("7", "debug")
        assert found["set"] == ["PodUnbinding=true", "unbind.max_attempts=2"]
        plain = name.replace("/", "_")
        assert found["faults-file"] == str(mesh.faults_file_of(name)) == str(data / RUN_FOLDER / f"{plain}.faults")
    assert flags_of(mesh, "kubelet/h0")["latency"] == "a"
    assert flags_of(mesh, "kubelet/h1")["latency"] == ["a", "b"]
    assert flags_of(mesh, "apiserver")["x"] is True
    assert "latency" not in flags_of(mesh, "scheduler")
    assert "x" not in flags_of(mesh, "scheduler")


@pytest.mark.parametrize(
    ("nodes", "hosts", "sizes"),
    [(0, 0, []), (1, 0, [1]), (2, 0, [1, 1]), (10, 0, [4, 3, 3]), (5, 2, [3, 2]), (2, 5, [1, 1])],
)
def test_nodes_are_dealt_out_as_equally_as_can_be_to_at_most_three_hosts(nodes, hosts, sizes):
    assert block_sizes(nodes, hosts) == sizes


def test_each_kubelet_host_has_nodes_of_its_own_that_follow_each_other(started):
    mesh = started(nodes=5, hosts=2)
    first, second = (flags_of(mesh, f"kubelet/h{number}") for number in (0, 1))

    assert (first["nodes"], first["first"], first["name-prefix"]) == ("3", "0", "node-")
    assert (second["nodes"], second["first"], second["name-prefix"]) == ("2", "3", "node-")
    assert first["health-port"] == "0"
    assert first["port"] != second["port"]
    assert first["data-dir"] != second["data-dir"]
    assert first["sockets-dir"] == second["sockets-dir"] == str(mesh.sockets_dir)


def test_defined_nodes_are_in_a_file_and_their_plugins_and_drivers_are_processes(started, tmp_path):
    plugin = {"resource": "example.com/gpu", "count": 2}
    node = {"name": "n1", "devicePlugins": [plugin], "drivers": "gpu.example.com:4"}
    stale = tmp_path / "mesh" / RUN_FOLDER / "nodes-old.json"
    stale.parent.mkdir(parents=True)
    stale.write_text("[]")
    mesh = started(definitions={"h0": [node]})

    assert not stale.exists(), "the last mesh's"
    kubelet = flags_of(mesh, "kubelet/h0")
    assert "nodes" not in kubelet
    with open(kubelet["nodes-file"], "rb") as file:
        assert msgspec.json.decode(file.read()) == [node]
    emulated = flags_of(mesh, "device-plugin/n1/example.com/gpu")
    assert (emulated["node"], emulated["sockets-dir"]) == ("n1", str(mesh.sockets_dir))
    assert msgspec.json.decode(emulated["definition"]) == plugin
    driver = flags_of(mesh, "dra-driver/n1/gpu.example.com")
    assert (driver["node"], driver["definition"]) == ("n1", "gpu.example.com:4")
    assert driver["sockets-dir"] == str(mesh.sockets_dir)
    assert driver["data-dir"].endswith("mesh/dra-driver/n1/gpu.example.com")
    assert "token-file" in driver


def test_the_strict_profile_gives_each_process_a_certificate_of_its_own(started):
    mesh = started(nodes=1, security="strict")
    clients = {name: flags(child) for name, child in mesh.children.items() if name != "apiserver"}

    assert {found["security"] for found in clients.values()} == {"strict"}
    assert {found["certificate-authority"] for found in clients.values()} == {str(mesh.authority)}
    for flag in ("client-certificate", "client-key"):
        assert len({found[flag] for found in clients.values()}) == len(clients)
    assert flags_of(mesh, "apiserver")["security"] == "strict"


def test_with_tokens_no_process_has_a_certificate_to_connect_with(started):
    mesh = started(nodes=1)

    assert flags_of(mesh, "apiserver")["security"] == "tokens"
    assert not any("client-certificate" in flags(child) for child in mesh.children.values())


def test_the_api_server_calls_kubelets_with_a_certificate_that_their_authority_signed(started):
    mesh = started(nodes=1)
    server, kubelet = flags_of(mesh, "apiserver"), flags_of(mesh, "kubelet/h0")

    assert server["kubelet-certificate-authority"] == server["client-ca-file"] == kubelet["client-ca-file"]
    for flag in ("tls-cert-file", "tls-private-key-file", "kubelet-client-certificate", "kubelet-client-key"):
        assert server[flag].endswith((".crt", ".key", ".pem")), flag
    assert len({server["tls-cert-file"], server["kubelet-client-certificate"], kubelet["tls-cert-file"]}) == 3
    assert server["tls-private-key-file"] != server["tls-cert-file"]


def test_only_a_mesh_that_serves_clients_has_rbac_and_the_controllers_that_clients_need(started):
    plain = started(nodes=1)
    assert not {"authorization-mode", "enable-admission-plugins"} & flags_of(plain, "apiserver").keys()
    assert "controllers" not in flags_of(plain, "controllers")

    mesh = started(nodes=1, serves_clients=True)
    server = flags_of(mesh, "apiserver")
    assert (server["authorization-mode"], server["enable-admission-plugins"]) == ("RBAC", "ServiceAccount")
    assert server["service-account-signing-key-file"]
    assert flags_of(mesh, "controllers")["controllers"] == [
        "*", "clusterrole-aggregation-controller", "root-ca-cert-publisher", "service-account-controller"
    ]  # fmt: skip


def test_what_is_run_by_hand_is_neither_started_nor_in_the_status(started):
    mesh = started(lambda mesh: mesh.status(), nodes=1, without=frozenset(("scheduler",)))

    assert "scheduler" not in mesh.order
    assert [each["name"] for each in mesh.found["processes"]] == [
        "apiserver", "controllers", "claim-controller", "kubelet/h0"
    ]  # fmt: skip


def test_api_servers_are_started_first_and_stopped_last_and_others_in_the_opposite_order(started):
    mesh = started(nodes=1, apiservers=2, schedulers=Schedulers(replicas=2))
    others = ["scheduler-1", "scheduler-2", "controllers", "claim-controller", "kubelet/h0"]

    assert mesh.order == [
        "apiserver", "apiserver-2", *others, *(f"-{name}" for name in reversed(others)), "-apiserver", "-apiserver-2"
    ]  # fmt: skip


def test_several_schedulers_have_names_that_they_serve_and_elect_a_leader(started):
    mesh = started(schedulers=Schedulers(replicas=2, others=("batch",), config="profiles.yaml"))

    for name in ("scheduler-1", "scheduler-2"):
        found = flags_of(mesh, name)
        assert (found["scheduler-name"], found["leader-elect"]) == ("default-scheduler", True)
        assert found["config"] == "profiles.yaml"
    batch = flags_of(mesh, "scheduler-batch")
    assert batch["scheduler-name"] == "batch"
    assert not {"leader-elect", "config"} & batch.keys()


def test_each_process_keeps_as_much_telemetry_as_it_is_given_and_all_together_no_more(started):
    """Open files of events, spans and logs of eight processes may take half of what all files may: 24 each of 2."""
    found = flags_of(started(telemetry=Budget(64 * MIB, 5), telemetry_mib_max=0), "apiserver")
    assert (found["telemetry-maxsize"], found["telemetry-maxbackup"]) == ("64", "5")

    assert (
        flags_of(started(telemetry=Budget(64 * MIB, 5), telemetry_mib_max=480), "apiserver")["telemetry-maxsize"]
        == "10"
    )
    assert (
        flags_of(started(telemetry=Budget(64 * MIB, 5), telemetry_mib_max=1), "apiserver")["telemetry-maxsize"] == "1"
    )


def test_another_identity_gets_a_token_and_its_transport_and_an_unknown_one_none(started):
    def look(mesh):
        with pytest.raises(KeyError, match="someone"):
            mesh.client_transport("someone")
        mesh.client_transport("system:tester")
        return mesh.client_transport()

    started(look, identities=(Identity("system:tester"),))


def test_the_status_document_says_of_each_process_where_and_how_it_is(started):
    def look(mesh):
        child = mesh.children["scheduler"]
        child.is_ready, child.restarts, child.last_error = False, 3, "it was ended by SIGKILL"
        child.next_try_at = mesh._clock.now() + 2.0
        return mesh.status()

    mesh = started(look, nodes=1, switches=("PodUnbinding=true",))
    document = mesh.found
    server, scheduler = document["processes"][:2]

    assert (document["rest_url"], document["grpc_target"]) == ("https://127.0.0.1:7002", "127.0.0.1:7001")
    assert (document["started"], document["ready"]) == (True, False), "one of its processes is not ready"
    assert (document["security"], document["switches"]) == ("tokens", ["PodUnbinding=true"])
    assert (document["kubeconfig"], document["data_dir"]) == (str(mesh.kubeconfig), str(mesh.kubeconfig.parent))
    assert document["supervisor_pid"] == os.getpid()
    assert document["certificate_life_s"] == mesh._options.certificate_life.total_seconds()
    assert (server["port"], server["ports"], server["ready"]) == (7001, {"grpc": 7001, "rest": 7002}, True)
    assert (scheduler["port"], scheduler["ports"], scheduler["ready"]) == (7003, {"health": 7003}, False)
    assert (scheduler["restarts"], scheduler["last_error"]) == (3, "it was ended by SIGKILL")
    assert scheduler["state"] == "Restarting"
    assert 0.0 < scheduler["next_try_in_s"] <= 2.0
    assert (server["next_try_in_s"], server["pid"], server["uptime_s"]) == (None, 0, 0.0)
    assert server["log"] == str(mesh.children["apiserver"].log)


def test_before_the_api_server_has_ports_the_status_names_none(tmp_path):
    mesh = Supervisor(MeshOptions(data_dir=tmp_path))

    document = mesh.status()

    assert (document["rest_url"], document["grpc_target"], document["processes"]) == ("", "", [])
    assert (document["started"], document["ready"]) == (False, False)


def test_a_stopped_mesh_leaves_no_state_file_and_another_may_take_the_directory(started, tmp_path):
    state = tmp_path / "mesh" / STATE_FILE
    there = started(lambda _: state.exists(), nodes=1).found

    assert (there, state.exists()) == (True, False)
    started(nodes=1)


def test_what_is_not_running_cannot_be_killed_and_a_name_that_is_none_is_refused_with_those_there_are(started):
    def look(mesh):
        with pytest.raises(MeshError, match="scheduler is not running"):
            mesh.kill("scheduler")
        with pytest.raises(KeyError, match="no process is called kubelet; there are apiserver, scheduler"):
            mesh.kill("kubelet")

    started(look)


def test_a_process_that_is_started_again_by_request_has_the_switches_of_the_request_from_then_on(started):
    async def look(mesh):
        child = mesh.children["scheduler"]
        child.failed_for_good = True
        await mesh.restart("scheduler", ["unbind.max_attempts=2", "PodUnbinding=true"])
        return child.arguments[-4:], child.restarts, child.failed_for_good

    mesh = started(look)

    assert mesh.found == (["--set", "unbind.max_attempts=2", "--set", "PodUnbinding=true"], 1, False)
    assert mesh.order.index("-scheduler") < len(mesh.order) - 1 - mesh.order[::-1].index("scheduler")


def test_a_role_that_cannot_be_read_and_a_directory_that_cannot_be_used_are_errors_of_the_mesh(started, tmp_path):
    role = tmp_path / "role.yaml"
    role.write_text("- 1")
    with pytest.raises(MeshError, match=r"role\.yaml"):
        started(roles=(role,))

    (tmp_path / "mesh" / "events").rmdir()
    (tmp_path / "mesh" / "events").write_text("")
    with pytest.raises(MeshError, match="mesh/events"):
        started()


def test_clients_from_outside_find_their_credentials_only_where_they_are_served(started, tmp_path):
    started(serves_clients=True)
    assert list((tmp_path / "mesh" / CLIENTS_FOLDER).iterdir())


def test_no_clients_no_credentials_for_them(started, tmp_path):
    started()
    assert not (tmp_path / "mesh" / CLIENTS_FOLDER).exists()
