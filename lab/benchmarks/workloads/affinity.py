"""Workloads of pods with pod affinity or anti-affinity."""

from typing import Final

from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.ops import CreateNamespaces, CreateNodes, CreatePods, Op, Size, Workload
from services.api.meta import Document

ONE_ZONE: Final = ("zone1",)
TWO_NAMESPACES: Final = CreateNamespaces("sched", 2)
TEAM: Final = tuple(templates.DEVOPS.items())
SIZES: Final = (Size(500, 500, 1_000), Size(5_000, 5_000, 5_000))


def _in_two_namespaces(template: Document, zones: tuple[str, ...] = ()) -> tuple[Op, ...]:
    return (
        CreateNodes(zones=zones),
        TWO_NAMESPACES,
        CreatePods(template, "init_pods", namespace="sched-0"),
        CreatePods(template, namespace="sched-1", is_measured=True),
    )


def _over_a_team(
    prefix: str, labels: Document, how: templates.Affinity, kind: str, key: str, zones: tuple[str, ...] = ()
) -> tuple[Op, ...]:
    template = templates.beside(prefix, labels, how, kind, key, templates.OF_THE_TEAM)
    return (
        CreateNodes(zones=zones),
        CreateNamespaces("init-ns", "namespaces", TEAM),
        CreateNamespaces("measure-ns", 1, TEAM),
        CreatePods(template, "init_pods", namespace="init-ns", is_dealt=True),
        CreatePods(template, namespace="measure-ns-0", is_measured=True),
    )


WORKLOADS: Final = (
    Workload(
        "SchedulingPodAntiAffinity",
        "pods of which a node may have one",
        _in_two_namespaces(templates.ANTI_AFFINITY),
        (Size(500, 100, 400), Size(5_000, 1_000, 2_000)),
    ),
    Workload(
        "SchedulingPodMatchingAntiAffinity",
        "pods without affinity, which others' anti-affinity keeps from a fifth of the nodes",
        (
            CreateNodes(),
            TWO_NAMESPACES,
            CreatePods(templates.ANTI_AFFINITY, "init_pods", namespace="sched-0"),
            CreatePods(
                templates.pod("anti-affinity-matching-pod", labels=templates.GREEN),
                namespace="sched-1",
                is_measured=True,
            ),
        ),
        (Size(500, 100, 400), Size(5_000, 1_000, 5_000)),
    ),
    Workload(
        "SchedulingPodAffinity",
        "pods that must be in the zone of others like them",
        _in_two_namespaces(templates.AFFINITY, ONE_ZONE),
        SIZES,
    ),
    Workload(
        "SchedulingPreferredPodAffinity",
        "pods that would like to be on the node of others like them",
        _in_two_namespaces(templates.PREFERRED_AFFINITY),
        SIZES,
    ),
    Workload(
        "SchedulingPreferredPodAntiAffinity",
        "pods that would rather not be on the node of others like them",
        _in_two_namespaces(templates.PREFERRED_ANTI_AFFINITY),
        SIZES,
    ),
    Workload(
        "SchedulingRequiredPodAffinityWithNSSelector",
        "pods that must be in the zone of a team's pods, in whichever of its namespaces",
        _over_a_team(
            "affinity-pod", templates.BLUE, templates.required_affinity, "podAffinity", templates.ZONE, ONE_ZONE
        ),
        (Size(500, 40, 100), Size(5_000, 5_000, 2_000)),
    ),
    Workload(
        "SchedulingRequiredPodAntiAffinityWithNSSelector",
        "pods that must be on a node without any of a team's pods",
        _over_a_team(
            "anti-affinity-pod", templates.GREEN, templates.required_affinity, "podAntiAffinity", templates.HOSTNAME
        ),
        (Size(500, 40, 100), Size(6_000, 4_000, 2_000)),
    ),
    Workload(
        "SchedulingPreferredAffinityWithNSSelector",
        "pods that would like to be on the node of a team's pods",
        _over_a_team(
            "preferred-affinity-pod", templates.RED, templates.preferred_affinity, "podAffinity", templates.HOSTNAME
        ),
        (Size(500, 40, 100), Size(5_000, 5_000, 5_000)),
    ),
    Workload(
        "SchedulingPreferredAntiAffinityWithNSSelector",
        "pods that would rather not be on the node of a team's pods",
        _over_a_team(
            "anti-affinity-pod", templates.GREEN, templates.preferred_affinity, "podAntiAffinity", templates.HOSTNAME
        ),
        (Size(500, 40, 100), Size(5_000, 4_000, 2_000)),
    ),
    Workload(
        "MixedSchedulingBasePod",
        "plain pods among others with each sort of affinity",
        (
            CreateNodes(zones=ONE_ZONE),
            CreateNamespaces("sched", 1),
            *(
                CreatePods(template, "init_pods", namespace="sched-0")
                for template in (
                    templates.DEFAULT,
                    templates.AFFINITY,
                    templates.ANTI_AFFINITY,
                    templates.PREFERRED_AFFINITY,
                    templates.PREFERRED_ANTI_AFFINITY,
                )
            ),
            CreatePods(templates.DEFAULT, is_measured=True),
        ),
        (Size(500, 200, 1_000), Size(5_000, 2_000, 5_000)),
    ),
)
