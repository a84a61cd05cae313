import xml.etree.ElementTree as ET

from services.explore.diagram import ARRIVED, BROKE, MESSAGE, NOTE, SENT, Step, participants, short, text_diagram
from services.explore.picture import svg_diagram

STEPS = [
    Step(1.0, NOTE, "scheduler", "scheduler", "sched.attempt p"),
    Step(1.0, SENT, "scheduler", "apiserver", "create pods/p/binding", 0.25),
    Step(1.1, MESSAGE, "observer", "apiserver", "create pods/<c>"),
    Step(1.2, MESSAGE, "apiserver", "kubelet/h0", "ADDED pods/c"),
    Step(1.25, ARRIVED, "scheduler", "apiserver", "create pods/p/binding", 0.25),
    Step(2.0, BROKE, "", "", "I5: too much"),
]


def test_the_api_server_stands_between_those_who_schedule_and_those_who_run():
    assert participants(STEPS) == ["observer", "scheduler", "apiserver", "kubelet/h0"]


def test_a_held_message_stands_where_it_was_sent_and_where_it_arrived():
    lines = text_diagram(STEPS)

    assert lines[0].split() == ["scenario", "scheduler", "apiserver", "kubelet/h0"]
    assert "╌ create pods/p/binding ╌" in lines[2]
    assert "held 250 ms: create pods/p/binding" in lines[5]
    assert "▶" in lines[4]
    assert lines[6].startswith("   2.0000 s  ✗ I5: too much")


def test_what_broke_by_itself_stands_apart_from_its_time():
    assert text_diagram(STEPS[-1:])[-1] == "   2.0000 s  ✗ I5: too much"


def test_the_picture_is_well_formed_whatever_objects_are_called():
    root = ET.fromstring(svg_diagram(STEPS, "a <title> & more"))

    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "create pods/<c>" in words
    assert "create pods/p/binding, held 250 ms" in words


def test_words_are_short_for_what_every_message_has():
    assert short("create pods/default/p/binding") == "create pods/p/binding"
    assert short("patch leases.coordination.k8s.io/kube-system/x") == "patch leases/kube-system/x"
