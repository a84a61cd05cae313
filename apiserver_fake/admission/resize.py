"""What the API server may refuse of a resize although its namespace allows it: what the pod's node could never do.

Up to v1.36 such a resize is accepted, and the node calls it Infeasible. Since v1.37 the admission plugin
PodResizeValidator refuses it, so that the client learns of it at once (`resize.feasibility`). What only the kubelet
knows, of swap or of static managers, stays its affair. Source: upstream `plugin/pkg/admission/podresize` (v1.37).
"""

from __future__ import annotations

from typing import Final

import msgspec

from apiserver_fake.strategy import WriteContext
from services.api.errors import Forbidden
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import Document
from services.api.podresources import amounts, pod_requests

BY_ADMISSION: Final = "admission"
OS_LABEL: Final = "kubernetes.io/os"


def check_feasible(pod: Document, ctx: WriteContext) -> None:
    """Return when the pod's node could give what the pod asks for now, or the pod has none.

    Raises: Forbidden naming every resource of which the node has too little, or what else is wrong with it.
    """
    node_name = (pod.get("spec") or {}).get("nodeName") or ""
    if not node_name or ctx.switches.resize_feasibility != BY_ADMISSION:
        return
    name = pod["metadata"]["name"]
    problem = _problem(pod, node_name, ctx.lookup("nodes", "", node_name))
    if problem:
        raise Forbidden(f'pods "{name}" is forbidden: {problem}', details={"name": name, "kind": "pods"})


def _problem(pod: Document, node_name: str, found: Document | None) -> str:
    if found is None:
        return f'node "{node_name}" not found'
    node = msgspec.convert(found, Node)
    requests, allocatable = pod_requests(msgspec.convert(pod, Pod)), amounts(node.status.allocatable)
    short = [
        f"{name}, requested: {requests[name]}, allocatable: {allocatable.get(name, 0)}"
        for name in ("cpu", "memory")
        if requests.get(name, 0) > allocatable.get(name, 0)
    ]
    if short:
        return f"Node didn't have enough allocatable resources: {'; '.join(short)}"
    system = node.metadata.labels.get(OS_LABEL, "")
    return "" if system == "linux" else f'pod resize is only supported on linux nodes, node "{node_name}" is "{system}"'
