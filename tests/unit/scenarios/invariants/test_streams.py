"""A watch stream held against the commit log: silent over a lawful one, and each breach has its rule's name."""

import pytest

from services.scenarios.invariants.i15_streams import Stream
from services.scenarios.invariants.view import View, matcher
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


@pytest.mark.parametrize(
    ("rule", "start", "events"),
    [
        ("W1", 0, [("ADDED", "a", 1), ("MODIFIED", "a", 2), ("MODIFIED", "a", 2)]),
        ("W1", 0, [("ADDED", "a", 1), ("BOOKMARK", "", 1), ("BOOKMARK", "", 0)]),
        ("W3", 0, [("ADDED", "a", 1), ("ADDED", "b", 3)]),
        ("W6", 0, [("ADDED", "a", 1), ("BOOKMARK", "", 2)]),
        ("W6", 6, [("BOOKMARK", "", 7)]),
        ("W8", 6, [("ADDED", "c", 7)]),
        ("W8", 0, [("ADDED", "b", 1)]),
        ("W9", 0, [("MODIFIED", "a", 1)]),
        ("W10", 3, [("ADDED", "b", 3)]),
    ],
)
def test_a_breach_has_the_name_of_its_rule(rule, start, events):
    assert _report(_stream(start), *events) == {rule}


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
