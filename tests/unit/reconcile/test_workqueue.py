import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.reconcile.workqueue import TokenBucket, WorkQueue


def test_a_key_added_twice_is_handed_out_once():
    queue = WorkQueue[str]()
    queue.add("a", 0.0)
    queue.add("a", 0.0)

    assert queue.get(0.0) == "a"
    assert queue.get(0.0) is None


def test_a_key_added_while_worked_on_comes_back_once_afterwards():
    queue = WorkQueue[str]()
    queue.add("a", 0.0)
    queue.get(0.0)

    queue.add("a", 1.0)
    queue.add("a", 1.0)

    assert queue.get(1.0) is None  # one worker per key
    queue.done("a", 2.0)
    assert queue.get(2.0) == "a"
    queue.done("a", 2.0)
    assert queue.get(2.0) is None


def test_of_several_delays_the_earliest_counts():
    queue = WorkQueue[str]()
    queue.add_after("a", 10.0, 0.0)
    queue.add_after("a", 3.0, 0.0)
    queue.add_after("a", 5.0, 0.0)

    assert queue.next_due(0.0) == 3.0
    assert queue.get(2.9) is None
    assert queue.get(3.0) == "a"
    queue.done("a", 3.0)
    assert queue.next_due(20.0) is None


def test_failures_back_off_from_five_milliseconds_doubling_to_a_thousand_seconds():
    queue = WorkQueue[str](burst=1000)

    delays = [queue.retry("a", float(i * 10_000)) for i in range(20)]

    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == 1000.0


def test_success_forgets_the_failures():
    queue = WorkQueue[str]()
    for _ in range(5):
        queue.retry("a", 0.0)

    queue.forget("a")

    assert queue.retry("a", 0.0) == 0.005


def test_many_failing_keys_share_ten_retries_a_second_after_a_burst_of_a_hundred():
    queue = WorkQueue[int]()

    delays = [queue.retry(key, 0.0) for key in range(120)]

    assert {0.005} == set(delays[:100])
    assert delays[-1] == pytest.approx(2.0)


def test_a_bucket_refills_up_to_its_burst():
    bucket = TokenBucket(per_s=1.0, burst=2)

    assert [bucket.try_take(0.0) for _ in range(3)] == [True, True, False]
    assert bucket.try_take(1.0)
    assert not bucket.try_take(1.5)
    assert [bucket.try_take(10.0) for _ in range(3)] == [True, True, False]


KEYS = st.sampled_from("abcd")


class QueueAgainstModel(RuleBasedStateMachine):
    """The queue against sets: nothing is lost, nothing is handed out twice at once."""

    def __init__(self):
        super().__init__()
        self.queue = WorkQueue[str]()
        self.now = 0.0
        self.dirty: set[str] = set()
        self.working: set[str] = set()
        self.due: dict[str, float] = {}

    def promote(self):
        for key in [k for k, due in self.due.items() if due <= self.now]:
            del self.due[key]
            self.dirty.add(key)

    @rule(key=KEYS)
    def add(self, key):
        self.promote()
        self.queue.next_due(self.now)
        self.queue.add(key, self.now)
        self.dirty.add(key)

    @rule(key=KEYS, delay=st.integers(0, 5))
    def add_after(self, key, delay):
        self.promote()
        self.queue.next_due(self.now)
        self.queue.add_after(key, float(delay), self.now)
        if delay == 0:
            self.dirty.add(key)
        else:
            self.due[key] = min(self.due.get(key, 1e9), self.now + delay)

    @rule()
    def get(self):
        self.promote()
        key = self.queue.get(self.now)
        if key is None:
            assert not self.dirty - self.working
        else:
            assert key in self.dirty
            assert key not in self.working
            self.dirty.discard(key)
            self.working.add(key)

    @rule(key=KEYS)
    def done(self, key):
        if key in self.working:
            self.queue.done(key, self.now)
            self.working.discard(key)

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds):
        self.now += seconds

    @invariant()
    def due_times_agree(self):
        self.promote()
        waiting = self.dirty - self.working
        expected = self.now if waiting else min(self.due.values(), default=None)
        assert expected == self.queue.next_due(self.now)


QueueAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_the_queue_agrees_with_a_model_of_sets = QueueAgainstModel.TestCase
