"""Validation of paths in pods: they must be below a volume and not leave it.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `validateLocalDescendingPath`,
`validatePathNoBacksteps`, `ValidateLocalNonReservedPath`.
"""

from apiserver_fake.registry.validation.formats import Cause, invalid


def no_backsteps(path: str, value: str) -> list[Cause]:
    """Check that no element of a path is `..`."""
    return [invalid(path, value, "must not contain '..'")] if ".." in value.split("/") else []


def descending(path: str, value: str) -> list[Cause]:
    """Check that a path is relative and does not leave its parent."""
    causes = [invalid(path, value, "must be a relative path")] if value.startswith("/") else []
    return causes + no_backsteps(path, value)


def local(path: str, value: str) -> list[Cause]:
    """Check a relative path that does not begin with `..`, which is reserved for atomic writers."""
    causes = descending(path, value)
    if value.startswith("..") and not value.startswith("../"):
        causes.append(invalid(path, value, "must not start with '..'"))
    return causes
