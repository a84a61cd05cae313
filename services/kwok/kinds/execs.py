"""Exec and ClusterExec: environment of commands of `kubectl exec`. Pure.

Source: kubernetes-sigs/kwok pkg/apis/v1alpha1/exec_types.go; decision 0073.
"""

from services.kwok.kind import Entry, Kind, Part


class Variable(Part, frozen=True):
    """An environment variable."""

    name: str
    value: str = ""

    def __post_init__(self) -> None:
        if not self.name or "=" in self.name or "\0" in self.name + self.value:
            raise ValueError(f".name {self.name!r}: want the name of an environment variable")


class SecurityContext(Part, frozen=True):
    """User and group that a command runs as."""

    run_as_user: int | None = None
    run_as_group: int | None = None

    def __post_init__(self) -> None:
        for field, value in (("runAsUser", self.run_as_user), ("runAsGroup", self.run_as_group)):
            if value is not None and not 0 <= value < 1 << 32:
                raise ValueError(f".{field} {value}: want 0 to {(1 << 32) - 1}")


class Local(Part, frozen=True):
    """Working directory, environment and user of a command."""

    work_dir: str = ""
    envs: tuple[Variable, ...] = ()
    security_context: SecurityContext = SecurityContext()


class Exec(Entry, frozen=True):
    """Settings of commands in some containers."""

    local: Local | None = None


class Spec(Part, frozen=True):
    """Spec of the document."""

    execs: tuple[Exec, ...]


KIND = Kind("Exec", Spec, "execs")
