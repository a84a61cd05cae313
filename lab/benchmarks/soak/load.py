"""Load of the mesh: pods, Deployments, Jobs and claims are created and deleted, and a client reads.

Every call may fail while a component is away; it is counted, and repeated with other objects. Deleted
pods are forgotten, so that the load itself does not grow.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import msgspec

from lab.benchmarks.mesh import PodState
from lab.benchmarks.running_mesh import follow
from lab.benchmarks.soak.figures import Counts
from services.api.errors import ApiError, UnknownOutcome
from services.api.kinds.pod import RUN
from services.api.wire import Api, Request, WatchEvent

DRIVER: Final = "gpu.example.com"
DEPLOYMENTS: Final = 3
REPLICAS_MAX: Final = 8
LIFE_S: Final = (5.0, 25.0)
"""Range of the time that a pod stays after it runs, in seconds."""
STUCK_S: Final = 60.0
"""Time in seconds after which a pod that does not run is deleted, and counted."""
_RESOURCES: Final = {"requests": {"cpu": "10m", "memory": "10Mi"}}
_DELETE: Final = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1})


def _container(**more: Any) -> dict[str, Any]:
    return {"name": "main", "image": "pause:3.10", "resources": {**_RESOURCES, **more}}


def _metadata(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": "default", **more}


def _pod(name: str) -> dict[str, Any]:
    spec = {"containers": [_container()]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(name), "spec": spec}


def _pod_with_claim(name: str) -> dict[str, Any]:
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    spec = {"resourceClaims": claims, "containers": [_container(claims=[{"name": "gpu"}])]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(name), "spec": spec}


def _deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [_container()], "terminationGracePeriodSeconds": 1},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _metadata(name), "spec": spec}


def _job(name: str) -> dict[str, Any]:
    metadata = {"annotations": {RUN: "exit 0 after 2s"}}
    template = {"metadata": metadata, "spec": {"containers": [_container()], "restartPolicy": "Never"}}
    spec = {"completions": 3, "parallelism": 2, "ttlSecondsAfterFinished": 10, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(name), "spec": spec}


_SELECTOR: Final = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
_REQUEST: Final = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
SETUP: Final = (
    (
        "deviceclasses.resource.k8s.io",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"selectors": [_SELECTOR]},
        },
    ),
    (
        "resourceclaimtemplates.resource.k8s.io",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": _metadata("gpu"),
            "spec": {"spec": {"devices": {"requests": [_REQUEST]}}},
        },
    ),
    *(("deployments.apps", _deployment(f"web-{number}")) for number in range(DEPLOYMENTS)),
)


@dataclass
class _Waiting:
    created_at: float
    ran_at: float = 0.0


@dataclass
class Load:
    """Load generator. `rate`: bare pods a second, which the other rates follow. `running_ms` and `read_ms`:
    latencies since the last `take`.
    """

    api: Api
    random: Random
    rate: float
    counts: Counts = field(default_factory=Counts)
    running_ms: list[float] = field(default_factory=list)
    read_ms: list[float] = field(default_factory=list)
    _pods: dict[str, _Waiting] = field(default_factory=dict)
    _decode: Callable[[bytes], PodState] = field(default_factory=lambda: msgspec.json.Decoder(PodState).decode)

    async def set_up(self) -> None:
        """Create the permanent objects. Raises: ApiError."""
        for resource, document in SETUP:
            await self._create(resource, document)

    async def run(self) -> None:
        """Generate load until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self.api, "pods", self._observe, lambda: None))
            group.create_task(self._every(1 / self.rate, self._bare_pod))
            group.create_task(self._every(10 / self.rate, self._claiming_pod))
            group.create_task(self._every(20 / self.rate, self._new_job))
            group.create_task(self._every(5 / self.rate, self._scale))
            group.create_task(self._every(0.5, self._delete_due))
            group.create_task(self._every(0.5, self._read))

    def take(self) -> tuple[list[float], list[float]]:
        """Return the latencies since the last call: created → Running, and reads."""
        taken = self.running_ms, self.read_ms
        self.running_ms, self.read_ms = [], []
        return taken

    async def _every(self, period_s: float, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Act at times that are random, and `period_s` apart on average."""
        while True:
            await asyncio.sleep(self.random.uniform(0.5, 1.5) * period_s)
            try:
                await act()
            except (ApiError, UnknownOutcome):
                self.counts.failed_calls += 1

    async def _create(self, resource: str, document: dict[str, Any]) -> None:
        namespace, body = document["metadata"].get("namespace", ""), msgspec.json.encode(document)
        answer = await self.api.call(Request(verb="create", resource=resource, namespace=namespace, body=body))
        answer.unwrap()

    async def _create_pod(self, document: dict[str, Any]) -> None:
        name = document["metadata"]["name"]
        self._pods[name] = _Waiting(time.perf_counter())
        self.counts.created += 1
        await self._create("pods", document)

    async def _bare_pod(self) -> None:
        await self._create_pod(_pod(f"soak-{self.counts.created}"))

    async def _claiming_pod(self) -> None:
        await self._create_pod(_pod_with_claim(f"soak-{self.counts.created}"))

    async def _new_job(self) -> None:
        self.counts.created += 1
        await self._create("jobs.batch", _job(f"job-{self.counts.created}"))

    async def _scale(self) -> None:
        body = msgspec.json.encode({"spec": {"replicas": self.random.randint(0, REPLICAS_MAX)}})
        name = f"web-{self.random.randrange(DEPLOYMENTS)}"
        request = Request(
            verb="patch", resource="deployments.apps", namespace="default", name=name, patch_type="merge", body=body
        )
        (await self.api.call(request)).unwrap()

    async def _delete_due(self) -> None:
        now = time.perf_counter()
        for name, pod in list(self._pods.items()):
            is_stuck = not pod.ran_at and now - pod.created_at > STUCK_S
            if is_stuck or (pod.ran_at and now >= pod.ran_at):
                request = Request(verb="delete", resource="pods", namespace="default", name=name, body=_DELETE)
                answer = await self.api.call(request)
                if answer.code != 404:
                    answer.unwrap()
                self.counts.stuck += is_stuck
                del self._pods[name]

    async def _read(self) -> None:
        for request in (
            Request(verb="list", resource="pods", namespace="default"),
            Request(verb="get", resource="deployments.apps", namespace="default", name="web-0"),
        ):
            begun = time.perf_counter()
            (await self.api.call(request)).unwrap()
            self.read_ms.append(1000 * (time.perf_counter() - begun))

    def _observe(self, event: WatchEvent, now: float) -> None:
        pod = self._pods.get(event.name)
        if pod is None or pod.ran_at or event.type not in ("ADDED", "MODIFIED"):
            return
        if self._decode(event.body).status.phase == "Running":
            pod.ran_at = now + self.random.uniform(*LIFE_S)
            self.counts.ran += 1
            self.running_ms.append(1000 * (now - pod.created_at))
