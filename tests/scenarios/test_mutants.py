"""Planted bugs: each is caught by the invariant that is there for it, and the clean build raises nothing.

A mutant is another wiring, made here and in `plants`; the product has no branches for it. Every invariant of
guarantees 6 has at least one. Source: guarantees 12.12.
"""

import asyncio
from pathlib import Path

import pytest

import apiserver_fake.registry.authorization.node as node_authorization
import apiserver_fake.registry.registry as registry
from apiserver_fake import server
from apiserver_fake.registry.subresources import binding, unbind
from apiserver_fake.storage.records import DELETED
from apiserver_fake.storage.store import Store
from apiserver_fake.storage.watch_hub import Hub, Watcher
from apiserver_fake.storage.writer import Writer, refusal
from kubelet.admission.predicates import Ledger
from kubelet.pod.pod import Pod
from lab.chaos.run import run_chaos
from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS
from scheduler.cache.node_info import PodInfo
from scheduler.cycle.binder import Binder, BindResult, Outcome
from scheduler.framework.events import ASSIGNED_POD_DELETE
from scheduler.leadership import MissingNodes
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.recorder import SchedulerRecorder
from services.api.errors import Conflict
from services.api.meta import Key
from services.api.wire import Request, encode
from services.client.client import Client
from services.client.informer import Informer, Reflector
from tests.scenarios.plants import claims, pods, records, workloads

BURST = """
nodes n1..n2 cpu=16
deployment web replicas=12 cpu=1
wait 300ms
kill apiserver
expect within 60s count pods phase=Running == 12
"""
CHURN = """
nodes n1 cpu=16
pod a cpu=1
pod b cpu=1
expect within 20s count pods phase=Running == 2
link controllers cut=replies
delete pod/a grace=0
delete pod/b grace=0
wait 40s
link controllers
wait 15s
"""
RUNAWAY = """
set kubelet.on_reject=unbind
nodes n1..n3 numa=2x8 memory=64Gi policy=single-numa-node
pod n1-a cpu=4 node=n1
expect within 10s each pods name=n1-a phase == Running
pod n1-spacer cpu=4 node=n1
expect within 10s each pods name=n1-spacer phase == Running
pod n1-b cpu=4 node=n1
pod n2-a cpu=8 node=n2
pod n3-a cpu=8 node=n3
expect within 10s count pods phase=Running == 5
pod n2-b cpu=2 node=n2
pod n3-b cpu=2 node=n3
delete pod/n1-spacer grace=0
expect within 10s count pods phase=Running == 6
replicaset web replicas=1 cpu=6
wait 20s
"""
SAME_NAME = """
nodes n1 cpu=4
link scheduler slow=1s
pod p cpu=1
wait 1500ms
delete pod/p grace=0
pod p cpu=1
wait 10s
"""
LOST_REPLY = """
nodes n1 cpu=4
link scheduler slow=500ms
wait 2s
pod p cpu=1
wait 700ms
link scheduler slow=500ms cut=replies
wait 45s
link scheduler
wait 10s
"""
NOMINATED = """
nodes n1 cpu=4
pod p cpu=1 gates=example.com/hold
as scheduler patch pods/p/status {"status":{"nominatedNodeName":"n1"}} -> 200
patch pod/p {"spec":{"schedulingGates":null}}
expect within 10s each pods name=p phase == Running
"""
NOMINATED_NOWHERE = """
nodes n1 cpu=4
pod p cpu=1 gates=example.com/hold
as scheduler patch pods/p/status {"status":{"nominatedNodeName":"n9"}} -> 200
wait 25s
"""
NODE_OWNER = """
nodes n1 cpu=4
pod p cpu=1
expect within 10s each pods name=p phase == Running
remember uid pod/p metadata.uid
as node:n1 patch nodes/n1 {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"$uid"}]}} -> 403
"""
FOREIGN = """
set kubelet.on_reject=unbind
latency sandbox=constant:20
nodes n1..n2 cpu=4
pod victim cpu=1 node-selector=kubernetes.io/hostname:n1
expect within 10s each pods name=victim spec.nodeName == n1
remember uid pod/victim metadata.uid
remember gen pod/victim status.bindingGeneration
as node:n2 create pods/victim/unbind {"metadata":{"uid":"$uid"},"nodeName":"n1","bindingGeneration":$gen,"requestID":"0","reason":"TopologyAffinityError"} -> 403
"""
STALE_STATUS = """
nodes n1 cpu=4
pod p cpu=1
expect within 10s each pods name=p phase == Running
as node:n1 patch pods/p/status {"status":{"phase":"Failed","observedGeneration":1}} -> 409
wait 2s
"""
FULL_NODE = """
nodes n1 cpu=4
pod a cpu=3 node=n1
pod b cpu=3 node=n1
wait 8s
"""
OWN_WRITES = """
nodes n1 cpu=16
replicaset web replicas=3 cpu=1
expect within 10s count pods phase=Running == 3
wait 45s
"""
CHANGED_AT_ONCE = """
nodes n1 cpu=4
as admin create deviceclasses {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}} -> 201
wait 1s
as admin patch deviceclasses/gpu {"metadata": {"labels": {"tier": "one"}}} -> 200
wait 30s
"""
"""An object that components cache, that is changed within 5 s, and that none of them acts on: no later write of theirs
puts a cache right that was overwritten, before its hash is logged."""
PREEMPTION = """
nodes n1 cpu=4
pod small cpu=3 grace=0
expect within 10s each pods name=small phase == Running
pod big cpu=3 priority-class=system-cluster-critical
wait 340s
"""
TWO_SCHEDULERS = """
schedulers 2
nodes n1 cpu=8
replicaset web replicas=4 cpu=1
wait 5s
"""
FROZEN_LEADER = """
schedulers 2
nodes n1 cpu=8
pod first cpu=1
expect within 10s each pods name=first phase == Running
remember leader lease/kube-system/kube-scheduler spec.holderIdentity
pause $leader for=30s at=sched.assume
pod second cpu=1
wait 45s
"""


