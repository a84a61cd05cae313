"""The mesh in containers: hardened as it should be, and none the worse for a killed scheduler or API server."""

import json
import os
import re
import time
import urllib.request
from collections import Counter

import pytest
from engine import PROMETHEUS
from mesh_in_containers import (
    COMPONENTS,
    IMAGE,
    KUBELETS,
    NODES_EACH,
    PROJECT,
    free_port,
    kill_by_engine,
    kill_by_pid,
    wait_for,
)

pytestmark = pytest.mark.timeout(900)

STANDSTILL_S = 20.0
"""Longer than a connection's keepalive lasts."""

FACTS = """
import glob, json, os
def can_write(folder):
    try:
        open(folder + "/.probe", "w").close()
        os.unlink(folder + "/.probe")
        return True
    except OSError:
        return False
status = dict(line.split(":", 1) for line in open("/proc/1/status") if ":" in line)
folders = ["/", "/app", "/opt/keplab", "/etc", "/var", "/credentials", "/data", "/tmp", *glob.glob("/credentials/*")]
mounts = {line.split()[1]: line.split()[3].split(",") for line in open("/proc/mounts")}
print(json.dumps({
    "status": {name: value.split() for name, value in status.items()},
    "secrets": {path: oct(os.stat(path).st_mode & 0o777) for path in glob.glob("/credentials/*/*")},
    "authority": glob.glob("/credentials/*/ca*.key"),
    "writable": [folder for folder in folders if can_write(folder)],
    "tmp": mounts.get("/tmp"),
}))
"""


@pytest.fixture(scope="module")
def everyone(mesh):
    """(service, inspected container, facts from inside) of every container of ours that runs."""
    return [
        (service, mesh.engine.inspect(container), json.loads(mesh.inside(container, FACTS)))
        for service in COMPONENTS
        for container in mesh.containers(service)
    ]


def test_x_con_1_to_4_no_root_no_writable_root_no_capabilities_no_new_privileges(everyone):
    assert len(COMPONENTS) - 1 + KUBELETS == len(everyone)
    for service, container, facts in everyone:
        assert all(int(number) > 10_000 for kind in ("Uid", "Gid") for number in facts["status"][kind]), service
        assert container["HostConfig"]["ReadonlyRootfs"] is True, service
        assert ["ALL"] == container["HostConfig"]["CapDrop"], service
        assert not container["HostConfig"]["CapAdd"], service
        assert [["0000000000000000"]] * 3 == [facts["status"][c] for c in ("CapEff", "CapPrm", "CapBnd")], service
        assert ["1"] == facts["status"]["NoNewPrivs"], service


def test_x_con_5_only_data_and_a_small_tmpfs_can_be_written_to(everyone):
    for service, container, facts in everyone:
        keeps_data = service in ("apiserver", "kubelet")
        assert ({"/data", "/tmp"} if keeps_data else {"/tmp"}) <= set(facts["writable"]), service
        # Without a volume there, /data is part of the read-only root.
        assert set(facts["writable"]) <= {"/data", "/tmp"}, service
        assert {"noexec", "nosuid", "size=65536k"} <= set(facts["tmp"]), service
        assert {"/tmp"} == set(container["HostConfig"]["Tmpfs"]), service


def test_x_con_6_memory_cpu_and_pids_are_limited(everyone):
    for service, container, _ in everyone:
        limits = container["HostConfig"]
        assert 0 < limits["Memory"] <= 1 << 30, service
        assert 0 < limits["NanoCpus"], service
        assert 256 == limits["PidsLimit"], service


def test_x_con_7_and_8_nothing_of_the_host_is_inside_and_ports_are_on_loopback(everyone):
    for service, container, _ in everyone:
        host = container["HostConfig"]
        assert {"volume"} == {mount["Type"] for mount in container["Mounts"]}, service
        assert {"/data"} >= {m["Destination"] for m in container["Mounts"] if m["RW"]}, service
        assert not host["Privileged"], service
        assert host["PidMode"] in ("", "private"), service
        assert "host" != host["NetworkMode"], service
        published = [binding for bindings in (host["PortBindings"] or {}).values() for binding in bindings]
        assert {"127.0.0.1"} >= {binding["HostIp"] for binding in published}, service
        assert (2 if service == "apiserver" else 0) == len(published), service


def test_x_con_9_the_default_seccomp_profile_filters(everyone):
    for service, container, facts in everyone:
        assert not any("seccomp" in option for option in container["HostConfig"]["SecurityOpt"]), service
        assert ["2"] == facts["status"]["Seccomp"], service


