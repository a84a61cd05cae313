"""The mesh of the compose tests: its containers, and its REST server as the administrator sees it."""

import asyncio
import base64
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import aiohttp
import pytest
import yaml
from engine import JAEGER, PARTS, ROOT, Engine, run

PROJECT, DISTRIBUTED, STRICT = "keplab-test", "keplab-test-distributed", "keplab-test-strict"
IMAGE = "keplab:test"
COMPONENTS = ("apiserver", "scheduler", "controllers", "claim-controller", "kubelet")
MEMBERS = ("etcd-0", "etcd-1", "etcd-2")
API_SERVERS = ("apiserver", "apiserver-2")
KUBELETS, NODES_EACH = 3, 2
WAIT_MAX_S = 90.0


def wait_for(condition, what, within_s=WAIT_MAX_S):
    """Return the first true answer."""
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(OSError):
            if found := condition():
                return found
        assert time.monotonic() < deadline, f"{what} did not come true within {within_s:g} s"
        time.sleep(0.2)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def kill_by_pid(mesh, container):
    """As a crash would: the restart policy brings it back."""
    try:
        os.kill(mesh.engine.inspect(container)["State"]["Pid"], signal.SIGKILL)
    except (PermissionError, ProcessLookupError):
        pytest.skip("the engine's processes are not in this machine's process table")
    yield


@contextlib.contextmanager
def kill_by_engine(mesh, container):
    """Counts as stopped by hand: gone until an operator starts it again, here at the end of the block."""
    mesh.engine.docker("kill", "-s", "KILL", container)
    yield
    mesh.engine.docker("start", container)


class RefusedError(AssertionError):
    """An answer that is an error; `code` and `headers` are the answer's."""

    def __init__(self, text, code, headers):
        super().__init__(text)
        self.code, self.headers = code, headers


