"""Judges what clients were answered against the store's log of changes, and without it (guarantees 12.4, T-LIN).

A history is one dict a call: `client, call_ns, return_ns (None: never), op (create|update|patch|delete|get|list|event), key,
token, expected, rv, sha, items, outcome (ok|fail|unknown), code`. `key` is `resource/namespace/name`. Converted to Porcupine's
form a line is an operation: its client, input (op, key, token, expected), call time, output (rv, sha), return time.
"""

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Line = dict[str, Any]
WRITES = ("create", "update", "patch", "delete")
LIMIT_S = 60.0
FOREVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Row:
    """One change of the log. `token`: what its request left in the object, "" for a removal and for others' writes."""

    rv: int
    type: str
    group_end: int
    previous_rv: int
    key: str
    sha: str
    token: str = ""


@dataclass
class Result:
    """What is wrong, one sentence each, and what was looked at."""

    violations: list[str] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Add a violation; the first hundred are enough to find the fault."""
        if len(self.violations) < 100:
            self.violations.append(text)


def judge(rows: Sequence[Row], history: Sequence[Line], *, is_ours: Callable[[str], bool]) -> Result:
    """Hold a history against the log; `is_ours`: whether all writes of a key are in the history."""
    result = Result()
    log = {row.rv: row for row in rows}
    _replay(rows, result)
    _writes(rows, log, history, is_ours, result)
    _reads(rows, log, history, result)
    _real_time(log, history, result)
    return result


# -- (a) the log alone


def _replay(rows: Sequence[Row], result: Result) -> None:
    """Versions are dense, groups are whole, and each change follows the version of its object that was there (S3, S4)."""
    there: dict[str, int] = {}
    before = 0
    for row in rows:
        if row.rv != before + 1:
            result.note(f"S3: change {row.rv} follows {before}")
        before = row.rv
        if there.get(row.key, 0) != row.previous_rv:
            result.note(
                f"S14: change {row.rv} of {row.key} follows {row.previous_rv}, {there.get(row.key, 0)} was there"
            )
        if (row.type == "ADDED") != (row.key not in there):
            result.note(f"S14: change {row.rv} of {row.key} is {row.type}")
        if row.type == "DELETED":
            there.pop(row.key, None)
        else:
            there[row.key] = row.rv
    ends = {row.rv: row.group_end for row in rows}
    for row in rows:
        if any(ends.get(rv) != row.group_end for rv in range(row.rv, row.group_end + 1)):
            result.note(f"S4: the group of change {row.rv} ends at {row.group_end} and is not whole")
    result.checked["changes"] = len(rows)
    result.checked["groups"] = sum(row.group_end == row.rv and ends.get(row.rv - 1) == row.rv for row in rows)


# -- each write once


def _writes(
    rows: Sequence[Row], log: dict[int, Row], history: Sequence[Line], is_ours: Callable[[str], bool], result: Result
) -> None:
    """Every acknowledged write is in the log at its version with its content; every other change is a write whose outcome is
    unknown, once; a refused one left nothing (S1, S6, S9, I13, I14)."""
    calls: dict[str, list[Line]] = defaultdict(list)
    deletes: dict[str, list[Line]] = defaultdict(list)
    acknowledged: dict[int, str] = {}
    for line in history:
        if line["op"] not in WRITES:
            continue
        calls[line["token"]].append(line)
        if line["op"] == "delete":
            deletes[line["key"]].append(line)
        result.checked[line["outcome"]] = result.checked.get(line["outcome"], 0) + 1
        if line["outcome"] != "ok":
            continue
        row = log.get(line["rv"])
        said = f"{line['op']} {line['key']} ({line['token']}) acknowledged at {line['rv']}"
        if row is None:
            result.note(f"I13: lost: {said}, the log ends at {rows[-1].rv if rows else 0}")
        elif row.key != line["key"] or line["sha"] not in ("", row.sha):
            result.note(
                f"I13: {said} is {row.type} {row.key} ({row.token}) in the log: its version was given out twice"
            )
        elif acknowledged.setdefault(row.rv, line["token"]) != line["token"]:
            result.note(f"I14: {said}, as was {acknowledged[row.rv]}")
    found: dict[str, int] = {}
    for row in rows:
        if not is_ours(row.key):
            continue
        if row.type == "DELETED":
            may = [line for line in deletes[row.key] if line["outcome"] == "unknown" or line.get("rv") == row.rv]
            said = f"I14: phantom: no client has deleted {row.key} (change {row.rv})"
        else:
            may = [line for line in calls[row.token] if line["outcome"] == "unknown" or line.get("rv") == row.rv]
            said = f"I14: phantom: change {row.rv} of {row.key} has the token {row.token!r} of no such write"
            if row.token in found:
                result.note(f"S9: write {row.token} is in the log twice: {found[row.token]} and {row.rv}")
            found[row.token] = row.rv
        if not may:
            result.note(said)


# -- (b) reads


def _reads(rows: Sequence[Row], log: dict[int, Row], history: Sequence[Line], result: Result) -> None:
    """Every get, list and event shows what the log has at its version; no version in the middle of a group is shown; a
    watch delivers each change of its kind once and in order (S2, S4, S10)."""
    lists = sorted(
        (line for line in history if line["op"] == "list" and line["outcome"] == "ok"), key=lambda a: a["rv"]
    )
    there: dict[str, dict[str, int]] = defaultdict(dict)
    place = 0
    for line in lists:
        while place < len(rows) and rows[place].rv <= line["rv"]:
            row = rows[place]
            folder, _, name = row.key.rpartition("/")
            if row.type == "DELETED":
                there[folder].pop(name, None)
            else:
                there[folder][name] = row.rv
            place += 1
        if line["rv"] not in log:
            result.note(f"S2: a list shows version {line['rv']}, which is not in the log")
        elif log[line["rv"]].group_end != line["rv"]:
            result.note(f"S4: a list shows version {line['rv']}, in the middle of a group")
        elif dict(line["items"]) != there[line["key"].rpartition("/")[0]]:
            result.note(f"S10: the list of {line['key']} at {line['rv']} differs from the log")
    result.checked["lists"] = len(lists)
    _single_reads(rows, log, history, result)


def _single_reads(rows: Sequence[Row], log: dict[int, Row], history: Sequence[Line], result: Result) -> None:
    folders: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        folders[row.key.rpartition("/")[0]].append(row.rv)
    at: dict[str, int] = {}
    for line in history:
        op, client = line["op"], line["client"]
        row = log.get(line.get("rv") or 0)
        if op == "get" and line["outcome"] == "ok":
            result.checked["gets"] = result.checked.get("gets", 0) + 1
            if row is None or (row.key, row.sha) != (line["key"], line["sha"]):
                result.note(f"S2: get {line['key']} shows {line['rv']}, which the log has not")
        elif op == "follow":
            at[client] = line["rv"]
        elif op == "error":
            result.note(f"W5: the watch of {client} from {line['from']} was refused with {line['code']}")
        elif op == "event" and line["type"] == "BOOKMARK":
            if row is None or row.group_end != row.rv:
                result.note(f"W4: a bookmark of {client} has version {line['rv']}")
        elif op == "event":
            result.checked["events"] = result.checked.get("events", 0) + 1
            if row is None or (row.key, row.sha, row.type) != (line["key"], line["sha"], line["type"]):
                result.note(f"S2: {client} was sent {line['type']} {line['key']} at {line['rv']}; the log has {row}")
                continue
            changes = folders[row.key.rpartition("/")[0]]
            due = bisect_right(changes, at[client])
            if due == len(changes) or changes[due] != row.rv:
                result.note(f"W3: {client} was sent {row.rv} of {row.key} after {at[client]}")
            at[client] = row.rv


# -- (c) real time


def _real_time(log: dict[int, Row], history: Sequence[Line], result: Result) -> None:
    """What was answered before a call began is not newer than what the call shows, and older than what it wrote (S5, S13)."""
    owners = {row.token: row.rv for row in log.values() if row.token}
    calls: list[tuple[int, int, Line]] = []
    returns: list[tuple[int, int]] = []
    for line in history:
        outcome = line.get("outcome")
        rv = line.get("rv") if outcome == "ok" else None
        if outcome == "unknown" and line["op"] in WRITES:
            rv = owners.get(line["token"])
            if rv is not None:
                calls.append((line["call_ns"], rv, line))
            continue
        if rv is None:
            continue
        returns.append((line["return_ns"], rv))
        if line["op"] in WRITES or line["op"] == "list":
            calls.append((line["call_ns"], rv, line))
    returns.sort()
    calls.sort(key=lambda each: each[0])
    newest = place = 0
    for called_ns, rv, line in calls:
        while place < len(returns) and returns[place][0] < called_ns:
            newest = max(newest, returns[place][1])
            place += 1
        if line["op"] in WRITES and rv <= newest:
            result.note(f"S5: {line['op']} {line['key']} is change {rv}; before it was called {newest} was answered")
        if line["op"] == "list" and rv < newest:
            result.note(f"S13: a list of {line['key']} shows {rv}; before it was asked for {newest} was answered")
    result.checked["ordered"] = len(calls)


# -- without the log


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of one key. `effect`: the state it leaves (None: absent), `needs`: what must be there before; `KEEPS` for a
    read. `is_open`: it may never have happened."""

    call_ns: int
    return_ns: int
    needs: Callable[[str | None], bool]
    effect: Callable[[str | None], str | None]
    is_open: bool
    line: Line


