"""Pods and nodes in one line."""

import msgspec
import pytest

from kubelet.node.definition import NodeDefinition
from kubelet.view import KubeletPod


def make_pod(name="p", *, cpu="", memory="", limits=True, containers=None, run="", uid=None, **changes):
    """A bound pod; `spec`, `metadata` and `status` are merged in."""
    if containers is None:
        amounts = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
        resources = {"requests": amounts, **({"limits": amounts} if limits else {})}
        containers = [{"name": "main", "image": "img", "resources": resources}]
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "generation": 2,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        **({"annotations": {"keplab.dev/run": run}} if run else {}),
        **changes.get("metadata", {}),
    }
    spec = {"nodeName": "n1", "containers": containers, **changes.get("spec", {})}
    status = {"phase": "Pending", "bindingGeneration": 2, **changes.get("status", {})}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, KubeletPod)


def make_guaranteed(name, *cpus, **changes):
    """A Guaranteed pod with one container for each number of CPUs."""
    return make_pod(
        name,
        containers=[
            {
                "name": f"c{i}",
                "resources": {"requests": {"cpu": c, "memory": "1Gi"}, "limits": {"cpu": c, "memory": "1Gi"}},
            }
            for i, c in enumerate(cpus)
        ],
        **changes,
    )


@pytest.fixture
def a_pod():
    return make_pod


@pytest.fixture
def guaranteed():
    return make_guaranteed


@pytest.fixture
def a_node():
    return lambda **fields: NodeDefinition.parse({"name": "n1", **fields})
