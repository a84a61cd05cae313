"""The interface between the write path and admission: attributes of a write, questions, and answers. Pure.

The write path knows dynamic admission (webhooks, policies) by these protocols alone; `dynamic` implements them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.sessions import Session, Unanswered
from services.api.errors import UNREADABLE
from services.api.identity import Identity
from services.api.meta import Document, Resource
from services.api.wire import Request
from services.cel.questions import Asker

Key = tuple[str, str, int]
"""Key of a webhook: configuration, name, and its index in the configuration."""
GROUP: Final = "admissionregistration.k8s.io"
MUTATING_WEBHOOKS: Final = f"mutatingwebhookconfigurations.{GROUP}"
VALIDATING_WEBHOOKS: Final = f"validatingwebhookconfigurations.{GROUP}"
MUTATING_POLICIES: Final = f"mutatingadmissionpolicies.{GROUP}"
MUTATING_BINDINGS: Final = f"mutatingadmissionpolicybindings.{GROUP}"
VALIDATING_POLICIES: Final = f"validatingadmissionpolicies.{GROUP}"
VALIDATING_BINDINGS: Final = f"validatingadmissionpolicybindings.{GROUP}"
EXEMPT: Final = frozenset(
    (
        MUTATING_WEBHOOKS,
        VALIDATING_WEBHOOKS,
        MUTATING_POLICIES,
        MUTATING_BINDINGS,
        VALIDATING_POLICIES,
        VALIDATING_BINDINGS,
    )
)
"""Kinds whose writes dynamic admission never checks, so that a wrong configuration can always be reverted."""
CREATE, UPDATE, DELETE, CONNECT = "CREATE", "UPDATE", "DELETE", "CONNECT"
OPERATIONS: Final = {"create": CREATE, "update": UPDATE, "patch": UPDATE, "delete": DELETE, "connect": CONNECT}
"""What admission calls the verbs of writes."""
NAMESPACES: Final = "namespaces"


class TypeName(NamedTuple):
    """A kind in one version."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """The apiVersion of the kind, as objects state it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def document(self) -> Document:
        """Return the GroupVersionKind as JSON."""
        return {"group": self.group, "version": self.version, "kind": self.kind}


SUBRESOURCE_KINDS: Final[Mapping[str, TypeName]] = {
    "binding": TypeName("", "v1", "Binding"),
    "eviction": TypeName("policy", "v1", "Eviction"),
    "scale": TypeName("autoscaling", "v1", "Scale"),
    "unbind": TypeName("", "v1", "PodUnbind"),
}
"""Kinds of the bodies of subresources that have a kind of their own."""
CONNECTION_KINDS: Final[Mapping[tuple[str, str], TypeName]] = {
    ("pods", "exec"): TypeName("", "v1", "PodExecOptions"),
    ("pods", "attach"): TypeName("", "v1", "PodAttachOptions"),
    ("pods", "portforward"): TypeName("", "v1", "PodPortForwardOptions"),
    ("pods", "proxy"): TypeName("", "v1", "PodProxyOptions"),
    ("services", "proxy"): TypeName("", "v1", "ServiceProxyOptions"),
    ("nodes", "proxy"): TypeName("", "v1", "NodeProxyOptions"),
}
"""Kinds of the options by which a connection is admitted, by resource and subresource."""


@dataclass(frozen=True)
class Attributes:
    """The attributes of one request, as admission sees them.

    `resource` is the kind as stored, `requested` the kind in the caller's version. `object` is None for a DELETE,
    `old` for a CREATE; both are in the stored version. For a write of a Namespace, `namespace` is its own name. The
    object of a CONNECT is its options.
    """

    operation: str
    resource: Resource
    requested: Resource
    subresource: str
    namespace: str
    name: str
    object: Document | None
    old: Document | None
    identity: Identity
    request: Request

    @property
    def kind(self) -> TypeName:
        """The kind of `object`, as it is stored."""
        return self.kind_in(self.resource)

    def kind_in(self, resource: Resource) -> TypeName:
        """Return the kind of `object` in the version of that resource."""
        if self.operation == CONNECT:
            return CONNECTION_KINDS[self.resource.name, self.subresource]
        own = SUBRESOURCE_KINDS.get(self.subresource)
        return own or TypeName(resource.group, resource.version, resource.kind)

    def options(self) -> Document | None:
        """Return the options of the request; None for a connection, whose object is its options."""
        if self.operation == CONNECT:
            return None
        request = self.request
        kind = {CREATE: "CreateOptions", UPDATE: "UpdateOptions", DELETE: "DeleteOptions"}[self.operation]
        if request.verb == "patch" and self.operation == UPDATE:
            kind = "PatchOptions"
        options: Document = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if self.operation == DELETE:
            options |= {name: value for name, value in _decode_object(request.body).items() if name not in options}
        elif request.field_manager:
            options["fieldManager"] = request.field_manager
        if request.field_validation and self.operation != DELETE:
            options["fieldValidation"] = request.field_validation
        if request.dry_run:
            options["dryRun"] = ["All"]
        return options

    def review(self, matched: Resource) -> Document:
        """Return the AdmissionRequest as far as expressions see it; `matched`: the version that a rule matched."""
        asked = self.requested

        def resource_of(of: Resource) -> Document:
            return {"group": of.group, "version": of.version, "resource": of.plural}

        identity = self.identity
        return {
            "kind": self.kind_in(matched).document(),
            "resource": resource_of(matched),
            "subResource": self.subresource,
            "requestKind": self.kind_in(asked).document(),
            "requestResource": resource_of(asked),
            "requestSubResource": self.subresource,
            "name": self.name,
            "namespace": self.namespace,
            "operation": self.operation,
            "userInfo": {"username": identity.user, "groups": list(identity.groups), **_said_of(identity)},
            "dryRun": self.request.dry_run,
            "options": self.options(),
        }


