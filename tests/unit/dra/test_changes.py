from hypothesis import given
from hypothesis import strategies as st

from services.dra.changes import KEPT, Changes


@given(st.integers(0, 40), st.integers(0, 40))
def test_a_reader_gets_what_came_after_its_mark_oldest_first(before, after):
    changes = Changes()
    for number in range(before):
        changes.note(number)
    mark = changes.mark
    for number in range(after):
        changes.note(before + number)

    assert changes.since(mark) == list(range(before, before + after))


def test_a_reader_that_missed_what_is_forgotten_reads_everything():
    changes = Changes()
    for number in range(KEPT + 2):
        changes.note(number)

    assert changes.since(1) is None
    assert changes.since(2) == list(range(2, KEPT + 2))
    assert changes.since(KEPT) == [KEPT, KEPT + 1]
