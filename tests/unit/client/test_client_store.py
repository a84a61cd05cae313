import hashlib
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.api.kinds.pod import Pod
from services.api.meta import AnyObject, Key
from services.client.store import SHARED_MAX, TOMBSTONE_S, Item, Store
from services.client.store import _shared as shared_views


def body(name: str, rv: int, *, node: str = "", owner: str = "") -> bytes:
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(rv)}
    if owner:
        metadata["ownerReferences"] = [{"uid": owner, "kind": "ReplicaSet", "name": "web"}]
    return msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": node}, "unknown": 1})


def key(name: str) -> Key:
    return Key("default", name)


@pytest.fixture
def store() -> Store[Pod]:
    return Store(Pod, kind="Pod")


def changes_of(store) -> list:
    """Return the list that the store's changes from now on are added to."""
    seen = []
    store.on_change(seen.append)
    return seen


def test_an_older_state_never_replaces_a_newer_one(store):
    store.put(key("a"), 7, body("a", 7, node="n2"))

    changes = changes_of(store)
    store.put(key("a"), 5, body("a", 5, node="n1"))

    assert changes == []
    assert store.get(key("a")).spec.node_name == "n2"


def test_a_state_older_than_the_deletion_does_not_bring_the_object_back(store):
    store.put(key("a"), 5, body("a", 5))
    store.remove(key("a"), 9)

    changes = changes_of(store)
    store.put(key("a"), 8, body("a", 8))
    assert (changes, store.get(key("a"))) == ([], None)

    store.put(key("a"), 10, body("a", 10))
    assert [change.old for change in changes] == [None]


def test_tombstones_are_kept_for_the_window_only():
    clock = [0.0]
    store = Store(Pod, now=lambda: clock[0])
    store.remove(key("a"), 9)
    clock[0] = TOMBSTONE_S + 1
    store.remove(key("b"), 12)

    store.put(key("a"), 8, body("a", 8))

    assert store.get(key("a")) is not None


def test_a_change_carries_old_new_and_the_writers_traceparent(store):
    seen = changes_of(store)
    store.put(key("a"), 1, body("a", 1), "00-t1")
    store.put(key("a"), 2, body("a", 2, node="n1"), "00-t2")
    store.remove(key("a"), 3, "00-t3")

    assert [(c.old is None, c.new is None, c.rv, c.traceparent) for c in seen] == [
        (True, False, 1, "00-t1"),
        (False, False, 2, "00-t2"),
        (False, True, 3, "00-t3"),
    ]


def test_a_relist_reports_vanished_objects_with_final_state_unknown(store):
    store.put(key("a"), 1, body("a", 1))
    store.put(key("b"), 2, body("b", 2))

    changes = changes_of(store)
    store.replace([Item(key("b"), 2, body("b", 2)), Item(key("c"), 6, body("c", 6))], 8)

    assert [(c.object.metadata.name, c.final_state_unknown) for c in changes] == [("c", False), ("a", True)]
    assert store.reached_rv == 8
    assert sorted(store.keys()) == [key("b"), key("c")]


def test_a_relist_does_not_undo_a_direct_reply_newer_than_itself(store):
    store.replace([Item(key("a"), 3, body("a", 3))], 5)
    store.offer(body("a", 9, node="n1"))

    store.replace([Item(key("a"), 3, body("a", 3))], 8)

    assert store.get(key("a")).spec.node_name == "n1"


def test_a_server_whose_history_began_anew_replaces_everything(store):
    store.replace([Item(key("a"), 90, body("a", 90, node="old"))], 100)

    store.replace([Item(key("a"), 2, body("a", 2, node="new"))], 3)

    assert store.get(key("a")).spec.node_name == "new"
    store.put(key("a"), 4, body("a", 4))
    assert store.rv(key("a")) == 4


def test_a_late_reply_about_an_object_the_stream_deleted_is_refused(store):
    store.put(key("a"), 5, body("a", 5))
    store.remove(key("a"), 9)
    store.reached_rv = 9

    changes = changes_of(store)
    store.offer(body("a", 7))

    assert (changes, store.get(key("a"))) == ([], None)


def test_a_reply_older_than_what_the_stream_has_passed_is_no_news(store):
    store.replace([], 20)

    changes = changes_of(store)
    store.offer(body("created-and-deleted-before-the-list", 15))

    assert (changes, len(store)) == ([], 0)


def test_an_offered_object_that_left_the_selector_is_removed():
    store = Store(Pod, matches=lambda document: document["spec"]["nodeName"] == "n1")
    store.put(key("a"), 5, body("a", 5, node="n1"))

    changes = changes_of(store)
    store.offer(body("a", 6, node=""))

    assert [change.new for change in changes] == [None]
    assert store.get(key("a")) is None


def test_an_undecodable_body_is_skipped_and_counted_and_the_last_good_state_stays(store):
    store.put(key("a"), 1, body("a", 1, node="n1"))

    changes = changes_of(store)
    store.put(key("a"), 2, b'{"spec": {"nodeName": 7}}')

    assert changes == []
    assert store.undecodable_total == 1
    assert store.get(key("a")).spec.node_name == "n1"


