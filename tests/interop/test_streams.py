"""exec, attach, cp, port-forward, debug and proxies: real clients against a mesh of processes, over both transports."""

import asyncio
import base64
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import kr8s.asyncio
import kr8s.asyncio.objects
import kubernetes
import kubernetes.stream
import parts
import pytest

ROOT = Path(__file__).parents[2]
COMMAND_MAX_S = 60.0
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p1", "labels": {"app": "p1"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "ports": [{"containerPort": 80, "name": "http"}],
                "env": [
                    {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "color"}}},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                ],
                "volumeMounts": [
                    {"name": "conf", "mountPath": "/etc/conf"},
                    {"name": "secret", "mountPath": "/secret"},
                    {"name": "data", "mountPath": "/data"},
                ],
            },
            {"name": "other", "image": "busybox", "volumeMounts": [{"name": "data", "mountPath": "/shared"}]},
        ],
        "volumes": [
            {"name": "conf", "configMap": {"name": "cm"}},
            {"name": "secret", "secret": {"secretName": "secret"}},
            {"name": "data", "emptyDir": {}},
        ],
    },
}
OBJECTS = [
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"color": "blue"}},
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}, "stringData": {"pass": "word"}},
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": {"app": "p1"}, "ports": [{"port": 8080, "targetPort": "http"}]},
    },
    POD,
]


class Mesh:
    """A mesh of two nodes with one pod that runs."""

    def __init__(self, home):
        self.home, self.data = home, home / "mesh"
        self._keplab = [sys.executable, "-m", "lab.cli"]
        up = [*self._keplab, "up", "--nodes", "1", "--engine", "memory", "--data", str(self.data), "--detach"]
        done = subprocess.run([*up, "-o", "json"], cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_MAX_S)
        assert done.returncode == 0, done.stderr[-1000:]
        self.kubeconfig = json.loads(done.stdout)["kubeconfig"]

    def pid(self, process):
        return json.loads((self.data / "run" / f"{process}.ready").read_text())["pid"]

    def open_files(self, process):
        return len(os.listdir(f"/proc/{self.pid(process)}/fd"))

    def stop(self):
        subprocess.run(
            [*self._keplab, "down", "--data", str(self.data)], cwd=ROOT, capture_output=True, timeout=COMMAND_MAX_S
        )


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    found = Mesh(tmp_path_factory.mktemp("streams"))
    try:
        yield found
    finally:
        found.stop()


class Kubectl:
    def __init__(self, binary, mesh, web_sockets):
        self.mesh = mesh
        said = "true" if web_sockets else "false"
        self.command = [str(binary), f"--kubeconfig={mesh.kubeconfig}", f"--cache-dir={mesh.home}/cache"]
        self.environment = {
            **os.environ,
            "HOME": str(mesh.home),
            "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": said,
            "KUBECTL_PORT_FORWARD_WEBSOCKETS": said,
        }

    def run(self, *words, stdin=b""):
        return subprocess.run(
            [*self.command, *words], input=stdin, capture_output=True, timeout=COMMAND_MAX_S, env=self.environment
        )

    def __call__(self, *words, stdin=b"", code=0):
        done = self.run(*words, stdin=stdin)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout.decode()

    def started(self, *words):
        # Where the tests run in the background SIGINT is ignored, and what they start would ignore it as well.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                [*self.command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment
            )
        finally:
            signal.signal(signal.SIGINT, before)


def binary_of(suite):
    try:
        return parts.kubectl(suite)
    except parts.NotToBeHadError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=[(suite, way) for suite in parts.KUBECTLS for way in ("websocket", "spdy")])
