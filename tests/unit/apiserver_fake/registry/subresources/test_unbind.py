"""The fourteen checks of kubelet-unbinding 4.3, its transaction, and X-UB1 to X-UB8."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from services.api.errors import ApiError
from services.api.identity import ADMIN, SCHEDULER, Identity, controller_identity, node_identity

N1, N2 = node_identity("n1"), node_identity("n2")
UNBINDER = Identity("system:pod-unbinder")


def request_id(uid: str, generation: int, node: str) -> str:
    return hashlib.sha256(f"{uid}\0{generation}\0{node}".encode()).hexdigest()[:32]


def ask(pod: Any, **changed: Any) -> dict[str, Any]:
    """The unbind that the kubelet of the pod's node would send, with some fields otherwise."""
    node = changed.get("nodeName", pod["spec"].get("nodeName") or "n1")
    uid = changed.pop("uid", pod["metadata"]["uid"])
    generation = changed.get("bindingGeneration", pod["status"].get("bindingGeneration", 0))
    meta = {"uid": uid, **changed.pop("metadata", {})}
    return {
        "metadata": meta,
        "nodeName": node,
        "bindingGeneration": generation,
        "kubeletSession": "s1",
        "requestID": request_id(uid, generation, node),
        "reason": "TopologyAffinityError",
        "message": "no",
        **changed,
    }


def refusal(
    world: Any, body: dict[str, Any], identity: Identity = N1, name: str = "p", **request: Any
) -> tuple[int, str]:
    """Ask, expect a refusal that changes nothing, and return its code and reason."""
    before = dict(world.documents)
    with pytest.raises(ApiError) as refused:
        world.sub(identity, "pods", name, "unbind", body, **request)
    assert world.documents == before
    return refused.value.code, refused.value.reason


@pytest.fixture
def bound(world: Any) -> Any:
    world.pod()
    return world.bind("p", "n1")


def unbind(world: Any, name: str = "p", identity: Identity = N1, **changed: Any) -> Any:
    result = world.sub(identity, "pods", name, "unbind", ask(world.get("pods", name), **changed))
    return result.document or result.response


def test_kubelet_unbinding_4_3_check_01_a_foreign_node_is_refused_with_a_text_that_names_only_itself(world, bound):
    with pytest.raises(ApiError) as foreign:
        world.sub(N2, "pods", "p", "unbind", ask(bound))
    with pytest.raises(ApiError) as forged:
        world.sub(N2, "pods", "p", "unbind", ask(bound, nodeName="n2"))
    with pytest.raises(ApiError) as absent:
        world.sub(N2, "pods", "q", "unbind", ask(bound, nodeName="n2"))
    assert foreign.value.status() == forged.value.status() == absent.value.status()
    assert foreign.value.code == 403
    assert foreign.value.message == 'node "n2" can only unbind pods with spec.nodeName set to itself'


@pytest.mark.parametrize(
    "identity", [ADMIN, SCHEDULER, controller_identity("replicaset"), UNBINDER, Identity("user:ann"), Identity("")]
)
def test_kubelet_unbinding_4_3_check_01_only_nodes_hold_the_verb(world, bound, identity):
    assert refusal(world, ask(bound), identity) == (403, "Forbidden")


def test_guarantees_x_ub1_the_central_unbinder_is_admitted_by_its_switch_alone(world, bound):
    world.switch(authz__unbind_callers="kubelet+controller")
    assert unbind(world, identity=UNBINDER, kubeletSession="")["status"]["unbindCount"] == 1
    assert refusal(world, ask(bound), ADMIN) == (403, "Forbidden")


def test_kubelet_unbinding_4_3_check_02_an_absent_pod_is_404_for_the_unbinder_and_another_uid_a_conflict(world, bound):
    world.switch(authz__unbind_callers="kubelet+controller")
    assert refusal(world, ask(bound), UNBINDER, name="q") == (404, "NotFound")
    assert refusal(world, ask(bound, uid="uid-of-an-earlier-p")) == (409, "UIDMismatch")


