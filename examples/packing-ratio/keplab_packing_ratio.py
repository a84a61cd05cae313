"""A measure of a package: how many nodes have pods at the end, of those that packing the same pods would have needed.

Packed by first-fit decreasing: the pods with the most CPU first, each on the first node that has CPU and memory for it,
the largest nodes first. 1 is as good as that; 2 are twice the nodes. CEL has no way to say this, Python has.
"""

from lab.scenarios.measures.entry import MeasureEntry, RunView
from services.api.quantity import amount

RESOURCES = ("cpu", "memory")
OVER = ("Succeeded", "Failed")


def requested(pod):
    """Return what the pod's containers request, by resource: milli of cpu, bytes of memory."""
    found = dict.fromkeys(RESOURCES, 0)
    for container in pod["spec"]["containers"]:
        for name, text in container.get("resources", {}).get("requests", {}).items():
            if name in found:
                found[name] += amount(name, text)
    return found


def packing_ratio(run: RunView) -> float | None:
    pods = [pod for pod in run.objects("pods") if pod["spec"].get("nodeName") and pod["status"]["phase"] not in OVER]
    used = {pod["spec"]["nodeName"] for pod in pods}
    free = [
        {name: amount(name, node["status"]["allocatable"][name]) for name in RESOURCES} for node in run.objects("nodes")
    ]
    free.sort(key=lambda node: -node["cpu"])
    needed = set()
    for pod in sorted(map(requested, pods), key=lambda request: -request["cpu"]):
        fits = (i for i, node in enumerate(free) if all(node[name] >= pod[name] for name in RESOURCES))
        if (place := next(fits, None)) is None:
            return None  # more is requested than there is: static pods are not asked whether they fit
        needed.add(place)
        for name in RESOURCES:
            free[place][name] -= pod[name]
    return len(used) / len(needed) if needed else None


MEASURE = MeasureEntry(
    name="packing_ratio",
    meaning="Nodes used, of those that first-fit decreasing needs",
    better="lower",
    objects=("pods", "nodes"),
    compute=packing_ratio,
)
