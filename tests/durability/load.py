"""Clients that write, read and watch over gRPC through every death of the server, and write down what they were answered.

`python -m tests.durability.load TARGET TOKEN HISTORY SEED`, TARGET a file with HOST:PORT, runs until SIGTERM, and connects anew on SIGUSR1, so that no
back-off lies between two lives of the server. HISTORY: one JSON object a line in the form of
guarantees 12.4. Every write leaves a token of its own in the object, so that a change in the store names its request.
"""

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from services.api.errors import ApiError, UnknownOutcome
from services.api.wire import Request, Response, WatchRequest
from services.client.rpc import RpcTransport
from services.runtime.real import RealClock, seeded_random

SPACE, GROUPS = "crash", "groups"
WRITERS, COUNTERS, READERS, WATCHERS = 8, 3, 2, 3
QUOTAS = 19
"""Of the namespace of groups: a pod's creation charges all of them in one commit, which is a group of 20."""
OWN_MAX = 20
DEADLINE_S = 6.0
UNKNOWN, OK, FAIL = "unknown", "ok", "fail"


def _sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class Load:
    """All clients of one run."""

    def __init__(self, connect: Callable[[], RpcTransport], history: int, seed: int) -> None:
        self._connect, self._file, self._dice = connect, history, random.Random(seed)
        self._transport = connect()
        self._calls: set[asyncio.Task[Any]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._tokens = 0
        self.is_over = False

    def reconnect(self) -> None:
        """Leave the connection for a new one: there is a new server. What is not answered yet is not known."""
        closing = asyncio.get_running_loop().create_task(self._transport.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        self._transport = self._connect()
        for call in self._calls:
            call.cancel()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()
        await asyncio.gather(*self._closing)

    async def _leaving(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Await a call or a watch that ends when the connection is left. Raises: UnknownOutcome then."""
        task = asyncio.ensure_future(work)
        self._calls.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                task.cancel()
                raise
            raise UnknownOutcome("the connection was left") from None
        finally:
            self._calls.discard(task)

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def _token(self, client: str) -> str:
        self._tokens += 1
        return f"{client}.{self._tokens}"

    async def _call(self, client: str, op: str, request: Request, token: str = "", **given: Any) -> Response | None:
        """Make one call and write its line; None when it is not known what became of it."""
        begun = given.pop("begun", 0) or time.monotonic_ns()
        key = f"{request.resource}/{request.namespace}/{request.name or given.pop('name', '')}"
        line = {"client": client, "call_ns": begun, "op": op, "key": key, "token": token, **given}
        try:
            response = await self._leaving(self._transport.api().call(request))
        except UnknownOutcome:
            self._write({**line, "return_ns": None, "outcome": UNKNOWN})
            return None
        line["return_ns"] = time.monotonic_ns()
        if not response.is_ok:
            error = response.error()
            # A time-out of the server leaves a write's outcome open; every other refusal is definite (2.2).
            is_open = response.code == 504 and op not in ("get", "list")
            self._write(
                {**line, "outcome": UNKNOWN if is_open else FAIL, "code": response.code, "reason": error.reason}
            )
            return None if is_open else response
        # A delete answers with a Status.
        shown = (
            {"sha": "" if op == "delete" else _sha(response.body)} if op != "list" else {"items": _items(response.body)}
        )
        self._write({**line, "outcome": OK, "rv": response.rv, **shown})
        return response

    # -- writers

    async def writer(self, number: int) -> None:
        """Create, count, patch and delete, a random one after the other; repeat under one request id what is unknown."""
        client, own = f"w{number}", [""]
        own.clear()
        made = 0
        while not self.is_over:
            token, roll = self._token(client), self._dice.random()
            if roll < 0.45 and len(own) < OWN_MAX:
                made += 1
                name = f"{client}-{made}"
                if await self._create(client, name, token) == OK:
                    own.append(name)
            elif roll < 0.65:
                await self._count(client, f"counter-{self._dice.randrange(COUNTERS)}", token)
            elif roll < 0.8:
                body = msgspec.json.encode({"data": {client: token, "last": token}})
                request = self._request("patch", "shared", body=body, patch_type="merge")
                response = await self._call(client, "patch", request, token)
                if response is not None and response.code == 404:
                    await self._create(client, "shared", self._token(client))
            elif own:
                name = own.pop(self._dice.randrange(len(own)))
                response = await self._call(client, "delete", self._request("delete", name), token)
                if response is not None and not response.is_ok and response.code >= 500:
                    own.append(name)
            # Between calls, as a reconcile has; without it the clients starve the server of two cores.
            await asyncio.sleep(self._dice.random() * 0.004)

    def _request(self, verb: str, name: str, **fields: Any) -> Request:
        return Request(verb=verb, resource="configmaps", namespace=SPACE, name=name, deadline_s=DEADLINE_S, **fields)

    async def _create(self, client: str, name: str, token: str) -> str:
        document = {"metadata": {"name": name}, "data": {"last": token, "pad": "x" * self._dice.randrange(2_000)}}
        body = msgspec.json.encode(document)
        request_id = token if self._dice.random() < 0.5 else ""
        request = Request(
            verb="create",
            resource="configmaps",
            namespace=SPACE,
            body=body,
            request_id=request_id,
            deadline_s=DEADLINE_S,
        )
        begun = time.monotonic_ns()
        while not self.is_over:
            response = await self._call(client, "create", request, token, name=name, request_id=request_id, begun=begun)
            if response is not None:
                return OK if response.is_ok else FAIL
            if not request_id:
                return UNKNOWN
        return UNKNOWN

    async def _count(self, client: str, name: str, token: str) -> None:
        """Read, add one, write against what was read."""
        response = await self._call(client, "get", self._request("get", name))
        if response is None:
            return
        if response.code == 404:
            await self._create(client, name, token)
            return
        if not response.is_ok:
            return
        document = msgspec.json.decode(response.body)
        seen = document["metadata"]["resourceVersion"]
        document["data"] |= {"last": token, "count": str(int(document["data"].get("count", 0)) + 1)}
        request = self._request("update", name, body=msgspec.json.encode(document))
        await self._call(client, "update", request, token, expected=int(seen))

    async def groups(self) -> None:
        """Create and delete pods whose namespace has 19 quotas."""
        client, number = "g", 0
        while not self.is_over:
            number, token = number + 1, self._token(client)
            name = f"p{number}"
            pod = {"metadata": {"name": name, "annotations": {"last": token}}, "spec": {"containers": [_CONTAINER]}}
            request = Request(
                verb="create", resource="pods", namespace=GROUPS, body=msgspec.json.encode(pod), deadline_s=DEADLINE_S
            )
            await self._call(client, "create", request, token, name=name)
            delete = Request(
                verb="delete", resource="pods", namespace=GROUPS, name=name, body=_AT_ONCE, deadline_s=DEADLINE_S
            )
            await self._call(client, "delete", delete, self._token(client))
            await asyncio.sleep(0.02)

    # -- readers

    async def reader(self, number: int) -> None:
        """Get single objects and list all of them."""
        client = f"r{number}"
        while not self.is_over:
            if self._dice.random() < 0.3:
                resource, space = self._dice.choice((("configmaps", SPACE), ("resourcequotas", GROUPS)))
                request = Request(verb="list", resource=resource, namespace=space, deadline_s=DEADLINE_S)
                await self._call(client, "list", request)
            else:
                name = self._dice.choice(("shared", "counter-0", "counter-1"))
                await self._call(client, "get", self._request("get", name))
            await asyncio.sleep(self._dice.random() * 0.05)

    async def watcher(self, number: int) -> None:
        """Follow changes, resuming from the newest version that was seen; every event is a line."""
        client = f"v{number}"
        resource, space = (("configmaps", SPACE), ("configmaps", SPACE), ("resourcequotas", GROUPS))[number]
        seen = ""
        while not seen:
            request = Request(verb="list", resource=resource, namespace=space, deadline_s=DEADLINE_S)
            response = await self._call(client, "list", request)
            if response is not None and response.is_ok:
                seen = str(response.rv)
                self._write({"client": client, "op": "follow", "key": f"{resource}/{space}/", "rv": response.rv})
        at = [seen]
        while not self.is_over:
            try:
                await self._leaving(self._follow(client, resource, space, at))
            except (ApiError, UnknownOutcome):
                await asyncio.sleep(0.05)

    async def _follow(self, client: str, resource: str, space: str, at: list[str]) -> None:
        request, begun = WatchRequest(resource=resource, namespace=space, resource_version=at[0]), time.monotonic_ns()
        async for batch in self._transport.api().watch(request):
            for event in batch:
                if event.type == "ERROR":
                    code = msgspec.json.decode(event.body).get("code")
                    self._write({"client": client, "op": "error", "key": "", "code": code, "from": at[0]})
                    continue
                key, sha = f"{resource}/{event.namespace}/{event.name}", _sha(event.body)
                self._write(
                    {
                        "client": client, "op": "event", "key": key, "type": event.type, "rv": event.rv,
                        "call_ns": begun, "return_ns": time.monotonic_ns(), "sha": sha,
                    }
                )  # fmt: skip
                at[0] = str(event.rv)

    # -- all

    async def prepare(self) -> None:
        """Make namespaces, quotas and the shared object, however often the server dies meanwhile."""
        for name in (SPACE, GROUPS):
            await self._make(Request(verb="create", resource="namespaces", body=_named(name)))
        for number in range(QUOTAS):
            name = f"q{number}"
            await self._make(
                Request(verb="create", resource="resourcequotas", namespace=GROUPS, body=_named(name, spec=_LIMIT))
            )
            # What a quota controller would write; from then on creations are charged.
            status = msgspec.json.encode({"status": {**_LIMIT, "used": {"pods": "0"}}})
            await self._make(
                Request(
                    verb="patch", resource="resourcequotas", namespace=GROUPS, name=name, subresource="status",
                    patch_type="merge", body=status,
                )
            )  # fmt: skip

    async def _make(self, request: Request) -> None:
        while True:
            try:
                response = await self._leaving(
                    self._transport.api().call(msgspec.structs.replace(request, deadline_s=DEADLINE_S))
                )
            except UnknownOutcome:
                await asyncio.sleep(0.05)
                # Nobody signals before there is a history: the server may be at another port by now.
                self.reconnect()
                continue
            if response.is_ok or response.code == 409:
                return
            raise response.error()

    async def run(self) -> None:
        """Run all clients until `is_over`, then let those that wait for an answer get it."""
        await self.prepare()
        self._write({"client": "", "op": "begin", "key": "", "call_ns": time.monotonic_ns()})
        workers = [*map(self.writer, range(WRITERS)), self.groups(), *map(self.reader, range(READERS))]
        tasks = [asyncio.create_task(each) for each in workers]
        following = [asyncio.create_task(self.watcher(number)) for number in range(WATCHERS)]
        await asyncio.gather(*tasks)
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        self._write({"client": "", "op": "end", "key": "", "call_ns": time.monotonic_ns()})


_CONTAINER = {"name": "c", "image": "i"}
_LIMIT = {"hard": {"pods": "10000000"}}
_AT_ONCE = b'{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}'


def _named(name: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"metadata": {"name": name}, **fields})


def _items(body: bytes) -> list[list[Any]]:
    items = msgspec.json.decode(body)["items"]
    return [[each["metadata"]["name"], int(each["metadata"]["resourceVersion"])] for each in items]


async def _main(target: str, token: str, path: str, seed: int) -> None:
    history = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def connect() -> RpcTransport:
        return RpcTransport(Path(target).read_text(), {"load": token}, clock=RealClock(), random=seeded_random(seed))

    load = Load(connect, history, seed)

    def end() -> None:
        load.is_over = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, load.reconnect)
    await load.run()
    await load.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
