"""What the scheduler assumes of a volume or a claim holds for the version it was made from, and no longer."""

import pytest
from msgspec.structs import replace

from scheduler.volumes.claims import Beliefs
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim, PersistentVolumeClaimSpec
from services.api.meta import ObjectMeta
from services.reconcile.controller import Change


def claim(rv=1, uid="u", volume="", name="c"):
    metadata = ObjectMeta(name=name, namespace="default", uid=uid, resource_version=str(rv))
    return PersistentVolumeClaim(metadata=metadata, spec=PersistentVolumeClaimSpec(volume_name=volume))


@pytest.fixture
def assumed():
    found = Beliefs()
    found.assume(claim(volume="v"))
    return found


def test_the_assumed_form_counts_while_the_informer_shows_the_version_it_was_made_from(assumed):
    assert assumed.of(claim()) == claim(volume="v")
    assert assumed.of(claim()) == claim(volume="v")


@pytest.mark.parametrize("known", [claim(rv=2), claim(uid="another")])
def test_what_the_informer_shows_counts_as_soon_as_it_is_another_version_or_another_object(assumed, known):
    assert assumed.of(known) is known
    assert len(assumed) == 0
    assert assumed.of(claim()) == claim()


def test_of_an_object_of_which_nothing_is_assumed_the_informer_knows_best(assumed):
    other = claim(name="other")

    assert assumed.of(other) is other
    assert Beliefs().of(other) is other
    assert len(assumed) == 1


def test_what_is_dropped_is_assumed_no_more(assumed):
    assumed.drop(claim().metadata.key)
    assumed.drop(claim().metadata.key)

    assert assumed.of(claim()) == claim()


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (Change(claim(), claim(rv=2)), 0),
        (Change(claim(), None), 0),
        (Change(None, claim()), 1),
        (Change(claim(rv=0), replace(claim(), spec=PersistentVolumeClaimSpec(volume_name="w"))), 1),
        (Change(claim(name="other"), None), 1),
    ],
)
def test_a_newer_version_or_the_end_of_the_object_ends_what_was_assumed(assumed, change, left):
    assumed.on_change(change)

    assert len(assumed) == left
