"""What the allocator picks, one rule a test (dra-core 3.2, 3.3 and acceptance scenarios of 12)."""

import pytest

from services.api.kinds.resourceclaim import DeviceConstraint, DeviceRequest
from services.dra.allocator import Allocator
from services.dra.features import Features
from services.dra.requests import AllocationError, problem_of_requests
from services.dra.solution import Solution
from tests.unit.dra.objects import (
    DRIVER,
    GPU,
    Cluster,
    alternative,
    attribute,
    claim,
    device,
    device_class,
    distinct,
    first_of,
    match,
    node,
    offer,
    on_node,
    policy,
    request,
    rule,
    taint,
    tolerate,
)

NOTHING = "cannot allocate all claims"
MODEL_X = f'device.attributes["{DRIVER}"].model == "x"'


def gpus(count, **attributes):
    return offer("a", *(device(f"gpu-{i}", **attributes) for i in range(count)))


# -- what is free


def test_devices_in_use_and_devices_picked_already_are_passed_over():
    cluster = Cluster(gpus(4))
    cluster.grant(claim("x", request(count=2)))

    assert cluster.devices(claim("c", request("a"), request("b"))) == [["gpu-2", "gpu-3"]]
    assert cluster.devices(claim("c", request()), claim("d", request())) == [["gpu-2"], ["gpu-3"]]
    assert cluster.devices(claim("c", request(count=3))) == NOTHING


def test_the_search_goes_back_to_a_choice_that_left_nothing_for_another_request():
    cluster = Cluster(offer("a", device("gpu-0", model="x"), device("gpu-1", model="y")))

    assert cluster.devices(claim("c", request("a"), request("b", where=[MODEL_X]))) == [["gpu-1", "gpu-0"]]
    assert cluster.devices(claim("c", request("a")), claim("d", request("b", where=[MODEL_X]))) == [
        ["gpu-1"],
        ["gpu-0"],
    ]


def test_a_claim_without_requests_is_allocated_nothing():
    (allocation,) = Cluster().allocate(claim("c"))

    assert (allocation.devices.results, allocation.node_selector) == ((), None)


def test_all_means_also_those_in_use_so_that_one_taken_leaves_nothing():
    everything = claim("c", request(mode="All"))
    cluster = Cluster(gpus(2))
    assert cluster.devices(everything) == [["gpu-0", "gpu-1"]]

    cluster.grant(claim("x", request()))

    assert cluster.devices(everything) == NOTHING
    assert Cluster(gpus(0)).devices(everything) == NOTHING


def test_a_search_without_end_is_cut():
    hopeless = claim("c", request("a", count=15), request("b", where=["false"]))

    with pytest.raises(AllocationError) as error:
        Cluster(gpus(30)).devices(hopeless, tries_max=10_000)
    assert str(error.value) == "node n1: timed out trying to allocate devices"


def test_many_claims_of_many_requests_are_no_deeper_than_others():
    claims = [claim(f"c{i}", *(request(f"r{k}") for k in range(32))) for i in range(40)]

    found = Cluster(gpus(1280)).devices(*claims)

    assert found[-1][-1] == "gpu-1279"


# -- selectors


@pytest.mark.parametrize(
    ("of_class", "of_request", "text"),
    [
        ((), ("true", MODEL_X), "claim default/c: selector #1: CEL runtime error: no such key: model"),
        ((MODEL_X,), ("true",), "class gpu: selector #0: CEL runtime error: no such key: model"),
        ((), ("model",), "claim default/c: selector #0: CEL compile error: "),
    ],
)  # fmt: skip
def test_dra_core_05_a_selector_without_answer_for_one_device_ends_the_attempt(of_class, of_request, text):
    devices = offer("a", device("gpu-0", model="y"), device("gpu-1"), device("gpu-2", model="x"))
    cluster = Cluster(devices, classes=[device_class("gpu", *of_class)])

    with pytest.raises(AllocationError) as error:
        cluster.devices(claim("c", request(where=of_request)))

    assert str(error.value).startswith(text)


