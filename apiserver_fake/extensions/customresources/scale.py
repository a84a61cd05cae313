"""Validation of the replicas and the selector of an object whose definition has a scale. Pure.

Source: kubernetes/kubernetes
staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource/validator.go,
staging/src/k8s.io/apimachinery/pkg/apis/meta/v1/unstructured/helpers.go.
"""

from __future__ import annotations

from typing import Any, Final

from apiserver_fake.extensions.customresources.causes import invalid, number
from apiserver_fake.registry.validation.formats import Causes
from services.api.meta import Document

_GO: Final = {str: "string", bool: "bool", float: "float64", int: "int64", dict: "map[string]interface {}"}
_MOST: Final = (1 << 31) - 1


def problems(scale: Document, document: Document, *, is_status: bool = False) -> Causes:
    """Yield the errors in the fields that a definition's scale names. `is_status`: only the status is written."""
    if not is_status:
        yield from _replicas(str(scale["specReplicasPath"]), document)
    yield from _replicas(str(scale["statusReplicasPath"]), document)
    where = scale.get("labelSelectorPath")
    if where:
        _, wrong = _at(str(where), document, str)
        if wrong:
            yield invalid(str(where), "", wrong)


def _replicas(path: str, document: Document) -> Causes:
    replicas, wrong = _at(path, document, int)
    if wrong:
        yield invalid(path, 0, wrong)
    elif replicas < 0:
        yield invalid(path, replicas, "should be a non-negative integer")
    elif replicas > _MOST:
        yield invalid(path, replicas, f"should be less than or equal to {_MOST}")


def _at(path: str, document: Document, kind: type) -> tuple[Any, str]:
    """Return what is at the place, zero if nothing is, and why it cannot be read."""
    names = path.removeprefix(".").split(".")
    member: Any = document
    for place, name in enumerate(names):
        if member is None:
            return kind(), ""
        if not isinstance(member, dict):
            return None, _unlike(names[: place + 1], member, "map[string]interface{}")
        if name not in member:
            return kind(), ""
        member = member[name]
    return (member, "") if type(member) is kind else (None, _unlike(names, member, _GO[kind]))


def _unlike(names: list[str], value: Any, wanted: str) -> str:
    found = "<nil>" if value is None else _GO.get(type(value), "[]interface {}")
    return f".{'.'.join(names)} accessor error: {_plain(value)} is of the type {found}, expected {wanted}"


def _plain(value: Any) -> str:
    """Return a value as Go's `%v`."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{_plain(value[name])}' for name in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_plain, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else value if isinstance(value, str) else number(value)
