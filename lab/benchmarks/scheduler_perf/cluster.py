"""Interface of the cluster on which operations are performed: a mesh of processes, or the scheduler's core
alone.

Both perform the same operations. Waiting is part of the interface, so that the core can skip idle time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from lab.benchmarks.scheduler_perf.pods import Pods
from services.api.meta import Document, Key, Resource
from services.api.resources import resource_of_kind, resources
from services.api.seams import Random

MB_OF_MIB: Final = 2**20 / 1e6
PRIORITY_CLASS = "perf-{}"
FOREGROUND_LIMIT_S = 600.0
"""Longest wait for pods in seconds (upstream's 10 minutes)."""


class Unsupported(Exception):
    """An operation that this form cannot perform; the message says why."""


class Failed(Exception):
    """An operation that failed."""


def first_of(group: ExceptionGroup[Exception]) -> Exception:
    """Return the first exception of a group, nested groups unpacked."""
    error = group.exceptions[0]
    return first_of(error) if isinstance(error, ExceptionGroup) else error


class Kind(Protocol):
    """A kind of objects with its resource, as this cluster serves it."""

    @property
    def name(self) -> str:
        """`pods`, `replicasets.apps`."""

    @property
    def namespaced(self) -> bool:
        """Whether its objects are namespaced."""


class Cluster(Protocol):
    """The cluster on which operations are performed; see the module."""

    form: str
    pods: Pods
    random: Random

    def now(self) -> float:
        """Return monotonic seconds."""

    async def create(self, document: Document, namespace: str, *, is_strict: bool = False) -> str:
        """Create an object and return its name. Raises: Failed, Unsupported."""

    async def create_all(
        self, count: int, document: Callable[[int], Document], namespace: Callable[[int], str]
    ) -> list[str]:
        """Create many objects at once; the first is checked strictly. Returns their names."""

    async def update(self, document: Document, namespace: str, subresource: str) -> None:
        """Replace an object or a subresource. Raises: Failed, Unsupported."""

    async def patch_status(self, kind: str, key: Key, status: Document) -> None:
        """Set fields of an object's status."""

    async def delete(self, kind: str, key: Key, grace_s: int | None = None) -> bool:
        """Delete an object; return whether it was there."""

    async def documents(self, kind: str, namespace: str = "") -> Sequence[Document]:
        """Return the objects of a kind."""

    async def wait(self, is_done: Callable[[], bool], limit_s: float) -> bool:
        """Wait until `is_done` returns true; return whether it did within the limit."""

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds of the cluster's time."""

    def every(self, interval_s: float, do: Callable[[], Awaitable[bool]]) -> None:
        """Call `do` in every interval from now on, until it returns False or the workload ends."""

    async def metrics(self) -> str:
        """Return the scheduler's metrics in Prometheus' text format."""

    def memory_mb(self) -> float:
        """Return the scheduler's resident memory in MB."""


def kind_of(document: Mapping[str, Any]) -> Resource | None:
    """Return the built-in resource of a document's kind, in any version; None for any other kind."""
    version, kind = str(document.get("apiVersion") or ""), str(document.get("kind") or "")
    resource = resource_of_kind(version, kind)
    if resource is not None:
        return resource
    group = version.rpartition("/")[0]
    return next((each for each in resources().values() if (each.group, each.kind) == (group, kind)), None)
