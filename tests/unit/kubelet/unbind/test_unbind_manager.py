"""The pods of one node that are unbound when there are more of them than the limits let through."""

import pytest

from kubelet.effects import CallUnbind, EndSpan, Log, Outbox, ReadNode, ReadPod, RecordEvent, SetTimer, SpanStage
from kubelet.pod.context import WallTimes
from kubelet.status.versions import StatusVersions
from kubelet.switches import KubeletSwitches
from kubelet.unbind.manager import UNTIL_RUNNING, UnbindManager
from kubelet.unbind.unbinding import FallBack, Next, UnbindAnswer
from kubelet.view import WorkerKey, worker_key
from services.api.unbind import REQUESTED, request_id


class Node:
    """A node that gives pods back, and whom it asks for when: its timers are fired by hand."""

    def __init__(self, *pods):
        self.out = Outbox()
        settings = KubeletSwitches(on_reject="unbind", request_deadline_s=120.0)
        self.giving = UnbindManager("n1", settings, StatusVersions(), self.out, WallTimes())
        self.keys = [worker_key(pod) for pod in pods]
        self.timers = {}
        for pod, key in zip(pods, self.keys, strict=True):
            self.giving.begin(pod, key, "OutOfcpu", "m", 0.0)
        self.asked()

    def asked(self):
        """Return the numbers of the pods for whom a request was sent since the last time."""
        found = []
        for effect in self.out.effects:
            if isinstance(effect, CallUnbind):
                found.append(self.keys.index(effect.key))
            elif isinstance(effect, SetTimer):
                self.timers.setdefault(effect.at_s, []).append(effect.key)
        self.out.effects.clear()
        return found

    def limited(self, number, now, retry_after_s=6):
        self.giving.on_answer(self.keys[number], UnbindAnswer(429, "TooManyRequests", retry_after_s), now)
        return self.asked()

    def until(self, now):
        """Let time pass; return for whom it asked meanwhile, and who fell back."""
        fallen = []
        while self.timers and min(self.timers) <= now:
            at_s = min(self.timers)
            for key in self.timers.pop(at_s):
                outcome = self.giving.call(key, at_s)
                if outcome is not None and isinstance(outcome.step, FallBack):
                    fallen.append(self.keys.index(key))
            asked = self.asked()
            if asked:
                return asked, fallen
        return [], fallen


@pytest.fixture
def limited(a_pod):
    node = Node(*(a_pod(name) for name in "abc"))
    assert [node.limited(number, 0.1) for number in (1, 0, 2)] == [[], [], []]
    return node


def test_kubelet_unbinding_20_of_those_asked_to_wait_only_the_first_asks_again(limited):
    assert limited.until(6.1) == ([1], [])
    assert limited.limited(1, 6.2) == []
    assert limited.until(12.1) == ([], []), "the same one, and not before its time"
    assert limited.until(12.2) == ([1], [])


@pytest.mark.parametrize("how", ["answer", "watch"])
def test_kubelet_unbinding_20_the_next_one_asks_once_the_first_got_through(limited, how):
    limited.until(6.1)

    if how == "answer":
        limited.giving.on_answer(limited.keys[1], UnbindAnswer(200), 6.2)
    else:
        limited.giving.forget_pod(limited.keys[1], limited.giving.going[limited.keys[1]].pod, "gone")
    limited.asked()

    assert limited.until(6.2) == ([0], [])


def test_kubelet_unbinding_20_no_pod_waits_behind_one_rejected_for_another_reason(limited):
    limited.until(6.1)

    limited.giving.on_answer(limited.keys[1], UnbindAnswer(503, "ServiceUnavailable"), 6.2)
    limited.asked()

    assert limited.until(6.2) == ([0], [])


def test_kubelet_unbinding_20_pods_of_another_namespace_have_a_line_of_their_own(a_pod):
    node = Node(a_pod("a"), a_pod("b"), a_pod("c", metadata={"namespace": "other"}))
    for number in range(3):
        node.limited(number, 0.1)

    assert node.until(6.1) == ([0, 2], [])


def test_kubelet_unbinding_20_who_waits_for_longer_than_the_deadline_falls_back(limited):
    for at_s in range(6, 120, 6):
        limited.until(at_s + 0.2)
        limited.limited(1, at_s + 0.2, retry_after_s=6)

    _, fallen = limited.until(120.0)

    assert sorted(fallen) == [0, 1, 2]


