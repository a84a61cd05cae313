"""A TLS handshake with a gRPC server that is aborted at once; it shows why a connection fails."""

import asyncio
import ssl

PROBE_MAX_S = 3.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
"""First bytes of an HTTP/2 client (RFC 9113 3.4), with empty settings."""


async def shake_hands(target: str, context: ssl.SSLContext) -> None:
    """Connect as an HTTP/2 client and wait for the server's first bytes. Raises: OSError, EOFError, TimeoutError."""
    host, _, port = target.rpartition(":")
    host = host.strip("[]")
    async with asyncio.timeout(PROBE_MAX_S):
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)
        try:
            writer.write(_PREFACE)
            await writer.drain()
            await reader.readexactly(1)
        finally:
            writer.close()


async def speaks_tls(target: str) -> bool:
    """Return whether that server answers a TLS handshake; a client without certificates cannot complete it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        await shake_hands(target, context)
    except ssl.SSLError as error:
        return error.reason != "WRONG_VERSION_NUMBER"
    except ConnectionRefusedError:
        return False
    except (ConnectionError, asyncio.IncompleteReadError):
        return True  # it ends a connection without a certificate
    except (OSError, TimeoutError):
        return False
    return True