def test_guarantees_x_ub5_a_request_id_that_is_not_the_hash_is_unprocessable(world, bound):
    assert refusal(world, ask(bound, requestID="0" * 32)) == (422, "Invalid")


@pytest.mark.parametrize(
    "wrong",
    [
        {"reason": "IDoNotLikeIt"},
        {"reason": 5},
        {"bindingGeneration": "2"},
        {"message": "x" * 1025},
        {"exclude": {"seconds": "9"}},
        {"metadata": {"uid": 7}},
        {"requestID": None},
    ],
)
def test_a_malformed_unbind_is_unprocessable_and_never_crashes(world, bound, wrong):
    assert refusal(world, {**ask(bound), **wrong})[0] == 422


def test_kubelet_unbinding_4_3_check_03_a_repeat_answers_200_without_change_and_shows_another_caller_little(
    world, bound
):
    unbind(world)
    after = world.get("pods", "p")
    again = world.sub(N1, "pods", "p", "unbind", ask(bound))
    assert world.get("pods", "p") is after
    assert again.document is None
    assert again.code == 200
    assert again.response == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": after["metadata"]["uid"],
            "resourceVersion": after["metadata"]["resourceVersion"],
        },
        "status": {"unbindCount": 1},
    }


def test_kubelet_unbinding_4_3_check_03_a_repeat_after_a_rebind_to_the_same_node_shows_its_owner_the_pod(world, bound):
    unbind(world)
    world.bind("p", "n1")
    again = world.sub(N1, "pods", "p", "unbind", ask(bound))
    assert again.document is None
    assert again.response == world.get("pods", "p")


def test_kubelet_unbinding_4_3_check_04_an_old_resource_version_is_a_conflict(world, bound):
    assert refusal(world, ask(bound, metadata={"resourceVersion": "1"})) == (409, "Conflict")
    unbind(world, metadata={"resourceVersion": bound["metadata"]["resourceVersion"]})


def test_kubelet_unbinding_4_3_check_05_a_pod_without_node_or_on_another_is_a_conflict(world, bound):
    world.switch(authz__unbind_callers="kubelet+controller")
    assert refusal(world, ask(bound, nodeName="n2"), UNBINDER) == (409, "BoundElsewhere")
    unbind(world)
    assert refusal(world, ask(bound, nodeName="n2"), UNBINDER) == (409, "NotBound")


def test_kubelet_unbinding_4_3_check_06_an_earlier_generation_is_stale(world, bound):
    assert refusal(world, ask(bound, bindingGeneration=1)) == (409, "StaleBinding")