def operations_of(history: Sequence[Line]) -> dict[str, list[Operation]]:
    """Return the calls by key, as operations on a register that holds the token of the last write, or nothing."""
    tokens = {line["rv"]: line["token"] for line in history if line["op"] in WRITES and line["outcome"] == "ok"}
    settled = {line["token"] for line in history if line.get("request_id") and line["outcome"] != "unknown"}
    found: dict[str, list[Operation]] = defaultdict(list)
    for line in history:
        op, outcome = line["op"], line.get("outcome")
        if op not in (*WRITES, "get") or (op == "get" and outcome == "unknown"):
            continue
        if outcome == "unknown" and line["token"] in settled:
            continue  # repeated under its request id; the answer of the last time stands for all
        token = line["token"]
        is_open = outcome == "unknown"
        needs: Callable[[str | None], bool] = _anything
        effect: Callable[[str | None], str | None] = _same
        if op == "get" and outcome == "ok":
            if line["rv"] not in tokens:
                continue  # a write whose outcome is unknown; the log judges it
            needs = _exactly(tokens[line["rv"]])
        elif (op == "get" or op in ("delete", "patch", "update")) and line.get("code") == 404:
            needs = _exactly(None)
        elif outcome == "fail" and op == "create" and line.get("code") == 409:
            needs = _present
        elif outcome == "fail":
            if op == "update" and line.get("code") == 409 and line["expected"] in tokens:
                needs = _other_than(tokens[line["expected"]])
        elif op == "create":
            needs, effect = _exactly(None), _to(token)
        elif op == "update":
            if line["expected"] in tokens:
                needs = _exactly(tokens[line["expected"]])
            effect = _to(token)
        elif op == "patch":
            needs, effect = _present, _to(token)
        elif op == "delete":
            needs, effect = _present, _to(None)
        end = FOREVER if is_open or line["return_ns"] is None else line["return_ns"]
        found[line["key"]].append(Operation(line["call_ns"], end, needs, effect, is_open, line))
    return found


