"""The pods of one node that are unbound when there are more of them than the limits let through."""

import pytest

from kubelet.effects import CallUnbind, Outbox, SetTimer
from kubelet.pod.context import WallTimes
from kubelet.status.versions import StatusVersions
from kubelet.switches import KubeletSwitches
from kubelet.unbind.manager import UnbindManager
from kubelet.unbind.unbinding import FallBack
from kubelet.view import worker_key


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
        self.giving.answered(self.keys[number], 429, "TooManyRequests", now, retry_after_s=retry_after_s)
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
        limited.giving.answered(limited.keys[1], 200, "", 6.2)
    else:
        limited.giving.gone(limited.keys[1], limited.giving.going[limited.keys[1]].pod, "gone")
    limited.asked()

    assert limited.until(6.2) == ([0], [])


def test_kubelet_unbinding_20_no_pod_waits_behind_one_rejected_for_another_reason(limited):
    limited.until(6.1)

    limited.giving.answered(limited.keys[1], 503, "ServiceUnavailable", 6.2)
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
