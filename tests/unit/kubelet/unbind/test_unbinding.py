"""The unbinding machine: what each answer means (kubelet-unbinding 6.2)."""

import hashlib

import pytest

from kubelet.unbind.unbinding import (
    FallBack,
    Next,
    UnbindAnswer,
    Unbinding,
    Wait,
    is_enabled,
    may_unbind,
    pending_status,
    unbind_body,
)
from kubelet.view import WorkerKey
from services.api.unbind import request_id


@pytest.fixture
def calling(a_pod):
    state = Unbinding(a_pod(), "OutOfcpu", "m", 0.0, 120.0)
    assert state.call(0.0) == Next.CALL
    return state


@pytest.mark.parametrize(
    ("code", "reason", "step"),
    [(200, "", Next.DONE), (404, "NotFound", Next.GONE),
     (409, "UIDMismatch", Next.GONE), (409, "NotBound", Next.GONE),
     (409, "BoundElsewhere", Next.GONE), (409, "StaleBinding", Next.GONE),
     (409, "Terminating", Next.CONFIRM), (409, "AlreadyStarted", Next.RESUME), (409, "StaleSession", Next.READ_SESSION),
     (403, "Forbidden", Next.READ_POD), (422, "LimitReached", FallBack("LimitReached")),
     (422, "Exempt", FallBack("Exempt")), (409, "SchedulerNotCapable", FallBack("SchedulerNotCapable"))],
)  # fmt: skip
def test_kubelet_unbinding_6_2_every_answer_has_one_meaning(calling, code, reason, step):
    assert calling.answer(UnbindAnswer(code, reason), 1.0) == step


def test_kubelet_unbinding_6_2_a_429_waits_as_long_as_it_says(calling):
    assert calling.answer(UnbindAnswer(429, "TooManyRequests", retry_after_s=7), 1.0) == Wait(8.0)
    assert calling.call(5.0) == Wait(8.0)
    assert calling.call(8.0) == Next.CALL


@pytest.mark.parametrize(("code", "reason"), [(0, ""), (500, "InternalError"), (409, "Conflict"), (503, "x")])
def test_kubelet_unbinding_6_2_lost_answers_and_conflicts_wait_1_2_4_to_30_seconds(calling, code, reason):
    now, waits = 0.0, []
    for _ in range(6):
        step = calling.answer(UnbindAnswer(code, reason, jitter=0.5), now)
        waits.append(step.until_s - now)
        now = step.until_s
        assert calling.call(now) == Next.CALL
    assert waits == [1, 2, 4, 8, 16, 30]


def test_kubelet_unbinding_6_2_the_wait_is_spread_by_20_percent(a_pod):
    for jitter, wait in ((0.0, 0.8), (0.5, 1.0)):
        state = Unbinding(a_pod(), "OutOfcpu", "m", 0.0, 120.0)
        state.call(0.0)
        assert state.answer(UnbindAnswer(0, "", jitter=jitter), 0.0) == Wait(wait)


def test_kubelet_unbinding_6_2_after_120_seconds_of_silence_it_falls_back(calling):
    now = 0.0
    for _ in range(20):
        step = calling.answer(UnbindAnswer(0, "", jitter=0.5), now)
        now = step.until_s
        step = calling.call(now)
        if step != Next.CALL:
            break
    assert now == 120.0
    assert step == FallBack("DeadlineExceeded")


def test_a_404_that_does_not_name_the_pod_means_there_is_no_such_endpoint(calling):
    assert calling.answer(UnbindAnswer(404, "NotFound", names_pod=False), 1.0) == Next.ABSENT


def test_a_403_falls_back_only_for_a_pod_that_is_still_ours(a_pod):
    state = Unbinding(a_pod(), "OutOfcpu", "m", 0.0, 120.0)

    assert state.pod_read(still_mine=False) == Next.GONE
    assert state.pod_read(still_mine=True) == FallBack("Forbidden")


def test_a_stale_session_that_is_ours_is_tried_exactly_once_more(calling):
    assert calling.answer(UnbindAnswer(409, "StaleSession"), 1.0) == Next.READ_SESSION
    assert calling.session_read(2.0) == Next.CALL
    assert calling.answer(UnbindAnswer(409, "StaleSession"), 3.0) == FallBack("StaleSession")


def test_guarantees_x_ub5_the_request_id_is_what_the_server_computes():
    assert request_id("u", 3, "n1") == hashlib.sha256(b"u\x003\x00n1").hexdigest()[:32]


def test_kubelet_unbinding_21_daemon_static_mirror_and_preset_pods_are_exempt(a_pod):
    daemon = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}]}
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}

    assert may_unbind(a_pod(), "OutOfcpu")
    assert not may_unbind(a_pod(metadata=daemon), "OutOfcpu")
    assert not may_unbind(a_pod(metadata=mirror), "OutOfcpu")
    assert not may_unbind(a_pod(status={"bindingGeneration": 0}), "OutOfcpu")
    assert not may_unbind(a_pod(), "ImagePullBackOff")


