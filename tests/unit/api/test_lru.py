"""What is kept of more entries than there is space for, and what goes."""

import random
from collections import OrderedDict

import pytest

from services.api.lru import LRU


def filled(most, *keys):
    found = LRU(most)
    for key in keys:
        found.put(key, key.upper())
    return found


def test_as_many_entries_as_fit_are_kept():
    found = LRU(2)

    assert [None, None] == [found.put("a", 1), found.put("b", 2)]
    assert {"a": 1, "b": 2} == found


def test_one_more_drops_the_one_that_was_written_first():
    found = filled(2, "a", "b")

    assert ("a", "A") == found.put("c", "C")
    assert ["b", "c"] == list(found)


def test_use_saves_an_entry():
    found = filled(2, "a", "b")

    assert "A" == found.use("a")
    assert ("b", "B") == found.put("c", "C")


def test_what_is_not_there_is_none_and_is_not_made():
    found = filled(2, "a")

    assert found.use("b") is None
    assert ["a"] == list(found)


@pytest.mark.parametrize("look", [lambda f: f.get("a"), lambda f: f["a"], lambda f: "a" in f, list])
def test_a_look_saves_nothing(look):
    found = filled(2, "a", "b")

    look(found)
    assert ("a", "A") == found.put("c", "C")


def test_an_entry_that_is_written_again_is_the_newest_and_drops_none():
    found = filled(2, "a", "b")

    assert found.put("a", "again") is None
    assert [("b", "B"), ("a", "again")] == list(found.items())


def test_values_that_are_false_are_values():
    found = LRU(2)
    kept = {}
    found.put("a", kept)
    found.put("b", {})

    assert found.use("a") is kept
    assert ("b", {}) == found.put("c", {})


def test_none_is_kept_where_there_is_no_space():
    assert ("a", 1) == LRU(0).put("a", 1)


def test_any_order_of_writes_and_reads_keeps_what_was_used_last():
    chance, found, used = random.Random(1), LRU(8), OrderedDict()
    for number in range(2_000):
        key = chance.randrange(20)
        if chance.random() < 0.5:
            found.put(key, number)
            used[key] = number
            used.move_to_end(key)
        elif found.use(key) is not None:
            used.move_to_end(key)
        while len(used) > 8:
            del used[next(iter(used))]
        assert list(found.items()) == list(used.items())
