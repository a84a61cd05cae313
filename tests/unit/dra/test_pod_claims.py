"""Which claims a pod has, and which pods a claim has (dra-core 1.5; kep-5194 8, 12)."""

import pytest

from services.api.kinds.pod import (
    Pod,
    PodExtendedResourceClaimStatus,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGroup,
    PodSpec,
    PodStatus,
)
from services.api.kinds.podgroup import PodGroup, PodGroupResourceClaim, PodGroupSpec
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.meta import Key, ObjectMeta, OwnerReference
from services.dra.pod_claims import PodsOfClaims, binds_to_group, claim_name, problem_of, referenced_claims

NAMED = PodResourceClaim(name="shared", resource_claim_name="gpu")
MADE = PodResourceClaim(name="own", resource_claim_template_name="template")


def pod(name="p", *wanted, made=(), group="", extended=""):
    statuses = tuple(PodResourceClaimStatus(name=entry, resource_claim_name=claim) for entry, claim in made)
    more = PodExtendedResourceClaimStatus(resource_claim_name=extended) if extended else None
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}"),
        spec=PodSpec(
            resource_claims=wanted, scheduling_group=PodSchedulingGroup(pod_group_name=group) if group else None
        ),
        status=PodStatus(resource_claim_statuses=statuses, extended_resource_claim_status=more),
    )


def group_with(*claims, name="g"):
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace="ns", uid="uid-g"), spec=PodGroupSpec(resource_claims=claims)
    )


def owned(name, uid):
    owner = OwnerReference(kind="X", name="x", uid=uid, controller=True)
    return ResourceClaim(metadata=ObjectMeta(name=name, namespace="ns", owner_references=(owner,)))


def test_a_claim_is_named_by_the_spec_or_by_the_status_or_not_yet():
    assert claim_name(pod(), NAMED) == "gpu"
    assert claim_name(pod(made=[("own", "p-own-x")]), MADE) == "p-own-x"
    assert claim_name(pod(made=[("own", None)]), MADE) is None
    assert claim_name(pod(), MADE) is None


def test_a_pod_refers_to_every_claim_by_whichever_way_it_came_to_it_once():
    member = pod("p", NAMED, MADE, made=[("own", "p-own-x"), ("none", None), ("again", "gpu")], extended="p-extended")

    assert referenced_claims(member) == ["ns/gpu", "ns/p-own-x", "ns/p-extended"]


def test_the_pods_of_a_claim_follow_pods_that_come_change_and_go():
    index = PodsOfClaims([pod("a", NAMED), pod("b", NAMED), pod("c", MADE)])
    claim = owned("gpu", "none")
    assert index.pods_of(claim) == [Key("ns", "a"), Key("ns", "b")]

    index.put(pod("a"))
    index.put(pod("c", MADE, made=[("own", "gpu")]))
    index.drop(Key("ns", "b"))

    assert index.pods_of(claim) == [Key("ns", "c")]
    index.drop(Key("ns", "c"))
    assert index.pods_of(claim) == []


SAME = PodGroupResourceClaim(name="own", resource_claim_template_name="template")


@pytest.mark.parametrize(
    ("group", "member", "binds"),
    [
        (group_with(SAME), pod(group="g"), True),
        (
            group_with(PodGroupResourceClaim(name="other", resource_claim_template_name="template")),
            pod(group="g"),
            False,
        ),
        (group_with(PodGroupResourceClaim(name="own", resource_claim_template_name="more")), pod(group="g"), False),
        (group_with(PodGroupResourceClaim(name="own", resource_claim_name="template")), pod(group="g"), False),
        (group_with(SAME), pod(group="h"), False),
        (group_with(SAME), pod(), False),
        (None, pod(group="g"), False),
    ],
)
def test_kep_5729_a_claim_binds_to_the_group_that_has_one_of_its_name_and_source(group, member, binds):
    assert binds_to_group(member, MADE, group) is binds


@pytest.mark.parametrize(
    ("owner", "group", "is_owned"),
    [
        ("uid-p", None, True), ("uid-g", None, False),
        ("uid-g", group_with(SAME), True), ("uid-p", group_with(SAME), False), ("uid-p", group_with(), True),
    ],
)  # fmt: skip
def test_a_generated_claim_belongs_to_the_pod_or_to_the_group_it_was_made_for(owner, group, is_owned):
    member = pod("p", MADE, made=[("own", "made")], group="g")

    problem = problem_of(member, lambda key: owned("made", owner), group)

    assert problem == ("" if is_owned else "ResourceClaim ns/made was not created for pod ns/p (pod is not owner)")
