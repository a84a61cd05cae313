"""The machines of one node's pods: who waits for whom, when they are called, and what stays on disk. Time is a plain number."""

import pytest

from kubelet.effects import EndSpan, Log, Outbox, RecordEvent, Save, SetTimer, SpanStage
from kubelet.managers.allocation import NO_ALLOCATION
from kubelet.pod.context import WallTimes
from kubelet.pod.pod import Pod
from kubelet.pod.start_times import WORKER, StartTimes
from kubelet.pod.states import PodState
from kubelet.pod.table import PodTable
from kubelet.runtime.records import PodRecord, lines_of
from kubelet.status.versions import StatusVersions
from kubelet.view import worker_key
from tests.unit.kubelet.pod.test_pod import a_runtime


class Node:
    """A node whose records are durable when `saved` says so."""

    def __init__(self):
        self.out, self.statuses = Outbox(), StatusVersions()
        self.times = StartTimes(self.out, WallTimes(1e9))
        self.table = PodTable("n1", self.statuses, self.times, self.out)

    def machine(self, pod, latency=("all=constant:0",), now=0.0):
        return Pod(pod, worker_key(pod), a_runtime(latency), pod_ip="10.0.0.1", allocation=NO_ALLOCATION, now=now)

    def begun(self, pod, now=0.0, **more):
        machine = self.machine(pod, now=now, **more)
        self.table.begin(machine, now)
        return machine

    def running(self, pod, now=0.0):
        machine = self.begun(pod, now)
        self.table.due(machine.key, now)
        self.table.on_saved(machine.key, machine.saved_seq, now)
        return machine

    def end(self, machine, now):
        self.table.perform(machine, machine.terminate(now, 0, "deleted"), now)
        while (due := machine.due_s) is not None:
            now = max(now, due)
            self.table.due(machine.key, now)
        self.table.on_saved(machine.key, machine.saved_seq, now)

    def effects(self, kind):
        return [each for each in self.out.effects if isinstance(each, kind)]

    def timers(self, machine):
        return [each.at_s for each in self.effects(SetTimer) if (each.what, each.key) == ("worker", machine.key)]


@pytest.fixture
def node():
    return Node()


def test_a_pod_begins_at_once_where_no_other_has_its_name(node, a_pod):
    machine = node.begun(a_pod())

    assert machine.state == PodState.STARTING
    assert node.table.is_active(machine.key)
    assert (node.table.is_live(a_pod().metadata.key), node.table.is_live(a_pod("q").metadata.key)) == (True, False)


def test_kubelet_3_1_a_pod_waits_until_its_predecessor_of_the_same_name_has_ended(node, a_pod):
    first, second = a_pod(uid="one"), a_pod(uid="two")
    old, new = node.running(first), node.begun(second)
    assert new.state == PodState.HELD

    node.end(old, 5.0)
    node.table.on_ended(old)
    node.table.unhold_after(old.key, 6.0)

    assert new.state == PodState.STARTING
    assert node.table.is_live(second.metadata.key)
    node.table.on_ended(new)
    assert not node.table.is_live(second.metadata.key)


def test_a_pod_of_another_name_waits_for_none_and_a_predecessor_that_has_ended_holds_up_none(node, a_pod):
    old = node.running(a_pod(uid="one"))
    node.end(old, 5.0)

    assert node.begun(a_pod("q")).state == PodState.STARTING
    assert node.begun(a_pod(uid="two")).state == PodState.STARTING


def test_of_those_who_wait_only_the_ones_of_that_predecessor_begin(node, a_pod):
    names = [
        (name, node.running(a_pod(name, uid=f"{name}1")), node.begun(a_pod(name, uid=f"{name}2"))) for name in "ab"
    ]

    node.end(names[0][1], 5.0)
    node.table.unhold_after(names[0][1].key, 6.0)

    assert [new.state for _, _, new in names] == [PodState.STARTING, PodState.HELD]


def test_a_timer_is_set_only_where_it_is_sooner_than_the_one_there_is(node, a_pod):
    machine = node.begun(a_pod(run="exit 0 after 100s"), latency=("all=constant:0", "worker=constant:3"))
    node.table.perform(machine, [], 0.0)
    assert node.timers(machine) == [3.0]

    node.table.due(machine.key, 1.0)
    assert node.timers(machine) == [3.0], "one that fired early leaves the other"
    node.table.due(machine.key, 3.0)
    node.table.on_saved(machine.key, machine.saved_seq, 3.0)

    assert node.timers(machine) == [3.0, 103.0]


