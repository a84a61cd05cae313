"""What is configured besides a kind's own rules, in the course of one write: webhooks and policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from apiserver_fake.registry.admission.attributes import (
    CREATE,
    NAMESPACES,
    OPERATIONS,
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
    """Webhooks and policies as they are configured; `WriteContexts` knows them."""

    def concern(self, resource: Resource, request: Request) -> Concern | None:
        """Return what is configured for a write, None for nothing."""
        ...

    def requested_resource(self, resource: Resource, request: Request) -> Resource:
        """Return the kind in the version that the caller uses."""
        ...


class Guard:
    """Takes one write through the webhooks and policies that are about it."""

    def __init__(
        self,
        configuration: Configuration,
        resource: Resource,
        identity: Identity,
        request: Request,
        session: Session | None,
        authorize: Callable[[Identity, Request, WriteContext], object],
    ) -> None:
        """`session`: what webhooks have said of the write; without one none is asked. `authorize`, which expressions
        ask, raises Forbidden."""
        self._configuration, self._resource, self._identity = configuration, resource, identity
        self._request, self._session, self._authorize = request, session, authorize

    def admitting(self, ctx: WriteContext) -> Admitting | None:
        """Return what webhooks and policies do to this write, None when none is about it."""
        concern = self._configuration.concern(self._resource, self._request)
        if concern is None:
            return None
        ask = asker(self._identity, lambda who, request: self._authorize(who, request, ctx))
        session = self._session

        def convert(conversion: Conversion, documents: list[Document]) -> list[Document]:
            return convert_documents(conversion, documents, session)

        return concern.admitting(Surroundings(ctx.lookup, ctx.list, Labels(ctx.labels), ask, convert), session)

    def attributes(self, document: Document | None, old: Document | None, name: str) -> Attributes:
        """Return what admission sees of the write: the object, and as it was before."""
        request, resource = self._request, self._resource
        operation = OPERATIONS[request.verb]
        # A namespace is in itself, once it is there.
        own = request.name if resource.name == NAMESPACES and operation != CREATE else ""
        return Attributes(
            operation=operation,
            resource=resource,
            requested=self._configuration.requested_resource(resource, request),
            subresource=request.subresource,
            namespace=request.namespace or own,
            name=name,
            object=document,
            old=old,
            identity=self._identity,
            request=request,
        )

    def mutate(
        self, admitting: Admitting, attributes: Attributes, ctx: WriteContext, complete: Callable[[Document], Document]
    ) -> Document | None:
        """Return the object as policies and webhooks changed it; None for a request without an object. Raises:
        ApiError, Pending.
        """
        try:
            return admitting.mutate(attributes, complete)
        except ApiError as error:
            _say(error, admitting, ctx)
            raise

    def examine(self, admitting: Admitting, attributes: Attributes, ctx: WriteContext) -> None:
        """Return when nothing refuses the write; what was warned of goes to its caller. Raises: ApiError."""
        try:
            admitting.examine(attributes)
        except ApiError as error:
            _say(error, admitting, ctx)
            raise
        ctx.warnings.extend(admitting.warnings)
        ctx.audit.update(admitting.audit)

    def connect(self, ctx: WriteContext, options: Document, complete: Complete) -> Connection:
        """Return the options of a connection after policies and webhooks; nothing is staged. Raises: ApiError,
        Pending.
        """
        admitting = self.admitting(ctx)
        if admitting is None:
            return Connection(options)
        name = self._request.name
        changed = self.mutate(admitting, self.attributes(options, None, name), ctx, complete)
        options = options if changed is None else changed
        self.examine(admitting, self.attributes(options, None, name), ctx)
        return Connection(options, tuple(ctx.warnings), ctx.audit)


def _say(error: ApiError, admitting: Admitting, ctx: WriteContext) -> None:
    """Put what admission said before it refused beside the refusal."""
    error.warnings = (*ctx.warnings, *admitting.warnings, *error.warnings)
    error.audit = {**ctx.audit, **admitting.audit, **error.audit}