def test_x_con_10_secrets_are_files_for_their_owner_alone_and_nowhere_else(mesh, everyone):
    server = mesh.inside(mesh.containers("apiserver")[0], "print(open('/credentials/apiserver/server.json').read())")
    secrets = [entry["token"] for entry in json.loads(server)["tokens"]] + [json.loads(server)["node_key"]]
    history = mesh.engine.docker("history", "--no-trunc", IMAGE)
    for service, container, facts in everyone:
        assert facts["secrets"], service
        assert {"0o400"} == set(facts["secrets"].values()), service
        assert not facts["authority"], service
        assert {service} == {path.split("/")[2] for path in facts["secrets"]}, service
        assert not any(secret in json.dumps(container) for secret in secrets), service
    assert not any(secret in history for secret in secrets)


def test_the_image_has_a_health_check_a_plain_user_and_no_compiler(mesh):
    image = mesh.engine.inspect(IMAGE)["Config"]
    assert "10001:10001" == image["User"]
    assert "CMD" == image["Healthcheck"]["Test"][0]
    search = "import shutil; print([t for t in ('cc', 'gcc', 'clang', 'c++', 'make', 'ld', 'as') if shutil.which(t)])"
    assert "[]" == mesh.inside(mesh.containers("scheduler")[0], search)


def slot_of(pod):
    """Return the slot whose node runs a pod."""
    return pod["spec"]["nodeName"].rpartition("-")[0]


def holders(mesh):
    """Return who holds which slot: the hostname of a container."""
    leases = mesh.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")["items"]
    held = {each["metadata"]["name"]: each["spec"].get("holderIdentity") or "" for each in leases}
    return {
        name: holder.removeprefix("kubelet/") for name, holder in held.items() if re.fullmatch(r"kubelet-\d+", name)
    }


def hostnames(mesh):
    return [mesh.engine.inspect(container)["Config"]["Hostname"] for container in mesh.containers("kubelet")]


def ready_nodes(mesh):
    nodes = mesh.get("/api/v1/nodes")["items"]
    said = {node["metadata"]["name"]: node.get("status", {}).get("conditions") or () for node in nodes}
    return {
        name
        for name, conditions in said.items()
        if any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
    }


NODES = {f"kubelet-{slot}-{node}" for slot in range(KUBELETS) for node in range(NODES_EACH)}


def test_a_deployment_runs_on_the_nodes_of_every_kubelet_container(mesh):
    assert NODES == {node["metadata"]["name"] for node in mesh.get("/api/v1/nodes")["items"]}

    mesh.deploy("spread", 2 * len(NODES))
    pods = mesh.wait_until_running("spread", 2 * len(NODES))

    assert {f"kubelet-{slot}" for slot in range(KUBELETS)} == {slot_of(pod) for pod in pods}
    assert sorted(hostnames(mesh)) == sorted(holders(mesh).values())
    assert len(pods) == len({pod["status"]["podIP"] for pod in pods})


