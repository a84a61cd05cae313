"""State from a snapshot of another tool: the objects as an API server stores them, before anything else acts
on them.

An API server alone, in virtual time, gets the objects. So they are defaulted and validated as those of
any client. After that they get back the values that only the snapshot has: uids, creation times,
generations.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import ApiServerComponent
from apiserver_fake.wiring import build as build_apiserver
from lab.exchange.format import Reading, open_stream
from lab.exchange.load import Loaded, Loader
from lab.exchange.reading import Source
from lab.exchange.rules import Rules
from lab.exchange.stream import Placed, Refused
from lab.scenarios.initial_state import State, StoredObject
from lab.scenarios.script.scenario import Begin, Scenario, ScriptError
from lab.scenarios.script.streams import WALL_S, source_of
from lab.scenarios.simulation import simloop
from services.api.identity import ADMIN
from services.api.meta import Document, Key, key_of, metadata_of
from services.api.resources import resource_of_kind, resources
from services.api.seams import Seams
from services.api.switches import Switches
from services.client.client import Client
from services.runtime.real import MemoryDisk, NoTransport
from services.telemetry.eventlog import MemoryEventLog
from services.telemetry.traces import MemorySpans, Tracer

STATES_KEPT = 2
"""Number of cached states; the arms and seeds of a comparison begin from the same few."""


class _Clock:
    """Virtual time, counted from the time of the snapshot."""

    def __init__(self, wall_s: float) -> None:
        self._wall_s = wall_s

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self._wall_s


def begun_state(scenario: Scenario) -> State:
    """Return the state that the scenario begins from. Raises: ScriptError, also for an object that the API
    server refuses.
    """
    assert scenario.begin is not None, "asked before"
    try:
        source = source_of(scenario, scenario.begin.file)
        stamp = 0 if source.data is not None else source.path.stat().st_mtime_ns
        return _state(source, stamp, scenario.begin, tuple(scenario.switches))
    except (ValueError, OSError) as error:
        raise ScriptError(f"{scenario.path}:{scenario.begin.line}: begin {scenario.begin.file}: {error}") from None


@lru_cache(maxsize=STATES_KEPT)
def _state(source: Source, _stamp: int, begin: Begin, switches: tuple[str, ...]) -> State:
    state, loaded = simloop.run(_load_state(source, begin, Switches.parse(switches)), seed=0)
    if loaded.failures:
        more = f" (and {len(loaded.failures) - 1} more)" if len(loaded.failures) > 1 else ""
        raise Refused(f"{loaded.failures[0]}{more}")
    return state


async def _load_state(source: Source, begin: Begin, switches: Switches) -> tuple[State, Loaded]:
    rules = Rules(pods="pending" if begin.pods == "pending" else "as-they-are")
    stream = open_stream(source, Reading(WALL_S, options=dict(begin.options)), begin.format)[1]
    wall_s = stream.origin.started_wall_s or WALL_S
    clock, chance, spans = _Clock(wall_s), random.Random(f"begun/{_digest(source)}"), MemorySpans()
    tracer = Tracer("apiserver", clock=clock, random=chance, sinks=(spans,))
    seams = Seams(
        component="apiserver",
        clock=clock,
        random=chance,
        disk=MemoryDisk(),
        transport=NoTransport(),
        events=MemoryEventLog("apiserver", clock),
        tracer=tracer,
        switches=switches,
    )
    config = ApiServerConfig(engine="memory", grpc_port=None, rest_port=None, set=switches.assignments)
    component = build_apiserver(config, seams)
    assert isinstance(component, ApiServerComponent)
    task = asyncio.create_task(component.run())
    try:
        await component.server.wait_until_ready()
        client = Client(component.server.api_for(ADMIN), clock, chance)
        loader, given = Loader(client, rules), _SnapshotValues()
        loaded = await loader.load(given.noting(each) for each in stream.objects)
        objects: list[StoredObject] = []
        for name in resources():
            documents, _ = await client.list(name)
            objects += (StoredObject(name, each) for each in documents)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    old_of = {new: old for old, new in loaded.uids.items()}
    restored = tuple(StoredObject(each.resource, given.restore(each, old_of)) for each in objects)
    rv = max((int(each.document["metadata"]["resourceVersion"]) for each in restored), default=1)
    return State(rv=rv, wall_s=wall_s, objects=restored, is_of_run=False), loaded


def _digest(source: Source) -> str:
    """Return hexadecimal digits of what the snapshot holds: one that came from a simulation is never given its uids
    again for objects that have none."""
    digest = hashlib.sha256()
    with source.open() as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class _SnapshotValues:
    """Values of objects that only the snapshot has, by wire name and key."""

    def __init__(self) -> None:
        self._metadata: dict[tuple[str, Key], Document] = {}

    def noting(self, placed: Placed) -> Placed:
        """Return the object, and remember what an API server would make anew."""
        metadata = metadata_of(placed.document)
        resource = resource_of_kind(str(placed.document.get("apiVersion")), str(placed.document.get("kind")))
        if resource is not None:
            key = key_of(placed.document)
            kept = {name: metadata[name] for name in ("uid", "creationTimestamp", "generation") if metadata.get(name)}
            if isinstance(moment := kept.get("creationTimestamp"), str):
                kept["creationTimestamp"] = _whole_seconds(moment)
            self._metadata[resource.name, key] = kept
        return placed

    def restore(self, stored: StoredObject, old_of: Mapping[str, str]) -> Document:
        """Return an object as the snapshot had it, wherever its parts name others by uid."""
        metadata = stored.document["metadata"]
        key = Key(metadata.get("namespace", ""), metadata["name"])
        document: Document = _with_uids(stored.document, old_of)
        return {**document, "metadata": {**document["metadata"], **self._metadata.get((stored.resource, key), {})}}


def _with_uids(value: Any, old_of: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            name: old_of.get(member, member)
            if name == "uid" and isinstance(member, str)
            else _with_uids(member, old_of)
            for name, member in value.items()
        }
    return [_with_uids(each, old_of) for each in value] if isinstance(value, list) else value


def _whole_seconds(moment: str) -> str:
    head, dot, _ = moment.partition(".")
    return f"{head}Z" if dot else moment
