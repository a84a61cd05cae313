"""The mesh's objects for kube-scheduler-simulator's page: export, import and reset.

The initial state of the mesh is kept in a file, so that this process may be restarted at any time;
everything else is in the API server. Source: simulator 3, 4.1; kubernetes-sigs/kube-scheduler-simulator,
`simulator/snapshot/snapshot.go`, `simulator/reset/reset.go`.
"""

import asyncio
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from lab.exchange.formats.kss import KINDS, MEMBERS, SnapshotWriter, is_left_out
from lab.exchange.load import Loader
from lab.exchange.reading import checked_object
from lab.exchange.rules import OF_COMPONENTS, PODS, Rules
from lab.exchange.stream import Placed, Refused
from lab.simulator.schedulerconfig import SchedulerConfiguration, of_older_release
from services.api.errors import UNREADABLE, ApiError, NotFound
from services.api.meta import Document, Key, Resource, key_of, metadata_of
from services.api.resources import resource_of_kind, resources
from services.api.seams import Clock
from services.client.client import Client
from services.runtime.real import write_atomically

NODES_OWN: Final = frozenset(
    ("csinodes.storage.k8s.io", "resourceslices.resource.k8s.io", "noderesourcetopologies.topology.node.k8s.io")
)
"""Kinds whose objects nodes create for themselves."""
EVENTS: Final = ("events", "events.events.k8s.io")
RESET_MAX_S: Final = 60.0
PASS_S: Final = 0.2
"""Interval in seconds between two checks of remaining objects, in which controllers can act."""
LINES_MAX: Final = 20
_VOLATILE: Final = ("resourceVersion", "generation", "managedFields", "uid", "creationTimestamp", "selfLink")
log = structlog.get_logger()
At = tuple[str, Key]


class Failed(Exception):
    """Some objects could not be changed; the message has a line for each."""

    def __init__(self, lines: list[str]) -> None:
        more = f"\nand {len(lines) - LINES_MAX} more" if len(lines) > LINES_MAX else ""
        super().__init__("\n".join(lines[:LINES_MAX]) + more)


