"""Authorization: cell by cell against an evaluator that shares no code, then the rules that need the body."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from apiserver_fake.registry.authorization.authorizer import admit, authorize, roles
from apiserver_fake.registry.authorization.field_masks import changes
from apiserver_fake.registry.authorization.node import NODE_TEXT
from lab.scenarios.invariants.policy import Call, is_allowed, may_change_node_name
from services.api.errors import ApiError, Forbidden
from services.api.identity import (
    ADMIN,
    ANONYMOUS,
    SCHEDULER,
    Hosting,
    Identity,
    StageFields,
    Stages,
    controller_identity,
    driver_identity,
    host_identity,
    node_identity,
)
from services.api.wire import Request

N1 = node_identity("n1")
IDENTITIES = [
    N1,
    node_identity("n2"),
    Identity("system:node:n1"),
    Identity("someone", ("system:nodes",)),
    ADMIN,
    SCHEDULER,
    ANONYMOUS,
    Identity("system:node-host:h1", ("system:node-hosts",)),
    host_identity("h2", Hosting(frozenset(("n1",)))),
    host_identity("h3", Hosting(frozenset(("n1",)), stages=Stages(StageFields(("a",)), StageFields(("a",))))),
    host_identity("h4", Hosting(node_prefix="n", stages=Stages(pods=StageFields(finalizers=("*",))))),
    Identity("system:auditor"),
    Identity("system:monitor"),
    Identity("keplab:ui"),
    Identity("kube-apiserver-kubelet-client"),
    Identity("system:claim-controller"),
    Identity("system:chaos"),
    Identity("system:pod-unbinder"),
    Identity("user:default"),
    Identity("user:ann"),
    Identity("user:"),
    driver_identity("gpu.example.com", "n1"),
    driver_identity("gpu.example.com", "n2"),
    driver_identity("gpu.example.com", ""),
    driver_identity("resource-claim-controller", "n1"),
    Identity("system:kube-controller-manager"),
    *(
        controller_identity(name)
        for name in (
            "replicaset",
            "deployment",
            "node-lifecycle",
            "taint-eviction",
            "podgc",
            "disruption",
            "namespace",
            "gc",
            "persistentvolume-binder",
            "volume-protection",
            "ephemeral-volume",
            "unheard-of",
        )
    ),
]
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
RESOURCES = (
    ("pods", ""),
    ("pods", "status"),
    ("pods", "binding"),
    ("pods", "unbind"),
    ("pods", "eviction"),
    ("pods", "log"),
    ("pods", "exec"),
    ("pods", "attach"),
    ("pods", "portforward"),
    ("pods", "proxy"),
    ("services", "proxy"),
    ("nodes", ""),
    ("nodes", "status"),
    ("nodes", "proxy"),
    ("nodes", "log"),
    ("nodes", "metrics"),
    ("nodes", "stats"),
    ("tokenreviews.authentication.k8s.io", ""),
    ("subjectaccessreviews.authorization.k8s.io", ""),
    ("serviceaccounts", "token"),
    ("deployments.apps", ""),
    ("deployments.apps", "scale"),
    ("replicasets.apps", "status"),
    ("secrets", ""),
    ("configmaps", ""),
    ("events", ""),
    ("leases.coordination.k8s.io", ""),
    ("namespaces", ""),
    ("namespaces", "finalize"),
    ("poddisruptionbudgets.policy", "status"),
    ("priorityclasses.scheduling.k8s.io", ""),
    ("podgroups.scheduling.k8s.io", ""),
    ("podgroups.scheduling.k8s.io", "status"),
    ("workloads.scheduling.k8s.io", ""),
    ("persistentvolumes", ""),
    ("persistentvolumeclaims", ""),
    ("persistentvolumeclaims", "status"),
    ("storageclasses.storage.k8s.io", ""),
    ("csinodes.storage.k8s.io", ""),
    ("noderesourcetopologies.topology.node.k8s.io", ""),
    ("csistoragecapacities.storage.k8s.io", ""),
    ("csidrivers.storage.k8s.io", ""),
    ("volumeattachments.storage.k8s.io", ""),
    ("volumeattachments.storage.k8s.io", "status"),
    ("resourceclaims.resource.k8s.io", ""),
    ("resourceclaims.resource.k8s.io", "status"),
    ("resourceclaimtemplates.resource.k8s.io", ""),
    ("deviceclasses.resource.k8s.io", ""),
    ("resourceslices.resource.k8s.io", ""),
    ("nodetokens", ""),
    ("statehash", ""),
)
PLACES = {
    "nodes": [("", "n1"), ("", "n9")],
    "leases.coordination.k8s.io": [
        ("kube-node-lease", "n1"),
        ("kube-system", "kube-scheduler"),
        ("kube-system", "podgc"),
        ("default", "n1"),
    ],
    "namespaces": [("", "default"), ("", "kube-system")],
    "secrets": [("default", "used"), ("default", "unused")],
    "configmaps": [("default", "used"), ("kube-system", "used")],
    "persistentvolumeclaims": [("default", "used"), ("default", "unused")],
    "persistentvolumes": [("", "used"), ("", "unused")],
    "volumeattachments.storage.k8s.io": [("", "mine"), ("", "theirs")],
    "csinodes.storage.k8s.io": [("", "n1"), ("", "n9")],
    "noderesourcetopologies.topology.node.k8s.io": [("", "n1"), ("", "n9")],
    "resourceclaims.resource.k8s.io": [("default", "used"), ("default", "unused")],
    "resourceslices.resource.k8s.io": [("", "mine"), ("", "theirs"), ("", "of-all-nodes")],
    "pods": [
        ("default", "mine"),
        ("default", "theirs"),
        ("default", "free"),
        ("default", "absent"),
        ("kube-system", "absent"),
    ],
}
UNOWNED = {
    "nodetokens",
    "statehash",
    "priorityclasses.scheduling.k8s.io",
    "persistentvolumes",
    "storageclasses.storage.k8s.io",
    "deviceclasses.resource.k8s.io",
}

SPECIAL = frozenset(("bind", "unbind", "evict", "token", "impersonate", "statehash", "chaos"))


@pytest.fixture
def cluster(world: Any) -> Any:
    reach = {
        "volumes": [
            {"name": "v", "secret": {"secretName": "used"}},
            {"name": "w", "configMap": {"name": "used"}},
            {"name": "x", "persistentVolumeClaim": {"claimName": "used"}},
        ],
        "resourceClaims": [{"name": "d", "resourceClaimName": "used"}],
    }
    for name, node in (("mine", "n1"), ("theirs", "n2")):
        world.pod(name, spec={"nodeName": node, **(reach if name == "mine" else {})})
    world.pod("free")
    for name, where in (
        ("mine", {"nodeName": "n1"}),
        ("theirs", {"nodeName": "n2"}),
        ("of-all-nodes", {"allNodes": True}),
    ):
        world.put("resourceslices.resource.k8s.io", {"metadata": {"name": name}, "spec": where})
    for name, node in (("mine", "n1"), ("theirs", "n2")):
        world.put("volumeattachments.storage.k8s.io", {"metadata": {"name": name}, "spec": {"nodeName": node}})
    for name in ("used", "unused"):
        bound = {"claimRef": {"namespace": "default", "name": name}}
        world.put("persistentvolumes", {"metadata": {"name": name}, "spec": bound})
    return world


def cells() -> Any:
    for identity, verb, (resource, sub) in itertools.product(IDENTITIES, VERBS, RESOURCES):
        for namespace, name in PLACES.get(
            resource, [("", "x")] if resource in UNOWNED else [("default", "x"), ("kube-system", "x")]
        ):
            selectors = (
                ("", "spec.nodeName=n1", "spec.nodeName!=n1")
                if resource in ("pods", "resourceslices.resource.k8s.io")
                and verb in ("list", "watch", "deletecollection")
                else ("",)
            )
            for selector in selectors:
                is_one = verb not in ("list", "watch", "deletecollection") or resource in (
                    "secrets",
                    "configmaps",
                    "persistentvolumeclaims",
                )
                yield identity, verb, resource, sub, namespace, name if is_one else "", selector


def is_hosted(user: str, resource: str, name: str, stored: Any) -> bool:
    """Whether stages of that host change the object: what the identities above say, in other words."""
    of = {"system:node-host:h3": {"nodes": ("n1",), "pods": ("n1",)}, "system:node-host:h4": {"pods": ("n1", "n2")}}
    node = name if resource == "nodes" else (stored or {}).get("spec", {}).get("nodeName", "")
    return node in of.get(user, {}).get(resource, ())


def test_guarantees_as_34_the_table_and_the_independent_evaluator_agree_on_every_cell(cluster):
    count, differences = 0, []
    allowed = 0
    for identity, verb, resource, sub, namespace, name, selector in cells():
        if sub == "unbind" and (identity.node or identity.user == "system:pod-unbinder"):
            continue  # decided inside the commit: test_unbind
        count += 1
        request = Request(
            verb=verb, resource=resource, subresource=sub, namespace=namespace, name=name, field_selector=selector
        )
        has_node = resource in ("pods", "resourceslices.resource.k8s.io", "volumeattachments.storage.k8s.io")
        stored = cluster.lookup(resource, namespace, name) if has_node else None
        call = Call(
            identity.user,
            identity.groups,
            verb,
            resource,
            sub,
            namespace,
            name,
            bound_to=(stored or {}).get("spec", {}).get("nodeName", ""),
            field_selector=selector,
            owned=("default",) if identity.user == "user:default" else (),
            preconditions=frozenset(("uid", "rv")),
            referenced=(name, namespace, identity.node)
            in (("used", "default", "n1"), *([("used", "", "n1")] if resource == "persistentvolumes" else [])),
            on_node=identity.on_node,
            hosted=is_hosted(identity.user, resource, name, stored),
        )
        try:
            authorize(identity, request, cluster.lookup, cluster.list)
            answer = True
        except Forbidden:
            answer = False
        allowed += answer
        if answer != is_allowed(call):
            differences.append((identity.user, verb, resource, sub, namespace, name, selector, answer))
    assert differences[:5] == []
    assert count >= 40_000
    assert allowed >= 300


def test_guarantees_8_3_the_wildcard_grants_no_special_verb():
    held_by = [(role.user, rule) for role in roles() for rule in role.rules]
    assert not [(user, rule.name) for user, rule in held_by if "*" in rule.resources and SPECIAL & set(rule.verbs)]
    held = {verb: sorted(user for user, rule in held_by if verb in rule.verbs) for verb in sorted(SPECIAL)}
    assert held["bind"] == ["system:kube-scheduler"]
    assert held["unbind"] == ["system:pod-unbinder"]
    assert held["impersonate"] == held["chaos"] == []


def test_kubectl_requests_7_a_refusal_says_who_may_not_do_what_where(cluster):
    with pytest.raises(Forbidden) as refused:
        authorize(ANONYMOUS, Request(verb="list", resource="pods", namespace="default"), cluster.lookup, cluster.list)
    assert refused.value.message == (
        'pods is forbidden: User "system:anonymous" cannot list resource "pods" '
        'in API group "" in the namespace "default"'
    )


def test_guarantees_8_4_a_node_gets_one_answer_for_what_is_not_its_own_and_for_what_does_not_exist(cluster):
    answers = []
    for name in ("theirs", "free", "absent"):
        for verb, sub in (("get", ""), ("delete", ""), ("patch", "status"), ("create", "eviction")):
            with pytest.raises(Forbidden) as refused:
                authorize(
                    N1,
                    Request(verb=verb, resource="pods", namespace="default", name=name, subresource=sub),
                    cluster.lookup,
                    cluster.list,
                )
            answers.append(msgspec.json.encode(refused.value.status()))
    assert len(set(answers)) == 1
    assert refused.value.message == NODE_TEXT


def node_write(
    world: Any, resource: str, old: Any, new: Any, verb: str = "update", body: Any = None, sub: str = ""
) -> bool:
    document = new or old
    request = Request(
        verb=verb,
        resource=resource,
        name=document["metadata"]["name"],
        namespace=document["metadata"].get("namespace", ""),
        body=msgspec.json.encode(body or {}),
        subresource=sub,
    )
    try:
        admit(N1, request, old, new, world.ctx(N1, request))
    except Forbidden as refused:
        if refused.message != NODE_TEXT:
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("change", "is_allowed"),
    [
        ({"annotations": {"a": "b"}}, True),
        ({"labels": {"kubernetes.io/hostname": "n1", "kubelet.kubernetes.io/x": "1"}}, True),
        ({"labels": {"topology.kubernetes.io/zone": "z"}}, False),
        ({"labels": {"node-restriction.kubernetes.io/trusted": "yes"}}, False),
        ({"labels": {"node-role.kubernetes.io/control-plane": ""}}, False),
        ({"labels": {"disk": "ssd"}}, False),
        ({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u"}]}, False),
        ({"finalizers": ["example.com/keep"]}, False),
    ],
)
def test_guarantees_x_nr2_x_nr3_a_node_changes_little_of_itself(world, change, is_allowed):
    own = world.lookup("nodes", "", "n1")
    assert node_write(world, "nodes", own, {**own, "metadata": {**own["metadata"], **change}}) is is_allowed


def test_guarantees_x_nr1_x_nr3_at_registration_a_node_may_say_more_but_only_under_its_own_name(world):
    labels = {"topology.kubernetes.io/zone": "z", "disk": "ssd", "kubernetes.io/os": "linux"}
    born = {"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    assert node_write(world, "nodes", None, born, "create")
    for change in (
        {"name": "n2"},
        {"labels": {"node-restriction.kubernetes.io/x": "1"}},
        {"labels": {"node-role.kubernetes.io/x": ""}},
        {"finalizers": ["a/b"]},
        {"ownerReferences": [{"uid": "u"}]},
    ):
        assert not node_write(world, "nodes", None, {**born, "metadata": {**born["metadata"], **change}}, "create")


def test_guarantees_x_nr2_taints_are_not_the_nodes_to_change(world):
    own = world.lookup("nodes", "", "n1")
    assert not node_write(world, "nodes", own, {**own, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})


def test_guarantees_x_nr5_a_lease_is_owned_by_its_own_node_or_none(world):
    uid = world.lookup("nodes", "", "n1")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}
    lease = {"metadata": {"name": "n1", "namespace": "kube-node-lease", "ownerReferences": [owner]}}
    assert node_write(world, "leases.coordination.k8s.io", None, lease, "create")
    for wrong in ({"uid": "u"}, {"name": "n2"}, {"kind": "Pod"}):
        bad = {**lease, "metadata": {**lease["metadata"], "ownerReferences": [{**owner, **wrong}]}}
        assert not node_write(world, "leases.coordination.k8s.io", None, bad, "create")
    assert not node_write(world, "leases.coordination.k8s.io", None, {"metadata": {"name": "n2"}}, "create")


@pytest.mark.parametrize(
    "reach",
    [
        {"resourceClaims": [{"name": "c"}]},
        {"serviceAccountName": "default"},
        {"imagePullSecrets": [{"name": "s"}]},
        {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
        {"volumes": [{"name": "v", "configMap": {"name": "s"}}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "s"}}]},
        {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
        {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]},
        {"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}]},
        {
            "initContainers": [
                {"name": "c", "env": [{"name": "E", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "k"}}}]}
            ]
        },
        {"containers": [{"name": "c", "resources": {"claims": [{"name": "c"}]}}]},
        {"nodeName": "n2"},
    ],
)
def test_guarantees_x_nr7_a_mirror_pod_reaches_for_nothing(world, reach):
    uid = world.lookup("nodes", "", "n1")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": uid}
    meta = {
        "name": "m",
        "namespace": "default",
        "annotations": {"kubernetes.io/config.mirror": "h"},
        "ownerReferences": [owner],
    }
    spec = {"nodeName": "n1", "containers": [{"name": "c"}]}
    assert node_write(world, "pods", None, {"metadata": meta, "spec": spec}, "create")
    assert not node_write(world, "pods", None, {"metadata": meta, "spec": {**spec, **reach}}, "create")


def test_guarantees_x_nr7_a_pod_without_the_mark_or_owner_is_not_a_nodes_to_create(world):
    spec = {"nodeName": "n1", "containers": [{"name": "c"}]}
    assert not node_write(
        world, "pods", None, {"metadata": {"name": "m", "namespace": "default"}, "spec": spec}, "create"
    )
    mark = {"name": "m", "namespace": "default", "annotations": {"kubernetes.io/config.mirror": "h"}}
    assert not node_write(world, "pods", None, {"metadata": mark, "spec": spec}, "create")


def test_guarantees_x_nr8_a_node_does_not_cut_its_pods_short(cluster):
    mine = cluster.get("pods", "mine")
    now = {"gracePeriodSeconds": 0}
    assert node_write(cluster, "pods", mine, None, "delete")
    assert not node_write(cluster, "pods", mine, None, "delete", now)
    ending = {**mine, "metadata": {**mine["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert node_write(cluster, "pods", ending, None, "delete", now)
    assert not node_write(cluster, "pods", cluster.get("pods", "theirs"), None, "delete")


@pytest.mark.parametrize(
    ("change", "is_allowed"),
    [
        ({"status": {"phase": "Running"}}, True),
        ({"status": {"phase": "Running", "unheardOf": 1}}, True),
        ({"status": {"nominatedNodeName": "n2"}}, False),
        ({"status": {"unbindCount": 7}}, False),
        ({"status": {"bindingGeneration": 7, "observedGeneration": 9}}, False),
        ({"status": {"resourceClaimStatuses": [{"name": "c"}]}}, False),
        ({"metadata": {"labels": {"a": "b"}}}, False),
        ({"metadata": {"finalizers": []}}, False),
        ({"spec": {"nodeName": "n1", "priority": 5}}, False),
    ],
)
def test_guarantees_x_nr10_a_status_carries_nothing_else(world, change, is_allowed):
    pod = world.pod(
        spec={"nodeName": "n1"},
        metadata={"finalizers": ["a/b"]},
        status={"bindingGeneration": 2, "observedGeneration": 2},
    )
    asked = {name: {**pod[name], **change.get(name, {})} for name in ("metadata", "spec", "status")}
    assert node_write(world, "pods", pod, {**pod, **asked}, "patch", sub="status") is is_allowed


@pytest.mark.parametrize(("seen", "is_taken"), [(None, False), (1, False), (2, False), (3, True), (4, True)])
def test_guarantees_x_nr10_a_status_must_have_seen_the_binding(world, seen, is_taken):
    pod = world.pod(spec={"nodeName": "n1"}, status={"bindingGeneration": 3})
    asked = {
        **pod,
        "status": {**pod["status"], "phase": "Running", **({} if seen is None else {"observedGeneration": seen})},
    }
    try:
        assert node_write(world, "pods", pod, asked, "patch", sub="status")
        answer = ""
    except ApiError as refused:
        answer = refused.reason
    assert answer == ("" if is_taken else "StaleBinding")


def test_guarantees_x_nr10_phases_go_forward_and_m29_ownership_is_read_inside_the_commit(world):
    pod = world.pod(spec={"nodeName": "n1"}, status={"phase": "Running"})
    assert not node_write(world, "pods", pod, {**pod, "status": {"phase": "Pending"}}, "patch", sub="status")
    moved = {**pod, "spec": {**pod["spec"], "nodeName": "n2"}}
    assert not node_write(world, "pods", moved, {**moved, "status": {"phase": "Failed"}}, "patch", sub="status")


def test_guarantees_x_nr15_events_are_of_the_node_itself_and_at_most_twenty_a_second(world):
    event = {"metadata": {"name": "e", "namespace": "default"}, "source": {"host": "n1"}}
    assert not node_write(world, "events", None, {**event, "source": {"host": "n2"}}, "create")
    assert not node_write(world, "events", {**event, "source": {"host": "n2"}}, event, "patch")
    for _ in range(20):
        assert node_write(world, "events", None, event, "create")
    with pytest.raises(ApiError) as refused:
        node_write(world, "events", None, event, "create")
    assert refused.value.code == 429
    world.wait(1)
    assert node_write(world, "events", None, {**event, "source": {}, "reportingInstance": "n1"}, "create")


def masked(world: Any, identity: Identity, resource: str, old: Any, change: Any, sub: str = "") -> str:
    """Ask for a change of one part and return the refusal, "" when it is allowed."""
    new = {**old, **{part: {**old.get(part, {}), **values} for part, values in change.items()}}
    request = Request(verb="patch", resource=resource, name="p", namespace="default", subresource=sub)
    try:
        admit(identity, request, old, new, world.ctx(identity, request))
    except Forbidden as refused:
        return refused.message
    return ""


READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("name", "change", "path"),
    [
        (
            "kube-scheduler",
            {"conditions": [READY, {"type": "PodScheduled", "status": "False"}], "nominatedNodeName": "n1"},
            "",
        ),
        ("kube-scheduler", {"conditions": [{"type": "Ready", "status": "False"}]}, "status.conditions[Ready].status"),
        ("kube-scheduler", {"phase": "Failed"}, "status.phase"),
        ("node-lifecycle", {"conditions": [{"type": "Ready", "status": "False"}]}, ""),
        ("node-lifecycle", {"conditions": []}, ""),
        ("node-lifecycle", {"phase": "Failed"}, "status.phase"),
        ("podgc", {"phase": "Failed", "conditions": [READY, {"type": "DisruptionTarget", "status": "True"}]}, ""),
        ("podgc", {"podIP": "1.2.3.4"}, "status.podIP"),
        ("taint-eviction", {"conditions": [READY, {"type": "DisruptionTarget", "status": "True"}]}, ""),
        ("disruption", {"conditions": [READY, {"type": "Made", "status": "Up"}]}, "status.conditions[Made]"),
    ],
)
def test_guarantees_8_3_masks_name_the_first_path_that_is_not_the_callers(world, name, change, path):
    identity = SCHEDULER if name == "kube-scheduler" else controller_identity(name)
    pod = world.pod(status={"conditions": [READY]})
    text = masked(world, identity, "pods", pod, {"status": change}, "status")
    assert text.endswith(f"may not change {path}") if path else text == ""


def test_guarantees_8_3_node_lifecycle_taints_with_its_own_keys_and_turns_conditions_unknown(world):
    who, node = (
        controller_identity("node-lifecycle"),
        {**world.lookup("nodes", "", "n1"), "status": {"conditions": [READY]}},
    )
    mine = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    assert masked(world, who, "nodes", node, {"spec": {"taints": [mine, {**mine, "effect": "NoSchedule"}]}}) == ""
    foreign = {"spec": {"taints": [mine, {"key": "dedicated", "effect": "NoSchedule"}]}}
    assert masked(world, who, "nodes", node, foreign).endswith("spec.taints[dedicated]")
    unknown, false = ({"status": {"conditions": [{**READY, "status": status}]}} for status in ("Unknown", "False"))
    assert masked(world, who, "nodes", node, unknown, "status") == ""
    assert masked(world, who, "nodes", node, false, "status").endswith("status.conditions[Ready].status")


def test_guarantees_c9_controllers_name_the_uid_of_what_they_delete_unless_upstreams_faults_are_wanted(world):
    pod = world.pod()

    def may_delete(name: str, **preconditions: str) -> bool:
        request = Request(
            verb="delete",
            resource="pods",
            name="p",
            namespace="default",
            body=msgspec.json.encode({"preconditions": preconditions}),
        )
        try:
            admit(controller_identity(name), request, pod, None, world.ctx(controller_identity(name), request))
        except Forbidden:
            return False
        return True

    assert not may_delete("replicaset")
    assert may_delete("replicaset", uid="u")
    assert not may_delete("gc", uid="u")
    assert may_delete("gc", uid="u", resourceVersion="1")
    assert not may_delete("podgc")
    world.switch(podgc__recheck=False, tainteviction__faithful=True)
    assert may_delete("podgc")
    assert may_delete("taint-eviction")


STAGED = host_identity(
    "h", Hosting(frozenset(("n1",)), stages=Stages(StageFields(("a",), ("b",), ("c/d",)), StageFields(("*",))))
)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"labels": {"a": "1"}, "annotations": {"b": "2"}, "finalizers": ["c/d"]}, ""),
        ({"labels": {"a": "1", "b": "1"}}, "metadata.labels.b"),
        ({"annotations": {"a": "1"}}, "metadata.annotations.a"),
        ({"finalizers": ["x/y"]}, "metadata.finalizers"),
        ({"ownerReferences": [{"uid": "u"}]}, "metadata.ownerReferences"),
        ({"labels": {"node-restriction.kubernetes.io/a": "1"}}, "metadata.labels.node-restriction.kubernetes.io/a"),
    ],
)
def test_decision_0039_a_host_changes_of_its_nodes_pods_what_their_stages_name(world, change, path):
    pod = world.pod(spec={"nodeName": "n1"})
    text = masked(world, STAGED, "pods", pod, {"metadata": change})
    assert text.endswith(f"may not change {path}") if path else text == ""
    assert "may not change spec.priority" in masked(world, STAGED, "pods", pod, {"spec": {"priority": 5}})


@pytest.mark.parametrize(
    "hosting", [Hosting(frozenset(("n1",))), Hosting(node_prefix="other-", stages=STAGED.hosting.stages)]
)
def test_decision_0039_without_stages_or_for_another_hosts_pod_nothing_may_be_changed(world, hosting):
    pod = world.pod(spec={"nodeName": "n1"})
    text = masked(world, host_identity("h", hosting), "pods", pod, {"metadata": {"labels": {"a": "1"}}})
    assert 'cannot patch resource "pods"' in text


def test_guarantees_x_nr3_restricted_labels_of_a_node_are_no_stages(world):
    node = world.lookup("nodes", "", "n1")

    def changed(name: str, key: str) -> str:
        new = {**node, "metadata": {**node["metadata"], "labels": {key: "yes"}}}
        request = Request(verb="patch", resource="nodes", name=name)
        try:
            admit(
                STAGED,
                request,
                {**node, "metadata": {**node["metadata"], "labels": {}}},
                new,
                world.ctx(STAGED, request),
            )
        except Forbidden as refused:
            return refused.message
        return ""

    assert changed("n1", "anything") == ""
    assert "may not change" in changed("n1", "node-restriction.kubernetes.io/trusted")
    assert "cannot patch" in changed("n2", "anything")


def test_i2_who_may_move_a_pod_is_judged_alike():
    assert may_change_node_name("system:kube-scheduler", "binding", "", "n1")
    assert may_change_node_name("system:node:n1", "unbind", "n1", "")
    for wrong in (
        ("system:node:n2", "unbind", "n1", ""),
        ("system:kube-scheduler", "binding", "n1", "n2"),
        ("system:mesh-admin", "", "n1", ""),
        ("system:pod-unbinder", "unbind", "n1", ""),
    ):
        assert not may_change_node_name(*wrong)


def test_differences_are_named_leaf_by_leaf_and_the_servers_own_counters_are_not_differences():
    old = {
        "metadata": {"resourceVersion": "1", "labels": {"a": "1"}},
        "spec": {"l": [1]},
        "status": {"conditions": [READY]},
    }
    new = {"metadata": {"resourceVersion": "2", "labels": {"a": "2"}}, "spec": {"l": [2], "e": {}}, "status": {}}
    assert [path for path, _, _ in changes(old, new)] == ["metadata.labels.a", "spec.l", "status.conditions[Ready]"]
