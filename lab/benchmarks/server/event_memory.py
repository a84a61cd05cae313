"""Memory of 50,000 Events in an API server process, and what remains after their deletion:
`python -m lab.benchmarks.server.event_memory [COUNT]`.

Events are created over gRPC in the shape that components record them, in a mesh of the API server alone,
then deleted by one deletecollection. The figures are resident memory in addition to that before the first
Event. The watch window is that of a mesh, 20,000 changes, except for its age: it is 10 s here, so that
memory at rest is reached sooner.
"""

import asyncio
import sys
import time

import msgspec

from apiserver_fake.wiring import GIVEN_BACK_S
from lab.benchmarks.running_mesh import RunningMesh, many, quiet_arguments, running_mesh
from services.api.meta import Document
from services.api.wire import Request

COUNT, AT_ONCE, OF_A_POD = 50_000, 64, 5
REST_S, WINDOW_S = 3.0, 10.0
TOUCHED = 50
ALONE = frozenset(("scheduler", "controllers", "claim-controller"))


def event(number: int) -> Document:
    """Return an Event as a kubelet records it."""
    pod, at = number // OF_A_POD, "2026-01-01T00:00:00Z"
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": f"pod-{pod:06d}.{number:016x}", "namespace": "default"},
        "involvedObject": {
            "kind": "Pod",
            "namespace": "default",
            "name": f"pod-{pod:06d}",
            "uid": f"{pod:032x}",
            "apiVersion": "v1",
            "fieldPath": "spec.containers{c}",
        },
        "reason": "Started",
        "message": "Container started",
        "source": {"component": "kubelet", "host": "node-1"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "type": "Normal",
        "reportingComponent": "kubelet",
        "reportingInstance": "node-1",
    }


async def _measure(mesh: RunningMesh, engine: str, count: int) -> None:
    def mib() -> float:
        return mesh.rss_mib()["apiserver"]

    async def create(number: int) -> None:
        body = msgspec.json.encode(event(number))
        (await mesh.api.call(Request(verb="create", resource="events", namespace="default", body=body))).unwrap()

    await asyncio.sleep(REST_S)
    before = mib()
    await many(range(count), create, AT_ONCE)
    await asyncio.sleep(REST_S)
    full, began_s = mib() - before, time.perf_counter()
    request = Request(verb="deletecollection", resource="events", namespace="default", deadline_s=60.0)
    answer = (await mesh.api.call(request)).code
    took_s, most = time.perf_counter() - began_s, mib() - before
    for number in range(TOUCHED):  # the window moves with what is written, as heartbeats are
        await asyncio.sleep(2 * WINDOW_S / TOUCHED)
        await create(count + number)
    await asyncio.sleep(GIVEN_BACK_S + REST_S)
    print(  # noqa: T201
        f"{engine:>6}  before {before:.0f} MiB  with {count:,} Events +{full:.0f}  "
        f"deleted: {answer} after {took_s:.0f} s, +{most:.0f}  at rest +{mib() - before:.0f}"
    )


async def main(count: int) -> None:
    """Print a line of figures for each engine."""
    arguments = quiet_arguments()
    arguments["apiserver"] += ["--window-s", str(WINDOW_S)]
    for engine in ("memory", "sqlite"):
        async with running_mesh(engine=engine, nodes=0, hosts=0, arguments=arguments, without=ALONE) as mesh:
            await _measure(mesh, engine, count)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT))
