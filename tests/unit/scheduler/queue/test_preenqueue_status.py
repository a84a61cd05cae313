"""What a pod's status says of its rejection at PreEnqueue, model by model (KEP-5501)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from scheduler.dispatcher.calls import NOT_READY, SCHEDULING_GATED, UNSCHEDULABLE, ClearCondition, SetCondition
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.queue.preenqueue_status import Model, Reporter, ReportRules, missing_gate
from scheduler.queue.queued_pod import QueuedPod
from services.api.meta import Condition
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
