"""The runner's own view of the cluster: informers on all resources a scenario may refer to, and the pods'
history.

It watches as an administrator over a link without latency, so it sees the stored state.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from lab.scenarios.measures.device_use import DeviceUse
from lab.scenarios.measures.history import History
from lab.scenarios.measures.placement import Placement
from lab.scenarios.measures.recorded import Recorded
from services.api.errors import NotFound
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PodGroup
from services.api.kinds.resourceclaim import CLAIMS, ResourceClaim
from services.api.kinds.resourceslice import ResourceSlice
from services.api.meta import AnyObject, Document, Key, Resource, View
from services.api.resources import resources
from services.api.seams import Clock, Random
from services.api.wire import Api
from services.client.informer import Informer
from services.reconcile.controller import Change

LEASES = "leases.coordination.k8s.io"
POD_GROUPS = "podgroups.scheduling.k8s.io"
RESOURCES = tuple(
    name for name, each in resources().items() if name not in ("secrets", DEFINITIONS) and not each.is_of_clients
)
SLICES = "resourceslices.resource.k8s.io"
VIEWS: dict[str, type[View]] = {
    "pods": Pod,
    "nodes": Node,
    POD_GROUPS: PodGroup,
    CLAIMS: ResourceClaim,
    SLICES: ResourceSlice,
}
NAMESPACES = {LEASES: "kube-system"}
"""Resources that are followed in one namespace only: Leases of leaders, not the heartbeats of nodes."""


class Observer:
    """Implementation of `expectation.World`; `on_change` registers handlers for changes. `recorded`: data that a
    scenario's own measures read.
    """

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Random,
        recorded: Recorded | None = None,
        defined: Iterable[Resource] = (),
        arrivals: dict[int, float] | None = None,
    ) -> None:
        """Create the informers. `defined`: additional kinds from CustomResourceDefinitions. `arrivals`: filled with
        the time at which each version of a pod was seen.
        """
        self.history, self.placement, self.device_use = History(), Placement(), DeviceUse()
        self.recorded = recorded if recorded is not None else Recorded()
        self.started_s = clock.now()
        self._clock, self._arrivals = clock, arrivals
        self._ended_s: float | None = None
        self._informers: dict[str, Informer[Any]] = {}
        self._uids: dict[str, set[str]] = {}
        self._names: dict[str, list[str]] = {}
        self._changed: dict[str, dict[Key, int]] = {}
        self._changes = 0
        self._decoded: tuple[str, Key, Document] | None = None
        self._handlers: dict[int, Callable[[str], None]] = {}
        self._handlers_total = 0
        followed: list[str | Resource] = [*RESOURCES, *defined]
        for resource in followed:
            name = resource if isinstance(resource, str) else resource.name
            self._uids[name], self._names[name], self._changed[name] = set(), [], {}
            view = VIEWS.get(name, AnyObject)
            place = NAMESPACES.get(name, "")
            informer: Informer[Any] = Informer(
                api, view, clock=clock, random=random, resource=resource, namespace=place
            )
            informer.on_change(self._handler(name))
            self._informers[name] = informer

    def _handler(self, resource: str) -> Callable[[Change[Any]], None]:
        uids, names, changed = self._uids[resource], self._names[resource], self._changed[resource]
        is_recorded = resource in self.recorded.followed

        def on_change(change: Change[Any]) -> None:
            meta = change.object.metadata
            if meta.uid not in uids:
                uids.add(meta.uid)
                names.append(meta.name)
            self._changes += 1
            self._decoded = None
            changed.pop(meta.key, None)  # so that it comes last
            changed[meta.key] = self._changes
            if is_recorded:
                document = partial(self._informers[resource].lister.document, meta.key)
                self.recorded.observe(resource, meta.uid, self.now_s, document, is_gone=change.new is None)
            if resource == "pods":
                if self._arrivals is not None:
                    self._arrivals[change.rv] = self.now_s
                self.history.observe(change, self.now_s)
                self.placement.on_pod(change, self.now_s)
            elif resource == "nodes":
                self.placement.on_node(change, self.now_s)
            elif resource == SLICES:
                self.device_use.on_slice(change, self.now_s)
            elif resource == CLAIMS:
                self.device_use.on_claim(change, self.now_s)
            elif resource == POD_GROUPS:
                self.history.observe_group(change, self.now_s)
            for handler in tuple(self._handlers.values()):
                handler(resource)

        return on_change

    @property
    def now_s(self) -> float:
        """Seconds since the observer started; fixed once the run has ended."""
        return self._clock.now() - self.started_s if self._ended_s is None else self._ended_s

    def end(self) -> None:
        """Stop the observer's time now: changes seen later count as having happened by now."""
        self._ended_s = self.now_s

    def on_change(self, handler: Callable[[str], None]) -> Callable[[], None]:
        """Call `handler(resource)` after every change; it must not wait. Return a function that ends this."""
        self._handlers_total += 1
        number = self._handlers_total
        self._handlers[number] = handler

        def end() -> None:
            self._handlers.pop(number, None)

        return end

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())

    def list_again(self, resources: Iterable[str]) -> None:
        """List these resources anew, instead of waiting for outstanding changes on their watches."""
        for resource in resources:
            self._informers[resource].list_again()

    async def wait_until_synced(self) -> None:
        """Return when the first list of every resource is complete."""
        for informer in self._informers.values():
            await informer.wait_until_synced()

    async def wait_until_rv(self, rv: int, resource: str) -> None:
        """Return when the view of this resource has reached that version."""
        if resource in self._informers:
            await self._informers[resource].wait_until_rv(rv)

    @property
    def resources(self) -> tuple[str, ...]:
        """The resources that are followed, by wire name."""
        return tuple(self._informers)

    def version(self, resources: Iterable[str]) -> int:
        """Return the version that the views of all these resources have reached."""
        return min((self._informers[each].last_rv for each in resources if each in self._informers), default=0)

    def gaps(self) -> tuple[str, ...]:
        """Return a sentence for each resource that had to be listed anew, so that changes were not seen one by one."""
        return tuple(
            f"{resource}: listed again at version {until}; changes after version {since} were not seen one by one"
            for resource, informer in self._informers.items()
            for since, until in informer.taken_anew
        )

    def documents(self, resource: str) -> Iterable[Document]:
        """Return the stored objects, freshly decoded. Raises: NotFound for a kind that is not followed."""
        documents = (self.document(resource, key) for key in self.keys(resource))
        return [document for document in documents if document is not None]

    def keys(self, resource: str) -> Iterable[Key]:
        """Return the keys of the stored objects. Raises: NotFound for a kind that is not followed."""
        if resource not in self._informers:
            raise NotFound(f"{resource}: no such kind is served; `enable-crds` serves KWOK's")
        return self._informers[resource].lister.keys()

    def document(self, resource: str, key: Key) -> Document | None:
        """Return one stored object; None if there is none. One that is asked for again at once is not decoded again."""
        if self._decoded is not None and self._decoded[:2] == (resource, key):
            return self._decoded[2]
        document = self._informers[resource].lister.document(key)
        if document is not None:
            self._decoded = (resource, key, document)
        return document

    def changed_since(self, resource: str, change: int) -> tuple[list[Key], int]:
        """Return the keys of what has changed since that change, each once, and the number of the newest change."""
        keys: list[Key] = []
        changed = self._changed[resource]
        for key in reversed(changed):
            if changed[key] <= change:
                break
            keys.append(key)
        return keys, self._changes

    def created_names(self, resource: str) -> Sequence[str]:
        """Return the names of all objects of a resource that were ever seen, in the order of their creation."""
        return self._names[resource]
