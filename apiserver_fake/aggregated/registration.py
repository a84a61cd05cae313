"""The API server's own controllers of APIServices: those that it keeps itself, and whether the others can be reached.

A built-in group version has one from the start (`automanaged: onstart`): as the server starts it is put right, and
afterwards it is its owner's. A group version of definitions has one as long as a definition serves it (`"true"`).
Requests are not forwarded to extension API servers: an APIService with a Service is available where this server serves
the group version itself, and says why not otherwise. Source: upstream
`staging/src/k8s.io/kube-aggregator/pkg/controllers/autoregister`,
`staging/src/k8s.io/kube-aggregator/pkg/controllers/status/remote`,
`pkg/controlplane/controller/crdregistration`.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from apiserver_fake.registry.strategies.apiservice import LOCAL
from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Store
from services.api.errors import ApiError
from services.api.kinds.apiservice import API_SERVICES, AVAILABLE
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Document
from services.api.seams import Clock
from services.api.selectors import parse_label_selector
from services.api.times import format_time
from services.api.wire import Api, Request, WatchRequest

MANAGED = "kube-aggregator.kubernetes.io/automanaged"
ON_START, ALWAYS = "onstart", "true"
OF_DEFINITIONS = (1000, 100)
"""The priorities of the group and the version where a definition serves it."""
RESYNC_S = 30.0
SERVICES, SLICES = "services", "endpointslices.discovery.k8s.io"
BOOKMARK, ERROR = "BOOKMARK", "ERROR"
SERVICE_LABEL = "kubernetes.io/service-name"
PRIORITIES: Mapping[tuple[str, str], tuple[int, int]] = {
    ("", "v1"): (18000, 1),
    ("apps", "v1"): (17800, 15),
    ("events.k8s.io", "v1"): (17750, 15),
    ("authentication.k8s.io", "v1"): (17700, 15),
    ("authorization.k8s.io", "v1"): (17600, 15),
    ("autoscaling", "v1"): (17500, 15),
    ("autoscaling", "v2"): (17500, 30),
    ("batch", "v1"): (17400, 15),
    ("certificates.k8s.io", "v1"): (17300, 15),
    ("networking.k8s.io", "v1"): (17200, 15),
    ("policy", "v1"): (17100, 15),
    ("rbac.authorization.k8s.io", "v1"): (17000, 15),
    ("storage.k8s.io", "v1"): (16800, 15),
    ("admissionregistration.k8s.io", "v1"): (16700, 15),
    ("apiextensions.k8s.io", "v1"): (16700, 15),
    ("scheduling.k8s.io", "v1"): (16600, 15),
    ("scheduling.k8s.io", "v1beta1"): (16600, 12),
    ("coordination.k8s.io", "v1"): (16500, 15),
    ("node.k8s.io", "v1"): (16300, 15),
    ("discovery.k8s.io", "v1"): (16200, 15),
    ("resource.k8s.io", "v1"): (16200, 20),
    ("resource.k8s.io", "v1beta2"): (16200, 15),
    ("flowcontrol.apiserver.k8s.io", "v1"): (16100, 21),
    # Where metrics-server and adapters register them.
    ("metrics.k8s.io", "v1beta1"): (100, 100),
    ("custom.metrics.k8s.io", "v1beta2"): (100, 200),
    ("external.metrics.k8s.io", "v1beta1"): (100, 100),
}
"""The priorities of the group and the version by group version. Source: upstream
`pkg/controlplane/apiserver/aggregator.go`, `cmd/kube-apiserver/app/aggregator.go`."""
ITSELF = ("apiregistration.k8s.io", "v1")
"""The group version that the aggregator serves itself has none, as upstream."""

log = structlog.get_logger()


def name_of(group: str, version: str) -> str:
    """Return the name of the APIService of a group version."""
    return f"{version}.{group}"


def a_service(group: str, version: str, priorities: tuple[int, int], managed: str) -> Document:
    """Return the APIService that the server keeps for a group version that it serves."""
    spec = {"group": group, "version": version, "groupPriorityMinimum": priorities[0], "versionPriority": priorities[1]}
    meta = {"name": name_of(group, version), "labels": {MANAGED: managed}}
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": meta, "spec": spec}


class ApiServiceController:
    """Keeps the APIServices of this server and the conditions of all others; `run` never returns.

    `built_in`: the group versions that are served whatever is defined. `is_served`: whether one is served at present.
    """

    def __init__(
        self,
        store: Store,
        api: Api,
        clock: Clock,
        built_in: frozenset[tuple[str, str]],
        is_served: Callable[[str, str], bool],
    ) -> None:
        self._store, self._api, self._clock, self._is_served = store, api, clock, is_served
        self._built_in = {
            name_of(*each): a_service(*each, PRIORITIES.get(each, OF_DEFINITIONS), ON_START)
            for each in sorted(built_in - {ITSELF})
        }
        self._due: set[str] = set()
        self._wake = asyncio.Event()

    async def register_built_in(self) -> None:
        """Create and put right what belongs to built-in group versions; remove what did once. Raises: ApiError."""
        for name in sorted({*self._built_in, *(each["metadata"]["name"] for each in self._all())}):
            try:
                await self._register(name, is_start=True)
            except ApiError as error:
                if error.code not in (404, 409):  # another API server is doing the same
                    raise

    async def run(self) -> None:
        """Follow what changes, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(API_SERVICES))
            group.create_task(self._follow(DEFINITIONS))
            group.create_task(self._follow(SERVICES))
            group.create_task(self._follow(SLICES))
            while True:
                await self._wake.wait()
                self._wake.clear()
                due, self._due = self._due, set()
                for name in sorted(due):
                    await self._sync(name)

    async def _sync(self, name: str) -> None:
        try:
            await self._register(name, is_start=False)
            await self._look(name)
        except ApiError as error:
            # Changed meanwhile: the change has put it back.
            if error.code not in (404, 409):
                log.warning("apiservice.failed", apiservice=name, reason=str(error))
                asyncio.get_running_loop().call_later(RESYNC_S, self._add, {name})

    def _add(self, names: set[str]) -> None:
        if names:
            self._due |= names
            self._wake.set()

    async def _follow(self, resource: str) -> None:
        while True:
            try:
                request = WatchRequest(resource=resource)
                async for events in self._api.watch(request):
                    for event in events:
                        if event.type not in (BOOKMARK, ERROR):
                            self._add(self._concerned(resource, msgspec.json.decode(event.body)))
            except ApiError as error:
                log.debug("apiservice.watch_ended", resource=resource, reason=str(error))
            await asyncio.sleep(1.0)

    def _concerned(self, resource: str, changed: Document) -> set[str]:
        """Return the names of the APIServices that a changed object may change."""
        meta = changed["metadata"]
        if resource == API_SERVICES:
            return {meta["name"]}
        if resource == DEFINITIONS:
            group = changed["spec"]["group"]
            gone = {each["metadata"]["name"] for each in self._all() if each["spec"].get("group") == group}
            return gone | {name_of(group, each["name"]) for each in changed["spec"]["versions"]}
        name = meta["name"] if resource == SERVICES else (meta.get("labels") or {}).get(SERVICE_LABEL)
        where = (meta.get("namespace"), name)
        named = ((each["metadata"]["name"], each["spec"].get("service")) for each in self._all())
        return {own for own, service in named if service and (service.get("namespace"), service.get("name")) == where}

    def _all(self) -> list[Document]:
        return [msgspec.json.decode(record.body) for record in self._store.select(API_SERVICES, Selection()).records]

    def _get(self, name: str) -> Document | None:
        record = self._store.get(API_SERVICES, "", name)
        return None if record is None else msgspec.json.decode(record.body)

    # -- registration

    def _wanted(self, name: str) -> Document | None:
        if name in self._built_in:
            return self._built_in[name]
        version, _, group = name.partition(".")
        for record in self._store.select(DEFINITIONS, Selection()).records:
            spec = msgspec.json.decode(record.body)["spec"]
            if spec["group"] == group and any(each["name"] == version and each["served"] for each in spec["versions"]):
                return a_service(group, version, OF_DEFINITIONS, ALWAYS)
        return None

    async def _register(self, name: str, *, is_start: bool) -> None:
        wanted, found = self._wanted(name), self._get(name)
        if not is_start and wanted is not None and wanted["metadata"]["labels"][MANAGED] == ON_START:
            return
        if found is None:
            if wanted is not None:
                request = Request(verb="create", resource=API_SERVICES, body=msgspec.json.encode(wanted))
                (await self._api.call(request)).unwrap()
            return
        managed = (found["metadata"].get("labels") or {}).get(MANAGED)
        if managed not in (ON_START, ALWAYS):
            return  # a client made it
        if wanted is None:
            if managed == ALWAYS or is_start:
                uid = found["metadata"]["uid"]
                (await self._api.call(Request(verb="delete", resource=API_SERVICES, name=name, uid=uid))).unwrap()
        elif found["spec"] != wanted["spec"]:
            labels = {**(found["metadata"].get("labels") or {}), **wanted["metadata"]["labels"]}
            changed = {**found, "metadata": {**found["metadata"], "labels": labels}, "spec": wanted["spec"]}
            body = msgspec.json.encode(changed)
            (await self._api.call(Request(verb="update", resource=API_SERVICES, name=name, body=body))).unwrap()

    # -- availability

    async def _look(self, name: str) -> None:
        found = self._get(name)
        if found is None:
            return
        condition = self._condition(found["spec"])
        conditions = list((found.get("status") or {}).get("conditions") or ())
        before = next((each for each in conditions if each.get("type") == AVAILABLE), None)
        if before is not None and all(before.get(key) == value for key, value in condition.items()):
            return
        is_same = before is not None and before.get("status") == condition["status"]
        since = before["lastTransitionTime"] if is_same and before is not None else format_time(self._clock.wall())
        others = [each for each in conditions if each is not before]
        changed = {**found, "status": {"conditions": [*others, {**condition, "lastTransitionTime": since}]}}
        request = Request(
            verb="update", resource=API_SERVICES, name=name, subresource="status", body=msgspec.json.encode(changed)
        )
        (await self._api.call(request)).unwrap()

    def _condition(self, spec: Document) -> Document:
        service, group, version = spec.get("service"), spec.get("group") or "", spec.get("version") or ""
        if service is None:
            return LOCAL
        if self._is_served(group, version):
            return {"type": AVAILABLE, "status": "True", "reason": "Passed", "message": "all checks passed"}
        reason, message = self._unreachable(service, group, version)
        return {"type": AVAILABLE, "status": "False", "reason": reason, "message": message}

    def _unreachable(self, named: Document, group: str, version: str) -> tuple[str, str]:
        namespace, name, port = named["namespace"], named["name"], named.get("port") or 443
        record = self._store.get(SERVICES, namespace, name)
        where = f'service/{name} in "{namespace}"'
        if record is None:
            return "ServiceNotFound", f"{where} is not present"
        service = msgspec.json.decode(record.body)["spec"]
        if service.get("type", "ClusterIP") == "ClusterIP":
            listening = next((each for each in service.get("ports") or () if each["port"] == port), None)
            if listening is None:
                return "ServicePortError", f"{where} is not listening on port {port}"
            chosen = Selection(namespace, parse_label_selector(f"{SERVICE_LABEL}={name}"))
            slices = [msgspec.json.decode(each.body) for each in self._store.select(SLICES, chosen).records]
            if not slices:
                return "EndpointsNotFound", f"cannot find endpointslices for {where}"
            port_name = listening.get("name") or ""
            if not any(_has_endpoint(each, port_name) for each in slices):
                text = f'endpointslices for {where} have no addresses with port name "{port_name}"'
                return "MissingEndpoints", text
        host = service.get("externalName") or service.get("clusterIP") or ""
        url = f"https://{host}:{port}/apis/{group}/{version}"
        why = "this server does not forward requests to other API servers"
        return "FailedDiscoveryCheck", f"failing or missing response from {url}: {why}"


def _has_endpoint(slice_: Document, port_name: str) -> bool:
    ready = any((each.get("conditions") or {}).get("ready") is not False for each in slice_.get("endpoints") or ())
    ports = slice_.get("ports") or ()
    return ready and any((each.get("name") or "") == port_name and each.get("port") is not None for each in ports)
