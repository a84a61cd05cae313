"""Devices for claims: pools, the search, the ledger, and the plugin that uses them (dra-core 3, 6, 12)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.dra.claim_writer import release_patch
from scheduler.dra.ledger import ClaimLedger, PendingRelease, Release
from scheduler.framework.cycle_state import CycleError
from services.api.kinds.deviceclass import DeviceClass, DeviceClassSpec
from services.api.kinds.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodResourceClaim
from services.api.kinds.resourceclaim import (
    ALL,
    AllocationResult,
    CELDeviceSelector,
    DeviceAllocationResult,
    DeviceClaim,
    DeviceConstraint,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from services.api.kinds.resourceslice import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from services.api.meta import ObjectMeta
from services.dra.allocator import AllocationError, Allocator
from services.dra.pools import Slices
from services.reconcile.controller import Change

DRIVER = "gpu.example"
GPU = DeviceClass(metadata=ObjectMeta(name="gpu"))


def device(name, **attributes):
    typed = {key: DeviceAttribute(string=value) for key, value in attributes.items()}
    return Device(name=name, attributes=typed)


def offer(name, *devices, node="n1", pool="", generation=1, count=1, **where):
    made = tuple(each if isinstance(each, Device) else device(each) for each in devices)
    place = where or {"node_name": node}
    spec = ResourceSliceSpec(
        driver=DRIVER,
        devices=made,
        **place,
        pool=ResourcePool(name=pool or node, generation=generation, resource_slice_count=count),
    )
    return ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def request(name="r", *, count=1, mode="ExactCount", where=()):
    selectors = tuple(DeviceSelector(cel=CELDeviceSelector(expression=text)) for text in where)
    exactly = ExactDeviceRequest(device_class_name="gpu", count=count, allocation_mode=mode, selectors=selectors)
    return DeviceRequest(name=name, exactly=exactly)


def claim(name="c", *requests, constraints=(), rv="1", **status):
    spec = ResourceClaimSpec(devices=DeviceClaim(requests=requests or (request(),), constraints=constraints))
    meta = ObjectMeta(name=name, namespace="default", uid=name, resource_version=rv)
    return ResourceClaim(metadata=meta, spec=spec, status=ResourceClaimStatus(**status))


def granted(*devices, node="n1"):
    results = tuple(DeviceRequestAllocationResult(request="r", driver=DRIVER, pool=node, device=d) for d in devices)
    only = NodeSelectorRequirement(key="metadata.name", operator="In", values=(node,))
    selector = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(only,)),))
    return AllocationResult(devices=DeviceAllocationResult(results=results), node_selector=selector)


def reserved(*uids):
    return tuple(ResourceClaimConsumerReference(resource="pods", name=uid, uid=uid) for uid in uids)


def search(a, claims, *slices, in_use=(), node="n1", classes=(GPU,), **more):
    known = {each.metadata.name: each for each in classes}
    allocator = Allocator(claims, known.get, {(DRIVER, pool, name) for pool, name in in_use}, **more)
    found = allocator.allocate(node, Slices(slices).of_node(a.node(node)))
    if isinstance(found, str):
        return found
    return [[each.device for each in one.devices.results] for one in found]


# -- pools (3.1)


def test_dra_core_02_devices_go_by_the_names_of_slices_not_by_those_of_devices(a):
    slices = offer("b", "gpu-0", "gpu-1", count=2), offer("a", "gpu-2", "gpu-3", count=2)

    assert search(a, [claim("one"), claim("two")], *slices) == [["gpu-2"], ["gpu-3"]]


def test_dra_core_03_half_a_pool_gives_nothing_and_asking_for_all_of_it_is_an_error(a):
    half, rest = offer("a", "gpu-0", count=2), offer("b", "gpu-1", count=2)
    everything = [claim("c", request(mode=ALL))]

    assert search(a, [claim()], half) == "cannot allocate all claims"
    with pytest.raises(AllocationError, match=r"asks for all devices, but resource pool gpu\.example/n1 is currently"):
        search(a, everything, half)
    assert search(a, everything, half, rest) == [["gpu-0", "gpu-1"]]


def test_dra_core_04_a_newer_generation_anywhere_ends_the_older_one_everywhere(a):
    old = offer("a", "gpu-0", pool="shared", count=2)
    new = offer("b", "gpu-1", pool="shared", generation=2, count=2, node="n2")

    assert search(a, [claim()], old, new) == "cannot allocate all claims"


def test_a_pool_spread_over_nodes_is_complete_when_the_cluster_has_all_of_it(a):
    slices = offer("a", "gpu-0", pool="shared", count=2), offer("b", "gpu-1", pool="shared", count=2, node="n2")

    assert search(a, [claim()], *slices) == [["gpu-0"]]


def test_two_devices_of_one_name_invalidate_their_pool(a):
    slices = offer("a", "gpu-0", count=2), offer("b", "gpu-0", count=2)

    assert search(a, [claim()], *slices) == "invalid resource pools were encountered"


def test_devices_of_all_nodes_can_be_used_everywhere_and_those_of_some_nodes_there(a):
    zone = NodeSelectorRequirement(key="zone", operator="In", values=("z",))
    some = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(zone,)),))
    slices = Slices(
        [offer("a", "net-0", pool="net", all_nodes=True), offer("b", "disk-0", pool="z", node_selector=some)]
    )
    allocator = Allocator([claim("c", request(count=2))], {"gpu": GPU}.get, set())

    here = allocator.allocate("n1", slices.of_node(a.node("n1", labels={"zone": "z"})))
    there = allocator.allocate("n2", slices.of_node(a.node("n2")))

    assert not isinstance(here, str)
    assert here[0].node_selector == some
    assert isinstance(there, str)


# -- the search (3.2, 3.3)


def test_devices_in_use_and_devices_picked_already_are_passed_over(a):
    slices = offer("a", "gpu-0", "gpu-1", "gpu-2")

    assert search(a, [claim("c", request(count=2))], slices, in_use=[("n1", "gpu-1")]) == [["gpu-0", "gpu-2"]]
    assert search(a, [claim("c", request(count=3))], slices, in_use=[("n1", "gpu-1")]) == "cannot allocate all claims"


def test_the_search_goes_back_to_a_choice_that_left_nothing_for_another_request(a):
    slices = offer("a", device("gpu-0", model="x"), device("gpu-1", model="y"))
    only_x = request("b", where=[f'device.attributes["{DRIVER}"].model == "x"'])

    assert search(a, [claim("c", request("a"), only_x)], slices) == [["gpu-1", "gpu-0"]]


def test_dra_core_05_an_attribute_that_one_device_lacks_is_an_error_that_names_it(a):
    slices = offer("a", device("gpu-0", model="y"), device("gpu-1"), device("gpu-2", model="x"))
    asks = f'device.attributes["{DRIVER}"].model == "x"'

    with pytest.raises(AllocationError, match=r"selecting device gpu\.example/n1/gpu-1: no such key: model"):
        search(a, [claim("c", request(where=[asks]))], slices)
    guarded = f'has(device.attributes["{DRIVER}"].model) && {asks}'
    assert search(a, [claim("c", request(where=[guarded]))], slices) == [["gpu-2"]]


def test_a_class_that_asks_for_the_driver_first_protects_what_a_request_asks(a):
    other = replace(offer("0", "nic-0"), spec=replace(offer("0", "nic-0", pool="nics").spec, driver="nic.example"))
    ours = DeviceClassSpec(
        selectors=(DeviceSelector(cel=CELDeviceSelector(expression=f'device.driver == "{DRIVER}"')),)
    )
    asks = request(where=[f'device.attributes["{DRIVER}"].model == "x"'])

    found = search(
        a, [claim("c", asks)], other, offer("a", device("gpu-0", model="x")), classes=[replace(GPU, spec=ours)]
    )

    assert found == [["gpu-0"]]


def test_dra_core_07_a_claim_of_more_than_32_devices_is_an_error(a):
    slices = offer("a", *(f"gpu-{i}" for i in range(48)))

    with pytest.raises(AllocationError, match="number of requested devices 40 exceeds the claim limit of 32"):
        search(a, [claim("c", request("a", count=20), request("b", count=20))], slices)


def test_dra_core_08_devices_that_must_match_come_from_one_root_or_not_at_all(a):
    def roots(*values):
        return offer(
            "a",
            *(Device(name=f"gpu-{i}", attributes={"root": DeviceAttribute(string=v)}) for i, v in enumerate(values)),
        )

    pair = claim("c", request(count=2), constraints=(DeviceConstraint(match_attribute=f"{DRIVER}/root"),))

    assert search(a, [pair], roots("A", "B", "B")) == [["gpu-1", "gpu-2"]]
    assert search(a, [pair], roots("A", "B")) == "cannot allocate all claims"


def test_devices_that_must_differ_differ_pairwise(a):
    devices = [Device(name=f"gpu-{i}", attributes={"root": DeviceAttribute(string=v)}) for i, v in enumerate("ABA")]
    three = claim("c", request(count=3), constraints=(DeviceConstraint(distinct_attribute=f"{DRIVER}/root"),))
    two = claim("c", request(count=2), constraints=(DeviceConstraint(distinct_attribute=f"{DRIVER}/root"),))

    assert search(a, [three], offer("a", *devices)) == "cannot allocate all claims"
    assert search(a, [two], offer("a", *devices)) == [["gpu-0", "gpu-1"]]


def test_all_means_also_those_in_use_so_that_one_taken_leaves_nothing(a):
    everything = [claim("c", request(mode=ALL))]

    assert search(a, everything, offer("a", "gpu-0", "gpu-1"), in_use=[("n1", "gpu-0")]) == "cannot allocate all claims"
    assert search(a, everything, offer("a")) == "cannot allocate all claims"


def test_a_search_without_end_is_cut(a):
    slices = offer("a", *(f"gpu-{i}" for i in range(30)))
    hopeless = request("b", where=["false"])

    with pytest.raises(AllocationError, match="node n1: timed out trying to allocate devices"):
        search(a, [claim("c", request("a", count=15), hopeless)], slices, tries_max=10_000)


def test_configuration_of_the_class_comes_before_the_claims_own(a):
    def config(value):
        return {"opaque": {"driver": DRIVER, "parameters": {"v": value}}}

    spec = ResourceClaimSpec(
        devices=DeviceClaim(requests=(request("a"), request("b")), config=({"requests": ["b"], **config(2)}, config(3)))
    )
    classes = {"gpu": replace(GPU, spec=DeviceClassSpec(config=(config(1),)))}
    allocator = Allocator([replace(claim(), spec=spec)], classes.get, set())

    found = allocator.allocate("n1", Slices([offer("a", "gpu-0", "gpu-1")]).of_node(a.node()))

    assert not isinstance(found, str)
    assert found[0].devices.config == (
        {"source": "FromClass", **config(1)},
        {"source": "FromClaim", "requests": ["b"], **config(2)},
        {"source": "FromClaim", **config(3)},
    )


# -- the ledger (6.1)


def test_what_was_allocated_or_written_is_in_use_until_the_informer_says_otherwise():
    ledger, own = ClaimLedger(), claim()
    ledger.on_change(Change(None, own))
    ledger.allocate(own, granted("gpu-0"))
    assert (ledger.is_in_flight("c"), (DRIVER, "n1", "gpu-0") in ledger.in_use) == (True, True)

    written = replace(claim(rv="2", allocation=granted("gpu-0")))
    ledger.wrote(written)
    ledger.settle(written)

    assert ledger.of(own.metadata.key, own) is written
    assert (ledger.is_in_flight("c"), (DRIVER, "n1", "gpu-0") in ledger.in_use) == (False, True)
    freed = claim(rv="3")
    ledger.on_change(Change(own, freed))
    ledger.on_change(Change(own, freed))  # another profile listens, too
    assert ledger.of(own.metadata.key, freed) is freed
    assert (DRIVER, "n1", "gpu-0") not in ledger.in_use


def test_devices_we_freed_are_free_before_the_informer_shows_it():
    ledger, held = ClaimLedger(), claim(allocation=granted("gpu-0"))
    ledger.on_change(Change(None, held))

    ledger.wrote(claim(rv="2"))

    assert (DRIVER, "n1", "gpu-0") not in ledger.in_use


@pytest.mark.parametrize(
    ("how", "users", "allocation", "patch"),
    [
        (Release.UNRESERVE, ("p",), granted("a"), {"reservedFor": None}),
        (Release.UNRESERVE, ("q",), granted("a"), None),
        (Release.UNBIND, ("p",), granted("a"), {"reservedFor": None, "allocation": None, "devices": None}),
        (Release.UNBIND, ("p",), AllocationResult(), {"reservedFor": None}),
        (Release.UNBIND, ("p", "q"), granted("a"),
         {"reservedFor": [{"resource": "pods", "name": "q", "uid": "q"}]}),
        (Release.UNBIND, (), granted("a"), None),
        (Release.DEALLOCATE, (), granted("a"), {"reservedFor": None, "allocation": None, "devices": None}),
        (Release.DEALLOCATE, ("p", "q"), granted("a"), None),
        (Release.DEALLOCATE, (), None, None),
    ],
)  # fmt: skip
def test_kubelet_unbinding_7_4_devices_are_freed_with_the_last_user_alone(how, users, allocation, patch):
    held = claim(allocation=allocation, reserved_for=reserved(*users))

    found = release_patch(held, PendingRelease(how, held.metadata.key, "c", "p"))

    assert found == (None if patch is None else {"status": patch})


# -- the plugin (6)


def pod(a, name="p", *claims, **more):
    wanted = tuple(PodResourceClaim(name=each, resource_claim_name=each) for each in claims or ("c",))
    return a.pod(name, resource_claims=wanted, **more)


def cluster_with(cluster, a, *objects, nodes=("n1",), **switches):
    world = cluster(**switches)
    for each in (GPU, *objects):
        world.world.put(each)
    return world.nodes(*(a.node(name) for name in nodes))


def test_dra_core_01_a_pod_goes_where_the_devices_are_and_the_next_one_finds_none(cluster, a):
    world = cluster_with(cluster, a, claim("c"), claim("d"), offer("s", "gpu-0", node="n2"), nodes=("n1", "n2"))
    first = PodInfo(pod(a, "p", "c"))

    result = world.cycle.schedule(first, 0.0)
    status = world.runner.reserve(result.state, first, result.node_name)

    assert (result.node_name, status.is_success) == ("n2", True)
    error = world.refuse(pod(a, "q", "d"))
    assert error.message.startswith("0/2 nodes are available: 2 cannot allocate all claims. still not schedulable")
    assert error.unresolvable[world.cache.columns.slots["n1"]]
    world.runner.unreserve(result.state, first, result.node_name)
    assert world.schedule(pod(a, "q", "d")).node_name == "n2"


def test_dra_core_15_a_claim_on_its_way_to_one_pod_is_not_relied_upon_by_another(cluster, a):
    world = cluster_with(cluster, a, claim("c"), offer("s", "gpu-0"))
    first = PodInfo(pod(a, "p"))
    world.runner.reserve(world.cycle.schedule(first, 0.0).state, first, "n1")

    error = world.refuse(pod(a, "q"))

    assert "resource claim default/c is in the process of being allocated" in error.message


def test_a_class_that_does_not_exist_is_named(cluster, a):
    world = cluster_with(cluster, a, claim("c"), offer("s", "gpu-0"))
    world.world.delete(GPU)

    assert "request r: device class gpu does not exist" in world.refuse(pod(a)).message


def test_dra_core_05_a_selector_without_answer_ends_the_attempt_with_an_error(cluster, a):
    asks = request(where=[f'device.attributes["{DRIVER}"].model == "x"'])
    world = cluster_with(cluster, a, claim("c", asks), offer("s", "gpu-0"))

    result = world.cycle.schedule(PodInfo(pod(a)), 0.0)

    assert isinstance(result, CycleError)
    assert result.message == (
        'running "DynamicResources" filter plugin: claim default/c, request r: selecting device '
        "gpu.example/n1/gpu-0: no such key: model"
    )


def test_a_granted_claim_holds_its_pods_to_where_it_can_be_used(cluster, a):
    held = claim("c", allocation=granted("gpu-0", node="n2"), reserved_for=reserved("other"))
    world = cluster_with(cluster, a, held, nodes=("n1", "n2"))

    assert world.schedule(pod(a)).node_name == "n2"


@pytest.mark.parametrize(("users", "is_freed"), [((), True), (("p",), True), (("p", "q"), False)])
def test_a_claim_that_fits_nowhere_is_freed_unless_others_use_it(cluster, a, users, is_freed):
    held = claim("c", allocation=granted("gpu-0", node="n9"), reserved_for=reserved(*users))
    world = cluster_with(cluster, a, held)

    error = world.refuse(pod(a))

    said = "deallocation of ResourceClaim completed" if is_freed else "still not schedulable"
    assert error.message.startswith(f"0/1 nodes are available: 1 resourceclaim not available on the node. {said}")
    wanted = [PendingRelease(Release.DEALLOCATE, held.metadata.key, "c", "p")] if is_freed else []
    assert list(world.handle.claims.releases) == wanted


def test_a_claim_that_256_use_is_in_use(cluster, a):
    held = claim("c", allocation=granted("gpu-0"), reserved_for=reserved(*(f"u{i}" for i in range(256))))

    assert "resourceclaim in use" in cluster_with(cluster, a, held).refuse(pod(a)).message


def test_kubelet_unbinding_7_3_a_node_that_offers_its_devices_anew_is_tried_again_for_what_it_could_not_prepare(
    cluster, a
):
    world = cluster().nodes(a.node("n1"))
    unbound = {"unbound": (("n1", "FailedPrepareDynamicResources", 600),)}
    world.pods(a.pod("p", **unbound), a.pod("q", unbound=(("n1", "TopologyAffinityError", 600),)))
    assert [world.attempt(100.0), world.attempt(100.0)] == ["p!", "q!"]

    world.handlers.devices_changed("n1", 200.0)

    assert [world.attempt(300.0), world.attempt(300.0)] == ["p->n1", ""]
