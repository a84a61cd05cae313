"""One kind as a watch brings it: a state that comes object by object, once more, or not to its end."""

import msgspec

from lab.recordings.model import Change, Model
from lab.ui.live import Feed
from services.client.discovery import ServedKind
from services.client.store import Item, Key
from tests.unit.recordings.histories import pod

PODS = ServedKind("Pod", "pods", "pod", (), "", "/api/v1", True, True)


class Followed:
    """A feed of pods, and the model that it fills."""

    def __init__(self):
        self.model, self.seen = Model(), []
        self.feed = Feed(PODS, self.take, self.model.keys)

    def take(self, kind, event):
        self.seen.append((event.type, event.name))
        body = event.body if event.type != "DELETED" else None
        change = Change(event.type, kind.title, kind.kind, event.namespace, event.name, event.uid, body)
        self.model.apply(max(event.rv, self.model.rv), 1.0, True, (change,))

    def state(self, *names, is_whole=True):
        self.feed.began()
        for name in names:
            body = msgspec.json.encode(pod(name, f"u-{name}"))
            self.feed.on_arrived(Item(Key("shop", name), 5, body))
        if is_whole:
            self.feed.on_replaced([], 10)

    @property
    def names(self):
        return sorted(name for _, name in self.model.keys("pods"))


def test_a_state_is_taken_object_by_object():
    followed = Followed()
    followed.state("a", "b")

    assert [("ADDED", "a"), ("ADDED", "b")] == followed.seen
    assert ["a", "b"] == followed.names
    assert followed.feed.has_synced


def test_what_a_later_state_lacks_is_gone():
    followed = Followed()
    followed.state("a", "b")
    followed.state("b", "c")

    assert [("MODIFIED", "b"), ("MODIFIED", "c"), ("DELETED", "a")] == followed.seen[2:]
    assert ["b", "c"] == followed.names


def test_of_a_state_that_did_not_end_what_the_next_lacks_is_gone():
    followed = Followed()
    followed.state("a", "b", is_whole=False)
    assert not followed.feed.has_synced
    followed.state("b")

    assert ["b"] == followed.names
    followed.state("b", "c", is_whole=False)
    followed.state("c")
    assert ["c"] == followed.names


def test_an_object_that_cannot_be_read_is_left_out():
    followed = Followed()
    followed.feed.began()
    followed.feed.on_arrived(Item(Key("shop", "a"), 5, b"[1]"))
    followed.feed.on_replaced([], 10)

    assert not followed.seen
