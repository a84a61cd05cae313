"""Cost of one more CustomResourceDefinition for an API server that has many, and how long it holds the event
loop: `python -m lab.benchmarks.server.definitions [COUNT [FIELDS]]`.

The server runs in this process as `keplab up` has it, with the memory engine. Definitions are created one
after the other, each in a group of its own, with FIELDS described text fields. A hold is the CPU time of
one callback of the loop: other work on the machine does not lengthen it.
"""

import asyncio
import gc
import sys
import time
from asyncio.events import Handle
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.server import ApiServer
from apiserver_fake.wiring import build
from services.api.identity import ADMIN
from services.api.kinds.apiservice import API_SERVICES
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Document
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request
from services.runtime.process import GC_THRESHOLDS
from services.runtime.real import MemoryDisk, NoTransport, RealClock, seeded_random
from services.runtime.unix_sockets import UnixSockets
from services.telemetry.eventlog import NullEventLog
from services.telemetry.traces import Sampler, Tracer

COUNT, FIELDS, STEP = 120, 250, 20
DESCRIPTION = "What this field of the operator's configuration means, in a sentence as they are in public definitions."


def definition(number: int, fields: int = FIELDS) -> Document:
    """Return a CustomResourceDefinition in a group of its own: 35 KB with 250 fields."""
    group, kind = f"operator{number}.example.com", f"Widget{number}"
    plural = kind.lower() + "s"
    properties = {f"field{each}": {"type": "string", "description": DESCRIPTION} for each in range(fields)}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


class Holds:
    """CPU time of each callback of the event loop, measured inside the context."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    def take_longest_ms(self) -> float:
        """Return the milliseconds of the longest callback since the last call."""
        longest_s, self.longest_s = self.longest_s, 0.0
        return 1000 * longest_s

    def __enter__(self) -> "Holds":
        self._run = run = Handle._run

        def timed_run(handle: Handle) -> None:
            begun = time.thread_time()
            run(handle)
            self.longest_s = max(self.longest_s, time.thread_time() - begun)

        Handle._run = timed_run  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        Handle._run = self._run  # type: ignore[method-assign]


@asynccontextmanager
async def running_server(rest_port: int = 0, **config: Any) -> AsyncIterator[ApiServer]:
    """Run an API server in this process inside the context, with REST on `rest_port`; 0: on a free port."""
    clock, random = RealClock(), seeded_random(1)
    seams = Seams(
        component="apiserver",
        clock=clock,
        random=random,
        disk=MemoryDisk(),
        transport=NoTransport(),
        events=NullEventLog(),
        tracer=Tracer("apiserver", clock=clock, random=random, sampler=Sampler(ratio=0.0)),
        switches=Switches.parse(()),
        sockets=UnixSockets(),
    )
    component = build(
        ApiServerConfig(engine="memory", grpc_port=None, rest_port=rest_port, cluster_objects=True, **config), seams
    )
    running = asyncio.create_task(component.run())
    while not component.is_ready:
        if running.done():
            await running
        await asyncio.sleep(0.05)
    try:
        yield component.server
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def wait_until_settled(server: ApiServer, definitions: int) -> None:
    """Return when every definition is served and has its APIService, and no more writes occur."""
    rv = -1
    while server.store.counts().get(API_SERVICES, 0) < definitions or rv != server.store.rv:
        rv = server.store.rv
        await asyncio.sleep(0.1)


async def run(count: int, fields: int) -> None:
    """Print a line for each step, and one for watches that start anew."""
    async with running_server() as server:
        api, before = server.api_for(ADMIN), server.store.counts()[API_SERVICES]
        with Holds() as holds:
            for first in range(0, count, STEP):
                begun_s = time.process_time()
                for number in range(first, first + STEP):
                    body = msgspec.json.encode(definition(number, fields))
                    request = Request(verb="create", resource=DEFINITIONS, body=body, field_validation="Strict")
                    (await api.call(request)).unwrap()
                await wait_until_settled(server, before + first + STEP)
                spent_ms = 1000 * (time.process_time() - begun_s) / STEP
                print(  # noqa: T201
                    f"{first + 1:>4} to {first + STEP:>4}  {spent_ms:6.1f} ms each  hold "
                    f"{holds.take_longest_ms():6.1f} ms"
                )
            begun_s = time.process_time()
            server.hub.end_kind(DEFINITIONS)
            await asyncio.sleep(3.0)
            await wait_until_settled(server, before + count)
            spent_ms = 1000 * (time.process_time() - begun_s)
            print(f"watches begin anew  {spent_ms:6.1f} ms in all  hold {holds.take_longest_ms():6.1f} ms")  # noqa: T201


if __name__ == "__main__":
    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()
    asyncio.run(run(*([int(each) for each in sys.argv[1:]] + [COUNT, FIELDS][len(sys.argv) - 1 :])))
