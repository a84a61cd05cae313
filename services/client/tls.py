"""Certificate files that are reloaded when they change, and the client's side of mutual TLS.

An unusable file is an error that names the file and the reason. If files change while they are in use, unusable
ones are reported and the earlier contents stay.
Source: guarantees 8.1 (X-TLS1 to X-TLS4).
"""

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import grpc
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from services.client.handshake import shake_hands

log = structlog.get_logger()


class TlsError(Exception):
    """Error: certificate files cannot be used; one line that names the file and the reason."""


@dataclass(frozen=True)
class Material:
    """Contents of the files of a certificate, its key and the trusted authorities, as PEM."""

    chain: bytes
    key: bytes
    authorities: bytes
    leaf: x509.Certificate

    @property
    def user(self) -> str:
        """The common name of the certificate."""
        return common_name(self.leaf)

    def describe(self, files: "TlsFiles") -> dict[str, str]:
        """Return the file paths, and digests of the contents read from them."""
        description = {"certificate": str(files.certificate), "sha256": hashlib.sha256(self.chain).hexdigest()}
        if files.authorities is not None:
            description |= {
                "authorities": str(files.authorities),
                "authorities_sha256": hashlib.sha256(self.authorities).hexdigest(),
            }
        return description | {"valid_until": _time(self.leaf.not_valid_after_utc)}


@dataclass(frozen=True)
class TlsFiles:
    """Paths of a certificate, its key and the authorities that sign the peer's; `authorities` None: any."""

    certificate: Path
    key: Path
    authorities: Path | None = None

    def stamps(self) -> tuple[object, ...]:
        """Return values that change whenever a file changes."""
        stamps: list[object] = []
        for path in filter(None, (self.certificate, self.key, self.authorities)):
            try:
                seen = path.stat()
            except OSError:
                stamps.append(None)
            else:
                stamps.append((seen.st_ino, seen.st_mtime_ns, seen.st_size))
        return tuple(stamps)

    def read(self, now: datetime | None = None) -> Material:
        """Return the contents of the files. Raises: TlsError for files that are missing, hold something else, do not
        belong together, or a certificate that is not valid now.
        """
        chain, key = _bytes(self.certificate), _bytes(self.key)
        leaf = _certificates(self.certificate, chain)[0]
        try:
            known = serialization.load_pem_private_key(key, None)
        except (ValueError, TypeError) as error:
            raise TlsError(f"{self.key}: no private key in PEM: {str(error).split('.')[0]}") from None
        if known.public_key() != leaf.public_key():
            raise TlsError(f"{self.key}: not the key of {self.certificate}")
        check_validity(self.certificate, leaf, now or datetime.now(UTC))
        authorities = b""
        if self.authorities is not None:
            authorities = _bytes(self.authorities)
            _certificates(self.authorities, authorities)
        return Material(chain, key, authorities, leaf)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TlsError(f"{path}: {error.strerror}") from None


def _certificates(path: Path, text: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError:
        raise TlsError(f"{path}: no certificate in PEM") from None


def common_name(certificate: x509.Certificate) -> str:
    """Return the common name of a certificate's subject; empty if it has none."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def check_validity(path: Path, certificate: x509.Certificate, now: datetime) -> None:
    """Check that the certificate is valid now. Raises: TlsError."""
    if now > certificate.not_valid_after_utc:
        raise TlsError(f"{path}: the certificate expired at {_time(certificate.not_valid_after_utc)}")
    if now < certificate.not_valid_before_utc:
        raise TlsError(f"{path}: the certificate is not valid before {_time(certificate.not_valid_before_utc)}")


def is_signed_by(certificates: Sequence[x509.Certificate], authorities: bytes) -> bool:
    """Return whether one of the authorities, PEM, signed the last certificate of a chain."""
    for authority in x509.load_pem_x509_certificates(authorities):
        with contextlib.suppress(ValueError, TypeError, InvalidSignature):
            certificates[-1].verify_directly_issued_by(authority)
            return True
    return False


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


class Newer:
    """Files that are reloaded when they have changed."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamps = self._tried = files.stamps()

    def read(self) -> Material | None:
        """Return the new contents of the files; None if they have not changed.

        Raises: TlsError for unusable files, once two reads in a row found them so: during a replacement, certificate
        and key may not match.
        """
        stamps = self._files.stamps()
        if stamps == self._stamps:
            return None
        try:
            material = self._files.read()
        except TlsError:
            if stamps != self._tried:
                self._tried = stamps
                return None
            self._stamps = stamps
            raise
        self._stamps = self._tried = stamps
        return material


class ClientTls:
    """A client's certificate and the authorities that sign the server's; `material` is the last read contents."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files. Raises: TlsError, also for a certificate that none of the authorities signed."""
        self.files = files
        self._newer = Newer(files)
        self.material = self._check(files.read())

    def _check(self, found: Material) -> Material:
        if not is_signed_by(x509.load_pem_x509_certificates(found.chain), found.authorities):
            raise TlsError(f"{self.files.certificate}: signed by none of the authorities in {self.files.authorities}")
        return found

    @property
    def user(self) -> str:
        """The user that the certificate names."""
        return self.material.user

    def has_changed(self) -> bool:
        """Reload the files if they have changed; return whether new connections need new credentials."""
        try:
            material = self._newer.read()
            if material is None or self._check(material) == self.material:
                return False
        except TlsError as error:
            log.error("client.certificate_not_reloaded", error=str(error))
            return False
        self.material = material
        until = _time(material.leaf.not_valid_after_utc)
        log.info("client.certificate_reloaded", certificate=str(self.files.certificate), valid_until=until)
        return True

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials of a channel."""
        return grpc.ssl_channel_credentials(self.material.authorities, self.material.key, self.material.chain)

    async def why_refused(self, target: str) -> str:
        """Return why a connection to HOST:PORT fails, as far as a handshake shows it; empty if it succeeds."""
        try:
            check_validity(self.files.certificate, self.material.leaf, datetime.now(UTC))
        except TlsError as error:
            return str(error)
        context = ssl.create_default_context(cadata=self.material.authorities.decode())
        context.set_alpn_protocols(["h2"])
        # The files may have changed since they were read; what they hold now is what would be tried next.
        with contextlib.suppress(OSError, ssl.SSLError):
            context.load_cert_chain(self.files.certificate, self.files.key)
        try:
            await shake_hands(target, context)
        except ssl.SSLCertVerificationError as error:
            return f"the certificate of {target}: {self._verification(error)}"
        except ssl.SSLError as error:
            if error.reason == "WRONG_VERSION_NUMBER":
                return f"{target} speaks no TLS: does its API server run with --security strict?"
            return f"{target}: {error.reason or error}"
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            if isinstance(error, ConnectionRefusedError):
                return ""
            return (
                f"{target} refuses the client certificate {self.files.certificate} of {self.user}: "
                "is it signed by an authority that the server trusts?"
            )
        except (OSError, TimeoutError):
            return ""
        return ""

    def _verification(self, error: ssl.SSLCertVerificationError) -> str:
        if error.verify_code in (18, 19, 20, 21):  # X509_V_ERR_…: no chain to an authority that is trusted
            return f"signed by none of the authorities in {self.files.authorities}"
        return error.verify_message.rstrip(".")
