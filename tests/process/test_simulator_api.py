"""kube-scheduler-simulator's HTTP API of a mesh of processes: what its page asks, and who may ask."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from lab.cli.mesh_state import state_of
from services.runtime.mesh_directory import read_state

ROOT = Path(__file__).parents[2]
PREFIX = "kube-scheduler-simulator.sigs.k8s.io/"
SAMPLE = Path(__file__).parent / "simulator_import.json"
SETTINGS = """\
apiVersion: kube-scheduler-simulator-config/v1alpha1
kind: SimulatorConfiguration
port: 0
corsAllowedOriginList: [http://localhost:3000]
"""


def keplab(*words):
    return subprocess.run(
        [sys.executable, "-m", "lab.cli", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )


class Mesh:
    """A mesh with the API, and requests to it."""

    def __init__(self, data, *flags):
        self.data = data
        up = keplab("up", "--nodes", "2", "--engine", "memory", "--data", str(data), "--detach", *flags)
        assert up.returncode == 0, up.stderr
        self.state = read_state(data)
        process = next(each for each in self.state["processes"] if each["name"] == "simulator-api")
        self.pid, self.url = process["pid"], f"http://127.0.0.1:{process['ports']['http']}/api/v1"

    def ask(self, method, path, body=None, **headers):
        """Return code, headers and the JSON that is answered."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, dict(answer.headers), json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), json.loads(error.read() or b"null")

    def until(self, holds, limit_s=30.0):
        deadline = time.monotonic() + limit_s
        while not (found := holds()):
            assert time.monotonic() < deadline, "not so in time"
            time.sleep(0.05)
        return found


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulator")
    (folder / "settings.yaml").write_text(SETTINGS)
    flags = ("--simulator-config", str(folder / "settings.yaml"), "--simulator-api", "0", "--simulator-open")
    mesh = Mesh(folder / "data", *flags)
    yield mesh
    keplab("down", "--data", str(folder / "data"))


def pod(name, cpu="100m", **spec):
    requests = {"requests": {"cpu": cpu}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": requests}], **spec},
    }


GIVEN_HERE = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "finalizers")


def without_what_each_server_gives(document):
    """An object as it is compared: the reference to a claim has the uid that the claim has here."""
    metadata = {k: v for k, v in document["metadata"].items() if k not in GIVEN_HERE}
    status = {k: v for k, v in document.get("status", {}).items() if k != "lastPhaseTransitionTime"}
    found = {**document, "metadata": metadata, "status": status}
    if reference := document.get("spec", {}).get("claimRef"):
        bare = {k: v for k, v in reference.items() if k not in ("uid", "resourceVersion")}
        found["spec"] = {**document["spec"], "claimRef": bare}
    return found


def test_ks_07_the_published_sample_comes_out_as_it_went_in(mesh):
    """Its form and values are those of upstream's `simulator/docs/api-samples/v1/import.md`."""
    sample = json.loads(SAMPLE.read_text())

    assert mesh.ask("POST", "/import", sample)[0] == 200
    exported = mesh.ask("GET", "/export")[2]

    for member in ("pods", "nodes", "pvs", "storageClasses", "priorityClasses"):
        found = [
            without_what_each_server_gives(each)
            for each in exported[member]
            if each["metadata"]["name"] not in OF_THE_MESH
        ]
        assert found == [without_what_each_server_gives(each) for each in sample[member]]
    claim, volume = exported["pvcs"][0], exported["pvs"][0]
    assert volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"] != sample["pvcs"][0]["metadata"]["uid"]
    wanted = without_what_each_server_gives(sample["pvcs"][0])
    wanted["spec"] |= {k: v for k, v in claim["spec"].items() if k == "storageClassName"}
    assert without_what_each_server_gives(claim) == wanted
    plugins, own = (each["schedulerConfig"]["profiles"][0]["plugins"] for each in (sample, exported))
    gone = {"EBSLimits", "GCEPDLimits", "AzureDiskLimits"}
    assert {each["name"] for each in plugins["filter"]["enabled"]} - gone <= {
        each["name"] for each in own["filter"]["enabled"]
    }
    assert {each["name"]: each["weight"] for each in own["score"]["enabled"]}["PodTopologySpread"] == 2
    assert mesh.ask("PUT", "/reset")[0] == 202