class Binding:
    """One pod that a node unbinds, and what the manager has the kubelet do for it."""

    def __init__(self, pod, torn_s=0.0, now=0.0, **settings):
        self.pod, self.key, self.out, self.statuses = pod, worker_key(pod), Outbox(), StatusVersions()
        switches = KubeletSwitches(**{"on_reject": "unbind", "request_deadline_s": 120.0, **settings})
        self.manager = UnbindManager("n1", switches, self.statuses, self.out, WallTimes(1e9))
        self.out.start_span(self.key, pod, "")
        self.begun = self.manager.begin(pod, self.key, "OutOfcpu", "no CPU is left", now, torn_s=torn_s)

    def answered(self, code, reason="", now=1.0, **more):
        return self.manager.on_answer(self.key, UnbindAnswer(code, reason, **more), now)

    def effects(self, kind):
        return [each for each in self.out.effects if isinstance(each, kind)]

    def lines(self, ev):
        return [each.data for each in self.effects(Log) if each.ev == ev]

    @property
    def results(self):
        return dict(self.out.counts.of("kubelet_pod_unbind_total"))

    def observed(self, name):
        return sum(each.sum for each in self.out.distributions.get(name, {}).values())

    @property
    def may_write(self):
        return self.statuses.on_changed(self.key, 5.0)


def test_kubelet_unbinding_6_2_an_unbind_begins_with_one_named_request_and_the_status_is_not_written(a_pod):
    binding = Binding(a_pod())

    assert binding.begun is None
    assert binding.effects(CallUnbind) == [CallUnbind(binding.key, binding.pod, "OutOfcpu", "no CPU is left")]
    named = request_id(binding.key.uid, binding.key.generation, "n1")
    assert binding.lines("kubelet.unbind_call") == [{"reason": "OutOfcpu", "try": 0, "request_id": named}]
    assert [(e.reason, e.message, e.type) for e in binding.effects(RecordEvent)] == [
        ("UnbindRequested", "Unbinding the pod: OutOfcpu", "Normal")
    ]
    assert [(e.stage, e.reason) for e in binding.effects(SpanStage)] == [("unbinding", "OutOfcpu")]
    assert not binding.may_write


def test_a_retry_says_in_its_line_how_many_were_unanswered_before(a_pod):
    binding = Binding(a_pod())

    binding.answered(500, "InternalError", 1.0)
    (timer,) = binding.effects(SetTimer)
    binding.manager.call(binding.key, timer.at_s)

    assert (timer.at_s, timer.what, timer.key) == (2.0, "unbind", binding.key)
    assert [line["try"] for line in binding.lines("kubelet.unbind_call")] == [0, 1]


@pytest.mark.parametrize("code", [200, 201])
def test_an_unbind_that_was_accepted_is_over_and_counted_with_the_time_it_took(a_pod, code):
    binding = Binding(a_pod(), now=1.0)

    assert binding.answered(code, now=4.0) is None

    assert binding.manager.going == {}
    assert binding.results == {("OutOfcpu", "ok"): 1}
    assert binding.lines("kubelet.unbind_result") == [{"result": "ok", "code": code}]
    assert binding.observed("kubelet_pod_unbind_duration_seconds") == 3.0
    assert [each.error for each in binding.effects(EndSpan)] == [""]


def test_a_pod_that_was_not_ours_any_more_is_no_unbind_that_took_any_time(a_pod):
    binding = Binding(a_pod())

    assert binding.answered(409, "NotBound") is None

    assert binding.manager.going == {}
    assert binding.results == {("OutOfcpu", "NotBound"): 1}
    assert "kubelet_pod_unbind_duration_seconds" not in binding.out.distributions
    assert [each.error for each in binding.effects(EndSpan)] == ["gone"]


@pytest.mark.parametrize(
    ("code", "reason", "step"),
    [(409, "AlreadyStarted", Next.RESUME), (409, "Terminating", Next.CONFIRM), (422, "Exempt", FallBack("Exempt"))],
)
def test_a_pod_that_stays_here_has_its_status_written_again(a_pod, code, reason, step):
    binding = Binding(a_pod())

    outcome = binding.answered(code, reason)

    assert (outcome.step, outcome.state.reason) == (step, "OutOfcpu")
    assert binding.manager.going == {}
    assert binding.may_write


def test_kubelet_unbinding_4_6_where_there_is_no_such_endpoint_no_pod_is_unbound_for_ten_minutes(a_pod):
    binding, other = Binding(a_pod()), a_pod("other")

    assert binding.manager.may_begin(other, "OutOfcpu", 1.0)
    outcome = binding.answered(404, "NotFound", now=1.0, names_pod=False)

    assert outcome.step is Next.ABSENT
    assert [binding.manager.may_begin(other, "OutOfcpu", now) for now in (1.0, 600.9, 601.0)] == [False, False, True]


