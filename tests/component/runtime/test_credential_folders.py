"""Credentials of a mesh in containers: every component gets its own and no other."""

import base64
import json
import stat

import pytest
import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature

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


MEMBERS = ("etcd-0", "etcd-1")


def make_with_etcd(out, *flags):
    make(out, *(word for member in MEMBERS for word in ("--etcd-member", member)), *flags)


def is_signed(certificate, signer):
    try:
        certificate.verify_directly_issued_by(signer)
    except InvalidSignature:
        return False
    return True


def certificate_of(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_members_of_etcd_and_api_servers_have_certificates_of_an_authority_for_them_alone(tmp_path):
    make_with_etcd(tmp_path)
    signer = certificate_of(tmp_path / "apiserver/etcd-ca.crt")

    for member in MEMBERS:
        assert {"ca.crt", "member.crt", "member.key"} == {path.name for path in (tmp_path / member).iterdir()}
        assert signer == certificate_of(tmp_path / member / "ca.crt")
        own = certificate_of(tmp_path / member / "member.crt")
        own.verify_directly_issued_by(signer)
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        # A member looks up every name that another's certificate has.
        assert ["localhost", member] == names.get_values_for_type(x509.DNSName)
    certificate_of(tmp_path / "apiserver/apiserver-etcd-client.crt").verify_directly_issued_by(signer)
    others = [path for path in tmp_path.rglob("*.crt") if path.parent.name not in (*MEMBERS, "etcd")]
    by_it = [path.name for path in others if is_signed(certificate_of(path), signer)]
    assert ["apiserver-etcd-client.crt", "etcd-ca.crt"] == sorted(by_it)
    assert signer.public_key() != certificate_of(tmp_path / "authority/ca.crt").public_key()
    assert {tmp_path / "authority/ca.key", tmp_path / "authority/etcd/ca.key"} == set(tmp_path.rglob("ca.key"))


def test_certificates_of_etcd_are_kept_and_renewed_like_the_others(tmp_path):
    make_with_etcd(tmp_path)
    files = [tmp_path / "etcd-0/member.crt", tmp_path / "apiserver/apiserver-etcd-client.crt"]
    before = [path.read_bytes() for path in files]
    make_with_etcd(tmp_path)
    assert before == [path.read_bytes() for path in files]

    make_with_etcd(tmp_path, "--renew")

    assert all(old != path.read_bytes() for old, path in zip(before, files, strict=True))
    signer = certificate_of(tmp_path / "etcd-1/ca.crt")
    for path in files:
        certificate_of(path).verify_directly_issued_by(signer)


def test_the_kubeconfig_has_a_context_for_each_api_server_that_has_a_port(tmp_path):
    make(tmp_path, "--rest-url", "https://127.0.0.1:")
    assert ["keplab"] == contexts(tmp_path)

    make(tmp_path, "--rest-url", "https://127.0.0.1:7081")

    assert ["keplab", "keplab-2"] == contexts(tmp_path)
    with pytest.raises(SystemExit) as ended:
        make(tmp_path, port="")
    assert 2 == ended.value.code


def contexts(out):
    return [each["name"] for each in yaml.safe_load((out / "admin/kubeconfig").read_text())["contexts"]]