OF_THE_MESH = ("node-0", "node-1", "standard")
SIZES = {"cpu": "8", "memory": "16Gi", "pods": "110"}


def running(name, node):
    states = [
        {
            "name": "c",
            "image": "x",
            "imageID": "x",
            "ready": True,
            "started": True,
            "restartCount": 3,
            "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}},
        }
    ]
    status = {"phase": "Running", "startTime": "2026-01-02T03:04:04Z", "containerStatuses": states}
    return {**pod(name, nodeName=node), "status": status}


def test_ks_07_and_14_nodes_classes_and_pods_that_run_come_out_as_they_went_in(mesh):
    document = {
        "nodes": [
            {"metadata": {"name": "n9", "labels": {"pool": "a"}}, "status": {"allocatable": SIZES, "capacity": SIZES}}
        ],
        "storageClasses": [
            {"metadata": {"name": "fast"}, "provisioner": "x.y", "volumeBindingMode": "WaitForFirstConsumer"}
        ],
        "priorityClasses": [{"metadata": {"name": "high"}, "value": 7}],
        "namespaces": [{"metadata": {"name": "team"}}],
        "pods": [running("there", "n9"), running("here", "node-0")],
    }

    assert mesh.ask("POST", "/import", document)[0] == 200

    def runs():
        found = {each["metadata"]["name"]: each for each in mesh.ask("GET", "/export")[2]["pods"]}
        return found if {each["status"]["phase"] for each in found.values()} == {"Running"} else None

    pods = mesh.until(runs)
    for name, node in (("there", "n9"), ("here", "node-0")):
        status = pods[name]["status"]
        assert (pods[name]["spec"]["nodeName"], status["startTime"]) == (node, "2026-01-02T03:04:04Z")
        (state,) = status["containerStatuses"]
        assert (state["restartCount"], state["state"]) == (3, {"running": {"startedAt": "2026-01-02T03:04:05Z"}})
    exported = mesh.ask("GET", "/export")[2]
    (node,) = (each for each in exported["nodes"] if each["metadata"]["name"] == "n9")
    assert (node["metadata"]["labels"]["pool"], node["status"]["allocatable"]["cpu"]) == ("a", "8")
    classes = {each["metadata"]["name"]: each for each in exported["storageClasses"]}
    assert classes["fast"]["provisioner"] == "x.y"
    assert (exported["priorityClasses"][0]["value"], exported["namespaces"][0]["metadata"]["name"]) == (7, "team")
    assert mesh.ask("PUT", "/reset")[0] == 202


def test_ks_08_an_export_leaves_out_what_every_cluster_has_and_the_kinds_of_objects(mesh):
    made = {
        "namespaces": [{"metadata": {"name": "team"}}, {"metadata": {"name": "kube-extra"}}],
        "priorityClasses": [{"metadata": {"name": "high"}, "value": 7}, {"metadata": {"name": "system-z"}, "value": 7}],
    }

    assert mesh.ask("POST", "/import", made)[0] == 200
    found = mesh.ask("GET", "/export")[2]

    assert [each["metadata"]["name"] for each in found["namespaces"]] == ["team"]
    assert [each["metadata"]["name"] for each in found["priorityClasses"]] == ["high"]
    assert not [each for member in found.values() if isinstance(member, list) for each in member if "kind" in each]
    assert mesh.ask("PUT", "/reset")[0] == 202


def test_what_cannot_be_imported_is_refused_and_the_rest_is_there(mesh):
    half = {"namespaces": [{"metadata": {"name": "BAD"}}, {"metadata": {"name": "good"}}]}

    code, _, answer = mesh.ask("POST", "/import", half)

    assert (code, "Namespace BAD" in answer["message"]) == (500, True)
    assert [each["metadata"]["name"] for each in mesh.ask("GET", "/export")[2]["namespaces"]] == ["good"]
    for body, text in ((b"{", "no JSON"), ({"pods": {}}, "pods: want an array"), ({"pods": [{}]}, "pods[0]")):
        code, _, answer = mesh.ask("POST", "/import", body)
        assert (code, text in answer["message"]) == (400, True), answer
    assert mesh.ask("PUT", "/reset")[0] == 202