def kubectl(request, mesh):
    suite, way = request.param
    found = Kubectl(binary_of(suite), mesh, way == "websocket")
    found("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS}).encode())
    found("wait", "--for=condition=Ready", "pod/p1", "--timeout=30s")
    return found


def test_a_command_runs_with_the_variables_and_files_of_its_container(kubectl):
    done = kubectl.run("exec", "p1", "-c", "c", "--", "sh", "-c", "echo $COLOR $NODE; echo bad >&2; exit 3")
    assert done.returncode == 3
    assert done.stdout == b"blue node-0\n"
    assert done.stderr.decode().splitlines() == ["bad", "command terminated with exit code 3"]
    assert kubectl("exec", "p1", "-c", "c", "--", "cat", "/etc/conf/color", "/secret/pass") == "blueword"
    assert kubectl("exec", "-i", "p1", "-c", "c", "--", "wc", "-w", stdin=b"a b c") == "3\n"
    kubectl("exec", "p1", "-c", "c", "--", "sh", "-c", "echo x > /data/f")
    assert kubectl("exec", "p1", "-c", "other", "--", "cat", "/shared/f") == "x\n"


def test_what_cannot_run_is_refused_in_upstreams_words(kubectl):
    done = kubectl.run("exec", "p1", "-c", "c", "--", "curl", "x")
    assert done.returncode == 127
    assert b"sh: curl: not found" in done.stderr
    assert b"containers are emulated" in done.stderr
    assert b"container nope" in kubectl.run("exec", "p1", "-c", "nope", "--", "ls").stderr
    kubectl("run", "over", "--image=busybox", "--restart=Never", "--", "true")
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/over", "--timeout=20s")
    done = kubectl.run("exec", "over", "--", "ls")
    assert b"cannot exec into a container in a completed pod; current phase is Succeeded" in done.stderr
    kubectl("delete", "pod", "over")


def test_files_are_copied_both_ways(kubectl, tmp_path):
    data = os.urandom(1_500_000)
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "big").write_bytes(data)
    (tmp_path / "tree" / "small").write_text("small")
    kubectl("cp", str(tmp_path / "tree"), "p1:/data/tree", "-c", "c")
    kubectl("cp", "p1:/data/tree", str(tmp_path / "back"), "-c", "c")
    assert (tmp_path / "back" / "inner" / "big").read_bytes() == data
    assert (tmp_path / "back" / "small").read_text() == "small"
    kubectl("exec", "p1", "-c", "c", "--", "rm", "-r", "/data/tree")


def test_a_run_is_attached_to_and_its_exit_code_comes_back(kubectl):
    words = ("--image=busybox", "--restart=Never", "--rm")
    assert "in r1" in kubectl("run", "r1", *words, "-i", "--", "sh", stdin=b"echo in $HOSTNAME\nexit 4\n", code=4)
    ran = kubectl("run", "r2", *words, "--attach", "--", "sh", "-c", "sleep 1; echo hello; exit 2", code=2)
    assert "hello" in ran


def test_a_debugger_is_attached_to(kubectl):
    said = kubectl("debug", "p1", "--image=busybox", "-i", "--", "sh", stdin=b"echo from the debugger\nexit\n")
    assert "from the debugger" in said
    said = kubectl("debug", "node/node-0", "--image=busybox", "-i", "--", "sh", stdin=b"echo on the node\nexit\n")
    assert "on the node" in said


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def page(url, limit_s=15.0):
    deadline = time.monotonic() + limit_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_a_port_is_forwarded_and_one_that_is_not_declared_is_refused(kubectl):
    one, other = free_port(), free_port()
    forwarding = kubectl.started("port-forward", "pod/p1", f"{one}:80", f"{other}:81")
    try:
        for path in ("/a", "/b?c=d"):
            assert page(f"http://127.0.0.1:{one}{path}") == f"pod default/p1, container c, port 80: GET {path}\n"
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
            page(f"http://127.0.0.1:{other}/", limit_s=0)
    finally:
        forwarding.terminate()
        _, errors = forwarding.communicate(timeout=10)
    assert b"connection refused" in errors


def test_containers_answer_through_the_server(kubectl):
    get = ("get", "--raw")
    pods, services = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/services"
    assert kubectl(*get, f"{pods}/p1:80/proxy/x?y=1") == "pod default/p1, container c, port 80: GET /x?y=1\n"
    assert kubectl(*get, f"{services}/web:8080/proxy/") == "pod default/p1, container c, port 80: GET /\n"
    assert kubectl(*get, "/api/v1/nodes/node-0/proxy/healthz") == "ok\n"
    done = kubectl.run(*get, f"{pods}/p1:81/proxy/")
    assert b"connect: connection refused" in done.stderr


def until(what, limit_s=20.0):
    deadline = time.monotonic() + limit_s
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def test_streams_that_are_cut_leave_nothing_behind(kubectl, mesh):
    many = [kubectl.started("exec", "p1", "-c", "c", "--", "sh", "-c", "echo up; sleep 600") for _ in range(8)]
    assert [each.stdout.readline() for each in many] == [b"up\n"] * len(many)
    # a stream holds one connection at the kubelet, and two at the API server, which stands between
    held = {"apiserver": 2 * len(many), "kubelet_h0": len(many)}
    during = {process: mesh.open_files(process) for process in held}
    for each in many[:4]:
        each.send_signal(signal.SIGINT)
    for each in many[4:]:
        each.kill()
    for each in many:
        each.communicate(timeout=10)
    assert until(lambda: all(mesh.open_files(process) <= during[process] - held[process] for process in held))