def _said_of(identity: Identity) -> Document:
    """Return the uid of a caller and what else is known of it, when authentication says so."""
    user_details: Document = {}
    if uid := getattr(identity, "uid", ""):
        user_details["uid"] = uid
    if extra := getattr(identity, "extra", ()):
        user_details["extra"] = {key: list(values) for key, values in extra}
    return user_details


def _decode_object(body: bytes) -> Document:
    try:
        found = msgspec.json.decode(body) if body else {}
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}


class Labels:
    """The labels of namespaces, read through a lookup; an unknown namespace has no labels."""

    def __init__(self, lookup: Callable[[str, str, str], Mapping[str, str] | None]) -> None:
        self._lookup = lookup

    def __call__(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace."""
        return self._lookup(NAMESPACES, "", namespace) or {}


Convert = Callable[[Conversion, list[Document]], list[Document]]
"""Function that converts objects to another version. It raises Unanswered if a webhook must be called first."""


@dataclass(frozen=True)
class Surroundings:
    """The state that admission may read besides the request: stored and staged objects, authorization, conversions."""

    lookup: Callable[[str, str, str], Document | None]
    list: Callable[[str, str], Iterable[Document]]
    labels: Labels
    ask: Asker
    convert: Convert


@dataclass(frozen=True)
class Answer:
    """The webhooks' answer about an object. `again`: webhooks to call again if something else changes the
    object.

    `due`: webhooks to call again because the object has already changed after their call.
    """

    object: Document | None
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    again: frozenset[Key] = frozenset()
    due: frozenset[Key] = frozenset()


class Pending(Unanswered):
    """A write waits for the answer of admission webhooks. This is raised inside the server and never sent to a
    caller.

    `complete`: returns the object with its defaults. `only`: the webhooks of a reinvocation.
    """

    def __init__(
        self,
        webhooks: Sequence[Any],
        attributes: Attributes,
        world: Any,
        *,
        is_mutating: bool,
        complete: Callable[[Document], Document] | None = None,
        only: frozenset[Key] | None = None,
    ) -> None:
        super().__init__(
            "the write waits for admission webhooks", (is_mutating, attributes.object, attributes.old, only)
        )
        self.webhooks, self.found, self.world = webhooks, attributes, world
        self.is_mutating, self.complete, self.only = is_mutating, complete, only


Complete = Callable[[Document], Document]
"""Function that returns the object with its defaults."""


@dataclass(frozen=True)
class Connection:
    """An admitted connection: its options after admission, warnings, and audit annotations."""

    options: Document
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)


class Admitting(Protocol):
    """One write on its way through its configuration; `warnings` and `audit` collect what policies and webhooks
    report.
    """

    warnings: list[str]
    audit: dict[str, str]

    def mutate(self, found: Attributes, complete: Complete) -> Document | None:
        """Return the object as policies and webhooks changed it; None for a request without an object. Raises:
        ApiError, Pending.
        """
        ...

    def examine(self, found: Attributes) -> None:
        """Check the write as it will be committed; return if nothing refuses it. Raises: ApiError, Pending."""
        ...


class Concern(Protocol):
    """The policies and webhooks for one operation on one resource."""

    @property
    def calls(self) -> bool:
        """Whether a webhook may have to be called."""
        ...

    def admitting(self, surroundings: Surroundings, session: Session | None) -> Admitting:
        """Return an `Admitting` for one write."""
        ...


class Calls(Protocol):
    """Caller of webhooks."""

    async def answer(self, pending: Pending, deadline_s: float, traceparent: str) -> Answer:
        """Return the webhooks' answer that a pending write waits for. Raises: ApiError when they refuse the write.

        `traceparent`: that of the write.
        """
        ...

    async def close(self) -> None:
        """End all connections to webhooks."""
        ...


class Admission(Calls, Protocol):
    """All configured webhooks and policies. `is_active`: whether there are any."""

    is_active: bool

    def refresh(self) -> None:
        """Read the stored configuration again."""
        ...

    def status_of(self, policy: Document) -> Document:
        """Return the status of a ValidatingAdmissionPolicy: the findings of type checking."""
        ...

    def concerning(self, operation: str, resource: Resource, requested: Resource, subresource: str) -> Concern | None:
        """Return the configuration for that operation; None if there is none. `requested`: the resource in the
        caller's version.
        """
        ...
