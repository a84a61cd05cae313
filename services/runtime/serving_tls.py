"""The server's side of TLS: certificates that are reloaded when their files change, and identities of clients.

A client's certificate is an identity if the given authority signed it: the common name is the user, each
organization a group. Source: upstream `staging/src/k8s.io/apiserver/pkg/authentication/request/x509/x509.go`.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import structlog
from cryptography import x509
from cryptography.x509.oid import NameOID

from services.api.errors import Unauthorized
from services.api.identity import Credential, Identity
from services.client.channel import RELOAD_S
from services.client.tls import Material, Newer, TlsError, TlsFiles
from services.runtime.config import EXIT_CONFIG, StartError

NAME_BYTES_MAX = 253
PEERS_MAX = 4096

log = structlog.get_logger()


class ServingTls:
    """The TLS settings of one listener.

    `context` is the asyncio context; `grpc_credentials` are for gRPC, where a client's certificate is required.
    `on_reload` is called after newer files were read.
    """

    def __init__(
        self, certificate: Path, key: Path, client_authority: Path | None = None, *, endpoint: str = "the REST endpoint"
    ) -> None:
        """Load the files. Raises: StartError naming the file that is unreadable or is no certificate or key."""
        self._files, self._endpoint = TlsFiles(certificate, key, client_authority), endpoint
        self._newer = Newer(self._files)
        self.on_reload: Callable[[], None] = lambda: None
        try:
            self.material = self._files.read()
            self._context = self._ssl_context(self.material)
        except (TlsError, ssl.SSLError) as error:
            raise StartError(f"TLS of {endpoint}: {error}", EXIT_CONFIG) from None
        # A listener keeps its context; each handshake is carried on with the newest one.
        self.context = self._ssl_context(self.material)
        self.context.sni_callback = self._choose

    def _ssl_context(self, material: Material) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # A resumed session would be one whose certificate an authority signed that may not be trusted any more.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.load_cert_chain(self._files.certificate, self._files.key)
        if material.authorities:
            context.load_verify_locations(cadata=material.authorities.decode())
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        connection.context = self._context

    def reload(self) -> None:
        """Reload the files if they changed; new connections use their contents.

        While certificate and key do not match, the earlier pair keeps serving.
        """
        try:
            material = self._newer.read()
            if material is None:
                return
            self._context = self._ssl_context(material)
        except (TlsError, ssl.SSLError) as error:
            log.error("server.certificate_not_reloaded", endpoint=self._endpoint, error=str(error))
            return
        self.material = material
        until = f"{material.leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
        log.info(
            "server.certificate_reloaded",
            endpoint=self._endpoint,
            certificate=str(self._files.certificate),
            valid_until=until,
        )
        self.on_reload()

    async def follow(self) -> None:
        """Reload repeatedly, until cancelled."""
        while True:
            await asyncio.sleep(RELOAD_S)
            self.reload()

    def loaded_files(self) -> dict[str, str]:
        """Return the files that new connections use, for /configz."""
        return self.material.describe(self._files)

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of a gRPC listener, whose clients must have a certificate of the authority. Each
        handshake uses the last loaded files.
        """
        served: Material = self.material

        def newest() -> grpc.ServerCertificateConfiguration | None:
            nonlocal served
            if served is self.material:
                return None
            served = self.material
            return _configuration(served)

        # Annotated nowhere in grpcio; the configuration is the first, the function is called at each handshake.
        make: Any = grpc.dynamic_ssl_server_credentials
        credentials: grpc.ServerCredentials = make(_configuration(served), newest, require_client_authentication=True)
        return credentials


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    make: Any = grpc.ssl_server_certificate_configuration
    made: grpc.ServerCertificateConfiguration = make([(material.key, material.chain)], material.authorities)
    return made


def identity_of_peer(peer: dict[str, Any] | None) -> Identity | None:
    """Return the identity in a client's certificate, as `ssl` describes it, with its expiry; None without a
    certificate or a name in it.
    """
    if not peer:
        return None
    named = [pair for part in peer.get("subject", ()) for pair in part]
    user = next((value for kind, value in named if kind == "commonName"), "")
    groups = tuple(value for kind, value in named if kind == "organizationName")
    expires_s = ssl.cert_time_to_seconds(peer["notAfter"])
    return Identity(user, groups, credential=Credential(expires_s=expires_s)) if user else None


@dataclass(frozen=True)
class Peer:
    """A client of the gRPC endpoint by its certificate; `expires_s`: its expiry, seconds since the epoch."""

    identity: Identity
    expires_s: float

    def check(self, wall_s: float) -> None:
        """Check that the certificate is still valid. Raises: Unauthorized."""
        if wall_s > self.expires_s:
            at = datetime.fromtimestamp(self.expires_s, UTC)
            raise Unauthorized(f"the client certificate of {self.identity.user} expired at {at:%Y-%m-%dT%H:%M:%SZ}")


class Peers:
    """Clients of the gRPC endpoint, by the certificates of its connections."""

    def __init__(self) -> None:
        self._known: dict[bytes, Peer] = {}

    def of(self, pem: bytes) -> Peer:
        """Return the client of a certificate, PEM, that the handshake has verified. Raises: Unauthorized for one that
        names no user, several, or one that cannot be a user's name (X-ID2).
        """
        if (known := self._known.get(pem)) is not None:
            return known
        leaf = x509.load_pem_x509_certificate(pem)
        users = [str(each.value) for each in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        groups = tuple(str(each.value) for each in leaf.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
        if len(users) != 1:
            raise Unauthorized(f"the client certificate has {len(users)} common names, want one")
        if len(users[0].encode()) > NAME_BYTES_MAX or any(not name.isprintable() for name in (*users, *groups)):
            raise Unauthorized("the names in the client certificate are too long or not printable")
        if len(self._known) >= PEERS_MAX:
            self._known.clear()
        peer = self._known[pem] = Peer(Identity(users[0], groups), leaf.not_valid_after_utc.timestamp())
        return peer
