"""A real API server process and real clients of it; what other components would do is done by hand, as them."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import http.client
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import kubernetes
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import parts

from services.api.release import KUBERNETES
from services.runtime import certificates

ROOT = Path(__file__).parents[2]
NODE_KEY = "5e" * 32
NODE_TOKEN_S = 3600
START_MAX_S = 20.0
COMMAND_MAX_S = 40.0
TOKENS = {
    "system:mesh-admin": ("admin-secret", ["system:mesh-admins"]),
    "system:kube-scheduler": ("scheduler-secret", []),
    "system:controller:deployment": ("deployment-secret", []),
    "system:controller:replicaset": ("replicaset-secret", []),
    "system:controller:namespace": ("namespace-secret", []),
    "user:alice": ("alice-secret", []),
}


class Mesh:
    """An API server process, and ways to speak to it as anybody."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        tokens = [{"token": t, "user": user, "groups": groups} for user, (t, groups) in TOKENS.items()]
        (directory / "tokens.json").write_text(json.dumps({"tokens": tokens, "node_key": NODE_KEY}))
        self.authority = certificates.authority(directory)
        serving = self.authority.server("apiserver")
        self.trust = ssl.create_default_context(cafile=self.authority.path)
        ready = directory / "ready.json"
        log = (directory / "apiserver.log").open("wb")
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "apiserver_fake", "--engine", "memory", "--rest-port", "0", "--grpc-port", "0",
                "--token-file", str(directory / "tokens.json"), "--ready-file", str(ready), "--health-port", "-1",
                "--tls-cert-file", str(serving.certificate), "--tls-private-key-file", str(serving.key),
                "--client-ca-file", str(self.authority.path),
            ],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )  # fmt: skip
        deadline = time.monotonic() + START_MAX_S
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(
                    f"the API server did not start:\n{(directory / 'apiserver.log').read_text()[-600:]}"
                )
            time.sleep(0.02)
        self.port = json.loads(ready.read_text())["ports"]["rest"]
        self.url = f"https://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)

    def token(self, user: str) -> str:
        if user.startswith("system:node:"):
            name = user.removeprefix("system:node:")
            # Bound to no host: REST knows of a connection's certificate alone (services/api/tokens.py).
            until = str(int(time.time()) + NODE_TOKEN_S)
            mac = hmac.new(bytes.fromhex(NODE_KEY), f"{name}@ {until}".encode(), hashlib.sha256).hexdigest()
            return f"node.{name}.{until}.{mac}"
        return TOKENS[user][0]

    def kubeconfig(self, user: str = "system:mesh-admin") -> Path:
        """The form that `keplab up` writes."""
        trusted = base64.b64encode(self.authority.path.read_bytes()).decode()
        path = self.directory / f"kubeconfig-{user.replace(':', '-')}"
        token = self.token(user)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "m", "cluster": {"server": self.url, "certificate-authority-data": trusted}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "m", "context": {"cluster": "m", "user": "u", "namespace": "default"}}],
            "current-context": "m",
        }
        path.write_text(json.dumps(config))
        return path

    def connection(self, timeout: float = 15) -> http.client.HTTPSConnection:
        """A connection of its own, for requests written by hand."""
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=self.trust)

    def call(self, method, path, body=None, *, user="system:mesh-admin", content_type="application/json", ok=True):
        """Return `(code, document)`; `ok` asserts success."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token(user)}", "Content-Type": content_type},
        )
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.trust) as answer:
                code, text = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            code, text = error.code, error.read()
        document = json.loads(text) if text else {}
        assert not ok or code < 400, f"{method} {path} as {user}: {code} {document.get('message')}"
        return code, document

    # --- what the other components would do

    def a_node(self, name: str) -> None:
        """Register a node as its kubelet, ready."""
        user = f"system:node:{name}"
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        }
        self.call("POST", "/api/v1/nodes", node, user=user)
        status = {
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            # All of it: typed clients refuse a Node whose nodeInfo lacks a field.
            "nodeInfo": {
                "machineID": "m",
                "systemUUID": "s",
                "bootID": "b",
                "kernelVersion": "6",
                "osImage": "keplab",
                "containerRuntimeVersion": "fake://1",
                "kubeletVersion": KUBERNETES,
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 9}},
        }
        self.merge(f"/api/v1/nodes/{name}/status", {"status": status}, user=user)

    def kubelet_port(self, node: str, port: int) -> None:
        patch = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}}
        self.merge(f"/api/v1/nodes/{node}/status", patch, user=f"system:node:{node}")

    def merge(self, path, patch, *, user="system:mesh-admin"):
        return self.call("PATCH", path, patch, user=user, content_type="application/merge-patch+json")[1]

    def bind(self, namespace: str, name: str, node: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name},
            "target": {"kind": "Node", "name": node},
        }
        uid = self.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")[1]["metadata"]["uid"]
        body["metadata"]["uid"] = uid
        self.call("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", body, user="system:kube-scheduler")

    def run_pod(self, namespace: str, name: str, node: str) -> None:
        """Bind the pod as the scheduler and report it running and ready as the kubelet."""
        self.bind(namespace, name, node)
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        pod = self.call("GET", path)[1]
        containers = pod["spec"]["containers"]
        status = {
            "observedGeneration": pod["metadata"]["generation"],
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True"},
                {"type": "ContainersReady", "status": "True"},
            ],
            "containerStatuses": [
                {"name": c["name"], "image": c["image"], "ready": True, "restartCount": 0, "state": {"running": {}}}
                for c in containers
            ],
            "podIP": "10.0.0.1",
        }
        self.merge(f"{path}/status", {"status": status}, user=f"system:node:{node}")

    def finish_pod(self, namespace: str, name: str, node: str) -> None:
        """Confirm a graceful deletion as the kubelet does: delete with grace 0."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        code, pod = self.call("GET", path, ok=False)
        if code == 200:
            body["preconditions"] = {"uid": pod["metadata"]["uid"]}
            self.call("DELETE", path, body, user=f"system:node:{node}")