def test_a_document_is_a_snapshot_with_objects_whose_fields_are_objects(mesh):
    for body, text in (
        ({"items": []}, "want one object with any of pods, nodes"),
        ({"pods": [{**pod("p"), "spec": "x"}]}, "pods[0]: Pod default/p: spec: want an object, not 'x'"),
        ({"nodes": [{"metadata": {"name": "n"}, "status": []}]}, "nodes[0]: Node n: status: want an object, not []"),
        ({"pods": [{"metadata": {"name": "p", "namespace": 5}}]}, "metadata.namespace: want a text, not 5"),
    ):
        code, _, answer = mesh.ask("POST", "/import", body)
        assert (code, text in answer["message"]) == (400, True), answer
    assert mesh.ask("POST", "/import", {})[0] == 200


def test_a_volume_whose_claim_cannot_be_is_refused_by_its_name_and_the_rest_is_there(mesh):
    volume = {"metadata": {"name": "v"}, "spec": {"claimRef": {"uid": "u", "name": "c"}}}

    code, _, answer = mesh.ask("POST", "/import", {"pvs": [volume], "namespaces": [{"metadata": {"name": "good"}}]})

    assert (code, answer["message"].startswith("pvs[0]: PersistentVolume v: ")) == (500, True), answer
    assert [each["metadata"]["name"] for each in mesh.ask("GET", "/export")[2]["namespaces"]] == ["good"]
    assert mesh.ask("PUT", "/reset")[0] == 202


def restarts(mesh):
    return next(each["restarts"] for each in read_state(mesh.data)["processes"] if each["name"] == "scheduler")