def test_a_manager_of_the_node_takes_its_effects_and_the_shell_gets_the_others(node, a_pod):
    machine, taken = node.begun(a_pod()), []
    node.out.effects.clear()
    node.table.on(RecordEvent, lambda pod, effect, now: taken.append((pod, effect.reason, now)))

    machine.event("Own", "m")
    event = machine.effects.pop()
    node.table.perform(machine, [event, Save(machine.key, 9, ())], 2.0)

    assert taken == [(machine, "Own", 2.0)]
    assert [each.seq for each in node.effects(Save)] == [9]


def test_the_first_record_of_a_pod_is_logged_once(node, a_pod):
    machine = node.running(a_pod())
    node.table.on_saved(machine.key, machine.saved_seq, 1.0)
    node.table.on_saved(machine.key, 0, 1.0)

    assert [each.data for each in node.effects(Log) if each.ev == "kubelet.checkpoint"] == [{"seq": 1}]


def test_a_record_of_a_pod_that_is_not_here_any_more_changes_nothing(node, a_pod):
    machine = node.begun(a_pod())
    node.table.forget(machine.key)

    node.table.on_saved(machine.key, 1, 1.0)
    node.table.due(machine.key, 1.0)

    assert node.effects(Log) == []
    assert not node.table.is_active(machine.key)


def traced(node, pod):
    node.out.start_span(worker_key(pod), pod, "")
    return node.running(pod)


def test_a_start_is_traced_until_its_status_is_known_or_never_will_be(node, a_pod):
    pods = [a_pod(name) for name in "abc"]
    node.statuses.on_changed(worker_key(pods[1]), 0.0)
    node.statuses.on_changed(worker_key(pods[2]), 0.0)
    node.table.gone[worker_key(pods[2])] = None

    for pod in pods:
        traced(node, pod)

    assert {each.key.uid for each in node.effects(EndSpan)} == {"uid-a", "uid-c"}
    assert [each.key.uid for each in node.effects(SpanStage) if each.stage == "running"] == ["uid-b"]


def test_pods_are_counted_while_something_of_them_runs_and_known_as_leaving_while_they_are_ended(node, a_pod):
    starting, runs, leaves, over = (a_pod(name, run="on SIGTERM ignore") for name in ("s", "r", "l", "o"))
    node.begun(starting)
    node.running(runs)
    leaving, ended = node.running(leaves), node.running(over)
    node.table.perform(leaving, leaving.terminate(1.0, 30, "deleted"), 1.0)
    node.end(ended, 1.0)

    assert node.table.running == 2
    assert node.table.leaving() == {leaving.key, ended.key}
    assert (node.table.is_active(leaving.key), node.table.is_active(ended.key)) == (True, False)
    assert node.table.images_in_use() == {"img"}


def test_an_image_is_in_use_only_once_a_container_has_run(node, a_pod):
    node.begun(a_pod())

    assert node.table.images_in_use() == frozenset()


def erased(node):
    return [each for each in node.effects(Save) if each.seq == 0]


def test_what_is_on_disk_of_a_pod_is_erased_once_and_only_where_there_is_something(node, a_pod):
    machine, fresh = node.running(a_pod()), node.begun(a_pod("fresh"))

    for each in (fresh, machine, machine):
        node.table.erase_of(each)

    assert [each.key for each in erased(node)] == [machine.key]


def test_a_pod_that_an_earlier_kubelet_ran_is_on_disk(node, a_pod):
    machine = node.machine(a_pod())
    node.table.add(machine, is_recorded=True)

    node.table.erase_of(machine)

    assert len(erased(node)) == 1


def test_nothing_is_known_of_a_pod_that_is_dropped(node, a_pod):
    pod = a_pod()
    machine = node.running(pod)
    node.table.gone[machine.key] = None
    node.statuses.on_changed(machine.key, 0.0)
    node.times.ending(machine.key, 1.0)
    node.out.start_span(machine.key, pod, "")

    node.table.drop(machine)
    node.times.on_ended(machine.key, 50.0)

    assert (node.table.pods, node.table.gone, node.statuses.waiting) == ({}, {}, 0)
    assert [each.error for each in node.effects(EndSpan)] == [""]
    assert len(erased(node)) == 1
    assert node.out.distributions[WORKER]["kill",].sum == 0.0


def test_the_end_of_a_pod_is_counted_from_when_it_began_to_be_ended(node, a_pod):
    machine = node.running(a_pod(run="on SIGTERM ignore"))

    node.table.perform(machine, machine.terminate(10.0, 30, "deleted"), 10.0)
    node.table.perform(machine, [], 15.0)
    node.times.on_ended(machine.key, 40.0)

    assert node.out.distributions[WORKER]["kill",].sum == 30.0


def test_a_record_that_erases_names_the_pod_and_its_binding(node, a_pod):
    machine = node.machine(a_pod())

    node.table.erase(machine.key)

    gone = PodRecord("n1", "uid-p", 2, is_gone=True)
    (save,) = erased(node)
    assert save.key == machine.key
    assert save.lines == lines_of(gone)
