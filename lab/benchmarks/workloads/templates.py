"""The node and pod documents of the workloads, as a user would send them."""

from collections.abc import Callable
from typing import Any, Final

from services.api.meta import Document

PAUSE: Final = "registry.k8s.io/pause:3.10.1"
HOSTNAME: Final = "kubernetes.io/hostname"
OF_KUBELET: Final = {"kubernetes.io/os": "linux"}  # by kubelets on every node; pods are resized on no other (v1.36)
ZONE: Final = "topology.kubernetes.io/zone"
BLUE, GREEN, RED, YELLOW = ({"color": color} for color in ("blue", "green", "red", "yellow"))
DEVOPS: Final = {"team": "devops"}
IN_TWO_NAMESPACES: Final[Document] = {"namespaces": ["sched-1", "sched-0"]}
OF_THE_TEAM: Final[Document] = {"namespaceSelector": {"matchLabels": DEVOPS}}


def node(**resources: str) -> Document:
    """Return a Ready node without a name: 4 CPUs, 32 GiB, 110 pods, and the given `resources`."""
    amounts = {"pods": "110", "cpu": "4", "memory": "32Gi", **resources}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"labels": {}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(
    prefix: str,
    *,
    labels: Document | None = None,
    requests: Document | None = None,
    is_light: bool = False,
    **spec: Any,
) -> Document:
    """Return a pod whose name begins with `prefix`. Default requests 100m and 500Mi; `is_light`: none."""
    container: Document = {"name": "pause", "image": PAUSE}
    if not is_light:
        asked = {"cpu": "100m", "memory": "500Mi", **(requests or {})}
        container |= {"ports": [{"containerPort": 80}], "resources": {"requests": asked}}
        if asked["cpu"] != "9":
            container["resources"]["limits"] = asked
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"{prefix}-", **({"labels": labels} if labels else {})},
        "spec": {"containers": [container], **spec},
    }


Affinity = Callable[[str, Document], Document]
"""`required_affinity` or `preferred_affinity`: a function from podAffinity or podAntiAffinity and a
PodAffinityTerm to an affinity.
"""


def required_affinity(kind: str, term: Document) -> Document:
    """Return a required affinity; `kind` is podAffinity or podAntiAffinity."""
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def preferred_affinity(kind: str, term: Document) -> Document:
    """Return a preferred affinity of weight 1."""
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}}


def beside(prefix: str, labels: Document, how: Affinity, kind: str, key: str, where: Document) -> Document:
    """Return a pod with an affinity to pods with its own labels; `where`: the namespace fields of the term."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key, **where}
    return pod(prefix, labels=labels, affinity=how(kind, term))


def cpu_only(prefix: str) -> Document:
    """Return a pod that asks for 100m of CPU and for no memory."""
    made = pod(prefix, is_light=True, terminationGracePeriodSeconds=0)
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    return made


def node_affinity(part: str, requirement: Document) -> Document:
    """Return a required node affinity of one term; `part` is matchExpressions or matchFields."""
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{part: [requirement]}]}
        }
    }


def spread_constraints(labels: Document, *, skew: int, key: str, when: str, **policies: str) -> list[Document]:
    """Return one topology spread constraint; `when` is DoNotSchedule or ScheduleAnyway."""
    return [
        {
            "maxSkew": skew,
            "topologyKey": key,
            "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": labels},
            **policies,
        }
    ]


NODE: Final = node()
NODE_OF_MANY: Final = node(pods="90000")
DEFAULT: Final = pod("pod")
LIGHT: Final = pod("light-pod", is_light=True, terminationGracePeriodSeconds=0)
LOW: Final = pod("low", requests={"cpu": "900m"}, terminationGracePeriodSeconds=0)
HIGH: Final = pod("high", requests={"cpu": "3000m"}, priority=10)
HIGH_LARGE: Final = pod("pod-h", requests={"cpu": "9"}, priority=10)
"""A pod that requests more CPU than any node has."""
ANTI_AFFINITY: Final = beside(
    "anti-affinity-pod", GREEN, required_affinity, "podAntiAffinity", HOSTNAME, IN_TWO_NAMESPACES
)
AFFINITY: Final = beside("affinity-pod", BLUE, required_affinity, "podAffinity", ZONE, IN_TWO_NAMESPACES)
PREFERRED_AFFINITY: Final = beside(
    "preferred-affinity-pod", RED, preferred_affinity, "podAffinity", HOSTNAME, IN_TWO_NAMESPACES
)
PREFERRED_ANTI_AFFINITY: Final = beside(
    "preferred-anti-affinity-pod", YELLOW, preferred_affinity, "podAntiAffinity", HOSTNAME, IN_TWO_NAMESPACES
)
