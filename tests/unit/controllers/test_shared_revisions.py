"""Revisions: one for each state of a template, numbered, named by a hash, and forgotten beyond a limit."""

from types import SimpleNamespace

import msgspec
import pytest

from services.api.kinds.controllerrevision import RESOURCE, ControllerRevision
from services.api.kinds.statefulset import StatefulSet, StatefulSetStatus
from services.api.meta import ObjectMeta
from services.api.printing import cells
from services.controllers import shared_revisions as revisions
from services.reconcile.actions import Create, Patch

OWNER = StatefulSet(metadata=ObjectMeta(name="web", namespace="shop", uid="w", annotations={"note": "first"}))
LABELS = {"labels": {"app": "web"}}
ONE, TWO = ({"metadata": LABELS, "spec": {"containers": [{"name": "main", "image": f"app:{n}"}]}} for n in (1, 2))


def a_revision(name: str, number: int, template: dict, created: str = "") -> ControllerRevision:
    meta = ObjectMeta(name=name, namespace="shop", uid=name, resource_version="5", creation_timestamp=created)
    return ControllerRevision(metadata=meta, data=revisions.data_of(template), revision=number)


def find(template: dict, *known: ControllerRevision, count: int = 0, foreign: dict | None = None):
    by_name = {each.metadata.name: each for each in known} | (foreign or {})
    lister = SimpleNamespace(get=lambda key: by_name.get(key.name))
    owner = msgspec.structs.replace(OWNER, status=StatefulSetStatus(collision_count=count))
    return revisions.find(owner, {"spec": {"template": template}}, known, lister)


def test_a_first_revision_carries_the_labels_its_hash_and_the_owners_annotations():
    found = find(ONE)

    assert isinstance(found.write, Create)
    document = found.write.document
    text = revisions.hash_of(revisions.data_of(ONE), 0)
    assert document["metadata"]["name"] == f"web-{text}" == found.revision.metadata.name
    assert document["metadata"]["labels"] == {"app": "web", "controller.kubernetes.io/hash": text}
    assert document["metadata"]["annotations"] == {"note": "first"}
    assert document["metadata"]["ownerReferences"][0]["uid"] == "w"
    assert (document["revision"], found.collision_count) == (1, 0)
    assert revisions.template_of(found.revision.data) == ONE


def test_equal_data_is_the_same_revision_whatever_the_order_of_its_fields():
    stored = a_revision("web-a", 3, ONE)
    turned = {"metadata": LABELS, "spec": {"containers": [{"image": "app:1", "name": "main"}]}}

    found = find(turned, stored)

    assert (found.revision, found.write) == (stored, None)


def test_other_data_gets_the_next_number():
    assert find(TWO, a_revision("web-a", 3, ONE)).revision.revision == 4


def test_an_earlier_state_asked_for_again_becomes_the_newest():
    found = find(ONE, a_revision("web-a", 1, ONE), a_revision("web-b", 2, TWO))

    assert isinstance(found.write, Patch)
    assert (found.write.key.name, found.write.patch) == ("web-a", {"revision": 3})
    assert (found.write.uid, found.write.resource_version) == ("web-a", "5")
    assert found.revision.revision == 3


def test_of_equal_revisions_the_newest_counts():
    newer = a_revision("web-b", 2, ONE)

    assert find(ONE, newer, a_revision("web-a", 1, ONE)).revision is newer


def test_a_name_that_another_object_holds_is_counted_and_avoided():
    taken = find(ONE).revision.metadata.name

    found = find(ONE, foreign={taken: a_revision(taken, 1, TWO)})

    assert found.collision_count == 1
    assert found.revision.metadata.name != taken
    assert find(ONE, count=1).revision.metadata.name == found.revision.metadata.name


def test_a_long_name_is_cut_so_that_the_hash_fits():
    assert len(revisions.name_of("x" * 253, "bcdfghjklm")) <= 253


def test_a_hash_is_fnv_1_spelled_without_vowels():
    assert revisions.hash_of({}, 0) == "cccc864bc"  # FNV-1 of `{}0` is 777742067
    assert revisions.hash_of({"a": 1, "b": 2}, 0) == revisions.hash_of({"b": 2, "a": 1}, 0)


@pytest.mark.parametrize(
    ("live", "limit", "counts_live", "gone"),
    [
        ((), 2, False, ["r1", "r2"]),
        (("r4",), 2, False, ["r1"]),
        (("r1", "r4"), 1, False, ["r2"]),
        (("r1", "r4"), 2, True, ["r2", "r3"]),
        ((), 0, False, ["r1", "r2", "r3", "r4"]),
        (("r4",), 10, False, []),
    ],
)
def test_history_beyond_the_limit_goes_the_oldest_first_and_nothing_in_use(live, limit, counts_live, gone):
    stored = [a_revision(f"r{n}", n, {"spec": {"n": n}}) for n in (3, 1, 4, 2)]

    assert [d.key.name for d in revisions.surplus(stored, live, limit, counts_live=counts_live)] == gone


def test_equal_numbers_are_ordered_by_age_then_by_name():
    stored = [
        a_revision("b", 1, ONE, "2026-01-02T00:00:00Z"),
        a_revision("c", 1, ONE, "2026-01-01T00:00:00Z"),
        a_revision("a", 1, ONE, "2026-01-02T00:00:00Z"),
    ]

    assert [each.metadata.name for each in revisions.in_order(stored)] == ["c", "a", "b"]


def test_kubectl_shows_whose_revision_it_is():
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "w", "controller": True}
    document = {"metadata": {"name": "web-1", "ownerReferences": [owner]}, "revision": 2}

    assert cells(RESOURCE.columns, document, 0.0)[:3] == ["web-1", "statefulset.apps/web", 2]
    assert cells(RESOURCE.columns, {"metadata": {"name": "web-1"}}, 0.0)[1] == "<none>"
    assert msgspec.convert(document, ControllerRevision).revision == 2
