"""Dispatching of changes: the watches that a change concerns are told, in order, and no registered one misses a thing."""

from __future__ import annotations

import random

import msgspec
import pytest

from claim_controller.wiring import CONTROLLERS
from services.api.kinds.job import Job
from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.meta import AnyObject, Key
from services.api.resources import resource_of_view
from services.api.switches import Switches
from services.controllers.shared_pods import PodsBy
from services.controllers.wiring import registered_controllers
from services.reconcile.controller import Change
from services.reconcile.dispatch import Dispatcher
from services.reconcile.interest import EVERYTHING, OF_ADOPTION, Interest
from tests.unit.controllers.conftest import World

PODS = resource_of_view(Pod)
KINDS = {"": "", "ReplicaSet": "apps/v1", "DaemonSet": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1",
         "ReplicationController": "v1", "Gang": "example.com/v1"}  # fmt: skip


def a_pod(*, owner="", of="", uid="u", node="", labels="", phase="Pending", finalizer="", deleted=False, volumes=()):
    metadata = {"name": "web-0", "namespace": "default", "uid": uid, "labels": {"app": labels} if labels else {}}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": KINDS[owner], "kind": owner, "name": of, "uid": f"uid-{of}", "controller": True}
        ]
    if finalizer:
        metadata["finalizers"] = [finalizer]
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = {"nodeName": node, "volumes": list(volumes)}
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
    status = {"phase": phase, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def view(document):
    return None if document is None else msgspec.convert(document, Pod)


def targets_of(interests, old, new):
    """Return the names of the watches that are told of a change."""
    names = []
    dispatcher = Dispatcher(PODS)
    for name, interest in interests.items():
        dispatcher.add(lambda change, name=name: names.append(name), interest)
    dispatcher.on_change(Change(view(old), view(new)))
    return names


OF_SETS = {
    "all": EVERYTHING,
    "sets": Interest(owner=ReplicaSet, orphan_changes=OF_ADOPTION),
    "jobs": Interest(owner=Job),
    "node": Interest(changes=("spec.node_name",)),
    "volumes": Interest(has="spec.volumes"),
}
OF_SET = {"owner": "ReplicaSet", "of": "web"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(None, OF_SET, ["all", "sets", "node"], id="came"),
        pytest.param(OF_SET, None, ["all", "sets", "jobs", "node"], id="gone"),
        pytest.param(OF_SET, {**OF_SET, "phase": "Running"}, ["all", "sets"], id="status"),
        pytest.param(OF_SET, {**OF_SET, "node": "n1"}, ["all", "sets", "node"], id="bound"),
        pytest.param(OF_SET, {**OF_SET, "uid": "other"}, ["all", "sets", "node"], id="another under its name"),
        pytest.param({}, {"phase": "Running"}, ["all", "jobs"], id="status of an orphan"),
        pytest.param({}, {"labels": "x"}, ["all", "sets", "jobs"], id="labels of an orphan"),
        pytest.param({}, OF_SET, ["all", "sets", "jobs"], id="adopted"),
        pytest.param(OF_SET, {"owner": "Job", "of": "web"}, ["all", "sets", "jobs"], id="moved"),
        pytest.param({**OF_SET, "volumes": ({"name": "v"},)}, OF_SET, ["all", "sets", "volumes"], id="had volumes"),
        pytest.param({"owner": "Gang", "of": "g"}, {"owner": "Gang", "of": "g", "phase": "Running"}, ["all"],
                     id="of a kind that nobody names"),
    ],
)  # fmt: skip
def test_a_change_reaches_the_watches_that_it_concerns_in_the_order_of_subscription(old, new, expected):
    sides = (None if each is None else a_pod(**each) for each in (old, new))

    assert targets_of(OF_SETS, *sides) == expected


def test_a_watch_of_all_kinds_receives_updates_of_the_kinds_that_it_names_and_what_comes_and_goes_of_all():
    few, other = Interest(updates_of=("pods",)), Interest(updates_of=("services",))
    changes = [(None, a_pod()), (a_pod(), a_pod(phase="Running")), (a_pod(), None)]

    assert [targets_of({"few": few, "other": other}, *each) for each in changes] == [
        ["few", "other"],
        ["few"],
        ["few", "other"],
    ]


