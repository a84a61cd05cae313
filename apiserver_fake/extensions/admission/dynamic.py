"""Dynamic admission: runs the configured webhooks and policies for one write, in upstream's order. Pure.

The order: mutating policies; mutating webhooks; once more those of both that ask for reinvocation; the kind's
own rules; validating policies; validating webhooks. Policies are compiled when they are stored, and evaluated
in the commit. The commit does not call webhooks: it only uses the answers they gave before
(`webhooks.Session`).

A write that no configuration matches costs one table lookup; without any configuration there is no table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from apiserver_fake.extensions.admission.mutating_policies import Mutating, mutate, mutating
from apiserver_fake.extensions.admission.policies import Binding, Hook, Policy, World, binding_of, compile_policy
from apiserver_fake.extensions.admission.type_checking import status_of
from apiserver_fake.extensions.admission.validating_policies import Validating, denial, examine, validating
from apiserver_fake.extensions.admission.webhooks import Webhook, webhooks_of
from apiserver_fake.registry.admission.attributes import (
    EXEMPT,
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    MUTATING_WEBHOOKS,
    VALIDATING_BINDINGS,
    VALIDATING_POLICIES,
    VALIDATING_WEBHOOKS,
    Answer,
    Attributes,
    Calls,
    Complete,
    Key,
    Pending,
    Surroundings,
)
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.sessions import Session
from apiserver_fake.storage.records import Record, Selection
from apiserver_fake.storage.store import Store
from services.api.meta import Document, Resource


@dataclass(frozen=True)
class Configured:
    """The policies and webhooks for one operation on one resource, as far as operation and resource alone decide."""

    catalogue: Catalogue
    mutating_policies: tuple[Hook[Mutating], ...]
    mutating_webhooks: tuple[Webhook, ...]
    validating_policies: tuple[Hook[Validating], ...]
    validating_webhooks: tuple[Webhook, ...]

    @property
    def is_any(self) -> bool:
        """Whether any policy or webhook is configured."""
        return bool(self.mutating_policies or self.validating_policies or self.calls)

    @property
    def calls(self) -> bool:
        """Whether a webhook may have to be called."""
        return bool(self.mutating_webhooks or self.validating_webhooks)

    def admitting(self, surroundings: Surroundings, session: Session | None) -> Admitting:
        """Return an `Admitting` that takes one write through this configuration."""
        return Admitting(self, World(self.catalogue, surroundings), session)


class DynamicAdmission:
    """The compiled configuration of webhooks and policies. `refresh` reads it again; `is_active`: it is not empty."""

    def __init__(self, store: Store, catalogue: Catalogue, calls: Calls) -> None:
        self._store, self._catalogue, self._calls = store, catalogue, calls
        self._known: dict[tuple[str, str], tuple[Record, Any]] = {}
        self._nothing = self._all = Configured(catalogue, (), (), (), ())
        self.is_active = False

    def refresh(self) -> None:
        """Read the stored configuration; unchanged objects are not compiled again."""
        known: dict[tuple[str, str], tuple[Record, Any]] = {}

        def read(resource: str, make: Callable[[Document], Any]) -> list[Any]:
            configurations = []
            for record in self._store.select(resource, Selection()).records:
                place = (resource, record.name)
                before = self._known.get(place)
                if before is None or before[0] is not record:
                    before = (record, make(msgspec.json.decode(record.body)))
                known[place] = before
                configurations.append(before[1])
            return configurations

        self._all = Configured(
            self._catalogue,
            _hooks(
                read(MUTATING_POLICIES, lambda each: compile_policy(each, mutating)),
                read(MUTATING_BINDINGS, _policy_name_and_binding),
            ),
            tuple(hook for each in read(MUTATING_WEBHOOKS, webhooks_of) for hook in each),
            _hooks(
                read(VALIDATING_POLICIES, lambda each: compile_policy(each, validating)),
                read(VALIDATING_BINDINGS, _policy_name_and_binding),
            ),
            tuple(hook for each in read(VALIDATING_WEBHOOKS, webhooks_of) for hook in each),
        )
        self._known = known
        self._concerns.clear()
        self.is_active = self._all.is_any

    async def answer(self, pending: Pending, deadline_s: float, traceparent: str) -> Answer:
        """Return the webhooks' answer that a pending write waits for. Raises: ApiError when they refuse the write."""
        return await self._calls.answer(pending, deadline_s, traceparent)

    async def close(self) -> None:
        """End all connections to webhooks."""
        await self._calls.close()

    @property
    def _concerns(self) -> dict[tuple[str, str, str, str], Configured]:
        made: dict[tuple[str, str, str, str], Configured] = {}
        return self._catalogue.once("admission", lambda: made)

    def status_of(self, policy: Document) -> Document:
        """Return the status of a ValidatingAdmissionPolicy: the findings of type checking."""
        return status_of(policy, self._catalogue)

    def concerning(
        self, operation: str, resource: Resource, requested: Resource, subresource: str
    ) -> Configured | None:
        """Return the configuration for that operation; None if there is none. `requested`: the resource in the
        caller's version.
        """
        place = (operation, resource.name, requested.version, subresource)
        configuration = self._concerns.get(place)
        if configuration is None:
            configuration = self._concerning(operation, resource, requested, subresource)
            self._concerns[place] = configuration
        return configuration if configuration.is_any else None

    def _concerning(self, operation: str, resource: Resource, requested: Resource, subresource: str) -> Configured:
        if resource.name in EXEMPT:
            return self._nothing
        versions = [each.resource for each in self._catalogue.kind(resource.name).versions]

        def covers(each: Webhook | Policy[Any]) -> bool:
            return each.match.covering(operation, requested, subresource, versions) is not None

        every = self._all
        return Configured(
            self._catalogue,
            tuple(each for each in every.mutating_policies if covers(each.policy)),
            tuple(filter(covers, every.mutating_webhooks)),
            tuple(each for each in every.validating_policies if covers(each.policy)),
            tuple(filter(covers, every.validating_webhooks)),
        )


