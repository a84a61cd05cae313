"""How long pods are in each pool, from the lines that schedulers write."""

from lab.scenarios.measures.queue_pools import QueuePools
from services.telemetry.eventlog import Line


class Written:
    """The lines of schedulers."""

    def __init__(self):
        self.pools = QueuePools()

    def moved(self, at, uid, pool, by="scheduler"):
        obj = {"kind": "Pod", "ns": "default", "name": uid, "uid": uid}
        self.pools.take(Line(1, 0, int(at * 1e9), "", by, "i", "sched.moved", obj=obj, data={"to": pool}))
        return self

    def line(self, at, ev, comp="scheduler", **data):
        self.pools.take(Line(1, 0, int(at * 1e9), "", comp, "i", ev, data=data))
        return self

    def of(self, uid, end=100.0):
        self.pools.end(end)
        return {pool: held_s for pool, held_s in self.pools.of(uid).items() if held_s}


def test_a_pod_is_in_a_pool_until_it_enters_the_next_or_leaves_the_queue():
    lines = Written().moved(1, "a", "active").moved(3, "a", "in_flight").moved(4, "a", "unschedulable")
    lines.moved(9, "a", "backoff").moved(10, "a", "active").moved(10.5, "a", "in_flight").moved(11, "a", "")

    assert lines.of("a") == {"active": 2.5, "in_flight": 1.5, "unschedulable": 5.0, "backoff": 1.0}
    assert lines.pools.measures() == {
        "queue_active_s": 2.5, "queue_backoff_s": 1.0, "queue_unschedulable_s": 5.0, "queue_gated_s": 0.0,
    }  # fmt: skip


def test_a_pod_that_waits_at_the_end_has_waited_until_then():
    assert Written().moved(1, "a", "gated").of("a", end=8.0) == {"gated": 7.0}


def test_both_back_off_queues_are_one_pool_as_in_upstreams_metric():
    assert Written().moved(1, "a", "error_backoff").moved(3, "a", "backoff").moved(6, "a", "active").of("a", 6.0) == {
        "backoff": 5.0
    }


def test_a_pod_is_in_no_pool_of_a_scheduler_that_was_killed():
    lines = Written().moved(0, "a", "unschedulable").line(5, "fault.inject", "chaos", target="scheduler", what="kill")
    lines.line(20, "proc.start").moved(21, "a", "active").moved(22, "a", "")

    assert lines.of("a") == {"unschedulable": 5.0, "active": 1.0}


def test_a_pod_is_in_no_pool_of_a_scheduler_that_lost_its_lease():
    lines = Written().moved(0, "a", "active").line(4, "lease.lose").moved(6, "a", "active", by="scheduler-2")

    assert lines.of("a", 7.0) == {"active": 5.0}


def test_a_fault_of_another_process_changes_nothing():
    lines = Written().moved(0, "a", "active").line(5, "fault.inject", "chaos", target="kubelet/h0", what="kill")

    assert lines.of("a", 10.0) == {"active": 10.0}


def test_without_a_queued_pod_there_are_no_figures():
    assert Written().line(1, "proc.start").pools.measures() == {}
