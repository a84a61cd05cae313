"""What a TLS handshake that is given up at once shows of a server: whether it speaks TLS, and HTTP/2 within it."""

import asyncio
import socket
import ssl

import pytest

from services.client.handshake import speaks_tls
from services.runtime import certificates


def asked(context, answer):
    """Return whether a server with that context speaks TLS, and what was agreed and sent to it."""

    async def main():
        seen = []

        async def serve(reader, writer):
            agreed = writer.get_extra_info("ssl_object")
            seen.append((agreed and agreed.selected_alpn_protocol(), await reader.read(24)))
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        try:
            port = server.sockets[0].getsockname()[1]
            return await speaks_tls(f"127.0.0.1:{port}"), seen
        finally:
            server.close()

    return asyncio.run(main())


@pytest.fixture
def context(tmp_path):
    """TLS as a gRPC server speaks it."""
    signer = certificates.authority(tmp_path)
    pair = signer.server("apiserver")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(pair.certificate, pair.key)
    made.load_verify_locations(signer.path)
    made.set_alpn_protocols(["h2"])
    return made


def test_a_server_with_tls_is_asked_for_http_2_which_grpc_insists_on(context):
    """No authority is known for the question: a certificate that cannot be verified is an answer, too."""
    assert asked(context, b"\0") == (True, [("h2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")])


def test_a_server_that_ends_a_connection_without_a_certificate_speaks_tls(context):
    context.verify_mode = ssl.CERT_REQUIRED

    assert asked(context, b"")[0] is True


def test_a_server_that_answers_otherwise_or_is_not_there_speaks_none():
    assert asked(None, b"HTTP/1.1 400 Bad Request\r\n\r\n")[0] is False

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert asyncio.run(speaks_tls(f"127.0.0.1:{port}")) is False
