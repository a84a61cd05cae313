"""A watch stream held against the commit log: silent over a lawful one, and each breach has its rule's name."""

import random

import pytest

from lab.scenarios.invariants.check import Calm, Context
from lab.scenarios.invariants.i15_streams import Stream, StreamsAreTrue
from lab.scenarios.invariants.view import Table, View, matcher
from services.api.switches import Switches
from services.api.wire import WatchEvent, WatchRequest
from services.telemetry.eventlog import Line


def _view(*changes):
    """`changes`: (name, type, node) a commit, from version 1 on."""
    view = View()
    for rv, (name, kind, node) in enumerate(changes, 1):
        obj = {"kind": "Pod", "ns": "default", "name": name, "uid": f"u-{name}"}
        data = {"type": kind, "node": node, "content_sha256": f"c{rv}"}
        view.take(Line(1, rv, rv, "", "apiserver", "i", "store.commit", rv=rv, obj=obj, data=data))
    return view


LIFE = (
    ("a", "ADDED", ""),
    ("a", "MODIFIED", "n1"),
    ("b", "ADDED", "n2"),
    ("a", "MODIFIED", ""),
    ("a", "MODIFIED", "n2"),
    ("b", "DELETED", "n2"),
)


def _stream(start=0, fields="", view=None):
    return Stream(view or _view(*LIFE), "Pod", matcher("", fields, ""), start)


def _report(stream, *events):
    wrong = []
    for kind, name, rv in events:
        wrong += (
            stream.mark(rv, ends_initial=name == "end")
            if kind == "BOOKMARK"
            else stream.event(kind, "default", name, rv, f"c{rv}")
        )
    return {text.partition(":")[0] for text in wrong}


ALL = [
    ("ADDED", "a", 1), ("MODIFIED", "a", 2), ("ADDED", "b", 3), ("MODIFIED", "a", 4), ("MODIFIED", "a", 5),
    ("DELETED", "b", 6), ("BOOKMARK", "", 6),
]  # fmt: skip


def test_an_unfiltered_stream_that_has_every_event_is_lawful():
    assert _report(_stream(), *ALL) == set()


def test_an_unbind_looks_like_a_removal_to_a_watch_on_the_node():
    lawful = [("ADDED", "a", 2), ("DELETED", "a", 4), ("BOOKMARK", "", 6)]
    elsewhere = [("ADDED", "b", 3), ("ADDED", "a", 5), ("DELETED", "b", 6)]

    assert _report(_stream(fields="spec.nodeName=n1"), *lawful) == set()
    assert _report(_stream(fields="spec.nodeName=n2"), *elsewhere) == set()
    assert _report(_stream(fields="spec.nodeName=n1"), ("ADDED", "a", 2), ("MODIFIED", "a", 4)) == {"W9"}


def test_w1_an_event_or_a_bookmark_that_is_not_newer():
    assert _report(_stream(), ("ADDED", "a", 1), ("MODIFIED", "a", 2), ("MODIFIED", "a", 2)) == {"W1"}
    assert _report(_stream(), ("ADDED", "a", 1), ("BOOKMARK", "", 1), ("BOOKMARK", "", 0)) == {"W1"}


def test_w2_a_stream_that_resumes_below_what_its_chain_has():
    assert _chain("3", "4") == []
    assert _chain("3", "2") == ["W2: app as user:ann on pods resumed from 2 after it had events up to 4"]


def _chain(first, second):
    """Follow all pods from `first` up to version 4, then resume from `second`; return what is said of the second."""
    said, view = [], _view(*LIFE)
    view.kinds["pods"] = "Pod"
    check = StreamsAreTrue(Context(Switches(), view, Calm()))
    watch = {"component": "app", "incarnation": 1, "user": "user:ann", "say": lambda objects, text: said.append(text)}
    number = check.on_watch_opened(**watch, request=WatchRequest(resource="pods", resource_version=first))
    event = WatchEvent(type="MODIFIED", resource="pods", namespace="default", name="a", rv=4)
    check.on_watch_events(number, [event], lambda objects, text: None)
    check.on_watch_closed(number)
    check.on_watch_opened(**watch, request=WatchRequest(resource="pods", resource_version=second))
    return said


def test_w3_an_event_that_was_left_out():
    assert _report(_stream(), ("ADDED", "a", 1), ("ADDED", "b", 3)) == {"W3"}


def test_w6_a_bookmark_that_speaks_of_what_was_not_delivered_or_is_not_there_yet():
    assert _report(_stream(), ("ADDED", "a", 1), ("BOOKMARK", "", 2)) == {"W6"}
    assert _report(_stream(6), ("BOOKMARK", "", 7)) == {"W6"}


def test_w8_an_event_of_a_version_or_an_object_that_is_not_stored():
    assert _report(_stream(6), ("ADDED", "c", 7)) == {"W8"}
    assert _report(_stream(), ("ADDED", "b", 1)) == {"W8"}


