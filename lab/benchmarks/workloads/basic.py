"""Workloads of pods that only need capacity, with and without node affinity, and of pods that never find any."""

from typing import Final

from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.ops import Churn, CreateNodes, CreatePods, DeletePods, Size, Workload

NODE_NAME: Final = "scheduler-perf-node"
IN_ZONES: Final = templates.node_affinity(
    "matchExpressions", {"key": templates.ZONE, "operator": "In", "values": ["zone1", "zone2"]}
)
ON_THE_NODE: Final = templates.node_affinity(
    "matchFields", {"key": "metadata.name", "operator": "In", "values": [NODE_NAME]}
)
APP: Final = {"app": "scheduler-perf"}
SERVICE: Final = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"generateName": "service-churn-"},
    "spec": {"selector": {"app": "foo"}, "ports": [{"protocol": "TCP", "port": 8080, "targetPort": 8080}]},
}

WORKLOADS: Final = (
    Workload(
        "SchedulingBasic",
        "pods that ask for CPU and memory only",
        (CreateNodes(), CreatePods(templates.DEFAULT, "init_pods"), CreatePods(templates.DEFAULT, is_measured=True)),
        (Size(500, 500, 1_000), Size(5_000, 1_000, 10_000)),
    ),
    Workload(
        "SchedulingNodeAffinity",
        "pods that must be in one of two zones",
        (
            CreateNodes(zones=("zone1",)),
            CreatePods(templates.pod("node-affinity", affinity=IN_ZONES), "init_pods"),
            CreatePods(templates.pod("node-affinity", affinity=IN_ZONES), is_measured=True),
        ),
        (Size(500, 500, 1_000), Size(5_000, 5_000, 10_000)),
    ),
    Workload(
        "SchedulingDaemonset",
        "pods that name the one node they may be on, as a DaemonSet's do",
        (
            CreateNodes(1, templates.NODE_OF_MANY, name=NODE_NAME),
            CreateNodes(),
            CreatePods(templates.pod("daemonset", is_light=True, affinity=ON_THE_NODE), is_measured=True),
        ),
        (Size(500, 0, 1_000), Size(15_000, 0, 30_000)),
    ),
    Workload(
        "Unschedulable",
        "schedulable pods, while five a second come that no node is big enough for",
        (
            CreateNodes(),
            CreatePods(templates.DEFAULT, "init_pods"),
            Churn((("pods", templates.HIGH_LARGE),), 0.2),
            CreatePods(templates.DEFAULT, is_measured=True),
        ),
        (Size(500, 10, 1_000), Size(5_000, 100, 10_000)),
    ),
    Workload(
        "SchedulingWithMixedChurn",
        "schedulable pods, while a node, a hopeless pod and a service are made anew every second",
        (
            CreateNodes(),
            Churn(
                (("nodes", templates.node(pods="0")), ("pods", templates.HIGH_LARGE), ("services", SERVICE)),
                1.0,
                recreate=True,
            ),
            CreatePods(templates.DEFAULT, is_measured=True),
        ),
        (Size(1_000, 0, 1_000), Size(5_000, 0, 10_000)),
    ),
    Workload(
        "SchedulingWhileGated",
        "schedulable pods, while others are gated and others are deleted",
        (
            CreateNodes(1, templates.NODE_OF_MANY, name=NODE_NAME),
            CreatePods(
                templates.pod("gated-pod", is_light=True, schedulingGates=[{"name": "test.k8s.io/hold"}]),
                "init_pods",
                may_wait=True,
            ),
            CreatePods(templates.LIGHT, "pods", namespace="leaving"),
            DeletePods("leaving", 50),
            CreatePods(templates.LIGHT, is_measured=True),
        ),
        (Size(1, 10_000, 20_000),),
    ),
    Workload(
        "SchedulingGatedPodsWithPodAffinityImpactForThroughput",
        "pods whose coming concerns thousands of gated pods",
        (
            CreateNodes(1, templates.NODE_OF_MANY, name=NODE_NAME),
            CreatePods(
                templates.pod(
                    "pod",
                    labels=APP,
                    is_light=True,
                    affinity=templates.required_affinity(
                        "podAffinity", {"labelSelector": {"matchLabels": APP}, "topologyKey": templates.HOSTNAME}
                    ),
                    schedulingGates=[{"name": "scheduling-gate-1"}],
                ),
                "init_pods",
                namespace="one",
                may_wait=True,
            ),
            CreatePods(templates.pod("pod", labels=APP, is_light=True), namespace="one", is_measured=True),
        ),
        (Size(1, 10_000, 20_000),),
    ),
)
