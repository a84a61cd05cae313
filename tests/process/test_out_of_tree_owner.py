"""The train job of `examples/train-job` as a process beside the mesh, with its own role and token (kep-5194 6, 15.15)."""

import base64
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

WAIT_MAX_S = 90.0
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "train-job"
KEPLAB = [sys.executable, "-m", "lab.cli"]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
SETS = ["--set", "reserved_for.mode=kep5194", "--set", "GenericWorkload=true"]
NODE = {"name": "n1", "cpu": "8", "memory": "16Gi", "pods": 110, "drivers": "fabric.example.com:0"}
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TRAIN = yaml.safe_load((EXAMPLE / "train.yaml").read_text())
TRAIN["metadata"]["annotations"] |= {"train.example.com/device-class": "fabric", "keplab.dev/run": "exit 0 after 3s"}


def keplab(*arguments):
    return subprocess.run([*KEPLAB, *arguments], capture_output=True, text=True, env=ENVIRON, timeout=120)


class Mesh:
    """A mesh that knows one more role, seen through its REST server."""

    def __init__(self, data, role):
        self.data = data
        nodes = data.with_suffix(".nodes")
        nodes.write_text(json.dumps([NODE]))
        began = keplab(
            "up", "--data", str(data), "--engine", "memory", "--nodes-file", str(nodes), "--role", str(role), *SETS,
            "--detach", "-o", "json",
        )  # fmt: skip
        assert began.returncode == 0, began.stderr
        self.status = json.loads(began.stdout)
        self.config = yaml.safe_load(Path(self.status["kubeconfig"]).read_text())
        trusted = base64.b64decode(self.config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        self.context = ssl.create_default_context(cadata=trusted)

    def ask(self, path, body=None):
        token = self.config["users"][0]["user"]["token"]
        request = urllib.request.Request(
            self.status["rest_url"] + path,
            data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10, context=self.context) as answer:
            return json.load(answer)

    def start_owner(self):
        (token_file,) = self.status["token_files"].values()
        return subprocess.Popen(
            [sys.executable, str(EXAMPLE / "keplab_train_job.py"), "--server", self.status["grpc_target"],
             "--token-file", token_file, *SETS],
            env=ENVIRON, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def claim_status(self):
        found = self.ask(CLAIMS)["items"]
        return found[0].get("status") or {} if found else None

    def messages(self, reason):
        events = self.ask("/api/v1/namespaces/default/events")["items"]
        return [each["message"] for each in events if each["reason"] == reason]

    def phases(self):
        return sorted(pod["status"]["phase"] for pod in self.ask("/api/v1/namespaces/default/pods")["items"])


@pytest.fixture
def begin(tmp_path):
    """Starts a mesh and the owner's process; both are stopped at the end."""
    owners = []

    def start(role):
        mesh = Mesh(tmp_path / "mesh", role)
        owners.append(mesh.start_owner())
        for document in yaml.safe_load_all((ROOT / "experiments/kep-5194/fabric.yaml").read_text()):
            plural = {"DeviceClass": "deviceclasses", "ResourceSlice": "resourceslices"}[document["kind"]]
            mesh.ask(f"/apis/resource.k8s.io/v1/{plural}", document)
        mesh.ask("/apis/scheduling.k8s.io/v1beta1/namespaces/default/workloads", TRAIN)
        return mesh

    yield start
    for owner in owners:
        owner.terminate()
        owner.wait(30)
    keplab("down", "--data", str(tmp_path / "mesh"))


def wait_for(condition, what):
    deadline = time.monotonic() + WAIT_MAX_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.1)
    return found


def test_kep_5194_15_an_out_of_tree_owner_with_a_role_of_its_own_releases_its_claim(begin):
    mesh = begin(EXAMPLE / "role.yaml")

    wait_for(lambda: (mesh.claim_status() or {}).get("reservedFor"), "the reservation for the train job")
    assert [each["resource"] for each in mesh.claim_status()["reservedFor"]] == ["workloads"]
    assert wait_for(lambda: mesh.messages("ClaimReleased"), "the release") == ["released claim default/train"]
    wait_for(lambda: "allocation" not in mesh.claim_status(), "the deallocation")
    assert mesh.phases() == ["Succeeded"] * 2


def test_kep_5194_15_an_out_of_tree_owner_without_status_permission_is_refused_and_the_claim_stays(begin, tmp_path):
    role = yaml.safe_load((EXAMPLE / "role.yaml").read_text())
    role["rules"] = [rule for rule in role["rules"] if rule["name"] != "release-claims"]
    (tmp_path / "role.yaml").write_text(yaml.safe_dump(role))
    mesh = begin(tmp_path / "role.yaml")

    blocked = wait_for(lambda: mesh.messages("ClaimReleaseBlocked"), "the event")

    assert blocked[0].startswith("claim default/train cannot be released: ")
    assert 'is forbidden: User "system:serviceaccount:default:train-job" cannot patch' in blocked[0]
    assert mesh.phases() == ["Succeeded"] * 2
    assert [each["name"] for each in mesh.claim_status()["reservedFor"]] == ["train"]
    assert "allocation" in mesh.claim_status()


@pytest.mark.parametrize(("user", "problem"), [
    ("system:kube-scheduler", "user 'system:kube-scheduler' is no service account"),
    ("system:serviceaccount:kube-system:resource-claim-controller", "has a role already"),
])  # fmt: skip
def test_a_role_of_a_user_that_keplab_has_itself_is_refused_in_one_line(user, problem, tmp_path):
    role = tmp_path / "role.yaml"
    role.write_text(yaml.safe_dump({"user": user, "rules": []}))

    refused = keplab("up", "--data", str(tmp_path / "mesh"), "--engine", "memory", "--nodes", "0", "--role", str(role))

    assert refused.returncode in (2, 3)
    assert problem in refused.stderr
    assert "Traceback" not in refused.stderr