# --- the bugs ---------------------------------------------------------------------------------------------------------


def m1_acknowledges_before_the_journal_has_it(monkeypatch):
    async def commit(self, batch):
        if batch.staged.changes:
            self._store.publish(batch.staged.changes, self._clock.now())
            self._publish(batch.staged.changes)
        for operation, response in batch.answered:
            self._answer(operation, response)
        if batch.staged.changes:
            await asyncio.sleep(0.1)
            await self._journal.append(batch.entries, self._store.window_start)

    monkeypatch.setattr(Writer, "_commit", commit)


def m2_counts_versions_from_the_snapshot_only(monkeypatch):
    restore = server.restore

    def forgets(store, base, base_rv, entries, now_s, resources):
        restore(store, base, base_rv, entries, now_s, resources)
        store.rv = base_rv

    monkeypatch.setattr(server, "restore", forgets)


def m3_bookmarks_overtake_events(monkeypatch):
    publish = Hub.publish

    def overtaken(self, changes):
        for watcher in list(self._watchers.values()):
            if watcher.bookmarks and watcher.is_live:
                watcher.offer(self._bookmark(watcher.resource))
        publish(self, changes)

    monkeypatch.setattr(Hub, "publish", overtaken)


def m5_resumes_too_early(monkeypatch):
    after = Store.changes_after
    monkeypatch.setattr(Store, "changes_after", lambda self, resource, rv: after(self, resource, max(0, rv - 20)))


def m6_drops_the_oldest_event_of_a_full_queue(monkeypatch):
    offer = Watcher.offer

    def thinned(self, queued):
        if len(self._queue) >= 2:
            self._queue.pop(0)
        offer(self, queued)

    monkeypatch.setattr(Watcher, "offer", thinned)


def m7_forgets_tombstones_inside_the_window(monkeypatch):
    after = Store.changes_after
    monkeypatch.setattr(
        Store,
        "changes_after",
        lambda self, resource, rv: [change for change in after(self, resource, rv) if change.type != DELETED],
    )


def m11_takes_an_unanswered_bind_for_failed(monkeypatch):
    async def gives_up(self, assumption, node):
        return BindResult(Outcome.ERROR, "timeout", "no answer")

    monkeypatch.setattr(Binder, "_resolve", gives_up)


def _bind_with(monkeypatch, *, uid=True, count=True):
    async def bind(self, key, uid_of_pod, node, *, expected_unbind_count=None, traceparent="", **_):
        body = {
            "apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            "metadata": {"name": key.name, "namespace": key.namespace},
        }  # fmt: skip
        if count and expected_unbind_count is not None:
            body["expectedUnbindCount"] = expected_unbind_count
        request = Request(
            verb="create", resource="pods", namespace=key.namespace, name=key.name, subresource="binding",
            body=encode(body), uid=uid_of_pod if uid else "", traceparent=traceparent,
        )  # fmt: skip
        return (await self.call(request)).unwrap().rv

    monkeypatch.setattr(Client, "bind", bind)


def m12_binds_whatever_has_the_name(monkeypatch):
    _bind_with(monkeypatch, uid=False)


