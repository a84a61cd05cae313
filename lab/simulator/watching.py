"""Lists and watches of the seven kinds as lines of one stream, each a JSON object
`{"Kind", "EventType", "Obj"}`.

If a version is too old to resume from, an ERROR line is sent, and the kind is listed anew. Source:
simulator 3; kubernetes-sigs/kube-scheduler-simulator, `simulator/resourcewatcher/resourcewatcher.go`.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from services.api.errors import ApiError, Expired, UnknownOutcome
from services.api.resources import resources
from services.api.wire import Api, Request, WatchRequest
from services.client.client import LIST_DECODER

PARAMETERS: Final = {
    "pods": "pods",
    "nodes": "nodes",
    "pvs": "persistentvolumes",
    "pvcs": "persistentvolumeclaims",
    "scs": "storageclasses.storage.k8s.io",
    "pcs": "priorityclasses.scheduling.k8s.io",
    "namespace": "namespaces",
}
"""Kind for each prefix of a query parameter's name; `namespace` in the singular, as the simulator's code reads it."""
_ENDINGS: Final = ("LastResourceVersion", "lastResourceVersion")
VERSION: Final = re.compile(r"[0-9]{1,20}")
VERSION_MAX: Final = (1 << 64) - 1
"""Greatest resourceVersion: 64 bits unsigned. Source: kubernetes/apiserver, `pkg/storage/api_object_versioner.go`."""
AGAIN_S: Final = 0.5
WAITING_MAX: Final = 1000
"""Maximum number of lines that wait for a slow reader; beyond it the watches block."""


def versions(query: Mapping[str, str]) -> dict[str, str]:
    """Return the version from which each kind is watched; empty to list it first. Parameters are accepted in
    both spellings.

    Raises: ValueError naming a parameter that is not a version.
    """
    watch_versions: dict[str, str] = {}
    for name, resource in PARAMETERS.items():
        names = [f"{each}{ending}" for each in ({name, f"{name.removesuffix('s')}s"}) for ending in _ENDINGS]
        given = next((query[each] for each in names if query.get(each)), "")
        if given and not (VERSION.fullmatch(given) and int(given) <= VERSION_MAX):
            raise ValueError(f"{name}LastResourceVersion: want a version, not {given!r}")
        watch_versions[resource] = given
    return watch_versions


async def relay(api: Api, since: Mapping[str, str], write: Callable[[bytes], Awaitable[None]]) -> None:
    """Write the lines of all kinds until cancelled. Raises: ExceptionGroup of errors raised by `write`."""
    queue: asyncio.Queue[bytes] = asyncio.Queue(WAITING_MAX)
    async with asyncio.TaskGroup() as group:
        for resource, version in since.items():
            group.create_task(_follow(api, resource, version, queue))
        while True:
            await write(await queue.get())


async def _follow(api: Api, resource: str, version: str, queue: asyncio.Queue[bytes]) -> None:
    """Put a kind's lines into the queue, for ever."""
    while True:
        try:
            if not version:
                version = await _list(api, resource, queue)
            async with aclosing(_watch(api, resource, version)) as events:
                async for kind, rv, body in events:
                    if kind != "BOOKMARK":
                        await queue.put(line_of(resource, kind, body))
                    version = str(rv)
        except Expired as error:
            await queue.put(line_of(resource, "ERROR", msgspec.json.encode(error.status())))
            version = ""
        except (ApiError, UnknownOutcome):
            await asyncio.sleep(AGAIN_S)


async def _list(api: Api, resource: str, queue: asyncio.Queue[bytes]) -> str:
    """Put what is there as ADDED, and return its version."""
    request = Request(verb="list", resource=resource)
    page = LIST_DECODER.decode((await api.call(request)).unwrap().body)
    for item in page.items:
        await queue.put(line_of(resource, "ADDED", bytes(item)))
    return page.metadata.resource_version


async def _watch(api: Api, resource: str, version: str) -> AsyncGenerator[tuple[str, int, bytes], None]:
    request = WatchRequest(resource=resource, resource_version=version)
    async with aclosing(api.watch(request)) as batches:  # type: ignore[type-var]  # it is a generator
        async for batch in batches:
            for event in batch:
                if event.type == "ERROR":
                    raise Expired("the version is too old to go on from")
                yield event.type, event.rv, event.body


def line_of(resource: str, event_type: str, body: bytes) -> bytes:
    """Return one line; the object has no apiVersion and kind, as in typed clients."""
    content: Any = msgspec.Raw(body)
    if event_type != "ERROR":
        document = msgspec.json.decode(body)
        content = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    plural = resources()[resource].plural
    return msgspec.json.encode({"Kind": plural, "EventType": event_type, "Obj": content}) + b"\n"
