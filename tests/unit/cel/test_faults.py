"""Faults are handed on once a subject and place, with their stack, whatever text they carry."""

import pytest

from services.cel import faults


@pytest.fixture
def reported(monkeypatch):
    """Return what a listener of faults is told, as `(subject, stack)`."""
    found = []
    known = faults._Faults()
    known.listener = lambda subject, stack: found.append((subject, stack))
    monkeypatch.setattr(faults, "_FAULTS", known)
    return known, found


def fault(text="broken"):
    try:
        raise KeyError(text)
    except KeyError as error:
        return error


def test_the_same_fault_of_a_subject_is_handed_on_once_and_that_of_another_subject_too(reported):
    known, found = reported
    for subject in ("one", "one", "two"):
        known.report(subject, fault())
    assert ["one", "two"] == [subject for subject, _ in found]


def test_another_kind_of_fault_of_a_subject_is_handed_on_too(reported):
    known, found = reported
    known.report("one", fault())
    known.report("one", RecursionError("too deep"))
    assert ["KeyError: 'broken'", "RecursionError: too deep"] == [stack.splitlines()[-1] for _, stack in found]


def test_what_is_handed_on_names_the_line_that_raised(reported):
    known, found = reported
    known.report("one", fault())
    assert "in fault" in found[0][1]


def test_a_lone_surrogate_in_a_fault_does_not_keep_it_from_being_written(reported):
    known, found = reported
    known.report("the expression '\ud800'", fault("\ud800"))
    subject, stack = found[0]
    assert "the expression '\\ud800'" == subject
    assert stack.encode()


def test_a_fault_is_spoken_of_in_one_line():
    assert "ValueError: first" == faults.fault_text(ValueError("first\nsecond"))
    assert "MemoryError" == faults.fault_text(MemoryError())


def test_a_listener_takes_new_faults(monkeypatch):
    found = []
    monkeypatch.setattr(faults._FAULTS, "listener", None)
    faults.listen(lambda subject, stack: found.append(subject))
    faults.report("a subject of its own", fault("of its own"))
    assert ["a subject of its own"] == found
