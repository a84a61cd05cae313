"""A node that unbinds more than a fifth of its pods gets an Event, and a taint where that is chosen."""

from dataclasses import replace

import pytest

from services.api.meta import Key
from services.api.switches import Switches
from services.controllers.unbind_storm.controller import CONTROLLER as UNBIND_STORM

TAINT = {"key": "emulation/unbind-storm", "effect": "NoSchedule"}
N1 = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {}}


@pytest.fixture
def world(world_of):
    def build(*switches):
        made = world_of(replace(UNBIND_STORM, build=lambda _: UNBIND_STORM.build(Switches.parse(switches))))
        made.put(N1)
        return made

    return build


def bind(world, a_pod, *names):
    for name in names:
        world.put(a_pod(name, phase="Pending"))
        world.put(a_pod(name, node="n1", phase="Pending"))


def give_back(world, a_pod, name):
    status = {"unbindCount": 1, "unbindHistory": [{"nodeName": "n1"}]}
    return world.put(a_pod(name, phase="Pending", status=status))


def test_kubelet_unbinding_9_two_of_five_raise_an_alarm_once(world, a_pod):
    here = world()
    bind(here, a_pod, *"abcde")
    keys = [give_back(here, a_pod, name) for name in "ab"]

    (alarm,) = here.reconcile("n1", "").actions

    assert keys == [[Key("", "n1"), Key("", "")]] * 2
    assert (alarm.reason, alarm.type) == ("NodeUnbindRateHigh", "Warning")
    assert "2 of 5 pods" in alarm.message
    assert here.reconcile("n1", "", after_s=10).actions == ()


def test_kubelet_unbinding_9_one_of_five_or_four_of_four_are_no_storm(world, a_pod):
    fifth, few = world(), world()
    bind(fifth, a_pod, *"abcde")
    give_back(fifth, a_pod, "a")
    bind(few, a_pod, *"abcd")
    for name in "abcd":
        give_back(few, a_pod, name)

    assert fifth.reconcile("n1", "").actions == few.reconcile("n1", "").actions == ()


def test_kubelet_unbinding_9_two_of_twenty_on_many_nodes_are_an_alarm_of_the_cluster_once_in_five_minutes(world, a_pod):
    here = world()
    names = [f"p{number}" for number in range(20)]
    bind(here, a_pod, *names)
    give_back(here, a_pod, "p0")
    quiet = here.reconcile("", "").actions
    give_back(here, a_pod, "p1")
    (alarm,) = here.reconcile("", "").actions

    assert quiet == (), "one of twenty is five per cent, and not more"
    assert (alarm.kind, alarm.key.name, alarm.reason) == ("Namespace", "kube-system", "ClusterUnbindRateHigh")
    assert "2 of 20 pods" in alarm.message
    assert here.reconcile("", "", after_s=299).actions == ()
    bind(here, a_pod, *(f"q{number}" for number in range(20)))
    give_back(here, a_pod, "q0")
    give_back(here, a_pod, "q1")
    assert len(here.reconcile("", "", after_s=2).actions) == 1


def test_kubelet_unbinding_9_the_taint_comes_with_the_storm_and_goes_after_five_minutes(world, a_pod):
    here = world("unbind.storm_taint=true")
    bind(here, a_pod, *"abcde")
    for name in "ab":
        give_back(here, a_pod, name)

    begun = here.reconcile("n1", "")
    here.put({**N1, "spec": {"taints": [{"key": "own", "effect": "NoExecute"}, TAINT]}})
    lasting, over = here.reconcile("n1", "", after_s=299), here.reconcile("n1", "", after_s=2)

    assert begun.actions[0].patch["spec"]["taints"] == [TAINT]
    assert begun.requeue_after_s == 300
    assert lasting.actions == ()
    assert over.actions[0].patch["spec"]["taints"] == [{"key": "own", "effect": "NoExecute"}]


def test_kubelet_unbinding_9_a_taint_of_a_predecessor_is_taken_off_in_time(world):
    here = world("unbind.storm_taint=true")
    keys = here.put({**N1, "spec": {"taints": [TAINT]}})

    first, over = here.reconcile("n1", ""), here.reconcile("n1", "", after_s=301)

    assert keys == [Key("", "n1")]
    assert (first.actions, first.requeue_after_s) == ((), 300)
    assert over.actions[0].patch == {"spec": {"taints": None}}