def test_any_other_fallback_leaves_the_endpoint_to_the_next_pod(a_pod):
    binding = Binding(a_pod())

    binding.answered(422, "LimitReached")

    assert binding.manager.may_begin(a_pod("other"), "OutOfcpu", 1.0)


@pytest.mark.parametrize(
    ("settings", "may"),
    [
        ({}, True),
        ({"on_reject": "defer-then-unbind"}, True),
        ({"on_reject": "fail"}, False),
        ({"has_unbinding": False}, False),
        ({"unbind_form": "binding_delete"}, True),
        ({"unbind_form": "condition"}, True),
        ({"unbind_callers": "controller"}, False),
        ({"reasons": "NodePorts"}, False),
    ],
)
def test_whether_a_rejected_pod_may_be_unbound_follows_from_the_switches(a_pod, settings, may):
    switches = KubeletSwitches(**{"on_reject": "unbind", **settings})
    manager = UnbindManager("n1", switches, StatusVersions(), Outbox(), WallTimes())

    assert manager.may_begin(a_pod(), "OutOfcpu", 0.0) is may


def test_a_refused_caller_reads_the_pod_and_a_stale_session_the_node_before_anything_is_decided(a_pod):
    forbidden, stale = Binding(a_pod()), Binding(a_pod())

    assert forbidden.answered(403, "Forbidden") is None
    assert stale.answered(409, "StaleSession") is None

    assert forbidden.effects(ReadPod) == [ReadPod(forbidden.key, forbidden.pod)]
    assert stale.effects(ReadNode) == [ReadNode(stale.key, True)]
    assert forbidden.manager.pod_read(forbidden.key, True, 2.0).step == FallBack("Forbidden")
    assert stale.manager.session_read(stale.key, False, 2.0) is None
    assert len(stale.effects(CallUnbind)) == 1, "the session is another's"
    stale.manager.session_read(stale.key, True, 2.0)
    assert len(stale.effects(CallUnbind)) == 2


def test_an_answer_that_comes_after_the_watch_showed_the_unbind_is_still_counted(a_pod):
    binding = Binding(a_pod())

    assert binding.manager.forget_pod(binding.key, binding.pod, "gone")
    assert binding.answered(200, now=4.0) is None

    assert binding.lines("kubelet.unbind_result") == [{"result": "gone"}]
    assert binding.results == {("OutOfcpu", "ok"): 1}
    assert binding.observed("kubelet_pod_unbind_duration_seconds") == 4.0
    assert binding.answered(200, now=5.0) is None
    assert binding.results == {("OutOfcpu", "ok"): 1}, "an answer is counted once"


def test_a_late_answer_that_refuses_is_counted_by_its_reason_and_took_no_time(a_pod):
    binding = Binding(a_pod())
    binding.manager.forget_pod(binding.key, binding.pod, "")

    binding.answered(503, now=4.0)

    assert binding.lines("kubelet.unbind_result") == []
    assert binding.results == {("OutOfcpu", "503"): 1}
    assert "kubelet_pod_unbind_duration_seconds" not in binding.out.distributions


def test_a_pod_that_waits_between_two_requests_has_no_answer_to_come(a_pod):
    binding = Binding(a_pod())
    binding.answered(500, "InternalError")

    assert binding.manager.forget_pod(binding.key, binding.pod, "gone")
    binding.answered(200)

    assert binding.results == {("OutOfcpu", "InternalError"): 1}
    assert not binding.manager.forget_pod(binding.key, binding.pod, "gone"), "it is not being unbound any more"


def test_answers_to_come_are_remembered_of_the_thousand_pods_that_went_last(a_pod):
    binding = Binding(a_pod())
    pod, keys = a_pod("other"), [WorkerKey(f"uid-{number}", 2) for number in range(1_001)]
    for key in keys:
        binding.manager.begin(pod, key, "NodePorts", "m", 0.0)
        binding.manager.forget_pod(key, pod, "gone")

    for key in keys[:2]:
        binding.manager.on_answer(key, UnbindAnswer(200), 1.0)

    assert binding.results == {("NodePorts", "ok"): 1}


@pytest.mark.parametrize(
    ("teardown", "torn_s", "before", "after"),
    [("before", 2.5, 2.5, 2.5), ("after", 2.5, 0, 2.5), ("before", None, 0, 0), ("after", None, 0, 0)],
)
def test_invariant_i4_the_teardown_is_reported_before_the_request_or_with_the_answer(
    a_pod, teardown, torn_s, before, after
):
    binding = Binding(a_pod(), torn_s, teardown=teardown)
    found = [binding.observed("kubelet_unbind_teardown_seconds")]
    names = [e.ev if isinstance(e, Log) else "call" for e in binding.out.effects if isinstance(e, Log | CallUnbind)]

    binding.answered(200)
    found.append(binding.observed("kubelet_unbind_teardown_seconds"))

    assert found == [before, after]
    assert names == [*(["kubelet.teardown_done"] if before else []), "kubelet.unbind_call", "call"]


