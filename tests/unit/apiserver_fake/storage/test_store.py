"""The store against a plain dict, and its window, snapshots and staging."""

import hashlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_fake.registry.writes.new_objects import Limits, check_capacity
from apiserver_fake.storage.records import Entry, Selection, record_of
from apiserver_fake.storage.store import LINGERING, Gap, Key, Store, restore
from services.api.errors import BadRequest, Expired, Forbidden, RequestEntityTooLarge
from services.api.resources import resources

PODS, CONFIGMAPS = resources()["pods"], resources()["configmaps"]


def a_document(name, namespace="default", node="", labels=None, **extra):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {"nodeName": node},
        **extra,
    }


def commit(store, *steps, resource=PODS, now=0.0):
    """Publish one batch; a step is a document to put, or `("remove", document)`."""
    staged = store.stage()
    for step in steps:
        if isinstance(step, tuple):
            staged.remove(resource, step[1])
        else:
            staged.put(resource, step)
    store.publish(staged.changes, now)
    return store.rv


def names(records):
    return [record.name for record in records]


def test_staged_changes_see_each_other_and_readers_see_none_of_them():
    store = Store()
    staged = store.stage()

    staged.put(PODS, a_document("a"))

    assert staged.get("pods", "default", "a").rv == 1
    assert names(staged.select("pods", Selection("default"))) == ["a"]
    assert store.get("pods", "default", "a") is None
    assert store.rv == 0


def test_a_rolled_back_operation_gives_its_version_back():
    store = Store()
    staged = store.stage()
    staged.put(PODS, a_document("a"))
    mark = len(staged.changes)
    staged.put(PODS, a_document("a", node="n"))
    staged.put(PODS, a_document("b"))

    staged.rollback(mark)

    assert staged.rv == 1
    assert staged.get("pods", "default", "a").fields["spec.nodeName"] == ""
    assert staged.get("pods", "default", "b") is None
    assert staged.count_in("pods", "default") == 1


def test_s4_changes_of_one_operation_are_sealed_into_one_group():
    staged = Store().stage()
    staged.put(PODS, a_document("a"))
    mark = len(staged.changes)
    staged.put(PODS, a_document("b"))
    staged.put(PODS, a_document("c"))

    staged.seal(mark)

    assert [change.group_end for change in staged.changes] == [1, 3, 3]


def test_an_object_above_its_limit_is_refused_and_takes_no_version():
    staged = Store().stage()

    with pytest.raises(RequestEntityTooLarge):
        staged.put(PODS, a_document("a", data="x" * (1536 << 10)))

    assert staged.rv == 0


def test_a_list_at_an_old_version_shows_the_state_of_then():
    store = Store()
    commit(store, a_document("a"), a_document("b"))
    then = store.rv
    commit(store, ("remove", a_document("a")), a_document("b", node="n"), a_document("c"))

    page = store.select("pods", Selection(), at=then)

    assert [(r.name, r.fields["spec.nodeName"]) for r in page.records] == [("a", ""), ("b", "")]


def test_an_indexed_selector_at_an_old_version_finds_what_has_moved_since():
    store = Store()
    commit(store, a_document("a", node="n1"))
    then = store.rv
    commit(store, a_document("a", node="n2"))
    selection = Selection.parse(PODS, "", "", "spec.nodeName=n1")

    assert names(store.select("pods", selection, at=then).records) == ["a"]
    assert names(store.select("pods", selection).records) == []


def test_pages_continue_behind_the_last_key_and_say_what_remains():
    store = Store()
    commit(store, *(a_document(name, namespace) for namespace in ("x", "y") for name in ("a", "b", "c")))

    first = store.select("pods", Selection(), limit=4)
    rest = store.select("pods", Selection(), limit=4, after=first.next_after)

    assert (names(first.records), first.next_after, first.remaining) == (["a", "b", "c", "a"], Key("y", "a"), 2)
    assert (names(rest.records), rest.next_after) == (["b", "c"], None)


def test_the_window_keeps_changes_that_are_young_or_among_the_last():
    store = Store(window_s=300, window_changes=2)
    for step in range(4):
        commit(store, a_document(f"p{step}"), now=step * 100.0)

    commit(store, a_document("p4"), now=350.0)

    # 350 s: the change of 0 s is older than 300 s and not among the last two; that of 100 s is young.
    assert store.window_start == 1
    assert [c.rv for c in store.changes_after("pods", 1)] == [2, 3, 4, 5]
    with pytest.raises(Expired, match=r"too old resource version: 0 \(5\)"):
        store.changes_after("pods", 0)


def test_the_last_changes_stay_however_old_they_are():
    store = Store(window_s=300, window_changes=2)
    for step in range(4):
        commit(store, a_document(f"p{step}"))

    store.trim(10_000.0)

    assert [c.rv for c in store.changes_after("pods", store.window_start)] == [3, 4]


def test_a_field_the_kind_cannot_select_by_is_a_bad_request():
    with pytest.raises(BadRequest, match=r"field label not supported: spec\.foo"):
        Selection.parse(PODS, "", "", "spec.foo=x")