@pytest.mark.parametrize(
    "reason",
    ["OutOfcpu", "OutOfpods", "TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "NodeAffinity",
     "NodeName", "NodePorts", "TaintToleration", "NodeShutdown", "Evicted", "FailedPrepareDynamicResources",
     "SysctlForbidden", "AppArmor", "PodOSSelectorNodeLabelDoesNotMatch", "PodOSNotSupported",
     "SupplementalGroupsPolicyNotSupported", "PodLevelResourcesNotSupported", "PodFeatureUnsupported"],
)  # fmt: skip
def test_kubelet_unbinding_6_1_these_rejections_lead_to_an_unbind_unless_others_alone_are_named(reason):
    assert is_enabled(reason)
    assert is_enabled(reason, ("all",))
    assert is_enabled(reason, ("NoSuchReason", "all"))
    assert not is_enabled(reason, ("NoSuchReason",))
    assert is_enabled(reason, (reason[:4] + "*",))


@pytest.mark.parametrize("reason", ["FailedCreatePodSandBox", "FailedMount", "RunContainerError"])
def test_kubelet_unbinding_6_1_starts_that_fail_lead_to_an_unbind_only_where_they_are_named(reason):
    assert not is_enabled(reason)
    assert not is_enabled(reason, ("all",))
    assert is_enabled(reason, ("NodePorts", reason))
    assert is_enabled(reason, (f"{reason[:3]}*",))


def test_kubelet_unbinding_21_a_pod_that_a_user_bound_is_exempt_unless_the_switch_allows_it(a_pod):
    preset = a_pod(status={"bindingGeneration": 0})

    assert not may_unbind(preset, "OutOfcpu", user_bound="exempt")
    assert may_unbind(preset, "OutOfcpu", user_bound="allow")


@pytest.mark.parametrize(("fence", "more"), [("session", {}), ("resourceVersion", {"resourceVersion": "77"})])
def test_kubelet_unbinding_4_2_the_request_names_the_pod_the_binding_and_who_asks(a_pod, fence, more):
    pod = a_pod(metadata={"resourceVersion": "77"})

    body = unbind_body(pod, WorkerKey("u", 2), "n1", "s1", "OutOfcpu", "m" * 2000, fence=fence)

    assert body == {
        "apiVersion": "v1",
        "kind": "PodUnbind",
        "metadata": {"name": "p", "namespace": "default", "uid": "u", **more},
        "nodeName": "n1",
        "bindingGeneration": 2,
        "kubeletSession": "s1",
        "requestID": request_id("u", 2, "n1"),
        "reason": "OutOfcpu",
        "message": "m" * 1024,
    }


def test_a_status_that_asks_or_says_why_not_is_pending_with_that_condition_alone(a_pod):
    assert pending_status(a_pod(), "UnbindBlocked", "Exempt", "m", "2026-01-01T00:00:00Z") == {
        "phase": "Pending",
        "observedGeneration": 2,
        "conditions": [
            {
                "type": "UnbindBlocked",
                "status": "True",
                "reason": "Exempt",
                "message": "m",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }


def test_kubelet_unbinding_6_2_while_a_request_is_under_way_no_other_is_sent(calling):
    assert calling.call(3.0) == Wait(13.0)
    assert calling.answer(UnbindAnswer(405), 4.0) == Next.ABSENT


def test_with_a_condition_it_waits_for_the_controller_until_the_deadline(a_pod):
    state = Unbinding(a_pod(), "OutOfcpu", "m", 10.0, 120.0)

    assert [state.on_requested(now) for now in (10.0, 129.0, 130.0)] == [
        Wait(130.0), Wait(130.0), FallBack("DeadlineExceeded"),
    ]  # fmt: skip


def test_a_429_that_does_not_say_how_long_waits_as_after_no_answer(calling):
    assert calling.answer(UnbindAnswer(429, "TooManyRequests"), 1.0) == Wait(2.0)
    assert calling.tries == 1


def test_no_wait_is_longer_than_the_deadline(calling):
    assert calling.answer(UnbindAnswer(429, "TooManyRequests", retry_after_s=500), 1.0) == Wait(120.0)


def test_kubelet_unbinding_6_1_a_node_that_never_fits_asks_for_the_longest_exclusion(a_pod):
    def body(reason):
        return unbind_body(a_pod(), WorkerKey("u", 2), "n1", "s", reason, "m", fence="session")

    assert body("PodOSNotSupported")["exclude"] == {"seconds": 86_400}
    assert "exclude" not in body("OutOfcpu")
    assert body("OutOfcpu")["kubeletSession"] == "s"
