"""A pod's life is one trace in whatever speaks OTLP, and no pod waits for who does (walls 8, FM-X6).

The receiver is the OpenTelemetry Collector where it is built: `otelcol` in the parts folder, or built now when
`KEPLAB_BUILD_COLLECTOR=1` (some minutes; see `otel/build.sh`). Elsewhere a receiver of our own stands in.
"""

import asyncio
import contextlib
import gzip
import http.server
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.trace.v1 import trace_pb2 as pb_trace

sys.path.insert(0, str(Path(__file__).parent))
import parts

from services.runtime.mesh.options import MeshOptions
from services.runtime.supervisor import Supervisor
from tests.component.mesh.service_graph import edges, known_attributes, violations

pytestmark = pytest.mark.timeout(1200)

OTEL = Path(__file__).parent / "otel"
BUILD_MAX_S = 1000
WAIT_MAX_S = 40.0
CLIENT = "00-5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1e-c11e57c11e57c11e-01"
CONFIGURATION = """
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: "127.0.0.1:{port}"}}}}}}
processors:
  batch: {{timeout: 100ms}}
exporters:
  otlphttp/sink: {{endpoint: "{sink}", compression: none}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    traces: {{receivers: [otlp], processors: [batch], exporters: [otlphttp/sink]}}
"""


@dataclass(frozen=True)
class Span:
    """A span as the collector hands it on; ids in hex. `resource`: what its process says of itself."""

    service: str
    kind: str
    resource: dict[str, str]
    name: str
    trace_id: str
    span_id: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, str]
    start_ns: int
    end_ns: int

    @property
    def causes(self) -> set[str]:
        return {self.parent, *(span_id for _, span_id in self.links)} - {""}


def spans_of(data: bytes) -> list[Span]:
    found = []
    for resource in pb.ExportTraceServiceRequest.FromString(data).resource_spans:
        of_resource = {a.key: a.value.string_value for a in resource.resource.attributes}
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            links = tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links)
            attributes = {a.key: a.value.string_value or str(a.value.int_value) for a in span.attributes}
            found.append(
                Span(
                    of_resource["service.name"], pb_trace.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"), of_resource, span.name, span.trace_id.hex(), span.span_id.hex(),
                    span.parent_span_id.hex(), links, attributes, span.start_time_unix_nano, span.end_time_unix_nano,
                )
            )  # fmt: skip
    return found


