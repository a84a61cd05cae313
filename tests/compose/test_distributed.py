"""The mesh over an etcd of three members with two API servers: any of these dies, and what was acknowledged is there."""

import itertools
import json
import threading
import time

import pytest
from mesh_in_containers import API_SERVERS, COMPONENTS, MEMBERS, RefusedError, kill_by_engine, kill_by_pid, wait_for

pytestmark = pytest.mark.timeout(900)

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"

NO_MAJORITY_S = 5.0
"""Longer than a write waits for an election."""


class Writer:
    """Creates ConfigMaps all the time, through either API server, and remembers which were acknowledged."""

    def __init__(self, mesh, name):
        self._mesh, self._name, self._is_over = mesh, name, threading.Event()
        self._urls = itertools.cycle([mesh.url, mesh.second_url])
        self._thread = threading.Thread(target=self._write)
        self.acknowledged = []

    def __enter__(self):
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def _write(self):
        url = next(self._urls)
        for number in itertools.count():
            if self._is_over.is_set():
                return
            name = f"{self._name}-{number}"
            try:
                self._mesh.call("POST", CONFIG_MAPS, {"metadata": {"name": name}}, url=url)
                self.acknowledged.append(name)
            except (OSError, RefusedError):
                url = next(self._urls)

    def wait_for_more(self, count=5):
        """Return when so many more were acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= wanted, f"{count} more writes are acknowledged")


def is_kept(mesh, names, url):
    """Return whether all these ConfigMaps are there, as a server says that was not the one to write them."""
    return set(names) <= {each["metadata"]["name"] for each in mesh.get(CONFIG_MAPS, url=url)["items"]}


def etcdctl(mesh, member, *words):
    """Return what it prints, with the settings that the container has."""
    return mesh.engine.docker("exec", mesh.containers(member)[0], "etcdctl", *words)


def leader(mesh):
    """Return which member leads."""
    for member in MEMBERS:
        (found,) = json.loads(etcdctl(mesh, member, "endpoint", "status", "-w", "json"))
        if found["Status"]["leader"] == found["Status"]["header"]["member_id"]:
            return member
    raise AssertionError("no member leads")


@pytest.fixture
def uids(distributed):
    """The uids of a few pods that run already; afterwards they still do."""
    if "steady" not in {each["metadata"]["name"] for each in deployments(distributed)}:
        distributed.deploy("steady", 6)
    before = {pod["metadata"]["uid"] for pod in distributed.wait_until_running("steady", 6)}
    yield before
    assert before == {pod["metadata"]["uid"] for pod in distributed.wait_until_running("steady", 6)}


def deployments(mesh):
    return mesh.get("/apis/apps/v1/namespaces/default/deployments")["items"]


def test_members_of_etcd_may_do_as_little_as_any_container_and_are_in_a_network_of_their_own(distributed):
    mesh, networks = distributed, {}
    for service in mesh.services:
        for container in map(mesh.engine.inspect, mesh.containers(service)):
            networks[service] = {
                name.removeprefix(f"{mesh.project}_") for name in container["NetworkSettings"]["Networks"]
            }
            host = container["HostConfig"]
            assert "10001:10001" == container["Config"]["User"], service
            assert (True, ["ALL"]) == (host["ReadonlyRootfs"], host["CapDrop"]), service
            assert any("no-new-privileges" in option for option in host["SecurityOpt"]), service
            assert 0 < host["Memory"] <= 1 << 30, service
            assert 0 < host["NanoCpus"], service
            assert 256 == host["PidsLimit"], service
            if service in MEMBERS:
                assert {"/data"} == {mount["Destination"] for mount in container["Mounts"] if mount["RW"]}
                assert not host["PortBindings"]

    mesh_alone = set(COMPONENTS) - set(API_SERVERS)
    assert set(MEMBERS) == {service for service, names in networks.items() if names == {"store"}}
    assert set(API_SERVERS) == {service for service, names in networks.items() if names == {"mesh", "store"}}
    assert mesh_alone == {service for service, names in networks.items() if names == {"mesh"}}
    assert mesh.engine.inspect(f"{mesh.project}_store")["Internal"]


def test_etcd_answers_those_alone_whom_its_own_authority_names(distributed):
    program = (
        "import ssl, http.client as h; t = ssl.create_default_context(cafile='/credentials/apiserver/etcd-ca.crt'); "
        "t.load_cert_chain('/credentials/apiserver/%s.crt', '/credentials/apiserver/%s.key')\n"
        "try:\n"
        "  c = h.HTTPSConnection('etcd-0', 2379, context=t, timeout=5); c.request('GET', '/health'); "
        "print(c.getresponse().status)\n"
        "except OSError as error:\n"
        "  print(type(error).__name__)"
    )
    server = distributed.containers("apiserver-2")[0]

    asked = [
        distributed.inside(server, program % (name, name))
        for name in ("apiserver-etcd-client", "apiserver-kubelet-client")
    ]

    assert "200" == asked[0]
    # The alert, or the end of the connection that follows it.
    assert asked[1] in ("SSLError", "SSLEOFError", "ConnectionResetError")


def test_each_api_server_serves_what_was_written_through_the_other_and_etcd_has_it(distributed):
    distributed.deploy("shared", 6, url=distributed.second_url)

    names = {pod["metadata"]["name"] for pod in distributed.wait_until_running("shared", 6)}

    running = distributed.wait_until_running("shared", 6, url=distributed.second_url)
    assert names == {pod["metadata"]["name"] for pod in running}
    keys = etcdctl(distributed, "etcd-1", "get", "--prefix", "/registry/pods/default/shared", "--keys-only").split()
    assert names == {key.rpartition("/")[2] for key in keys}


def test_kubectl_has_a_context_for_each_api_server(distributed):
    distributed.deploy("through", 1)
    (pod,) = distributed.wait_until_running("through", 1)

    for context in ("keplab", "keplab-2"):
        name = pod["metadata"]["name"]
        assert name == distributed.kubectl("--context", context, "exec", name, "--", "hostname").strip()


@pytest.mark.parametrize("kill", [kill_by_pid, kill_by_engine])
@pytest.mark.parametrize("victim", ["apiserver", "apiserver-2", "leader"])
def test_one_of_them_dies_and_pods_go_on_being_made(distributed, uids, victim, kill):
    mesh, name = distributed, f"{victim}-{kill.__name__.replace('_', '-')}"
    service = leader(mesh) if victim == "leader" else victim
    other = mesh.second_url if victim == "apiserver" else mesh.url
    container = mesh.containers(service)[0]

    with Writer(mesh, name) as writer:
        with kill(mesh, container):
            writer.wait_for_more()
            mesh.deploy(name, 6, url=other)
            mesh.wait_until_running(name, 6, url=other)
        mesh.wait_until_healthy(container)
        writer.wait_for_more()

    for url in (mesh.url, mesh.second_url):
        assert wait_for(lambda url=url: is_kept(mesh, writer.acknowledged, url), "all acknowledged writes are there")


def test_without_a_majority_writes_are_refused_and_afterwards_nothing_is_missing(distributed, uids):
    mesh = distributed
    gone = [container for member in MEMBERS[1:] for container in mesh.containers(member)]

    with Writer(mesh, "majority") as writer:
        for container in gone:
            mesh.engine.docker("kill", "-s", "KILL", container)
        time.sleep(NO_MAJORITY_S)
        with pytest.raises(RefusedError) as refused:
            mesh.call("POST", CONFIG_MAPS, {"metadata": {"name": "refused"}})
        known = mesh.get(f"{CONFIG_MAPS}?resourceVersion=0")["items"]
        for container in gone:
            mesh.engine.docker("start", container)
        writer.wait_for_more()

    assert 503 == refused.value.code
    assert int(refused.value.headers["Retry-After"]) > 0
    assert known
    for url in (mesh.url, mesh.second_url):
        assert is_kept(mesh, writer.acknowledged, url)
    for member in MEMBERS:
        mesh.wait_until_healthy(mesh.containers(member)[0])


def test_a_mesh_that_is_taken_down_and_up_again_has_what_it_had(distributed):
    distributed.deploy("lasting", 4)
    distributed.wait_until_running("lasting", 4)
    nodes = [node["metadata"]["name"] for node in distributed.get("/api/v1/nodes")["items"]]

    distributed.compose("down")
    distributed.up()

    assert "lasting" in {each["metadata"]["name"] for each in deployments(distributed)}
    assert sorted(nodes) == sorted(node["metadata"]["name"] for node in distributed.get("/api/v1/nodes")["items"])
    distributed.deploy("afterwards", 4)
    distributed.wait_until_running("afterwards", 4)
