import pytest

from lab.explore.moments import EventError, moments, nameable, parse_event
from services.telemetry.eventlog import Line


def line(ev, name="", *, at_s=1.0, kind="Pod", ns="default", comp="scheduler", node="", **data):
    obj = {"kind": kind, "ns": ns, "name": name, "uid": "u"} if name else None
    return Line(1, 1, int(at_s * 1e9), "", comp, "0", ev, obj=obj, node=node, data=data)


LOG = [
    line("sched.bind_call", "a", at_s=1.0, node="n1"),
    line("sched.bind_call", "b", at_s=2.0, node="n2"),
    line("sched.bind_result", "b", at_s=2.1, outcome="ok"),
    line("sched.bind_call", "a", at_s=3.0, node="n2"),
    line("proc.start", at_s=0.1, comp="kubelet/h0"),
]


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("sched.bind_call", [1.0, 2.0, 3.0]),
        ("ev=sched.bind_call,obj=a", [1.0, 3.0]),
        ("obj=default/a,ev=sched.bind_call", [1.0, 3.0]),
        ("sched.bind_call,obj=Pod default/b", [2.0]),
        ("sched.bind_call,obj=pod/b", [2.0]),
        ("sched.bind_call,node=n2", [2.0, 3.0]),
        ("sched.bind_call,node=n?,n=2", [2.0]),
        ("sched.bind_result,data.outcome=ok", [2.1]),
        ("proc.start,comp=kubelet/*", [0.1]),
    ],
)
def test_an_event_means_the_lines_that_pass_every_filter(text, at_s):
    assert at_s == [found.mono_ns / 1e9 for found in moments(parse_event(text), LOG)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sched.bind_cal", "did you mean sched.bind_call"),
        ("bind", "did you mean sched.bind_call, sched.bind_result"),
        ("sched.bind_call,obj=c", "they are about default/a, default/b"),
        ("sched.bind_call,n=4", "it happens 3 times, there is no number 4"),
    ],
)
def test_what_does_not_happen_is_an_error_that_says_what_does(text, says):
    with pytest.raises(EventError, match=says):
        moments(parse_event(text), LOG)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("obj=a", "want an event"),
        ("sched.bind_call,pod=a", "no filter 'pod'; there are: comp, identity, node, obj, data.KEY, n"),
        ("sched.bind_call,n=0", "want a number from 1"),
        ("sched.bind_call,kubelet.start", "want one event"),
    ],
)
def test_an_event_that_cannot_be_read_says_what_is_wanted(text, says):
    with pytest.raises(EventError, match=says):
        parse_event(text)


def test_the_list_has_each_event_once_with_its_count_and_first_time():
    first = nameable(LOG)[1]

    assert (first.name, first.count, first.first_s, first.components) == ("sched.bind_call", 3, 1.0, ("scheduler",))
    assert first.example == "Pod default/a"
