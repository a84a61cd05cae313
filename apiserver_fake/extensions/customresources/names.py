"""Validation of names in definitions; all errors of one name form one text. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Sequence

from apiserver_fake.extensions.customresources.causes import not_supported
from apiserver_fake.registry.validation.formats import (
    LABEL_1035_TEXT,
    SUBDOMAIN_TEXT,
    Causes,
    label_1035,
    required,
    subdomain,
)

_LABEL_MAX, _SUBDOMAIN_MAX = 63, 253


def dns_label(name: str) -> str:
    """Return why the name is no DNS-1035 label; empty if it is one."""
    too_long = [f"must be no more than {_LABEL_MAX} bytes"] if len(name.encode()) > _LABEL_MAX else []
    return ",".join([*too_long, *([LABEL_1035_TEXT] if label_1035("", name[:_LABEL_MAX]) else [])])


def dns_subdomain(name: str) -> str:
    """Return why the name is no DNS-1123 subdomain; empty if it is one."""
    too_long = [f"must be no more than {_SUBDOMAIN_MAX} bytes"] if len(name.encode()) > _SUBDOMAIN_MAX else []
    return ",".join([*too_long, *([SUBDOMAIN_TEXT] if subdomain("", name[:_SUBDOMAIN_MAX]) else [])])


def one_of(path: str, value: str, accepted: Sequence[str]) -> Causes:
    """Yield the error of a required value that is missing or not among `accepted`."""
    if not value:
        yield required(path)
    elif value not in accepted:
        yield not_supported(path, value, accepted)