def test_kubelet_unbinding_4_3_check_07_a_pod_being_deleted_stays(world, bound):
    world.put("pods", {**bound, "metadata": {**bound["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    assert refusal(world, ask(bound)) == (409, "Terminating")


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed", "Unknown"])
def test_kubelet_unbinding_4_3_check_08_only_pending_pods_go_back(world, bound, phase):
    world.put("pods", {**bound, "status": {**bound["status"], "phase": phase}})
    assert refusal(world, ask(bound)) == (422, "PhaseNotPending")


def test_kubelet_unbinding_4_3_check_08_an_empty_phase_counts_as_pending(world, bound):
    world.put("pods", {**bound, "status": {**bound["status"], "phase": ""}})
    assert unbind(world)["status"]["phase"] == "Pending"


@pytest.mark.parametrize("field", ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"])
@pytest.mark.parametrize(
    "sign",
    [{"state": {"running": {}}}, {"state": {"terminated": {"exitCode": 0}}}, {"started": True}, {"restartCount": 1}],
)
def test_kubelet_unbinding_8_and_4_3_check_09_a_pod_that_ran_is_never_unbound(world, bound, field, sign):
    world.put("pods", {**bound, "status": {**bound["status"], field: [{"name": "c", **sign}]}})
    assert refusal(world, ask(bound)) == (409, "AlreadyStarted")


def test_kubelet_unbinding_4_3_check_09_a_waiting_container_has_not_started(world, bound):
    waiting = {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0, "started": False}
    world.put("pods", {**bound, "status": {**bound["status"], "containerStatuses": [waiting]}})
    assert unbind(world)["status"]["unbindCount"] == 1


def test_kubelet_unbinding_21_and_4_3_check_10_daemon_mirror_and_preset_pods_are_exempt(world, bound):
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    world.put("pods", {**bound, "metadata": {**bound["metadata"], "ownerReferences": [daemon]}})
    assert refusal(world, ask(bound)) == (422, "Exempt")
    world.put("pods", {**bound, "metadata": {**bound["metadata"], "annotations": {"kubernetes.io/config.mirror": "x"}}})
    assert refusal(world, ask(bound)) == (422, "Exempt")
    preset = world.pod("preset", spec={"nodeName": "n1"})
    assert refusal(world, ask(preset), name="preset") == (422, "Exempt")
    world.switch(unbind__user_bound="allow")
    assert unbind(world, "preset")["spec"].get("nodeName") is None


def test_kubelet_unbinding_5_and_4_3_check_11_the_sixth_unbind_is_refused(world, bound):
    for _ in range(5):
        unbind(world)
        world.bind("p", "n1")
    assert refusal(world, ask(world.get("pods", "p"))) == (422, "LimitReached")


def test_kubelet_unbinding_4_3_check_12_a_node_unbinds_twenty_at_once_and_then_ten_a_minute(world):
    for index in range(22):
        world.pod(f"p{index}")
        world.bind(f"p{index}", "n1")
    for index in range(20):
        unbind(world, f"p{index}")
    with pytest.raises(ApiError) as refused:
        unbind(world, "p20")
    assert (refused.value.code, refused.value.retry_after_s) == (429, 6)
    world.wait(6)
    unbind(world, "p20")
    assert refusal(world, ask(world.get("pods", "p21")), name="p21") == (429, "TooManyRequests")


def test_kubelet_unbinding_4_3_check_12_a_dry_run_and_a_refused_unbind_cost_nothing(world, bound):
    for _ in range(30):
        assert refusal(world, ask(bound, kubeletSession="old")) == (409, "StaleSession")
    assert unbind(world)["status"]["unbindCount"] == 1


def test_kubelet_unbinding_9_and_4_3_check_13_a_request_of_an_older_session_is_stale(world, bound):
    world.node("n1", session="s2")
    assert refusal(world, ask(bound)) == (409, "StaleSession")
    world.switch(unbind__fence="none")
    assert unbind(world)["status"]["unbindCount"] == 1


def test_kubelet_unbinding_12_and_4_3_check_14_without_a_capable_scheduler_the_pod_stays(world, bound):
    lease = world.scheduler_lease()
    world.put("leases.coordination.k8s.io", {**lease, "metadata": {**lease["metadata"], "annotations": {}}})
    assert refusal(world, ask(bound)) == (409, "SchedulerNotCapable")
    world.switch(unbind__require_scheduler_capability=False)
    assert unbind(world)["status"]["unbindCount"] == 1


def test_kubelet_unbinding_4_6_a_scheduler_of_other_profiles_or_one_that_stopped_renewing_is_not_capable(world, bound):
    world.scheduler_lease(**{"emulation/scheduler-names": "gpu, batch"})
    assert refusal(world, ask(bound)) == (409, "SchedulerNotCapable")
    world.scheduler_lease(**{"emulation/scheduler-names": "gpu,default-scheduler"})
    world.memory.renewed_s["kube-system/kube-scheduler"] = world.now_s - 16
    assert refusal(world, ask(bound)) == (409, "SchedulerNotCapable")
    world.memory.renewed_s["kube-system/kube-scheduler"] = world.now_s - 14
    assert unbind(world)["status"]["unbindCount"] == 1


def test_the_first_failing_check_speaks_and_later_ones_do_not(world, bound):
    """All of 4 to 14 fail at once; healing them one by one shows the order of the table."""
    daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    world.put(
        "pods",
        {
            **bound,
            "metadata": {**bound["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [daemon]},
            "status": {
                **bound["status"],
                "phase": "Failed",
                "unbindCount": 5,
                "containerStatuses": [{"name": "c", "restartCount": 1}],
            },
        },
    )
    world.memory.bucket("unbind/cluster", 0.0, world.now_s)
    world.documents.pop(("leases.coordination.k8s.io", "kube-system", "kube-scheduler"))
    seen = []
    body = ask(bound, bindingGeneration=1, kubeletSession="old", metadata={"resourceVersion": "1"})
    heal = [
        lambda: body["metadata"].pop("resourceVersion"),
        lambda: body.update(ask(bound, kubeletSession="old")),
        lambda: pod["metadata"].pop("deletionTimestamp"),
        lambda: pod["status"].update(phase="Pending"),
        lambda: pod["status"].pop("containerStatuses"),
        lambda: pod["metadata"].pop("ownerReferences"),
        lambda: pod["status"].update(unbindCount=0),
        lambda: world.memory.buckets.clear(),
        lambda: body.update(kubeletSession="s1"),
        lambda: world.scheduler_lease(),
    ]
    for step in heal:
        seen.append(refusal(world, body))
        pod = world.get("pods", "p")
        step()
    assert [reason for _, reason in seen] == [
        "Conflict",
        "StaleBinding",
        "Terminating",
        "PhaseNotPending",
        "AlreadyStarted",
        "Exempt",
        "LimitReached",
        "TooManyRequests",
        "StaleSession",
        "SchedulerNotCapable",
    ]
    assert world.sub(N1, "pods", "p", "unbind", body).document is not None


def test_kubelet_unbinding_4_3_the_transaction_clears_keeps_and_removes_what_it_should(world):
    world.pod(metadata={"labels": {"app": "web", "topology.kubernetes.io/zone": "mine"}, "annotations": {"mine": "1"}})
    world.node("n1", **{"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"})
    bound = world.bind("p", "n1", metadata={"annotations": {"added": "2", "mine": "3"}, "labels": {"extra": "4"}})
    assert bound["metadata"]["labels"] == {
        "app": "web",
        "topology.kubernetes.io/zone": "mine",
        "topology.kubernetes.io/region": "r1",
        "extra": "4",
    }
    written = {
        "reason": "x",
        "message": "y",
        "hostIP": "1.1.1.1",
        "hostIPs": [{"ip": "1.1.1.1"}],
        "podIP": "2.2.2.2",
        "podIPs": [{"ip": "2.2.2.2"}],
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [{"name": "c"}],
        "resize": "Deferred",
        "nominatedNodeName": "n1",
        "observedGeneration": 2,
        "resourceClaimStatuses": [{"name": "k"}],
        "unknownField": {"survives": True},
    }
    conditions = [
        {"type": name, "status": "True"}
        for name in (
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodReadyToStartContainers",
            "my.gate/open",
            "DisruptionTarget",
        )
    ]
    world.put(
        "pods",
        {
            **bound,
            "status": {**bound["status"], **written, "conditions": [*bound["status"]["conditions"], *conditions]},
        },
    )

    after = unbind(world, reason="OutOfcpu", message="m" * 300)

    assert "nodeName" not in after["spec"]
    assert after["metadata"]["generation"] == bound["metadata"]["generation"] + 1
    assert after["metadata"]["labels"] == {"app": "web", "topology.kubernetes.io/zone": "mine"}
    assert after["metadata"]["annotations"] == {"mine": "3"}
    status = after["status"]
    assert sorted(status) == [
        "bindingGeneration",
        "conditions",
        "phase",
        "qosClass",
        "resourceClaimStatuses",
        "unbindCount",
        "unbindHistory",
        "unknownField",
    ]
    assert status["bindingGeneration"] == bound["metadata"]["generation"]
    assert [each["type"] for each in status["conditions"]] == ["my.gate/open", "DisruptionTarget", "PodScheduled"]
    scheduled = status["conditions"][-1]
    assert (scheduled["status"], scheduled["reason"], scheduled["message"]) == (
        "False",
        "Unbound",
        "unbound from n1: OutOfcpu",
    )
    assert status["unbindCount"] == 1
    entry = status["unbindHistory"][0]
    assert (entry["nodeName"], entry["bindingGeneration"], entry["reason"]) == (
        "n1",
        bound["metadata"]["generation"],
        "OutOfcpu",
    )
    assert entry["message"] == "m" * 256
    assert entry["excludeSeconds"] == 60


def test_kubelet_unbinding_7_3_exclusion_doubles_per_node_up_to_the_cap_and_starts_there_when_unsupported(world):
    world.switch(unbind__max_attempts=100, unbind__rate_node_burst=100)
    world.pod()
    seconds = []
    for _ in range(7):
        world.bind("p", "n1")
        seconds.append(unbind(world)["status"]["unbindHistory"][0]["excludeSeconds"])
    assert seconds == [60, 120, 240, 480, 960, 1800, 1800]
    world.bind("p", "n2")
    assert unbind(world, identity=N2)["status"]["unbindHistory"][0]["excludeSeconds"] == 60
    world.bind("p", "n2")
    after = unbind(world, identity=N2, reason="SysctlForbidden")
    assert after["status"]["unbindHistory"][0]["excludeSeconds"] == 1800
    assert len(after["status"]["unbindHistory"]) == 8
    assert [entry["nodeName"] for entry in after["status"]["unbindHistory"]] == ["n2", "n2"] + ["n1"] * 6
    assert after["status"]["unbindCount"] == 9


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (7, 7), (99_999, 1800), (-3, 0)])
def test_kubelet_unbinding_11_the_node_may_ask_for_another_exclusion_within_bounds(world, bound, asked, given):
    assert unbind(world, exclude={"seconds": asked})["status"]["unbindHistory"][0]["excludeSeconds"] == given


def test_kubelet_unbinding_6_of_many_identical_requests_exactly_one_counts(world, bound):
    for _ in range(4):
        world.sub(N1, "pods", "p", "unbind", ask(bound))
    status = world.get("pods", "p")["status"]
    assert status["unbindCount"] == 1
    assert len(status["unbindHistory"]) == 1


def test_kubelet_unbinding_7_the_node_loses_the_pod_with_the_commit(world, bound):
    unbind(world)
    with pytest.raises(ApiError) as refused:
        world.status(N1, "p", phase="Failed", observedGeneration=99)
    assert (refused.value.code, refused.value.message) == (403, "node may only act on objects it owns")


def test_kubelet_unbinding_10_a_status_of_an_earlier_binding_to_the_same_node_is_refused(world, bound):
    late = {"phase": "Failed", "observedGeneration": bound["metadata"]["generation"]}
    unbind(world)
    rebound = world.bind("p", "n1")
    with pytest.raises(ApiError) as refused:
        world.status(N1, "p", **late)
    assert (refused.value.code, refused.value.reason) == (409, "StaleBinding")
    running = world.status(N1, "p", phase="Running", observedGeneration=rebound["metadata"]["generation"])
    assert running["status"]["phase"] == "Running"


@pytest.mark.parametrize("setting", [{"PodUnbinding": False}, {"unbind__api": "none"}])
def test_kubelet_unbinding_4_6_without_the_gate_there_is_no_such_endpoint(world, bound, setting):
    world.switch(**setting)
    assert refusal(world, ask(bound)) == (404, "NotFound")


def test_kubelet_unbinding_7_4_a_member_of_a_gang_whose_siblings_run_stays_where_that_is_chosen(world):
    member = {"schedulingGroup": {"podGroupName": "gang"}}
    for name in ("p", "sibling"):
        world.pod(name, spec=member)
        world.bind(name, "n1")
    bound, sibling = world.get("pods", "p"), world.get("pods", "sibling")
    world.switch(unbind__gang="refuse")
    world.put("pods", {**sibling, "status": {**sibling["status"], "phase": "Running"}})

    assert refusal(world, ask(bound)) == (422, "Exempt")

    world.put("pods", sibling)
    assert unbind(world)["status"]["unbindCount"] == 1