def m12b_scheduler_forgets_how_often_a_pod_was_unbound(monkeypatch):
    _bind_with(monkeypatch, count=False)
    monkeypatch.setattr(PodInfo, "unbind_count", 0)


def m15_keeps_the_nomination_of_a_bound_pod(monkeypatch):
    bound = binding._bound_pod

    def keeps(stored, body, node, ctx):
        made = bound(stored, body, node, ctx)
        if nominated := (stored.get("status") or {}).get("nominatedNodeName"):
            made["status"]["nominatedNodeName"] = nominated
        return made

    monkeypatch.setattr(binding, "_bound_pod", keeps)


def m15b_keeps_nominations_to_nodes_that_do_not_exist(monkeypatch):
    monkeypatch.setattr(MissingNodes, "look", lambda self, nominated, known: [])


def m16_preemptors_do_not_see_their_victims_end(monkeypatch):
    move_all = SchedulingQueue.move_all

    def deaf(self, event, *rest, **more):
        return 0 if event is ASSIGNED_POD_DELETE else move_all(self, event, *rest, **more)

    monkeypatch.setattr(SchedulingQueue, "move_all", deaf)


def m22_lets_a_node_own_itself(monkeypatch):
    monkeypatch.setattr(node_authorization, "_admit_own_node", lambda node, old, new: True)


def m24_late_replies_overwrite_newer_state(monkeypatch):
    happened = Informer.on_event

    def with_a_late_reply(self, event):
        happened(self, event)
        if event.type == "ADDED":
            asyncio.get_running_loop().call_later(5.0, overwrite, self.lister, Key(event.namespace, event.name), event)

    def overwrite(lister, key, reply):
        if lister.get(key) is not None:
            lister._rvs[key] = 0
            lister.put(key, reply.rv, reply.body)

    monkeypatch.setattr(Informer, "on_event", with_a_late_reply)


def m26_leader_writes_without_epoch(monkeypatch):
    monkeypatch.setattr(Client, "lead", lambda self, epoch, deposed: None)


def m26b_server_does_not_look_at_epochs(monkeypatch):
    monkeypatch.setattr(registry, "fence", lambda plan, text: plan)


def m29_does_not_ask_whose_pod_is_unbound(monkeypatch):
    authorize = registry.authorize

    def lenient(identity, request, *rest):
        if request.subresource != "unbind":
            authorize(identity, request, *rest)

    monkeypatch.setattr(registry, "authorize", lenient)
    monkeypatch.setattr(unbind, "_check_caller", lambda *_: None)
    monkeypatch.setattr(unbind, "_check_form", lambda *_: None)
    monkeypatch.setattr(unbind, "_CHECKS", ())


def m31_starts_containers_before_the_checkpoint(monkeypatch):
    created = Pod._on_created

    def hasty(self, container, t):
        created(self, container, t)
        self._on_started(container, t)

    monkeypatch.setattr(Pod, "_on_created", hasty)


def m32_takes_a_status_of_an_older_binding(monkeypatch):
    admit_status = node_authorization.admit_status

    def unfenced(node, old, new):
        bare = [
            document | {"status": {k: v for k, v in (document.get("status") or {}).items() if k != "bindingGeneration"}}
            for document in (old, new)
        ]
        return admit_status(node, *bare)

    monkeypatch.setattr(node_authorization, "admit_status", unfenced)


def m33_admits_what_does_not_fit(monkeypatch):
    monkeypatch.setattr(Ledger, "shortages", lambda self, requests: [])


def m34_refuses_what_it_has_committed(monkeypatch):
    answer = Writer._answer

    def lies(self, operation, response):
        is_pod = operation.cause is not None and operation.cause.verb == "create" and response.code == 201
        if is_pod and operation.identity == "system:controller:replicaset":
            response = refusal(Conflict("another client was faster"))
        answer(self, operation, response)

    monkeypatch.setattr(Writer, "_answer", lies)


def m35_goes_back_in_time_after_a_lost_stream(monkeypatch):
    once = Reflector._once

    async def earlier(self):
        if not self._must_relist:
            self.last_rv = max(1, self.last_rv - 10)
        await once(self)

    monkeypatch.setattr(Reflector, "_once", earlier)


def m36_evicts_without_saying_for_whom(monkeypatch):
    line = SchedulerRecorder.line
    monkeypatch.setattr(
        SchedulerRecorder,
        "line",
        lambda self, ev, *rest, **more: None if ev == "sched.victim" else line(self, ev, *rest, **more),
    )


