"""A world of values: stores for caches, one controller's watches, and documents in one line."""

import msgspec
import pytest

from services.api.meta import AnyObject, Key
from services.api.resources import Kinds, resource_of_kind, resource_of_view, resources
from services.api.switches import Switches
from services.api.times import format_time
from services.client.store import Store
from services.reconcile.controller import Moment

WALL_S = 1_767_225_600.0


class _Any:
    def __init__(self, stores):
        self._stores = stores

    def owned_by(self, uid):
        return [
            AnyObject(api_version=resources()[name].api_version, kind=resources()[name].kind, metadata=view.metadata)
            for name, store in self._stores.items()
            for view in store.owned_by(uid)
        ]


class World:
    """Caches that one controller sees; `put` and `drop` return the keys its watches name."""

    def __init__(self, registration, **switches):
        self.controller = registration.build(Switches({k.replace("__", "."): v for k, v in switches.items()}))
        self.stores = {name: Store(resource.view) for name, resource in resources().items()}
        self.kinds, self.are_complete = Kinds(), True
        self._changes = []
        for store in self.stores.values():
            store.on_change(self._changes.append)
        self.version = 0
        self.now_s = 1000.0

    def of(self, view):
        return _Any(self.stores) if view is AnyObject else self.stores[resource_of_view(view).name]

    def any(self, resource):
        return self.stores[resource]

    def put(self, document):
        self.version += 1
        metadata = {"namespace": "default", "uid": f"uid-{document['metadata']['name']}", **document["metadata"]}
        resource = resource_of_kind(document["apiVersion"], document["kind"])
        if not resource.namespaced:
            metadata["namespace"] = ""
        metadata["resourceVersion"] = str(self.version)
        body = msgspec.json.encode({**document, "metadata": metadata})
        key = Key(metadata["namespace"], metadata["name"])
        self.stores[resource.name].put(key, self.version, body)
        return self._keys_of(resource, self._changes.pop())

    def drop(self, kind, name, namespace="default", api_version="v1"):
        self.version += 1
        resource = resource_of_kind(api_version, kind)
        key = Key(namespace if resource.namespaced else "", name)
        self.stores[resource.name].remove(key, self.version)
        return self._keys_of(resource, self._changes.pop())

    def _keys_of(self, resource, change):
        keys = []
        for watch in self.controller.watches:
            if watch.view is resource.view:
                keys += watch.keys(change, self)
            elif watch.view is AnyObject:
                as_any = {
                    side: view and AnyObject(api_version=resource.api_version, kind=resource.kind,
                                             metadata=view.metadata)
                    for side, view in (("old", change.old), ("new", change.new))
                }  # fmt: skip
                keys += watch.keys(_change(change, as_any), self)
        return keys

    def reconcile(self, name="", namespace="default", live=None, listed=None, after_s=0.0, refused=None):
        self.now_s += after_s
        moment = Moment(self.now_s, WALL_S + self.now_s, live or {}, listed or {}, refused or {})
        return self.controller.reconcile(Key(namespace, name) if name else Key("", ""), self, moment)

    def stamp(self, ago_s=0.0):
        return format_time(WALL_S + self.now_s - ago_s)


def _change(change, sides):
    return type(change)(sides["old"], sides["new"], change.rv)


@pytest.fixture
def world_of():
    return World


@pytest.fixture
def a_pod():
    def build(name, *, owner="", node="", phase="Running", ready=None, since="", status=None, **metadata):
        is_so = phase == "Running" if ready is None else ready
        if owner:
            metadata["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}",
                 "controller": True, "blockOwnerDeletion": True}
            ]  # fmt: skip
        spec = metadata.pop("spec", {})
        conditions = [{"type": "Ready", "status": "True" if is_so else "False", "lastTransitionTime": since}]
        return {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "web"}, **metadata},
            "spec": {"nodeName": node, **spec},
            "status": {"phase": phase, "conditions": conditions, **(status or {})},
        }  # fmt: skip

    return build


@pytest.fixture
def a_set():
    def build(replicas, name="web", status=None, min_ready_s=0, **metadata):
        return {
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "generation": 1, **metadata},
            "spec": {"replicas": replicas, "minReadySeconds": min_ready_s, "selector": {"matchLabels": {"app": "web"}},
                     "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"x-unknown": 1}}},
            "status": status or {},
        }  # fmt: skip

    return build
