"""JSON Web Tokens signed with one key, and the key as JSON Web Key Set: ES256 or RS256.

Implements only the part of RFC 7515, 7517 and 7518 that service accounts need: one signature, compact form, no
encryption. Source: upstream `pkg/serviceaccount/jwt.go` and `openidmetadata.go` for key ids and the set.
"""

import base64
import hashlib
from typing import Any, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from services.api.errors import UNREADABLE
from services.api.meta import Document

_EC_BYTES: Final = 32


class JwtError(ValueError):
    """The text is no token, or this key did not sign it."""


class SigningKey:
    """A private key (EC P-256 or RSA), with its algorithm and key id as tokens name them."""

    def __init__(self, pem: bytes) -> None:
        """Read a private key. Raises: ValueError unless `pem` is an RSA key or an EC key on P-256."""
        key = serialization.load_pem_private_key(pem, None)
        if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
            self.algorithm = "ES256"
        elif isinstance(key, rsa.RSAPrivateKey):
            self.algorithm = "RS256"
        else:
            raise ValueError("a key for tokens of service accounts is RSA, or EC on the curve P-256")
        self._key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = key
        form, info = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        self.key_id = _text(hashlib.sha256(key.public_key().public_bytes(form, info)).digest())
        self._header = _text(msgspec.json.encode({"alg": self.algorithm, "kid": self.key_id}))

    def sign(self, claims: Document) -> str:
        """Return a signed token with these claims."""
        signed = f"{self._header}.{_text(msgspec.json.encode(claims))}"
        data = signed.encode()
        if isinstance(self._key, rsa.RSAPrivateKey):
            signature = self._key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        else:
            r, s = decode_dss_signature(self._key.sign(data, ec.ECDSA(hashes.SHA256())))
            signature = r.to_bytes(_EC_BYTES, "big") + s.to_bytes(_EC_BYTES, "big")
        return f"{signed}.{_text(signature)}"

    def verify(self, token: str) -> Document:
        """Return the claims of a token that this key signed. Raises: JwtError."""
        try:
            header, claims, signature = token.split(".")
            header_fields = msgspec.json.decode(_bytes(header))
            if (header_fields.get("alg"), header_fields.get("kid", self.key_id)) != (self.algorithm, self.key_id):
                raise JwtError("the token is signed by another algorithm or another key")
            self._check(f"{header}.{claims}".encode(), _bytes(signature))
            payload = msgspec.json.decode(_bytes(claims))
        except (ValueError, AttributeError, InvalidSignature, *UNREADABLE):
            raise JwtError("the token is none, or was signed with another key") from None
        if not isinstance(payload, dict):
            raise JwtError("the claims of the token are no object")
        return payload

    def _check(self, data: bytes, signature: bytes) -> None:
        public = self._key.public_key()
        if isinstance(public, rsa.RSAPublicKey):
            public.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
            return
        if len(signature) != 2 * _EC_BYTES:
            raise JwtError("the signature has another length")
        r, s = (int.from_bytes(part, "big") for part in (signature[:_EC_BYTES], signature[_EC_BYTES:]))
        public.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))

    def key_set(self) -> Document:
        """Return the public key as JSON Web Key Set."""
        public = self._key.public_key()
        key: Document = {"use": "sig", "kty": "EC", "kid": self.key_id}
        if isinstance(public, rsa.RSAPublicKey):
            numbers = public.public_numbers()
            key |= {"kty": "RSA", "alg": self.algorithm, "n": _number(numbers.n), "e": _number(numbers.e)}
        else:
            point = public.public_numbers()
            place = {name: _text(value.to_bytes(_EC_BYTES, "big")) for name, value in (("x", point.x), ("y", point.y))}
            key |= {"crv": "P-256", "alg": self.algorithm, **place}
        return {"keys": [key]}


def claims_of(token: str) -> Document:
    """Return a token's claims without verifying the signature; {} if the text is no token."""
    try:
        found: Any = msgspec.json.decode(_bytes(token.split(".")[1]))
    except (ValueError, IndexError, *UNREADABLE):
        return {}
    return found if isinstance(found, dict) else {}


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _number(value: int) -> str:
    return _text(value.to_bytes((value.bit_length() + 7) // 8, "big"))
