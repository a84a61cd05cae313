"""Writes past admission, and the violations they explain, which are no defects of the mesh. Pure.

Source: simulator 5.3.
"""

from services.telemetry.eventlog import Line

RAW = "raw"
"""Subresource of a write past admission, as a commit names it."""


class ByHand:
    """Objects that were written by hand, and their nodes."""

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}
        self._objects: dict[str, None] = {}
        self._nodes: dict[str, None] = {}

    def take(self, line: Line) -> None:
        """Note a `store.commit` line, if it is a write past admission."""
        if line.obj is None or line.data.get("subresource") != RAW:
            return
        self._objects[text_of(line)] = None
        if uid := line.obj.get("uid", ""):
            self._uids[uid] = None
        node = line.obj["name"] if line.obj["kind"] == "Node" else str(line.data.get("node") or "")
        if node:
            self._nodes[node] = None

    def explains(self, objects: tuple[str, ...], detail: str, line: Line | None = None) -> bool:
        """Return whether a violation is explained by such a write: it is about the object itself, or a line about
        its node, or its text names the object's uid.
        """
        if not self._objects:
            return False
        if any(each in self._objects for each in objects) or any(uid in detail for uid in self._uids):
            return True
        if line is None:
            return False
        return line.node in self._nodes or str(line.data.get("node") or "") in self._nodes


def text_of(line: Line) -> str:
    """Return the line's object as text for people: `kind ns/name`."""
    assert line.obj is not None, "asked before"
    return f"{line.obj['kind']} {line.obj['ns']}/{line.obj['name']}"
