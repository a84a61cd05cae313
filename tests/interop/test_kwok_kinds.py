"""kubectl logs, exec, attach, port-forward and top against pods that KWOK's documents speak of."""

import http.client
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import parts
import pytest

ROOT = Path(__file__).parents[2]
COMMAND_MAX_S = 60.0
SETTLE_MAX_S = 60.0
KWOK = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterResourceUsage
metadata: {{name: usage}}
spec: {{usages: [{{usage: {{cpu: {{expression: 'Quantity("250m")'}}, memory: {{value: 10Mi}}}}}}]}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Metric
metadata: {{name: metrics-resource}}
spec:
  path: /metrics/nodes/{{nodeName}}/metrics/resource
  metrics:
  - {{name: scrape_error, dimension: node, kind: gauge, value: '0', help: "[ALPHA] errors\\n"}}
  - name: pod_memory_working_set_bytes
    dimension: pod
    kind: gauge
    labels: [{{name: namespace, value: pod.metadata.namespace}}, {{name: pod, value: pod.metadata.name}}]
    value: pod.Usage("memory")
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {{name: logs}}
spec: {{logs: [{{logsFile: p.log, previousLogsFile: before.log}}]}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterAttach
metadata: {{name: attach}}
spec: {{attaches: [{{logsFile: p.log}}]}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {{name: exec}}
spec:
  execs:
  - local: {{workDir: {folder}, envs: [{{name: COLOR, value: blue}}]}}
  - containers: [emulated]
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: PortForward
metadata: {{name: p, namespace: default}}
spec:
  forwards:
  - {{ports: [1], httpRoutes: [{{location: /healthz, code: 203, headers: [{{name: x-a, value: b}}], body: fine}}]}}
  - {{ports: [2], target: {{port: {port}, address: 127.0.0.1}}}}
  - {{ports: [3], command: [sh, -c, 'read line; echo "$line back"']}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {{name: pod-ready}}
spec:
  resourceRef: {{apiGroup: v1, kind: Pod}}
  selector:
    matchLabels: {{staged: "yes"}}
    matchExpressions: [{{key: .status.podIP, operator: DoesNotExist}}]
  next:
    statusTemplate: |
      conditions: [{{type: Ready, status: "True"}}]
      containerStatuses:
      - {{name: c, image: i, ready: true, restartCount: 0, started: true, state: {{running: {{startedAt: {{{{ Now | Quote }}}} }} }} }}
      podIP: {{{{ PodIPWith .spec.nodeName false "" "" "" | Quote }}}}
      phase: Running
      startTime: {{{{ Now | Quote }}}}
"""
PODS = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": container, "image": "i"} for container in containers]},
    }
    for name, labels, containers in (("p", {"staged": "yes"}, ("c",)), ("q", {}, ("c", "emulated")))
]


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"there")

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kwok")


@pytest.fixture(scope="module")
def kubectl(folder):
    """A mesh of one node whose documents these are, and kubectl of it."""
    try:
        binary = parts.kubectl("trixie")
    except parts.NotToBeHadError as error:
        pytest.skip(str(error))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (folder / "kwok.yaml").write_text(KWOK.format(folder=folder, port=server.server_address[1]))
    (folder / "p.log").write_text("2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:01Z stderr F two\n")
    (folder / "before.log").write_text("2025-01-01T00:00:00Z stdout F before\n")
    keplab, data = [sys.executable, "-m", "lab.cli"], folder / "mesh"
    up = [*keplab, "up", "--nodes", "1", "--engine", "memory", "--data", str(data), "--kwok", str(folder / "kwok.yaml")]
    done = subprocess.run(
        [*up, "--host-commands", "--enable-crds", "Stage,ClusterExec", "--detach", "-o", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=COMMAND_MAX_S,
    )
    assert done.returncode == 0, done.stderr[-1000:]
    command = [str(binary), f"--kubeconfig={json.loads(done.stdout)['kubeconfig']}", f"--cache-dir={folder}/cache"]

    def run(*words, stdin=b"", code=0):
        ended = subprocess.run(
            [*command, *words],
            input=stdin,
            capture_output=True,
            timeout=COMMAND_MAX_S,
            env={**os.environ, "HOME": str(folder)},
        )
        assert ended.returncode == code, (words, ended.returncode, ended.stdout, ended.stderr)
        return ended.stdout.decode() + (ended.stderr.decode() if code else "")

    run.command = command
    try:
        run("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": PODS}).encode())
        run("wait", "--for=condition=Ready", "pod/p", "pod/q", "--timeout=30s")
        yield run
    finally:
        subprocess.run([*keplab, "down", "--data", str(data)], cwd=ROOT, capture_output=True, timeout=COMMAND_MAX_S)
        server.shutdown()


def until(look):
    """Return what `look` gives once that is true."""
    end = time.monotonic() + SETTLE_MAX_S
    while not (found := look()):
        assert time.monotonic() < end, "the awaited state did not come"
        time.sleep(0.2)
    return found


def test_an_object_is_applied_edited_and_deleted_and_counts_at_once(kubectl):
    head = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "ClusterExec", "metadata": {"name": "exec"}}

    def apply(color):
        entries = [{"local": {"envs": [{"name": "COLOR", "value": color}]}}]
        return kubectl("apply", "-f", "-", stdin=json.dumps({**head, "spec": {"execs": entries}}).encode())

    def color_is(wanted):
        return lambda: kubectl("exec", "p", "--", "sh", "-c", "echo $COLOR") == f"{wanted}\n"

    assert "created" in apply("red")
    until(color_is("red"))
    assert "configured" in apply("green")
    until(color_is("green"))
    kubectl("delete", "clusterexec", "exec")
    until(color_is("blue"))  # as the file says
    stage = {"resourceRef": {"kind": "Pod"}, "selectr": {}, "next": {"delete": True}}
    said = kubectl(*("apply", "-f", "-"), stdin=json.dumps({**head, "kind": "Stage", "spec": stage}).encode(), code=1)
    assert 'unknown field "spec.selectr"' in said


@pytest.mark.parametrize("pod", [("p",), ("q", "-c", "c")])
def test_logs_are_those_of_the_file(kubectl, pod):
    assert kubectl("logs", *pod) == "one\ntwo\n"
    assert kubectl("logs", *pod, "--previous") == "before\n"
    assert kubectl("logs", *pod, "--tail=1", "--timestamps") == "2026-01-01T00:00:01Z two\n"


@pytest.mark.parametrize(
    ("words", "there"), [(("logs", "-f", "p"), [b"one\n", b"two\n"]), (("attach", "p"), [b"one\n"])]
)
def test_a_log_is_shown_as_it_grows(kubectl, folder, words, there):
    file = folder / "p.log"
    before = file.read_text()
    with subprocess.Popen([*kubectl.command, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reading:
        try:
            shown = [reading.stdout.readline() for _ in there]
            with file.open("a") as log:
                log.write("2026-01-01T00:00:02Z stdout F three\n")
            shown.append(reading.stdout.readline())
        finally:
            reading.terminate()
    file.write_text(before)
    assert [*there, b"three\n"] == shown


@pytest.mark.parametrize("pod", [("p",), ("q", "-c", "c")])
def test_commands_run_where_the_document_says(kubectl, folder, pod):
    assert kubectl("exec", *pod, "--", "sh", "-c", "echo $COLOR $PWD; echo hidden >&2") == f"blue {folder}\n"
    assert kubectl("exec", "-i", *pod, "--", "cat", stdin=b"typed\n" * 20_000) == "typed\n" * 20_000
    assert "exit code 3" in kubectl("exec", *pod, "--", "sh", "-c", "exit 3", code=3)
    assert 'exec: "no-such": executable file not found' in kubectl("exec", *pod, "--", "no-such", code=127)


def test_an_exec_without_local_leaves_commands_in_the_emulated_container(kubectl):
    assert kubectl("exec", "q", "-c", "emulated", "--", "sh", "-c", "echo $COLOR$HOSTNAME") == "q\n"


def test_what_a_command_has_started_ends_with_its_client(kubectl, folder):
    mark = folder / "pid"
    words = ["exec", "p", "--", "sh", "-c", f"sleep 1000 & echo $! > {mark}.part; mv {mark}.part {mark}; wait"]
    with subprocess.Popen([*kubectl.command, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        until(mark.exists)
        running.kill()
    process = Path("/proc", mark.read_text().strip())
    assert until(lambda: not process.exists() or "\nState:\tZ" in (process / "status").read_text())


def test_ports_lead_to_answers_addresses_and_commands(kubectl):
    with subprocess.Popen(
        [*kubectl.command, "port-forward", "pod/p", ":1", ":2", ":3"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as forwarding:
        try:
            ports: dict[int, int] = {}
            while len(ports) < 3:
                line = forwarding.stdout.readline().decode()
                assert line, ports
                if found := re.search(r"127.0.0.1:(\d+) -> (\d)", line):
                    ports[int(found[2])] = int(found[1])
            answers = []
            for port, path in ((1, "/healthz"), (1, "/else"), (2, "/")):
                connection = http.client.HTTPConnection("127.0.0.1", ports[port], timeout=COMMAND_MAX_S)
                connection.request("GET", path)
                answer = connection.getresponse()
                answers.append((answer.status, answer.read(), answer.getheader("X-A")))
                connection.close()
            with socket.create_connection(("127.0.0.1", ports[3]), timeout=COMMAND_MAX_S) as client:
                client.sendall(b"there and\n")
                spoken = client.makefile("rb").readline()
        finally:
            forwarding.terminate()

    assert answers == [(203, b"fine", "b"), (404, b"404 page not found\n", None), (200, b"there", None)]
    assert spoken == b"there and back\n"


def test_top_and_the_page_of_the_node_have_what_the_documents_say(kubectl):
    page = kubectl("get", "--raw", "/api/v1/nodes/node-0/proxy/metrics/nodes/node-0/metrics/resource")
    assert page == (
        "# TYPE pod_memory_working_set_bytes gauge\n"
        'pod_memory_working_set_bytes{namespace="default",pod="p"} 1.048576e+07\n'
        'pod_memory_working_set_bytes{namespace="default",pod="q"} 2.097152e+07\n'
        "# HELP scrape_error [ALPHA] errors\\n\n# TYPE scrape_error gauge\nscrape_error 0\n"
    )

    def shown():
        ended = subprocess.run([*kubectl.command, "top", "pods"], capture_output=True, timeout=COMMAND_MAX_S)
        return ended.stdout.decode().count("\n") == 3 and ended.stdout.decode()

    assert [line.split() for line in until(shown).splitlines()[1:]] == [["p", "250m", "10Mi"], ["q", "500m", "20Mi"]]
