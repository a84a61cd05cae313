"""What a leader looks after besides scheduling."""

from scheduler.leadership import MissingNodes


def test_a_node_is_missing_when_two_looks_in_a_row_did_not_find_it():
    missing = MissingNodes()

    assert missing.look(["n1", "n8", "n9"], {"n1"}) == []
    assert missing.look(["n1", "n8", "n9"], {"n1", "n8"}) == ["n9"]
    assert missing.look(["n8"], set()) == []
    assert missing.look(["n8"], set()) == ["n8"]