def test_a_binding_counts_once_how_often_the_pod_was_unbound_before_a_container_ran(a_pod):
    binding, pod = Binding(a_pod("other")), a_pod(status={"unbindCount": 2})

    for _ in range(2):
        binding.manager.on_started(pod, worker_key(pod))

    ((_, found),) = binding.out.distributions[UNTIL_RUNNING].items()
    assert (found.count, found.sum) == (1, 2)


def asks(a_pod, **settings):
    return Binding(a_pod(), unbind_form="condition", **settings)


def refusing(a_pod, status="False", reason="Exempt"):
    return a_pod(status={"conditions": [{"type": REQUESTED, "status": status, "reason": reason}]})


def test_with_a_condition_the_kubelet_asks_the_controller_and_calls_nothing_until_the_deadline(a_pod):
    binding = asks(a_pod)

    (condition,) = binding.manager.asking[binding.key]["conditions"]
    assert binding.manager.asking[binding.key]["phase"] == "Pending"
    assert {name: condition[name] for name in ("type", "status", "reason", "message")} == {
        "type": REQUESTED, "status": "True", "reason": "OutOfcpu", "message": "no CPU is left",
    }  # fmt: skip
    assert binding.effects(CallUnbind) == []
    assert [(each.at_s, each.what) for each in binding.effects(SetTimer)] == [(120.0, "unbind")]
    assert binding.may_write, "the condition is how it asks"
    assert binding.manager.call(binding.key, 120.0).step == FallBack("DeadlineExceeded")
    assert binding.manager.asking == {}


def test_the_condition_has_the_first_1024_characters_of_the_message(a_pod):
    binding, pod = asks(a_pod), a_pod("other")

    binding.manager.begin(pod, worker_key(pod), "OutOfcpu", "x" * 2000, 0.0)

    assert len(binding.manager.asking[worker_key(pod)]["conditions"][0]["message"]) == 1024


def test_a_controller_that_refuses_says_so_in_the_condition_and_the_kubelet_falls_back(a_pod):
    binding = asks(a_pod)

    assert binding.manager.pod_updated(binding.key, refusing(a_pod, status="True"), 2.0) is None
    outcome = binding.manager.pod_updated(binding.key, refusing(a_pod), 3.0)

    assert outcome.step == FallBack("Exempt")
    assert (binding.manager.going, binding.manager.asking) == ({}, {})
    assert binding.results == {("OutOfcpu", "Exempt"): 1}
    assert binding.lines("kubelet.unbind_result") == [{"result": "Exempt", "code": 422}]


def test_a_condition_is_no_answer_to_a_kubelet_that_calls_for_itself_but_its_next_try_names_the_newest_pod(a_pod):
    binding, newer = Binding(a_pod()), refusing(a_pod)

    assert binding.manager.pod_updated(binding.key, newer, 2.0) is None
    binding.answered(500, "InternalError", 2.0)
    binding.manager.call(binding.key, 3.0)

    assert binding.effects(CallUnbind)[-1].pod is newer
    assert binding.manager.pod_updated(worker_key(a_pod("other")), a_pod("other"), 2.0) is None


def test_a_binding_is_counted_once_however_often_its_containers_start_and_forgotten_when_it_is_gone(a_pod):
    binding, pod = Binding(a_pod("other")), a_pod()
    key, other = WorkerKey("uid", 2), WorkerKey("uid", 3)

    for each in (key, key, other, key):
        binding.manager.on_started(pod, each)
    assert not binding.manager.forget_pod(key, pod, "gone")
    for each in (other, key):
        binding.manager.on_started(pod, each)

    ((_, found),) = binding.out.distributions[UNTIL_RUNNING].items()
    assert found.count == 3, "the first of them is not known any more"


def test_a_pod_of_which_nothing_was_set_up_took_no_time_to_tear_down(a_pod):
    binding, other = Binding(a_pod()), a_pod("other")

    binding.manager.begin(other, worker_key(other), "OutOfcpu", "m", 0.0)

    (found,) = binding.out.distributions["kubelet_unbind_teardown_seconds"].values()
    assert (found.count, found.sum) == (2, 0.0)


def test_nothing_is_kept_of_a_namespace_in_which_no_pod_waits_any_more(limited):
    for key in limited.keys:
        limited.giving.forget_pod(key, limited.giving.going[key].pod, "gone")

    assert limited.giving._lines == {}