class Sink:
    """An HTTP server that keeps every span it is sent."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        keep = self.spans

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                data = self.rfile.read(int(self.headers["Content-Length"]))
                keep.extend(spans_of(gzip.decompress(data) if self.headers["Content-Encoding"] == "gzip" else data))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Receiver:
    """The collector's process, or what stands in for it; `stop` and `start` as often as one likes."""

    def __init__(self, binary: Path | None, directory: Path, sink: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._log = directory / "receiver.log"
        if binary is None:
            self._command = [sys.executable, str(OTEL / "receiver.py"), str(self.port), sink]
        else:
            (directory / "collector.yaml").write_text(CONFIGURATION.format(port=self.port, sink=sink))
            self._command = [str(binary), f"--config={directory}/collector.yaml"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_for(self._listens, "the receiver listens")

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-800:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


def wait_for(condition, what):
    deadline = time.monotonic() + WAIT_MAX_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_MAX_S:g} s"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def binary():
    """The collector, built when asked for; None where there is none."""
    found = parts.folder() / "otelcol"
    if not found.exists() and os.environ.get("KEPLAB_BUILD_COLLECTOR") == "1":
        with parts.locked(parts.folder() / "otelcol.lock"):
            if not found.exists():
                subprocess.run([OTEL / "build.sh", found, sys.executable], check=True, timeout=BUILD_MAX_S)
    return found if found.exists() else None


class Mesh:
    """A mesh of processes, as one who has its kubeconfig sees it."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._url = supervisor.rest_url
        self._trust = ssl.create_default_context(cafile=supervisor.authority)
        self._token = yaml.safe_load(supervisor.kubeconfig.read_text())["users"][0]["user"]["token"]
        self.apiserver_health = supervisor.status()["processes"][0]["ports"]["health"]

    def call(self, method, path, body=None, **headers):
        request = urllib.request.Request(
            self._url + path, method=method, data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json", **headers},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=10, context=self._trust) as answer:
            return json.load(answer)

    def run_pod(self, name, **headers):
        """Create the pod and return the seconds until it is Running."""
        began = time.monotonic()
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
               "spec": {"containers": [{"name": "c", "image": "web:1"}]}}  # fmt: skip
        self.call("POST", "/api/v1/namespaces/default/pods", pod, **headers)
        path = f"/api/v1/namespaces/default/pods/{name}"
        wait_for(lambda: self.call("GET", path)["status"].get("phase") == "Running", f"pod {name} runs")
        return time.monotonic() - began

    def metric(self, name):
        headers = {"Authorization": f"Bearer {self._token}"}
        asked = urllib.request.Request(f"http://127.0.0.1:{self.apiserver_health}/metrics", headers=headers)
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return next(float(line.split()[1]) for line in answer.read().decode().splitlines() if line.startswith(name))


@pytest.fixture(scope="module")
def world(binary, tmp_path_factory):
    """(mesh, receiver, sink): a mesh that sends its spans to a receiver that hands them to a sink."""
    directory = tmp_path_factory.mktemp("traces")
    sink = Sink()
    receiver = Receiver(binary, directory, sink.url)
    receiver.start()
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def on_loop(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(120)

    latency = ("--latency", "all=constant:0.05")
    options = MeshOptions(
        data_dir=directory / "mesh", nodes=2, hosts=1, engine="memory", arguments={"kubelet": latency}
    )
    supervisor = Supervisor(options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{receiver.port}")
        on_loop(supervisor.start())
        yield Mesh(supervisor), receiver, sink
        on_loop(supervisor.stop())
    receiver.kill()
    sink.close()
    loop.call_soon_threadsafe(loop.stop)


def test_a_pod_from_request_to_running_is_one_connected_trace(world):
    mesh, _, sink = world
    mesh.run_pod("traced", traceparent=CLIENT)
    trace_id, client = CLIENT.split("-")[1:3]

    def reported():
        found = {span.span_id: span for span in list(sink.spans) if span.trace_id == trace_id}
        synced = [span for span in found.values() if span.name == "sync pod"]
        has_reported = any("Patch" in s.name and leads_to(s, synced[0], found) for s in found.values() if synced)
        is_whole = all(cause in found or cause == client for span in found.values() for cause in span.causes)
        return list(found.values()) if has_reported and is_whole else None

    found = wait_for(reported, "the whole trace arrives, to the kubelet's report")
    by_id = {span.span_id: span for span in found}

    def one(service, name, **attributes):
        matching = [
            span
            for span in found
            if (span.service, span.name) == (service, name) and attributes.items() <= span.attributes.items()
        ]
        assert matching, f"{service} has no {name!r}; the trace has {sorted({(s.service, s.name) for s in found})}"
        return matching[0]

    rest = one("apiserver", "POST /api/v1/namespaces/{namespace}/pods")
    create = one("apiserver", "mesh.v1.ApiServer/Create")
    schedule = one("scheduler", "schedule pod", **{"k8s.pod.name": "traced"})
    bind = one("scheduler", "bind pod", **{"k8s.pod.name": "traced"})
    sync = one("kubelet", "sync pod", **{"k8s.pod.name": "traced"})

    # Every one is caused by what came before it, and all of it by the client's request.
    assert client == rest.parent
    assert rest.span_id == create.parent
    created = by_id[next(iter(schedule.causes))]
    assert ("PRODUCER", create.span_id) == (created.kind, created.parent)
    assert schedule.span_id == bind.parent
    bound = by_id[next(iter(sync.causes))]
    binding = by_id[bound.parent]
    asked = by_id[binding.parent]
    assert ("PRODUCER", "SERVER", "CLIENT") == (bound.kind, binding.kind, asked.kind)
    assert ("apiserver", "scheduler", bind.span_id) == (binding.service, asked.service, asked.parent)
    reports = [span for span in found if span.service == "apiserver" and leads_to(span, sync, by_id)]
    assert any("Patch" in span.name for span in reports), sorted({span.name for span in reports})
    for span in found:
        assert span.end_ns >= span.start_ns
        assert span is rest or leads_to(span, rest, by_id), f"{span.service} {span.name} hangs loose"


def leads_to(span: Span, origin: Span, by_id: dict[str, Span]) -> bool:
    """Whether following parents and links from `span` comes to `origin`."""
    seen, todo = set(), [span]
    while todo:
        for cause in todo.pop().causes:
            if cause == origin.span_id:
                return True
            if cause in by_id and cause not in seen:
                seen.add(cause)
                todo.append(by_id[cause])
    return False


def test_a_deployment_leads_to_its_running_pods_through_every_component(world):
    mesh, _, sink = world
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "w"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": spec}
    path = "/apis/apps/v1/namespaces/default/deployments"
    mesh.call("POST", path, deployment, traceparent=CLIENT.replace("5ca1ab1e", "ca11ab1e"))

    def is_complete():
        by_id = {span.span_id: span for span in sink.spans}
        requests = [s for s in by_id.values() if s.name.startswith("POST") and s.name.endswith("/deployments")]
        synced = [s for s in by_id.values() if s.name == "sync pod" and s.attributes["k8s.pod.name"].startswith("w-")]
        is_whole = requests and len(synced) == 2 and all(leads_to(span, requests[0], by_id) for span in synced)
        return list(by_id.values()) if is_whole else None

    reported = wait_for(is_complete, "both pods' spans lead to the request")
    components = {"apiserver", "scheduler", "controllers", "kubelet"}
    assert components == {span.service for span in reported}

    callers = components - {"apiserver"}
    wanted = {(each, "apiserver", "CLIENT") for each in callers} | {("apiserver", each, "PRODUCER") for each in callers}

    def found_edges():
        return edges([(s.service, s.kind, s.span_id, s.parent) for s in {s.span_id: s for s in sink.spans}.values()])

    wait_for(lambda: wanted <= set(found_edges()), "the service graph has its edges")
    assert wanted == set(found_edges())
    known = known_attributes()
    assert [what for s in sink.spans for what in violations(s.name, s.kind, s.attributes, known)] == []
    for span in sink.spans:
        assert span.resource["service.namespace"] == "keplab"
        assert span.resource["service.version"]
        assert span.resource["service.instance.id"]


def test_fm_x6_a_collector_that_is_paused_or_killed_delays_no_pod_and_is_found_again(world):
    mesh, receiver, sink = world
    usual_s = max(mesh.run_pod(f"usual-{number}") for number in range(5))

    receiver.pause()
    paused_s = min(mesh.run_pod(f"paused-{number}") for number in range(5))
    receiver.kill()
    killed_s = min(mesh.run_pod(f"killed-{number}") for number in range(5))
    wait_for(lambda: mesh.metric("keplab_spans_dropped_total"), "lost spans are counted")
    receiver.start()
    mesh.run_pod("again")

    assert max(paused_s, killed_s) <= usual_s + 0.5
    wait_for(lambda: any(s.attributes.get("k8s.pod.name") == "again" for s in sink.spans), "tracing resumes")