def test_dra_core_05_guarded_or_in_use_the_device_without_the_attribute_does_no_harm():
    cluster = Cluster(offer("a", device("gpu-1"), device("gpu-2", model="x")))
    guarded = f'has(device.attributes["{DRIVER}"].model) && {MODEL_X}'
    assert cluster.devices(claim("c", request(where=[guarded]))) == [["gpu-2"]]

    cluster.grant(claim("x", request()))

    assert cluster.devices(claim("c", request(where=[MODEL_X]))) == [["gpu-2"]]


def test_a_class_that_asks_for_the_driver_first_protects_what_a_request_asks():
    other = offer("0", "nic-0", pool="nics", driver="nic.example")
    cluster = Cluster(other, gpus(1, model="x"), classes=[device_class("gpu", f'device.driver == "{DRIVER}"')])

    assert cluster.devices(claim("c", request(where=[MODEL_X]))) == [["gpu-0"]]


# -- alternatives


def test_dra_core_06_the_first_alternative_that_can_be_allocated_is_taken_with_its_name():
    big = alternative("big", where=[f'device.attributes["{DRIVER}"].model == "big"'])
    small = alternative("small", count=2, where=[f'device.attributes["{DRIVER}"].model == "small"'])
    cluster = Cluster(
        offer("a", device("s-0", model="small"), device("s-1", model="small")),
        offer("b", device("b-0", model="big"), node="n2"),
    )
    wanted = claim("c", first_of("r", big, small))

    (on_n1,), (on_n2,) = cluster.allocate(wanted, on="n1"), cluster.allocate(wanted, on="n2")

    assert [(each.request, each.device) for each in on_n1.devices.results] == [("r/small", "s-0"), ("r/small", "s-1")]
    assert [(each.request, each.device) for each in on_n2.devices.results] == [("r/big", "b-0")]


def test_dra_core_07_an_alternative_with_which_a_claim_has_too_many_devices_is_passed_over():
    cluster = Cluster(gpus(48))
    twenty = request("a", count=20)

    (fits,) = cluster.devices(claim("c", twenty, first_of("b", alternative("x", count=20), alternative("y", count=12))))
    assert len(fits) == 32
    with pytest.raises(AllocationError) as error:
        cluster.devices(claim("c", twenty, request("b", count=20)))
    assert str(error.value) == "claim default/c: number of requested devices 40 exceeds the claim limit of 32"


def test_too_many_devices_is_a_matter_of_the_claim_alone_and_found_without_trying_other_devices():
    first = first_of("a", alternative("x", count=20), alternative("y", count=12))
    cluster = Cluster(gpus(60))

    (found,) = cluster.devices(claim("c", first, request("b", count=20)), tries_max=200)
    assert len(found) == 32
    two = cluster.devices(claim("d", request("a", count=20)), claim("c", first, request("b", count=20)), tries_max=200)
    assert [len(each) for each in two] == [20, 32]


def test_a_request_goes_back_to_another_alternative_when_a_later_one_finds_nothing():
    cluster = Cluster(offer("a", device("gpu-0", model="x"), device("gpu-1", model="y")))
    either = first_of("a", alternative("one", where=[MODEL_X]), alternative("other"))

    (found,) = cluster.allocate(claim("c", either, request("b", where=[MODEL_X])))

    assert [(each.request, each.device) for each in found.devices.results] == [("a/other", "gpu-1"), ("b", "gpu-0")]


# -- constraints


@pytest.mark.parametrize(("roots", "found"), [("ABB", [["gpu-1", "gpu-2"]]), ("AB", NOTHING)])
def test_dra_core_08_devices_that_must_match_come_from_one_root_or_not_at_all(roots, found):
    devices = offer("a", *(device(f"gpu-{i}", root=root) for i, root in enumerate(roots)))

    assert Cluster(devices).devices(claim("c", request(count=2), constraints=[match("root")])) == found


def test_values_match_only_with_their_kind_and_a_device_without_the_attribute_never_does():
    devices = offer("a", device("no"), device("int", root=1), device("bool", root=True), device("same", root=1))

    assert Cluster(devices).devices(claim("c", request(count=2), constraints=[match("root")])) == [["int", "same"]]


