"""What is judged from changes alone is what all stored objects show."""

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from lab.scenarios.observer import Observer
from lab.scenarios.script.expectation import Judging, parse_expectation
from services.api.meta import Key
from services.client.store import Item

TEXTS = (
    "count pods >= 1",
    "count pods phase=Running == 2",
    "count pods phase=Run*|Failed name=a* != 1",
    "count pods label.app=web node=n1 < 2",
    "count pods label.app= == 1",
    "each pods phase == Running",
    "each pods phase=Running spec.nodeName != n1",
    "each pods name=b* spec.nodeName ~ n",
    "each pods spec.overhead.memory <= 1Gi",
    "created pods name=a* >= 2",
    "created pods == 3",
)
names = st.sampled_from(("a", "aa", "b", "bb"))
pods = st.fixed_dictionaries(
    {
        "phase": st.sampled_from(("", "Pending", "Running", "Failed")),
        "node": st.sampled_from(("", "n1", "n2")),
        "app": st.sampled_from(("", "web")),
        "memory": st.sampled_from(("1Gi", "1024Mi", "2G", "much")),
    }
)
steps = st.one_of(
    st.tuples(st.just("put"), names, pods),
    st.tuples(st.just("remove"), names, st.none()),
    st.tuples(st.just("replace"), st.just(""), st.dictionaries(names, pods)),
)


class Clock:
    def now(self):
        return 0.0


def _body(name, pod, rv):
    metadata = {"name": name, "namespace": "x", "uid": f"{name}-{rv}", "resourceVersion": str(rv)}
    spec = {"containers": [], "nodeName": pod["node"], "overhead": {"memory": pod["memory"]}}
    labels = {"app": pod["app"]} if pod["app"] else {}
    document = {"metadata": {**metadata, "labels": labels}, "spec": spec, "status": {"phase": pod["phase"]}}
    return json.dumps(document).encode()


def _apply(store, rv, step):
    what, name, pod = step
    if what == "put":
        store.put(Key("x", name), rv, _body(name, pod, rv))
    elif what == "remove":
        store.remove(Key("x", name), rv)
    else:
        store.replace([Item(Key("x", each), rv, _body(each, pod[each], rv)) for each in pod], rv)


@given(st.lists(st.tuples(steps, st.booleans()), max_size=25), st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_judgement_from_changes_is_that_of_all_objects(course, from_the_start):
    observer = Observer(None, Clock(), random.Random(0))
    store = observer._informers["pods"].lister
    expectations = [parse_expectation(text) for text in TEXTS]
    judgings = [Judging(each, observer) for each in expectations] if from_the_start else []

    for rv, (step, is_judged) in enumerate(course, 1):
        _apply(store, rv, step)
        judgings = judgings or [Judging(each, observer) for each in expectations]
        if is_judged:
            assert [each.judge(observer) for each in expectations] == [each.judge() for each in judgings]


def test_only_what_has_changed_is_examined(monkeypatch):
    observer = Observer(None, Clock(), random.Random(0))
    store = observer._informers["pods"].lister
    running = {"phase": "Running", "node": "n1", "app": "", "memory": "1Gi"}
    for rv in range(1, 101):
        _apply(store, rv, ("put", f"p{rv}", running))
    judging = Judging(parse_expectation("count pods phase=Running == 101"), observer)
    assert not judging.holds()
    asked = []
    monkeypatch.setattr(store, "document", lambda key, real=store.document: asked.append(key.name) or real(key))

    _apply(store, 101, ("put", "p101", running))

    assert judging.holds()
    assert ["p101"] == asked


def test_who_no_longer_listens_is_not_called():
    observer = Observer(None, Clock(), random.Random(0))
    resources = []
    end = observer.on_change(resources.append)
    store = observer._informers["pods"].lister
    _apply(store, 1, ("remove", "a", None))
    _apply(store, 2, ("put", "a", {"phase": "", "node": "", "app": "", "memory": "1Gi"}))

    end()
    _apply(store, 3, ("remove", "a", None))

    assert ["pods"] == resources