def test_watches_of_all_kinds_get_metadata_and_the_kind_and_all_of_them_the_same_change():
    seen = []
    dispatcher = Dispatcher(PODS)
    dispatcher.add(seen.append, EVERYTHING, is_any=True)
    dispatcher.add(seen.append, Interest(changes=("metadata.labels",)), is_any=True)

    dispatcher.on_change(Change(view(a_pod()), view(a_pod(labels="x")), 7, "trace"))

    assert seen[0] is seen[1]
    assert (type(seen[0].new), seen[0].new.kind, seen[0].new.metadata.labels) == (AnyObject, "Pod", {"app": "x"})
    assert (seen[0].rv, seen[0].traceparent) == (7, "trace")


def _choosy():
    """Return the registered controllers that do not want every change of a pod, by name."""
    registered = {**registered_controllers(), **{each.name: each for each in CONTROLLERS}}
    watches = {name: each.build(Switches()).watches for name, each in registered.items()}
    return {name: each for name, each in registered.items() if any(w.interest is not EVERYTHING for w in watches[name])}


CHOOSY = _choosy()


class Controlled:
    """A controller over caches of values; its watches are told of every change of a pod, or through a dispatcher."""

    def __init__(self, registration, *, has_all):
        self.world = World(registration)
        for owner in _owners():
            self.world.put(owner)
        self.keys = []
        self.dispatcher = Dispatcher(PODS)
        for watch in self.world.controller.watches:
            if watch.view in (Pod, AnyObject):
                interest = EVERYTHING if has_all else watch.interest
                self.dispatcher.add(self._handler(watch), interest, is_any=watch.view is AnyObject)
        self.version = 1000

    def _handler(self, watch):
        return lambda change: self.keys.extend(watch.keys(change, self.world))

    def change(self, document):
        """Store the pod, or its absence, and return the keys that the watches name."""
        self.version += 1
        store, key = self.world.stores["pods"], Key("default", "web-0")
        old = store.get(key)
        if document is None:
            store.remove(key, self.version)
        else:
            store.put(key, self.version, msgspec.json.encode(document))
        self.keys.clear()
        self.dispatcher.on_change(Change(old, store.get(key), self.version))
        return list(self.keys)

    def placements(self):
        """Return the pods by group that the controller remembers."""
        memories = [getattr(watch.keys, "__self__", None) for watch in self.world.controller.watches]
        attributes = [each for memory in memories if memory is not None for each in vars(memory).values()]
        return [each.of(node) for each in attributes if isinstance(each, PodsBy) for node in ("n1", "n2")]


def _owners():
    """Objects that own, select, adopt or count the pods."""
    selector = {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}}}}
    waits = {**selector, "strategy": {"type": "Recreate"}}
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "site"}, "spec": waits}
    site = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "site", "uid": "uid-site", "controller": True}
    for kind in ("ReplicaSet", "DaemonSet", "StatefulSet", "Job"):
        metadata = {"name": "web", "ownerReferences": [site] if kind == "ReplicaSet" else []}
        yield {"apiVersion": KINDS[kind], "kind": kind, "metadata": metadata, "spec": selector}
    yield {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"},
           "spec": {"selector": {"app": "x"}}}  # fmt: skip
    yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


def _random_pod(chance):
    owner = chance.choice(list(KINDS))
    return {
        "owner": owner,
        "of": chance.choice(("web", "other")),
        "uid": chance.choice(("u", "u", "u", "v")),
        "node": chance.choice(("", "n1", "n2")),
        "labels": chance.choice(("", "x", "y")),
        "phase": chance.choice(("Pending", "Running", "Succeeded", "Failed")),
        "finalizer": chance.choice(("", "batch.kubernetes.io/job-tracking")),
        "deleted": chance.random() < 0.2,
        "volumes": chance.choice(((), ({"name": "v", "persistentVolumeClaim": {"claimName": "c"}},))),
    }


def _next_pod(chance, before):
    """Return what a pod becomes: gone, another, or the same with one or two attributes changed."""
    if before is None or chance.random() < 0.1:
        return _random_pod(chance)
    if chance.random() < 0.1:
        return None
    other = _random_pod(chance)
    changed = chance.sample(sorted(other), k=chance.choice((1, 1, 2)))
    if "owner" in changed or "of" in changed:
        changed += ["owner", "of"]
    return {**before, **{name: other[name] for name in changed}}


@pytest.mark.parametrize("name", CHOOSY)
def test_a_controller_that_receives_only_what_concerns_it_returns_the_same_keys(name):
    chance, before = random.Random(7), None
    plain, filtered = (Controlled(CHOOSY[name], has_all=has_all) for has_all in (True, False))
    for _ in range(400):
        after = _next_pod(chance, before)
        document = None if after is None else a_pod(**after)
        if before is not None or after is not None:
            assert plain.change(document) == filtered.change(document), (before, after)
            assert plain.placements() == filtered.placements(), (before, after)
        before = after