def test_s14_the_state_hash_is_the_sum_over_live_objects():
    store = Store(hashing=True)
    commit(store, a_document("a"), a_document("b"))

    commit(store, a_document("a", node="n"), ("remove", a_document("b")))

    document = msgspec.json.decode(store.get("pods", "default", "a").body)
    text = b"Pod\0default\0a\0" + msgspec.json.encode(document, order="deterministic")
    assert store.state_hash == int.from_bytes(hashlib.sha256(text).digest(), "big")


def test_s3_restoring_refuses_a_gap_and_a_wrong_predecessor():
    def entry(rv, previous_rv=0, name="a"):
        return Entry(rv, "ADDED", rv, previous_rv, "pods", "default", name, "", msgspec.json.encode(a_document(name)))

    with pytest.raises(Gap, match="change 3 follows 1"):
        restore(Store(), [], 0, [entry(1), entry(3, name="b")], 0.0, resources())
    with pytest.raises(Gap, match="follows version 7"):
        restore(Store(), [], 0, [entry(1, previous_rv=7)], 0.0, resources())


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
STEPS = st.lists(
    st.lists(st.tuples(st.sampled_from(["put", "remove"]), NAMES, st.sampled_from(["", "n1", "n2"])), max_size=4),
    max_size=12,
)


@settings(max_examples=150)
@given(STEPS)
def test_s10_the_store_agrees_with_a_dict_at_every_version_of_the_window(batches):
    store = Store(hashing=True)
    model = {}
    states = {0: {}}
    for batch in batches:
        staged = store.stage()
        for verb, name, node in batch:
            if verb == "put":
                staged.put(PODS, a_document(name, node=node))
                model[name] = node
            elif name in model:
                staged.remove(PODS, a_document(name, node=model.pop(name)))
            else:
                continue
            states[staged.rv] = dict(model)
        store.publish(staged.changes, 0.0)

    assert store.count == len(model)
    total = 0
    for record in store.select("pods", Selection()).records:
        total += record_of(PODS, msgspec.json.decode(record.body), record.rv, record.body, hashing=True).digest
    assert store.state_hash == total % (1 << 256)
    for rv, state in states.items():
        at_rv = store.select("pods", Selection(), at=rv).records
        assert [(r.name, r.fields["spec.nodeName"]) for r in at_rv] == sorted(state.items())
        for node in ("n1", "n2"):
            selection = Selection.parse(PODS, "", "", f"spec.nodeName={node}")
            expected = sorted(name for name, on in state.items() if on == node)
            assert names(store.select("pods", selection, at=rv).records) == expected


def test_l_obj_the_object_limit_counts_what_a_restart_loaded_once():
    pods, store = resources()["pods"], Store()
    documents = [a_document(name) for name in ("a", "b")]
    store.load([record_of(pods, each, rv, msgspec.json.encode(each)) for rv, each in enumerate(documents, 1)], 2)

    assert store.count == 2
    check_capacity(Limits(objects=3), store.stage(), pods, "default", "c")
    commit(store, a_document("c"))
    with pytest.raises(Forbidden, match="the store holds 3, at most 3 are allowed"):
        check_capacity(Limits(objects=3), store.stage(), pods, "default", "d")


def test_what_has_left_the_window_is_let_go_soon_and_not_when_the_window_is_full_a_second_time():
    window = 2 * LINGERING
    store = Store(window_s=0.0, window_changes=window)

    most = 0
    for number in range(6 * window):
        commit(store, a_document("one", text=str(number)))
        held = len(store._tables["pods"].changes)
        most = max(most, held)

    assert store.rv - store.window_start == window
    assert most < window + LINGERING
    assert len(store.changes_after("pods", store.window_start)) == window


def test_a_version_of_an_object_has_in_common_with_the_one_before_what_is_the_same():
    store = Store()
    commit(store, a_document("a", node="n1", labels={"app": "web"}))
    first = store.get("pods", "default", "a")

    commit(store, a_document("a", node="n1", labels={"app": "web"}, status={"phase": "Running"}))
    second = store.get("pods", "default", "a")
    commit(store, a_document("a", node="n1", labels={"app": "api"}))
    third = store.get("pods", "default", "a")

    same = ("name", "uid", "labels", "owners")
    assert [name for name in same if getattr(second, name) is getattr(first, name)] == list(same)
    assert second.fields == {**first.fields, "status.phase": "Running"}
    assert (third.labels, third.name is first.name) == ({"app": "api"}, True)


def test_bytes_that_leave_the_window_are_counted():
    store = Store(window_s=0.0, window_changes=10)

    for number in range(30):
        commit(store, a_document("one", text=str(number)))

    bodies = [len(change.record.body) for change in store.changes_after("pods", store.window_start)]
    assert store.window_bytes == sum(bodies)
    assert store.bytes_left > 0
    whole = store.window_bytes + store.bytes_left
    assert whole == sum(
        len(msgspec.json.encode(a_document("one", text=str(number))))
        + len(',"resourceVersion":""')
        + len(str(number + 1))
        for number in range(30)
    )
