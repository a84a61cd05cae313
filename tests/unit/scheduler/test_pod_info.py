"""What a pod's newer form takes from an earlier one is what would be computed anew."""

import pytest
from msgspec.structs import replace

from scheduler.cache.node_info import PodInfo
from services.api.kinds.pod import (
    Affinity,
    Container,
    ContainerPort,
    ContainerStatus,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from services.api.meta import LabelSelector, ObjectMeta

TERM = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": "web"}), topology_key="zone")
SMALL, LARGE = ({"cpu": cpu, "memory": "1Gi"} for cpu in ("100m", "2"))


def _spec(**changes):
    resources = changes.pop("resources", SMALL)
    port = ContainerPort(host_port=80, container_port=80)
    container = Container(name="c", resources=ResourceRequirements(requests=resources), ports=(port,))
    return replace(
        PodSpec(
            node_name="n1", containers=(container,), affinity=Affinity(pod_anti_affinity=PodAffinity(required=(TERM,)))
        ),
        **changes,
    )


POD = Pod(metadata=ObjectMeta(name="p", namespace="d", uid="u", labels={"app": "web"}), spec=_spec())
RUNNING = PodStatus(
    phase="Running", container_statuses=(ContainerStatus(name="c", resources=ResourceRequirements(requests=LARGE)),)
)
FORMS = {
    "same": POD,
    "running": replace(POD, status=PodStatus(phase="Running")),
    "in use beyond its spec": replace(POD, status=RUNNING),
    "other labels": replace(POD, metadata=replace(POD.metadata, labels={"app": "db"})),
    "going": replace(POD, metadata=replace(POD.metadata, deletion_timestamp="2026-01-01T00:00:00Z")),
    "resized": replace(POD, spec=_spec(resources=LARGE)),
    "without a node": replace(POD, spec=_spec(node_name="")),
    "without affinity": replace(POD, spec=_spec(affinity=None)),
    "of a higher priority": replace(POD, spec=_spec(priority=7)),
}


def _facts(info):
    names = "pod spec metadata key uid priority requests ports claims terms identity"
    return tuple(getattr(info, name) for name in names.split())


@pytest.mark.parametrize("earlier", FORMS)
@pytest.mark.parametrize("later", FORMS)
def test_a_newer_form_knows_what_a_pod_seen_first_would(earlier, later):
    before = PodInfo(FORMS[earlier])
    assert before.identity == PodInfo(FORMS[earlier]).identity
    assert before.terms == PodInfo(FORMS[earlier]).terms

    info = PodInfo(FORMS[later], before)

    assert _facts(info) == _facts(PodInfo(FORMS[later]))
    is_alike = (before.terms, before.identity) == (info.terms, info.identity)
    assert info.is_seen_like(before) is is_alike


@pytest.mark.parametrize("later", FORMS)
def test_nothing_is_taken_from_a_pod_that_shows_another_form_than_it_was_computed_for(later):
    before = PodInfo(POD)
    assert before.identity.labels == (("app", "web"),)
    before.show(FORMS["other labels"])

    info = PodInfo(FORMS[later], before)

    assert _facts(info) == _facts(PodInfo(FORMS[later]))


def test_two_forms_that_were_never_asked_are_compared_all_the_same():
    assert not PodInfo(FORMS["without affinity"]).is_seen_like(PodInfo(POD))
    assert not PodInfo(FORMS["other labels"]).is_seen_like(PodInfo(POD))
    assert PodInfo(FORMS["running"], PodInfo(POD)).is_seen_like(PodInfo(POD))
