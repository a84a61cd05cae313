"""A world of documents in a dictionary, enough for the rules: no store, no servers, no time that passes by itself."""

from __future__ import annotations

import copy
import functools
import random
from typing import Any

import msgspec
import pytest

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.registry.authorization.authorizer import admit, authorize
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.errors import not_found
from apiserver_fake.registry.gated_fields import drop_disabled
from apiserver_fake.registry.strategy import ServerMemory, Strategy, SubresourceResult, WriteContext, subresource
from apiserver_fake.registry.switches import ApiServerSwitches
from apiserver_fake.registry.validation.formats import Cause
from services.api.identity import ADMIN, SCHEDULER, Identity, node_identity
from services.api.meta import Document
from services.api.resources import resources
from services.api.switches import Switches
from services.api.wire import Request


@functools.cache
def _catalogue() -> Catalogue:
    return whole_catalogue()


def strategy_of(resource: str) -> Strategy:
    """Return the rules of a kind, as a server with all extensions has them."""
    return _catalogue().kind(resource).strategy if resource in resources() else Strategy()


class World:
    """Documents by (resource, namespace, name), and the registry's order of work without its machinery."""

    def __init__(self) -> None:
        self.documents: dict[tuple[str, str, str], Document] = {}
        self.now_s, self.wall_s = 1000.0, 1_800_000_000.0
        self.switches = Switches()
        self.memory = ServerMemory()
        self.rv = 100

    def switch(self, **values: Any) -> None:
        self.switches = self.switches.replace({name.replace("__", "."): value for name, value in values.items()})

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall_s += seconds

    def put(self, resource: str, document: Document) -> Document:
        self.rv += 1
        meta = {"namespace": "default", "uid": f"uid-{self.rv}", "generation": 1, **document["metadata"]}
        if resource in resources() and not resources()[resource].namespaced:
            meta.pop("namespace")
        stored = {**document, "metadata": {**meta, "resourceVersion": str(self.rv)}}
        self.documents[resource, meta.get("namespace", ""), meta["name"]] = stored
        return stored

    def get(self, resource: str, name: str, namespace: str = "default") -> Document:
        return self.documents[resource, namespace, name]

    def lookup(self, resource: str, namespace: str, name: str) -> Document | None:
        return self.documents.get((resource, namespace, name))

    def labels(self, resource: str, namespace: str, name: str) -> dict[str, str] | None:
        found = self.lookup(resource, namespace, name)
        return None if found is None else found["metadata"].get("labels") or {}

    def list(self, resource: str, namespace: str) -> list[Document]:
        return [
            document
            for (kind, place, _), document in self.documents.items()
            if kind == resource and namespace in ("", place)
        ]

    def ctx(self, identity: Identity, request: Request) -> WriteContext:
        return WriteContext(
            identity,
            self.now_s,
            self.wall_s,
            self.switches.of(ApiServerSwitches),
            self.switches,
            random.Random(1),
            request,
            self.lookup,
            self.list,
            self.memory,
            self.labels,
            strategy_of(request.resource),
        )

    def create(self, resource: str, document: Document, identity: Identity = ADMIN, **request: Any) -> Document:
        causes, new = self.try_create(resource, document, identity, **request)
        assert causes == []
        return self.put(resource, new)

    def try_create(
        self, resource: str, document: Document, identity: Identity = ADMIN, **request: Any
    ) -> tuple[list[Cause], Document]:
        new = copy.deepcopy(document)
        call = Request(
            verb="create", resource=resource, namespace=new["metadata"].get("namespace", "default"), **request
        )
        ctx = self.ctx(identity, call)
        strategy = strategy_of(resource)
        drop_disabled(resource, None, new, ctx)
        strategy.prepare_create(new, ctx)
        admit(identity, call, None, new, ctx)
        return strategy.validate(None, new, ctx), new

    def try_update(
        self, resource: str, old: Document, new: Document, identity: Identity = ADMIN
    ) -> tuple[list[Cause], Document]:
        before, new = copy.deepcopy(old), {**new}
        call = Request(verb="update", resource=resource, namespace="default", name=old["metadata"]["name"])
        ctx = self.ctx(identity, call)
        strategy = strategy_of(resource)
        drop_disabled(resource, old, new, ctx)
        strategy.prepare_update(old, new, ctx)
        admit(identity, call, old, new, ctx)
        causes = strategy.validate(old, new, ctx)
        assert old == before, "a rule changed the stored document"
        return causes, new

    def sub(
        self,
        identity: Identity,
        resource: str,
        name: str,
        sub: str,
        body: Document,
        verb: str = "create",
        **request: Any,
    ) -> SubresourceResult:
        """Call a subresource as the server would and store what it returns."""
        namespace = request.pop("namespace", "default")
        call = Request(
            verb=verb, resource=resource, namespace=namespace, name=name, subresource=sub,
            body=msgspec.json.encode(body), **request,
        )  # fmt: skip
        authorize(identity, call, self.lookup, self.list)
        found = subresource(resource, sub)
        assert found is not None
        stored = self.lookup(resource, namespace, name)
        before, asked = copy.deepcopy(stored), copy.deepcopy(body)
        ctx = self.ctx(identity, call)
        try:
            found.check_first(stored, body, ctx)
            if stored is None:
                raise not_found(resources()[resource], name)
            result = found.apply(stored, body, ctx)
        finally:
            assert (stored, body) == (before, asked), "a subresource changed what it was given"
        if result.document is not None:
            self.put(resource, result.document)
        for kind, document in result.also:
            self.put(kind, document)
        return result

    # -- short forms

    def pod(self, name: str = "p", **parts: Any) -> Document:
        """Store a pod that waits for a node, with the scheduler able to take it back."""
        spec = {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "image": "i:1"}],
            **parts.pop("spec", {}),
        }
        meta = {"name": name, **parts.pop("metadata", {})}
        status = {"phase": "Pending", "qosClass": "BestEffort", **parts.pop("status", {})}
        return self.put("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status})

    def node(self, name: str, session: str = "s1", **labels: str) -> Document:
        info = {"nodeInfo": {"kubeletSession": session}}
        meta = {"name": name, "labels": labels}
        return self.put("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": info})

    def scheduler_lease(self, **annotations: str) -> Document:
        meta = {
            "name": "kube-scheduler",
            "namespace": "kube-system",
            "annotations": {"emulation/unbind": "v1", **annotations},
        }
        spec = {"holderIdentity": "s-1", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
        return self.put(
            "leases.coordination.k8s.io",
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec},
        )

    def bind(self, name: str, node: str, **more: Any) -> Document:
        meta = {"name": name, **more.pop("metadata", {})}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": meta,
            "target": {"kind": "Node", "name": node},
            **more,
        }
        self.sub(SCHEDULER, "pods", name, "binding", body)
        return self.get("pods", name)

    def status(self, identity: Identity, name: str, **status: Any) -> Document:
        """Write a status as a merge patch of it would."""
        pod = self.get("pods", name)
        body = {**pod, "status": {**pod["status"], **status}}
        self.sub(identity, "pods", name, "status", body, verb="patch")
        return self.get("pods", name)


N1, N2 = node_identity("n1"), node_identity("n2")


@pytest.fixture
def world() -> World:
    """Two nodes, a capable scheduler, the usual namespaces, and no pod."""
    made = World()
    for name in ("default", "kube-system", "kube-node-lease"):
        made.put("namespaces", {"metadata": {"name": name}, "status": {"phase": "Active"}})
    made.node("n1")
    made.node("n2")
    made.scheduler_lease()
    return made
