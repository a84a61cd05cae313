"""A kind's changes in the window, held equal to a plain list of them, packed or not."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_fake.storage import change_log
from apiserver_fake.storage.change_log import WAIT_S, ChangeLog, pack, unpack
from apiserver_fake.storage.records import ADDED, DELETED, MODIFIED, Cause, Selection
from apiserver_fake.storage.store import Store
from services.api.resources import resources

PODS = resources()["pods"]
BLOCK, NEWEST = 4, 6


def a_document(name, **extra):
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {"app": name}}
    owners = [{"uid": "owner"}] if name == "a" else []
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "ownerReferences": owners}, **extra}


def changes_from(steps, hashing=False):
    """Return the store's changes for steps of (name, is removal), and the store."""
    store = Store(hashing=hashing)
    changes = []
    for number, (name, is_removal) in enumerate(steps):
        staged = store.stage()
        staged.cause = Cause("user", "patch", "status", f"r{number}", "3", 1.5) if number % 2 else None
        document = a_document(name, status={"phase": f"Running-{number}"})
        if is_removal and store.get("pods", "default", name) is not None:
            staged.remove(PODS, document, "00-trace")
        else:
            staged.put(PODS, document, "00-trace")
        changes += staged.changes
        store.publish(staged.changes, 0.0)
    return changes, store


STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1, max_size=60)


@given(STEPS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_what_is_unpacked_equals_what_was_packed(steps, hashing):
    changes, _ = changes_from(steps, hashing)

    assert unpack(pack(changes)) == changes


def test_a_record_stands_once_in_what_is_packed():
    changes, _ = changes_from([("a", False)] * 3)

    again = unpack(pack(changes))

    assert [each.type for each in again] == [ADDED, MODIFIED, MODIFIED]
    assert again[1].previous is again[0].record
    assert again[2].previous is again[1].record


@given(STEPS, st.lists(st.one_of(st.just("drop"), st.floats(0.0, 40.0)), max_size=30), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_log_holds_what_a_plain_list_holds(steps, acts, is_superseded):
    changes, store = changes_from(steps)
    objects = {} if is_superseded else {each.record.key: each.record for each in changes}
    log, plain, now_s, left = ChangeLog(BLOCK, NEWEST), [], 0.0, 0
    acts = [*acts, *["drop"] * 3]
    for change in changes:
        log.newest.append(change)
        plain.append(change)
        if len(log.newest) >= log.due:
            log.arrange(objects, now_s)
        act = acts.pop(0) if acts else 5.0
        if act != "drop":
            now_s += act
        elif plain:
            log.drop_oldest()
            left = plain.pop(0).rv
        assert len(plain) <= len(log) < len(plain) + BLOCK
    for rv in range(left, store.rv + 2):
        wanted = [each for each in plain if each.rv > rv]
        assert log.after(rv) == wanted
        assert log.count_after(rv) == len(wanted)


def test_old_bodies_are_packed_and_the_newest_are_not():
    changes, _ = changes_from([("a", False)] * (5 * BLOCK))
    log = ChangeLog(BLOCK, NEWEST)
    for change in changes:
        log.newest.append(change)
        if len(log.newest) >= log.due:
            log.arrange({}, 0.0)

    bodies = sum(len(each.record.body) for each in changes[: 3 * BLOCK])
    assert log.packed_bytes == bodies
    assert log.newest == changes[3 * BLOCK :]


def test_bodies_of_the_present_state_are_not_kept_a_second_time():
    changes, _ = changes_from([(f"pod-{number}", False) for number in range(5 * BLOCK)])
    log = ChangeLog(BLOCK, NEWEST)
    present = {each.record.key: each.record for each in changes}
    for now_s, change in enumerate(changes):
        log.newest.append(change)
        if len(log.newest) >= log.due:
            log.arrange(present, now_s * WAIT_S)

    assert log.packed_bytes == 0
    assert log.after(0) == changes
    assert all(mine is given for mine, given in zip(log.after(0), changes, strict=True))


def test_at_most_two_blocks_are_packed_at_once(monkeypatch):
    changes, _ = changes_from([("a", False)] * (10 * BLOCK))
    log = ChangeLog(BLOCK, NEWEST)
    log.newest += changes
    log._filled.extend([0.0] * 9)
    packed = []
    monkeypatch.setattr(change_log, "pack", lambda each: packed.append(each) or pack(each))

    log.arrange({}, 0.0)

    assert len(packed) == 2


def a_packed_store(monkeypatch, steps):
    monkeypatch.setattr(change_log.ChangeLog.__init__, "__defaults__", (BLOCK, NEWEST))
    _, store = changes_from(steps)
    assert store._tables["pods"].changes.packed_bytes
    return store


STEPS_OF_THREE = [(name, round_ == 5 and name == "b") for round_ in range(9) for name in "abc"]


def test_reads_at_an_old_version_are_the_same_when_it_is_packed(monkeypatch):
    _, plain = changes_from(STEPS_OF_THREE)
    packed = a_packed_store(monkeypatch, STEPS_OF_THREE)

    for rv in range(plain.rv + 1):
        assert packed.select("pods", Selection(), at=rv) == plain.select("pods", Selection(), at=rv)
        assert packed.get_at("pods", "default", "b", rv) == plain.get_at("pods", "default", "b", rv)
        assert packed.changes_after("pods", rv) == plain.changes_after("pods", rv)
    assert packed.changes_of("pods", "default", "b") == plain.changes_of("pods", "default", "b")
    assert DELETED in {each.type for each in packed.changes_of("pods", "default", "b")}


def test_packed_changes_get_new_fields_when_the_kind_does(monkeypatch):
    packed = a_packed_store(monkeypatch, STEPS_OF_THREE)
    fields = {"status.phase": lambda document: document["status"]["phase"]}

    packed.reindex(replace(PODS, selectable_fields=fields))

    first = packed.changes_after("pods", 0)[0]
    assert first.record.fields == {"status.phase": "Running-0"}


def test_a_block_is_much_smaller_than_its_bodies():
    changes, _ = changes_from([("a", False)] * 128)

    assert len(pack(changes)) * 5 < sum(len(each.record.body) for each in changes)
