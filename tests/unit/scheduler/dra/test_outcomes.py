"""What is remembered of one pod's search for the next is what a search anew finds (dra-core 3, 6.4)."""

import random

import pytest

from scheduler.dra.outcomes import KINDS_KEPT, Outcomes
from services.api.kinds.resourceclaim import AllocationResult, DeviceAllocationResult, DeviceRequestAllocationResult
from services.dra.allocated_devices import Allocated
from services.dra.allocator import Allocator
from services.dra.pools import Slices
from services.dra.requests import AllocationError
from services.dra.solution import Solution
from tests.unit.dra.objects import DRIVER, GPU, claim, device, device_class, in_zone, offer, request

NODES = [f"n{i}" for i in range(4)]
KINDS = [(request(),), (request(count=2),), (request("a"), request("b")), (request(of="other"),)]


def granted(driver, pool, name):
    result = DeviceRequestAllocationResult(request="r", driver=driver, pool=pool, device=name)
    return AllocationResult(devices=DeviceAllocationResult(results=(result,)))


class Beside:
    """A scheduler's nodes, and both ways to ask about them."""

    def __init__(self, cluster, a):
        self.a = a
        self.cluster = cluster().nodes(*(a.node(name) for name in NODES))
        self.slices, self.allocated = Slices(), Allocated()
        self.classes = {"gpu": GPU, "other": device_class("other")}
        self.outcomes = Outcomes(self.slices, self.allocated)

    def allocator(self, kind):
        return Allocator([claim("c", *kind)], self.classes.get, self.allocated)

    def differences(self, kind):
        """Return the nodes for which another is remembered than a search anew finds: the name, and both."""
        columns, anew = self.cluster.cache.columns, self.allocator(kind)
        remembered = self.outcomes.of(anew)
        remembered.ask(anew, columns, columns.valid)
        found = []
        for name, row in columns.slots.items():
            allocated = self.allocator(kind).allocate(name, self.slices.of_node(columns.nodes[row].node))
            expected = _plain(allocated), isinstance(allocated, Solution)
            seen = _plain(remembered.found[row]), bool(remembered.passed[row])
            if seen != expected:
                found.append((name, seen, expected))
        return found


def _plain(outcome):
    return outcome if isinstance(outcome, str) else [pick.candidate.id for pick in outcome.picks]


@pytest.mark.parametrize("seed", range(6))
def test_remembered_outcomes_hold_through_any_changes(cluster, a, seed):
    chance, beside = random.Random(seed), Beside(cluster, a)
    for step in range(150):
        node = chance.choice(NODES)
        match chance.randrange(8):
            case 0 | 1:
                devices = [device(f"d{i}") for i in range(chance.randrange(4))]
                beside.slices.put(offer(f"near-{node}", *devices, node=node, generation=step))
            case 2:
                where = chance.choice([{"all_nodes": True}, {"node_selector": in_zone("z")}])
                beside.slices.put(offer("wide", "w0", "w1", pool="wide", generation=step, **where))
            case 3:
                beside.slices.drop(chance.choice(["wide", f"near-{node}"]))
            case 4 | 5:
                pool, name = chance.choice([(node, f"d{chance.randrange(3)}"), ("wide", f"w{chance.randrange(2)}")])
                beside.allocated.put(f"c{chance.randrange(5)}", granted(DRIVER, pool, name))
            case 6:
                beside.allocated.drop(f"c{chance.randrange(5)}")
            case 7:
                beside.cluster.nodes(a.node(node, labels=chance.choice([{}, {"zone": "z"}])))
        assert [] == beside.differences(chance.choice(KINDS))


def test_another_class_of_the_name_is_another_kind(cluster, a):
    beside = Beside(cluster, a)
    beside.slices.put(offer("s", "d", node="n0"))
    assert [] == beside.differences(KINDS[0])

    beside.classes["gpu"] = device_class("gpu", "false")

    assert [] == beside.differences(KINDS[0])


def test_the_kinds_that_came_last_are_remembered_and_the_one_that_came_longest_ago_is_not(cluster, a):
    beside = Beside(cluster, a)
    kinds = [beside.allocator((request(count=number),)) for number in range(1, KINDS_KEPT + 2)]
    first, second = (beside.outcomes.of(kind) for kind in kinds[:2])

    for kind in kinds[2:KINDS_KEPT]:
        beside.outcomes.of(kind)
    assert beside.outcomes.of(kinds[0]) is first
    newest = beside.outcomes.of(kinds[KINDS_KEPT])

    assert beside.outcomes.of(kinds[0]) is first
    assert beside.outcomes.of(kinds[KINDS_KEPT]) is newest
    assert beside.outcomes.of(kinds[1]) is not second


def test_a_row_that_another_filter_refused_is_not_searched(cluster, a):
    beside = Beside(cluster, a)
    beside.slices.put(offer("s", "d", node="n0"))
    columns = beside.cluster.cache.columns
    failing = beside.allocator((request(where=["device.attributes['x'].y == 'z'"]),))
    elsewhere = columns.mask_of(["n1", "n2"])

    beside.outcomes.of(failing).ask(failing, columns, elsewhere)

    with pytest.raises(AllocationError, match="no such key: y"):
        beside.outcomes.of(failing).ask(failing, columns, columns.valid)
