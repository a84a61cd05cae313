"""What watches begin with is made once for all of them, and is for each exactly what it selects."""

import gc
import random
from itertools import pairwise

import msgspec
import pytest

from apiserver_fake.storage import backlog, change_log
from apiserver_fake.storage.backlog import PIECE_ITEMS, SMALL, Backlogs
from apiserver_fake.storage.change_log import BLOCK
from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Store
from apiserver_fake.storage.watch_events import event_for, transition_type
from services.api.resources import resources

PODS = resources()["pods"]
EVERYTHING = Selection()


class World:
    """A store of pods in two namespaces, and what watches of it begin with."""

    def __init__(self, count, **store):
        self.store, self.dice = Store(**store), random.Random(count)
        self.backlogs = Backlogs(self.store)
        self.names = [(f"ns{i % 2}", f"p{i:05d}") for i in range(count)]
        self.put(*self.names)

    def put(self, *names, node="", labels=None):
        staged = self.store.stage()
        for namespace, name in names:
            meta = {"name": name, "namespace": namespace, "uid": name, "labels": labels or {"app": name[-1]}}
            staged.put(PODS, {"metadata": meta, "spec": {"nodeName": node}})
        self.store.publish(staged.changes, 0.0)

    def remove(self, namespace, name):
        staged = self.store.stage()
        staged.remove(PODS, msgspec.json.decode(self.store.get("pods", namespace, name).body))
        self.store.publish(staged.changes, 0.0)

    def change(self):
        namespace, name = self.dice.choice(self.names)
        if self.store.get("pods", namespace, name) is not None and self.dice.random() < 0.4:
            self.remove(namespace, name)
        else:
            self.put((namespace, name), node=self.dice.choice(["", "n1"]))

    def state(self, selection=EVERYTHING):
        return self.backlogs.state("pods", selection, ())

    def missed(self, after, selection=EVERYTHING):
        return self.backlogs.backlog_after("pods", selection, after)


def selection_of(text):
    namespace, _, labels = text.partition("/")
    return Selection.parse(PODS, namespace, labels, "")


def pieces_of(found):
    while found:
        if piece := found.piece():
            yield piece


def shown(found):
    return [(event.type, event.name, event.rv, event.body) for piece in pieces_of(found) for event in piece]


def stored(world, selection):
    records = world.store.select("pods", selection).records
    return [("ADDED", record.name, record.rv, record.body) for record in records]


@pytest.mark.parametrize("count", [10, SMALL, SMALL + 1, 2_000])
@pytest.mark.parametrize("text", ["", "ns0", "/app=3", "ns1/app in (1,5)", "ns2", "/app=none"])
def test_the_state_is_what_is_selected_in_key_order(count, text):
    world, selection = World(count), selection_of(text)
    held = world.state()
    next_one = world.state(selection)
    assert shown(next_one) == stored(world, selection)
    for _ in range(100):
        world.change()
        assert shown(world.state(selection)) == stored(world, selection)
    del held


@pytest.mark.parametrize("text", ["", "ns0", "/app=3", "/app=none"])
def test_the_changes_missed_are_those_above_the_version(text):
    world, selection = World(700, window_changes=1_500, window_s=0.0), selection_of(text)
    held = []
    for _ in range(40):
        for _ in range(world.dice.randrange(60)):
            world.change()
        after = world.dice.randrange(world.store.window_start, world.store.rv + 1)
        seen = [(transition_type(each, selection), each) for each in world.store.changes_after("pods", after)]
        events = [event_for(kind, each) for kind, each in seen if kind]
        found = world.missed(after, selection)
        if world.dice.random() < 0.5:
            held.append(world.missed(after, selection))
        assert ([] if found is None else shown(found)) == [(e.type, e.name, e.rv, e.body) for e in events]


