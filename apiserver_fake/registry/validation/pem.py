"""Signing requests and certificates in PEM. Pure.

Only what needs `cryptography` is here, and callers import it where they open a document: the library is large, and few
clusters have such objects. The texts are upstream's (`pkg/apis/certificates/validation`) and Go's.
"""

import base64
import re
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from apiserver_fake.registry.validation.formats import value_text

_UNREADABLE: Final = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion)
"""Exceptions that the library raises for a certificate or a signing request that it cannot read."""
_FORGED: Final[dict[type, str]] = {
    rsa.RSAPublicKey: "crypto/rsa: verification error",
    ec.EllipticCurvePublicKey: "x509: ECDSA verification failure",
    ed25519.Ed25519PublicKey: "x509: Ed25519 verification failure",
}
"""Go's error texts for a signature that was not made with the key in the request."""
_BLOCK: Final = re.compile(rb"-----BEGIN ([^-\n]*)-----\r?\n(.*?)-----END \1-----", re.DOTALL)


def fault_of_request(text: str) -> str:
    """Return what is wrong with a signing request in PEM and base64; "" for nothing."""
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(text))
    except _UNREADABLE:
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        key, is_valid = request.public_key(), request.is_signature_valid
    except _UNREADABLE:
        return "x509: cannot verify signature: algorithm unimplemented"
    if isinstance(key, tuple(_FORGED)) and not is_valid:
        return next(why for kind, why in _FORGED.items() if isinstance(key, kind))
    return ""


def fault_of_certificates(text: str) -> str:
    """Return what is wrong with certificates in PEM and base64; "" for nothing."""
    blocks = _BLOCK.findall(base64.b64decode(text))
    for kind, body in blocks:
        if kind != b"CERTIFICATE":
            return f"only CERTIFICATE PEM blocks are allowed, found {value_text(kind.decode(errors='replace'))}"
        if b":" in body:
            return "no PEM block headers are permitted"
        try:
            x509.load_der_x509_certificate(base64.b64decode(body))
        except _UNREADABLE:
            return "x509: malformed certificate"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def organizations_of_request(text: str) -> list[str]:
    """Return the organizations that the subject of a signing request names. Raises: ValueError if it is unreadable."""
    try:
        subject = x509.load_pem_x509_csr(base64.b64decode(text)).subject
    except _UNREADABLE as error:
        raise ValueError(str(error)) from None
    return [str(each.value) for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