def test_a_constraint_is_for_the_requests_it_names_and_for_alternatives_by_either_name():
    devices = offer("a", *(device(f"gpu-{i}", root=root) for i, root in enumerate("ABCB")))
    cluster = Cluster(devices)
    requests = request("a"), request("b"), request("d")

    assert cluster.devices(claim("c", *requests, constraints=[match("root", "b", "d")])) == [
        ["gpu-0", "gpu-1", "gpu-3"]
    ]
    either = first_of("r", alternative("x", count=2), alternative("y", count=3))
    assert cluster.devices(claim("c", either, constraints=[match("root", "r/x")])) == [["gpu-1", "gpu-3"]]
    assert cluster.devices(claim("c", either, constraints=[match("root", "r/y")])) == [["gpu-0", "gpu-1"]]
    assert cluster.devices(claim("c", either, constraints=[match("root", "r")])) == [["gpu-1", "gpu-3"]]


@pytest.mark.parametrize(("mode", "found"), [("correct", NOTHING), ("upstream", [["gpu-0", "gpu-1", "gpu-2"]])])
def test_distinct_values_differ_pairwise_which_upstream_compares_with_the_latest_alone(mode, found):
    devices = offer("a", *(device(f"gpu-{i}", root=root) for i, root in enumerate("ABA")))
    three = claim("c", request(count=3), constraints=[distinct("root")])
    cluster = Cluster(devices, distinct_attribute=mode)

    assert cluster.devices(three) == found
    assert cluster.devices(claim("c", request(count=2), constraints=[distinct("root")])) == [["gpu-0", "gpu-1"]]


def test_lists_match_in_one_value_common_to_all_and_are_distinct_when_they_share_none():
    lists = {"l-0": ["a", "b"], "l-1": ["b", "c"], "l-2": ["c", "d"], "l-3": "c"}
    devices = offer("a", *(device(name, roots=value) for name, value in lists.items()))
    cluster = Cluster(devices, list_attributes=True)

    assert cluster.devices(claim("c", request(count=2), constraints=[match("roots")])) == [["l-0", "l-1"]]
    assert cluster.devices(claim("c", request(count=3), constraints=[match("roots")])) == [["l-1", "l-2", "l-3"]]
    assert cluster.devices(claim("c", request(count=2), constraints=[distinct("roots")])) == [["l-0", "l-2"]]
    assert Cluster(devices).devices(claim("c", request(count=2), constraints=[match("roots")])) == NOTHING


def test_asking_for_all_devices_that_a_constraint_forbids_is_an_error():
    devices = offer("a", device("gpu-0", root="A"), device("gpu-1", root="B"))

    with pytest.raises(AllocationError) as error:
        Cluster(devices).devices(claim("c", request(mode="All"), constraints=[match("root")]))

    assert str(error.value) == (
        f"claim default/c, request r: cannot add device {DRIVER}/n1/gpu-1 because a claim constraint would not be "
        "satisfied"
    )


def test_a_constraint_that_is_none_is_an_error():
    with pytest.raises(AllocationError, match=r"claim default/c, constraint #0: empty constraint \(unsupported"):
        Cluster(gpus(1)).devices(claim("c", request(), constraints=[DeviceConstraint()]))


# -- counters


def partitions(*, of="80Gi", sizes=("40Gi", "40Gi", "80Gi"), **more):
    devices = [device(f"part-{i}", consumes={"gpu": {"memory": size}}, **more) for i, size in enumerate(sizes)]
    return offer("a", *devices, count=2), offer("b", counters={"gpu": {"memory": of}}, count=2)


def big(name="r"):
    return request(name, where=['device.capacity["gpu.example"].size.compareTo(quantity("80Gi")) == 0'])


def test_dra_core_09_partitions_of_one_memory_exclude_each_other():
    halves = [device(f"half-{i}", consumes={"gpu": {"memory": "40Gi"}}, capacity={"size": "40Gi"}) for i in (0, 1)]
    whole = device("whole", consumes={"gpu": {"memory": "80Gi"}}, capacity={"size": "80Gi"})
    cluster = Cluster(offer("a", *halves, whole, count=2), offer("b", counters={"gpu": {"memory": "80Gi"}}, count=2))
    assert cluster.devices(claim("c", big())) == [["whole"]]

    cluster.grant(claim("x", request()))

    assert cluster.devices(claim("c", big())) == NOTHING
    assert cluster.devices(claim("c", request())) == [["half-1"]]
    assert cluster.devices(claim("c", request(count=2))) == NOTHING


