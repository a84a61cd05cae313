"""Extension points of the kernel: how and when each extension is made. Any extension can be left out.

`Extensions` are the extension points of a server, `LiveExtensions` the extensions of a running one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from apiserver_fake.registry.accounts import LEGACY_TYPE, Find, Tokens
from apiserver_fake.registry.admission.attributes import Admission
from apiserver_fake.registry.authorization.access import Access
from apiserver_fake.registry.catalogue import NO_EXTENSIONS, Catalogue, KindExtensions
from apiserver_fake.registry.managers import no_managers
from apiserver_fake.registry.policy import PolicySource
from apiserver_fake.registry.writes.contexts import MakeManagers
from apiserver_fake.storage.records import DELETED, Change, Record, Selection
from apiserver_fake.storage.store import Store
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Document
from services.api.metrics.usage import UsageDocuments
from services.api.wire import Api, Request, Response

if TYPE_CHECKING:
    from apiserver_fake.extensions.audit.auditor import Auditor
    from apiserver_fake.extensions.customresources.definition_index import DefinitionIndex

SECRETS: Final = "secrets"
ACCOUNTS: Final = "serviceaccounts"


class StoredPolicy(PolicySource, Protocol):
    """The RBAC policy of the stored Roles and bindings."""

    def note(self, changes: Iterable[Change]) -> None:
        """Update the policy from committed changes."""
        ...


class TokenSecrets(Protocol):
    """The controller of service account token secrets."""

    def note_secret(self, namespace: str, name: str) -> None:
        """Queue a secret for a check."""
        ...

    def note_account(self, namespace: str, name: str) -> None:
        """Queue the secrets of an account for a check."""
        ...

    def change_authority(self, authority: str) -> None:
        """Replace the certificate bundle in the secrets."""
        ...

    async def run(self) -> None:
        """Fill the secrets, until cancelled."""
        ...


class Definitions(Protocol):
    """The stored CustomResourceDefinitions, and the kinds that they define."""

    @property
    def index(self) -> DefinitionIndex:
        """The heads of all definitions."""
        ...

    def recover(self, records: Sequence[Record]) -> None:
        """Serve the kinds of a recovered store's definitions."""
        ...

    def note(self, change: Change) -> None:
        """Record one committed definition, before watches show it."""
        ...

    def on_published(self, changes: Sequence[Change]) -> None:
        """Serve the kinds of changed definitions, after watches have shown the changes."""
        ...

    def look_at(self, record: Record, *, is_gone: bool) -> None:
        """Queue a definition for the controller."""
        ...

    async def run(self) -> None:
        """Move definitions to the states they ask for, until cancelled."""
        ...


class KwokKinds(Protocol):
    """KWOK's kinds, from custom resources and from files."""

    def writes(self, store: Store) -> Iterator[Request]:
        """Yield the writes that create or update the definitions."""
        ...

    def usages(self, store: Store) -> UsageDocuments:
        """Return the resource usage in files and stored objects."""
        ...


MakeDefinitions = Callable[[Store, Catalogue, Callable[[], Api], Callable[[str], None]], Definitions]
"""Function that makes `Definitions`. Its last parameter, `ended`, is called with the wire name of a kind
that is no longer served as before.
"""
MakeTokenSecrets = Callable[[Tokens, str, Find, Callable[[str], Iterable[Document]], Callable[[], Api]], TokenSecrets]
Computed = Callable[[Request, Store, float, Container[str], UsageDocuments | None], Response]
"""Function that answers a read of a computed kind: `(request, store, wall_s, users of watches, usages)`."""


def _no_objects(access: Access, find: Find) -> Iterator[Request]:
    return iter(())


@dataclass(frozen=True)
class Extensions:
    """The extensions of one server. Each function is called when the server first needs its result.

    `kinds`: extensions of built-in kinds. `managers`: `metadata.managedFields`. `admission`: webhooks and policies.
    `definitions`: custom resources; `is_converting`: whether their conversion webhooks can be called.
    `stored_policy`: RBAC objects. `access_objects`: the writes that create or update the objects that the access
    settings need. `token_secrets`: service account token secrets. `computed`: metrics and other kinds that are read
    and never stored. `audit`: the audit log. `kwok`: KWOK's kinds as custom resources.
    """

    kinds: KindExtensions = NO_EXTENSIONS
    managers: MakeManagers = no_managers
    admission: Callable[[Store, Catalogue], Admission] | None = None
    definitions: MakeDefinitions | None = None
    is_converting: bool = False
    stored_policy: Callable[[Store], StoredPolicy] | None = None
    access_objects: Callable[[Access, Find], Iterator[Request]] = _no_objects
    token_secrets: MakeTokenSecrets | None = None
    computed: Computed | None = None
    audit: Auditor | None = None
    kwok: KwokKinds | None = None