def test_owners_follow_every_change(store):
    store.put(key("a"), 1, body("a", 1, node="n1", owner="u1"))
    store.put(key("b"), 2, body("b", 2, node="n1"))
    store.put(key("a"), 3, body("a", 3, node="n2"))

    assert store.owned_by("u1") == []
    store.remove(key("b"), 4)
    assert store.all("default") == store.all()


def test_documents_keep_fields_no_view_knows(store):
    store.put(key("a"), 1, body("a", 1))

    assert store.document(key("a"))["unknown"] == 1
    store.document(key("a"))["unknown"] = 2
    assert store.document(key("a"))["unknown"] == 1


OPERATIONS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30)


@given(OPERATIONS)
def test_the_state_hash_is_that_of_the_objects_held(operations):
    store = Store(Pod, kind="Pod")
    for i, (name, is_put) in enumerate(operations):
        if is_put:
            store.put(key(name), i + 1, body(name, i + 1))
        else:
            store.remove(key(name), i + 1)
        if i % 7 == 3:
            store.state_hash()

    expected = 0
    for held in store.keys():  # noqa: SIM118
        document = msgspec.json.decode(body(held.name, store.rv(held)))
        text = msgspec.json.encode(document, order="deterministic")
        expected += int.from_bytes(
            hashlib.sha256(b"Pod\0default\0" + held.name.encode() + b"\0" + text).digest(), "big"
        )
    assert store.state_hash() == f"{expected % (1 << 256):064x}"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 20), st.booleans()), max_size=25))
def test_whatever_the_order_of_arrival_the_highest_version_wins(arrivals):
    store = Store(Pod)
    newest: dict[str, tuple[int, bool]] = {}
    for name, rv, is_put in arrivals:
        known = newest.get(name, (0, False))
        if rv == known[0]:
            continue  # one version is one change
        if is_put:
            store.put(key(name), rv, body(name, rv))
        else:
            store.remove(key(name), rv)
        if rv > known[0]:
            newest[name] = (rv, is_put)

    for name, (rv, is_put) in newest.items():
        assert store.rv(key(name)) == (rv if is_put else 0)


def test_names_of_objects_that_came_and_went_are_not_kept_where_no_hash_is_asked_for(store):
    """Without an event log there is no `cache.sync` line, whose hash would take them in: a process grew by each pod."""

    def held() -> int:
        return sum(sys.getsizeof(value) for each in (store._states, store._versions) for value in vars(each).values())

    for number in range(10):
        store.put(key("same"), 10 + number, body("same", 10 + number))
    before = held()

    for number in range(1_000):
        name, rv = f"p{number}", 100 + 2 * number
        store.put(key(name), rv, body(name, rv))
        store.remove(key(name), rv + 1)

    assert held() <= before + 1_000
    store.state_hash()
    store.put(key("q"), 9_000, body("q", 9_000))
    hashed = store.state_hash()
    store.remove(key("q"), 9_001)
    assert hashed != store.state_hash()


def test_stores_that_get_the_same_bytes_share_one_view():
    one, other, different = Store(Pod, kind="Pod"), Store(Pod, kind="Pod"), Store(AnyObject, kind="Pod")
    sent = body("a", 5)
    again = bytes(bytearray(sent))

    for store in (one, other, different):
        store.put(key("a"), 5, sent)

    assert one.get(key("a")) is other.get(key("a"))
    assert isinstance(different.get(key("a")), AnyObject)
    apart = Store(Pod, kind="Pod")
    apart.put(key("a"), 5, again)
    assert one.get(key("a")) == apart.get(key("a"))


def test_few_shared_views_are_remembered():
    store, kept = Store(Pod, kind="Pod"), [body(f"p{number}", 5) for number in range(3 * SHARED_MAX)]

    for number, sent in enumerate(kept):
        store.put(key(f"p{number}"), 5, sent)

    assert SHARED_MAX == len(shared_views)
    assert kept[-SHARED_MAX:] == [sent for sent, _ in shared_views.values()]


def test_pods_that_have_ended_share_the_texts_of_their_views_and_those_that_live_need_not():
    store = Store(Pod, kind="Pod")
    ended = b'{"metadata":{"name":"%s","resourceVersion":"5","annotations":{"app":"web"}},"status":{"phase":"Failed"}}'

    for name in ("a", "b"):
        store.put(key(name), 5, ended % name.encode())

    one, other = store.get(key("a")), store.get(key("b"))
    assert one.metadata.annotations is other.metadata.annotations
    assert one == msgspec.json.decode(ended % b"a", type=Pod)


def test_stores_hold_one_key_for_an_object():
    one, other = Store(Pod, kind="Pod"), Store(AnyObject, kind="Pod")

    one.put(key("alike"), 5, body("alike", 5))
    other.put(key("alike"), 5, body("alike", 5))

    assert one.keys()[0] is other.keys()[0]
