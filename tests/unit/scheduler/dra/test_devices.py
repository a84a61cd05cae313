"""Devices for claims: pools, the search, the ledger, and the plugin that uses them (dra-core 3, 6, 12)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.dra.claim_releaser import release_patch
from scheduler.dra.ledger import ClaimLedger, PendingRelease, Release
from scheduler.framework.cycle_state import CycleError, CycleState
from scheduler.framework.status import Code
from services.api.kinds.deviceclass import DeviceClass
from services.api.kinds.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodResourceClaim
from services.api.kinds.resourceclaim import (
    AllocationResult,
    CELDeviceSelector,
    DeviceAllocationResult,
    DeviceClaim,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from services.api.kinds.resourceslice import Device, DeviceAttribute, ResourcePool, ResourceSlice, ResourceSliceSpec
from services.api.meta import ObjectMeta
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


# -- the ledger (6.1)


def test_what_was_allocated_or_written_is_in_use_until_the_informer_says_otherwise():
    ledger, own = ClaimLedger(), claim()
    ledger.on_change(Change(None, own))
    ledger.allocate(own, granted("gpu-0"), "p")
    ledger.allocate(own, granted("gpu-0"), "q")
    ledger.retract(own, "p")
    assert (ledger.pending("c") is not None, (DRIVER, "n1", "gpu-0") in ledger.allocated.devices) == (True, True)

    written = replace(claim(rv="2", allocation=granted("gpu-0")))
    ledger.wrote(written)
    ledger.settle(written)

    assert ledger.of(own.metadata.key, own) is written
    assert (ledger.pending("c") is not None, (DRIVER, "n1", "gpu-0") in ledger.allocated.devices) == (False, True)
    freed = claim(rv="3")
    ledger.on_change(Change(own, freed))
    ledger.on_change(Change(own, freed))  # another profile listens, too
    assert ledger.of(own.metadata.key, freed) is freed
    assert (DRIVER, "n1", "gpu-0") not in ledger.allocated.devices


def test_who_shares_an_allocation_in_flight_is_known_until_it_is_written_the_first_before_the_others():
    ledger, own = ClaimLedger(), claim()
    assert [] == list(ledger.sharers("c"))

    for uid in ("p", "q", "r"):
        ledger.allocate(own, granted("gpu-0"), uid)
    ledger.retract(own, "p")

    assert ["q", "r"] == list(ledger.sharers("c"))
    ledger.settle(own)
    assert [] == list(ledger.sharers("c"))


def test_devices_we_freed_are_free_before_the_informer_shows_it():
    ledger, held = ClaimLedger(), claim(allocation=granted("gpu-0"))
    ledger.on_change(Change(None, held))

    ledger.wrote(claim(rv="2"))

    assert (DRIVER, "n1", "gpu-0") not in ledger.allocated.devices


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

    assert world.refuse(pod(a)).message.startswith(
        "0/1 nodes are available: request r: device class gpu does not exist. no new claims to deallocate, preemption: "
    )


def test_dra_core_05_a_selector_without_answer_ends_the_attempt_with_an_error(cluster, a):
    asks = request(where=[f'device.attributes["{DRIVER}"].model == "x"'])
    world = cluster_with(cluster, a, claim("c", asks), offer("s", "gpu-0"))

    result = world.cycle.schedule(PodInfo(pod(a)), 0.0)

    assert isinstance(result, CycleError)
    assert result.message == (
        'running "DynamicResources" filter plugin: claim default/c: selector #0: CEL runtime error: no such key: model'
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


def test_a_claim_that_256_use_stops_no_pod_before_it_is_bound(cluster, a):
    """`CanBeReserved` is always true: only the API server refuses the 257th entry."""
    held = claim("c", allocation=granted("gpu-0"), reserved_for=reserved(*(f"u{i}" for i in range(256))))

    assert cluster_with(cluster, a, held).schedule(pod(a)).node_name == "n1"


def test_kubelet_unbinding_7_3_a_node_that_offers_its_devices_anew_is_tried_again_for_what_it_could_not_prepare(
    cluster, a
):
    world = cluster().nodes(a.node("n1"))
    unbound = {"unbound": (("n1", "FailedPrepareDynamicResources", 600),)}
    world.pods(a.pod("p", **unbound), a.pod("q", unbound=(("n1", "TopologyAffinityError", 600),)))
    assert [world.attempt(100.0), world.attempt(100.0)] == ["p!", "q!"]

    world.handlers.devices_changed("n1", 200.0)

    assert [world.attempt(300.0), world.attempt(300.0)] == ["p->n1", ""]


# -- score (6.6)


def alternatives(*names):
    subs = tuple(
        DeviceSubRequest(
            name=name,
            device_class_name="gpu",
            selectors=(
                DeviceSelector(cel=CELDeviceSelector(expression=f'device.attributes["{DRIVER}"].size == "{name}"')),
            ),
        )
        for name in names
    )
    return DeviceRequest(name="r", first_available=subs)


def test_dra_core_06_the_node_with_the_first_alternative_is_best(cluster, a):
    wanted = claim("c", alternatives("big", "medium", "small"))
    slices = [
        offer(f"s{node}", device("gpu-0", size=size), node=node)
        for node, size in (("n1", "small"), ("n2", "big"), ("n3", "medium"))
    ]
    world = cluster_with(cluster, a, wanted, *slices, nodes=("n1", "n2", "n3"))

    result = world.schedule(pod(a))

    assert result.node_name == "n2"
    assert result.ranking.scores["DynamicResources"] == {"n1": 75, "n2": 100, "n3": 87}


def test_a_claim_that_is_allocated_already_counts_with_what_it_was_given(cluster, a):
    """Of two claims only the second differs from node to node; the first adds the same points everywhere (1.36)."""
    held = replace(
        granted("gpu-9"),
        node_selector=None,
        devices=DeviceAllocationResult(
            results=(DeviceRequestAllocationResult(request="r/small", driver=DRIVER, pool="far", device="gpu-9"),)
        ),
    )
    both = claim("c", alternatives("big", "small"), allocation=held), claim("d", alternatives("big", "small"))
    slices = [offer("s1", device("gpu-0", size="small")), offer("s2", device("gpu-0", size="big"), node="n2")]
    world = cluster_with(cluster, a, *both, *slices, nodes=("n1", "n2"))

    scores = world.schedule(pod(a, "p", "c", "d")).ranking.scores["DynamicResources"]

    assert scores == {"n1": int(14 / 15 * 100), "n2": 100}


def test_pods_without_alternatives_are_not_scored(cluster, a):
    offers = (offer("s1", "gpu-0"), offer("s2", "gpu-0", node="n2"))
    world = cluster_with(cluster, a, claim("c"), *offers, nodes=("n1", "n2"))

    assert "DynamicResources" not in world.schedule(pod(a)).ranking.scores


# -- what is said of nodes (explain_all)


def test_nodes_that_another_filter_refused_first_are_asked_when_they_are_explained(cluster, a):
    """Filter asked n1 alone. Of the others one has a device, which is no refusal of this plugin; on n4 the claim with
    devices cannot be used."""
    terms = tuple(
        NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=(name,)),))
        for name in ("n1", "n2", "n3")
    )
    held = replace(granted("gpu-9"), node_selector=NodeSelector(node_selector_terms=terms))
    offers = [offer("s3", "gpu-0", node="n3"), offer("s4", "gpu-0", node="n4")]
    names = ("n1", "n2", "n3", "n4")
    world = cluster_with(cluster, a, claim("c"), claim("d", allocation=held), *offers, nodes=names)
    plugin, columns = world.runner.plugins_by_name["DynamicResources"], world.cache.columns
    wanted, state = PodInfo(pod(a, "p", "c", "d")), CycleState()
    assert plugin.pre_filter(state, wanted, columns).is_success
    state.alive = columns.mask_of(("n1",))

    passed = plugin.filter_all(state, wanted, columns)
    refusals = plugin.explain_all(state, wanted, columns, columns.mask_of(names))

    assert not passed.any()
    found = {
        columns.nodes[row].name: (refusal.reason, refusal.code)
        for refusal in refusals
        for row in range(columns.capacity)
        if refusal.mask[row]
    }
    final = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    nothing = ("cannot allocate all claims", final)
    assert found == {"n1": nothing, "n2": nothing, "n4": ("resourceclaim not available on the node", final)}


# -- what keeps PostFilter from freeing a claim (6.5, kep-5194 3.4)

WORKLOAD = ResourceClaimConsumerReference(api_group="batch", resource="jobs", name="j", uid="j")
POD_GROUP = ResourceClaimConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="g")
IF_NONE = {"reserved_for__mode": "kep5194", "scheduler__postfilter_dealloc": "if_no_scheduled_pods"}


@pytest.mark.parametrize(
    ("switches", "entry", "user", "how", "said"),
    [
        ({"reserved_for__mode": "kep5194"}, WORKLOAD, "", None, "still not schedulable"),
        (IF_NONE, WORKLOAD, "", Release.DEALLOCATE, "deallocation of ResourceClaim completed"),
        (IF_NONE, WORKLOAD, "c", None, "still not schedulable"),
        (IF_NONE, WORKLOAD, "d", Release.DEALLOCATE, "deallocation of ResourceClaim completed"),
        ({"reserved_for__mode": "kep5729"}, POD_GROUP, "", Release.UNRESERVE_GROUP,
         "ResourceClaim unreserved for PodGroup"),
        ({"reserved_for__mode": "kep5729"}, POD_GROUP, "c", None, "still not schedulable"),
        ({"reserved_for__mode": "kep5729"}, WORKLOAD, "", None, "still not schedulable"),
        ({}, WORKLOAD, "", None, "still not schedulable"),
    ],
)  # fmt: skip
def test_kep_5194_3_4_a_claim_that_a_workload_holds_is_freed_when_no_scheduled_pod_uses_it(
    cluster, a, switches, entry, user, how, said
):
    """`user`: which claim another pod with a node has."""
    held = claim("c", allocation=granted("gpu-0", node="n9"), reserved_for=(entry,))
    world = cluster_with(cluster, a, held, **switches)
    if user:
        world.pods(pod(a, "other", user, node="n1"))

    error = world.refuse(pod(a))

    assert error.message.startswith(f"0/1 nodes are available: 1 resourceclaim not available on the node. {said}")
    assert [release.how for release in world.handle.claims.releases] == ([how] if how else [])
    assert all(release.with_workload for release in world.handle.claims.releases)


@pytest.mark.parametrize(
    ("how", "entries", "left"),
    [
        (Release.DEALLOCATE, (WORKLOAD, "p"), []),
        (Release.DEALLOCATE, (WORKLOAD, "q"), None),
        (Release.UNRESERVE_GROUP, (POD_GROUP,), []),
        (Release.UNRESERVE_GROUP, (POD_GROUP, WORKLOAD), ["j"]),
        (Release.UNRESERVE, (WORKLOAD, "p"), ["j"]),
        (Release.UNRESERVE, (WORKLOAD,), None),
    ],
)
def test_kep_5194_9_no_entry_is_removed_but_those_that_are_meant(how, entries, left):
    listed = [each if isinstance(each, ResourceClaimConsumerReference) else reserved(each)[0] for each in entries]
    held = claim(allocation=granted("a"), reserved_for=tuple(listed))

    found = release_patch(held, PendingRelease(how, held.metadata.key, "c", "p", with_workload=True))

    assert (None if found is None else [each["name"] for each in found["status"]["reservedFor"] or ()]) == left
    if found is not None:
        assert ("allocation" in found["status"]) is (how is Release.DEALLOCATE)
