"""TLS of the REST endpoint: the server's certificate, read again when its files change, and who a client's names.

A certificate of a client is an identity when the authority given for it signed it: the common name is the user, each
organization a group. Source: upstream `staging/src/k8s.io/apiserver/pkg/authentication/request/x509/x509.go`.
"""

import ssl
from pathlib import Path
from typing import Any

import structlog

from services.api.identity import Identity
from services.runtime.config import EXIT_CONFIG, StartError

log = structlog.get_logger()


class ServingTls:
    """The TLS settings of one listener. `context` is what it serves with."""

    def __init__(self, certificate: Path, key: Path, client_authority: Path | None = None) -> None:
        """Raises: StartError naming the file that cannot be read or is no certificate or key."""
        self._certificate, self._key, self._client_authority = certificate, key, client_authority
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            raise StartError(f"TLS of the REST endpoint: {self._fault(error)}", EXIT_CONFIG) from None
        self._stamp = self._stamps()

    def _load(self) -> None:
        # A context that was given half of a pair serves no more: another one tries the files first.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(self._certificate, self._key)
        self.context.load_cert_chain(self._certificate, self._key)
        if self._client_authority is not None:
            self.context.load_verify_locations(self._client_authority)
            self.context.verify_mode = ssl.CERT_OPTIONAL

    def _fault(self, error: Exception) -> str:
        for path in filter(None, (self._certificate, self._key, self._client_authority)):
            try:
                path.read_bytes()
            except OSError as unreadable:
                return f"{path}: {unreadable.strerror}"
        return f"{self._certificate} and {self._key} are no certificate and its key: {error}"

    def _stamps(self) -> tuple[object, ...]:
        found: list[object] = []
        for path in filter(None, (self._certificate, self._key, self._client_authority)):
            try:
                seen = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((seen.st_ino, seen.st_mtime_ns, seen.st_size))
        return tuple(found)

    def reload(self) -> None:
        """Read the files again if they changed; connections from now on are served with what they hold.

        Half of a new pair is no reason to stop serving: what was there stays until both fit each other.
        """
        stamp = self._stamps()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            log.warning("rest.certificate_not_reloaded", error=self._fault(error))
        else:
            log.info("rest.certificate_reloaded", certificate=str(self._certificate))


def identity_of_peer(peer: dict[str, Any] | None) -> Identity | None:
    """Return whom a client's certificate names, as `ssl` describes it; None without a certificate or a name in it."""
    if not peer:
        return None
    named = [pair for part in peer.get("subject", ()) for pair in part]
    user = next((value for kind, value in named if kind == "commonName"), "")
    groups = tuple(value for kind, value in named if kind == "organizationName")
    return Identity(user, groups) if user else None
