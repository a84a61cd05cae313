"""The certificate authority of one mesh, and the certificates it signs: PEM files beside the token files.

Keys are ECDSA P-256, readable only by their owner. A certificate is renewed if it has less than a month to
live, if another authority signed it, or if its names differ; the authority's own certificate is kept.
Source: upstream `cmd/kubeadm/app/phases/certs/certlist.go`.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from services.runtime.real import write_atomically

AUTHORITY_LIFE = timedelta(days=3650)
LIFE = timedelta(days=365)
RENEWED_BEFORE = timedelta(days=30)
"""Time before its end at which a certificate is renewed; a third of its life if that is shorter."""
BACKDATED = timedelta(minutes=5)
"""Time by which the start of certificates is backdated, because clocks differ."""
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
SERVER_NAMES = (
    *LOOPBACK_NAMES,
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


_ALL_KEY_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
_KEY_USAGES = {
    "digital signature": "digital_signature",
    "key encipherment": "key_encipherment",
    "signing": "digital_signature",
}
_EXTENDED_USAGES = {"client auth": ExtendedKeyUsageOID.CLIENT_AUTH, "server auth": ExtendedKeyUsageOID.SERVER_AUTH}
"""Extended usages that Kubernetes' signers sign for."""


@dataclass(frozen=True)
class Pair:
    """Paths of a certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """A certificate authority. `path`: the file of its certificate, together with other trusted ones. `life`:
    lifetime of the certificates it signs.
    """

    path: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    life: timedelta = LIFE

    def server(self, name: str, hosts: Iterable[str] = (), *, now: datetime | None = None) -> Pair:
        """Return the pair `<name>.crt`, `<name>.key` beside the authority, for a server with these host names and
        SERVER_NAMES.

        It is made unless a valid one exists. Raises: OSError.
        """
        names = tuple(dict.fromkeys((*SERVER_NAMES, *hosts)))
        alternatives = x509.SubjectAlternativeName([_name_of(host) for host in names])
        return self._pair(name, name, (), (ExtendedKeyUsageOID.SERVER_AUTH,), alternatives, now)

    def client(self, name: str, user: str, groups: Iterable[str] = (), *, now: datetime | None = None) -> Pair:
        """Return the pair `<name>.crt`, `<name>.key` of a client with this user and these groups. Raises: OSError."""
        return self._pair(name, user, tuple(groups), (ExtendedKeyUsageOID.CLIENT_AUTH,), None, now)

    def peer(self, name: str, hosts: Iterable[str] = (), *, now: datetime | None = None) -> Pair:
        """Return the pair `<name>.crt`, `<name>.key` of a process that both serves and calls its peers.

        Its names are these hosts and LOOPBACK_NAMES. Raises: OSError.
        """
        alternatives = x509.SubjectAlternativeName([_name_of(host) for host in (*LOOPBACK_NAMES, *hosts)])
        both = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._pair(name, name, (), both, alternatives, now)

    def sign(
        self,
        subject: x509.Name,
        public_key: ec.EllipticCurvePublicKey,
        usages: Iterable[x509.ObjectIdentifier],
        alternatives: x509.SubjectAlternativeName | None = None,
        *,
        life: timedelta = LIFE,
        now: datetime | None = None,
    ) -> x509.Certificate:
        """Return a certificate of that key, with these usages and that lifetime."""
        now = now or datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(self, request: bytes, usages: Iterable[str], life: timedelta, *, now: datetime) -> bytes:
        """Return the certificate, PEM, for a certificate request in PEM, with these usages by Kubernetes' names.

        Raises: ValueError for an invalid request, a wrong signature, or an unknown usage.
        """
        asked = x509.load_pem_x509_csr(request)
        if not asked.is_signature_valid:
            raise ValueError("the request is not signed by its own key")
        names = list(usages)
        if unknown := [name for name in names if name not in _KEY_USAGES and name not in _EXTENDED_USAGES]:
            raise ValueError(f"usages that are not signed for: {', '.join(unknown)}")
        plain = {_KEY_USAGES[name] for name in names if name in _KEY_USAGES}
        extended = [_EXTENDED_USAGES[name] for name in names if name in _EXTENDED_USAGES]
        builder = (
            x509.CertificateBuilder()
            .subject_name(asked.subject)
            .issuer_name(self.certificate.subject)
            .public_key(asked.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + life - BACKDATED)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if plain:
            usage = x509.KeyUsage(**{name: name in plain for name in _ALL_KEY_USAGES})
            builder = builder.add_extension(usage, critical=True)
        if extended:
            builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
        for extension in asked.extensions:
            if isinstance(extension.value, x509.SubjectAlternativeName):
                builder = builder.add_extension(extension.value, critical=extension.critical)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _pair(
        self,
        name: str,
        user: str,
        groups: tuple[str, ...],
        usages: tuple[x509.ObjectIdentifier, ...],
        alternatives: x509.SubjectAlternativeName | None,
        now: datetime | None,
    ) -> Pair:
        directory = self.path.parent
        pair = Pair(directory / f"{name}.crt", directory / f"{name}.key")
        named = [(NameOID.ORGANIZATION_NAME, group) for group in groups] + [(NameOID.COMMON_NAME, user)]
        subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in named])
        if not self._is_good(pair, subject, alternatives, now or datetime.now(UTC)):
            key = ec.generate_private_key(ec.SECP256R1())
            _put(pair, key, self.sign(subject, key.public_key(), usages, alternatives, life=self.life, now=now))
        return pair

    def renew(self, pair: Pair, *, life: timedelta | None = None, now: datetime | None = None) -> None:
        """Replace a pair by one of the same names and usage with a new key. `life`: None for the old pair's lifetime.

        Raises: OSError; ValueError for a file that is no certificate.
        """
        known = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        life = life or _life(known)
        key = ec.generate_private_key(ec.SECP256R1())
        usages = known.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        _put(pair, key, self.sign(known.subject, key.public_key(), usages, _names_of(known), life=life, now=now))

    def is_due(self, pair: Pair, *, now: datetime | None = None) -> bool:
        """Return whether a pair must be renewed: because of its age, or because another authority signed it. Raises:
        OSError; ValueError for a file that is no certificate.
        """
        known = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        try:
            known.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return True
        return _is_old(known, now or datetime.now(UTC))

    def _is_good(
        self, pair: Pair, subject: x509.Name, alternatives: x509.SubjectAlternativeName | None, now: datetime
    ) -> bool:
        try:
            known = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
            known.verify_directly_issued_by(self.certificate)
            key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
        except (OSError, ValueError, TypeError, InvalidSignature):
            return False
        if known.public_key() != key.public_key() or known.subject != subject:
            return False
        return _names_of(known) == alternatives and _life(known) <= self.life and not _is_old(known, now)


def _names_of(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _life(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - certificate.not_valid_before_utc - BACKDATED


def _is_old(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_after_utc - min(RENEWED_BEFORE, _life(certificate) / 3) <= now


def _put(pair: Pair, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    write_atomically(pair.key, _key_pem(key), mode=0o400)
    write_atomically(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM), mode=0o444)


def pairs(directory: Path) -> list[Pair]:
    """Return the certificates in a directory that have their keys beside them, without the authority's."""
    found = (Pair(path, path.with_suffix(".key")) for path in sorted(directory.glob("*.crt")) if path.stem != "ca")
    return [pair for pair in found if pair.key.exists()]


