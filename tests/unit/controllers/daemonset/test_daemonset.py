"""The DaemonSet controller over caches: which nodes get a pod, what becomes of failed ones, and how it rolls."""

import sys

import msgspec
import pytest

from services.api.kinds.daemonset import DaemonSet
from services.api.kinds.node import Node
from services.api.meta import Key
from services.controllers.daemonset.controller import BURST, CONTROLLER, FailureBackoff
from services.controllers.daemonset.nodes import fit_of
from services.controllers.shared_revisions import POD_LABEL
from services.reconcile.actions import Batch, Create, Delete, Patch, Query, RecordEvent
from services.reconcile.controller import Change

AGENT = Key("default", "agent")
NUMBER = "deprecated.daemonset.template.generation"


def a_daemon_set(image="i:1", pod=(), generation=1, status=(), annotations=(), **spec):
    template = {"metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": image}], "x-unknown": 1, **dict(pod)}}  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "generation": generation, "annotations": dict(annotations)},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template, **spec}, "status": dict(status),
    }  # fmt: skip


def rolling(**numbers):
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": numbers}}


def a_node(name, taints=(), **labels):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"taints": [dict(zip(("key", "effect"), taint, strict=True)) for taint in taints]}}  # fmt: skip


def flat(result):
    return [a for action in result.actions for a in (action.actions if isinstance(action, Batch) else (action,))]