def test_ks_09_a_configuration_is_checked_then_the_scheduler_restarts_with_it(mesh):
    before = mesh.ask("GET", "/schedulerconfiguration")[2]
    restarted = restarts(mesh)
    heavy = [{"plugins": {"multiPoint": {"enabled": [{"name": "ImageLocality", "weight": 7}]}}}]

    unknown = mesh.ask(
        "POST", "/schedulerconfiguration", {"profiles": [{"plugins": {"score": {"enabled": [{"name": "Nope"}]}}}]}
    )
    assert (unknown[0], "Nope" in unknown[2]["message"]) == (400, True)
    assert mesh.ask("GET", "/schedulerconfiguration")[2] == before
    assert mesh.ask("POST", "/schedulerconfiguration", {"profiles": heavy, "parallelism": 99})[0] == 202
    after = mesh.ask("GET", "/schedulerconfiguration")[2]

    weights = {each["name"]: each["weight"] for each in after["profiles"][0]["plugins"]["score"]["enabled"]}
    assert (weights["ImageLocality"], after["parallelism"]) == (7, before["parallelism"])
    assert restarts(mesh) == restarted + 1
    assert mesh.ask("POST", "/schedulerconfiguration", after)[0] == 202, "what it says can be given back"
    assert mesh.ask("GET", "/schedulerconfiguration")[2] == after
    assert mesh.ask("POST", "/schedulerconfiguration", b"[1]")[0] == 400
    for wrong, text in (
        ({"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "v1beta3"),
        ({"profile": heavy}, "profile: unknown field"),
        ({"profiles": {}}, "profiles: "),
    ):
        code, _, answer = mesh.ask("POST", "/schedulerconfiguration", wrong)
        assert (code, text in answer["message"]) == (400, True), answer
    assert mesh.ask("GET", "/schedulerconfiguration")[2] == after
    assert mesh.ask("PUT", "/reset")[0] == 202
    assert mesh.ask("GET", "/schedulerconfiguration")[2] == before


class Lines:
    """What listwatchresources sends, line by line."""

    def __init__(self, mesh, query=""):
        self.answer = urllib.request.urlopen(f"{mesh.url}/listwatchresources{query}", timeout=30)

    def until(self, *wanted):
        """Return the lines up to the one about that kind, event and name."""
        found = []
        while not found or tuple(found[-1][:3]) != wanted:
            line = json.loads(self.answer.readline())
            metadata = line["Obj"].get("metadata", {})
            found.append((line["Kind"], line["EventType"], metadata.get("name"), line["Obj"]))
        return found

    def close(self):
        self.answer.close()


def test_ks_10_and_11_watchers_see_what_is_there_what_changes_and_what_a_reset_takes_away(mesh):
    lines = Lines(mesh)
    names = [f"p{i}" for i in range(100)]
    assert mesh.ask("POST", "/import", {"pods": [pod(name, "10m") for name in names]})[0] == 200

    first = lines.until("pods", "ADDED", "p99")
    rv = max(int(each[3]["metadata"]["resourceVersion"]) for each in first)
    assert ("nodes", "ADDED", "node-0") in [each[:3] for each in first]
    assert not any({"kind", "apiVersion"} & set(each[3]) for each in first)
    later = [Lines(mesh, f"?{name}={rv}") for name in ("podsLastResourceVersion", "podslastResourceVersion")]
    started = time.monotonic()
    assert mesh.ask("PUT", "/reset")[0] == 202
    assert time.monotonic() - started < 60

    deleted = set()
    while len(deleted) < 100:
        line = json.loads(lines.answer.readline())
        if (line["Kind"], line["EventType"]) == ("pods", "DELETED"):
            deleted.add(line["Obj"]["metadata"]["name"])
            assert int(line["Obj"]["metadata"]["resourceVersion"]) > rv
    assert deleted == set(names)
    for each in later:
        seen = [line for line in each.until("pods", "DELETED", "p7") if line[0] == "pods"]
        assert all(int(line[3]["metadata"]["resourceVersion"]) > rv for line in seen), "only what came later"
        each.close()
    lines.close()
    assert mesh.ask("GET", "/export")[2]["pods"] == []
    # A reader that has gone is noticed at the next line.
    assert mesh.ask("POST", "/import", {"namespaces": [{"metadata": {"name": "next"}}]})[0] == 200
    assert mesh.ask("PUT", "/reset")[0] == 202
    said = [json.loads(each) for each in (mesh.data / "logs" / "simulator-api.log").read_text().splitlines()]
    assert [each for each in said if each["level"] == "error"] == []


def test_a_version_that_is_none_is_refused(mesh):
    code, _, answer = mesh.ask("GET", "/listwatchresources?podsLastResourceVersion=x")

    assert (code, answer["message"]) == (400, "podsLastResourceVersion: want a version, not 'x'")


def test_what_a_path_is_not_for_is_405_with_what_it_is_for(mesh):
    code, headers, _ = mesh.ask("DELETE", "/schedulerconfiguration")

    assert (code, set(headers["Allow"].split(","))) == (405, {"GET", "HEAD", "POST"})


def test_nodes_and_pods_that_nothing_hosts_are_kept_ready_and_running_and_carry_the_record(mesh):
    sizes = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    node = {"metadata": {"name": "imported"}, "status": {"allocatable": sizes, "capacity": sizes}}
    assert mesh.ask("POST", "/import", {"nodes": [node], "pods": [pod("big", "32")]})[0] == 200

    def runs():
        found = mesh.ask("GET", "/export")[2]["pods"]
        return found[0] if found and found[0]["status"]["phase"] == "Running" else None

    found = mesh.until(runs)

    assert found["spec"]["nodeName"] == "imported"
    assert (
        json.loads(found["metadata"]["annotations"][PREFIX + "filter-result"])["node-0"]["NodeResourcesFit"]
        == "Insufficient cpu"
    )
    assert mesh.ask("PUT", "/reset")[0] == 202
    assert mesh.ask("GET", "/export")[2]["pods"] == []


class Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"nodenames": body["NodeNames"][:1], "failedNodes": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


def test_a_foreign_schedulers_questions_reach_the_extender_and_the_answer_stands_on_the_pod(mesh):
    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/x"
    extender = {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True, "ignorable": True}
    try:
        assert mesh.ask("POST", "/schedulerconfiguration", {"extenders": [extender]})[0] == 202
        assert mesh.ask("POST", "/import", {"pods": [pod("asked", schedulerName="foreign")]})[0] == 200
        question = {"Pod": pod("asked"), "Nodes": None, "NodeNames": ["node-0", "node-1"]}

        code, _, answer = mesh.ask("POST", "/extender/filter/0", question)

        assert (code, answer["NodeNames"], answer["Error"]) == (200, ["node-0"], "")
        annotations = mesh.ask("GET", "/export")[2]["pods"][0]["metadata"]["annotations"]
        assert json.loads(annotations[PREFIX + "extender-filter-result"])[url]["NodeNames"] == ["node-0"]
        assert mesh.ask("POST", "/extender/filter/7", question)[0] == 404
        assert mesh.ask("POST", "/extender/bind/0", question)[0] == 404, "it has no such verb"
        assert mesh.ask("POST", "/extender/filter/0", {})[0] == 400
    finally:
        server.shutdown()
        server.server_close()
    assert mesh.ask("PUT", "/reset")[0] == 202


def test_pages_of_the_listed_origins_may_call_and_no_others(mesh):
    mine, other = {"Origin": "http://localhost:3000"}, {"Origin": "http://evil.example"}

    code, headers, _ = mesh.ask("GET", "/schedulerconfiguration", **mine)
    preflight = mesh.ask("OPTIONS", "/import", Access_Control_Request_Method="POST", **mine)

    assert (code, headers["Access-Control-Allow-Origin"]) == (200, mine["Origin"])
    assert (preflight[0], "PUT" in preflight[1]["Access-Control-Allow-Methods"]) == (204, True)
    assert "Access-Control-Allow-Origin" not in mesh.ask("GET", "/export", **other)[1]
    assert mesh.ask("PUT", "/reset", **other)[0] == 403
    assert mesh.ask("GET", "/export", Host="evil.example")[0] == 403
    assert mesh.ask("POST", "/import", b"{}", Content_Type="text/plain")[0] == 415


def test_a_mesh_whose_store_is_in_memory_is_saved_and_restored(mesh, tmp_path):
    """Simulator 4.3: exact, at one version."""
    assert mesh.ask("POST", "/import", {"namespaces": [{"metadata": {"name": "kept"}}]})[0] == 200
    (before,) = mesh.ask("GET", "/export")[2]["namespaces"]
    file = tmp_path / "one.keplab"

    saved = keplab("snapshot", "save", str(file), "--data", str(mesh.data), "-o", "json")
    assert saved.returncode == 0, saved.stderr
    restored = keplab("snapshot", "restore", str(file), "--data", str(tmp_path / "m"))

    assert "its store was memory's; it goes on in SQLite's" in restored.stdout
    state = state_of(tmp_path / "m", 0)
    assert (state.rv, len(state.objects)) == tuple(
        json.loads(saved.stdout)[key] for key in ("resourceVersion", "objects")
    )
    (found,) = (each for each in state.of("namespaces") if each["metadata"]["name"] == "kept")
    assert found["metadata"] == before["metadata"]
    assert mesh.ask("PUT", "/reset")[0] == 202


def test_killing_the_api_loses_nothing(mesh):
    assert mesh.ask("POST", "/import", {"namespaces": [{"metadata": {"name": "kept"}}]})[0] == 200
    os.kill(mesh.pid, signal.SIGKILL)

    def is_back():
        process = next(each for each in read_state(mesh.data)["processes"] if each["name"] == "simulator-api")
        if not process["ready"] or process["pid"] == mesh.pid:
            return None
        return process

    process = mesh.until(is_back)
    mesh.pid, mesh.url = process["pid"], f"http://127.0.0.1:{process['ports']['http']}/api/v1"

    assert [each["metadata"]["name"] for each in mesh.ask("GET", "/export")[2]["namespaces"]] == ["kept"]
    assert mesh.ask("PUT", "/reset")[0] == 202, "it still knows the beginning"
    assert mesh.ask("GET", "/export")[2]["namespaces"] == []


def test_an_etcd_that_the_mesh_does_not_have_is_refused_by_field_and_value(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(SETTINGS + "etcdURL: http://127.0.0.1:2379\n")

    refused = keplab("up", "--data", str(tmp_path / "data"), "--simulator-config", str(file))

    assert refused.returncode == 2
    assert refused.stderr.endswith("etcdURL 'http://127.0.0.1:2379' needs --engine etcd, and the engine is sqlite\n")


def test_a_cluster_is_imported_once_at_the_start(mesh, tmp_path):
    """`externalImportEnabled`: the cluster is the other mesh."""
    made = {
        "nodes": [
            {"metadata": {"name": "n9", "labels": {"team": "a"}}, "status": {"allocatable": SIZES, "capacity": SIZES}}
        ],
        "priorityClasses": [
            {"metadata": {"name": "high", "labels": {"team": "a"}}, "value": 7},
            {"metadata": {"name": "low", "labels": {"team": "b"}}, "value": 5},
        ],
        "pods": [running("there", "n9"), running("left-out", "n9")],
    }
    made["pods"][0]["metadata"]["labels"] = {"team": "a"}
    assert mesh.ask("POST", "/import", made)[0] == 200
    lines = ("externalImportEnabled: true", f"kubeConfig: {mesh.data / 'kubeconfig'}")
    selected = "resourceImportLabelSelector: {matchLabels: {team: a}}"
    (tmp_path / "settings.yaml").write_text("\n".join((SETTINGS, *lines, selected, "")))
    other = Mesh(tmp_path / "data", "--simulator-config", str(tmp_path / "settings.yaml"), "--simulator-open")
    try:

        def imported():
            found = other.ask("GET", "/export")[2]
            return found if [each["status"]["phase"] for each in found["pods"]] == ["Running"] else None

        found = other.until(imported)
        assert [each["metadata"]["name"] for each in found["priorityClasses"]] == ["high"]
        assert [each["metadata"]["name"] for each in found["pods"]] == ["there"]
        assert found["pods"][0]["status"]["containerStatuses"][0]["restartCount"] == 3
        assert "n9" in [each["metadata"]["name"] for each in found["nodes"]]
        mesh.ask(
            "POST",
            "/import",
            {"priorityClasses": [{"metadata": {"name": "late", "labels": {"team": "a"}}, "value": 1}]},
        )
        assert [each["metadata"]["name"] for each in other.ask("GET", "/export")[2]["priorityClasses"]] == ["high"]
    finally:
        keplab("down", "--data", str(tmp_path / "data"))
    assert mesh.ask("PUT", "/reset")[0] == 202


def record_line(event, second, **resource):
    return json.dumps({"time": f"2026-01-02T03:04:{second:02}.000000001Z", "event": event, "resource": resource})


def test_without_the_flag_callers_need_the_token_and_an_external_scheduler_has_no_configuration(tmp_path):
    """And `replayEnabled`: a record is replayed at the start."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    bare = {"apiVersion": "v1", "kind": "Pod", **pod("p", schedulerName="foreign")}
    gone = {"apiVersion": "v1", "kind": "Pod", **pod("gone", schedulerName="foreign")}
    record = (
        record_line("Add", 1, **space),
        record_line("Add", 2, **bare),
        record_line("Add", 3, **gone),
        record_line("Delete", 50, apiVersion="v1", kind="Pod", metadata=gone["metadata"]),
    )
    (tmp_path / "record.jsonl").write_text("\n".join((*record, "")))
    replayed = f"replayEnabled: true\nrecordFilePath: {tmp_path / 'record.jsonl'}\n"
    (tmp_path / "settings.yaml").write_text(SETTINGS + "externalSchedulerEnabled: true\n" + replayed)
    data = tmp_path / "data"
    mesh = Mesh(data, "--simulator-config", str(tmp_path / "settings.yaml"), "--simulator-api", "0")
    try:
        token = next(iter(json.loads((data / "credentials" / "admin.json").read_text()).values()))

        assert mesh.ask("GET", "/export")[0] == 401
        assert mesh.ask("GET", "/export", Authorization="Bearer x")[0] == 401
        assert mesh.ask("GET", "/export", Authorization=token)[0] == 401
        assert mesh.ask("GET", "/export", Authorization=f"bearer {token}")[0] == 200
        known = {"Authorization": f"Bearer {token}"}
        assert mesh.ask("GET", "/export", **known)[2]["schedulerConfig"] is None
        assert mesh.ask("GET", "/schedulerconfiguration", **known)[::2] == (
            400,
            "When using an external scheduler, you cannot see and edit the scheduler configuration.",
        )
        assert "scheduler" not in [each["name"] for each in mesh.state["processes"]]

        def is_replayed():
            found = mesh.ask("GET", "/export", **known)[2]
            names = [each["metadata"]["name"] for each in found["pods"]]
            return names == ["p"] and [each["metadata"]["name"] for each in found["namespaces"]] == ["team"]

        mesh.until(is_replayed)
    finally:
        keplab("down", "--data", str(data))
