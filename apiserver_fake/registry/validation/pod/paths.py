"""Paths that stand in pods: below a volume, without a way out of it.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `validateLocalDescendingPath`,
`validatePathNoBacksteps`, `ValidateLocalNonReservedPath`.
"""

from apiserver_fake.registry.validation.formats import Cause, invalid


def no_backsteps(path: str, value: str) -> list[Cause]:
    """Check that no element of a path is `..`."""
    return [invalid(path, value, "must not contain '..'")] if ".." in value.split("/") else []


def descending(path: str, value: str) -> list[Cause]:
    """Check that a path is relative and does not lead out."""
    causes = [invalid(path, value, "must be a relative path")] if value.startswith("/") else []
    return causes + no_backsteps(path, value)


def local(path: str, value: str) -> list[Cause]:
    """Check a relative path that does not begin with `..`, which is kept for atomic writers."""
    causes = descending(path, value)
    if value.startswith("..") and not value.startswith("../"):
        causes.append(invalid(path, value, "must not start with '..'"))
    return causes