def target(document):
    required = document["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]


def creates(result):
    return [target(a.document) for a in flat(result) if isinstance(a, Create) and a.resource == "pods"]


def deletes(result):
    return [a.key.name for a in flat(result) if isinstance(a, Delete) and a.resource == "pods"]


def events(result):
    return [a for a in flat(result) if isinstance(a, RecordEvent)]


def status_of(result):
    return next((a.patch["status"] for a in flat(result) if isinstance(a, Patch) and a.subresource == "status"), None)


class Cluster:
    """A world whose writes come true at once: pods appear bound and ready, and go when they are deleted."""

    def __init__(self, world, daemon_set=None, nodes=3):
        self.world = world
        self.pods = {}
        self.made = 0
        self.daemon_set = daemon_set or a_daemon_set()
        world.put(self.daemon_set)
        for number in range(nodes):
            world.put(a_node(f"n{number}"))

    def enact(self, result, *, ready=True):
        for action in flat(result):
            match action:
                case Create() if action.resource == "pods":
                    self.made += 1
                    name = f"p{self.made}"
                    document = {**action.document, "metadata": {**action.document["metadata"], "name": name}}
                    document["metadata"]["creationTimestamp"] = self.world.stamp()
                    document["spec"] = {**document["spec"], "nodeName": target(document)}
                    self.put(document, ready=ready)
                case Create():
                    self.world.put(action.document)
                case Delete() if action.resource == "pods":
                    del self.pods[action.key.name]
                    self.world.drop("Pod", action.key.name)
                case Delete():
                    self.world.drop("ControllerRevision", action.key.name, api_version="apps/v1")
                case Patch() if action.subresource == "status":
                    status = {**self.daemon_set["status"], **action.patch["status"]}
                    self.daemon_set = {**self.daemon_set, "status": status}
                    self.world.put(self.daemon_set)
                case Patch() if action.resource == "controllerrevisions.apps":
                    held = self.world.any(action.resource).document(action.key)
                    self.world.put({**held, **action.patch})
        return result

    def put(self, document, *, ready=True, phase="Running"):
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": self.world.stamp()}
        document["status"] = {"phase": phase, "conditions": [condition]}
        self.pods[document["metadata"]["name"]] = document
        self.world.put(document)

    def change(self, **spec):
        generation = self.daemon_set["metadata"]["generation"] + 1
        self.daemon_set = a_daemon_set(generation=generation, status=self.daemon_set["status"], **spec)
        self.world.put(self.daemon_set)

    def on(self, node):
        return [p for p in self.pods.values() if p["spec"]["nodeName"] == node]

    def images(self):
        return sorted(p["spec"]["containers"][0]["image"] for p in self.pods.values())

    def step(self, *, ready=True, after_s=0.0):
        return self.enact(self.world.reconcile("agent", after_s=after_s), ready=ready)

    def settle(self):
        for _ in range(20):
            if not flat(self.step()):
                return
        raise AssertionError("it never rests")


@pytest.fixture
def cluster_of(world_of):
    return lambda daemon_set=None, nodes=3: Cluster(world_of(CONTROLLER), daemon_set, nodes)


# --- which nodes ---

TAINT = "node.kubernetes.io/"


@pytest.mark.parametrize(
    ("pod", "node", "fit"),
    [
        ({}, a_node("n"), (True, True)),
        ({}, a_node("n", [("k", "NoSchedule")]), (False, True)),
        ({}, a_node("n", [("k", "PreferNoSchedule")]), (True, True)),
        ({}, a_node("n", [("k", "NoExecute")]), (False, False)),
        ({"tolerations": [{"operator": "Exists"}]}, a_node("n", [("k", "NoExecute")]), (True, True)),
        ({}, a_node("n", [(TAINT + "not-ready", "NoExecute"), (TAINT + "unreachable", "NoExecute")]), (True, True)),
        ({}, a_node("n", [(TAINT + "not-ready", "NoSchedule")]), (False, True)),
        ({}, a_node("n", [(TAINT + each, "NoSchedule") for each in
                          ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")]), (True, True)),
        ({}, a_node("n", [(TAINT + "network-unavailable", "NoSchedule")]), (False, True)),
        ({"hostNetwork": True}, a_node("n", [(TAINT + "network-unavailable", "NoSchedule")]), (True, True)),
        ({"nodeSelector": {"disk": "fast"}}, a_node("n", disk="slow"), (False, False)),
        ({"nodeSelector": {"disk": "fast"}}, a_node("n", disk="fast"), (True, True)),
        ({"nodeName": "n"}, a_node("n"), (True, True)),
        ({"nodeName": "other"}, a_node("n"), (False, False)),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n"]}]}]}}}},
         a_node("n"), (False, False)),
    ],
)  # fmt: skip
def test_a_node_is_judged_by_its_name_labels_and_taints(world_of, pod, node, fit):
    world = world_of(CONTROLLER)
    world.put(a_daemon_set(pod=pod))
    world.put(node)

    assert tuple(fit_of(world.of(DaemonSet).get(AGENT), world.of(Node).get(Key("", "n")))) == fit


def test_a_pod_is_the_template_made_for_one_node_with_what_keeps_it_there(cluster_of):
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]
    soon = {"key": TAINT + "not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    pod = {"tolerations": [soon], "affinity": {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}, "podAffinity": {"x": 1}}}  # fmt: skip
    cluster = cluster_of(a_daemon_set(pod=pod, annotations={NUMBER: "4"}), nodes=1)
    document = next(a.document for a in flat(cluster.step()) if isinstance(a, Create) and a.resource == "pods")
    spec, metadata = document["spec"], document["metadata"]

    assert spec["x-unknown"] == 1
    assert target(document) == "n0"
    assert spec["affinity"]["podAffinity"] == {"x": 1}
    assert spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == preferred
    assert [(t["key"].removeprefix(TAINT), t["effect"], t.get("tolerationSeconds")) for t in spec["tolerations"]] == [
        ("not-ready", "NoExecute", None), ("unreachable", "NoExecute", None), ("disk-pressure", "NoSchedule", None),
        ("memory-pressure", "NoSchedule", None), ("pid-pressure", "NoSchedule", None),
        ("unschedulable", "NoSchedule", None)]  # fmt: skip
    assert metadata["generateName"] == "agent-"
    assert metadata["labels"]["pod-template-generation"] == "4"
    assert metadata["ownerReferences"][0]["kind"] == "DaemonSet"


def test_nodes_come_change_and_go_and_only_what_concerns_the_set_is_looked_at(cluster_of):
    cluster = cluster_of(a_daemon_set(pod={"nodeSelector": {"disk": "fast"}}), nodes=2)
    world = cluster.world
    cluster.settle()
    beating = a_node("n0")
    beating["status"] = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "now"}]}

    assert world.put(beating) == []
    assert world.put(a_node("n0", other="label")) == []
    assert world.put(a_node("n0", disk="fast")) == [AGENT]
    assert creates(cluster.step()) == ["n0"]
    assert world.put(a_node("n0", [("k", "NoSchedule")], disk="fast")) == [AGENT]
    assert deletes(cluster.step()) == []
    assert cluster.daemon_set["status"]["numberMisscheduled"] == 1
    assert world.put(a_node("n0", [("k", "NoExecute")], disk="fast")) == [AGENT]
    assert deletes(cluster.step()) == ["p1"]
    assert world.put(a_node("n2", disk="fast")) == [AGENT]
    assert world.drop("Node", "n2") == [AGENT]
    assert world.drop("Node", "n1") == []


