"""Which objects a list or watch means."""

from __future__ import annotations

import msgspec

from apiserver_fake.storage.records import Record
from services.api.errors import BadRequest
from services.api.meta import Key, Resource
from services.api.selectors import EVERYTHING, Selector, Term, parse_field_selector, parse_label_selector


class Selection(msgspec.Struct, frozen=True):
    """Which objects a list or watch means; an empty namespace means all."""

    namespace: str = ""
    labels: Selector = EVERYTHING
    fields: tuple[Term, ...] = ()

    @classmethod
    def parse(cls, resource: Resource, namespace: str, label_selector: str, field_selector: str) -> Selection:
        """Read both selectors. Raises: BadRequest for bad syntax and for a field this kind cannot select by."""
        terms = parse_field_selector(field_selector).terms if field_selector else ()
        for term in terms:
            if term.key not in ("metadata.name", "metadata.namespace") and term.key not in resource.selectable_fields:
                raise BadRequest(f"field label not supported: {term.key}")
        return cls(namespace, parse_label_selector(label_selector) if label_selector else EVERYTHING, terms)

    def matches(self, record: Record) -> bool:
        """Whether the object is meant."""
        if self.namespace and record.namespace != self.namespace:
            return False
        for term in self.fields:
            if term.key == "metadata.name":
                value = record.name
            elif term.key == "metadata.namespace":
                value = record.namespace
            else:
                value = record.fields.get(term.key, "")
            if (value in term.values) != (term.op == "in"):
                return False
        return not self.labels.terms or self.labels.matches(record.labels)

    def exact(self, field: str) -> str | None:
        """Return the value a field must equal, or None when the selection does not say."""
        for term in self.fields:
            if term.key == field and term.op == "in":
                return term.values[0]
        return None

    @property
    def is_filtered(self) -> bool:
        """Whether anything but the namespace is asked."""
        return bool(self.fields or self.labels.terms)


class Page(msgspec.Struct, frozen=True):
    """A part of a list, in key order. `next_after` None: the list ends here; `remaining` None: unknown."""

    records: list[Record]
    next_after: Key | None = None
    remaining: int | None = None