def authority_of(path: Path, key_path: Path, *, life: timedelta = LIFE) -> Authority:
    """Return the authority of these two files; the first may hold several certificates. Raises: OSError; ValueError
    for files that do not belong together.
    """
    known = serialization.load_pem_private_key(key_path.read_bytes(), None)
    if isinstance(known, ec.EllipticCurvePrivateKey):
        for certificate in x509.load_pem_x509_certificates(path.read_bytes()):
            if certificate.public_key() == known.public_key():
                return Authority(path, certificate, known, life)
    raise ValueError(f"{key_path} is not the key of {path}")


def authority(directory: Path, *, life: timedelta = LIFE, now: datetime | None = None) -> Authority:
    """Return the authority in the files `ca.crt` and `ca.key` of that directory; make one if there is none.

    Raises: OSError; ValueError for files that are not the certificate and the key of one authority.
    """
    path, key_path = directory / "ca.crt", directory / "ca.key"
    if path.exists() or key_path.exists():
        return authority_of(path, key_path, life=life)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _self_signed(key, now or datetime.now(UTC))
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(key_path, _key_pem(key), mode=0o400)
    write_atomically(path, certificate.public_bytes(serialization.Encoding.PEM), mode=0o444)
    return Authority(path, certificate, key, life)


def _self_signed(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "keplab-ca")])
    unused = dict.fromkeys(
        ("content_commitment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only", "crl_sign"),
        False,
    )
    usage = x509.KeyUsage(digital_signature=True, key_encipherment=True, key_cert_sign=True, **unused)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


NEXT_KEY = "ca-next.key"
"""Key file of an authority that is already trusted but does not sign yet."""


def add_authority(directory: Path, *, now: datetime | None = None) -> None:
    """First step of changing the authority: trust a new one; `ca.crt` then has both. A second call changes nothing.
    Raises: OSError, ValueError.
    """
    path, key_path = directory / "ca.crt", directory / NEXT_KEY
    if key_path.exists():
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
    else:
        key = ec.generate_private_key(ec.SECP256R1())
        write_atomically(key_path, _key_pem(key), mode=0o400)
    known = path.read_bytes()
    if all(each.public_key() != key.public_key() for each in x509.load_pem_x509_certificates(known)):
        added = _self_signed(key, now or datetime.now(UTC))
        write_atomically(path, known + added.public_bytes(serialization.Encoding.PEM), mode=0o444)


def switch_authority(directory: Path) -> None:
    """Second step of changing the authority: the new one signs; a second call changes nothing. Raises: OSError."""
    if (directory / NEXT_KEY).exists():
        (directory / NEXT_KEY).replace(directory / "ca.key")


def drop_authorities(directory: Path) -> None:
    """Third step of changing the authority: trust only the one that signs. Raises: OSError, ValueError."""
    signer = authority_of(directory / "ca.crt", directory / "ca.key")
    write_atomically(signer.path, signer.certificate.public_bytes(serialization.Encoding.PEM), mode=0o444)


def signing_key(directory: Path) -> Path:
    """Return the path of the key `sa.key` that signs service account tokens; make it if there is none. Raises:
    OSError.
    """
    path = directory / "sa.key"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, _key_pem(ec.generate_private_key(ec.SECP256R1())), mode=0o400)
    return path


def _name_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
