"""Event logs are read as they lie there, whatever is missing, and followed while they grow."""

import pytest

from services.telemetry.event_reader import Filter, Follower, last, object_asked_for, read_all
from services.telemetry.eventlog import Line, encode


def line(seq, ev="sched.attempt", comp="scheduler", kind="Pod", name="web-0", ns="shop", node="n1", second=0):
    obj = {"kind": kind, "ns": ns, "name": name, "uid": "u"} if kind else None
    return Line(1, seq, seq, f"2026-01-01T00:00:{second:02}.000000Z", comp, "0", ev, obj=obj, node=node)


@pytest.mark.parametrize(
    ("asked", "takes"),
    [
        ({}, True),
        ({"events": ("sched.*",)}, True),
        ({"events": ("kubelet.*", "sched.attempt")}, True),
        ({"events": ("kubelet.*",)}, False),
        ({"components": ("scheduler",)}, True),
        ({"components": ("sched",)}, False),
        ({"node": "n*"}, True),
        ({"node": "n2"}, False),
        ({"namespace": "shop"}, True),
        ({"namespace": "default"}, False),
        (object_asked_for("pod/web-*"), True),
        (object_asked_for("Pod/web-0"), True),
        (object_asked_for("node/web-0"), False),
        (object_asked_for("web-0"), True),
        (object_asked_for("pod/web"), False),
    ],
)
def test_a_filter_takes_what_is_asked_for(asked, takes):
    assert Filter(**asked).takes(line(1)) is takes


def test_a_component_stands_for_its_hosts_and_a_line_about_nothing_has_no_name():
    assert Filter(components=("kubelet",)).takes(line(1, comp="kubelet/h0"))
    assert not Filter(name="*").takes(line(1, kind=""))


def test_files_are_merged_by_time_and_what_cannot_be_read_is_left_out(tmp_path):
    first, second = line(1, second=1), line(2, comp="kubelet/h0", second=2)
    third, torn = line(7, second=3), encode(line(8, second=4))[:-9]
    (tmp_path / "scheduler-0.jsonl").write_bytes(encode(first) + b"{nonsense}\n" + encode(third) + torn)
    (tmp_path / "kubelet_h0-0.jsonl").write_bytes(encode(second))

    assert list(read_all(tmp_path)) == [first, second, third]
    assert list(read_all(tmp_path, "2026-01-01T00:00:02")) == [second, third]


def test_the_last_lines_are_the_last_of_all(tmp_path):
    lines = [line(number) for number in range(5)]

    assert list(last(iter(lines), 2)) == lines[3:]
    assert list(last(iter(lines), 0)) == []
    assert list(last(iter(lines), -1)) == lines


def test_a_follower_sees_what_is_added_whole_in_old_and_new_files(tmp_path):
    path = tmp_path / "scheduler-0.jsonl"
    path.write_bytes(encode(line(1)))
    follower = Follower(tmp_path)
    added, half = encode(line(2, second=2)), encode(line(3, second=3))
    with path.open("ab") as file:
        file.write(added + half[:5])
    (tmp_path / "scheduler-1.jsonl").write_bytes(encode(line(1, second=1)))

    first = follower.poll()
    with path.open("ab") as file:
        file.write(half[5:])

    assert [(each.seq, each.wall[17:19]) for each in first] == [(1, "01"), (2, "02")]
    assert [each.seq for each in follower.poll()] == [3]
    assert follower.poll() == []
