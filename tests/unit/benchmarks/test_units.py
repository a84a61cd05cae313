import pytest

from lab.benchmarks.units import BODIES, PIECES_MIN, Calibrator, do_unit


def clock_of(*times_s):
    return iter(times_s).__next__


def test_a_unit_is_sixty_documents_of_about_250_bytes_walked_whole():
    assert len(BODIES) == 60
    assert 240 <= sum(map(len, BODIES)) / 60 <= 275
    assert do_unit() == 60 * 20


def test_a_unit_is_the_mean_of_the_pieces_and_what_they_take_is_known():
    calibrator = Calibrator(clock_of(*(0.0, 1.0, 10.0, 13.0) * 3))
    for _ in range(6):
        calibrator.measure()

    assert calibrator.unit_s == 2.0
    assert calibrator.spent_s == 12.0
    assert calibrator.units(30.0) == 15.0


def test_a_run_too_short_for_enough_pieces_is_given_them_afterwards():
    calibrator = Calibrator()

    assert calibrator.unit_s > 0
    assert calibrator.spent_s == pytest.approx(PIECES_MIN * calibrator.unit_s)