def test_counters_of_picks_that_were_given_up_are_available_again():
    devices = [
        device("a", consumes={"gpu": {"memory": "40Gi"}}, root="A"),
        device("b", consumes={"gpu": {"memory": "40Gi"}}, root="B"),
        device("c", consumes={"gpu": {"memory": "40Gi"}}, root="B"),
    ]
    cluster = Cluster(offer("a", *devices, count=2), offer("b", counters={"gpu": {"memory": "80Gi"}}, count=2))

    assert cluster.devices(claim("c", request(count=2), constraints=[match("root")])) == [["b", "c"]]


def test_devices_that_a_node_does_not_reach_consume_the_counters_of_the_pool_too():
    mine = offer("a", device("near", consumes={"s": {"m": "1"}}), pool="p", count=3)
    other = offer("b", device("far", consumes={"s": {"m": "1"}}), pool="p", count=3, node="n2")
    cluster = Cluster(mine, other, offer("c", counters={"s": {"m": "1"}}, pool="p", count=3, all_nodes=True))
    assert cluster.devices(claim("c", request())) == [["near"]]

    cluster.grant(claim("x", request()), on="n2")

    assert cluster.devices(claim("c", request())) == NOTHING


def test_a_pool_that_is_over_committed_has_nothing_even_for_devices_of_other_counters():
    def slices(memory):
        use_memory = device("m", consumes={"s": {"memory": "4"}})
        devices = offer("a", use_memory, device("e", consumes={"s": {"engines": "1"}}), count=2)
        return devices, offer("b", counters={"s": {"memory": memory, "engines": "1"}}, count=2)

    cluster = Cluster(*slices("4"))
    cluster.grant(claim("x", request()))
    assert cluster.devices(claim("c", request())) == [["e"]]

    for each in slices("2"):
        cluster.slices.put(each)

    assert cluster.devices(claim("c", request())) == NOTHING


def test_without_partitionable_devices_those_that_consume_counters_are_not_allocated():
    cluster = Cluster(offer("a", device("part", consumes={"s": {"m": "1"}}), "plain"), partitionable_devices=False)

    assert cluster.devices(claim("c", request())) == [["plain"]]


@pytest.mark.parametrize(("has_bugs", "found"), [(False, [["d", "d"]]), (True, NOTHING)])
def test_counter_bugs_one_drivers_partitions_cost_those_of_another_whose_pool_has_the_same_name(has_bugs, found):
    def of(driver):
        return (
            offer(f"{driver}-a", device("d", consumes={"s": {"m": "1"}}), driver=driver, count=2),
            offer(f"{driver}-b", counters={"s": {"m": "1"}}, driver=driver, count=2),
        )

    cluster = Cluster(*of("a.example"), *of("b.example"), counter_bugs=has_bugs)

    assert cluster.devices(claim("c", request(count=2))) == found


@pytest.mark.parametrize(("has_bugs", "found"), [(False, [["free"]]), (True, NOTHING)])
def test_counter_bugs_a_tainted_partition_keeps_the_counters_it_never_got(has_bugs, found):
    tainted = device("tainted", consumes={"s": {"m": "1"}}, taints=[taint()])
    free = device("free", consumes={"s": {"m": "1"}})
    cluster = Cluster(
        offer("a", tainted, free, count=2), offer("b", counters={"s": {"m": "1"}}, count=2), counter_bugs=has_bugs
    )

    assert cluster.devices(claim("c", request())) == found