class WholeMesh:
    """What `keplab up` starts, for clients that wait for pods to run; `data` is its directory."""

    def __init__(self, data: Path) -> None:
        self.data = data
        up = ["up", "--nodes", "2", "--engine", "memory", "--data", str(data), "--detach", "-o", "json"]
        done = self._keplab(*up)
        assert done.returncode == 0, done.stderr[-1000:]
        self.kubeconfig: str = json.loads(done.stdout)["kubeconfig"]

    def _keplab(self, *words):
        command = [sys.executable, "-m", "lab.cli", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=START_MAX_S * 3)

    def stop(self) -> None:
        self._keplab("down", "--data", str(self.data))


def until(holds, most_s=30.0):
    """Return what `holds` gives once it is true; asked every few milliseconds."""
    end = time.monotonic() + most_s
    while not (found := holds()):
        assert time.monotonic() < end, f"not so after {most_s} s"
        time.sleep(0.03)
    return found


class Kubectl:
    """One kubectl binary pointed at the mesh."""

    def __init__(self, binary: Path, suite: str, mesh: Mesh, directory: Path) -> None:
        self.suite, self.directory = suite, directory
        self._binary, self._mesh = str(binary), mesh
        self._environment = {**os.environ, "HOME": str(directory), "KUBE_EDITOR": "", "EDITOR": ""}

    def command(self, words, user):
        return [
            self._binary, f"--kubeconfig={self._mesh.kubeconfig(user)}", f"--cache-dir={self.directory}/cache", *words,
        ]  # fmt: skip

    def __call__(self, *words, stdin=None, code=0, user="system:mesh-admin", env=None):
        """Return what it printed on both streams; the exit code must be `code`."""
        if isinstance(stdin, dict | list):
            stdin = json.dumps(stdin)
        done = subprocess.run(
            self.command(words, user), input=stdin, capture_output=True, text=True, timeout=COMMAND_MAX_S,
            env={**self._environment, **(env or {})}, cwd=self.directory,
        )  # fmt: skip
        text = done.stdout + done.stderr
        assert done.returncode == code, f"kubectl {' '.join(words)}: exit {done.returncode}, want {code}\n{text}"
        return text

    def started(self, *words, user="system:mesh-admin"):
        return subprocess.Popen(
            self.command(words, user), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=self._environment, cwd=self.directory,
        )  # fmt: skip


@pytest.fixture(scope="session")
def mesh(tmp_path_factory):
    found = Mesh(tmp_path_factory.mktemp("mesh"))
    for node in ("n1", "n2", "n3"):
        found.a_node(node)
    yield found
    found.stop()


@pytest.fixture(scope="session")
def whole_mesh(tmp_path_factory):
    """All components of a mesh of two nodes; each test has a namespace of its own in it."""
    found = WholeMesh(tmp_path_factory.mktemp("whole") / "mesh")
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def space(whole_mesh, request):
    """A namespace of the test's own in the whole mesh, with its default service account."""
    core = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(whole_mesh.kubeconfig))
    name = f"t-{hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:10]}"
    core.create_namespace({"metadata": {"name": name}})
    until(lambda: core.list_namespaced_service_account(name).items)
    return name


@pytest.fixture(scope="session", params=list(parts.KUBECTLS))
def kubectl(request, mesh, tmp_path_factory):
    try:
        binary = parts.kubectl(request.param)
    except parts.NotToBeHadError as error:
        pytest.skip(str(error))
    return Kubectl(binary, request.param, mesh, tmp_path_factory.mktemp(request.param))


@pytest.fixture
def namespace(mesh, request):
    """A namespace of the test's own."""
    digest = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:10]
    name = f"t-{digest}"
    mesh.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def a_kubelet(mesh):
    """Return a context in which a node's kubelet serves a two-line log; it yields the paths it was asked for."""

    @contextlib.contextmanager
    def serving(node: str):
        asked: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"line one\nline two\n")

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            mesh.kubelet_port(node, server.server_address[1])
            yield asked
        finally:
            mesh.kubelet_port(node, 9)
            server.shutdown()
            thread.join()
            server.server_close()

    return serving


@pytest.fixture
def run_async():
    return lambda coroutine: asyncio.run(asyncio.wait_for(coroutine, 60))
