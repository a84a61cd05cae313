"""The overloading clients in a process of their own: `python -m lab.benchmarks.overload_clients` (AS-39).

One sends as many creates as it can, one opens a thousand watches, one lists everything in a loop. When
standard input ends, the number of responses by user and status is printed as JSON.
"""

import asyncio
import ssl
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

import aiohttp
import msgspec

Answers = dict[str, Counter[int]]


class Clients(msgspec.Struct):
    """Address and credentials of the overloading clients, and how many requests they make at once. `tokens`: by
    user.
    """

    url: str
    authority: str
    tokens: dict[str, str]
    creates_at_once: int = 60
    watches: int = 1_000
    lists_at_once: int = 20


USERS = ("user:flood", "user:watcher", "user:lister")


def collection(user: str) -> str:
    """Return the path of a user's ConfigMaps."""
    return f"/api/v1/namespaces/{user.removeprefix('user:')}/configmaps"


async def offend(clients: Clients, answers: Answers) -> None:
    """Overload the API server until cancelled; count the responses in `answers`."""
    context = ssl.create_default_context(cafile=clients.authority)
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
    async with aiohttp.ClientSession(clients.url, connector=connector, timeout=timeout) as session:

        async def ask(user: str, method: str, query: str = "", body: Any = None) -> None:
            headers = {"Authorization": f"Bearer {clients.tokens[user]}", "Content-Type": "application/json"}
            path = collection(user) + query
            try:
                async with session.request(method, path, headers=headers, data=body) as answer:
                    answers[user][answer.status] += 1
                    async for _ in answer.content.iter_any():
                        pass
                    wait_s = float(answer.headers.get("Retry-After", "0"))
            except (aiohttp.ClientError, TimeoutError):
                answers[user][0] += 1
                wait_s = 0.1
            # A tenth of what it is asked for: a client that hardly obeys.
            await asyncio.sleep(wait_s / 10)

        async def repeat_request(user: str, *request: Any) -> None:
            while True:
                await ask(user, *request)

        config_map = msgspec.json.encode({"metadata": {"generateName": "f-"}, "data": {"text": "x" * 200}})
        flood, watcher, lister = USERS
        async with asyncio.TaskGroup() as group:
            for _ in range(clients.creates_at_once):
                group.create_task(repeat_request(flood, "POST", "", config_map))
            for _ in range(clients.watches):
                group.create_task(repeat_request(watcher, "GET", "?watch=1"))
            for _ in range(clients.lists_at_once):
                group.create_task(repeat_request(lister, "GET"))


async def _run() -> None:
    clients = msgspec.json.decode(await asyncio.to_thread(sys.stdin.buffer.readline), type=Clients)
    answers: Answers = {user: Counter() for user in USERS}
    offending = asyncio.create_task(offend(clients, answers))
    await asyncio.to_thread(sys.stdin.buffer.read)
    offending.cancel()
    with suppress(asyncio.CancelledError, ExceptionGroup):
        await offending
    sys.stdout.write(msgspec.json.encode(answers).decode())


if __name__ == "__main__":
    asyncio.run(_run())
