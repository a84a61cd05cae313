"""Which rejections wait on the node, and for how long (kubelet-unbinding 2)."""

import pytest

from kubelet.effects import Log, Outbox, RecordEvent, SetTimer
from kubelet.managers.allocation import DeviceRejection, Rejection
from kubelet.switches import KubeletSwitches
from kubelet.unbind.deferral import Deferral
from kubelet.unbind.unbinding import is_enabled
from kubelet.view import worker_key

TRANSIENT = Rejection("UnexpectedAdmissionError", "no device is registered")
DEVICE = DeviceRejection("UnexpectedAdmissionError", "no healthy device is left")


def deferring(**settings):
    return Deferral(KubeletSwitches(**settings), Outbox())


@pytest.mark.parametrize(
    ("on_reject", "reason", "waits"),
    [("fail", "UnexpectedAdmissionError", False), ("unbind", "UnexpectedAdmissionError", False),
     ("defer", "TopologyAffinityError", True), ("defer", "SysctlForbidden", False),
     ("defer-then-unbind", "UnexpectedAdmissionError", True), ("defer-then-unbind", "TopologyAffinityError", False)],
)  # fmt: skip
def test_unbinding_2_what_time_may_cure_waits_on_the_node(a_pod, on_reject, reason, waits):
    pod = a_pod()

    took = deferring(on_reject=on_reject).takes(pod, worker_key(pod), Rejection(reason, "m"), 0.0)

    assert took is waits


def test_unbinding_2_a_deferred_pod_is_tried_every_period_until_the_timeout(a_pod):
    pod, found = a_pod(), deferring(on_reject="defer", defer_period_s=4.0, defer_timeout_s=10.0)
    key = worker_key(pod)

    tries = [found.takes(pod, key, TRANSIENT, now) for now in (0.0, 4.0, 8.0, 10.0)]

    assert tries == [True, True, True, False]
    assert [each.at_s for each in found._out.effects if isinstance(each, SetTimer)] == [4.0, 8.0, 10.0]
    assert found.waiting == {}


def test_unbinding_2_a_try_in_between_voids_the_older_timer(a_pod):
    pod, found = a_pod(), deferring(on_reject="defer", defer_period_s=5.0, defer_timeout_s=30.0)
    key = worker_key(pod)
    found.takes(pod, key, TRANSIENT, 0.0)

    found.takes(pod, key, TRANSIENT, 3.0)

    assert not found.is_due(key, 5.0)
    assert found.is_due(key, 8.0)


def test_unbinding_2_static_pods_are_not_deferred(a_pod):
    pod = a_pod(metadata={"annotations": {"kubernetes.io/config.source": "file"}})

    assert not deferring(on_reject="defer").takes(pod, worker_key(pod), TRANSIENT, 0.0)


def test_unbinding_11_the_switch_narrows_the_reasons_but_never_widens_them():
    assert [is_enabled(r, ("OutOf*", "ImagePullBackOff")) for r in ("OutOfcpu", "NodePorts", "ImagePullBackOff")] == [
        True, False, False,
    ]  # fmt: skip


def deferrals(found):
    return dict(found._out.counts.of("keplab_kubelet_pod_deferrals_total"))


def test_the_first_deferral_is_recorded_and_the_next_tries_are_not(a_pod):
    pod, found = a_pod(), deferring(on_reject="defer", defer_period_s=4.0, defer_timeout_s=10.0)

    for now in (0.0, 4.0):
        found.takes(pod, worker_key(pod), TRANSIENT, now)

    assert [(e.reason, e.message, e.type) for e in found._out.effects if isinstance(e, RecordEvent)] == [
        ("AdmissionDeferred", "Tried again for 10 s: UnexpectedAdmissionError", "Normal")
    ]
    assert [(e.ev, e.data) for e in found._out.effects if isinstance(e, Log)] == [
        ("kubelet.defer", {"reason": "UnexpectedAdmissionError", "timeout_s": 10.0})
    ]
    timer = next(e for e in found._out.effects if isinstance(e, SetTimer))
    assert (timer.what, timer.key) == ("defer", worker_key(pod))


def test_a_deferral_is_counted_by_how_it_ended(a_pod):
    found = deferring(on_reject="defer", defer_period_s=4.0, defer_timeout_s=4.0)
    late, fitting, gone, fresh = (a_pod(name) for name in ("late", "fitting", "gone", "fresh"))
    for pod in (late, fitting, gone):
        found.takes(pod, worker_key(pod), TRANSIENT, 0.0)

    for _ in range(2):
        found.on_admitted(worker_key(fitting))
        found.on_admitted(worker_key(fresh))
        found.forget(worker_key(gone))
    found.takes(late, worker_key(late), TRANSIENT, 4.0)

    assert deferrals(found) == {("admitted",): 1, ("timeout",): 1}
    assert found.waiting == {}
    assert not found.is_due(worker_key(gone), 9.0)


def test_a_pod_that_waits_and_is_then_rejected_for_good_waits_no_more(a_pod):
    pod, found = a_pod(), deferring(on_reject="defer", defer_period_s=4.0, defer_timeout_s=10.0)
    found.takes(pod, worker_key(pod), TRANSIENT, 0.0)

    assert not found.takes(pod, worker_key(pod), Rejection("SysctlForbidden", "m"), 4.0)

    assert (found.waiting, deferrals(found)) == ({}, {})


@pytest.mark.parametrize(
    ("device_s", "rejection", "waits_s"),
    [(0.0, TRANSIENT, 10.0), (0.0, DEVICE, 10.0), (60.0, TRANSIENT, 10.0), (60.0, DEVICE, 60.0)],
)
def test_missing_devices_may_be_waited_for_as_long_as_the_switch_says(a_pod, device_s, rejection, waits_s):
    pod = a_pod()
    found = deferring(on_reject="defer", defer_period_s=100.0, defer_timeout_s=10.0, device_defer_timeout_s=device_s)

    found.takes(pod, worker_key(pod), rejection, 1.0)

    assert [e.at_s for e in found._out.effects if isinstance(e, SetTimer)] == [1.0 + waits_s]
    assert found.final_rejection(rejection) == Rejection(
        rejection.reason, f"{rejection.message} (deferred for {waits_s:g} s)"
    )


def test_a_timeout_of_nothing_defers_nothing(a_pod):
    pod = a_pod()

    assert not deferring(on_reject="defer", defer_timeout_s=0.0).takes(pod, worker_key(pod), TRANSIENT, 0.0)
