"""What kubelets show of their node's policy on resizes, and how long resizes wait (kep-5836 9 to 11)."""

from __future__ import annotations

import pytest

from kubelet.effects import Outbox
from kubelet.managers.allocation import NO_ALLOCATION
from kubelet.pod.context import Condition, PodContext, WallTimes
from kubelet.resize.manager import DeferredTimes, priority_bucket
from kubelet.resize.policy import ResizePolicy, deferred_of
from kubelet.switches import POLICY_FORMS, KubeletSwitches
from kubelet.view import KubeletPod, WorkerKey
from services.api.kinds.node import Node, NodePodPreemptionPolicy, NodeSpec
from services.api.meta import ObjectMeta
from services.api.switches import Switches
from tests.unit.kubelet.pod.test_pod import a_runtime

KEY = WorkerKey("u", 0)
ON = {"InPlacePodVerticalScalingSchedulerPreemption": True}


def node(*owners, **annotations):
    policy = NodePodPreemptionPolicy(owners) if owners else None
    named = {name.replace("__", "/").replace("_", "-"): text for name, text in annotations.items()}
    return Node(metadata=ObjectMeta(name="n1", annotations=named), spec=NodeSpec(pod_preemption_policy=policy))


def worker(reason="Deferred"):
    made = PodContext(KubeletPod(), KEY, a_runtime(), pod_ip="", allocation=NO_ALLOCATION, started_s=0.0)
    if reason:
        made.conditions["PodResizePending"] = Condition("True", "1970-01-01T00:00:05Z", reason)
    return made


def shown(policy, pod):
    conditions = policy.add_condition(pod, {"phase": "Running", "conditions": []})["conditions"]
    return [(c["type"], c["reason"], c["message"], c["lastTransitionTime"]) for c in conditions]


@pytest.mark.parametrize(
    ("switches", "form"),
    [
        ({}, None),
        ({"resize.generation": "G0"}, None),
        ({"resize.generation": "G1"}, POLICY_FORMS["G1"]),
        ({"resize.generation": "G2"}, POLICY_FORMS["G2"]),
    ],
)
def test_the_design_says_whether_kubelets_show_the_policy_and_how(switches, form):
    assert Switches({**ON, **switches}).of(KubeletSwitches).policy_form == form
    assert Switches(switches).of(KubeletSwitches).policy_form is None


@pytest.mark.parametrize(
    ("generation", "seen", "said"),
    [
        (
            "G1", node(scheduler_policy__disable_pod_resize_preemption="true"),
            ("ResizePreemptionDisabled", "NodePolicyEnforced"),
        ),
        ("G1", node("ops/x"), None),
        ("G1", node(ops__disable_pod_resize_preemption="false"), None),
        ("G2", node("ops/x"), ("PodResizePreemptionDisabled", "PreemptionDisabledByNodePolicy")),
        ("G2", node(), None),
    ],
)  # fmt: skip
def test_a_deferred_pod_shows_the_policy_in_the_words_of_the_design(generation, seen, said):
    policy = ResizePolicy(POLICY_FORMS[generation], "n1", WallTimes())

    policy.take(seen, 9.0)

    assert [found[:2] for found in shown(policy, worker())] == ([said] if said else [])
    assert bool(policy.owners) is bool(said)


def test_the_condition_names_node_and_owners_and_counts_from_the_later_of_wait_and_policy():
    policy = ResizePolicy(POLICY_FORMS["G2"], "n1", WallTimes())

    policy.take(node("ops/x"), 9.0)
    policy.take(node("ops/x", "ops/y"), 20.0)
    first = shown(policy, worker())

    text = "node n1 does not want pods evicted for resizes: ops/x, ops/y"
    assert first == [("PodResizePreemptionDisabled", "PreemptionDisabledByNodePolicy", text, "1970-01-01T00:00:09Z")]


@pytest.mark.parametrize("reason", ["", "Infeasible"])
def test_a_pod_whose_resize_is_not_deferred_does_not_show_the_policy(reason):
    policy = ResizePolicy(POLICY_FORMS["G2"], "n1", WallTimes())
    policy.take(node("ops/x"), 9.0)

    assert shown(policy, worker(reason)) == []
    assert deferred_of([worker(reason), worker()]) == [KEY]


def test_only_another_answer_is_news():
    policy = ResizePolicy(POLICY_FORMS["G2"], "n1", WallTimes())

    answers = [policy.take(seen, 1.0) for seen in (node(), node("a"), node("a"), node("b"), node())]

    assert answers == [False, True, False, True, True]
    assert ResizePolicy(None, "n1", WallTimes()).take(node("a"), 1.0) is False


@pytest.mark.parametrize(
    ("priority", "bucket"),
    [
        (2_000_001_000, "system-critical"), (1_999_999_999, "high"), (100_000, "high"), (99_999, "medium"),
        (1, "medium"), (0, "normal"), (-1, "low"), (-999, "low"), (-1000, "very-low"),
    ],
)  # fmt: skip
def test_priorities_come_in_six_classes(priority, bucket):
    assert priority_bucket(priority) == bucket


def test_a_wait_is_measured_from_the_first_deferral_to_its_end_and_only_once():
    out = Outbox()
    times = DeferredTimes(out)

    times.began(KEY, 7, 100.0)
    times.began(KEY, 7, 105.0)
    times.on_ended(KEY, "accepted", 112.0)
    times.on_ended(KEY, "terminated", 120.0)

    found = out.distributions["kubelet_pod_deferred_resize_duration_seconds"]
    assert {labels: (held.sum, held.count) for labels, held in found.items()} == {("medium", "accepted"): (12.0, 1)}
    buckets = dict(found["medium", "accepted"].buckets())
    assert [buckets[le] for le in ("10", "15", "+Inf")] == [0, 1, 1]
