"""What a node's pods hold of it: counted, logged, and given back."""

import pytest

from kubelet.admission.capacity import NodeCapacity
from kubelet.admission.predicates import Admitted, Ledger
from kubelet.effects import Outbox
from kubelet.managers.allocation import NO_ALLOCATION
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.view import worker_key


class Node:
    """A node of four CPUs; `updates` counts how often devices may have become others'."""

    def __init__(self, definition):
        self.ledger, self.out, self.updates = Ledger(definition.allocatable()), Outbox(), 0
        self.capacity = NodeCapacity(self.ledger, ResourceManagers(definition), self.out, update_devices=self._updated)

    def _updated(self):
        self.updates += 1

    def admits(self):
        return [
            (line.key.uid, line.data.get("adopted", False)) for line in self.out.effects if line.ev == "kubelet.admit"
        ]


@pytest.fixture
def node(a_node):
    return Node(a_node(cpu="4", memory="8Gi"))


def test_an_admitted_pod_is_counted_until_it_is_released_and_that_once(node, a_pod):
    pod = a_pod(cpu="3")
    key = worker_key(pod)

    node.capacity.count(pod, key, Admitted(node.ledger.needs(pod), NO_ALLOCATION))
    held = node.ledger.used["cpu"]

    assert (held, node.admits()) == (3000, [("uid-p", False)])
    assert (node.capacity.release(key), node.capacity.release(key)) == (True, False)
    assert node.ledger.used["cpu"] == 0


def test_a_pod_of_an_earlier_kubelet_is_counted_even_where_there_is_too_little_and_is_no_admission_then(node, a_pod):
    first, second = a_pod("a", cpu="3"), a_pod("b", cpu="3")

    fits = node.capacity.count_again(first, worker_key(first), NO_ALLOCATION)
    short = node.capacity.count_again(second, worker_key(second), NO_ALLOCATION)

    assert (fits, short) == ([], ["cpu"])
    assert (node.ledger.used["cpu"], node.admits(), node.updates) == (6000, [("uid-a", True)], 2)


def test_what_others_advertise_is_offered_in_place_of_what_they_did_before(node):
    node.capacity.advertise({}, {"example.com/card": "2"})
    node.capacity.advertise({"example.com/card": "2"}, {"example.com/slot": "3"})

    assert "example.com/card" not in node.ledger.allocatable
    assert (node.ledger.allocatable["example.com/slot"], node.updates) == (3, 2)