def test_a_pod_that_waits_for_a_node_that_is_gone_is_removed_and_a_bound_one_is_left_to_podgc(cluster_of):
    cluster = cluster_of(nodes=2)
    cluster.step()
    waiting = cluster.on("n0")[0]
    waiting["spec"]["nodeName"] = ""
    cluster.put(waiting, ready=False, phase="Pending")
    cluster.world.drop("Node", "n0")
    cluster.world.drop("Node", "n1")

    assert deletes(cluster.step()) == [waiting["metadata"]["name"]]


def test_of_what_a_kubelet_reports_only_phase_and_readiness_concern_the_set(cluster_of):
    cluster = cluster_of(nodes=1)
    cluster.settle()
    pod = cluster.on("n0")[0]
    now = cluster.world.stamp()

    def keys_of_change(phase="Running", ready="True", **status):
        since = pod["status"]["conditions"][0]["lastTransitionTime"] if ready == "True" else now
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
        return cluster.world.put({**pod, "status": {"phase": phase, "conditions": [condition], **status}})

    assert keys_of_change(podIP="10.0.0.1", containerStatuses=[{"name": "c", "restartCount": 1}]) == []
    assert keys_of_change(ready="False") == [AGENT]
    assert keys_of_change(ready="False", podIP="10.0.0.2") == []
    assert keys_of_change(phase="Failed", ready="False") == [AGENT]


# --- failed pods ---


def test_a_failed_daemon_pod_gets_an_event_is_deleted_and_replaced_later_each_time(cluster_of):
    cluster = cluster_of(nodes=1)
    world = cluster.world
    cluster.step()
    waits = []
    for _ in range(4):
        pod = cluster.on("n0")[0]
        cluster.put(pod, ready=False, phase="Failed")
        found = cluster.step()
        if not deletes(found):
            waits.append(found.requeue_after_s)
            assert deletes(cluster.step(after_s=found.requeue_after_s - 0.1)) == []
            found = cluster.step(after_s=0.1)
        assert deletes(found) == [pod["metadata"]["name"]]
        assert creates(cluster.step()) == ["n0"]

    assert waits == [1.0, 2.0, 4.0]
    warned = [e for e in events(found) if e.type == "Warning"]
    assert [(e.reason, e.message) for e in warned] == [
        ("FailedDaemonPod", "Found failed daemon pod default/p4 on node n0, will try to kill it")]  # fmt: skip
    cluster.change(image="i:2")
    cluster.put(cluster.on("n0")[0], ready=False, phase="Failed")
    assert deletes(world.reconcile("agent")) == ["p5"], "a changed set begins anew"


def test_the_wait_is_capped_at_fifteen_minutes_and_forgotten_after_twice_that():
    backoff, now_s = FailureBackoff(), 0.0
    for _ in range(12):
        now_s += backoff.wait_s("uid", 1, "n", now_s)
        backoff.on_removed("uid", 1, "n", now_s)

    assert backoff.wait_s("uid", 1, "n", now_s) == 900.0
    assert backoff.wait_s("uid", 1, "other", now_s) == 0.0
    assert backoff.wait_s("uid", 1, "n", now_s + 1801.0) == 0.0
    backoff.on_removed("uid", 1, "n", now_s + 1801.0)
    assert backoff.wait_s("uid", 1, "n", now_s + 1801.0) == 1.0
    backoff.sweep(now_s + 3603.0)
    assert len(backoff) == 0


def test_one_that_succeeded_is_removed_at_once_and_of_two_the_bound_and_older_stays(cluster_of):
    cluster = cluster_of(nodes=2)
    cluster.step()
    cluster.put(cluster.on("n0")[0], ready=False, phase="Succeeded")
    second = {**cluster.on("n1")[0]}
    second["metadata"] = {**second["metadata"], "name": "p9", "creationTimestamp": cluster.world.stamp(-60.0)}
    cluster.put(second)
    found = cluster.step()

    assert deletes(found) == ["p1", "p9"]
    assert events(found)[-3].reason == "SucceededDaemonPod"


# --- counting ---


