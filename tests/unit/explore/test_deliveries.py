from lab.explore.deliveries import Namer
from lab.explore.recorder import Recorder
from lab.explore.schedules import Hold
from services.api.errors import Conflict
from services.api.wire import Request, Response, WatchEvent

BIND = Request(verb="create", resource="pods", namespace="default", name="p", subresource="binding")


def change(kind, name="p"):
    return WatchEvent(type=kind, resource="pods", namespace="default", name=name, rv=7)


def test_a_call_and_its_answer_are_named_by_what_they_are_about_and_counted():
    namer = Namer()

    names = [
        namer.name("scheduler", "request", BIND, 1.0, 1.1).names,
        namer.name("scheduler", "reply", (BIND, Response(code=409)), 1.2, 1.3).names,
        namer.name("scheduler", "request", BIND, 2.0, 2.1).names,
        namer.name("scheduler-second", "request", BIND, 2.0, 2.1).names,
    ]

    assert names == [
        ("scheduler > create pods/default/p/binding #1",),
        ("scheduler < 409 create pods/default/p/binding #1",),
        ("scheduler > create pods/default/p/binding #2",),
        ("scheduler-second > create pods/default/p/binding #1",),
    ]


def test_an_object_that_gets_its_name_from_its_document_is_named_by_it():
    made = Request(verb="create", resource="pods", namespace="default", body=b'{"metadata":{"generateName":"web-"}}')

    assert Namer().name("controllers", "request", made, 0, 0).about == ("pods/default/web-",)


def test_a_batch_has_a_name_for_each_change_it_carries():
    batch = Namer().name("kubelet/h0", "watch", [change("ADDED"), change("DELETED", "q")], 0, 0)

    assert batch.names == ("kubelet/h0 < ADDED pods/default/p #1", "kubelet/h0 < DELETED pods/default/q #1")
    assert (batch.sender, batch.receiver) == ("apiserver", "kubelet/h0")


def test_the_end_of_a_watch_is_about_nothing():
    assert Namer().name("scheduler", "watch", None, 0, 0).about == ()
    assert Namer().name("scheduler", "watch", Conflict("x"), 0, 0).about == ()


def test_only_what_the_schedule_names_is_held_back():
    recorder = Recorder((Hold("scheduler > create pods/default/p/binding #2", 0.5),))

    arrivals = [recorder.carry("scheduler", "request", BIND, at, at + 0.1) for at in (1.0, 2.0, 3.0)]

    assert arrivals == [1.1, 2.6, 3.1]
    assert [(d.due_s, d.arrives_s) for d in recorder.held] == [(2.1, 2.6)]


def test_a_batch_is_held_for_any_change_in_it():
    recorder = Recorder((Hold("scheduler < DELETED pods/default/q #1", 0.5),))

    assert recorder.carry("scheduler", "watch", [change("ADDED"), change("DELETED", "q")], 1.0, 1.1) == 1.6


def test_what_the_scenario_itself_does_is_never_held():
    recorder = Recorder((Hold("observer > create pods/default/p/binding #1", 0.5),))

    assert recorder.carry("observer", "request", BIND, 1.0, 1.0) == 1.0
