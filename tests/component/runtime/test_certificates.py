"""The certificate authority of a mesh, its files, and TLS of the REST endpoint with them."""

import asyncio
import ssl
import stat
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from services.runtime import certificates
from services.runtime.config import StartError
from services.runtime.serving_tls import ServingTls, identity_of_peer


def test_an_authority_and_its_certificates_are_made_once_and_keys_are_for_their_owner(tmp_path):
    first = certificates.authority(tmp_path)
    pair = first.server("apiserver", ["mesh.example"])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    certificates.authority(tmp_path).server("apiserver", ["mesh.example"])

    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.key")} == {0o400}
    names = x509.load_pem_x509_certificate(pair.certificate.read_bytes()).extensions
    dns = names.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    assert {"localhost", "kubernetes.default.svc", "mesh.example"} <= set(dns)


@pytest.mark.parametrize(("days", "is_renewed"), [(300, False), (336, True), (400, True)])
def test_a_certificate_with_less_than_a_month_to_live_is_made_anew(tmp_path, days, is_renewed):
    signer = certificates.authority(tmp_path)
    before = signer.server("apiserver").certificate.read_bytes()

    signer.server("apiserver", now=datetime.now(UTC) + timedelta(days=days))

    assert (before != (tmp_path / "apiserver.crt").read_bytes()) is is_renewed


def test_a_certificate_for_other_names_or_by_another_authority_is_made_anew(tmp_path):
    signer = certificates.authority(tmp_path)
    first = signer.server("apiserver").certificate.read_bytes()
    second = signer.server("apiserver", ["other"]).certificate.read_bytes()
    (tmp_path / "ca.crt").unlink()
    (tmp_path / "ca.key").unlink()
    third = certificates.authority(tmp_path).server("apiserver", ["other"]).certificate.read_bytes()

    assert len({first, second, third}) == 3


def test_the_key_of_another_authority_is_said(tmp_path):
    certificates.authority(tmp_path / "a")
    certificates.authority(tmp_path / "b")
    (tmp_path / "a" / "ca.key").unlink()
    (tmp_path / "b" / "ca.key").rename(tmp_path / "a" / "ca.key")

    with pytest.raises(ValueError, match="is not the key of"):
        certificates.authority(tmp_path / "a")


async def peer_of(serving, trust):
    """Return the certificate that a client shows and the one that it is shown."""
    shown = asyncio.get_running_loop().create_future()

    async def accept(reader, writer):
        shown.set_result(writer.get_extra_info("peercert"))
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=serving.context)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    found = await shown, writer.get_extra_info("peercert")
    writer.close()
    server.close()
    return found


def test_the_certificate_of_a_client_is_its_identity_and_without_one_there_is_none(tmp_path):
    signer = certificates.authority(tmp_path)
    pair = signer.server("apiserver")
    serving = ServingTls(pair.certificate, pair.key, signer.path)
    trust = ssl.create_default_context(cafile=signer.path)
    anonymous, _ = asyncio.run(peer_of(serving, trust))
    ada = signer.client("ada", "ada", ["dev", "ops"])
    trust.load_cert_chain(ada.certificate, ada.key)

    named, _ = asyncio.run(peer_of(serving, trust))

    assert identity_of_peer(anonymous) is None
    identity = identity_of_peer(named)
    assert (identity.user, identity.groups) == ("ada", ("dev", "ops"))
    known = x509.load_pem_x509_certificate(ada.certificate.read_bytes())
    assert identity.credential.expires_s == known.not_valid_after_utc.timestamp()


def test_a_client_whose_certificate_another_authority_signed_is_refused(tmp_path):
    signer, other = certificates.authority(tmp_path / "a"), certificates.authority(tmp_path / "b")
    pair, mallory = signer.server("apiserver"), other.client("mallory", "system:mesh-admin", ["system:mesh-admins"])
    trust = ssl.create_default_context(cafile=signer.path)
    trust.load_cert_chain(mallory.certificate, mallory.key)

    async def read():
        server = await asyncio.start_server(
            lambda r, w: w.write(b"in"), "127.0.0.1", 0, ssl=ServingTls(pair.certificate, pair.key, signer.path).context
        )
        port = server.sockets[0].getsockname()[1]
        try:
            reader, _ = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
            return await reader.read(2)
        finally:
            server.close()

    try:  # with TLS 1.3 a client learns of it when it reads
        served = asyncio.run(read())
    except (ssl.SSLError, ConnectionError):
        served = b""
    assert served == b""


def test_a_new_certificate_is_served_without_a_restart_and_half_of_one_is_not(tmp_path):
    signer = certificates.authority(tmp_path)
    pair = signer.server("apiserver")
    serving, trust = ServingTls(pair.certificate, pair.key), ssl.create_default_context(cafile=signer.path)
    old_certificate, old_key = pair.certificate.read_bytes(), pair.key.read_bytes()
    _, before = asyncio.run(peer_of(serving, trust))
    signer.server("apiserver", ["another"])
    new_key = pair.key.read_bytes()
    pair.key.chmod(0o600)
    pair.key.write_bytes(old_key)

    serving.reload()
    _, half = asyncio.run(peer_of(serving, trust))
    pair.key.write_bytes(new_key)
    serving.reload()
    _, whole = asyncio.run(peer_of(serving, trust))

    assert old_certificate != pair.certificate.read_bytes()
    assert before["serialNumber"] == half["serialNumber"] != whole["serialNumber"]


@pytest.mark.parametrize("missing", ["apiserver.crt", "apiserver.key", "ca.crt"])
def test_a_file_that_is_missing_or_holds_something_else_is_named(tmp_path, missing):
    signer = certificates.authority(tmp_path)
    pair = signer.server("apiserver")
    (tmp_path / missing).unlink()

    with pytest.raises(StartError, match=missing):
        ServingTls(pair.certificate, pair.key, signer.path)
    (tmp_path / missing).write_text("nothing of the kind")
    with pytest.raises(StartError, match="TLS of the REST endpoint"):
        ServingTls(pair.certificate, pair.key, signer.path)
