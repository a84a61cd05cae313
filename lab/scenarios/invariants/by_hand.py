"""What was written past admission, and which breaches that explains: they are no defects of the mesh. Pure.

Source: simulator 5.3.
"""

from services.telemetry.eventlog import Line

RAW = "raw"
"""The subresource of such a write, as a commit names it."""


class ByHand:
    """Objects that were written by hand, and the nodes that they are, or are on."""

    def __init__(self) -> None:
        self._uids: dict[str, None] = {}
        self._objects: dict[str, None] = {}
        self._nodes: dict[str, None] = {}

    def take(self, line: Line) -> None:
        """Take a line `store.commit`."""
        if line.obj is None or line.data.get("subresource") != RAW:
            return
        self._objects[text_of(line)] = None
        if uid := line.obj.get("uid", ""):
            self._uids[uid] = None
        node = line.obj["name"] if line.obj["kind"] == "Node" else str(line.data.get("node") or "")
        if node:
            self._nodes[node] = None

    def explains(self, objects: tuple[str, ...], detail: str, line: Line | None = None) -> bool:
        """Whether a breach is about what was written so: the object itself, what happens on its node, or an object
        whose breach names it by uid."""
        if not self._objects:
            return False
        if any(each in self._objects for each in objects) or any(uid in detail for uid in self._uids):
            return True
        if line is None:
            return False
        return line.node in self._nodes or str(line.data.get("node") or "") in self._nodes


def text_of(line: Line) -> str:
    """Return what a person calls the line's object: `kind ns/name`."""
    assert line.obj is not None, "asked before"
    return f"{line.obj['kind']} {line.obj['ns']}/{line.obj['name']}"
