"""AS-13: watches over restarts of a real API server, killed and terminated in turn, their clients leaving at will."""

import asyncio
import os
import random
import signal
import sys

import msgspec
import pytest

from lab.scenarios.invariants.i15_streams import REASONS
from services.api.errors import ApiError, UnknownOutcome
from services.api.identity import MASTERS_GROUP
from services.api.wire import Request, WatchRequest
from services.client.client import Client
from services.client.rpc import RpcTransport
from services.runtime.real import RealClock
from services.telemetry.eventlog import Line
from tests.process.test_kubelet_links import free_port

RESTARTS = int(os.environ.get("KEPLAB_RESTARTS", "3"))
"""AS-13 in full is 200 (`make watch-links`)."""
WRITES_PER_S, BETWEEN_S = 200, 1.0
PODS, NODES, APPS = 40, ("", "n1", "n2"), ("a", "b")
SELECTORS = [{}] * 4 + [{"label_selector": "app=a"}] * 4 + [{"field_selector": "spec.nodeName=n1"}] * 4
TOKENS = [{"token": "adm", "user": "system:mesh-admin", "groups": [MASTERS_GROUP]}]


class Server:
    """An API server as a process, over and over on one directory and port."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        (folder / "tokens").write_bytes(msgspec.json.encode(TOKENS))

    async def start(self):
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "apiserver_fake",
            "--data-dir",
            str(self.folder / "store"),
            "--token-file",
            str(self.folder / "tokens"),
            "--grpc-port",
            str(self.port),
            "--rest-port",
            "none",
            "--events-dir",
            str(self.folder / "events"),
            "--log-level",
            "error",
        )

    async def stop(self, how):
        self.process.send_signal(how)
        await self.process.wait()

    def lines(self, ev):
        found = []
        for path in sorted((self.folder / "events").glob("*.jsonl")):
            for text in path.read_bytes().splitlines():
                line = msgspec.json.decode(text, type=Line)
                found += [line] if line.ev == ev else []
        return found


class Chain:
    """A watch and those that resume it."""

    def __init__(self, api, selector, dice):
        self.api, self.selector, self.dice = api, selector, dice
        self.events, self.ends, self.refused = [], 0, []
        self.position = 0

    async def follow(self, start):
        self.position = start
        while True:
            leaves_after = self.dice.randrange(1, 400)
            batches = self.api.watch(
                WatchRequest(resource="pods", resource_version=str(self.position), **self.selector)
            )
            try:
                async for batch in batches:
                    for event in batch:
                        if event.type == "ERROR":
                            self.refused.append(event.body)
                        elif event.type != "BOOKMARK":
                            self.events.append(event)
                        self.position = max(self.position, event.rv)
                    leaves_after -= len(batch)
                    if leaves_after <= 0:
                        break
            except (UnknownOutcome, ApiError) as error:
                if getattr(error, "code", 0) not in (0, 503):
                    self.refused.append(error)
                await asyncio.sleep(0.05)
            finally:
                await batches.aclose()
            self.ends += 1

    @property
    def versions(self):
        return [(event.type, event.name, event.rv) for event in self.events]


def expected(events, matches):
    """Return what a watch with a selector is sent of the changes that an unfiltered one was sent."""
    visible, found = set(), []
    for event in events:
        document = msgspec.json.decode(event.body)
        was, now = event.name in visible, event.type != "DELETED" and matches(document)
        kind = ("MODIFIED" if was else "ADDED") if now else ("DELETED" if was else "")
        if kind:
            found.append((kind, event.name, event.rv))
        (visible.add if now else visible.discard)(event.name)
    return found


async def write(api, dice, until_s):
    clock = RealClock()
    while clock.now() < until_s:
        name = f"p{dice.randrange(PODS)}"
        labels, node = {"app": dice.choice(APPS)}, dice.choice(NODES)
        spec = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {})}
        body = msgspec.json.encode({"metadata": {"name": name, "labels": labels}, "spec": spec})
        relabelled = msgspec.json.encode({"metadata": {"labels": labels}})
        where = {"resource": "pods", "namespace": "default"}
        request = dice.choice(
            [
                Request(verb="create", body=body, **where),
                Request(verb="patch", name=name, patch_type="merge", body=relabelled, **where),
                Request(verb="patch", name=name, patch_type="merge", body=relabelled, **where),
                Request(verb="delete", name=name, body=b'{"gracePeriodSeconds":0}', **where),
            ]
        )
        try:
            await api.call(request)
        except UnknownOutcome:
            await asyncio.sleep(0.05)
        await asyncio.sleep(8 / WRITES_PER_S)


async def restarted(folder):
    server = Server(folder)
    await server.start()
    transport = RpcTransport(f"127.0.0.1:{server.port}", {"a": "adm"}, clock=RealClock(), random=random.Random(2))
    api, clock = transport.api(), RealClock()
    client = Client(api, clock, random.Random(3))  # a list that was under way when its server went is asked again
    try:
        start = (await client.call(Request(verb="list", resource="pods"))).rv
        chains = [Chain(api, selector, random.Random(number)) for number, selector in enumerate(SELECTORS)]
        following = [asyncio.create_task(chain.follow(start)) for chain in chains]
        for number in range(RESTARTS):
            until_s = clock.now() + BETWEEN_S
            await asyncio.gather(*(write(api, random.Random(100 * number + writer), until_s) for writer in range(8)))
            await server.stop(signal.SIGTERM if number % 2 else signal.SIGKILL)
            await server.start()
        newest = 0
        async with asyncio.timeout(60):
            while not newest:
                answer = await client.call(Request(verb="list", resource="pods"))
                newest = max([0, *(int(each["metadata"]["resourceVersion"]) for each in items(answer))])
                newest = max(newest, *(chain.position for chain in chains[:4]))
            while any(chain.position < newest for chain in chains[:4]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            whole = chains[0].events
            wanted = [
                [(event.type, event.name, event.rv) for event in whole],
                expected(whole, lambda pod: pod["metadata"]["labels"]["app"] == "a"),
                expected(whole, lambda pod: pod["spec"].get("nodeName") == "n1"),
            ]
            for place, chain in enumerate(chains):
                while len(chain.events) < len(wanted[place // 4]):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        return server, chains, wanted
    finally:
        await transport.close()
        await server.stop(signal.SIGTERM)


def items(answer):
    return msgspec.json.decode(answer.unwrap().body)["items"]


@pytest.mark.timeout(120 + 20 * RESTARTS)
def test_as_13_over_restarts_every_watch_has_every_change_once_and_in_order(tmp_path):
    server, chains, wanted = asyncio.run(restarted(tmp_path))

    commits = {
        line.rv: (line.data["type"], line.obj["name"])
        for line in server.lines("store.commit")
        if line.obj["kind"] == "Pod"
    }
    assert [(kind, name) for kind, name, _ in wanted[0]] == [commits[rv] for _, _, rv in wanted[0]]
    assert [rv for _, _, rv in wanted[0]] == [rv for rv in sorted(commits) if rv <= wanted[0][-1][2]]
    for place, chain in enumerate(chains):
        assert chain.versions == wanted[place // 4]
        assert chain.refused == []
        assert chain.ends >= 1
    reasons = {line.data["reason"] for line in server.lines("watch.close") if line.comp == "apiserver"}
    assert {"ClientGone"} <= reasons <= set(REASONS)
    assert sum(len(chain.events) for chain in chains) > 12 * RESTARTS
