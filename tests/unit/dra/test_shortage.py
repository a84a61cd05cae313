"""What `keplab explain` says of each device that a claim cannot have (dra-core 3.1, 3.3)."""

from services.dra.allocator import Allocator
from services.dra.shortage import shortages
from tests.unit.dra.objects import DRIVER, Cluster, claim, device, node, offer, request, taint

MODEL_X = f'device.attributes["{DRIVER}"].model == "x"'


def ask(cluster, *claims):
    """Return (usable, refused) of each request on n1."""
    allocator = Allocator(claims, cluster.classes.get, cluster.allocated, cluster.features)
    found = shortages(allocator, "n1", cluster.slices.of_node(node()), lambda key: f"default/{key[2]}-has")
    return [(each.usable, each.refused) for each in found]


def test_each_device_is_named_with_what_speaks_against_it():
    devices = [
        device("a", model="x"),
        device("b", model="x"),
        device("c", model="y"),
        device("d", model="x", taints=[taint("ill", value="yes")]),
        device("e"),
    ]
    cluster = Cluster(offer("s", *devices))
    cluster.grant(claim("other", request(where=['device.attributes["gpu.example"].?model.orValue("") == "x"'])))

    ((usable, refused),) = ask(cluster, claim("c", request(count=2, where=[MODEL_X])))

    assert usable == 1
    assert refused == {
        "is allocated to claim default/a-has": [f"{DRIVER}/n1/a"],
        "a selector of class or request is false": [f"{DRIVER}/n1/c"],
        "has the taint ill=yes:NoSchedule": [f"{DRIVER}/n1/d"],
        "request selector #0: CEL runtime error: no such key: model": [f"{DRIVER}/n1/e"],
    }


def test_pools_that_cannot_be_used_are_named_with_the_counts_that_disagree():
    cluster = Cluster(
        offer("new", "a", pool="p", generation=2, count=2),
        offer("old", "b", pool="p", generation=1, count=2),
        offer("s", "c", pool="q", count=2),
        offer("t", "c", pool="q", count=2),
    )

    assert ask(cluster, claim("c", request())) == [
        (
            0,
            {
                "pool is incomplete: 1 slices of generation 2, new says 2": [f"{DRIVER}/p"],
                "pool is invalid: duplicate device name c": [f"{DRIVER}/q"],
            },
        )
    ]
