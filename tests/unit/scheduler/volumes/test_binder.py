"""What is reserved for a pod's claims, and whether what was written for them is done, not yet, or in vain."""

import pytest
from msgspec.structs import replace

from scheduler.framework.world import FixedWorld
from scheduler.volumes.binder import VolumeWrite, progress, reserve, revert
from scheduler.volumes.claims import AssumedVolumes
from scheduler.volumes.finder import VolumeMatch
from services.api.kinds.persistentvolumeclaim import SELECTED_NODE
from services.api.meta import Key
from tests.unit.scheduler.plugins.test_volume_plugins import ZONE_KEY, claim, volume

VOLUME, CLAIM = Key("", "v"), Key("default", "data")
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


@pytest.fixture
def node(a):
    return a.node("n1", labels={ZONE_KEY: "a"})


# --- reserving ---


def test_a_volume_is_assumed_to_be_the_claims_and_may_be_taken_back_by_the_binder():
    assumed, free = AssumedVolumes(), volume("v")

    reserved = reserve(VolumeMatch(bindings=((free, claim()),)), "n1", assumed)

    ((before, bound, _),) = reserved.bindings
    assert (before, assumed.volumes.of(free)) == (free, bound)
    assert (bound.spec.claim_ref.namespace, bound.spec.claim_ref.name, bound.spec.claim_ref.uid) == (
        "default", "data", "uid-data",
    )  # fmt: skip
    assert bound.metadata.annotations == {BOUND_BY_CONTROLLER: "yes"}
    assert reserved.claims == (CLAIM,)
    revert(reserved, assumed)
    assert assumed.volumes.of(free) is free


def test_a_volume_that_a_person_reserved_stays_the_persons_choice():
    assumed = AssumedVolumes()
    named = volume("v", claim="data")
    named = replace(named, spec=replace(named.spec, claim_ref=replace(named.spec.claim_ref, uid="")))

    ((_, bound, _),) = reserve(VolumeMatch(bindings=((named, claim()),)), "n1", assumed).bindings

    assert (bound.spec.claim_ref.uid, bound.metadata.annotations) == ("uid-data", {})


def test_of_a_volume_that_names_the_claim_already_nothing_has_to_be_assumed():
    assumed, mine = AssumedVolumes(), volume("v", claim="data")

    reserved = reserve(VolumeMatch(bindings=((mine, claim()),)), "n1", assumed)

    assert (reserved.bindings[0][1], len(assumed.volumes)) == (mine, 0)
    revert(reserved, assumed)
    assert len(assumed.volumes) == 0


def test_a_claim_to_make_a_volume_for_is_assumed_to_have_its_node():
    assumed, waiting = AssumedVolumes(), claim()

    reserved = reserve(VolumeMatch(to_provision=(waiting,)), "n1", assumed)

    assert assumed.claims.of(waiting).metadata.annotations == {SELECTED_NODE: "n1"}
    assert reserved.claims == (CLAIM,)
    revert(reserved, assumed)
    assert assumed.claims.of(waiting) is waiting


# --- waiting until it is done ---


OUT_OF_REACH = 'pv "v" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'


def unreferenced(made):
    return replace(made, spec=replace(made.spec, claim_ref=replace(made.spec.claim_ref, uid="")))


@pytest.mark.parametrize(
    ("objects", "outcome"),
    [
        ((volume("v", claim="data", rv=5), claim(bound="v")), (True, "")),
        ((volume("v", claim="data", rv=5), claim()), (False, "")),
        ((volume("v", rv=4), claim(bound="v")), (False, "")),
        ((volume("v", claim="data", zone="a", rv=6), claim(bound="v")), (True, "")),
        ((volume("v", claim="data", zone="b", rv=5), claim(bound="v")), (False, OUT_OF_REACH)),
        ((volume("v", zone="b", rv=4), claim(bound="v")), (False, "")),
        ((volume("v", rv=5), claim()), (False, 'ClaimRef got reset for pv "v"')),
        ((unreferenced(volume("v", claim="data", rv=5)), claim()), (False, 'ClaimRef got reset for pv "v"')),
        ((claim(),), (False, 'failed to check binding: persistentvolume "v" not found')),
        ((volume("v", claim="data", rv=5),), (False, 'failed to check binding: persistentvolumeclaim "default/data" not found')),
    ],
)  # fmt: skip
def test_a_volume_that_was_written_is_waited_for_until_its_claim_is_bound_or_never_can_be(node, objects, outcome):
    assert progress(FixedWorld(*objects), node, [VolumeWrite(VOLUME, 5, CLAIM)]) == outcome


@pytest.mark.parametrize(
    ("objects", "outcome"),
    [
        ((claim(node="n1", rv=5),), (False, "")),
        ((claim(rv=4),), (False, "")),
        ((claim(rv=5),), (False, 'provisioning failed for PVC "data"')),
        ((claim(node="n2", rv=5),), (False, 'provisioning failed for PVC "data"')),
        ((claim(node="n1", bound="v", rv=6),), (False, "")),
        ((claim(node="n1", bound="v", rv=6), volume("v", claim="data", zone="a")), (True, "")),
        ((claim(node="n1", bound="v", rv=6), volume("v", claim="data", zone="b")), (False, OUT_OF_REACH)),
        ((), (False, 'failed to check provisioning pvc: persistentvolumeclaim "default/data" not found')),
    ],
)
def test_a_volume_that_is_to_be_made_is_waited_for_until_it_is_bound_or_the_provisioner_gave_up(node, objects, outcome):
    assert progress(FixedWorld(*objects), node, [VolumeWrite(CLAIM, 5)]) == outcome


def test_a_pods_claims_are_done_when_all_are_and_the_first_that_is_not_says_why(node):
    done = (volume("v", claim="data", rv=5), claim(bound="v"))
    begun = [VolumeWrite(VOLUME, 5, CLAIM), VolumeWrite(Key("default", "more"), 5)]

    assert progress(FixedWorld(*done, claim("more", node="n1", rv=5)), node, begun) == (False, "")
    assert progress(FixedWorld(*done, claim("more", rv=5)), node, begun) == (
        False,
        'provisioning failed for PVC "more"',
    )
    assert progress(FixedWorld(*done), node, begun[:1]) == (True, "")
    assert progress(FixedWorld(), node, []) == (True, "")
