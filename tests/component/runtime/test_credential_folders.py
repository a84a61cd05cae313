"""Credentials of a mesh in containers: every component gets its own and no other."""

import base64
import json
import stat

import yaml

from services.client.tls import TlsFiles
from services.runtime import credentials


def make(out, *flags, port=7080):
    credentials.main(
        [
            "--out",
            str(out),
            "--host",
            "containers",
            "--node-prefix",
            "kubelet-",
            "--rest-url",
            f"https://127.0.0.1:{port}",
            *flags,
        ]
    )


def test_every_component_finds_a_token_that_the_api_server_knows_and_only_its_own(tmp_path):
    make(tmp_path)
    server = json.loads((tmp_path / "apiserver/server.json").read_text())
    users = {entry["token"]: entry["user"] for entry in server["tokens"]}

    for component, first in (("scheduler", "system:kube-scheduler"), ("controllers", "system:kube-controller-manager"),
                             ("claim-controller", "system:claim-controller"),
                        ("kubelet", "system:node-host:containers")):  # fmt: skip
        serving = {"serving.crt", "serving.key"} if component == "kubelet" else set()
        own = {path.name for path in (tmp_path / component).iterdir()}
        assert {"token.json", "ca.crt", "client.crt", "client.key", *serving} == own
        assert first == TlsFiles(*(tmp_path / component / f"client.{end}" for end in ("crt", "key"))).read().user
        tokens = json.loads((tmp_path / component / "token.json").read_text())
        assert first == next(iter(tokens))
        assert tokens == {users[token]: token for token in tokens.values()}
    (host,) = [entry for entry in server["tokens"] if entry["user"] == "system:node-host:containers"]
    assert (host["nodes"], host["node_prefix"]) == ([], "kubelet-")
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".crt"]
    assert {0o400} == {stat.S_IMODE(path.stat().st_mode) for path in files}


def test_a_second_run_keeps_every_token_and_follows_a_new_address(tmp_path):
    make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    make(tmp_path, port=7081)

    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.json")}
    kubeconfig = yaml.safe_load((tmp_path / "admin/kubeconfig").read_text())
    cluster = kubeconfig["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:7081"
    trusted = (tmp_path / "apiserver/ca.crt").read_bytes()
    assert base64.b64decode(cluster["certificate-authority-data"]) == trusted


def test_only_the_setup_sees_the_key_of_the_authority(tmp_path):
    make(tmp_path)

    assert [tmp_path / "authority/ca.key"] == list(tmp_path.rglob("ca.key"))


def test_certificates_are_renewed_on_demand_and_not_otherwise(tmp_path):
    make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.crt") if "authority" not in str(path)}
    make(tmp_path)
    kept = {path: path.read_bytes() for path in before}
    make(tmp_path, "--renew")
    renewed = {path for path, content in before.items() if path.read_bytes() != content}

    assert kept == before
    assert renewed == {path for path in before if path.name != "ca.crt"}
