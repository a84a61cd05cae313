"""Logs and ClusterLogs: `kubectl logs` reads a container's log from a file. Pure.

Source: kubernetes-sigs/kwok pkg/apis/v1alpha1/logs_types.go.
"""

from services.kwok.kind import Entry, Kind, Part


class Log(Entry, frozen=True):
    """The file of a container's log, in CRI's or Docker's form, and that of the previous run.

    `follow` has no effect, as in KWOK: a log is followed when a client asks for it.
    """

    logs_file: str = ""
    previous_logs_file: str = ""
    follow: bool = False

    def __post_init__(self) -> None:
        if not self.logs_file and not self.previous_logs_file:
            raise ValueError(".logsFile: want the path of a file")


class Spec(Part, frozen=True):
    """Spec of the document."""

    logs: tuple[Log, ...]


KIND = Kind("Logs", Spec, "logs")
