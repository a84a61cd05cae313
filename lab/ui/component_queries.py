"""Questions to the components' health ports: why a pod is where it is, and which pods wait in the queue."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec

from lab.ui.access import Place
from services.api.errors import UNREADABLE, NotFound, Unavailable
from services.runtime.components import component_of

TIMEOUT_S: Final = 10.0
POOLS: Final = ("gated", "active", "in_flight", "backoff", "error_backoff", "unschedulable")


class Explainers:
    """Client of a mesh's schedulers and kubelets, in the page's own name."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))

    async def close(self) -> None:
        """End all connections."""
        await self._http.close()

    async def pod(self, processes: Sequence[Mapping[str, Any]], namespace: str, name: str) -> dict[str, Any]:
        """Return why a pod is where it is, as `keplab explain pod/NAME -o json` does. Raises: NotFound, Unavailable."""
        path = f"/explain/{quote(namespace, safe='')}/{quote(name, safe='')}"
        answer = latest(await self._answers(processes, path, "scheduler"))
        if answer is None:
            raise NotFound(f"no scheduler knows pod {namespace}/{name}")
        if answer.get("node"):
            answer["kubelet"] = next(iter(await self._answers(processes, path, "kubelet")), None)
        return answer

    async def queue(self, processes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the longest queue of a scheduler, as `keplab explain scheduler/queue -o json` does.

        Raises: Unavailable when no scheduler answers.
        """
        answers = await self._answers(processes, "/explain/queue", "scheduler")
        if not answers:
            raise Unavailable("no scheduler answers")
        return max(answers, key=lambda answer: len(answer["pods"]))

    async def _answers(self, processes: Sequence[Mapping[str, Any]], path: str, component: str) -> list[dict[str, Any]]:
        wanted = [each for each in processes if component_of(each["name"]) == component and self._is_up(each)]
        found = await asyncio.gather(*(self._ask(each, path, component) for each in wanted))
        return [each for each in found if each is not None]

    def _is_up(self, process: Mapping[str, Any]) -> bool:
        return bool(self._place.health_url(process)) and process["state"] not in ("Stopped", "Gone")

    async def _ask(self, process: Mapping[str, Any], path: str, component: str) -> dict[str, Any] | None:
        headers = {"Authorization": f"Bearer {self._place.access.reader}"}
        try:
            async with self._http.get(self._place.health_url(process) + path, headers=headers) as reply:
                if reply.status != 200:
                    return None
                return {component: process["name"], **msgspec.json.decode(await reply.read())}
        except (aiohttp.ClientError, TimeoutError, *UNREADABLE):
            return None


def latest(answers: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer of the scheduler that has the pod in its queue, or else of the one with the most attempts."""
    return max(answers, key=lambda a: (bool(a.get("pool")), a.get("attempts") or 0), default=None)
