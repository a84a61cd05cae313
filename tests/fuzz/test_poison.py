"""Objects made to break a reader, in the simulated mesh (V11, FM-S8)."""

from tests.fuzz import poison
from tests.fuzz.running import findings


def test_fm_s8_valid_and_extreme_objects_do_not_keep_others_from_running():
    outcome = poison.run(poison.hand_made())
    assert outcome.wrong == []
    assert outcome.taken == len(poison.HAND_MADE)


def test_v11_generated_objects_that_are_taken_end_no_reader():
    assert findings(poison.batches, poison.check, 2, 1, shrinks=False) == []