class Mesh:
    """The containers of the project, and their API server's REST server. `settings`: a file of variables."""

    def __init__(
        self, engine: Engine, directory: Path, project: str = PROJECT, settings: str = "", **environ: str
    ) -> None:
        self.engine, self.directory, self.project, self.settings = engine, directory, project, settings
        self.files = ["compose.yaml"]
        self.receiver = "none" if settings else self._receiver()
        self.services = (*COMPONENTS, *API_SERVERS[1:], *MEMBERS) if settings else COMPONENTS
        self.rest_port, self.jaeger_port = free_port(), free_port()
        self.environ = {
            **engine.environ,
            "KEPLAB_IMAGE": IMAGE,
            "KEPLAB_BASE": engine.base(),
            "KEPLAB_NODES": str(NODES_EACH),
            "KEPLAB_REST_PORT": str(self.rest_port),
            "KEPLAB_GRPC_PORT": str(free_port()),
            "KEPLAB_JAEGER_PORT": str(self.jaeger_port),
            **environ,
        }
        if settings:
            second = free_port()
            self.environ |= {"KEPLAB_REST_PORT_2": str(second), "KEPLAB_ETCD_IMAGE": engine.etcd_image(directory)}
            self.second_url = f"https://127.0.0.1:{second}"
        self.url, self.token, self.trust = f"https://127.0.0.1:{self.rest_port}", "", None

    def _receiver(self):
        """Return which receiver of spans stands in the mesh: jaeger, collector, or none where neither is to be had."""
        if self.engine.can_pull(JAEGER):
            return "jaeger"
        if not (PARTS / "otelcol").exists():
            return "none"
        context = self.directory / "collector"
        shutil.copytree(ROOT / "tests/compose/collector", context)
        shutil.copy(PARTS / "otelcol", context / "otelcol")
        self.engine.docker("build", "-q", "-t", "keplab-collector:test", str(context))
        self.files.append("tests/compose/collector/compose.override.yaml")
        return "collector"

    def compose(self, *words, check=True, timeout=600):
        files = [word for file in self.files for word in ("-f", file)]
        chosen = ["--env-file", self.settings] if self.settings else []
        if self.receiver != "none":
            chosen += ["--profile", "observability"]
        command = [*self.engine.compose_command, "-p", self.project, *chosen, *files, *words]
        return run(command, check=check, timeout=timeout, environ=self.environ).stdout

    def up(self):
        services = [*self.services, *(["jaeger"] if self.receiver != "none" else [])]
        if self.receiver != "none":
            self.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://jaeger:4317"
        self.compose("up", "-d", "--scale", f"kubelet={KUBELETS}", *services)
        for service in self.services:
            for container in self.containers(service):
                self.wait_until_healthy(container)
        setup = self.compose("ps", "-aq", "setup").split()[0]
        kubeconfig = self.directory / "kubeconfig"
        self.engine.docker("cp", f"{setup}:/credentials/admin/kubeconfig", str(kubeconfig))
        config = yaml.safe_load(kubeconfig.read_text())
        self.token = config["users"][0]["user"]["token"]
        trusted = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        self.trust = ssl.create_default_context(cadata=trusted)
        self.kubeconfig = kubeconfig

    def containers(self, service):
        return self.compose("ps", "-q", service).split()

    def wait_until_healthy(self, container):
        wait_for(
            lambda: self.engine.inspect(container)["State"].get("Health", {}).get("Status") == "healthy",
            f"container {container[:12]} is healthy",
        )

    def inside(self, container, program):
        """Return what a Python program prints in a container."""
        return self.engine.docker("exec", container, "/opt/keplab/bin/python", "-c", program)

    def logs(self, container):
        """Return what it wrote on both streams."""
        done = run([self.engine.docker_path, "logs", container], environ=self.engine.environ)
        return done.stdout + done.stderr

    def services_seen(self):
        """Return the names under which spans have arrived."""
        if self.receiver == "jaeger":
            with urllib.request.urlopen(f"http://127.0.0.1:{self.jaeger_port}/api/services", timeout=10) as answer:
                return set(json.load(answer)["data"])
        return set(re.findall(r"service\.name: Str\(([^)]*)\)", self.logs(self.containers("jaeger")[0])))

    def call(self, method, path, body=None, *, url=""):
        """Return the text; `url`: of another server than the first. Raises: OSError when the server does not answer;
        RefusedError."""
        request = urllib.request.Request(
            (url or self.url) + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.trust) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            text = f"{method} {path}: {error.code} {error.read()[:300]}"
            raise RefusedError(text, error.code, error.headers) from None

    def get(self, path, *, url=""):
        return json.loads(self.call("GET", path, url=url))

    def execute(self, pod, *command, typed=None):
        """Return what a command printed and the status of its end, over a WebSocket."""
        return asyncio.run(self._execute(pod, command, typed))

    async def _execute(self, pod, command, typed):
        words = [("command", word) for word in command] + [("stdout", "1")] + ([("stdin", "1")] if typed else [])
        url = f"{self.url}/api/v1/namespaces/default/pods/{pod}/exec?{urllib.parse.urlencode(words)}"
        headers = {"Authorization": f"Bearer {self.token}"}
        printed, status = b"", ""
        async with (
            aiohttp.ClientSession() as session,
            asyncio.timeout(20),
            session.ws_connect(url, headers=headers, ssl=self.trust, protocols=["v5.channel.k8s.io"]) as socket,
        ):
            if typed:
                await socket.send_bytes(b"\0" + typed)
                await socket.send_bytes(b"\xff\0")
            async for message in socket:
                if message.data[0] == 1:
                    printed += message.data[1:]
                elif message.data[0] == 3:
                    status = json.loads(message.data[1:])["status"]
        return printed, status

    def kubectl(self, *words):
        """Return what kubectl prints. Skips without one."""
        return run([*self._kubectl(), *words], environ=self.environ).stdout

    def _kubectl(self):
        found = [str(path) for path in (PARTS / "kubectl-forky", PARTS / "kubectl-trixie") if path.exists()]
        found += [path for path in (shutil.which("kubectl"),) if path]
        if not found:
            pytest.skip(f"no kubectl in {PARTS} nor on the PATH")
        return [found[0], "--kubeconfig", str(self.kubeconfig)]

    @contextlib.contextmanager
    def forwarded(self, pod, port):
        """Yield the local port that kubectl forwards to a pod's."""
        command = [*self._kubectl(), "port-forward", pod, f":{port}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                line = process.stdout.readline()
                yield int(re.search(r"127\.0\.0\.1:(\d+)", line)[1])
            finally:
                process.terminate()

    def page(self, port):
        """Return what HTTP answers at a local port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as answer:
            return answer.read().decode()

    def deploy(self, name, replicas, *, url=""):
        labels = {"app": name}
        container = {"name": "c", "image": "web:1", "ports": [{"containerPort": 80}]}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
        self.call("POST", "/apis/apps/v1/namespaces/default/deployments", body, url=url)

    def pods(self, name, *, url=""):
        return self.get(f"/api/v1/namespaces/default/pods?labelSelector=app%3D{name}", url=url)["items"]

    def wait_until_running(self, name, count, *, url=""):
        def running():
            found = [pod for pod in self.pods(name, url=url) if pod.get("status", {}).get("phase") == "Running"]
            return found if len(found) == count else None

        return wait_for(running, f"{count} pods of {name} run")
