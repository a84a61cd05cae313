"""Which manager a write is of, and what it makes of the object's `managedFields`.

Writes from outside are tracked from an object's creation on. Writes of the mesh's own components are tracked on
objects that have managers already: what users made or applied; what components make has none until its first
apply, as upstream has it for objects of unknown history (decision 0030).
"""

from collections.abc import Callable, Coroutine
from typing import Any

from apiserver_fake.catalogue import Conversion, Kind, ServedVersion
from apiserver_fake.managedfields.fieldset import LEAF, NOTHING, Fields
from apiserver_fake.managedfields.managers import (
    UNKNOWN,
    UPDATE,
    Applied,
    Managed,
    Manager,
    Version,
    applied,
    empty,
    encoded,
    first,
    of_request,
    updated,
    without_managers,
)
from apiserver_fake.managedfields.typed import Comparison, compare
from apiserver_fake.schema.schemas import Shape
from services.api.errors import invalid
from services.api.identity import CONTROLLER_PREFIX, NODE_PREFIX, SCHEDULER, Identity
from services.api.meta import Document
from services.api.times import format_time
from services.api.wire import Request

STATUS, SCALE = "status", "scale"


def component(identity: Identity) -> str:
    """Return the manager of a component of the mesh as upstream's goes by; "" for any other caller."""
    if identity.user.startswith(NODE_PREFIX):
        return "kubelet"
    if identity.user.startswith(CONTROLLER_PREFIX):
        return "kube-controller-manager"
    return "kube-scheduler" if identity == SCHEDULER else ""


class FieldManagers:
    """The managers of one object during one write."""

    def __init__(self, kind: Kind, identity: Identity, request: Request) -> None:
        self._kind, self._identity, self._request = kind, identity, request
        self.is_outside = bool(request.field_validation)
        self._version = request.api_version or kind.resource.api_version

    def _manager(self) -> Manager:
        name = component(self._identity) or self._request.field_manager or UNKNOWN
        return Manager(name, UPDATE, self._version, self._request.subresource)

    def _ignored(self) -> Fields:
        """What this write cannot change: the status, or, where it is of the status, the spec."""
        if self._request.subresource == STATUS:
            return {"f:spec": LEAF}
        return {"f:status": LEAF} if STATUS in self._kind.resource.subresources else NOTHING

    def _served(self, api_version: str) -> ServedVersion | None:
        versions = self._kind.versions
        return next((each for each in versions if each.resource.api_version == api_version), None)

    def _comparing(self, old: Document, new: Document) -> Callable[[str], Comparison | None]:
        """Return how the stored object changes, as each version has it."""

        def change(api_version: str) -> Comparison | None:
            return self._change(old, new, self._kind.resource.api_version, api_version)

        return change

    def _change(self, old: Document, new: Document, have: str, wanted: str) -> Comparison | None:
        served = self._served(wanted)
        if served is None:
            return None
        if have == wanted:
            return compare(old, new, served.shape)
        return compare(self._in(old, have, wanted), self._in(new, have, wanted), served.shape)

    def _in(self, document: Document, have: str, wanted: str) -> Document:
        """Return the object in another version; as it is where the conversion takes more than a function."""
        stored = self._kind.resource.api_version
        if have != stored and (found := self._served(have)) is not None:
            document = _converted(document, found.to_stored, have)
        if wanted != stored and (found := self._served(wanted)) is not None:
            document = _converted(document, found.from_stored, stored)
        return without_managers({k: v for k, v in document.items() if k not in ("apiVersion", "kind")})

    def _shape(self) -> Shape:
        served = self._served(self._version)
        return self._kind.shape if served is None else served.shape

    def created(self, sent: Any, new: Document, wall_s: float) -> list[Document]:
        """Return the `managedFields` of a new object, which is as its defaults made it; [] for none.

        `sent`: those that its creator sent.
        """
        if not self.is_outside:
            return []
        managed = of_request(None, sent, is_subresource=False)
        if managed or self._version != self._kind.resource.api_version:
            return self._after(managed, empty(self._kind.shape), new, wall_s)
        return encoded(first(new, self._kind.shape, self._manager(), ignored=self._ignored(), time=format_time(wall_s)))

    def updated(self, sent: Any, old: Document, new: Document, wall_s: float) -> list[Document]:
        """Return the `managedFields` of a changed object; [] for none. Those of `old` where nothing changed."""
        live = old["metadata"].get("managedFields") or []
        if not self.is_outside and not live:
            return []
        managed = of_request(live, sent, is_subresource=bool(self._request.subresource))
        if not managed:
            return []
        if (sent is None or sent == live) and without_managers(old) == without_managers(new):
            return list(live)
        return self._after(managed, old, new, wall_s)

    def _after(self, managed: Managed, old: Document, new: Document, wall_s: float) -> list[Document]:
        change = self._comparing(without_managers(old), without_managers(new))
        return encoded(
            updated(
                managed,
                change,
                self._manager(),
                api_version=self._version,
                ignored=self._ignored(),
                time=format_time(wall_s),
            ),
            old.get("metadata", {}).get("managedFields"),
        )

    def applied(self, live: Document | None, config: Document, wall_s: float) -> Applied:
        """Return what applying the configuration makes of the object. Raises: as `managers.applied`."""
        stored, wanted = self._kind.resource.api_version, self._version
        version = Version(
            wanted, self._shape(), lambda before, after, other: self._change(before, after, wanted, other)
        )
        seen = live
        if live is not None and wanted != stored:
            managers = live["metadata"].get("managedFields")
            seen = {"apiVersion": wanted, "kind": live["kind"], **self._in(live, stored, wanted)}
            seen["metadata"] = {**seen["metadata"], "managedFields": managers}
        request = self._request
        result = applied(
            seen,
            config,
            version,
            manager=request.field_manager,
            subresource=request.subresource,
            ignored=self._ignored(),
            is_forced=request.force,
            time=format_time(wall_s),
        )
        kind = self._kind.resource.kind
        document = {"apiVersion": wanted, "kind": kind, **result.document}
        if wanted != stored:
            document = self._checked(document, seen)
            document = {"apiVersion": stored, "kind": kind, **self._in(document, wanted, stored)}
        return result._replace(document=document)

    def _checked(self, document: Document, live: Document | None) -> Document:
        """Return the document as its version reads it. Raises: Invalid where the version's own rules refuse it."""
        served = self._served(self._version)
        if served is None or served.check is None:
            return document
        read, _, causes = served.check(document, live, self._request.subresource)
        if causes:
            raise invalid(self._kind.resource.qualified_kind, self._request.name, causes)
        return read


def _converted(document: Document, conversion: Conversion | None, have: str) -> Document:
    if conversion is None:
        return document
    found = _at_once(conversion([{"apiVersion": have, **document}]))
    return document if found is None else found[0]


def _at_once(running: Any) -> list[Document] | None:
    """Return the result of a conversion that waits for nothing; None for one that has to ask a webhook."""
    assert isinstance(running, Coroutine)
    try:
        running.send(None)
    except StopIteration as done:
        found: list[Document] = done.value
        return found
    running.close()
    return None
