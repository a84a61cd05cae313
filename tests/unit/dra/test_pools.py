"""Which devices a node reaches (dra-core 3.1)."""

import pytest

from services.dra.pools import Slices
from services.dra.requests import AllocationError
from tests.unit.dra.objects import Cluster, claim, device, in_zone, node, offer, request

ONE = claim("c", request())
EVERYTHING = claim("c", request(mode="All"))


def test_dra_core_02_devices_go_by_the_names_of_slices_not_by_those_of_devices():
    cluster = Cluster(offer("b", "gpu-0", "gpu-1", count=2), offer("a", "gpu-2", "gpu-3", count=2))

    assert cluster.devices(claim("one", request()), claim("two", request())) == [["gpu-2"], ["gpu-3"]]


def test_dra_core_03_half_a_pool_gives_nothing_and_asking_for_all_of_it_is_an_error():
    cluster = Cluster(offer("a", "gpu-0", count=2))

    assert cluster.devices(ONE) == "cannot allocate all claims"
    with pytest.raises(AllocationError) as error:
        cluster.devices(EVERYTHING)
    assert str(error.value) == (
        "claim default/c, request r: asks for all devices, but resource pool gpu.example/n1 is currently being updated"
    )
    cluster.slices.put(offer("b", "gpu-1", count=2))
    assert cluster.devices(EVERYTHING) == [["gpu-0", "gpu-1"]]


def test_dra_core_04_a_newer_generation_anywhere_ends_the_older_one_everywhere():
    old = offer("a", "gpu-0", pool="shared", count=2)
    new = offer("b", "gpu-1", pool="shared", generation=2, count=2, node="n2")

    assert Cluster(old, new).devices(ONE) == "cannot allocate all claims"
    assert Cluster(old, new).devices(EVERYTHING) == "cannot allocate all claims"  # obsolete, not being updated


def test_older_slices_of_a_pool_count_for_nothing_where_newer_ones_are():
    cluster = Cluster(offer("a", "old"), offer("b", "new", generation=2))

    assert cluster.devices(EVERYTHING) == [["new"]]


def test_a_pool_spread_over_nodes_is_complete_when_the_cluster_has_all_of_it():
    cluster = Cluster(offer("a", "gpu-0", pool="shared", count=2))
    assert cluster.devices(ONE) == "cannot allocate all claims"

    cluster.slices.put(offer("b", "gpu-1", pool="shared", count=2, node="n2"))

    assert cluster.devices(ONE) == [["gpu-0"]]


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ((offer("a", "gpu-0", count=2), offer("b", "gpu-0", count=2)), "duplicate device name gpu-0"),
        ((offer("a", counters={"s": {"m": "1"}}, count=2), offer("b", counters={"s": {"m": "1"}}, count=2)),
         "duplicate counter set name s"),
        ((offer("a", device("d", consumes={"s": {"m": "1"}})),), "counter set s not found"),
        ((offer("a", device("d", consumes={"s": {"n": "1"}}), count=2), offer("b", counters={"s": {"m": "1"}}, count=2)),
         "counter n not found in counter set s"),
        ((offer("a", "d", pool="p", count=3), offer("b", counters={"s": {"m": "1"}}, pool="p", count=3),
          offer("c", device("e", consumes={"s": {"n": "1"}}), pool="p", count=3, node="n2")),
         "counter n not found in counter set s"),
    ],
)  # fmt: skip
def test_a_pool_that_contradicts_itself_is_invalid_and_gives_nothing(slices, reason):
    cluster = Cluster(*slices)

    (pool,) = cluster.slices.of_node(node())
    assert (pool.invalid, pool.candidates, pool.is_complete) == (reason, (), True)
    assert cluster.devices(ONE) == "invalid resource pools were encountered"
    with pytest.raises(AllocationError, match="is currently invalid"):
        cluster.devices(EVERYTHING)


def test_an_invalid_pool_does_no_harm_to_claims_that_another_pool_can_serve():
    cluster = Cluster(offer("a", "x", "x"), offer("b", "fine", pool="other"))

    assert cluster.devices(ONE) == [["fine"]]


@pytest.mark.parametrize(
    ("where", "reached"),
    [
        ({"node_name": "n1"}, ["n1"]),
        ({"all_nodes": True}, ["n1", "n2"]),
        ({"node_selector": in_zone("z")}, ["n2"]),
        ({"per_device_node_selection": True}, []),
        ({"driver_does_not_say": True}, []),
    ],
)
def test_a_slice_says_which_nodes_reach_its_devices(where, reached):
    slices = Slices([offer("a", "d", pool="p", **{k: v for k, v in where.items() if k != "driver_does_not_say"}
                           or {"node_name": ""})])  # fmt: skip

    found = [each.metadata.name for each in (node("n1"), node("n2", zone="z")) if slices.of_node(each)]

    assert found == reached


def test_devices_may_say_themselves_where_they_are():
    cluster = Cluster(
        offer("a", device("here", node_name="n1"), device("zone", node_selector=in_zone("z")),
              device("all", all_nodes=True), pool="p", per_device_node_selection=True),
    )  # fmt: skip

    assert cluster.devices(EVERYTHING, on=node("n1")) == [["here", "all"]]
    assert cluster.devices(EVERYTHING, on=node("n2", zone="z")) == [["zone", "all"]]


def test_without_partitionable_devices_such_slices_and_counters_are_not_there():
    cluster = Cluster(
        offer("a", device("here", node_name="n1"), pool="p", per_device_node_selection=True),
        offer("b", device("part", consumes={"s": {"m": "1"}}), pool="q"),
        offer("c", counters={"s": {"m": "1"}}, pool="r"),
        partitionable_devices=False,
    )

    assert [pool.name for pool in cluster.slices.of_node(node())] == ["q"]
    assert cluster.devices(ONE) == "cannot allocate all claims"


def test_pools_go_by_driver_and_name_and_those_with_binding_conditions_last():
    slices = Slices(
        [
            offer("1", device("d", binding_conditions=("ready",)), pool="a"),
            offer("2", "d", pool="c"),
            offer("3", "d", pool="b"),
            offer("4", "d", pool="z", driver="a.example"),
        ]
    )

    assert [pool.name for pool in slices.of_node(node())] == ["z", "b", "c", "a"]


def test_nodes_that_reach_the_same_pools_share_them_until_a_slice_changes():
    slices = Slices([offer("a", "d", pool="p", all_nodes=True)])
    before = slices.of_node(node("n1"))

    assert slices.of_node(node("n2")) is before
    slices.put(offer("b", "e", pool="q", node="n2"))
    assert [pool.name for pool in slices.of_node(node("n2"))] == ["p", "q"]
    assert slices.of_node(node("n1"))[0] is before[0]


def test_a_slice_of_one_node_concerns_the_nodes_of_its_pool_and_others_concern_all():
    slices = Slices(
        [offer("a", "d", pool="p", count=2), offer("b", "e", pool="p", count=2, node="n2"), offer("c", "f")]
    )
    mark = slices.changes.mark

    slices.drop("a")
    slices.put(offer("d", "g", pool="all", all_nodes=True))

    assert slices.changes.since(mark) == ["n1", "n2", ""]


def test_a_node_whose_labels_change_reaches_other_devices():
    slices = Slices([offer("a", "d", pool="p", node_selector=in_zone("z"))])

    assert len(slices.of_node(node("n1", zone="z"))) == 1
    assert slices.of_node(node("n1")) == ()
