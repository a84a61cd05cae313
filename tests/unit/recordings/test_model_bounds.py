"""What a model knows is as much as there is: nothing of it grows with what came and went."""

import numpy as np

from lab.recordings import model as models
from lab.recordings import roles
from lab.recordings.frames import Mirror
from lab.recordings.model import Change, Model
from lab.recordings.writer import _Lately
from tests.unit.recordings.histories import History, node, pod
from tests.unit.recordings.test_recording_columns import change_of


def apply(model, history, resource, document, type_="MODIFIED"):
    rv = history.commit(resource, document, type_)
    model.apply(rv, rv / 10, True, (change_of(history.events[-1]),))


def churned(model, history, pods, names=None):
    for number in range(pods):
        name = f"p{number % names if names else number}"
        apply(model, history, "pods", pod(name, f"u{number}", node="n1"))
        apply(model, history, "pods", pod(name, f"u{number}", node="n1"), "DELETED")


def test_strings_that_no_row_has_are_forgotten_and_every_row_reads_as_before(monkeypatch):
    monkeypatch.setattr(models, "UNUSED_MAX", 20)
    model, history = Model(), History()
    history.states = [{}]
    apply(model, history, "nodes", node("n1", "u-n1"))
    apply(model, history, "pods", pod("web", "u-web", node="n1", phase="Running"))
    churned(model, history, 100)
    before = model.pod_row("shop", "web"), model.role_of("u-web")
    assert len(model.strings) > 100

    assert model.compact()
    assert len(model.strings) < 15
    assert not model.compact(), "there is nothing more to forget"
    assert before == (model.pod_row("shop", "web"), model.role_of("u-web"))
    mirror = Mirror()
    for frame in model.frames():
        mirror.take(frame)
    apply(model, history, "pods", pod("new", "u-new", node="n1"))
    for frame in model.delta():
        mirror.take(frame)
    assert model.strings == mirror.strings
    for table in ("nodes", "pods"):
        for name, values in model.columns(table).items():
            np.testing.assert_array_equal(values, mirror.tables[table][name][: len(values)], err_msg=f"{table} {name}")
    assert "n1" == model.strings[model.columns("nodes")["name"][0]]


def test_pods_that_come_and_go_leave_neither_names_nor_uids_nor_sums(monkeypatch):
    monkeypatch.setattr(roles, "NAMES_MAX", 10)
    model, history = Model(), History()
    churned(model, history, 100)

    assert not model.keys("pods")
    assert not model._pod_uids
    assert not model.pods.slots
    assert not model._uses
    assert len(model.roles._named) <= 20
    assert not model.roles._by_uid


def test_owners_that_are_gone_are_known_for_a_while(monkeypatch):
    monkeypatch.setattr(roles, "DEPARTED_MAX", 2)
    model, history = Model(), History()
    for number in range(5):
        owner = {"metadata": {"namespace": "shop", "name": f"web{number}", "uid": f"o{number}"}}
        apply(model, history, "replicasets.apps", owner)
        apply(model, history, "replicasets.apps", owner, "DELETED")

    assert [False, False, False, True, True] == [model.roles.knows(f"o{number}") for number in range(5)]


def test_objects_that_own_nothing_have_no_role():
    model = Model()
    for number in range(3):
        model.apply(number + 1, 0.0, True, (Change("ADDED", "events", "Event", "shop", f"e{number}", f"u{number}"),))

    assert not model.roles._by_uid
    assert not model.roles._named


def test_a_pod_that_is_owned_by_a_pod_has_its_role_of_it():
    model, history = Model(), History()
    apply(model, history, "pods", pod("driver", "u-driver"))
    executor = pod("x-7f", "u-x")
    executor["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "driver", "uid": "u-driver", "controller": True}]
    apply(model, history, "pods", executor)

    assert ["shop/pod/driver", "shop/pod/driver#0"] == [model.role_of("u-driver"), model.role_of("u-x")]


def test_a_change_that_no_column_shows_changes_no_row():
    model, history = Model(), History()
    apply(model, history, "pods", pod("web", "u-web", node="n1"))
    model.forget_changes()
    apply(model, history, "pods", pod("web", "u-web", node="n1"))

    assert not model.pods.changed
    assert model.rv == history.rv


def test_pods_point_at_their_node_whenever_it_comes_and_goes():
    model, history = Model(), History()
    apply(model, history, "pods", pod("web", "u-web", node="n1"))
    apply(model, history, "pods", pod("next", "u-next", nominatedNodeName="n1"))
    found = []
    for type_ in ("ADDED", "DELETED", "ADDED"):
        apply(model, history, "nodes", node("n1", f"u-{history.rv}"), type_)
        columns = model.columns("pods")
        found.append((columns["node"].tolist(), columns["nominated"].tolist()))

    assert [([0, -1], [-1, 0]), ([-1, -1], [-1, -1]), ([0, -1], [-1, 0])] == found


def test_the_latest_texts_are_kept_and_no_more_than_twice_as_many():
    lately = _Lately(10)
    for number in range(1_000):
        lately.add(str(number))

    assert all(str(number) in lately for number in range(990, 1_000))
    assert "900" not in lately
    assert len(lately._new) + len(lately._old) <= 20
