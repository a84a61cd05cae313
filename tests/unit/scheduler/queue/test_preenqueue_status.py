"""What a pod's status says of its rejection at PreEnqueue, model by model (KEP-5501)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.dispatcher.calls import NOT_READY, SCHEDULING_GATED, UNSCHEDULABLE, ClearCondition, SetCondition
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.queue.preenqueue_status import Model, Reporter, ReportRules, missing_gate
from scheduler.queue.queued_pod import QueuedPod
from services.api.kinds.podgroup import PodGroup, PodGroupStatus
from services.api.meta import Condition, ObjectMeta
from services.api.switches import Switches

USER_TEXTS = {"Dra": "the claim is missing", "Gates": "", "Preemption": ""}


def says(plugin, *reasons):
    return Status(Code.UNSCHEDULABLE, reasons, plugin)


@pytest.fixture
def pod(a):
    return QueuedPod(PodInfo(a.pod("p")), 0.0)


def showing(queued, reason, message):
    """Have the pod's status say this already."""
    pod = queued.info.pod
    shown = (Condition(type="PodScheduled", status="False", reason=reason, message=message),)
    queued.info = PodInfo(replace(pod, status=replace(pod.status, conditions=shown)))
    return queued


def reporter(model=Model.IMPLICIT_DELAYED, **knobs):
    return Reporter(ReportRules(model=model, **knobs), lambda info, status: USER_TEXTS.get(status.plugin))


def words_of(report):
    """Return (text or "clear", delay), or None."""
    if report is None:
        return None
    (change,) = report.call.desired
    return (change.message if isinstance(change, SetCondition) else "clear", report.delay_s)


@pytest.mark.parametrize(
    ("model", "by_claim", "by_gates", "by_another_writer"),
    [
        ("off", None, None, None),
        ("explicit_immediate", ("the claim is missing", 0.0), None, None),
        ("explicit_delayed", ("the claim is missing", 5.0), None, None),
        ("implicit_delayed_optout", ("not found", 5.0), None, ("odd", 5.0)),
        ("implicit_delayed", ("not found", 5.0), ("gates [x]", 5.0), ("odd", 5.0)),
        ("implicit_immediate", ("not found", 0.0), ("gates [x]", 0.0), ("odd", 0.0)),
    ],
)
def test_each_model_reports_what_section_7_says(a, model, by_claim, by_gates, by_another_writer):
    def first_words(status):
        return words_of(reporter(Model(model)).observe(QueuedPod(PodInfo(a.pod("p")), 0.0), status))

    assert first_words(says("Dra", "not found")) == by_claim
    assert first_words(says("Gates", "gates [x]")) == by_gates
    assert first_words(says("Stranger", "odd")) == by_another_writer


def test_preenqueue_02_the_same_words_are_reported_once(pod):
    observer = reporter()
    first = observer.observe(pod, says("Dra", "A"))

    assert words_of(first) == ("A", 5.0)
    assert first.call.event == (NOT_READY, "A")
    assert observer.observe(pod, says("Dra", "A")) is None


def test_preenqueue_04_new_words_are_reported_again(pod):
    observer = reporter()
    observer.observe(pod, says("Dra", "A"))

    assert words_of(observer.observe(pod, says("Dra", "B"))) == ("B", 5.0)


def test_preenqueue_05_passing_clears_what_was_reported_once(pod):
    observer = reporter(clear_delay_s=2.0)
    observer.observe(pod, says("Dra", "A"))

    report = observer.observe(pod, SUCCESS)

    assert words_of(report) == ("clear", 2.0)
    assert report.call.desired == (ClearCondition(),)
    assert report.call.event is None
    assert observer.observe(pod, SUCCESS) is None


def test_preenqueue_09_the_api_servers_own_words_about_gates_are_not_repeated(pod):
    observer = reporter()
    showing(pod, SCHEDULING_GATED, "Scheduling is blocked due to non-empty scheduling gates")

    assert observer.observe(pod, says("Gates", "Scheduling is blocked due to non-empty scheduling gates")) is None


def test_preenqueue_13_the_gate_needs_the_gate_of_asynchronous_calls():
    both = {"SchedulerPreEnqueuePodStatus": True, "SchedulerAsyncAPICalls": True}

    assert missing_gate(Switches()) == missing_gate(Switches(both)) == ""
    for gate in both:
        assert gate in missing_gate(Switches({"SchedulerPreEnqueuePodStatus": True}))


def test_preenqueue_14_after_a_restart_what_stands_there_is_not_reported_again(pod):
    showing(pod, NOT_READY, "A")

    assert reporter().observe(pod, says("Dra", "A")) is None


def test_an_unschedulable_message_is_not_taken_for_one_of_ours_and_not_cleared(pod):
    observer = reporter()
    showing(pod, UNSCHEDULABLE, "A")

    first = words_of(observer.observe(pod, says("Dra", "A")))
    pod.reported = ""

    assert first == ("A", 5.0)
    assert observer.observe(pod, SUCCESS) is None


def test_preenqueue_17_without_reasons_nothing_is_reported_in_the_opt_out_model(pod):
    assert reporter(Model.IMPLICIT_DELAYED_OPTOUT).observe(pod, says("Stranger")) is None


