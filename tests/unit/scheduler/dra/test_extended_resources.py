"""Extended resources that are devices of a class (dra-core 6.9; KEP-5004)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.dra.extended_resources import IMPLICIT, BackedResources, made_for, requests_for
from scheduler.dra.ledger import Release
from services.api.kinds.deviceclass import DeviceClass, DeviceClassSpec
from services.api.kinds.pod import Container, ResourceRequirements
from services.api.kinds.resourceclaim import EXTENDED_RESOURCE_CLAIM
from services.api.meta import ObjectMeta, OwnerReference
from services.reconcile.controller import Change
from tests.unit.scheduler.dra.test_devices import GPU, claim, granted, offer

RESOURCE = "example.com/gpu"


def device_class(name, resource=RESOURCE, made="2026-01-01T00:00:00Z"):
    return DeviceClass(
        metadata=ObjectMeta(name=name, creation_timestamp=made), spec=DeviceClassSpec(extended_resource_name=resource)
    )


def backed(*classes):
    found = BackedResources()
    for each in classes:
        found.on_change(Change(None, each))
    return found


def test_of_classes_with_one_resource_the_newest_counts_and_then_the_first_by_name():
    assert backed(device_class("b"), device_class("a")).class_of(RESOURCE) == "a"
    assert backed(device_class("a"), device_class("b", made="2026-02-01T00:00:00Z")).class_of(RESOURCE) == "b"


def test_every_class_is_a_resource_by_its_name_and_one_that_went_is_none():
    found = backed(device_class("a", None))
    assert (found.class_of(IMPLICIT + "a"), found.class_of(RESOURCE)) == ("a", "")

    found.on_change(Change(device_class("a", None), None))

    assert found.among([(IMPLICIT + "a", 1), ("cpu", 1)]) == frozenset()


def container(name, count=0, *, restart="", **others):
    requests = {**others, **({RESOURCE: str(count)} if count else {})}
    return Container(name=name, resources=ResourceRequirements(requests=requests), restart_policy=restart)


@pytest.mark.parametrize(
    ("inits", "containers", "counts", "mappings"),
    [
        ((), (container("a", 2, cpu="1"),), {"container-0-request-1": 2}, [("a", "container-0-request-1")]),
        ((), (container("a", 1), container("b"), container("c", 1)),
         {"container-0-request-0": 1, "container-2-request-0": 1},
         [("a", "container-0-request-0"), ("c", "container-2-request-0")]),
        ((container("i", 1),), (container("a", 2),),
         {"container-1-request-0": 2}, [("a", "container-1-request-0"), ("i", "container-1-request-0")]),
        ((container("i", 3),), (container("a", 2),),
         {"container-0-request-0": 1, "container-1-request-0": 2},
         [("a", "container-1-request-0"), ("i", "container-1-request-0"), ("i", "container-0-request-0")]),
        ((container("i", 1), container("j", 3)), (),
         {"container-1-request-0": 3}, [("i", "container-1-request-0"), ("j", "container-1-request-0")]),
        ((container("side", 1, restart="Always"), container("i", 1)), (),
         {"container-0-request-0": 1, "container-1-request-0": 1},
         [("side", "container-0-request-0"), ("i", "container-1-request-0")]),
    ],
)  # fmt: skip
def test_containers_that_end_use_what_those_after_them_have(a, inits, containers, counts, mappings):
    pod = a.pod("p", init_containers=inits, containers=containers)

    requests, named = requests_for(pod, [RESOURCE], backed(device_class("gpu")))

    assert {each.name: each.exactly.count for each in requests} == counts
    assert {each.exactly.device_class_name for each in requests} == {"gpu"}
    assert [(each.container_name, each.request_name) for each in named] == mappings


def left_by(pod_name, annotation="true"):
    owner = OwnerReference(kind="Pod", name=pod_name, uid=pod_name, controller=True)
    found = claim("left", allocation=granted("gpu-0"))
    meta = replace(found.metadata, owner_references=(owner,), annotations={EXTENDED_RESOURCE_CLAIM: annotation})
    return replace(found, metadata=meta)


def test_the_claim_of_an_earlier_attempt_is_known_by_annotation_and_owner(a):
    pod = a.pod("p")

    assert made_for(pod, [claim("other"), left_by("q"), left_by("p", "false")]) is None
    assert made_for(pod, [left_by("p")]) is not None


# -- with the plugins


def cluster_with(cluster, a, *objects, **nodes):
    world = cluster().nodes(*(a.node(name, **offers) for name, offers in nodes.items()))
    for each in (replace(GPU, spec=DeviceClassSpec(extended_resource_name=RESOURCE)), *objects):
        world.world.put(each)
    return world


def wanting(a, name="p", count=1):
    return a.pod(name, requests={RESOURCE: str(count)})


def test_nodes_that_offer_the_resource_are_left_to_the_fit_and_all_others_to_the_devices(cluster, a):
    here, there, none = {"example.com__gpu": "1"}, {}, {}
    world = cluster_with(cluster, a, offer("s", "gpu-0", node="there"), here=here, there=there, none=none)

    result = world.cycle.schedule(PodInfo(wanting(a)), 0.0)

    assert set(result.ranking.names) == {"here", "there"}
    assert world.refuse(wanting(a, count=2)).refusal == (
        "0/3 nodes are available: 1 Insufficient example.com/gpu, 2 cannot allocate all claims."
    )


def test_a_class_that_comes_later_counts_for_pods_that_were_refused_before(cluster, a):
    world = cluster().nodes(a.node("n1"))
    pod = PodInfo(wanting(a))
    refused = world.cycle.schedule(pod, 0.0)
    assert refused.diagnosis.refusal == "0/1 nodes are available: 1 Insufficient example.com/gpu."

    world.world.put(replace(GPU, spec=DeviceClassSpec(extended_resource_name=RESOURCE)))
    world.world.put(offer("s", "gpu-0"))

    assert world.cycle.schedule(pod, 1.0).node_name == "n1"


def test_devices_for_extended_resources_are_in_use_from_reserve_to_unreserve(cluster, a):
    world = cluster_with(cluster, a, offer("s", "gpu-0"), n1={})
    first = PodInfo(wanting(a))
    result = world.cycle.schedule(first, 0.0)

    assert world.runner.reserve(result.state, first, "n1").is_success

    assert "1 cannot allocate all claims" in world.refuse(wanting(a, "q")).refusal
    world.runner.unreserve(result.state, first, "n1")
    assert world.schedule(wanting(a, "q")).node_name == "n1"
    assert not world.handle.claims.releases


def test_what_an_earlier_attempt_left_is_deleted_before_the_next_one(cluster, a):
    world = cluster_with(cluster, a, offer("s", "gpu-0", "gpu-1"), left_by("p"), n1={})

    error = world.refuse(wanting(a))

    assert error.message.startswith(
        "0/1 nodes are available: 1 cannot schedule extended resource claim. deletion of ResourceClaim completed"
    )
    assert [(each.how, each.claim.name) for each in world.handle.claims.releases] == [(Release.DELETE, "left")]