@pytest.mark.parametrize(("has_bugs", "found"), [(False, [["plain", "part"]]), (True, NOTHING)])
def test_counter_bugs_a_shared_partition_that_was_given_up_keeps_its_counters(has_bugs, found):
    shared = device("shared", consumes={"s": {"m": "1"}}, shared=True, root="A")
    devices = shared, device("plain", root="B"), device("part", consumes={"s": {"m": "1"}}, root="B")
    cluster = Cluster(
        offer("a", *devices, count=2), offer("b", counters={"s": {"m": "1"}}, count=2), counter_bugs=has_bugs
    )

    assert cluster.devices(claim("c", request(count=2), constraints=[match("root")])) == found


# -- taints


@pytest.mark.parametrize(
    ("taints", "tolerations", "is_taken"),
    [
        ([taint(effect="NoSchedule")], [], False),
        ([taint(effect="NoExecute")], [], False),
        ([taint(effect="None")], [], True),
        ([taint(effect="Later")], [], True),
        ([taint()], [tolerate()], True),
        ([taint()], [tolerate("k")], True),
        ([taint()], [tolerate("other")], False),
        ([taint(value="v")], [tolerate("k", "Equal", "v")], True),
        ([taint(value="v")], [tolerate("k", "Equal", "w")], False),
        ([taint(effect="NoExecute")], [tolerate("k", effect="NoSchedule")], False),
        ([taint(), taint("l")], [tolerate("k")], False),
        ([taint(), taint("l")], [tolerate("k"), tolerate("l", seconds=5)], True),
    ],
)
def test_every_taint_that_keeps_claims_off_must_be_tolerated(taints, tolerations, is_taken):
    cluster = Cluster(offer("a", device("tainted", taints=taints), "plain"))

    (found,) = cluster.allocate(claim("c", request(tolerate=tolerations)))

    assert found.devices.results[0].device == ("tainted" if is_taken else "plain")
    assert found.devices.results[0].tolerations == tuple(tolerations)


def test_taints_are_nothing_without_the_feature():
    cluster = Cluster(offer("a", device("tainted", taints=[taint()])), device_taints=False)

    assert cluster.devices(claim("c", request())) == [["tainted"]]


def test_dra_core_13_a_taint_that_comes_later_keeps_new_claims_off_and_leaves_what_is_allocated():
    cluster = Cluster(gpus(3), device_taint_rules=True)
    cluster.grant(claim("x", request()))
    before = dict(cluster.allocated.devices)

    cluster.slices.put_rule(rule("broken", device="gpu-1"))

    assert cluster.devices(claim("c", request())) == [["gpu-2"]]
    assert cluster.allocated.devices == before
    cluster.slices.drop_rule("broken")
    assert cluster.devices(claim("c", request())) == [["gpu-1"]]


# -- consumable capacity


def nic(**more):
    return device(
        "nic", capacity={"bandwidth": policy("10Gi", default="1Gi", least="1Gi", step="1Gi")}, shared=True, **more
    )


def share(text, name="r"):
    return request(name, capacity={"bandwidth": text} if text else None)


def test_dra_core_10_shares_of_a_device_add_up_to_what_it_has_and_each_has_its_own_id():
    cluster = Cluster(offer("a", nic()))
    granted = [cluster.grant(claim(name, share("4Gi")))[0].devices.results[0] for name in ("a", "b")]

    assert cluster.devices(claim("c", share("3Gi"))) == NOTHING
    (rounded,) = cluster.grant(claim("d", share("1500Mi")))
    results = [*granted, rounded.devices.results[0]]
    assert [each.share_id for each in results] == ["1", "2", "3"]
    assert [each.consumed_capacity for each in results] == [
        {"bandwidth": "4Gi"}, {"bandwidth": "4Gi"}, {"bandwidth": "2Gi"},
    ]  # fmt: skip
    assert cluster.devices(claim("e", share("1Gi"))) == NOTHING
    cluster.allocated.drop("a")
    assert cluster.devices(claim("e", share("1Gi"))) == [["nic"]]


def test_claims_of_one_pod_and_requests_of_one_claim_share_what_is_left():
    cluster = Cluster(offer("a", nic()))

    assert cluster.devices(claim("c", share("4Gi", "a"), share("4Gi", "b"))) == [["nic", "nic"]]
    assert cluster.devices(claim("c", share("4Gi")), claim("d", share("6Gi"))) == [["nic"], ["nic"]]
    assert cluster.devices(claim("c", share("4Gi")), claim("d", share("7Gi"))) == NOTHING
    assert (
        cluster.devices(claim("c", request(count=2, capacity={"bandwidth": "1Gi"}))) == NOTHING
    )  # one share a request


