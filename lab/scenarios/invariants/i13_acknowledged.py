"""I13: every acknowledged write is in the commit log, with the same object and content."""

import hashlib

import msgspec

from lab.scenarios.invariants.check import Check, Report, uid_of
from services.api.errors import UNREADABLE
from services.api.wire import Request, Response
from services.telemetry.eventlog import Line

WRITES = ("create", "update", "patch", "delete")


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct, rename="camel"):
    kind: str = ""
    metadata: _Meta = msgspec.field(default_factory=_Meta)


_HEAD = msgspec.json.Decoder(_Head)


class AcknowledgedIsStored(Check):
    """I13: an answer with version r has the object, uid and content that the log has at r.

    Judged where the answer is sent (`api.response`, `client.return`) and, in the simulation, where it
    arrives. An answer that reports no change has the version that it found.
    """

    id = "I13"
    events = ("api.response", "client.return")

    def take(self, line: Line, report: Report) -> None:
        """Match an answer's version with its commit."""
        if self.context.is_volatile or not line.rv:
            return
        if line.ev == "client.return":
            if line.data.get("outcome") == "ok" and line.data.get("wrote"):
                self._match(line, line.rv, line.obj["name"] if line.obj else "", uid_of(line), "", report)
            return
        if int(line.data.get("code", 0)) < 400 and line.data.get("verb") in WRITES:
            parts = str(line.data.get("path", "")).split("/")
            self._match(line, line.rv, parts[2] if len(parts) > 2 else "", "", "", report)

    def on_response(self, line: Line, request: Request, response: Response, report: Report) -> None:
        """Judge an answer that arrived; `line` is the newest line of the log."""
        is_write = request.verb in WRITES and not request.dry_run
        if self.context.is_volatile or not (is_write and response.is_ok and response.rv):
            return
        uid = sha256 = ""
        name = request.name
        try:
            head = _HEAD.decode(response.body)
        except UNREADABLE:
            head = _Head()
        is_object = request.subresource not in ("unbind", "binding")
        if (
            is_object
            and head.metadata.resource_version == str(response.rv)
            and self.view.kinds.get(request.resource, "") == head.kind
        ):
            uid, name = head.metadata.uid, head.metadata.name
            sha256 = hashlib.sha256(response.body).hexdigest()
        self._match(line, response.rv, name, uid, sha256, report)

    def _match(self, line: Line, rv: int, name: str, uid: str, sha256: str, report: Report) -> None:
        commit = self.view.by_rv.get(rv)
        if commit is None:
            if rv > self.view.rv:
                report(line, f"acknowledged at {rv}, which was never committed; the newest version is {self.view.rv}")
            return
        stored = commit.content
        if name and stored.name != name:
            report(line, f"acknowledged {name} at {rv}, where {stored.kind} {stored.name} is stored")
        elif uid and stored.uid != uid:
            report(line, f"acknowledged {uid} at {rv}, where {stored.uid} is stored")
        elif sha256 and stored.sha256 and stored.sha256 != sha256:
            report(line, f"acknowledged content {sha256[:12]} of {name} at {rv}, where {stored.sha256[:12]} is stored")