def _policy_name_and_binding(document: Document) -> tuple[str, Binding]:
    return str((document.get("spec") or {}).get("policyName", "")), binding_of(document)


def _hooks(policies: list[Policy[Any]], bindings: list[tuple[str, Binding]]) -> tuple[Hook[Any], ...]:
    """Return the policies that are bound, in the order of their names."""
    by_policy: dict[str, list[Binding]] = {}
    for name, binding in bindings:
        by_policy.setdefault(name, []).append(binding)
    return tuple(Hook(each, tuple(by_policy[each.name])) for each in policies if each.name in by_policy)


class Admitting:
    """One write on its way through its configuration; `warnings` and `audit` collect what policies and webhooks
    report.
    """

    def __init__(self, concern: Configured, world: World, session: Session | None) -> None:
        self._concern, self._world, self._session = concern, world, session
        self.warnings: list[str] = []
        self.audit: dict[str, str] = {}

    def mutate(self, attributes: Attributes, complete: Complete) -> Document | None:
        """Return the object as policies and webhooks changed it; None for a request without an object.

        Raises: ApiError when the request is refused, Pending when webhooks were not called yet.
        """
        policies = self._concern.mutating_policies if attributes.object is not None else ()
        before = attributes.object
        first = mutate(policies, attributes, self._world, complete) if policies else None
        if first is not None:
            attributes = replace(attributes, object=first.object)
        asked = self._ask_mutating(attributes, complete, None)
        if asked is not None:
            attributes = replace(attributes, object=asked.object)
        if attributes.object is None or attributes.object == before:
            return attributes.object
        # What came first may want to see what came after it: once, and only those that say so.
        if first is not None:
            due = first.again if first.object != attributes.object else first.due
            if due:
                attributes = replace(attributes, object=mutate(policies, attributes, self._world, complete, due).object)
        if asked is not None and (again := asked.again if asked.object != attributes.object else asked.due):
            once_more = self._ask_mutating(attributes, complete, again)
            if once_more is not None:
                attributes = replace(attributes, object=once_more.object)
        return attributes.object

    def _ask_mutating(self, found: Attributes, complete: Complete, only: frozenset[Key] | None) -> Answer | None:
        hooks, session = self._concern.mutating_webhooks, self._session
        if session is None or not any(each.should_be_called(found, self._world) for each in hooks):
            return None
        pending = Pending(hooks, found, self._world, is_mutating=True, complete=complete, only=only)
        found_answer: Answer = session.ask(pending)
        return self._note_answer(found_answer)

    def examine(self, attributes: Attributes) -> None:
        """Check the write as it will be committed; return if nothing refuses it. Raises: ApiError, Pending."""
        if self._concern.validating_policies:
            outcome = examine(self._concern.validating_policies, attributes, self._world)
            self.warnings += outcome.warnings
            self.audit |= outcome.audit
            if (refused := denial(outcome, attributes)) is not None:
                raise refused
        hooks, session = self._concern.validating_webhooks, self._session
        if session is None:
            return
        meant = tuple(each for each in hooks if each.should_be_called(attributes, self._world))
        if meant:
            self._note_answer(session.ask(Pending(meant, attributes, self._world, is_mutating=False)))

    def _note_answer(self, answer: Answer) -> Answer:
        self.warnings += answer.warnings
        self.audit |= answer.audit
        return answer
