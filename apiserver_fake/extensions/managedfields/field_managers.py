"""The field manager of a write, and the object's `managedFields` after it.

Writes from outside are tracked from an object's creation on. Writes of the mesh's own components are tracked
only on objects that already have managers, that is, those that users made or applied. Objects that components
make have no managers until their first apply, as in upstream for objects of unknown history (decision 0030).
"""

from collections.abc import Callable
from typing import Any

from apiserver_fake.extensions.managedfields.comparison import Comparison, compare
from apiserver_fake.extensions.managedfields.fieldset import LEAF, NOTHING, Fields
from apiserver_fake.extensions.managedfields.managers import (
    UNKNOWN,
    UPDATE,
    Managed,
    Manager,
    Version,
    apply_configuration,
    empty,
    encode_managers,
    first,
    of_request,
    update_managers,
    without_managers,
)
from apiserver_fake.registry.catalogue import Kind
from apiserver_fake.registry.managers import STATUS, Applied
from apiserver_fake.registry.schema.schemas import Shape
from apiserver_fake.registry.sessions import Unanswered
from apiserver_fake.registry.status_metadata import ALL, writable_members
from apiserver_fake.registry.versions import Versions
from services.api.errors import ApiError, invalid
from services.api.identity import CONTROLLER_PREFIX, NODE_PREFIX, SCHEDULER, Identity
from services.api.meta import Document
from services.api.times import format_time
from services.api.wire import Request


def component(identity: Identity) -> str:
    """Return the manager name of a mesh component, as upstream's component names itself; "" for any other caller."""
    if identity.user.startswith(NODE_PREFIX):
        return "kubelet"
    if identity.user.startswith(CONTROLLER_PREFIX):
        return "kube-controller-manager"
    return "kube-scheduler" if identity == SCHEDULER else ""


class TrackedManagers:
    """The managers of one object during one write."""

    def __init__(self, kind: Kind, identity: Identity, request: Request, versions: Versions) -> None:
        self._kind, self._identity, self._request, self._versions = kind, identity, request, versions
        self.is_outside = bool(request.field_validation)
        self._version = request.api_version or kind.resource.api_version

    def _manager(self) -> Manager:
        name = component(self._identity) or self._request.field_manager or UNKNOWN
        return Manager(name, UPDATE, self._version, self._request.subresource)

    def _ignored_fields(self) -> Fields:
        """What this write cannot change: the status, or, where it is of the status, spec and metadata it leaves."""
        if self._request.subresource == STATUS:
            kept = [name for name in ALL if name not in writable_members(self._request.resource)]
            meta = {} if not kept else {"f:metadata": LEAF if len(kept) == len(ALL) else {f"f:{n}": LEAF for n in kept}}
            return {"f:spec": LEAF, **meta}
        return {"f:status": LEAF} if STATUS in self._kind.resource.subresources else NOTHING

    def _comparing(self, old: Document | None, new: Document) -> Callable[[str], Comparison | None]:
        """Return how the stored object changes, as each version has it; `old` None: it is new."""

        def change(api_version: str) -> Comparison | None:
            return self._change(old, new, self._kind.resource.api_version, api_version)

        return change

    def _change(self, old: Document | None, new: Document, have: str, wanted: str) -> Comparison | None:
        served = self._versions.served_version(wanted)
        if served is None:
            return None
        found = self._in([new] if old is None else [old, new], have, wanted)
        return compare(empty(served.shape) if old is None else found[0], found[-1], served.shape)

    def _in(self, documents: list[Document], have: str, wanted: str) -> list[Document]:
        """Return objects in another version, without their type. Raises: ApiError, Unanswered."""
        if have != wanted:
            typed = {"apiVersion": have, "kind": self._kind.resource.kind}
            documents = self._versions.convert([{**each, **typed} for each in documents], have, wanted)
        return [_content(each) for each in documents] if have != wanted else documents

    def _shape(self) -> Shape:
        served = self._versions.served_version(self._version)
        return self._kind.shape if served is None else served.shape

    def managers_after_create(self, sent: Any, new: Document, wall_s: float) -> list[Document]:
        """Return the `managedFields` of a new object after defaulting; [] for none.

        `sent`: the `managedFields` that its creator sent.
        """
        if not self.is_outside:
            return []
        managed = of_request(None, sent, is_subresource=False)
        if managed or self._version != self._kind.resource.api_version:
            return self._after(managed, None, new, wall_s)
        return encode_managers(
            first(new, self._kind.shape, self._manager(), ignored=self._ignored_fields(), time=format_time(wall_s))
        )

    def managers_after_update(self, sent: Any, old: Document, new: Document, wall_s: float) -> list[Document]:
        """Return the `managedFields` of an updated object; [] for none. If nothing changed, those of `old` stay."""
        live = old["metadata"].get("managedFields") or []
        if not self.is_outside and not live:
            return []
        managed = of_request(live, sent, is_subresource=bool(self._request.subresource))
        if not managed:
            return []
        if (sent is None or sent == live) and without_managers(old) == without_managers(new):
            return list(live)
        return self._after(managed, old, new, wall_s)

    def _after(self, managed: Managed, old: Document | None, new: Document, wall_s: float) -> list[Document]:
        """Return the managers after a write; those of before where objects cannot be converted, as upstream does."""
        live = [] if old is None else old["metadata"].get("managedFields") or []
        change = self._comparing(None if old is None else without_managers(old), without_managers(new))
        try:
            managers = update_managers(
                managed,
                change,
                self._manager(),
                api_version=self._version,
                ignored=self._ignored_fields(),
                time=format_time(wall_s),
            )
        except Unanswered:
            raise
        except ApiError:
            return list(live)
        return encode_managers(managers, live)

    def apply(self, live: Document | None, config: Document, wall_s: float) -> Applied:
        """Return the object after applying the configuration. Raises: as `managers.apply_configuration`."""
        stored, wanted = self._kind.resource.api_version, self._version
        version = Version(
            wanted, self._shape(), lambda before, after, other: self._change(before, after, wanted, other)
        )
        seen = live
        if live is not None and wanted != stored:
            managers = live["metadata"].get("managedFields")
            [content] = self._in([live], stored, wanted)
            seen = {"apiVersion": wanted, "kind": live["kind"], **content}
            seen["metadata"] = {**seen["metadata"], "managedFields": managers}
        request = self._request
        result = apply_configuration(
            seen,
            config,
            version,
            manager=request.field_manager,
            subresource=request.subresource,
            ignored=self._ignored_fields(),
            is_forced=request.force,
            time=format_time(wall_s),
        )
        kind = self._kind.resource.kind
        document = {"apiVersion": wanted, "kind": kind, **result.document}
        if wanted != stored:
            document = self._read_by_version(document, seen)
            [content] = self._in([document], wanted, stored)
            document = {"apiVersion": stored, "kind": kind, **content}
        stored_managers = None if live is None else live["metadata"].get("managedFields")
        return Applied(document, encode_managers(result.managed, stored_managers))

    def _read_by_version(self, document: Document, live: Document | None) -> Document:
        """Return the document as its version reads it. Raises: Invalid where the version's own rules refuse it."""
        served = self._versions.served_version(self._version)
        if served is None or served.check is None:
            return document
        read, _, causes = served.check(document, live, self._request.subresource)
        if causes:
            raise invalid(self._kind.resource.qualified_kind, self._request.name, causes)
        return read


def _content(document: Document) -> Document:
    return without_managers({k: v for k, v in document.items() if k not in ("apiVersion", "kind")})
