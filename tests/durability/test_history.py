"""The judge of histories judges: known-good ones pass, each known-bad one fails for its own reason (T-LIN, guarantees 12.4)."""

import json

import pytest

from tests.durability.history import Row, is_linearizable, judge, operations_of, second_opinion

KEY = "configmaps/crash/a"


def a_row(rv, token="", *, kind="MODIFIED", previous=0, key=KEY, end=0):
    return Row(rv, kind, end or rv, previous, key, f"sha{rv}", token)


def a_call(op, call, end, *, rv=0, token="", key=KEY, outcome="ok", client="w", **fields):
    shown = {"rv": rv, "sha": "" if op == "delete" else f"sha{rv}"} if outcome == "ok" else {}
    line = {"client": client, "call_ns": call, "return_ns": end, "op": op, "key": key, "token": token, **shown}
    return {**line, "outcome": outcome, **fields}


def an_event(rv, kind, client="v", key=KEY):
    return {
        "client": client,
        "op": "event",
        "key": key,
        "type": kind,
        "rv": rv,
        "sha": f"sha{rv}",
        "call_ns": 0,
        "return_ns": 0,
    }


ROWS = [
    a_row(1, "t1", kind="ADDED"),
    a_row(2, "t2", previous=1),
    a_row(3, "g", kind="ADDED", key="pods/groups/p", end=4),
    a_row(4, kind="ADDED", key="resourcequotas/groups/q", end=4),
    a_row(5, kind="DELETED", previous=2),
]
HISTORY = [
    {"client": "v", "op": "follow", "key": "configmaps/crash/", "rv": 1},
    a_call("create", 10, 20, rv=1, token="t1"),
    a_call("get", 15, 25, rv=1),
    a_call("update", 30, None, token="t2", expected=1, outcome="unknown"),
    a_call("create", 40, 50, rv=3, token="g", key="pods/groups/p"),
    a_call("list", 45, 60, rv=4, key="configmaps/crash/", items=[["a", 2]]),
    a_call("delete", 70, 80, rv=5, token="t3"),
    a_call("update", 90, 95, token="t4", expected=2, outcome="fail", code=404),
    an_event(2, "MODIFIED"),
    an_event(5, "DELETED"),
]  # fmt: skip


def judged(rows=ROWS, history=HISTORY):
    return judge(rows, history, is_ours=lambda key: not key.startswith("resourcequotas")).violations


def test_a_history_that_the_log_explains_is_legal():
    assert judged() == []


def with_line(number, **fields):
    return [{**line, **fields} if place == number else line for place, line in enumerate(HISTORY)]


def with_row(number, **fields):
    changed = {name: getattr(ROWS[number], name) for name in Row.__slots__} | fields
    return [Row(**changed) if place == number else row for place, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("rows", "history", "why"),
    [
        (ROWS[:4], HISTORY[:-1], "I13: lost: delete configmaps/crash/a"),
        (with_row(0, sha="other"), HISTORY, "its version was given out twice"),
        ([ROWS[0], *ROWS[2:]], HISTORY, "S3: change 3 follows 1"),
        (with_row(1, previous_rv=0), HISTORY, "S14: change 2 of configmaps/crash/a follows 0, 1 was there"),
        (with_row(0, type="MODIFIED"), HISTORY, "S14: change 1 of configmaps/crash/a is MODIFIED"),
        (with_row(3, group_end=5), HISTORY, "S4: the group of change 3"),
        (ROWS, [line for line in HISTORY if line.get("token") != "t2"], "I14: phantom: change 2"),
        (ROWS, with_line(3, outcome="fail", code=409), "I14: phantom: change 2"),
        (ROWS, [line for line in HISTORY if line["op"] != "delete"], "I14: phantom: no client has deleted"),
        (with_row(1, token="t1"), HISTORY, "S9: write t1 is in the log twice"),
        (ROWS, with_line(5, items=[["a", 1]]), "S10: the list of configmaps/crash/"),
        (ROWS, with_line(5, rv=3), "S4: a list shows version 3, in the middle of a group"),
        (ROWS, with_line(5, rv=9), "S2: a list shows version 9"),
        (ROWS, with_line(2, sha="sha2"), "S2: get configmaps/crash/a shows 1"),
        (ROWS, with_line(5, call_ns=85, return_ns=99), "S13: a list of configmaps/crash/ shows 4"),
        (ROWS, with_line(6, call_ns=1, return_ns=5), "S5: create configmaps/crash/a is change 1; before"),
        (ROWS, with_line(3, call_ns=65), "S5: update configmaps/crash/a is change 2; before it was called 4"),
        (ROWS, [*HISTORY[:-2], HISTORY[-1]], "W3: v was sent 5 of configmaps/crash/a after 1"),
        (ROWS, [*HISTORY, an_event(5, "DELETED")], "W3: v was sent 5"),
        (ROWS, with_line(8, type="ADDED"), "S2: v was sent ADDED"),
        (ROWS, [*HISTORY, {**an_event(3, "BOOKMARK"), "sha": ""}], "W4: a bookmark of v has version 3"),
        (ROWS, [*HISTORY, {"client": "v", "op": "error", "key": "", "code": 410, "from": "3"}], "W5: the watch of v from 3"),
    ],
)  # fmt: skip
def test_a_history_that_the_log_does_not_explain_is_illegal(rows, history, why):
    found = judged(rows, history)

    assert any(why in text for text in found), found


