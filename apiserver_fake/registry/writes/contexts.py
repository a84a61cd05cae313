"""The environment of all writes of a server, and the context that rules may read during one write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from apiserver_fake.registry.accounts import ServiceAccounts
from apiserver_fake.registry.admission.attributes import OPERATIONS, Admission, Concern
from apiserver_fake.registry.catalogue import Catalogue, Kind
from apiserver_fake.registry.managers import FieldManagers
from apiserver_fake.registry.policy import Policy
from apiserver_fake.registry.sessions import Session
from apiserver_fake.registry.strategy import ServerMemory, Strategy, WriteContext
from apiserver_fake.registry.switches import ApiServerSwitches
from apiserver_fake.registry.versions import Versions
from apiserver_fake.registry.writes.new_objects import Limits
from apiserver_fake.storage.records import Record, Selection
from apiserver_fake.storage.store import Staged
from services.api.identity import Identity
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Document, Key, Resource
from services.api.seams import Clock, Random
from services.api.switches import Switches
from services.api.wire import Request

SELDOM_WRITTEN = frozenset(("priorityclasses.scheduling.k8s.io", "limitranges"))
"""Kinds that rules list at every creation of other objects; their documents are kept decoded."""
DOCUMENTS_KEPT = 64


MakeManagers = Callable[[Kind, Identity, Request, Versions], FieldManagers]


class WriteContexts:
    """The environment of all writes; it lives as long as the server."""

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        clock: Clock,
        random: Random,
        switches: Switches,
        limits: Limits,
        policy: Callable[[Identity], Policy | None] | None,
        accounts: ServiceAccounts,
        is_converting: bool,
        managers: MakeManagers,
    ) -> None:
        self.catalogue, self.managers = catalogue, managers
        self._policy, self._accounts, self._is_converting = policy, accounts, is_converting
        self._clock, self._random = clock, random
        self._switches, self._register = switches.of(ApiServerSwitches), switches
        self.limits = limits
        self._memory = ServerMemory()
        self._documents: dict[tuple[str, Key], tuple[Record, Document]] = {}
        self.admission: Admission | None = None
        """The configured webhooks and policies; None while there are none."""

    def wall_s(self) -> float:
        """Return the wall clock's time in seconds."""
        return self._clock.wall()

    def requested_resource(self, resource: Resource, request: Request) -> Resource:
        """Return the kind in the version that the caller uses."""
        if not request.api_version or request.api_version == resource.api_version:
            return resource
        versions = self.catalogue.kind(resource.name).versions
        return next((e.resource for e in versions if e.resource.api_version == request.api_version), resource)

    def concern(self, resource: Resource, request: Request) -> Concern | None:
        """Return the webhooks and policies that are configured for a write; None if there are none."""
        if self.admission is None:
            return None
        operation = OPERATIONS[request.verb]
        return self.admission.concerning(
            operation, resource, self.requested_resource(resource, request), request.subresource
        )

    def context(
        self, identity: Identity, request: Request, staged: Staged, strategy: Strategy, session: Session | None = None
    ) -> WriteContext:
        """Return the context that rules may read during one write; `strategy`: the rules of the kind."""

        def lookup(resource: str, namespace: str, name: str) -> Document | None:
            return document_of(staged.get(resource, namespace, name))

        def documents(resource: str, namespace: str) -> Iterable[Document]:
            if namespace and not staged.count_in(resource, namespace):
                return
            for record in staged.select(resource, Selection(namespace)):
                yield self._decode(record) if resource in SELDOM_WRITTEN else msgspec.json.decode(record.body)

        def labels(resource: str, namespace: str, name: str) -> Mapping[str, str] | None:
            record = staged.get(resource, namespace, name)
            return None if record is None else record.labels

        return WriteContext(
            identity=identity,
            now_s=self._clock.now(),
            wall_s=self._clock.wall() if session is None else session.wall_s,
            switches=self._switches,
            register=self._register,
            random=self._random,
            request=request,
            lookup=lookup,
            list=documents,
            memory=self._memory if session is None or not session.is_rehearsing else self._memory.copy(),
            labels=labels,
            strategy=strategy,
            policy=self._policy(identity) if self._policy is not None else None,
            accounts=self._accounts,
            is_converting=request.resource != DEFINITIONS or self._is_converting,
        )

    def _decode(self, record: Record) -> Document:
        """Return a record's document from a cache; do not change it."""
        known = self._documents.get((record.resource, record.key))
        if known is None or known[0] is not record:
            if len(self._documents) >= DOCUMENTS_KEPT:
                self._documents.clear()
            known = self._documents[record.resource, record.key] = (record, msgspec.json.decode(record.body))
        return known[1]


def document_of(record: Record | None) -> Document | None:
    """Return a fresh copy of a record's document."""
    if record is None:
        return None
    document: Document = msgspec.json.decode(record.body)
    return document