@pytest.mark.parametrize("count", [SMALL, 3 * SMALL])
def test_batches_are_cut_by_number_and_bytes_wherever_pieces_end(count):
    world = World(count)
    events = [event for piece in pieces_of(world.state()) for event in piece]
    for events_max, bytes_max in ((500, 1 << 20), (70, 1 << 20), (1_000, 5_000), (1, 1), (5_000, 1 << 30)):
        found, batches = world.state(), []
        while batch := found.take(events_max, bytes_max):
            batches.append(batch)
        assert [event for batch in batches for event in batch] == events
        for batch, following in pairwise(batches):
            size = sum(len(event.body) for event in batch)
            assert len(batch) == 1 or (len(batch) <= events_max and size <= bytes_max)
            assert len(batch) == events_max or size + len(following[0].body) > bytes_max
        assert not found


def test_two_hundred_stalled_starts_hold_one_state():
    world = World(20 * PIECE_ITEMS)
    starts = [world.state() for _ in range(200)]

    first, last = list(pieces_of(starts[0])), list(pieces_of(starts[-1]))

    assert all(one is other for one, other in zip(first, last, strict=True))
    assert len(first) >= 20


def test_a_start_after_a_change_shares_all_but_the_piece_that_it_touches():
    world = World(20 * PIECE_ITEMS)
    before = list(pieces_of(world.state()))
    held = world.state()
    world.put(world.names[777], node="n9")

    after = list(pieces_of(world.state()))

    assert sum(a is not b for a, b in zip(pieces_of(held), after, strict=True)) == 1
    assert len(before) == len(after)


def test_a_piece_is_encoded_once_for_all_and_forgotten_with_the_last_start(monkeypatch):
    world, encoded = World(2 * SMALL), []
    one, two, held = world.state(), world.state(), world.state()

    def encode(event):
        encoded.append(event.name)
        return event.body

    texts = [[piece.encoded_bytes("form", encode) for piece in pieces_of(each)] for each in (one, two)]
    assert texts[0] == texts[1]
    assert len(encoded) == 2 * SMALL
    assert world.backlogs.shared.bytes == sum(map(len, texts[0]))

    assert held
    del one, two, held
    gc.collect()
    assert world.backlogs.shared.bytes == 0


def test_no_more_is_kept_encoded_than_may_be():
    world = World(2 * SMALL)
    world.backlogs.shared.bytes_max = 30_000
    one, two, held = world.state(), world.state(), world.state()

    texts = [
        [piece.encoded_bytes("form", lambda event: event.body) for piece in pieces_of(each)] for each in (one, two)
    ]

    assert texts[0] == texts[1]
    assert held
    assert 0 < world.backlogs.shared.bytes <= 30_000


def test_changes_that_left_the_window_are_forgotten_with_it():
    world = World(10, window_changes=2_000, window_s=0.0)
    for _ in range(700):
        world.change()
    held = world.missed(10)
    for _ in range(5):
        for _ in range(1_000):
            world.change()
        held = world.missed(world.store.window_start)

    assert sum(map(len, pieces_of(held))) == 2_000
    known = world.backlogs._missed.get("pods")
    assert known is None or sum(part.count for part in known.parts) <= 2_000 + 2 * PIECE_ITEMS


def test_old_changes_are_unpacked_as_a_watch_takes_them(monkeypatch):
    world = World(10)
    for _ in range(40 * BLOCK):
        world.change()
    unpacked, unpack = [], change_log.unpack
    monkeypatch.setattr(change_log, "unpack", lambda packed: unpacked.append(packed) or unpack(packed))

    found, other = world.missed(10), world.missed(10)
    begun = len(unpacked)
    found.piece()
    after_a_piece = len(unpacked)
    events = shown(found)
    blocks = len(unpacked)

    assert begun <= 4, "the block in which the version stands, which each of the two counts and reads"
    assert after_a_piece <= begun + 1
    assert blocks > 30
    assert shown(other)[-len(events) :] == events
    assert len(unpacked) == blocks, "the second watch takes the pieces of the first"


def test_large_objects_make_small_pieces(monkeypatch):
    monkeypatch.setattr(backlog, "PIECE_BYTES", 2_000)
    world = World(SMALL + 1)

    assert max(sum(len(event.body) for event in piece) for piece in pieces_of(world.state())) <= 2_000
