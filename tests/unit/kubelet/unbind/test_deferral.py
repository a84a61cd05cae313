"""Which rejections wait on the node, and for how long (kubelet-unbinding 2)."""

import pytest

from kubelet.effects import Outbox, SetTimer
from kubelet.managers.allocation import Rejection
from kubelet.switches import KubeletSwitches
from kubelet.unbind.deferral import Deferral
from kubelet.unbind.unbinding import is_enabled
from kubelet.view import worker_key

TRANSIENT = Rejection("UnexpectedAdmissionError", "no device is registered")


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
