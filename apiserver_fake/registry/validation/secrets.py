"""Validation of Secrets: the content that a known type requires, and its size.

Source: upstream `pkg/apis/core/validation/validation.go`, `ValidateSecret`.
"""

import base64
from collections.abc import Callable, Mapping

from apiserver_fake.registry.validation.formats import Cause, Causes, required
from apiserver_fake.registry.validation.gojson import object_mistake


def size_of(values: Mapping[str, str]) -> int:
    """Return the total size in bytes of base64 values, decoded."""
    return sum(len(text) * 3 // 4 - text.count("=", -2) for text in values.values())


def _all_of(*names: str) -> Callable[[Mapping[str, str]], Causes]:
    return lambda data: [required(f"data[{name}]") for name in names if name not in data]


def _json_in(name: str) -> Callable[[Mapping[str, str]], Causes]:
    def check(data: Mapping[str, str]) -> Causes:
        path = f"data[{name}]"
        if name not in data:
            yield required(path)
        elif why := object_mistake(base64.b64decode(data[name])):
            yield Cause(path, "FieldValueInvalid", f'Invalid value: "<secret contents redacted>": {why}')

    return check


def _basic(data: Mapping[str, str]) -> Causes:
    names = ("username", "password")
    return [] if any(name in data for name in names) else [required(f"data[{name}]") for name in names]


def _key(data: Mapping[str, str]) -> Causes:
    return [] if data.get("ssh-privatekey") else [required("data[ssh-privatekey]")]


SECRET_TYPES: dict[str, Callable[[Mapping[str, str]], Causes]] = {
    "kubernetes.io/dockercfg": _json_in(".dockercfg"),
    "kubernetes.io/dockerconfigjson": _json_in(".dockerconfigjson"),
    "kubernetes.io/basic-auth": _basic,
    "kubernetes.io/ssh-auth": _key,
    "kubernetes.io/tls": _all_of("tls.crt", "tls.key"),
}
"""Checks of a Secret's data, by the Secret's type."""
