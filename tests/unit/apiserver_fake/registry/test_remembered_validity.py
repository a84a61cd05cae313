"""What is not checked again, because its like was valid, would have been found valid: quick and plain rules agree."""

from itertools import product
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_fake.registry.strategies import event as events
from apiserver_fake.registry.strategy import strategy_for
from apiserver_fake.registry.validation.fields import Report
from apiserver_fake.registry.validation.pod import status as pod_status
from services.api.wire import Request

CORE = SimpleNamespace(request=Request(verb="create", resource="events"), switches=None)
NEWER = SimpleNamespace(
    request=Request(verb="create", resource="events", api_version=events.NEWER), switches=CORE.switches
)
TEXTS = st.sampled_from(["", "Pulled", "kubelet", "a/b", "bad\x07", "two\nlines", "x" * 129, "é" * 600, "m" * 5000])
NAMES = ("web.1", ".", "..", "a/b", "50%", "UPPER case", "")
PLACES = (("shop", "shop"), ("", "default"), ("", "shop"), ("shop", "default"), ("No_Such", "No_Such"))
TIMES = (None, "2026-01-02T03:04:05.000006Z")
SOURCES = (
    {},
    {"reportingComponent": "kubelet", "reportingInstance": "n1", "action": "Pull", "reason": "Pulled"},
    {"reportingComponent": "a/b/c", "reportingInstance": "n1", "action": "Pull", "reason": "Pulled"},
    {"reportingComponent": "kubelet", "reportingInstance": "n" * 129, "action": "", "reason": "bad\x07"},
)
MESSAGES = (
    {},
    {"message": "Pulled it"},
    {"message": "two\nlines\x07"},
    {"message": "é" * 600},
    {"message": "m" * 5000},
)
EXTRAS = (
    ({}, {}),
    ({"labels": {"bad key": "v"}}, {}),
    ({"generateName": "a/"}, {}),
    ({}, {"status": {"conditions": [{}] * 2000}}),
)


@pytest.mark.parametrize("ctx", [CORE, NEWER], ids=["core", "newer"])
@pytest.mark.parametrize("name", NAMES)
def test_a_new_event_is_refused_for_what_all_rules_refuse_it_for(name, ctx):
    strategy = strategy_for("events")
    for (about, own), time, source, message, (meta, other) in product(PLACES, TIMES, SOURCES, MESSAGES, EXTRAS):
        metadata = {"name": name, "namespace": own, "uid": "u", **meta}
        event = {"metadata": metadata, "involvedObject": {"namespace": about}, "eventTime": time}
        new, plain = {**event, **source, **message, **other}, {**event, **source, **message, **other}
        strategy.prepare_create(new, ctx)
        events._CHECKED.prepare_create(plain, ctx)

        assert new == plain
        assert [*strategy.validate(None, new, ctx)] == [*events._CHECKED.validate(None, plain, ctx)]


def test_a_simple_event_like_an_earlier_one_is_not_checked_again(monkeypatch):
    strategy = strategy_for("events")
    event = {"metadata": {"name": "a.1", "namespace": "shop"}, "involvedObject": {"namespace": "shop"}, "message": "m"}
    assert [*strategy.validate(None, event, CORE)] == []
    monkeypatch.setattr(events, "_lenient", lambda *_: ["checked"])

    assert [*strategy.validate(None, {**event, "metadata": {"name": "b.2", "namespace": "shop"}}, CORE)] == []


CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["Ready", "Initialized", "example.com/Gate", "bad type", ""]),
        "reason": TEXTS,
        "message": TEXTS,
        "observedGeneration": st.integers(-2, 2),
    },
)


@given(st.lists(CONDITIONS, max_size=4), st.lists(CONDITIONS, max_size=4))
def test_conditions_of_a_pod_are_refused_as_when_each_is_checked(first, second):
    for conditions in (first, second, first * 20):
        report, plain = Report(), Report()
        pod_status.STATUS.check({"conditions": conditions}, "status.", report)
        for index, each in enumerate(conditions[:64]):
            pod_status._CONDITION.check(each, f"status.conditions[{index}].", plain)
        too_many = [cause for cause in report.causes if cause.reason == "FieldValueTooMany"]

        assert len(too_many) == (len(conditions) > 64)
        assert [cause for cause in report.causes if cause not in too_many] == plain.causes
