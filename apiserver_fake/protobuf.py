"""Kubernetes' protobuf bodies, which kubectl sends for its imperative `create` commands."""

from __future__ import annotations

from services.api.errors import UnsupportedMediaType
from services.api.meta import Document

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"


def decode(body: bytes) -> Document:
    """Return the object in the envelope. Raises: UnsupportedMediaType."""
    raise UnsupportedMediaType(
        "the body of the request was in an unknown format - accepted media types include: "
        "application/json, application/yaml"
    )
