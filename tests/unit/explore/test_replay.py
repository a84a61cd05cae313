"""A saved schedule is read as it was written, and what a held message was overtaken by."""

import msgspec
import pytest

from lab.explore.deliveries import Delivery
from lab.explore.recorder import Break, Finding, Recording, Trial
from lab.explore.replay import Replay, ReplayError, overtaken_by, read_replay, write_replay
from lab.explore.schedules import Hold

TRIAL = Trial("runaway.txt", 7, ("kubelet.on_reject=unbind",), (Hold("scheduler is shown pods/default/a #1", 0.5),))


class Result:
    digest = "d1g357"


def test_what_was_saved_is_what_is_read(tmp_path):
    broke = Break("I3", ("Pod default/a",), 1.5, "twice")
    found = Finding(broke, (), TRIAL.schedule, Recording(TRIAL, Result(), [broke], [], [], []))
    path = tmp_path / "schedule.json"
    path.write_text(write_replay(found, "sched.bind_call"))

    assert read_replay(path) == Replay(
        **msgspec.structs.asdict(TRIAL), around="sched.bind_call", broke="I3", digest="d1g357"
    )
    assert path.read_text().endswith("}\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "schedule.json: No such file"),
        ("{", "schedule.json: no schedule that `keplab explore --save` wrote"),
        ('{"seed": 1}', "no schedule .* `scenario`"),
        ('{"scenario": "a", "switches": ["kubelet.on_rejet=fail"]}', "did you mean kubelet.on_reject"),
    ],
)
def test_a_file_that_is_no_schedule_is_named_with_what_is_wrong(tmp_path, text, says):
    path = tmp_path / "schedule.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ReplayError, match=says):
        read_replay(path)


def a_delivery(
    name, due_s, arrives_s=None, *, about=("pods/default/a",), component="scheduler", way="watch", stream="w"
):
    arrives_s = due_s if arrives_s is None else arrives_s
    return Delivery((name,), component, way, stream, about, name, 0.0, due_s, arrives_s)


HELD = a_delivery("held", 1.0, 2.0)


def overtakers(*others):
    run = Recording(TRIAL, Result(), [], [HELD, *others], [HELD], [])
    return overtaken_by(run, Hold("held", 1.0))


def test_a_held_message_is_overtaken_by_what_arrived_at_its_receiver_meanwhile_on_another_stream():
    others = (
        a_delivery("before", 0.9, stream="x"),
        a_delivery("at once", 1.0, stream="x"),
        a_delivery("between", 1.5, stream="x"),
        a_delivery("as it arrived", 2.0, stream="x"),
        a_delivery("of its own stream", 1.5),
        a_delivery("elsewhere", 1.5, stream="x", component="kubelet/h0"),
        a_delivery("about nothing", 1.5, stream="x", about=()),
    )

    assert overtakers(*others) == "at once, between"


def test_what_is_about_the_same_object_is_named_first_then_pods_and_of_many_four():
    others = [a_delivery(f"n{number}", 1.1, stream="x", about=("nodes/n1",)) for number in range(3)]
    others += [a_delivery("observer's", 1.3, stream="x", about=("pods/default/b",))]
    others += [a_delivery("same", 1.4, stream="x"), a_delivery("same", 1.5, stream="x")]

    assert overtakers(*others) == "same, scenario's, n0, n1 and 1 more"
    assert overtakers() == ""


def test_a_hold_without_effect_was_overtaken_by_nothing():
    assert overtaken_by(Recording(TRIAL, Result(), [], [], [], []), Hold("held", 1.0)) == ""
