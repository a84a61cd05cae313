"""KWOK's kinds in this server: the definitions it keeps, validation of their objects, and pod usage from
them. Pure.

Source: kubernetes-sigs/kwok pkg/kwok/server/metrics_resource_usage.go; decision 0078.
"""

from collections.abc import Iterator, Sequence
from zlib import crc32

import msgspec

from apiserver_fake.registry.validation.formats import Cause
from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Store
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Document
from services.api.wire import Request
from services.kwok.definitions import definition, problem_of, resource_of
from services.kwok.documents import Configuration
from services.kwok.objects import KwokObjects
from services.kwok.usage import Usages

USAGES = ("ResourceUsage", "ClusterResourceUsage")
CONTENT = "keplab.dev/definition"
"""Annotation that marks a definition made by this server; its value shows whether another release made it."""


class KwokKinds:
    """The served KWOK kinds, and the ResourceUsages of files. `runs_commands`: port forwards may run commands."""

    def __init__(
        self, kinds: Sequence[str], configuration: Configuration, seed: int = 0, *, runs_commands: bool = False
    ) -> None:
        self.kinds = kinds
        self._configuration, self._seed, self._runs_commands = configuration, seed, runs_commands
        self._seen: tuple[tuple[str, str, int], ...] = ()
        self._usages = Usages(configuration["ResourceUsage"], seed)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the definitions."""
        return tuple(resource_of(kind).name for kind in self.kinds)

    def writes(self, store: Store) -> Iterator[Request]:
        """Yield the writes that create or update the definitions to this release's; definitions made by others stay
        unchanged.
        """
        for kind in self.kinds:
            wanted = _with_content_mark(definition(kind))
            name, mark = wanted["metadata"]["name"], wanted["metadata"]["annotations"][CONTENT]
            record = store.get(DEFINITIONS, "", name)
            if record is None:
                yield Request(verb="create", resource=DEFINITIONS, body=msgspec.json.encode(wanted))
                continue
            stored: Document = msgspec.json.decode(record.body)
            known = (stored["metadata"].get("annotations") or {}).get(CONTENT)
            if known is not None and known != mark:
                annotations = {**stored["metadata"]["annotations"], CONTENT: mark}
                new = {**stored, "metadata": {**stored["metadata"], "annotations": annotations}, "spec": wanted["spec"]}
                yield Request(verb="update", resource=DEFINITIONS, name=name, body=msgspec.json.encode(new))

    def check(self, document: Document) -> list[Cause]:
        """Return the errors in an object that its schema cannot express."""
        problem = problem_of(document, runs_commands=self._runs_commands)
        if problem is None:
            return []
        return [Cause(problem.path, "FieldValueInvalid", f"Invalid value: {problem.message}")]

    def usages(self, store: Store) -> Usages:
        """Return the resource usage that files and the currently stored objects state."""
        records = [
            record
            for kind in self.kinds
            if kind in USAGES
            for record in store.select(resource_of(kind).name, Selection()).records
        ]
        seen = tuple((record.resource, f"{record.namespace}/{record.name}", record.rv) for record in records)
        if seen != self._seen:
            objects = KwokObjects((), self._configuration)
            for record in records:
                objects.put(msgspec.json.decode(record.body))
            failures = self._usages.failures
            self._usages, self._seen = Usages(objects.configuration["ResourceUsage"], self._seed), seen
            self._usages.failures.update(failures)
        return self._usages


def _with_content_mark(document: Document) -> Document:
    mark = f"{crc32(msgspec.json.encode(document['spec'])):08x}"
    metadata = document["metadata"]
    return {**document, "metadata": {**metadata, "annotations": {CONTENT: mark}}}