def test_creations_come_in_bursts_and_nothing_more_is_asked_for_until_they_are_seen(cluster_of):
    cluster = cluster_of(nodes=BURST + 50)
    first = cluster.world.reconcile("agent")
    early = cluster.world.reconcile("agent")
    cluster.enact(first)

    assert len(creates(first)) == BURST
    assert creates(early) == []
    assert "observedGeneration" in status_of(first)
    assert len(creates(cluster.step())) == 50
    for _ in range(2):
        cluster.step()
    assert cluster.daemon_set["status"]["numberReady"] == BURST + 50


def test_the_status_counts_nodes_by_the_pod_that_counts(cluster_of):
    cluster = cluster_of(a_daemon_set(minReadySeconds=10), nodes=4)
    cluster.step()
    cluster.world.put(a_node("n3", [("k", "NoSchedule")]))
    cluster.put(cluster.on("n2")[0], ready=False)
    found = cluster.step()

    assert cluster.daemon_set["status"] == {
        "currentNumberScheduled": 3, "numberMisscheduled": 1, "desiredNumberScheduled": 3, "numberReady": 2,
        "updatedNumberScheduled": 3, "numberAvailable": 0, "numberUnavailable": 3, "observedGeneration": 1}  # fmt: skip
    assert 0 < found.requeue_after_s <= 10.0
    cluster.step(after_s=10.0)
    assert cluster.daemon_set["status"]["numberAvailable"] == 2


def test_a_set_that_waits_for_its_own_calls_has_not_observed_its_new_generation(cluster_of):
    cluster = cluster_of(nodes=1)
    cluster.world.reconcile("agent")
    cluster.change(image="i:2")

    assert status_of(cluster.world.reconcile("agent"))["observedGeneration"] == 0


def test_a_set_that_is_being_deleted_touches_nothing(cluster_of):
    cluster = cluster_of(nodes=1)
    leaving = {**cluster.daemon_set["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    cluster.world.put({**cluster.daemon_set, "metadata": leaving})

    assert flat(cluster.world.reconcile("agent")) == []


def test_a_matching_orphan_is_adopted_after_a_live_look_and_counts_for_its_node(cluster_of):
    cluster = cluster_of(nodes=1)
    cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "orphan", "labels": {"app": "agent"}},
                 "spec": {"nodeName": "n0"}})  # fmt: skip
    query = Query(DaemonSet, AGENT)
    asked = cluster.world.reconcile("agent")
    found = cluster.world.reconcile("agent", live={query: cluster.world.of(DaemonSet).get(AGENT)})

    assert asked.refresh == (query,)
    assert [a.key.name for a in flat(found) if isinstance(a, Patch) and a.resource == "pods"] == ["orphan"]
    assert creates(found) == []
    assert deletes(found) == ["orphan"], "it is of no revision, and one may be unavailable"


# --- rolling updates ---


def test_without_surge_as_many_old_pods_go_as_may_be_unavailable(cluster_of):
    cluster = cluster_of(a_daemon_set(**rolling(maxUnavailable="30%")), nodes=5)
    cluster.settle()
    cluster.change(image="i:2", **rolling(maxUnavailable="30%"))
    downs = []
    for _ in range(30):
        found = cluster.step()
        downs.append(5 - len(cluster.pods))
        if not flat(found):
            break

    assert max(downs) == 2, "30 % of five is rounded up"
    assert cluster.images() == ["i:2"] * 5
    assert cluster.daemon_set["status"]["updatedNumberScheduled"] == 5


def test_an_old_pod_that_is_not_available_is_replaced_and_counts_as_unavailable(cluster_of):
    cluster = cluster_of(nodes=3)
    cluster.settle()
    for node in ("n0", "n1"):
        cluster.put(cluster.on(node)[0], ready=False)
    cluster.change(image="i:2")

    assert sorted(deletes(cluster.step())) == ["p1", "p2"]
    cluster.step(ready=False)
    assert deletes(cluster.step()) == [], "the new ones are not available yet"


def test_with_on_delete_old_pods_stay_until_they_are_deleted(cluster_of):
    cluster = cluster_of(a_daemon_set(updateStrategy={"type": "OnDelete"}), nodes=2)
    cluster.settle()
    cluster.change(image="i:2", updateStrategy={"type": "OnDelete"})
    cluster.settle()
    assert cluster.images() == ["i:1", "i:1"]
    cluster.world.drop("Pod", "p1")
    del cluster.pods["p1"]
    cluster.settle()

    assert cluster.images() == ["i:1", "i:2"]