def test_w9_a_change_that_comes_as_another_type():
    assert _report(_stream(), ("MODIFIED", "a", 1)) == {"W9"}


def test_w10_an_event_at_or_below_the_start():
    assert _report(_stream(3), ("ADDED", "b", 3)) == {"W10"}


def test_w15_a_change_of_an_object_that_is_thinned_away():
    """Two changes of one object sent as one: what is missing is found as W3 finds it."""
    assert _report(_stream(3), ("MODIFIED", "a", 5)) == {"W3"}


def test_w4_a_bookmark_inside_a_group():
    view = View()
    for rv in (1, 2):
        obj = {"kind": "Pod", "ns": "default", "name": f"p{rv}", "uid": f"u{rv}"}
        data = {"type": "ADDED", "node": "", "content_sha256": f"c{rv}", "group_end": 2}
        view.take(Line(1, rv, rv, "", "apiserver", "i", "store.commit", rv=rv, obj=obj, data=data))

    assert _report(_stream(view=view), ("ADDED", "p1", 1), ("BOOKMARK", "", 1)) == {"W4"}


def test_w7_an_event_of_an_object_that_was_never_selected():
    assert _report(_stream(fields="spec.nodeName=n9"), ("ADDED", "a", 2)) == {"W7"}


def test_w8_another_content_than_is_stored():
    assert _stream().event("ADDED", "default", "a", 1, "c9") != []


def test_w12_the_state_of_a_streaming_start_is_that_of_its_bookmark():
    complete = [("ADDED", "a", 5), ("BOOKMARK", "end", 6)]
    older = [("ADDED", "a", 2), ("ADDED", "b", 3), ("BOOKMARK", "end", 3), ("MODIFIED", "a", 4)]

    assert _report(_stream(None), *complete) == set()
    assert _report(_stream(None), *older) == set()
    assert _report(_stream(None), ("BOOKMARK", "end", 6)) == {"W12"}
    assert _report(_stream(None), ("ADDED", "a", 4), ("BOOKMARK", "end", 6)) == {"W12"}
    assert _report(_stream(None), ("ADDED", "a", 5), ("ADDED", "b", 3), ("BOOKMARK", "end", 6)) == {"W12"}


def test_a_selector_that_commit_lines_do_not_show_leaves_only_the_order_to_be_judged():
    labelled = Stream(_view(*LIFE), "Pod", matcher("", "", "app=web"), 0)

    assert _report(labelled, ("ADDED", "a", 2), ("ADDED", "b", 1)) == {"W1"}


def _course(seed):
    """Return changes of pods that come, go and move between nodes."""
    chance, places = random.Random(seed), {}
    changes = []
    for _ in range(120):
        name = chance.choice("abcdef")
        if name not in places:
            kind, places[name] = "ADDED", chance.choice(("", "n1", "n2"))
        elif chance.random() < 0.3:
            kind = "DELETED"
        else:
            kind, places[name] = "MODIFIED", chance.choice(("", "n1", "n2", places[name]))
        changes.append((name, kind, places[name] if kind != "DELETED" else places.pop(name)))
    return changes


@pytest.mark.parametrize("window", [20, 1000])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fields", ["", "spec.nodeName=n1", "spec.nodeName=n2,metadata.name=a", "spec.nodeName!=n1"])
def test_what_a_table_finds_by_node_is_what_it_finds_in_all_changes(fields, seed, window):
    matches, whole = matcher("", fields, ""), Table(10_000)
    view = View(window)
    for name, kind, node in _course(seed):
        rv = view.rv + 1
        obj = {"kind": "Pod", "ns": "default", "name": name, "uid": f"u-{name}"}
        data = {"type": kind, "node": node}
        view.take(Line(1, rv, rv, "", "apiserver", "i", "store.commit", rv=rv, obj=obj, data=data))
        whole.add(view.commit)
        table = view.tables["Pod"]
        for since in range(table.oldest_rv, rv + 1, 7):
            start, end = table.position_after(since), table.position_after(rv)
            concerned = [each.rv for each in table.between(start, end, matches) if each.seen_by(matches)]
            assert [each.rv for each in whole.changes if each.rv > since and each.seen_by(matches)] == concerned
            stored = {(e.content.namespace, e.content.name): e.after for e in whole.changes if e.rv <= since}
            assert {key: each for key, each in stored.items() if each and matches(each)} == table.at(since, matches)


def test_a_stream_of_one_node_looks_at_no_changes_of_others():
    changes = [(f"p{i}", "ADDED", f"n{i % 50}") for i in range(500)]
    table = _view(*changes).tables["Pod"]

    looked_at = table.between(0, 500, matcher("", "spec.nodeName=n7", ""))

    assert ["n7"] * 10 == [each.content.node for each in looked_at]
