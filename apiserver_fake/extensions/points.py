"""Places of the kernel that extensions fill: what each is made of and when. An empty place is an extension left out."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from apiserver_fake.registry.accounts import Find, Tokens
from apiserver_fake.registry.admission.attributes import Admission
from apiserver_fake.registry.authorization.access import Access
from apiserver_fake.registry.catalogue import NO_EXTENSIONS, Catalogue, KindExtensions
from apiserver_fake.registry.managers import no_managers
from apiserver_fake.registry.policy import PolicySource
from apiserver_fake.registry.write import MakeManagers
from apiserver_fake.storage.records import Change, Record
from apiserver_fake.storage.store import Store
from services.api.meta import Document
from services.api.metrics.usage import UsageDocuments
from services.api.wire import Api, Request, Response

if TYPE_CHECKING:
    from apiserver_fake.extensions.audit.auditor import Auditor
    from apiserver_fake.extensions.customresources.definition_index import DefinitionIndex


class StoredPolicy(PolicySource, Protocol):
    """The policy that stored Roles and bindings make."""

    def note(self, changes: Iterable[Change]) -> None:
        """Take notice of commits."""
        ...


class TokenSecrets(Protocol):
    """Keeps secrets that hold tokens of service accounts."""

    def note_secret(self, namespace: str, name: str) -> None:
        """Look at a secret."""
        ...

    def note_account(self, namespace: str, name: str) -> None:
        """Look at the secrets of an account."""
        ...

    def change_authority(self, authority: str) -> None:
        """Put another bundle of certificates into the secrets."""
        ...

    async def run(self) -> None:
        """Write what secrets lack, until cancelled."""
        ...


class Definitions(Protocol):
    """The stored CustomResourceDefinitions, and the kinds that they define."""

    @property
    def index(self) -> DefinitionIndex:
        """The heads of all definitions."""
        ...

    def recover(self, records: Sequence[Record]) -> None:
        """Serve what the definitions of a recovered store define."""
        ...

    def note(self, change: Change) -> None:
        """Take notice of one committed definition, before watches show it."""
        ...

    def published(self, changes: Sequence[Change]) -> None:
        """Serve what changed definitions define now, after watches have shown them."""
        ...

    def look_at(self, record: Record, *, is_gone: bool) -> None:
        """Let the controller look at a definition."""
        ...

    async def run(self) -> None:
        """Move definitions to the states they ask for, until cancelled."""
        ...


class KwokKinds(Protocol):
    """KWOK's kinds, as custom resources and as files."""

    def writes(self, store: Store) -> Iterator[Request]:
        """Yield what makes the definitions be there."""
        ...

    def usages(self, store: Store) -> UsageDocuments:
        """Return what files and objects say that pods use."""
        ...


MakeDefinitions = Callable[[Store, Catalogue, Callable[[], Api], Callable[[str], None]], Definitions]
"""`ended`, the last: called with the wire name of a kind that is not served as before."""
MakeTokenSecrets = Callable[[Tokens, str, Find, Callable[[str], Iterable[Document]], Callable[[], Api]], TokenSecrets]
Computed = Callable[[Request, Store, float, Container[str], UsageDocuments | None], Response]
"""The answer to a read of a kind that is computed: `(request, store, wall_s, users of watches, usages)`."""


def _no_objects(access: Access, find: Find) -> Iterator[Request]:
    return iter(())


@dataclass(frozen=True)
class Extensions:
    """The extensions of one server. A function is called when the server first needs what it makes.

    `kinds`: what extensions say of built-in kinds. `managers`: `metadata.managedFields`. `admission`: webhooks and
    policies. `definitions`: custom resources; `is_converting`: whether their conversion webhooks can be called.
    `stored_policy`: RBAC objects. `access_objects`: the writes that bring about what a mode of access needs.
    `token_secrets`: secrets with tokens of accounts. `computed`: metrics and other kinds that are read and never
    stored. `audit`: the audit log. `kwok`: KWOK's kinds as custom resources.
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
