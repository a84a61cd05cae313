import re
import xml.etree.ElementTree as ET

from lab.experiments.style import PAPER
from lab.explore.diagram import (
    ARRIVED,
    BROKE,
    MESSAGE,
    NOTE,
    SENT,
    STEPS_MAX,
    Step,
    _shorten_steps,
    participants,
    short,
    text_diagram,
)
from lab.explore.picture import svg_diagram

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


def test_the_picture_follows_the_scheme_and_what_is_read_is_ink_on_paper():
    drawn = svg_diagram(STEPS, "title")
    _, _, dark = drawn.partition("prefers-color-scheme: dark")

    assert f"--paper: {PAPER.light}" in drawn
    assert f"--paper: {PAPER.dark}" in dark
    assert re.findall(r"style='fill:var\(--(\w+)\)' />\s*<text class='who'[^>]*>(\S+)</text>", drawn) == [
        ("other", "scenario"),
        ("scheduler", "scheduler"),
        ("apiserver", "apiserver"),
        ("kubelet", "kubelet/h0"),
    ]
    assert not re.search(r"<text[^>]*style=", drawn)


def test_words_are_short_for_what_every_message_has():
    assert short("create pods/default/p/binding") == "create pods/p/binding"
    assert short("patch leases.coordination.k8s.io/kube-system/x") == "patch leases/kube-system/x"


def test_a_long_diagram_loses_rows_in_the_middle_but_none_of_a_message_that_was_held_back():
    many = [Step(float(n), MESSAGE, "scheduler", "apiserver", f"m{n}") for n in range(STEPS_MAX + 20)]
    held = [
        Step(30.0, SENT, "scheduler", "apiserver", "held", 5.0),
        Step(35.0, ARRIVED, "scheduler", "apiserver", "held", 5.0),
    ]

    short_one = _shorten_steps(many[:STEPS_MAX])
    long_one = _shorten_steps(many[:30] + held + many[30:])

    assert many[:STEPS_MAX] == short_one
    assert STEPS_MAX + 3 == len(long_one)
    assert held == [step for step in long_one if step.text == "held"]
    assert "… 20 more" in [step.text for step in long_one]
    assert (many[0], many[-1]) == (long_one[0], long_one[-1])