@dataclass
class Resources:
    """The mesh's objects. `start`: the file with the initial state. `configuration`: None if the scheduler is
    not the mesh's own.
    """

    client: Client
    configuration: SchedulerConfiguration | None
    start: Path
    clock: Clock

    async def remember_start(self) -> None:
        """Store the current objects as the initial state, unless one is already stored. Raises: ApiError,
        UnknownOutcome.
        """
        if self.start.exists():
            return
        self.start.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = {
            "objects": list((await self._all()).values()),
            "configuration": self.configuration.file_document() if self.configuration is not None else None,
        }
        write_atomically(self.start, msgspec.json.encode(content), mode=0o600)

    async def export(self, *, all_kinds: bool = False) -> bytes:
        """Return the mesh as a snapshot in the simulator's format. Raises: ApiError, UnknownOutcome, Invalid."""
        file = io.BytesIO()
        configuration = self.configuration.in_force() if self.configuration is not None else None
        writer = SnapshotWriter(file, configuration, all_kinds=all_kinds)
        for resource in self._kinds() if all_kinds else KINDS:
            for document in (await self._list(resource)).values():
                writer.put(document)
        writer.close()
        return file.getvalue()

    async def load(self, body: bytes) -> None:
        """Import a snapshot: the configuration first, then the objects.

        Raises: Refused: it is not a snapshot, nothing was changed; Invalid, NotRestarted: for its configuration;
        Failed: for some objects, the others were created.
        """
        try:
            snapshot = msgspec.json.decode(body)
        except UNREADABLE as error:
            raise Refused(f"the document is no JSON: {error}") from None
        if not isinstance(snapshot, dict) or (snapshot and not snapshot.keys() & {*MEMBERS, "schedulerConfig"}):
            raise Refused(f"want one object with any of {', '.join((*MEMBERS, 'schedulerConfig'))}")
        placed = list(_placed_objects(snapshot))
        if snapshot.get("schedulerConfig") is not None and self.configuration is not None:
            wanted, gone = of_older_release(snapshot["schedulerConfig"])
            if gone:
                log.info("import.merged_plugins", plugins=gone)
            async with self.configuration.lock:
                await self.configuration.apply(wanted)
        loader = Loader(self.client, Rules(keep_owners=False, has_kubelets=True))
        await self._know_claims(loader, placed)
        loaded = await loader.load(placed)
        if loaded.failures:
            raise Failed(loaded.failures)

    async def _know_claims(self, loader: Loader, placed: list[Placed]) -> None:
        """Have volumes find the claims that are in the mesh already, and not in the document."""
        for placed_object in placed:
            is_volume = placed_object.document["kind"] == "PersistentVolume"
            claim = (placed_object.document.get("spec") or {}).get("claimRef") if is_volume else None
            if not isinstance(claim, dict) or not claim.get("uid"):
                continue
            key = Key(str(claim.get("namespace") or ""), str(claim.get("name") or ""))
            try:
                there = await self.client.get("persistentvolumeclaims", key)
            except ApiError:
                continue  # it is not there, or none that can be: then the volume itself is refused
            loader.loaded.uids[str(claim["uid"])] = str(metadata_of(there)["uid"])

    async def reset(self) -> None:
        """Restore the initial state. Raises: Failed naming the objects that could not be restored, ApiError."""
        content = msgspec.json.decode(self.start.read_bytes())
        wanted = {_at(document): document for document in content["objects"]}
        if self.configuration is not None and content["configuration"] is not None:
            async with self.configuration.lock:
                if self.configuration.file_document() != content["configuration"]:
                    await self.configuration.replace(content["configuration"])
        deadline = self.clock.now() + RESET_MAX_S
        failures: list[str] = []
        while True:
            there = await self._all()
            extra = [at for at, document in there.items() if at not in wanted or _is_another_pod(document, wanted[at])]
            changed = [at for at in there if at in wanted and at not in extra and _differs(there[at], wanted[at])]
            missing = [at for at in wanted if at not in there]
            if not (extra or changed or missing):
                break
            if self.clock.now() > deadline:
                left = [f"{resource} {key}" for resource, key in (*extra, *changed, *missing)]
                raise Failed([*failures, *(f"{each}: not as it was" for each in left)])
            failures = await self._step(there, wanted, extra, changed, missing)
            await asyncio.sleep(PASS_S)
        for resource in EVENTS[:1]:
            for document in (await self._list(resource)).values():
                await self._delete((resource, key_of(document)), document)

    async def _step(
        self,
        there: dict[At, Document],
        wanted: dict[At, Document],
        extra: list[At],
        changed: list[At],
        missing: list[At],
    ) -> list[str]:
        """Do what is left to do, once; return what was refused."""
        failures: list[str] = []
        # Pods last: what made them would make others.
        for at in sorted(extra, key=lambda at: at[0] == PODS):
            try:
                await self._delete(at, there[at])
            except ApiError as error:
                failures.append(f"{at[0]} {at[1]}: {error.message}")
        for at in changed:
            try:
                await self.client.update(at[0], at[1], _newer_version(there[at], wanted[at]))
            except ApiError as error:
                failures.append(f"{at[0]} {at[1]}: {error.message}")
        if missing and not extra:
            uids = {
                str(metadata_of(wanted[at]).get("uid")): str(metadata_of(document).get("uid"))
                for at, document in there.items()
                if at in wanted
            }
            loader = Loader(self.client, Rules(has_kubelets=True))
            loader.loaded.uids = uids
            loaded = await loader.load([Placed(wanted[at]) for at in missing])
            failures += [*loaded.failures, *loaded.orphans]
        return failures

    async def _delete(self, at: At, document: Document) -> None:
        metadata = metadata_of(document)
        try:
            if metadata.get("deletionTimestamp") and metadata.get("finalizers"):
                await self.client.patch(at[0], at[1], {"metadata": {"finalizers": None}})
            await self.client.delete(at[0], at[1], grace_period_s=0)
        except NotFound:
            return

    def _kinds(self) -> list[str]:
        return [
            name
            for name, each in resources().items()
            if name not in OF_COMPONENTS and name not in NODES_OWN and (not each.verbs or "list" in each.verbs)
        ]

    async def _all(self) -> dict[At, Document]:
        documents: dict[At, Document] = {}
        for resource in self._kinds():
            try:
                documents.update(await self._list(resource))
            except NotFound:
                continue  # a kind whose feature gate is off
        return documents

    async def _list(self, resource: str) -> dict[At, Document]:
        known: Resource = resources()[resource]
        items, _ = await self.client.list(resource)
        whole = ({"apiVersion": known.api_version, "kind": known.kind, **item} for item in items)
        return {(resource, key_of(document)): document for document in whole}


def _placed_objects(snapshot: dict[str, Any]) -> Iterator[Placed]:
    """Yield the objects of a snapshot. Raises: Refused naming member and number."""
    for member, resource in MEMBERS.items():
        items = snapshot.get(member)
        if items is not None and not isinstance(items, list):
            raise Refused(f"{member}: want an array, not {type(items).__name__}")
        known = resources()[resource]
        for number, item in enumerate(items or ()):
            where = f"{member}[{number}]"
            if not isinstance(item, dict):
                raise Refused(f"{where}: want an object, not {type(item).__name__}")
            document = checked_object({**item, "apiVersion": known.api_version, "kind": known.kind}, where)
            if not is_left_out(resource, str(metadata_of(document)["name"])):
                yield Placed(document, where)


def _at(document: Document) -> At:
    resource = resource_of_kind(str(document.get("apiVersion")), str(document.get("kind")))
    assert resource is not None, f"{document.get('kind')} was listed"
    return resource.name, key_of(document)


def _plain(document: Document) -> Document:
    metadata = {key: value for key, value in metadata_of(document).items() if key not in _VOLATILE}
    return {**{key: value for key, value in document.items() if key != "status"}, "metadata": metadata}


def _differs(there: Document, wanted: Document) -> bool:
    return _plain(there) != _plain(wanted)


def _is_another_pod(there: Document, wanted: Document) -> bool:
    """Whether it is a pod whose spec, which cannot be changed back, is another."""
    return there["kind"] == "Pod" and there.get("spec") != wanted.get("spec")


def _newer_version(there: Document, wanted: Document) -> Document:
    """Return what was wanted as a newer version of what is there."""
    own = {key: value for key, value in metadata_of(there).items() if key in ("uid", "resourceVersion")}
    return {**_plain(wanted), "metadata": {**_plain(wanted)["metadata"], **own}, "status": there.get("status", {})}
