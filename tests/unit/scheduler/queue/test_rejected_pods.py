"""Pods that wait for claims are asked about the changes of their own: the same pods wake as when all are asked."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.entry import Handle
from scheduler.framework.events import Action, ClusterEvent, Hint, Registration, Subjects
from scheduler.framework.world import FixedWorld, world_event
from scheduler.plugins.dynamic_resources import PLUGIN
from scheduler.queue.exclusions import Exclusions
from scheduler.queue.scheduling_queue import SchedulingQueue
from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.switches import Switches

NAMES = ("a", "b", "c")
OTHER = "Other"


def a_pod(name, wanted, shown):
    """A pod that names these claims in its spec, and these in its status."""
    entries = [{"name": each, "resourceClaimName": each} for each in wanted]
    entries += [{"name": f"of-{each}", "resourceClaimTemplateName": "t"} for each in shown]
    statuses = [{"name": f"of-{each}", "resourceClaimName": each} for each in shown]
    document = {"metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {"resourceClaims": entries}, "status": {"resourceClaimStatuses": statuses}}  # fmt: skip
    return PodInfo(msgspec.convert(document, Pod))


def a_claim(name, state, namespace="default"):
    status = {"": {}, "allocated": {"allocation": {}}, "reserved": {"reservedFor": [{"uid": "u"}]}}[state]
    document = {"metadata": {"name": name, "namespace": namespace, "uid": name}, "status": status}
    return msgspec.convert(document, ResourceClaim)


def registrations(world):
    """What DynamicResources registers, and a plugin that wants every change of a claim."""
    handle = Handle(Switches(), Cache(), Nominator(), world, Exclusions(), random.Random(1), lambda: 0.0)
    plugin = PLUGIN.make(PLUGIN.defaults(handle.switches), handle)
    any_claim = Registration(ClusterEvent("ResourceClaim", Action.ADD | Action.UPDATE | Action.DELETE))
    return {"DynamicResources": tuple(plugin.events_to_register()), OTHER: (any_claim,)}


def queue_of(tables):
    return SchedulingQueue(sort_key=lambda info, at: (at,), registrations_by_profile={"default-scheduler": tables})


def park(queue, info, rejectors, pending):
    queue.add(info, 0.0)
    queue.add_unschedulable(queue.pop(0.0), 0.0, rejectors=rejectors, pending=pending)


names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
pods = st.lists(st.tuples(names, names, st.sampled_from(("dra", "both", "pending", "other"))), min_size=1, max_size=6)
states = st.sampled_from((None, "", "allocated", "reserved"))
changes = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.sampled_from(NAMES), states, states, st.sampled_from(("default", "other"))),
        st.tuples(st.just("pod"), st.integers(0, 5), names, names),
    ),
    max_size=8,
)
REJECTED = {"dra": (["DynamicResources"], []), "both": (["DynamicResources", OTHER], []),
            "pending": ([], ["DynamicResources"]), "other": ([OTHER], [])}  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(pods, changes)
def test_the_same_pods_wake_in_the_same_order_as_when_every_pod_is_asked(waiting, happening):
    world = FixedWorld(*(a_claim(name, "") for name in NAMES))
    tables = registrations(world)
    plain = {plugin: tuple(replace(each, subjects=None) for each in found) for plugin, found in tables.items()}
    moves = []
    for queue in (queue_of(tables), queue_of(plain)):
        moved = []
        queue.on_move = lambda queued, pool, by, hint, to=moved: to.append((queued.key.name, str(pool), by, hint))
        for number, (wanted, shown, how) in enumerate(waiting):
            park(queue, a_pod(f"p{number}", wanted, shown), *REJECTED[how])
        for at, (what, *rest) in enumerate(happening, 1):
            if what == "pod":
                number, wanted, shown = rest
                if number < len(waiting):
                    queue.update(a_pod(f"p{number}", wanted, shown), float(at))
                continue
            name, before, after, namespace = rest
            old, new = (None if each is None else a_claim(name, each, namespace) for each in (before, after))
            if old is not None or new is not None:
                queue.move_all(world_event(ResourceClaim, old, new), old, new, float(at))
        moves.append(moved)

    assert moves[1] == moves[0]


def _queue_with(info):
    queue = queue_of(registrations(FixedWorld(*(a_claim(name, "") for name in NAMES))))
    park(queue, info, ["DynamicResources"], [])
    return queue


def _move(queue, old, new):
    return queue.move_all(world_event(ResourceClaim, old, new), old, new, 5.0)


def test_a_parked_pod_is_asked_about_the_claims_that_its_newer_form_names():
    queue = _queue_with(a_pod("p", ["b"], []))

    queue.update(a_pod("p", ["a"], []), 1.0)

    assert _move(queue, None, a_claim("b", "")) == 0
    assert _move(queue, None, a_claim("a", "")) == 1


def test_devices_that_become_free_wake_pods_that_name_another_claim():
    queue = _queue_with(a_pod("p", ["b"], []))

    assert _move(queue, a_claim("a", ""), a_claim("a", "allocated")) == 0
    assert _move(queue, a_claim("a", "allocated"), a_claim("a", "")) == 1


def test_only_pods_that_share_a_subject_with_the_change_are_asked_and_in_the_order_in_which_they_were_parked():
    asked = []

    def hint(info, old, new):
        asked.append(info.key.name)
        return Hint.SKIP

    subjects = Subjects(lambda info: tuple(info.metadata.labels.values()) or None, lambda old, new: (new,))
    event = ClusterEvent("Thing", Action.UPDATE, "ThingUpdate")
    queue = queue_of({"P": (Registration(event, hint, subjects),)})
    for name, labels in (("c", {"k": "1"}), ("b", {}), ("a", {"k": "1"}), ("d", {"k": "2"})):
        pod = msgspec.convert({"metadata": {"name": name, "uid": name, "labels": labels}}, Pod)
        park(queue, PodInfo(pod), ["P"], [])

    queue.move_all(event, None, "1", 1.0)

    assert asked == ["c", "b", "a"]
