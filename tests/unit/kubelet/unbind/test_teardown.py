"""Pods that are torn down to be unbound: when admission is asked, and what it learns of the teardown's end."""

import pytest

from kubelet.effects import StartFailed
from kubelet.managers.allocation import Rejection
from kubelet.status.versions import StatusVersions
from kubelet.switches import KubeletSwitches
from kubelet.unbind.teardown import UnbindTeardowns
from services.api.switches import Switches
from tests.unit.kubelet.pod.test_table import Node

FAILED = Rejection("FailedMount", "no volume")


class Admission:
    """Notes what it is asked; `is_early`: it was asked for the unbind before the teardown."""

    def __init__(self):
        self.calls, self.is_early = [], False

    def may_begin(self, pod, reason, now):
        return True

    def ask_first(self, pod, key, rejection, now):
        self.is_early = True
        self.calls.append(("ask first", rejection.reason, now))

    def torn_down(self, pod, key, took_s, now):
        self.calls.append(("torn down", took_s, now))
        return self.is_early

    def unbind(self, pod, key, rejection, now, *, torn_s):
        self.calls.append(("unbind", rejection, torn_s))


class Torn:
    """One pod whose start fails at second 1."""

    def __init__(self, pod, *switches):
        self.node, self.admission = Node(), Admission()
        of_kubelet = Switches.parse(("PodUnbinding=true", *switches)).of(KubeletSwitches)
        self.teardowns = UnbindTeardowns(self.node.table, StatusVersions(), self.admission, self.admission, of_kubelet)
        self.machine = self.node.begun(pod, latency=("all=constant:5",))
        self.node.table.perform(self.machine, [StartFailed(FAILED.reason, FAILED.message)], 1.0)


@pytest.mark.parametrize(
    ("switches", "calls"),
    [
        ((), [("torn down", 2.0, 3.0), ("unbind", FAILED, 2.0)]),
        (("kubelet.unbind_teardown=after",), [("ask first", "FailedMount", 1.0), ("torn down", 2.0, 3.0)]),
    ],
)
def test_a_pod_is_unbound_once_it_is_torn_down_unless_that_was_asked_for_before(a_pod, switches, calls):
    torn = Torn(a_pod(), *switches)
    was_unbinding = torn.teardowns.is_unbinding(torn.machine.key)

    finished = torn.teardowns.finish(torn.machine, 3.0)

    assert (was_unbinding, finished, torn.admission.calls) == (True, True, calls)
    assert not torn.teardowns.is_unbinding(torn.machine.key)
    assert torn.machine.key not in torn.node.table.pods


def test_a_pod_whose_object_is_gone_is_not_unbound_any_more(a_pod):
    torn = Torn(a_pod())

    torn.teardowns.drop(torn.machine, 3.0)

    assert torn.admission.calls == [("torn down", 2.0, 3.0)]
    assert not torn.teardowns.finish(torn.machine, 3.0), "nothing is left of it"
