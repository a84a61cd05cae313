"""The API server's own controllers of APIServices: they register its group versions and set the others'
Available condition.

A built-in group version has an APIService from the start (`automanaged: onstart`). The server corrects it when
it starts; afterwards it belongs to its owner. A group version of CustomResourceDefinitions has one as long as a
definition serves it (`"true"`). Requests are not forwarded to extension API servers: an APIService with a
Service is available if this server serves the group version itself; otherwise its condition says why not.
Source: upstream `staging/src/k8s.io/kube-aggregator/pkg/controllers/autoregister`,
`staging/src/k8s.io/kube-aggregator/pkg/controllers/status/remote`,
`pkg/controlplane/controller/crdregistration`.
"""

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog

from apiserver_fake.extensions.customresources.definition_index import DefinitionIndex, group_of
from apiserver_fake.registry.strategies.apiservice import LOCAL
from apiserver_fake.storage.records import DELETED, Selection
from apiserver_fake.storage.store import Store
from services.api.errors import ApiError
from services.api.kinds.apiservice import API_SERVICES, AVAILABLE
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.meta import Document
from services.api.seams import Clock
from services.api.selectors import parse_label_selector
from services.api.times import format_time
from services.api.wire import Api, Request, WatchEvent, WatchRequest

MANAGED = "kube-aggregator.kubernetes.io/automanaged"
ON_START, ALWAYS = "onstart", "true"
OF_DEFINITIONS = (1000, 100)
"""Priorities of the group and of the version, for a group version that a CustomResourceDefinition serves."""
RESYNC_S = 30.0
TAKEN_AT_ONCE = 50
"""Number of events of one batch that are processed before other tasks get a turn."""
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
"""Priorities of the group and of the version, by built-in group version. Source: upstream
`pkg/controlplane/apiserver/aggregator.go`, `cmd/kube-apiserver/app/aggregator.go`.
"""
ITSELF = ("apiregistration.k8s.io", "v1")
"""The group version that the aggregator serves itself. It has no APIService, as in upstream."""

log = structlog.get_logger()


def name_of(group: str, version: str) -> str:
    """Return the name of the APIService of a group version."""
    return f"{version}.{group}"


