"""What a watch delivers (guarantees W1 to W16), without a loop: taken by hand, time by hand."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Store
from apiserver_fake.storage.watch_events import transition_type
from apiserver_fake.storage.watch_hub import REDEFINED, WATCHERS_PER_NODE, Hub
from lab.scenarios.invariants.i15_streams import REASONS
from services.api.errors import BadRequest, TooManyRequests
from services.api.identity import Identity, node_identity
from services.api.resources import resources
from services.api.wire import WatchRequest

PODS = resources()["pods"]
ANN = Identity("user:ann")


class AClock:
    """Time that a test moves."""

    at = 0.0

    def now(self):
        return self.at

    def wall(self):
        return self.at


class World:
    """A store and its hub."""

    def __init__(self, **limits):
        self.clock, self.store, self.ended = AClock(), Store(window_changes=limits.pop("window_changes", 20_000)), []
        self.hub = Hub(self.store, self.clock, random.Random(1), ended=self.ended.append, **limits)

    def put(self, *names, node="", labels=None):
        staged = self.store.stage()
        for name in names:
            meta = {"name": name, "namespace": "default", "uid": name, "labels": labels or {}}
            staged.put(PODS, {"metadata": meta, "spec": {"nodeName": node}}, "tp")
        self.publish(staged)

    def remove(self, name):
        staged = self.store.stage()
        staged.remove(PODS, msgspec.json.decode(self.store.get("pods", "default", name).body))
        self.publish(staged)

    def publish(self, staged):
        self.store.publish(staged.changes, self.clock.at)
        self.hub.publish(staged.changes)

    def watch(self, *, identity=ANN, **request):
        return self.hub.open(identity, PODS, WatchRequest(resource="pods", **request), lambda watcher: None)

    def pass_time(self, seconds):
        self.clock.at += seconds
        self.hub.tick(self.clock.at)


def seen(watcher):
    events = []
    while batch := watcher.take():
        events.extend(batch)
    return [(e.type, e.name, e.rv) for e in events]


def test_w1_versions_increase_and_bookmarks_are_never_below_them():
    world = World()
    watcher = world.watch()
    for step in range(40):
        world.put(f"p{step % 7}")
        world.pass_time(3)

    versions = [(kind, rv) for kind, _, rv in seen(watcher)]

    changes = [rv for kind, rv in versions if kind != "BOOKMARK"]
    assert changes == list(range(1, 41))
    assert [rv for _, rv in versions] == sorted(rv for _, rv in versions)
    assert len(versions) == 40 + 12


def test_w2_a_chain_of_streams_that_each_resume_at_the_last_version_has_no_change_twice():
    world, dice, received, position = World(queue_events=4), random.Random(3), [], "1"
    world.put("first")
    watcher = world.watch(resource_version=position)
    for step in range(300):
        world.put(f"p{step % 5}")
        if dice.random() < 0.3:
            received += watcher.take(dice.randrange(1, 4))
        if watcher.is_over or dice.random() < 0.05:
            watcher.close()
            position = str(max([int(position), *(event.rv for event in received)]))
            watcher = world.watch(resource_version=position)
    while batch := watcher.take():
        received += batch

    assert [event.rv for event in received] == list(range(2, 302))
    assert world.hub.closed_slow > 0


def test_w3_a_watch_from_a_version_delivers_every_later_change_in_order():
    world = World()
    world.put("a")
    world.put("b")

    watcher = world.watch(resource_version="1")
    world.put("c", "a")

    assert seen(watcher) == [("ADDED", "b", 2), ("ADDED", "c", 3), ("MODIFIED", "a", 4)]


def test_w4_no_bookmark_stands_inside_a_group():
    world = World()
    watcher = world.watch()
    for group in range(3):
        staged = world.store.stage()
        for name in "abc":
            staged.put(PODS, {"metadata": {"name": f"{name}{group}", "namespace": "default", "uid": name}})
        staged.seal(0)
        world.publish(staged)
        world.pass_time(10)
    start = world.watch(send_initial_events=True, resource_version_match="NotOlderThan")

    assert [rv for kind, _, rv in seen(watcher) if kind == "BOOKMARK"] == [3, 6, 9]
    assert seen(start)[-1] == ("BOOKMARK", "", 9)


def test_w8_and_w9_an_event_shows_what_an_exact_read_shows_and_is_added_when_it_was_not_visible():
    world, selector, dice = World(), "app=a", random.Random(5)
    selection, visible = Selection.parse(PODS, "", selector, ""), set()
    watcher = world.watch(label_selector=selector)
    for _ in range(200):
        name = dice.choice("abcd")
        if dice.random() < 0.2 and world.store.get("pods", "default", name) is not None:
            world.remove(name)
        else:
            world.put(name, labels={"app": dice.choice("ab")})

    events = watcher.take()

    for event in events:
        assert (event.type == "ADDED") == (event.name not in visible)
        visible = visible - {event.name} if event.type == "DELETED" else visible | {event.name}
        if event.type != "DELETED":
            stored = {record.name: record for record in world.store.select("pods", selection, at=event.rv).records}
            assert stored[event.name].body == event.body
    assert {event.type for event in events} == {"ADDED", "MODIFIED", "DELETED"}


@pytest.mark.parametrize("version", ["", "0"])
def test_a_watch_from_nowhere_starts_with_the_state_as_added(version):
    world = World()
    world.put("b", "a")

    watcher = world.watch(resource_version=version)
    world.remove("b")

    assert seen(watcher) == [("ADDED", "a", 2), ("ADDED", "b", 1), ("DELETED", "b", 3)]


def test_w7_unbinding_looks_like_a_deletion_to_a_watcher_of_the_node():
    world = World()
    watcher = world.watch(field_selector="spec.nodeName=n1", resource_version="0")

    world.put("a")
    world.put("a", node="n1")
    world.put("a", node="n1", labels={"x": "y"})
    world.put("a")
    world.put("a", node="n2")

    assert seen(watcher) == [("ADDED", "a", 2), ("MODIFIED", "a", 3), ("DELETED", "a", 4)]


def test_w7_what_stops_matching_goes_as_it_last_matched_at_the_changes_version():
    world = World()
    watcher = world.watch(label_selector="app=a")
    world.put("p", labels={"app": "a"})
    world.put("p", labels={"app": "b"})

    _, deleted = watcher.take()

    meta = msgspec.json.decode(deleted.body)["metadata"]
    assert (meta["resourceVersion"], meta["labels"]) == ("2", {"app": "a"})
    assert deleted.traceparent == "tp"


def test_a_watch_on_one_name_or_one_node_costs_nothing_for_others():
    world = World()
    watchers = [world.watch(field_selector=f"spec.nodeName=n{i}", identity=node_identity(f"n{i}")) for i in range(100)]
    named = world.watch(field_selector="metadata.name=b")

    world.put("a", node="n7")

    assert world.hub.events_sent == 1
    assert [i for i, watcher in enumerate(watchers) if watcher.has_events] == [7]
    assert not named.has_events


def test_an_event_is_one_object_for_all_watches():
    world = World()
    one, two = world.watch(), world.watch()

    world.put("a")

    assert one.take()[0] is two.take()[0]


def test_w6_a_bookmark_stands_behind_all_events_it_speaks_of():
    world = World()
    watcher = world.watch()
    world.put("a")

    world.pass_time(10)
    world.put("b")

    assert seen(watcher) == [("ADDED", "a", 1), ("BOOKMARK", "", 1), ("ADDED", "b", 2)]


def test_w13_bookmarks_come_every_ten_seconds_unless_they_were_not_allowed():
    world = World()
    wanted, unwanted = world.watch(), world.watch(allow_bookmarks=False)

    for _ in range(3):
        world.pass_time(10)

    assert [kind for kind, _, _ in seen(wanted)] == ["BOOKMARK"] * 3
    assert seen(unwanted) == []


def test_a_bookmark_that_is_asked_for_stands_behind_what_waits_and_says_how_far_a_quiet_watch_has_seen():
    world = World()
    watcher, unwanted = world.watch(), world.watch(allow_bookmarks=False)
    world.put("a")

    for each in (watcher, unwanted):
        world.hub.report_progress(each)

    assert [("ADDED", "a", 1), ("BOOKMARK", "", 1)] == seen(watcher)
    assert [("ADDED", "a", 1)] == seen(unwanted)


def test_w13_a_watch_ends_by_itself_with_a_bookmark_two_seconds_before():
    world = World()
    watcher = world.watch(timeout_s=7)

    world.pass_time(5)
    assert seen(watcher) == [("BOOKMARK", "", 0)]
    world.pass_time(2)

    assert watcher.end_reason == "Timeout"
    assert world.ended == [watcher]
    assert world.hub.counts() == {}


def test_a_watch_lasts_five_to_ten_minutes_unless_the_request_says_so():
    world = World()
    ends = [world.watch().ends_at_s for _ in range(50)]

    assert all(300 <= end <= 600 for end in ends)
    assert len(set(ends)) > 1


def test_w14_a_slow_watcher_is_cut_and_what_it_got_is_a_prefix():
    world = World(queue_events=5)
    slow, quick = world.watch(), world.watch()
    world.put("a", "b")
    first = seen(slow)

    for step in range(6):
        world.put(f"p{step}")
        assert len(seen(quick)) == (3 if step == 0 else 1)

    assert first == [("ADDED", "a", 1), ("ADDED", "b", 2)]
    assert (slow.end_reason, slow.take(), quick.end_reason) == ("SlowWatcher", [], "")


def test_w15_no_change_is_left_out_however_often_one_object_changes():
    world = World()
    watcher = world.watch()

    for _ in range(900):
        world.put("a")

    assert [rv for _, _, rv in seen(watcher)] == list(range(1, 901))


def test_w16_two_hundred_stalled_watchers_hold_no_healthy_one_back():
    world = World(queue_events=50)
    stalled = [world.watch(identity=Identity(f"user:{i}")) for i in range(200)]
    healthy = world.watch()

    for step in range(60):
        world.put(f"p{step}")
        assert seen(healthy) == [("ADDED", f"p{step}", step + 1)]

    assert {watcher.end_reason for watcher in stalled} == {"SlowWatcher"}
    assert (healthy.end_reason, world.hub.queued_bytes) == ("", 0)


def test_w17_the_time_from_commit_to_send_is_counted_of_the_oldest_event_of_a_batch():
    world = World()
    watcher = world.watch()
    world.put("a")
    world.clock.at += 0.03
    world.put("b")
    world.clock.at += 0.01

    watcher.take_piece()

    assert (world.hub.sent_s.count, round(world.hub.sent_s.sum, 3)) == (1, 0.04)


def test_w18_every_end_has_a_reason():
    world = World(queue_events=2, window_changes=1)
    for step in range(4):
        world.put(f"p{step}")
        world.clock.at += 400
    world.store.trim(world.clock.at)
    gone, slow, shut = world.watch(), world.watch(), world.watch()
    world.watch(timeout_s=5, field_selector="metadata.name=none")
    world.watch(resource_version="1")
    redefined = world.watch(field_selector="metadata.name=none")
    world.hub.end(redefined, REDEFINED)
    gone.close()
    for watcher in (slow, shut):
        seen(watcher)
    for name in "abc":
        world.put(name)
        shut.take()
    world.pass_time(6)
    world.hub.shut_down()

    assert set(REASONS) - {"AuthExpired"} == {watcher.end_reason for watcher in world.ended}
    assert len(world.ended) == 6


def test_l_wt_the_longest_queue_goes_first_and_new_watches_are_refused_while_too_much_waits():
    world = World(queue_bytes=2_000, queued_bytes_max=5_000)
    long = world.watch(identity=Identity("user:long"))
    narrow = [world.watch(field_selector=f"metadata.name=p{i}") for i in range(100)]
    for i in range(10):
        world.put(f"p{i}")
    shared = world.hub.queued_bytes
    for i in range(10, 100):
        world.put(f"p{i}")
        if not long.end_reason:
            assert world.hub.queued_bytes == sum(len(r.body) for r in world.store.select("pods", Selection()).records)

    assert shared < 5_000
    assert long.end_reason == "SlowWatcher"
    assert world.hub.queued_bytes <= 5_000
    assert 0 < sum(bool(watcher.end_reason) for watcher in narrow) < 100
    with pytest.raises(TooManyRequests, match="L-WT"):
        world.watch(resource_version="1")
    for watcher in narrow:
        watcher.close()
    assert world.hub.queued_bytes == 0
    world.watch(resource_version="1")


def test_w14_bytes_count_as_well():
    world = World(queue_bytes=400)
    slow = world.watch()

    world.put("a", "b", "c", "d", "e")

    assert slow.end_reason == "SlowWatcher"


def test_w7_a_change_of_labels_shows_as_the_selector_sees_it():
    world = World()
    a, b = world.watch(label_selector="app=a"), world.watch(label_selector="app=b")

    world.put("p", labels={"app": "a"})
    world.put("p", labels={"app": "b"})
    world.remove("p")

    assert seen(a) == [("ADDED", "p", 1), ("DELETED", "p", 2)]
    assert seen(b) == [("ADDED", "p", 2), ("DELETED", "p", 3)]


def test_w5_a_cut_watcher_resumes_from_its_last_version_however_much_it_missed():
    world = World(queue_events=5)
    slow = world.watch()
    world.put("a")
    seen(slow)
    for step in range(50):
        world.put(f"p{step}")

    resumed = world.watch(resource_version=str(slow.last_rv))

    assert [rv for _, _, rv in seen(resumed)] == list(range(2, 52))


def test_w11_too_old_a_version_is_one_error_and_the_end():
    world = World(window_changes=1)
    world.put("a")
    world.put("b")
    world.clock.at = 400
    world.put("c")

    watcher = world.watch(resource_version="1")

    (error,) = watcher.take()
    status = msgspec.json.decode(error.body)
    assert (error.type, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert status["message"] == "too old resource version: 1 (3)"
    assert watcher.is_over


def test_w10_a_future_version_waits_three_seconds_then_is_an_error():
    world = World()
    world.put("a")
    waiting, late = world.watch(resource_version="3"), world.watch(resource_version="9")

    world.pass_time(2.9)
    world.put("b", "c", "d")
    assert seen(waiting) == [("ADDED", "d", 4)]
    assert seen(late) == []
    world.pass_time(0.2)

    (error,) = late.take()
    status = msgspec.json.decode(error.body)
    assert (error.type, status["code"], status["details"]["retryAfterSeconds"]) == ("ERROR", 504, 1)
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_w12_a_streaming_start_marks_the_end_of_the_state_exactly_once():
    world = World()
    world.put("a", "b")

    watcher = world.watch(send_initial_events=True, resource_version_match="NotOlderThan", resource_version="1")
    world.put("c")

    events = watcher.take() + watcher.take()
    assert [(e.type, e.rv, e.initial_events_end) for e in events] == [
        ("ADDED", 1, False), ("ADDED", 2, False), ("BOOKMARK", 2, True), ("ADDED", 3, False),
    ]  # fmt: skip
    annotations = msgspec.json.decode(events[2].body)["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize(
    "request_",
    [
        {"send_initial_events": True},
        {"send_initial_events": True, "resource_version_match": "Exact"},
        {"resource_version": "1", "resource_version_match": "NotOlderThan"},
        {"resource_version": "x"},
        {"resource_version": "01"},
        {"resource_version": "-1"},
        {"resource_version": str(1 << 64)},
        {"field_selector": "spec.foo=1"},
    ],
)
def test_as_16_malformed_watches_are_bad_requests_and_leave_nothing_behind(request_):
    world = World()

    with pytest.raises(BadRequest):
        world.watch(**request_)

    assert world.hub.counts() == {}


def test_a_node_may_hold_sixteen_watches():
    world = World()
    for _ in range(WATCHERS_PER_NODE):
        world.watch(identity=node_identity("n1"))

    with pytest.raises(TooManyRequests):
        world.watch(identity=node_identity("n1"))
    world.watch(identity=node_identity("n2"))


SELECTORS = ("", "spec.nodeName=n1", "spec.nodeName!=n1", "metadata.name=a")
CHANGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["", "n1", "n2", "gone"]), st.booleans()), max_size=30
)


@settings(max_examples=100)
@given(CHANGES, st.integers(0, 30))
def test_as_17_every_watcher_sees_the_computed_transitions_and_a_resumed_one_the_rest(changes, cut_at):
    world = World()
    watchers = {s: world.watch(field_selector=s, resource_version="0") for s in SELECTORS}
    expected = {s: [] for s in SELECTORS}
    for step, (name, node, _) in enumerate(changes):
        if node == "gone":
            if world.store.get("pods", "default", name) is None:
                continue
            world.remove(name)
        else:
            world.put(name, node=node)
        (change,) = world.store.changes_after("pods", world.store.rv - 1)
        for selector in SELECTORS:
            kind = transition_type(change, Selection.parse(PODS, "", "", selector))
            expected[selector] += [(kind, name, change.rv)] if kind else []
        if step == cut_at:
            for selector, watcher in watchers.items():
                expected[selector] = expected[selector][len(seen(watcher)) :]
                watcher.close()
                watchers[selector] = world.watch(field_selector=selector, resource_version=str(world.store.rv))

    for selector, watcher in watchers.items():
        assert seen(watcher) == expected[selector]


def test_w10_a_watch_from_a_future_version_begins_as_soon_as_that_version_is_there():
    world = World()
    world.put("a")
    watcher = world.watch(resource_version="2")

    world.put("b")
    world.pass_time(3.1)
    world.put("c")

    assert seen(watcher) == [("ADDED", "c", 3)]
