"""What a file holds of how its runs decided differently: it grows with runs and differences no faster than they do."""

import gzip
from itertools import combinations

import msgspec

from lab.scenarios.decisions.decision import Decision
from lab.ui import documents, page

PODS = 10_000


def decided(node):
    return [Decision(i / 10, f"replicaset/web#{i}", "sched.attempt", "scheduled", node) for i in range(PODS)]


def test_two_runs_with_ten_thousand_differences_are_compared_once_each_way_of_comparing(monkeypatch):
    calls = {"compare": 0, "keys": 0, "documents": 0}

    def counted(name, function):
        def call(*words, **more):
            calls[name] += 1
            return function(*words, **more)

        return call

    monkeypatch.setattr(documents, "compare", counted("compare", documents.compare))
    monkeypatch.setattr(documents, "_difference", counted("documents", documents._difference))
    what = Decision.what.fget
    monkeypatch.setattr(Decision, "what", property(counted("keys", what)))
    found = page._differences({"0": decided("n1"), "1": decided("n2")})

    assert ["diff-0-1", "diff-0-1-times"] == list(found.packed)
    assert 2 == calls["compare"]
    assert calls["documents"] <= 2 * (documents.DIFFERENCES_MAX + 1)
    assert calls["keys"] <= 2 * 4 * PODS


def test_of_many_runs_so_many_pairs_are_in_the_file_those_of_the_first_before_others(monkeypatch):
    monkeypatch.setattr(page, "PAIRS_MAX", 5)
    some = {str(number): [] for number in range(4)}
    found = page._differences(some)

    pairs = [f"diff-{one}-{other}" for one, other in combinations("0123", 2)]
    assert pairs[:5] == [name for name in found.packed if not name.endswith("-times")]


def test_a_difference_is_written_as_the_server_answers_it():
    one, other = decided("n1")[:3], decided("n2")[:3]
    made = page._differences({"0": one, "1": other})

    assert msgspec.json.decode(gzip.decompress(made.packed["diff-0-1"])) == msgspec.json.decode(
        msgspec.json.encode(documents.difference(one, other))
    )