def _anything(_: str | None) -> bool:
    return True


def _same(state: str | None) -> str | None:
    return state


def _present(state: str | None) -> bool:
    return state is not None


def _exactly(wanted: str | None) -> Callable[[str | None], bool]:
    return lambda state: state == wanted


def _other_than(unwanted: str | None) -> Callable[[str | None], bool]:
    return lambda state: state != unwanted


def _to(state: str | None) -> Callable[[str | None], str | None]:
    return lambda _: state


def is_linearizable(
    operations: Sequence[Operation], *, start: str | None = None, limit_s: float = LIMIT_S
) -> bool | None:
    """Whether some order of the operations, compatible with real time, explains every answer; None: not within the limit.

    The search of Wing and Gong with Lowe's memory of (what is done, state). An operation that is open may come at any time
    after its call, or never.
    """
    closed = sorted((each for each in operations if not each.is_open), key=lambda each: (each.call_ns, each.return_ns))
    opened = sorted((each for each in operations if each.is_open), key=lambda each: each.call_ns)
    deadline = time.monotonic() + limit_s
    # First that is not done; done ones behind it; open ones that happened; state.
    begin: Point = (0, frozenset(), frozenset(), start)
    seen = {begin}
    stack = [_after(begin, closed, opened)]
    while stack:
        if time.monotonic() > deadline:
            return None
        point = next(stack[-1], None)
        if point is None:
            stack.pop()
        elif point[0] == len(closed):
            return True
        elif point not in seen:
            seen.add(point)
            stack.append(_after(point, closed, opened))
    return not closed


Point = tuple[int, frozenset[int], frozenset[int], str | None]


def _after(point: Point, closed: Sequence[Operation], opened: Sequence[Operation]) -> Iterator[Point]:
    """Yield where one more operation leads: first those that must have happened, in the order of their answers."""
    first, beyond, happened, state = point
    window: list[int] = []
    earliest = FOREVER
    for place in range(first, len(closed)):
        if closed[place].call_ns > earliest:
            break
        if place not in beyond:
            window.append(place)
            earliest = min(earliest, closed[place].return_ns)
    for place in sorted(window, key=lambda each: closed[each].return_ns):
        if closed[place].needs(state):
            after, rest = first, beyond | {place}
            while after in rest:
                rest -= {after}
                after += 1
            yield after, rest, happened, closed[place].effect(state)
    for place, each in enumerate(opened):
        if each.call_ns > earliest:
            break
        if place not in happened and each.needs(state):
            yield first, beyond, happened | {place}, each.effect(state)


def second_opinion(history: Sequence[Line], *, limit_s: float = LIMIT_S) -> dict[str, list[str]]:
    """Search each key's calls without the log; return the keys by what was found: legal, illegal, undecided."""
    found: dict[str, list[str]] = {"legal": [], "illegal": [], "undecided": []}
    for key, operations in operations_of(history).items():
        answer = is_linearizable(operations, limit_s=limit_s)
        found["undecided" if answer is None else "legal" if answer else "illegal"].append(key)
    return found