MUTANTS = [
    (m1_acknowledges_before_the_journal_has_it, BURST, "I12"),
    (m2_counts_versions_from_the_snapshot_only, BURST, "I12"),
    (m3_bookmarks_overtake_events, OWN_WRITES, "I15"),
    (m5_resumes_too_early, BURST, "I15"),
    (m6_drops_the_oldest_event_of_a_full_queue, BURST, "I15"),
    (m7_forgets_tombstones_inside_the_window, CHURN, "I15"),
    (m11_takes_an_unanswered_bind_for_failed, LOST_REPLY, "I3"),
    (m12_binds_whatever_has_the_name, SAME_NAME, "I3"),
    (m12b_scheduler_forgets_how_often_a_pod_was_unbound, RUNAWAY, "I3"),
    (m15_keeps_the_nomination_of_a_bound_pod, NOMINATED, "I17"),
    (m15b_keeps_nominations_to_nodes_that_do_not_exist, NOMINATED_NOWHERE, "I17"),
    (m16_preemptors_do_not_see_their_victims_end, PREEMPTION, "I29"),
    (m22_lets_a_node_own_itself, NODE_OWNER, "I24"),
    (m24_late_replies_overwrite_newer_state, CHANGED_AT_ONCE, "I16"),
    (m26_leader_writes_without_epoch, TWO_SCHEDULERS, "I25"),
    (m26b_server_does_not_look_at_epochs, FROZEN_LEADER, "I25"),
    (m29_does_not_ask_whose_pod_is_unbound, FOREIGN, "I24"),
    (m31_starts_containers_before_the_checkpoint, OWN_WRITES, "I4"),
    (m32_takes_a_status_of_an_older_binding, STALE_STATUS, "I24"),
    (m33_admits_what_does_not_fit, FULL_NODE, "I5"),
    (m34_refuses_what_it_has_committed, OWN_WRITES, "I14"),
    (m36_evicts_without_saying_for_whom, PREEMPTION, "I18"),
    (m35_goes_back_in_time_after_a_lost_stream, BURST, "I15"),
    *pods.PLANTS,
    *claims.PLANTS,
    *workloads.PLANTS,
    *records.PLANTS,
]
AT_REST = {"I20", "I28"}
"""Judged when a mesh must be at rest, by chaos runs and by `settle`: `test_a_mesh_that_finds_no_rest_is_reported`."""
BY_GAUGES = {"I31"}
"""No line of the event log says what a gauge shows: `test_gauges.py` holds them against what is stored."""
SCENARIOS = {scenario: None for _, scenario, _ in MUTANTS}
SEEDS = (1, 2, 3, 4)
BESIDE = str(claims.CLAIMS / "mutant.txt")
"""Where a scenario of a few lines is taken to be: beside the files it applies."""


def _read(scenario):
    return load_scenario(scenario) if isinstance(scenario, Path) else parse_scenario(scenario, BESIDE, VERBS)


def _found(scenario, seed):
    result = simulate(_read(scenario), seed=seed)
    return result, {violation.invariant for violation in result.violations}


def test_every_invariant_has_a_planted_bug():
    assert {f"I{number}" for number in range(1, 33)} == {invariant for _, _, invariant in MUTANTS} | AT_REST | BY_GAUGES


@pytest.mark.parametrize(
    ("plant", "scenario", "invariant"),
    MUTANTS,
    ids=[
        "-".join((plant.__name__, *([scenario.stem] if isinstance(scenario, Path) else []), invariant))
        for plant, scenario, invariant in MUTANTS
    ],
)
def test_a_planted_bug_is_caught_by_its_invariant(plant, scenario, invariant, monkeypatch):
    plant(monkeypatch)

    seen = set()
    for seed in SEEDS:
        try:
            seen |= _found(scenario, seed)[1]
        except RuntimeError as error:  # a mutant may keep the mesh from becoming ready
            seen.add(str(error))
        if invariant in seen:
            return
    pytest.fail(f"{invariant} did not notice; raised were: {sorted(seen) or 'none'}")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=range(len(SCENARIOS)))
def test_the_clean_build_raises_nothing_on_the_same_scenarios(scenario):
    for seed in SEEDS:
        result, _ = _found(scenario, seed)

        assert [] == [f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations]
        assert result.failures == []


def test_a_mesh_that_finds_no_rest_is_reported(monkeypatch):
    workloads.counts_no_pod_as_ready(monkeypatch)

    ran = run_chaos(_read(OWN_WRITES), seed=1)

    assert {violation.invariant for violation in ran.result.violations} == AT_REST
    assert "0 of 3 replicas are ready at rest" in ran.problem


def test_a_mesh_that_finds_rest_is_not():
    assert run_chaos(_read(OWN_WRITES), seed=1).problem == ""