def test_with_surge_the_new_pod_comes_first_and_the_old_goes_when_it_is_available(cluster_of):
    numbers = rolling(maxUnavailable=0, maxSurge=1)
    cluster = cluster_of(a_daemon_set(minReadySeconds=5, **numbers), nodes=3)
    cluster.settle()
    cluster.step(after_s=5.0)
    cluster.change(image="i:2", minReadySeconds=5, **numbers)
    begun = cluster.step()
    waiting = cluster.step()
    swapped = cluster.step(after_s=5.0)

    assert (creates(begun), deletes(begun)) == (["n0"], [])
    assert (creates(waiting), deletes(waiting)) == ([], [])
    assert deletes(swapped) == ["p1"]
    for _ in range(8):
        cluster.step(after_s=5.0)
        assert len(cluster.pods) >= 3
    assert cluster.images() == ["i:2"] * 3


def test_with_surge_an_old_pod_that_is_not_ready_gets_its_successor_beyond_the_limit_and_goes(cluster_of):
    numbers = rolling(maxUnavailable=0, maxSurge="1%")
    cluster = cluster_of(a_daemon_set(**numbers), nodes=3)
    cluster.settle()
    for node in ("n1", "n2"):
        cluster.put(cluster.on(node)[0], ready=False)
    cluster.change(image="i:2", **numbers)

    assert creates(cluster.step(ready=False)) == ["n1", "n2", "n0"]
    assert deletes(cluster.step()) == ["p2", "p3"], "neither is ready: the new one stays"


# --- history ---


def revisions_in(cluster):
    views = cluster.world.any("controllerrevisions.apps").all()
    return {r.revision: r.metadata.labels[POD_LABEL] for r in sorted(views, key=lambda r: r.revision)}


def test_each_template_is_a_revision_and_going_back_gives_the_old_one_the_highest_number(cluster_of):
    cluster = cluster_of(nodes=1)
    cluster.settle()
    cluster.change(image="i:2")
    cluster.settle()
    before = revisions_in(cluster)
    cluster.change(image="i:1")
    cluster.settle()

    assert list(before) == [1, 2]
    assert revisions_in(cluster) == {2: before[2], 3: before[1]}
    assert cluster.on("n0")[0]["metadata"]["labels"][POD_LABEL] == before[1]


def test_old_revisions_beyond_the_limit_go_but_none_that_a_pod_is_of(cluster_of):
    cluster = cluster_of(a_daemon_set(updateStrategy={"type": "OnDelete"}, revisionHistoryLimit=1), nodes=1)
    cluster.settle()
    for image in ("i:2", "i:3", "i:4"):
        cluster.change(image=image, updateStrategy={"type": "OnDelete"}, revisionHistoryLimit=1)
        cluster.settle()

    assert list(revisions_in(cluster)) == [1, 4], "the pod is still of the first"


def test_a_name_that_another_object_holds_is_counted_as_a_collision(cluster_of):
    cluster = cluster_of(nodes=1)
    wanted = next(a.document for a in flat(cluster.world.reconcile("agent")) if isinstance(a, Create))
    name = wanted["metadata"]["name"]
    cluster.world.put({"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {}, "revision": 1,
                       "metadata": {"name": name, "ownerReferences": [{"kind": "X", "name": "x", "uid": "x",
                                                                       "controller": True}]}})  # fmt: skip

    assert status_of(cluster.world.reconcile("agent"))["collisionCount"] == 1


# --- scale ---


def calls_in(act):
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def test_a_reconcile_is_linear_in_nodes_and_a_heartbeat_costs_the_same_on_any_number(cluster_of):
    looks, beats, labels = {}, {}, {}
    for nodes in (100, 400):
        cluster = cluster_of(nodes=nodes)
        world, nodes_watch = cluster.world, cluster.world.controller.watches[1]
        for _ in range(nodes // BURST + 1):
            cluster.step()
        beat, other = (a_node("n7", **more) for more in ({}, {"zone": "z"}))
        looks[nodes] = calls_in(lambda world=world: world.reconcile("agent"))
        for costs, node in ((beats, beat), (labels, other)):
            before = world.of(Node).get(Key("", "n7"))
            world.version += 1
            world.stores["nodes"].put(Key("", "n7"), world.version, msgspec.json.encode(node))
            change = Change(before, world.of(Node).get(Key("", "n7")))
            costs[nodes] = calls_in(lambda world=world, change=change, watch=nodes_watch: watch.keys(change, world))

    assert looks[400] <= 4.2 * looks[100]
    assert beats[400] == beats[100] < labels[100] == labels[400] <= 50