def test_a_device_that_is_not_shared_is_taken_whole_whatever_is_requested_of_it():
    cluster = Cluster(offer("a", device("nic", capacity={"bandwidth": "10Gi"})))
    assert cluster.devices(claim("c", share("11Gi"))) == NOTHING

    (granted,) = cluster.grant(claim("x", share("1Gi")))

    assert (granted.devices.results[0].share_id, granted.devices.results[0].consumed_capacity) == (None, {})
    assert cluster.devices(claim("c", share("1Gi"))) == NOTHING


def test_a_device_without_the_capacity_requested_is_passed_over():
    cluster = Cluster(offer("a", device("plain", shared=True), nic()))

    assert cluster.devices(claim("c", share("1Gi"))) == [["nic"]]
    assert cluster.devices(claim("c", request(capacity={f"{DRIVER}/bandwidth": "1Gi"}))) == [["nic"]]
    assert cluster.devices(claim("c", request(capacity={"other.example/bandwidth": "1Gi"}))) == NOTHING


def test_all_leaves_out_devices_that_have_not_as_much():
    small = device("small", capacity={"bandwidth": "1Gi"})
    cluster = Cluster(offer("a", small, device("large", capacity={"bandwidth": "9Gi"})))

    assert cluster.devices(claim("c", request(mode="All", capacity={"bandwidth": "2Gi"}))) == [["large"]]


def test_shares_of_one_partition_consume_its_counters_once():
    shared = device("shared", consumes={"s": {"m": "1"}}, shared=True, capacity={"bandwidth": policy("4", default="1")})
    cluster = Cluster(
        offer("a", shared, device("other", consumes={"s": {"m": "1"}}), count=2),
        offer("b", counters={"s": {"m": "1"}}, count=2),
    )
    assert cluster.devices(claim("c", request("a"), request("b"))) == [["shared", "shared"]]

    cluster.grant(claim("x", request()))

    assert cluster.devices(claim("c", request(count=2))) == NOTHING
    assert cluster.devices(claim("c", request())) == [["shared"]]


def test_without_consumable_capacity_asking_for_it_is_an_error_and_shared_devices_are_taken_whole():
    cluster = Cluster(offer("a", nic()), consumable_capacity=False)

    with pytest.raises(AllocationError) as error:
        cluster.devices(claim("c", share("1Gi")))
    assert str(error.value) == (
        "claim default/c, request r: has capacity requests, but the DRAConsumableCapacity feature is disabled"
    )
    cluster.grant(claim("x", request()))
    assert cluster.devices(claim("c", request())) == NOTHING


# -- admin access


def test_dra_core_11_admin_access_takes_devices_in_use_and_occupies_none():
    cluster = Cluster(gpus(4))
    cluster.grant(claim("x", request(count=3)))

    (watching,) = cluster.grant(claim("w", request(mode="All", admin=True)))

    assert [(each.device, each.admin_access) for each in watching.devices.results] == [
        (f"gpu-{i}", True) for i in range(4)
    ]
    assert cluster.devices(claim("c", request())) == [["gpu-3"]]
    assert len(cluster.allocated.devices) == 3


def test_admin_access_takes_a_device_once_in_a_claim_and_only_if_it_tolerates_its_taints():
    cluster = Cluster(gpus(1))
    twice = claim("c", request("a", admin=True), request("b", admin=True))

    assert cluster.devices(twice) == NOTHING
    assert cluster.devices(claim("c", request(admin=True)), claim("d", request(admin=True))) == [["gpu-0"], ["gpu-0"]]
    assert Cluster(offer("a", device("d", taints=[taint()]))).devices(claim("c", request(admin=True))) == NOTHING


def test_admin_access_without_the_feature_is_an_error():
    with pytest.raises(AllocationError) as error:
        Cluster(gpus(1), admin_access=False).devices(claim("c", request(admin=True)))
    assert str(error.value) == "claim default/c, request r: admin access is requested, but the feature is disabled"


