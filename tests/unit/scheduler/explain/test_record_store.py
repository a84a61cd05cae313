"""Every attempt is remembered whole, with what plugins and extenders said before, in and after its cycle."""

import json

from scheduler.explain import record_store
from scheduler.explain.record_store import SimulatorRecords
from scheduler.explain.record_text import HISTORY, PREFIX, TRUNCATED
from scheduler.framework.status import SUCCESS


def answers(**more):
    later = dict.fromkeys(("reserve-result", "permit-result", "permit-result-timeout", "prebind-result", "bind-result"))
    return {"selected-node": "", "filter-result": {"n1": {"Fit": "passed"}}, **{key: {} for key in later}, **more}


def test_the_newest_attempt_stands_beside_the_history_of_all():
    records = SimulatorRecords()
    records.keep("u", answers())
    records.close("u")
    records.keep("u", answers())
    open_record = records.of("u")
    open_record.on_selected("n1")
    open_record.add_answer("bind", "DefaultBinder", SUCCESS)

    found = records.whole("u")

    assert found[PREFIX + "selected-node"] == "n1"
    assert found[PREFIX + "bind-result"] == '{"DefaultBinder":"success"}'
    assert [each[PREFIX + "selected-node"] for each in json.loads(found[HISTORY])] == ["", "n1"]
    assert records.fitting("u") == found
    assert (records.whole("other"), records.fitting("other")) == ({}, {})


def test_an_attempt_that_ended_takes_in_nothing_more():
    records = SimulatorRecords()
    records.keep("u", answers())
    late = records.of("u")
    records.close("u")

    late.add_answer("bind", "DefaultBinder", SUCCESS)
    late.on_selected("n9")
    late.bind_failed("gone")

    assert records.whole("u")[PREFIX + "bind-result"] == "{}"
    assert records.whole("u")[PREFIX + "selected-node"] == ""


def test_all_four_keys_of_extenders_are_there_once_one_answered_and_a_bind_belongs_to_the_attempt_before_it():
    records = SimulatorRecords()
    records.keep("u", answers())
    assert not any("extender" in key for key in records.whole("u"))
    records.close("u")

    records.add_extender_answer("u", "filter", "http://e", {"Error": ""})
    records.keep("u", answers())
    records.add_extender_answer("u", "bind", "http://e", {"Error": "no"})

    first, second = json.loads(records.whole("u")[HISTORY])
    assert not any("extender" in key for key in first)
    assert second[PREFIX + "extender-filter-result"] == '{"http://e":{"Error":""}}'
    assert second[PREFIX + "extender-prioritize-result"] == "{}"
    assert second[PREFIX + "extender-preempt-result"] == "{}"
    assert second[PREFIX + "extender-bind-result"] == '{"http://e":{"Error":"no"}}'


def test_a_plugins_own_results_belong_to_the_cycle_that_goes_on_or_to_the_attempt_that_follows_it():
    records = SimulatorRecords()
    records.custom("u", "example.com/a", "during the cycle")
    records.keep("u", answers())
    records.custom("u", "example.com/b", "at Reserve")
    records.close("u")
    records.custom("u", "example.com/a", "of the next cycle")

    assert records.whole("u")["example.com/a"] == "during the cycle"
    assert records.whole("u")["example.com/b"] == "at Reserve"
    records.keep("u", answers())
    assert records.whole("u")["example.com/a"] == "of the next cycle"
    assert "example.com/b" not in records.whole("u")


def test_the_pods_that_were_tried_last_are_remembered(monkeypatch):
    monkeypatch.setattr(record_store, "KEPT_MAX_BYTES", 50_000)
    records = SimulatorRecords()
    for number in range(100):
        text = "".join(chr(97 + (number * i * i) % 23) for i in range(3000))
        records.keep(f"u{number}", answers(**{"filter-result": {"n1": {"Fit": text}}}))
    records.keep("u90", answers())

    assert not records.is_known("u0")
    assert records.is_known("u90")
    assert records.is_known("u99")
    assert len(json.loads(records.whole("u90")[HISTORY])) == 2


def test_the_number_of_pods_is_bounded_too():
    records = SimulatorRecords()
    for number in range(record_store.RECORDS_MAX):
        records.keep(f"u{number}", answers())
    records.keep("u0", answers())
    records.keep("new", answers())

    assert [records.is_known(uid) for uid in ("u0", "u1", "u2", "new")] == [True, False, True, True]


def test_an_answer_that_is_repeated_is_kept_once():
    records = SimulatorRecords()
    long = {"filter-result": {f"n{i}": {"Fit": "Insufficient cpu"} for i in range(2000)}}
    for _ in range(50):
        records.keep("u", answers(**long))

    found = json.loads(records.whole("u")[HISTORY])

    assert len(found) == 50
    assert records._size < 20_000


def test_attempts_that_fail_alike_take_next_to_nothing_each():
    records = SimulatorRecords()
    for _ in range(2_000):
        records.add_extender_answer("u", "filter", "http://e", {"Error": ""})
        records.keep("u", answers(**{"prefilter-result-status": {"Fit": "too large"}}))
        records.close("u")

    assert records._size < 2_000 * 200
    first, *_, last = json.loads(records.whole("u")[HISTORY])
    assert first == last
    assert last[PREFIX + "prefilter-result-status"] == '{"Fit":"too large"}'


def test_answers_of_extenders_count_and_a_pod_that_is_forgotten_takes_its_share_along(monkeypatch):
    monkeypatch.setattr(record_store, "KEPT_MAX_BYTES", 100_000)
    records = SimulatorRecords()
    for number in range(50):
        nodes = {"Nodes": {f"n{each * each * (number + 1)}": each for each in range(1_000)}}
        records.add_extender_answer(f"u{number}", "filter", "http://e", nodes)
        records.keep(f"u{number}", answers())

    assert records._size <= 100_000
    assert [records.is_known(f"u{number}") for number in (0, 49)] == [False, True]
    assert records._size == sum(known.size for known in records._known.values())
    assert len(json.loads(records.whole("u49")[PREFIX + "extender-filter-result"])["http://e"]["Nodes"]) == 1_000


def test_the_keys_are_those_of_the_texts_while_an_attempt_goes_on_and_after_it():
    records = SimulatorRecords()
    records.custom("u", "example.com/a", "x")
    records.add_extender_answer("u", "filter", "http://e", {"Error": ""})
    records.keep("u", answers())

    assert records.keys("u") == {*records.whole("u"), TRUNCATED}
    records.close("u")
    assert records.keys("u") == {*records.whole("u"), TRUNCATED}
