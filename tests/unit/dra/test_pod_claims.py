"""Which claims a pod has, its own or its group's (dra-core 1.5; kep-5194 12)."""

import pytest

from services.api.kinds.pod import Pod, PodResourceClaim, PodResourceClaimStatus, PodSchedulingGroup, PodSpec, PodStatus
from services.api.kinds.podgroup import PodGroup, PodGroupResourceClaim, PodGroupSpec
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.meta import ObjectMeta, OwnerReference
from services.dra.pod_claims import claim_name, is_of_group, problem_of

NAMED = PodResourceClaim(name="shared", resource_claim_name="gpu")
MADE = PodResourceClaim(name="own", resource_claim_template_name="template")


def pod(name="p", *wanted, made=(), group=""):
    statuses = tuple(PodResourceClaimStatus(name=entry, resource_claim_name=claim) for entry, claim in made)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}"),
        spec=PodSpec(
            resource_claims=wanted, scheduling_group=PodSchedulingGroup(pod_group_name=group) if group else None
        ),
        status=PodStatus(resource_claim_statuses=statuses),
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


SAME = PodGroupResourceClaim(name="own", resource_claim_template_name="template")


@pytest.mark.parametrize(
    ("group", "binds"),
    [
        (group_with(SAME), True),
        (group_with(PodGroupResourceClaim(name="other", resource_claim_template_name="template")), False),
        (group_with(PodGroupResourceClaim(name="own", resource_claim_template_name="more")), False),
        (group_with(PodGroupResourceClaim(name="own", resource_claim_name="template")), False),
        (None, False),
    ],
)
def test_kep_5729_a_claim_binds_to_the_group_that_has_one_of_its_name_and_source(group, binds):
    assert is_of_group(MADE, group) is binds


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

    assert (problem == "") is is_owned
    assert is_owned or problem.startswith("ResourceClaim ns/made was not created for ")