def test_alternatives_without_the_feature_are_an_error():
    with pytest.raises(AllocationError) as error:
        Cluster(gpus(1), prioritized_list=False).devices(claim("c", first_of("r", alternative("a"))))
    assert str(error.value) == (
        "claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled"
    )


# -- results


def test_binding_conditions_are_copied_and_without_the_feature_such_devices_are_passed_over():
    waits = device("waits", binding_conditions=("ready",), binding_failure_conditions=("failed",))
    slices = offer("a", waits, pool="p"), offer("b", "plain", pool="q")
    cluster = Cluster(slices[0])

    (found,) = cluster.allocate(claim("c", request()))

    (result,) = found.devices.results
    assert (result.binding_conditions, result.binding_failure_conditions) == (("ready",), ("failed",))
    assert Cluster(*slices).devices(claim("c", request())) == [["plain"]]  # waiting comes last
    assert Cluster(slices[0], binding=False).devices(claim("c", request())) == NOTHING


@pytest.mark.parametrize("where", [{"node_name": "n1"}, {"all_nodes": True}])
def test_a_device_of_one_node_or_bound_to_it_holds_the_claim_there(where):
    bound = device("d", binds_to_node="all_nodes" in where)

    (found,) = Cluster(offer("a", bound, pool="p", **where)).allocate(claim("c", request()))

    assert found.node_selector == on_node("n1")


def test_configuration_of_the_class_comes_before_the_claims_own_and_says_for_which_requests():
    def config(value, *requests):
        return {**({"requests": list(requests)} if requests else {}), "opaque": {"driver": DRIVER, "parameters": value}}

    classes = [device_class("gpu", config=(config(1),)), device_class("nic", config=(config(4),))]
    cluster = Cluster(gpus(3), classes=classes)
    either = first_of("n", alternative("far", of="nic"), alternative("near"))
    asked = claim("c", request("a"), request("b"), either,
                  config=(config(2, "b"), config(3), config(5, "n/near"), config(6, "n")))  # fmt: skip

    (found,) = cluster.allocate(asked)

    assert [(each["source"], each.get("requests"), each["opaque"]["parameters"]) for each in found.devices.config] == [
        ("FromClass", ["a", "b"], 1), ("FromClass", ["n/far"], 4),
        ("FromClaim", ["b"], 2), ("FromClaim", None, 3), ("FromClaim", ["n"], 6),
    ]  # fmt: skip


def test_an_attribute_that_is_a_list_has_no_value_without_the_gate():
    assert attribute(["a"]).typed_value is None


@pytest.mark.parametrize(
    ("requests", "has_alternatives", "problem"),
    [
        ((request("a"), first_of("r", alternative("s"))), True, ""),
        ((request("a", of="x"),), True, "request a: device class x does not exist"),
        ((first_of("r", alternative("s"), alternative("t", of="x")),), True,
         "request r/t: device class x does not exist"),
        ((request("a"), first_of("r", alternative("s", of="x"))), False,
         "resource claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled"),
        ((request("a"), DeviceRequest(name="r")), True, "resource claim default/c, request r: unknown request type"),
    ],
)  # fmt: skip
def test_what_no_node_can_satisfy_is_said_of_the_request_or_the_alternative(requests, has_alternatives, problem):
    features = Features(prioritized_list=has_alternatives)

    assert problem_of_requests(claim("c", *requests), {"gpu": GPU}.get, features) == problem


def test_a_solution_says_which_alternatives_it_took_and_makes_allocations_only_when_asked():
    cluster = Cluster(gpus(3))
    either = first_of("r", alternative("x", count=5), alternative("y"))
    allocator = Allocator([claim("c", request("a"), either)], cluster.classes.get, cluster.allocated)

    found = allocator.allocate("n1", cluster.slices.of_node(node()))

    assert isinstance(found, Solution)
    assert found.alternatives == (1,)
    assert [pick.candidate.id[2] for pick in found.picks] == ["gpu-0", "gpu-1"]