def test_a_changed_switch_restarts_the_same_nodes_with_the_same_pods(mesh):
    mesh.deploy("kept", 12)
    before = {pod["metadata"]["uid"]: slot_of(pod) for pod in mesh.wait_until_running("kept", 12)}
    containers = set(mesh.containers("kubelet"))

    mesh.environ["KEPLAB_SET"] = "scheduler.percentage_of_nodes_to_score=50"
    mesh.up()

    assert not containers & set(mesh.containers("kubelet"))
    assert sorted(hostnames(mesh)) == sorted(holders(mesh).values())
    assert NODES == ready_nodes(mesh)
    pods = mesh.wait_until_running("kept", 12)
    assert before == {pod["metadata"]["uid"]: slot_of(pod) for pod in pods}
    assert all(0 == status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"])


def test_a_container_that_stood_still_for_too_long_finds_its_slot_anothers_and_ends(mesh):
    """The one that took the slot over has the nodes; the other, started again, claims a slot of its own."""
    slots = set(holders(mesh))
    victim = mesh.containers("kubelet")[0]
    hostname = mesh.engine.inspect(victim)["Config"]["Hostname"]
    (lost,) = [slot for slot, holder in holders(mesh).items() if holder == hostname]

    # Not `docker pause`: with a container that is paused, compose starts no other.
    mesh.engine.docker("kill", "-s", "STOP", victim)
    mesh.compose("up", "-d", "--no-recreate", "--scale", f"kubelet={KUBELETS + 1}", "kubelet")
    wait_for(lambda: holders(mesh)[lost] != hostname, "the slot of the container that stands still is taken over")
    assert slots == set(holders(mesh))
    mesh.engine.docker("kill", "-s", "CONT", victim)
    wait_for(lambda: not mesh.engine.inspect(victim)["State"]["Running"], "the container ends")
    assert 1 == mesh.engine.inspect(victim)["State"]["ExitCode"]
    # A container that the engine sent a signal counts as stopped by hand: its restart policy leaves it alone.
    mesh.engine.docker("start", victim)
    wait_for(lambda: hostname in holders(mesh).values(), "it claims a slot")

    assert len(slots) + 1 == len(holders(mesh))
    assert lost not in [slot for slot, holder in holders(mesh).items() if holder == hostname]
    assert f"the slot {lost} is another's" in mesh.logs(victim)


def test_a_slot_that_is_scaled_away_is_free_and_its_nodes_come_back_with_the_next_container(mesh):
    """As nodes whose kubelet was stopped: they stay, NotReady after the grace period, until someone deletes them."""
    mesh.compose("up", "-d", "--no-recreate", "--scale", f"kubelet={KUBELETS - 1}", "kubelet")
    free = [slot for slot, holder in holders(mesh).items() if not holder]
    assert free

    mesh.compose("up", "-d", "--no-recreate", "--scale", f"kubelet={KUBELETS}", "kubelet")
    wait_for(
        lambda: sorted(hostnames(mesh)) == sorted(filter(None, holders(mesh).values())), "every container has a slot"
    )

    surplus = sorted(slot for slot, holder in holders(mesh).items() if not holder)
    for slot in surplus:
        for number in range(NODES_EACH):
            mesh.call("DELETE", f"/api/v1/nodes/{slot}-{number}")
    wait_for(lambda: len(NODES) == len(ready_nodes(mesh)), "all nodes are Ready")


def test_logs_come_from_whichever_container_runs_the_pod(mesh):
    mesh.deploy("chatty", KUBELETS * NODES_EACH)
    for pod in mesh.wait_until_running("chatty", KUBELETS * NODES_EACH):
        assert "container c started" in mesh.call(
            "GET", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/log"
        )


@pytest.fixture(scope="module")
def shell_pod(mesh):
    """A pod of each kubelet's container: (slot, name)."""
    mesh.deploy("shells", KUBELETS * NODES_EACH)
    pods = mesh.wait_until_running("shells", KUBELETS * NODES_EACH)
    return {slot_of(pod): pod["metadata"]["name"] for pod in pods}


def test_exec_reaches_the_kubelet_of_every_container(mesh, shell_pod):
    assert KUBELETS == len(shell_pod)
    for pod in shell_pod.values():
        assert (b"%s\n" % pod.encode(), "Success") == mesh.execute(pod, "hostname")
        assert (b"typed", "Success") == mesh.execute(pod, "cat", typed=b"typed")


def test_kubectl_execs_copies_attaches_and_forwards_ports(mesh, shell_pod, tmp_path):
    pod = next(iter(shell_pod.values()))
    (tmp_path / "sent").write_text("through two containers\n")
    assert pod == mesh.kubectl("exec", pod, "--", "hostname").strip()
    mesh.kubectl("cp", str(tmp_path / "sent"), f"{pod}:/tmp/sent")
    mesh.kubectl("cp", f"{pod}:/tmp/sent", str(tmp_path / "back"))
    assert "through two containers\n" == (tmp_path / "back").read_text()
    assert "container c started" in mesh.kubectl("logs", pod)
    with mesh.forwarded(pod, 80) as port:
        assert pod in wait_for(lambda: mesh.page(port), "the forwarded port answers")


def test_a_kubelet_answers_the_api_server_alone(mesh):
    """Over TLS; who has no certificate is not known, and whom its certificate names has no right to nodes/proxy."""
    kubelet, other = mesh.containers("kubelet")[0], mesh.containers("scheduler")[0]
    address = next(iter(mesh.engine.inspect(kubelet)["NetworkSettings"]["Networks"].values()))["IPAddress"]
    program = (
        "import ssl, http.client as h; t = ssl.create_default_context(cafile='/credentials/scheduler/ca.crt'); "
        "t.check_hostname = False; "
        "%s"
        f"c = h.HTTPSConnection('{address}', 10250, context=t, timeout=5); "
        "c.request('GET', '/containerLogs/default/x/y'); print(c.getresponse().status)"
    )
    shown = "t.load_cert_chain('/credentials/scheduler/client.crt', '/credentials/scheduler/client.key'); "
    assert ["401", "403"] == [mesh.inside(other, program % words) for words in ("", shown)]


@pytest.mark.parametrize("kill", [kill_by_pid, kill_by_engine])
@pytest.mark.parametrize("service", ["scheduler", "controllers", "claim-controller", "kubelet", "apiserver"])
def test_a_killed_component_comes_back_and_the_mesh_converges(mesh, service, kill):
    name = f"after-{service}-{kill.__name__.replace('_', '-')}"
    mesh.deploy(f"{name}-a", 4)
    before = {pod["metadata"]["uid"] for pod in mesh.wait_until_running(f"{name}-a", 4)}
    container = mesh.containers(service)[0]
    started = mesh.engine.inspect(container)["State"]["StartedAt"]

    with kill(mesh, container):
        pass
    if service == "apiserver":
        wait_for(lambda: mesh.call("GET", "/readyz"), "the API server answers")
    mesh.deploy(f"{name}-b", 6)

    mesh.wait_until_running(f"{name}-b", 6)
    assert before == {pod["metadata"]["uid"] for pod in mesh.wait_until_running(f"{name}-a", 4)}
    assert started != mesh.engine.inspect(container)["State"]["StartedAt"]
    mesh.wait_until_healthy(container)


def test_an_api_server_that_stands_still_is_waited_for(mesh):
    mesh.deploy("before-pause", 4)
    mesh.wait_until_running("before-pause", 4)
    container = mesh.containers("apiserver")[0]

    mesh.engine.docker("pause", container)
    time.sleep(STANDSTILL_S)
    mesh.engine.docker("unpause", container)
    mesh.deploy("after-pause", 6)

    assert 6 == len(mesh.wait_until_running("after-pause", 6))


def test_a_kubelet_that_was_cut_off_comes_back_with_the_same_pods(mesh):
    mesh.deploy("cut-off", 6)
    before = {pod["metadata"]["uid"] for pod in mesh.wait_until_running("cut-off", 6)}
    container, network = mesh.containers("kubelet")[0], f"{PROJECT}_mesh"

    mesh.engine.docker("network", "disconnect", network, container)
    time.sleep(STANDSTILL_S)
    mesh.engine.docker("network", "connect", "--alias", "kubelet", network, container)
    mesh.deploy("after-cut", 12)

    mesh.wait_until_running("after-cut", 12)
    mesh.wait_until_healthy(container)
    assert before == {pod["metadata"]["uid"] for pod in mesh.wait_until_running("cut-off", 6)}


def test_every_component_sends_its_spans(mesh):
    if mesh.receiver == "none":
        pytest.skip("neither Jaeger's image nor a collector binary is to be had here")
    mesh.deploy("traced", 1)
    mesh.wait_until_running("traced", 1)

    assert wait_for(lambda: mesh.services_seen() >= set(COMPONENTS), "spans of every component arrive", 30)


def test_prometheus_scrapes_every_component(mesh):
    image = mesh.environ.get("KEPLAB_PROMETHEUS_IMAGE") or os.environ.get("KEPLAB_PROMETHEUS_IMAGE") or PROMETHEUS
    if not mesh.engine.can_pull(image):
        pytest.skip(f"the image {image} is not to be had here")
    mesh.environ |= {"KEPLAB_PROMETHEUS_IMAGE": image, "KEPLAB_PROMETHEUS_PORT": str(port := free_port())}
    mesh.compose("--profile", "observability", "up", "-d", "--no-deps", "prometheus")

    def targets():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/targets", timeout=5) as answer:
            found = json.load(answer)["data"]["activeTargets"]
        return Counter(each["labels"]["job"] for each in found if each["health"] == "up")

    expected = Counter({**dict.fromkeys(COMPONENTS, 1), "kubelet": len(mesh.containers("kubelet"))})
    assert wait_for(lambda: targets() == expected, "every component is scraped")


def test_a_trace_receiver_that_is_gone_stops_no_component(mesh):
    if mesh.receiver != "none":
        mesh.compose("stop", "jaeger")
    mesh.deploy("untraced", 6)

    assert 6 == len(mesh.wait_until_running("untraced", 6))