def searched(*calls):
    return is_linearizable(operations_of(list(calls))[KEY])


GOOD = {
    "one after the other": (
        a_call("create", 0, 1, rv=1, token="a"), a_call("get", 2, 3, rv=1), a_call("delete", 4, 5, rv=2, token="b"),
        a_call("get", 6, 7, outcome="fail", code=404),
    ),
    "a read during a write may see either": (
        a_call("create", 0, 1, rv=1, token="a"), a_call("patch", 2, 9, rv=2, token="b"), a_call("get", 3, 4, rv=1),
        a_call("get", 5, 6, rv=2),
    ),
    "of two updates of one version one wins": (
        a_call("create", 0, 1, rv=1, token="a"), a_call("update", 2, 5, rv=2, token="b", expected=1),
        a_call("update", 3, 6, token="c", expected=1, outcome="fail", code=409),
    ),
    "an open write may come late": (
        a_call("create", 0, 1, rv=1, token="a"), a_call("delete", 2, None, token="b", outcome="unknown"),
        a_call("get", 5, 6, rv=1), a_call("get", 7, 8, outcome="fail", code=404),
    ),
    "an open write may never come": (
        a_call("create", 0, 1, rv=1, token="a"), a_call("delete", 2, None, token="b", outcome="unknown"),
        a_call("get", 5, 6, rv=1),
    ),
    "a write that was repeated under its request id happened once": (
        a_call("create", 0, None, token="a", outcome="unknown", request_id="a"),
        a_call("create", 0, 9, rv=1, token="a", request_id="a"), a_call("get", 10, 11, rv=1),
    ),
}  # fmt: skip
BAD = {
    "a stale read": (
        a_call("create", 0, 1, rv=1, token="a"), a_call("patch", 2, 3, rv=2, token="b"), a_call("get", 4, 5, rv=1),
    ),
    "a lost write": (a_call("create", 0, 1, rv=1, token="a"), a_call("get", 2, 3, outcome="fail", code=404)),
    "two updates of one version both win": (
        a_call("create", 0, 1, rv=1, token="a"), a_call("update", 2, 5, rv=2, token="b", expected=1),
        a_call("update", 3, 6, rv=3, token="c", expected=1),
    ),
    "a name is made twice": (a_call("create", 0, 5, rv=1, token="a"), a_call("create", 1, 6, rv=2, token="b")),
    "reads go back": (
        a_call("create", 0, 1, rv=1, token="a"), a_call("patch", 2, 9, rv=2, token="b"), a_call("get", 3, 4, rv=2),
        a_call("get", 5, 6, rv=1),
    ),
    "a conflict without a cause": (
        a_call("create", 0, 1, rv=1, token="a"), a_call("update", 2, 3, token="b", expected=1, outcome="fail", code=409),
    ),
    "an open write comes before it was called": (
        a_call("create", 0, 1, rv=1, token="a"), a_call("get", 2, 3, outcome="fail", code=404),
        a_call("delete", 5, None, token="b", outcome="unknown"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_as_05_a_legal_history_of_one_key_has_an_order(name):
    assert searched(*GOOD[name]) is True


@pytest.mark.parametrize("name", BAD)
def test_as_05_an_illegal_history_of_one_key_has_none(name):
    assert searched(*BAD[name]) is False


def test_as_05_a_search_that_takes_too_long_is_undecided():
    calls = [a_call("create", 0, 1, rv=1, token="a")]
    calls += [a_call("patch", 2, None, token=f"u{n}", outcome="unknown") for n in range(30)]
    calls += [a_call("patch", 2, 90, rv=n + 2, token=f"p{n}") for n in range(12)]
    calls.append(a_call("get", 95, 96, outcome="fail", code=404))

    assert is_linearizable(operations_of(calls)[KEY], limit_s=0.2) is None


def test_as_05_a_long_history_with_many_open_writes_is_decided_quickly():
    calls, rv, now = [a_call("create", 0, 1, rv=1, token="t0")], 1, 2
    for step in range(3_000):
        if step % 20 == 0:
            calls.append(a_call("patch", now, None, token=f"u{step}", outcome="unknown"))
        rv += 1
        calls.append(a_call("update", now, now + 3, rv=rv, token=f"t{step + 1}", expected=rv - 1))
        calls.append(a_call("get", now + 1, now + 2, rv=rv - 1))
        now += 4

    assert is_linearizable(operations_of(calls)[KEY], limit_s=20.0) is True


def test_keys_are_judged_by_themselves_and_lines_survive_json():
    other = [{**line, "key": "configmaps/crash/b"} for line in BAD["a stale read"]]
    history = json.loads(json.dumps([*GOOD["one after the other"], *other]))

    assert second_opinion(history) == {"legal": [KEY], "illegal": ["configmaps/crash/b"], "undecided": []}
