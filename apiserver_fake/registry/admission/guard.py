"""Dynamic admission of one write: the configured webhooks and policies, applied beside the kind's own rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from apiserver_fake.registry.admission.attributes import (
    CREATE,
    NAMESPACES,
    OPERATIONS,
    Admission,
    Admitting,
    Attributes,
    Complete,
    Concern,
    Connection,
    Labels,
    Surroundings,
)
from apiserver_fake.registry.authorization.questions import asker
from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.sessions import Session, convert_documents
from apiserver_fake.registry.strategy import WriteContext
from services.api.errors import ApiError
from services.api.identity import Identity
from services.api.meta import Document, Resource
from services.api.wire import Request


class Configuration(Protocol):
    """The configured webhooks and policies; `WriteContexts` implements it."""

    admission: Admission | None
    """None while no webhook and no policy is configured."""

    def concern(self, resource: Resource, request: Request) -> Concern | None:
        """Return the webhooks and policies that are configured for a write; None if there are none."""
        ...

    def requested_resource(self, resource: Resource, request: Request) -> Resource:
        """Return the kind in the version that the caller uses."""
        ...


class Guard(msgspec.Struct, frozen=True):
    """Runs the webhooks and policies that match one write.

    `session`: the webhooks' answers about the write; None: no webhook is called. `authorize`: the check that
    expressions can call; raises Forbidden.
    """

    configuration: Configuration
    resource: Resource
    identity: Identity
    request: Request
    session: Session | None
    authorize: Callable[[Identity, Request, WriteContext], object]

    def admitting(self, ctx: WriteContext) -> Admitting | None:
        """Return the admission of this write by webhooks and policies; None if none matches it."""
        if self.configuration.admission is None:
            return None
        concern = self.configuration.concern(self.resource, self.request)
        if concern is None:
            return None
        ask = asker(self.identity, lambda who, request: self.authorize(who, request, ctx))
        session = self.session

        def convert(conversion: Conversion, documents: list[Document]) -> list[Document]:
            return convert_documents(conversion, documents, session)

        return concern.admitting(Surroundings(ctx.lookup, ctx.list, Labels(ctx.labels), ask, convert), session)

    def attributes(self, document: Document | None, old: Document | None, name: str) -> Attributes:
        """Return the attributes of the write for admission; `old`: the object before the write."""
        request, resource = self.request, self.resource
        operation = OPERATIONS[request.verb]
        # An existing Namespace has its own name as its namespace.
        own = request.name if resource.name == NAMESPACES and operation != CREATE else ""
        return Attributes(
            operation=operation,
            resource=resource,
            requested=self.configuration.requested_resource(resource, request),
            subresource=request.subresource,
            namespace=request.namespace or own,
            name=name,
            object=document,
            old=old,
            identity=self.identity,
            request=request,
        )

    def mutate(
        self, admitting: Admitting, attributes: Attributes, ctx: WriteContext, complete: Callable[[Document], Document]
    ) -> Document | None:
        """Return the object after mutating policies and webhooks; None for a request without an object. Raises:
        ApiError, Pending.
        """
        try:
            return admitting.mutate(attributes, complete)
        except ApiError as error:
            _say(error, admitting, ctx)
            raise

    def examine(self, admitting: Admitting, attributes: Attributes, ctx: WriteContext) -> None:
        """Check the write against validating policies and webhooks, and pass their warnings on. Raises: ApiError."""
        try:
            admitting.examine(attributes)
        except ApiError as error:
            _say(error, admitting, ctx)
            raise
        ctx.warnings.extend(admitting.warnings)
        ctx.audit.update(admitting.audit)

    def connect(self, ctx: WriteContext, options: Document, complete: Complete) -> Connection:
        """Return the options of a connection after policies and webhooks. Stages nothing. Raises: ApiError, Pending."""
        admitting = self.admitting(ctx)
        if admitting is None:
            return Connection(options)
        name = self.request.name
        changed = self.mutate(admitting, self.attributes(options, None, name), ctx, complete)
        options = options if changed is None else changed
        self.examine(admitting, self.attributes(options, None, name), ctx)
        return Connection(options, tuple(ctx.warnings), ctx.audit)


def _say(error: ApiError, admitting: Admitting, ctx: WriteContext) -> None:
    """Add the warnings and audit annotations that admission gave before the refusal to the refusal."""
    error.warnings = (*ctx.warnings, *admitting.warnings, *error.warnings)
    error.audit = {**ctx.audit, **admitting.audit, **error.audit}