class LiveExtensions:
    """The extensions of one running server: each is made when the server first needs it, and notices commits."""

    def __init__(
        self,
        extensions: Extensions,
        store: Store,
        catalogue: Catalogue,
        *,
        access: Access,
        find: Find,
        api: Callable[[], Api],
        ended: Callable[[str], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`find`: returns a stored object by resource, namespace and name. `api`: returns the server's API as itself.
        `ended` is called with the wire name of a kind that is no longer served as before. `spawn` runs a task for as
        long as the server runs."""
        self._extensions, self._store, self._catalogue = extensions, store, catalogue
        self._api, self._ended, self._spawn = api, ended, spawn
        self._definitions: Definitions | None = None
        self._is_controlling = False
        self._admission: Admission | None = None
        self.stored_policy = extensions.stored_policy(store) if extensions.stored_policy is not None else None
        """The policy of the stored RBAC objects; None if they grant nothing."""
        self._token_secrets: TokenSecrets | None = None
        if extensions.token_secrets is not None and access.accounts.tokens is not None:
            self._token_secrets = extensions.token_secrets(
                access.accounts.tokens, access.authority, find, self._token_secrets_in, api
            )

    def definitions(self) -> Definitions | None:
        """Return the extension that serves custom resources; None if it is left out."""
        if self._definitions is None and (make := self._extensions.definitions) is not None:
            self._definitions = make(self._store, self._catalogue, self._api, self._ended)
        return self._definitions

    def admission(self) -> Admission | None:
        """Return webhooks and policies; None if the extension is left out."""
        if self._admission is None and (make := self._extensions.admission) is not None:
            self._admission = make(self._store, self._catalogue)
        return self._admission

    def recover(self) -> None:
        """Serve the kinds of a recovered store's definitions. Raises: one of `UNREADABLE`."""
        records = self._store.select(DEFINITIONS, Selection()).records
        if records and (definitions := self.definitions()) is not None:
            definitions.recover(records)

    def run_token_secrets(self) -> None:
        """Run the controller of service account token secrets, unless it is left out."""
        if self._token_secrets is not None:
            self._spawn(self._token_secrets.run())

    def look_at_definitions(self) -> None:
        """Queue the stored definitions for their controller, which runs from the first definition on."""
        for record in self._store.select(DEFINITIONS, Selection()).records:
            if (definitions := self.definitions()) is not None:
                definitions.look_at(record, is_gone=False)
                self._control(definitions)

    def _control(self, definitions: Definitions) -> None:
        """Run the controller of definitions, unless it runs already."""
        if not self._is_controlling:
            self._is_controlling = True
            self._spawn(definitions.run())

    def note(self, changes: Sequence[Change]) -> list[Change]:
        """Pass commits to the extensions before watches show them; return the changes of CustomResourceDefinitions."""
        if self.stored_policy is not None:
            self.stored_policy.note(changes)
        if self._token_secrets is not None:
            self._note_accounts(self._token_secrets, changes)
        redefined: list[Change] = []
        for change in changes:
            if change.record.resource == DEFINITIONS:
                redefined.append(change)
        if redefined and (definitions := self.definitions()) is not None:
            for change in redefined:
                definitions.note(change)
        return redefined

    def on_published(self, redefined: Sequence[Change]) -> None:
        """Serve the kinds that changed definitions define, after watches have shown the changes."""
        if (definitions := self.definitions()) is not None:
            definitions.on_published(redefined)
            self._control(definitions)

    def _note_accounts(self, secrets: TokenSecrets, changes: Sequence[Change]) -> None:
        for change in changes:
            record = change.record
            if record.resource == SECRETS and record.fields.get("type") == LEGACY_TYPE and change.type != DELETED:
                secrets.note_secret(record.namespace, record.name)
            elif record.resource == ACCOUNTS and change.type != "MODIFIED":
                secrets.note_account(record.namespace, record.name)

    def _token_secrets_in(self, namespace: str) -> Iterator[Document]:
        for record in self._store.select(SECRETS, Selection(namespace)).records:
            if record.fields.get("type") == LEGACY_TYPE:
                yield msgspec.json.decode(record.body)

    def change_authority(self, authority: str) -> None:
        """Replace the certificate bundle in service account token secrets."""
        if self._token_secrets is not None:
            self._token_secrets.change_authority(authority)

    async def close(self) -> None:
        """End all connections to webhooks."""
        if self._admission is not None:
            await self._admission.close()
