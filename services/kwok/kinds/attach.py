"""Attach and ClusterAttach: `kubectl attach` shows a growing file. Pure.

Source: kubernetes-sigs/kwok pkg/apis/v1alpha1/attach_types.go.
"""

from services.kwok.kind import Entry, Kind, Part


class AttachConfig(Entry, frozen=True, kw_only=True):
    """The file that clients see."""

    logs_file: str

    def __post_init__(self) -> None:
        if not self.logs_file:
            raise ValueError(".logsFile: want the path of a file")


class Spec(Part, frozen=True):
    """Spec of the document."""

    attaches: tuple[AttachConfig, ...]


KIND = Kind("Attach", Spec, "attaches")