def a_service(group: str, version: str, priorities: tuple[int, int], managed: str) -> Document:
    """Return the APIService that the server keeps for a group version it serves."""
    spec = {"group": group, "version": version, "groupPriorityMinimum": priorities[0], "versionPriority": priorities[1]}
    meta = {"name": name_of(group, version), "labels": {MANAGED: managed}}
    return {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": meta, "spec": spec}


class _Registered:
    """The APIServices that a watch has shown, by group and by the Service behind them."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[str, tuple[str, str] | None]] = {}
        self._by_group: dict[str, set[str]] = {}
        self._behind: dict[tuple[str, str], set[str]] = {}

    def note(self, event: WatchEvent) -> None:
        """Take notice of a changed or deleted object."""
        name = event.name
        if (before := self._places.pop(name, None)) is not None:
            self._by_group[before[0]].discard(name)
            if before[1] is not None:
                self._behind[before[1]].discard(name)
                if not self._behind[before[1]]:
                    del self._behind[before[1]]
        if event.type == DELETED:
            return
        spec = msgspec.json.decode(event.body)["spec"]
        service = spec.get("service")
        place = (service.get("namespace") or "", service.get("name") or "") if service else None
        self._places[name] = (spec.get("group") or "", place)
        self._by_group.setdefault(spec.get("group") or "", set()).add(name)
        if place is not None:
            self._behind.setdefault(place, set()).add(name)

    def of_group(self, group: str) -> set[str]:
        """Return the names of a group's."""
        return set(self._by_group.get(group, ()))

    def behind(self, resource: str, event: WatchEvent) -> set[str]:
        """Return the names of those behind which a Service is, or the Service of a slice."""
        if not self._behind:
            return set()
        name = event.name
        if resource == SLICES:
            name = (msgspec.json.decode(event.body)["metadata"].get("labels") or {}).get(SERVICE_LABEL) or ""
        return set(self._behind.get((event.namespace, name), ()))


class ApiServiceController:
    """Keeps the APIServices of this server and the conditions of all others; `run` never returns.

    `built_in`: group versions that are always served. `definitions`: the CustomResourceDefinitions, for all other
    group versions. `is_served`: whether a group version is served at present.
    """

    def __init__(
        self,
        store: Store,
        api: Api,
        clock: Clock,
        built_in: frozenset[tuple[str, str]],
        definitions: DefinitionIndex,
        is_served: Callable[[str, str], bool],
    ) -> None:
        self._store, self._api, self._clock, self._is_served = store, api, clock, is_served
        self._definitions, self._registered = definitions, _Registered()
        self._built_in = {
            name_of(*each): a_service(*each, PRIORITIES.get(each, OF_DEFINITIONS), ON_START)
            for each in sorted(built_in - {ITSELF})
        }
        self._due: set[str] = set()
        self._wake = asyncio.Event()

    async def register_built_in(self) -> None:
        """Create or correct the APIServices of built-in group versions, and delete those of former ones. Raises:
        ApiError.
        """
        stored = self._store.select(API_SERVICES, Selection()).records
        for name in sorted({*self._built_in, *(record.name for record in stored)}):
            try:
                await self._register(name, is_start=True)
            except ApiError as error:
                if error.code not in (404, 409):  # another API server is doing the same
                    raise

    async def run(self) -> None:
        """Watch APIServices, CustomResourceDefinitions, Services and EndpointSlices, and sync, until cancelled."""
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
                    # What needs no write waits for nothing, and after a start all of them are due.
                    await asyncio.sleep(0)

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
        known: dict[str, int] = {}
        while True:
            try:
                self._forget_gone(resource, known)
                async for events in self._api.watch(WatchRequest(resource=resource)):
                    for place, event in enumerate(events):
                        if event.type not in (BOOKMARK, ERROR):
                            self._add(self._affected_names(resource, event, known))
                        if place % TAKEN_AT_ONCE == TAKEN_AT_ONCE - 1:
                            await asyncio.sleep(0)
            except ApiError as error:
                log.debug("apiservice.watch_ended", resource=resource, reason=str(error))
            await asyncio.sleep(1.0)

    def _forget_gone(self, resource: str, known: dict[str, int]) -> None:
        """Forget what went while no watch followed it."""
        for name in [name for name in known if self._store.get(resource, "", name) is None]:
            self._add(self._affected_names(resource, WatchEvent(type=DELETED, name=name), known))

    def _affected_names(self, resource: str, event: WatchEvent, known: dict[str, int]) -> set[str]:
        """Return the names of the APIServices that a changed object may change; `known`: the versions of definitions
        and APIServices that were looked at, which a watch that begins anew shows again."""
        if resource in (SERVICES, SLICES):
            return self._registered.behind(resource, event)
        if event.type == DELETED:
            known.pop(event.name, None)
        elif known.get(event.name) == event.rv:
            return set()
        else:
            known[event.name] = event.rv
        if resource == API_SERVICES:
            self._registered.note(event)
            return {event.name}
        group = group_of(event.name)
        versions = self._definitions.versions(event.name)
        return self._registered.of_group(group) | {name_of(group, version) for version in versions}

    def _get(self, name: str) -> Document | None:
        record = self._store.get(API_SERVICES, "", name)
        return None if record is None else msgspec.json.decode(record.body)

    # -- registration

    def _wanted_service(self, name: str) -> Document | None:
        if name in self._built_in:
            return self._built_in[name]
        version, _, group = name.partition(".")
        is_defined = self._definitions.is_served(group, version)
        return a_service(group, version, OF_DEFINITIONS, ALWAYS) if is_defined else None

    async def _register(self, name: str, *, is_start: bool) -> None:
        wanted, service = self._wanted_service(name), self._get(name)
        if not is_start and wanted is not None and wanted["metadata"]["labels"][MANAGED] == ON_START:
            return
        if service is None:
            if wanted is not None:
                request = Request(verb="create", resource=API_SERVICES, body=msgspec.json.encode(wanted))
                (await self._api.call(request)).unwrap()
            return
        managed = (service["metadata"].get("labels") or {}).get(MANAGED)
        if managed not in (ON_START, ALWAYS):
            return  # a client made it
        if wanted is None:
            if managed == ALWAYS or is_start:
                uid = service["metadata"]["uid"]
                (await self._api.call(Request(verb="delete", resource=API_SERVICES, name=name, uid=uid))).unwrap()
        elif service["spec"] != wanted["spec"]:
            labels = {**(service["metadata"].get("labels") or {}), **wanted["metadata"]["labels"]}
            changed = {**service, "metadata": {**service["metadata"], "labels": labels}, "spec": wanted["spec"]}
            body = msgspec.json.encode(changed)
            (await self._api.call(Request(verb="update", resource=API_SERVICES, name=name, body=body))).unwrap()

    # -- availability

    async def _look(self, name: str) -> None:
        service = self._get(name)
        if service is None:
            return
        condition = self._condition(service["spec"])
        conditions = list((service.get("status") or {}).get("conditions") or ())
        before = next((each for each in conditions if each.get("type") == AVAILABLE), None)
        if before is not None and all(before.get(key) == value for key, value in condition.items()):
            return
        is_same = before is not None and before.get("status") == condition["status"]
        since = before["lastTransitionTime"] if is_same and before is not None else format_time(self._clock.wall())
        others = [each for each in conditions if each is not before]
        changed = {**service, "status": {"conditions": [*others, {**condition, "lastTransitionTime": since}]}}
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
