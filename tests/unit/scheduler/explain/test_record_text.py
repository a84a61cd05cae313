"""A record as Go's encoder writes it, and cut to what the API server takes without ever being broken."""

import json

import pytest

from scheduler.explain.record_text import (
    ANNOTATIONS_MAX_BYTES,
    HISTORY,
    PREFIX,
    TRUNCATED,
    annotations,
    fitting,
    go_json,
    size_of,
)
from scheduler.extenders.documents import in_go_form


def test_texts_are_what_go_writes():
    assert go_json({"b": "a<b> & c", "a": {"z": "1", "y": "é\u2028\n"}}) == (
        '{"a":{"y":"é\\u2028\\n","z":"1"},"b":"a\\u003cb\\u003e \\u0026 c"}'
    )


def test_an_extenders_answer_has_the_fields_of_go_in_their_order_whatever_it_wrote():
    answer = in_go_form("filter", b'{"nodenames":["n1"],"failedNodes":{"N2":"no licence"},"extra":1}')
    points = in_go_form("prioritize", b'[{"host":"n1","score":7}]')
    victims = in_go_form("preempt", b'{"nodeNameToMetaVictims":{"n1":{"pods":[{"uid":"u"}],"numPDBViolations":2}}}')

    assert go_json(answer) == (
        '{"Nodes":null,"NodeNames":["n1"],"FailedNodes":{"N2":"no licence"},"FailedAndUnresolvableNodes":null,"Error":""}'
    )
    assert go_json(points) == '[{"Host":"n1","Score":7}]'
    assert go_json(victims) == '{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"u"}],"NumPDBViolations":2}}}'
    assert go_json(in_go_form("bind", b'{"Error":null}')) == '{"Error":""}'
    assert go_json(in_go_form("filter", b"<html>")) == '"\\u003chtml\\u003e"', "no answer of an extender, as it is"


def attempt(nodes=3, *, passing=True, scored=True, text="passed", chosen="n0001"):
    """An attempt over so many nodes, as texts."""
    names = [f"n{i:04}" for i in range(nodes)]
    plugins = [f"Plugin{i}" for i in range(10)]
    answers = dict.fromkeys(plugins, text) if passing else {plugins[0]: text}
    found = {
        "filter-result": dict.fromkeys(names, answers),
        "score-result": {name: {p: str(i % 101) for p in plugins} for i, name in enumerate(names)} if scored else {},
        "finalscore-result": {name: {p: str(i % 101 * 3) for p in plugins} for i, name in enumerate(names)}
        if scored
        else {},
    }
    texts = {PREFIX + name: go_json(value) for name, value in found.items()}
    return {**texts, PREFIX + "selected-node": chosen}


def fit(attempts, budget=ANNOTATIONS_MAX_BYTES):
    found = fitting(attempts[-1], reversed(attempts[:-1]), len(attempts), budget)
    assert size_of(found) <= budget
    for key, value in found.items():
        if not key.endswith("selected-node"):
            json.loads(value)
    return found


def test_what_fits_is_left_as_it_is():
    attempts = [attempt(chosen=""), attempt()]

    assert fit(attempts) == annotations(attempts)
    assert [each[PREFIX + "selected-node"] for each in json.loads(fit(attempts)[HISTORY])] == ["", "n0001"]


def test_the_oldest_attempts_leave_first():
    attempts = [attempt(60, chosen=f"old{i}") for i in range(40)] + [attempt(60)]

    found = fit(attempts)

    history = json.loads(found[HISTORY])
    assert 1 < len(history) < len(attempts)
    assert history == attempts[-len(history) :], "whole, and the newest of all"
    assert json.loads(found[TRUNCATED]) == {"result-history": {"attempts": 41, "kept": len(history)}}
    assert found[PREFIX + "filter-result"] == attempts[-1][PREFIX + "filter-result"]


def test_then_each_group_of_nodes_with_equal_answers_keeps_fifty():
    attempts = [attempt(5000, chosen="", scored=False, passing=False, text="Insufficient cpu")]

    found = fit(attempts)

    assert len(json.loads(found[PREFIX + "filter-result"])) == 50
    assert json.loads(found[TRUNCATED])["filter-result"] == {"nodes": 5000, "kept": 50}
    assert len(json.loads(found[HISTORY])) == 1, "the cut attempt"


def test_the_chosen_node_stays_and_where_every_score_differs_the_best_do():
    whole = attempt(5000, chosen="n4999")
    unlike = {
        name: go_json({f"n{i:04}": {"Fit": str(i)} for i in range(5000)})
        for name in (PREFIX + "score-result", PREFIX + "finalscore-result")
    }

    found = fit([{**whole, **unlike}], 20_000)

    kept = json.loads(found[PREFIX + "finalscore-result"])
    assert list(json.loads(found[PREFIX + "filter-result"])).count("n4999") == 1
    assert kept["n4999"] == {"Fit": "4999"}
    assert "n4998" in kept
    assert len(kept) < 5000


@pytest.mark.parametrize("budget", [200_000, 50_000, 10_000, 3_000, 1_000, 500, 10, -5])
def test_whatever_the_budget_what_is_written_parses_and_fits_or_nothing_is_written(budget):
    found = fit([attempt(3000), attempt(3000)], max(budget, 0))

    assert bool(found) == (budget > 10)


def test_a_large_value_of_its_own_goes_as_a_whole_and_is_named():
    found = fit([{**attempt(), "example.com/state": json.dumps("x" * 300_000)}])

    assert "example.com/state" not in found
    assert json.loads(found[TRUNCATED])["gone"] == ["example.com/state"]
    assert found[PREFIX + "filter-result"] == attempt()[PREFIX + "filter-result"]