@pytest.mark.parametrize(
    ("knob", "then"),
    [("keep_stale", None), ("clear", ("clear", 0.0)), ("generic", ("blocked on PreEnqueue by plugin: Gates", 0.0))],
)
def test_preenqueue_18_a_silent_plugin_after_one_that_reported(pod, knob, then):
    observer = reporter(Model.EXPLICIT_IMMEDIATE, on_other_plugin_rejects=knob)
    observer.observe(pod, says("Dra", "not found"))

    assert words_of(observer.observe(pod, says("Gates", "gates [x]"))) == then


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulingGated"])
def test_a_reason_that_others_write_too_is_cleared_only_with_our_own_text(pod, reason):
    observer = reporter(reason=reason)

    said = observer.observe(pod, says("Dra", "A"))
    (cleared,) = observer.observe(pod, SUCCESS).call.desired

    assert said.call.desired == (SetCondition(reason, "A"),)
    assert said.call.event == (reason, "A")
    assert cleared.changes(Condition(type="PodScheduled", status="False", reason=reason, message="A"))
    assert not cleared.changes(Condition(type="PodScheduled", status="False", reason=reason, message="0/1 nodes"))


def test_after_a_restart_an_unschedulable_of_an_attempt_is_not_taken_for_a_report(pod):
    observer = reporter(reason="Unschedulable")

    assert words_of(observer.observe(showing(pod, "Unschedulable", "0/1 nodes"), says("Dra", "A"))) == ("A", 5.0)
    pod.reported = ""
    assert observer.observe(showing(pod, "Unschedulable", "A"), says("Dra", "A")) is None


def test_a_condition_of_its_own_is_taken_from_a_pod_that_has_a_node(pod):
    observer = reporter(condition="ReadyForScheduling")
    (change,) = observer.observe(pod, says("Dra", "A")).call.desired
    shown = (Condition(type="ReadyForScheduling", status="False", reason=NOT_READY, message="A"),)
    bound = replace(pod.info.pod, status=replace(pod.info.pod.status, conditions=shown))

    assert change.type == "ReadyForScheduling"
    assert observer.clearing_call(bound).desired == (ClearCondition(NOT_READY, "ReadyForScheduling"),)
    assert observer.clearing_call(pod.info.pod) is None
    assert reporter().clearing_call(bound) is None, "by default the bind overwrites the report"


@pytest.mark.parametrize(("asked_s", "delay_s"), [(30.0, 30.0), (0.0, 0.0), (None, 5.0)])
def test_a_report_waits_as_long_as_its_plugin_asks(pod, asked_s, delay_s):
    observer = reporter()
    observer.asked_delay_s = lambda info, status: asked_s

    assert words_of(observer.observe(pod, says("Dra", "A"))) == ("A", delay_s)
    assert words_of(observer.observe(pod, SUCCESS)) == ("clear", 5.0), "what passes asks for no delay"


def test_an_immediate_model_waits_for_no_plugin(pod):
    observer = reporter(Model.IMPLICIT_IMMEDIATE)
    observer.asked_delay_s = lambda info, status: 30.0

    assert words_of(observer.observe(pod, says("Dra", "A"))) == ("A", 0.0)


def group_saying(*conditions):
    return PodGroup(
        metadata=ObjectMeta(name="g", namespace="default", uid="g-uid", generation=3),
        status=PodGroupStatus(conditions=conditions),
    )


def test_a_group_says_once_what_all_its_members_are_rejected_for(a):
    observer, group = reporter(target="podgroup"), group_saying()
    members = [QueuedPod(PodInfo(a.pod(name)), 0.0) for name in ("p1", "p2", "p3")]

    first, *more = [observer.observe_member(group, member, says("Gang", "too few")) for member in members]

    assert words_of(first) == ("too few", 5.0)
    assert (first.call.resource, first.call.uid) == ("podgroups.scheduling.k8s.io", "g-uid")
    assert first.call.desired == (
        SetCondition(NOT_READY, "too few", "PodGroupInitiallyScheduled", observed_generation=3),
    )
    assert more == [None, None]
    assert [member.reported for member in members] == ["", "", ""]


def test_a_group_whose_members_pass_is_cleared_once(a):
    observer, group = reporter(target="podgroup"), group_saying()
    members = [QueuedPod(PodInfo(a.pod(name)), 0.0) for name in ("p1", "p2")]
    for member in members:
        observer.observe_member(group, member, says("Gang", "too few"))

    first, second = [observer.observe_member(group, member, SUCCESS) for member in members]

    assert words_of(first) == ("clear", 5.0)
    assert second is None


def test_after_a_restart_a_group_does_not_repeat_what_it_says(pod):
    shown = Condition(type="PodGroupInitiallyScheduled", status="False", reason=NOT_READY, message="too few")

    observer = reporter(target="podgroup")

    assert observer.observe_member(group_saying(shown), pod, says("Gang", "too few")) is None
    assert words_of(observer.observe_member(group_saying(shown), pod, SUCCESS)) == ("clear", 5.0)


def test_what_a_pod_said_is_withdrawn_when_its_group_speaks(pod):
    observer = reporter(target="podgroup")
    observer.observe(pod, says("Gang", "no group"))

    assert words_of(observer.withdraw(pod)) == ("clear", 5.0)
    assert observer.withdraw(pod) is None
