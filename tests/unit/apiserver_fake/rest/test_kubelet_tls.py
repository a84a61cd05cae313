"""What the API server trusts when it calls a kubelet: the authority that it was told, and none of the machine's."""

import ssl

import pytest

from apiserver_fake.rest.streaming import KubeletTls
from services.client.tls import TlsFiles
from services.runtime.certificates import authority


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """An authority that everything on this machine trusts."""
    (tmp_path / "machine").mkdir()
    found = authority(tmp_path / "machine")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "machine" / "ca.crt"))
    assert [found.certificate.serial_number] == serials_of(ssl.create_default_context())
    return found


@pytest.fixture
def own(tmp_path):
    """The mesh's authority, and files of a client of kubelets."""
    (tmp_path / "mesh").mkdir()
    found = authority(tmp_path / "mesh")
    return found, found.client("kubelet-client", "kube-apiserver-kubelet-client", ["system:masters"])


def serials_of(context):
    return [int(each["serialNumber"], 16) for each in context.get_ca_certs()]


def test_the_named_authority_alone_vouches_for_kubelets(machine, own, tmp_path):
    signer, pair = own

    context = KubeletTls(TlsFiles(pair.certificate, pair.key, tmp_path / "mesh" / "ca.crt")).context

    assert [signer.certificate.serial_number] == serials_of(context)
    assert (ssl.CERT_REQUIRED, False) == (context.verify_mode, context.check_hostname)


def test_without_one_every_kubelet_is_called(machine, own):
    pair = own[1]

    context = KubeletTls(TlsFiles(pair.certificate, pair.key)).context

    assert ([], ssl.CERT_NONE) == (serials_of(context), context.verify_mode)