@pytest.mark.parametrize("kubectl", [("forky", "websocket"), ("forky", "spdy")], indirect=True)
def test_a_kubelet_that_is_killed_ends_its_streams(kubectl, mesh):
    running = kubectl.started("exec", "p1", "-c", "c", "--", "sleep", "600")
    try:
        time.sleep(1.5)
        before = mesh.pid("kubelet_h0")
        os.kill(before, signal.SIGKILL)
        running.wait(timeout=20)  # over SPDY kubectl takes an error stream that broke off for success
    finally:
        running.kill()
        running.communicate(timeout=10)
    assert until(lambda: kubectl.run("exec", "p1", "-c", "c", "--", "true").returncode == 0, 40.0)


# --- clients in Python; the kubelet


@pytest.fixture
def api(kubectl, mesh):
    kubernetes.config.load_kube_config(mesh.kubeconfig)
    return kubernetes.client.CoreV1Api()


@pytest.mark.parametrize("kubectl", [("forky", "websocket")], indirect=True)
def test_the_python_client_runs_commands_and_forwards_ports(api):
    execute = kubernetes.stream.stream
    words = {"name": "p1", "namespace": "default", "container": "c", "stderr": True, "stdout": True, "tty": False}
    call = api.connect_get_namespaced_pod_exec
    assert execute(call, **words, stdin=False, command=["sh", "-c", "echo $COLOR; echo e >&2"]) in (
        "blue\ne\n",
        "e\nblue\n",
    )
    session = execute(call, **words, stdin=True, command=["sh"], _preload_content=False)
    session.write_stdin("echo from stdin\nexit 7\n")
    session.run_forever(timeout=10)
    assert (session.read_stdout(), session.returncode) == ("from stdin\n", 7)
    forwarded = kubernetes.stream.portforward(api.connect_get_namespaced_pod_portforward, "p1", "default", ports="80")
    through = forwarded.socket(80)
    through.settimeout(10)
    through.sendall(b"GET /py HTTP/1.1\r\nHost: p1\r\nConnection: close\r\n\r\n")
    answer = b""
    while b"GET /py" not in answer and (data := through.recv(4096)):
        answer += data
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    through.close()


@pytest.mark.parametrize("kubectl", [("forky", "websocket")], indirect=True)
def test_kr8s_runs_commands_and_forwards_ports(kubectl, mesh):
    async def scenario():
        client = await kr8s.asyncio.api(kubeconfig=mesh.kubeconfig)
        pod = await kr8s.asyncio.objects.Pod.get("p1", namespace="default", api=client)
        done = await pod.exec(["sh", "-c", "echo $NODE; exit 3"], container="c", check=False)
        async with pod.portforward(remote_port=80, local_port="auto") as port:
            text = await asyncio.to_thread(page, f"http://127.0.0.1:{port}/kr8s")
        return done.stdout, done.returncode, text

    assert asyncio.run(asyncio.wait_for(scenario(), 40)) == (
        b"node-0\n",
        3,
        "pod default/p1, container c, port 80: GET /kr8s\n",
    )


@pytest.mark.parametrize("kubectl", [("forky", "websocket")], indirect=True)
def test_the_kubelets_endpoint_answers_the_api_server_alone(kubectl, mesh):
    node = json.loads(kubectl("get", "node", "node-0", "-o", "json"))
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    trust = ssl.create_default_context(cafile=mesh.data / "credentials" / "ca.crt")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"https://127.0.0.1:{port}/containerLogs/default/p1/c", context=trust, timeout=10)
    assert refused.value.code == 401
    key = base64.b64encode(os.urandom(16)).decode()
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        trust.wrap_socket(plain, server_hostname="127.0.0.1") as spoken,
    ):
        spoken.sendall(
            f"POST /exec/default/p1/c?command=id&output=1 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
            f"Upgrade: SPDY/3.1\r\nX-Key: {key}\r\n\r\n".encode()
        )
        assert spoken.recv(100).startswith(b"HTTP/1.1 401")
