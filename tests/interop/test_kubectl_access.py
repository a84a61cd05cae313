"""Who may do what, as kubectl finds it on `keplab up`: RBAC, `--as`, tokens, and upstream's own identities."""

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import parts
import pytest

START_MAX_S, COMMAND_MAX_S = 90, 30
NUMBERS = itertools.count()


class Up:
    """A mesh of one node by `keplab up`, and kubectl with one of its kubeconfigs."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._keplab("up", "--nodes", "1", "--engine", "memory", "--detach")

    def _keplab(self, *words):
        command = [sys.executable, "-m", "lab.cli", *words, "--data", str(self.data)]
        subprocess.run(command, check=True, capture_output=True, timeout=START_MAX_S)

    def stop(self):
        self._keplab("down")


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    found = Up(tmp_path_factory.mktemp("up") / "data")
    yield found
    found.stop()


@pytest.fixture(params=list(parts.KUBECTLS))
def kubectl(request, up, tmp_path):
    try:
        binary = str(parts.kubectl(request.param))
    except parts.NotToBeHadError as error:
        pytest.skip(str(error))

    def run(*words, config="kubeconfig", code=0, stdin=""):
        command = [binary, f"--kubeconfig={up.data / config}", f"--cache-dir={tmp_path}", *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=COMMAND_MAX_S)
        text = done.stdout + done.stderr
        assert done.returncode == code, f"{' '.join(words)}: {text}"
        return text

    run.namespace = f"n{next(NUMBERS)}"
    run("create", "namespace", run.namespace)
    return run


def until(check):
    deadline = time.monotonic() + 20
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def test_a_role_its_binding_and_a_token_of_the_account(kubectl):
    space = ("-n", kubectl.namespace)
    kubectl("create", "serviceaccount", "robot", *space)
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods", *space)
    kubectl("create", "rolebinding", "b", "--role=reader", f"--serviceaccount={kubectl.namespace}:robot", *space)
    robot = f"--as=system:serviceaccount:{kubectl.namespace}:robot"

    assert kubectl("auth", "can-i", "list", "pods", robot, *space).strip() == "yes"
    assert kubectl("auth", "can-i", "list", "secrets", robot, *space, code=1).strip() == "no"
    assert "Forbidden" in kubectl("get", "secrets", robot, *space, code=1)
    assert f"{kubectl.namespace}/robot" in kubectl("get", "rolebindings", "-o", "wide", *space)
    token = kubectl("create", "token", "robot", "--duration=10m", "--audience=vault", *space).strip()
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": ["vault"]},
    }
    status = json.loads(kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(review)))["status"]
    assert (status["authenticated"], status["audiences"]) == (True, ["vault"])


def test_the_administrator_may_do_everything_and_finds_out_who_it_is(kubectl):
    assert kubectl("auth", "can-i", "*", "*").strip() == "yes"
    listed = kubectl("auth", "can-i", "--list")
    assert any(line.split() == ["*.*", "[]", "[]", "[*]"] for line in listed.splitlines())
    assert "system:masters" in kubectl("auth", "whoami")
    who = kubectl("auth", "whoami", "--as=bob", "--as-group=team", "--as-uid=7")
    assert all(text in who for text in ("bob", "[team system:authenticated]", "7"))


def test_reconcile_recreates_a_binding_whose_role_changed(kubectl):
    space = ("-n", kubectl.namespace)
    kubectl("create", "rolebinding", "b", "--clusterrole=admin", "--user=ann", *space)
    wanted = json.loads(
        kubectl(
            "create", "rolebinding", "b", "--clusterrole=view", "--user=ann", "--dry-run=client", "-o", "json", *space
        )
    )
    text = kubectl("auth", "reconcile", "-f", "-", *space, stdin=json.dumps(wanted))
    assert "reconciliation required recreate" in text
    assert "ClusterRole/view" in kubectl("get", "rolebinding", "b", *space)


def test_an_aggregated_role_has_the_rules_of_those_it_selects(kubectl):
    name = f"agg-{kubectl.namespace}"
    kubectl("create", "clusterrole", name, f"--aggregation-rule=team={name}")
    kubectl("create", "clusterrole", f"{name}-part", "--verb=get", "--resource=nodes")
    kubectl("label", "clusterrole", f"{name}-part", f"team={name}")

    assert until(lambda: "nodes" in kubectl("get", "clusterrole", name, "-o", "jsonpath={.rules}"))


def test_a_new_namespace_has_what_pods_need_and_a_pod_runs_with_its_token(kubectl):
    space = ("-n", kubectl.namespace)
    kubectl("run", "p", "--image=nginx", *space)
    kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=20s", *space)

    assert "kube-api-access-" in kubectl("get", "pod", "p", "-o", "yaml", *space)
    assert "default" in kubectl("get", "serviceaccounts", *space)
    assert "kube-root-ca.crt" in kubectl("get", "configmaps", *space)
    kubectl("delete", "namespace", kubectl.namespace, "--timeout=20s")


@pytest.mark.parametrize(("who", "secrets"), [("kube-scheduler", "no"), ("kube-controller-manager", "yes")])
def test_upstreams_components_find_kubeconfigs_of_their_own(kubectl, who, secrets):
    config = f"kubeconfigs/{who}"

    assert f"system:{who}" in kubectl("auth", "whoami", config=config)
    answer = kubectl("auth", "can-i", "list", "secrets", "-A", config=config, code=0 if secrets == "yes" else 1)
    assert answer.strip().endswith(secrets)
    binds = kubectl(
        "auth", "can-i", "create", "pods", "--subresource=binding", config=config, code=0 if secrets == "no" else 1
    )
    assert binds.strip() == ("yes" if secrets == "no" else "no")
