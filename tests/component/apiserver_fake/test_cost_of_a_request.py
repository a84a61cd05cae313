"""What one request over REST costs, in Python calls of the API server: a guard that no load on the machine can move."""

import asyncio
import json
import sys
from pathlib import Path

import aiohttp

from apiserver_fake.rest.server import serve
from lab.benchmarks.server.definitions import running_server
from services.api.identity import ADMIN
from services.runtime.real import RealClock, seeded_random
from services.telemetry.traces import Sampler, Tracer

ROOT = Path(__file__).parents[3]
OWN = f"{ROOT}/apiserver_fake", f"{ROOT}/services"
PODS = "/api/v1/namespaces/default/pods"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
CEILINGS = {"GET": 138, "POST": 487}
BATCHES, CALLS = 5, 4


def _measured(folder):
    """Return the calls of one request of each sort: the fewest of some batches, since timers run now and then."""
    (folder / "tokens").write_text(json.dumps([{"token": "t", "user": ADMIN.user, "groups": ADMIN.groups}]))
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(OWN)

    async def batch(ask):
        nonlocal calls
        calls = 0
        sys.setprofile(count)
        try:
            for _ in range(CALLS):
                await ask()
        finally:
            sys.setprofile(None)
        return calls / CALLS

    async def scenario():
        clock, random = RealClock(), seeded_random(1)
        tracer = Tracer("apiserver", clock=clock, random=random, sampler=Sampler(ratio=0.0))
        async with running_server(token_file=str(folder / "tokens"), authorization_mode="RBAC") as server:
            runner, port = await serve(server, "127.0.0.1", 0, clock=clock, tracer=tracer)
            headers = {"Authorization": "Bearer t", "Content-Type": "application/json"}
            async with runner, aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as client:
                names = iter(range(1_000))

                async def create():
                    pod = {**POD, "metadata": {"name": f"p{next(names)}"}}
                    async with client.post(PODS, data=json.dumps(pod)) as answer:
                        assert answer.status == 201, await answer.text()

                async def get():
                    async with client.get(f"{PODS}/p0") as answer:
                        assert answer.status == 200

                return {
                    "POST": min([await batch(create) for _ in range(BATCHES)]),
                    "GET": min([await batch(get) for _ in range(BATCHES)]),
                }

    return asyncio.run(asyncio.wait_for(scenario(), 60.0))


def test_a_request_costs_no_more_calls_than_before_and_no_ceiling_is_too_high(tmp_path):
    calls = _measured(tmp_path)
    assert all(0.9 * most <= calls[method] <= most for method, most in CEILINGS.items()), calls
