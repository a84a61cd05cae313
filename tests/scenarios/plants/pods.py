"""Planted bugs in what becomes of one pod: its node, its phase, its deletion, its name (I1, I2, I21, I22, I23, I32)."""

import apiserver_fake.registry.authorization.node as node_authorization
from apiserver_fake.registry import strategy
from apiserver_fake.registry.strategies import pod
from apiserver_fake.registry.subresources import binding
from kubelet.pod.table import PodTable

BOUND_TWICE = """
nodes n1..n2 cpu=4
pod p cpu=1 node=n1 run="on SIGTERM ignore"
pod other cpu=1 node=n2
expect within 10s count pods phase=Running == 2
as scheduler create pods/p/binding {"target":{"kind":"Node","name":"n2"}} -> 409
wait 30s
"""
NODE_BY_PATCH = """
nodes n1 cpu=4
pod p cpu=1 gates=example.com/hold
as admin patch pods/p {"spec":{"nodeName":"n1"}} -> 422
wait 2s
"""
PHASE_GOES_BACK = """
nodes n1 cpu=4
pod p cpu=1
expect within 10s each pods name=p phase == Running
remember gen pod/p metadata.generation
as node:n1 patch pods/p/status {"status":{"phase":"Pending","observedGeneration":$gen}} -> 422
wait 2s
"""
DELETED_TWICE = """
nodes n1 cpu=4
pod p cpu=1 grace=5 run="on SIGTERM ignore"
expect within 10s each pods name=p phase == Running
delete pod/p
wait 1s
delete pod/p grace=30
wait 40s
"""
HELD = """
nodes n1 cpu=4
pod p cpu=1 finalizers=example.com/hold
expect within 10s each pods name=p phase == Running
delete pod/p grace=1
wait 10s
"""
NAME_TAKEN = """
nodes n1 cpu=8
statefulset db replicas=1 cpu=1 run="on SIGTERM exit 0 after 10s"
expect within 20s each pods name=db-0 phase == Running
delete pod/db-0 grace=30
wait 1s
delete pod/db-0 grace=0
wait 20s
"""


def binds_what_is_bound(monkeypatch):
    """The second node starts the pod before the first has ended it. Also I2, I3 and I24."""
    monkeypatch.setattr(binding, "_check_state", lambda stored, name: None)


def changes_the_node_by_an_update(monkeypatch):
    monkeypatch.setattr(pod, "check_update", lambda old, new: [])


def takes_a_phase_back(monkeypatch):
    """Both guards are off: what a node may write, and what any status may say."""
    monkeypatch.setattr(node_authorization, "_RANK", {})
    monkeypatch.setattr(pod, "_RANK", {})


def lets_a_second_delete_take_longer(monkeypatch):
    mark = strategy.delete_now_or_mark

    def anew(old, ctx, options, grace_s=0):
        meta = {name: value for name, value in old["metadata"].items() if name != "deletionTimestamp"}
        return mark({**old, "metadata": meta}, ctx, options, grace_s)

    monkeypatch.setattr(pod, "delete_now_or_mark", anew)


def removes_what_a_finalizer_holds(monkeypatch):
    mark = strategy.delete_now_or_mark

    def anyway(old, ctx, options, grace_s=0):
        meta = {name: value for name, value in old["metadata"].items() if name != "finalizers"}
        if mark({**old, "metadata": meta}, ctx, options, grace_s) is None:
            return None
        return mark(old, ctx, options, grace_s)

    monkeypatch.setattr(pod, "delete_now_or_mark", anyway)


def starts_beside_the_predecessor_of_its_name(monkeypatch):
    begin = PodTable.begin

    def beside(self, pod, now):
        names, self._names = self._names, {}
        begin(self, pod, now)
        self._names = {name: names.get(name, 0) + self._names.get(name, 0) for name in (*names, *self._names)}

    monkeypatch.setattr(PodTable, "begin", beside)


PLANTS = [
    (binds_what_is_bound, BOUND_TWICE, "I1"),
    (changes_the_node_by_an_update, NODE_BY_PATCH, "I2"),
    (takes_a_phase_back, PHASE_GOES_BACK, "I21"),
    (lets_a_second_delete_take_longer, DELETED_TWICE, "I22"),
    (removes_what_a_finalizer_holds, HELD, "I23"),
    (starts_beside_the_predecessor_of_its_name, NAME_TAKEN, "I32"),
]
