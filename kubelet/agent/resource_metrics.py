"""Resource metrics of a node's pods: cpu seconds since their containers' starts, and present memory. Pure.

KWOK's shipped Metric serves the same at the same path, which metrics-server asks if the Node has the
annotation `metrics.k8s.io/resource-metrics-path`; a Metric with this path is served in its place
(`metric_pages`). `/discovery/prometheus` lists the paths for Prometheus' HTTP discovery.
Source: simulator 5.4; upstream `pkg/kubelet/metrics/collectors/resource_metrics.go`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kubelet.pod.pod import Pod
from kubelet.runtime import usage
from services.api.metrics.usage import integral, value_at

PATH: Final = "/metrics/nodes/{node}/metrics/resource"
DISCOVERY: Final = "/discovery/prometheus"
_HELP: Final = {
    "node_cpu_usage_seconds_total": ("counter", "Cumulative cpu time consumed by the node in core-seconds"),
    "node_memory_working_set_bytes": ("gauge", "Current working set of the node in bytes"),
    "pod_cpu_usage_seconds_total": ("counter", "Cumulative cpu time consumed by the pod in core-seconds"),
    "pod_memory_working_set_bytes": ("gauge", "Current working set of the pod in bytes"),
    "container_cpu_usage_seconds_total": ("counter", "Cumulative cpu time consumed by the container in core-seconds"),
    "container_memory_working_set_bytes": ("gauge", "Current working set of the container in bytes"),
    "container_start_time_seconds": ("gauge", "Start time of the container since unix epoch in seconds"),
    "scrape_error": ("gauge", "1 if there was an error while getting container metrics, 0 otherwise"),
}


def resource_metrics(pods: Iterable[Pod], now_s: float, wall_offset_s: float) -> bytes:
    """Return the metrics of a node's pods as text.

    `wall_offset_s`: seconds to add to the node's clock to get seconds since the epoch.
    """
    samples_by_name: dict[str, list[tuple[str, float]]] = {name: [] for name in _HELP}
    node_cpu = node_memory = 0.0
    for pod in pods:
        metadata = pod.pod.metadata
        where = f'namespace="{metadata.namespace}",pod="{metadata.name}"'
        pod_cpu = pod_memory = 0.0
        is_running = False
        for name, started_s, cpu, memory in _container_usage(pod, now_s):
            labels = f'{{container="{name}",{where}}}'
            samples_by_name["container_cpu_usage_seconds_total"].append((labels, cpu))
            samples_by_name["container_memory_working_set_bytes"].append((labels, memory))
            samples_by_name["container_start_time_seconds"].append((labels, started_s + wall_offset_s))
            pod_cpu, pod_memory, is_running = pod_cpu + cpu, pod_memory + memory, True
        if is_running:
            samples_by_name["pod_cpu_usage_seconds_total"].append((f"{{{where}}}", pod_cpu))
            samples_by_name["pod_memory_working_set_bytes"].append((f"{{{where}}}", pod_memory))
            node_cpu, node_memory = node_cpu + pod_cpu, node_memory + pod_memory
    samples_by_name["node_cpu_usage_seconds_total"].append(("", node_cpu))
    samples_by_name["node_memory_working_set_bytes"].append(("", node_memory))
    samples_by_name["scrape_error"].append(("", 0))
    return "".join(_family(name, samples) for name, samples in samples_by_name.items()).encode()


def _container_usage(pod: Pod, now_s: float) -> Iterator[tuple[str, float, float, float]]:
    """Yield name, start, cpu seconds and bytes of each container that runs."""
    for container in pod.containers:
        if container.is_running:
            curves = usage.curves(pod.pod, container.name)
            age_s = max(0.0, now_s - container.started_s)
            cpu = integral(curves.get("cpu", ()), age_s) / 1000
            yield container.name, container.started_s, cpu, value_at(curves.get("memory", ()), age_s)


def _family(name: str, samples: list[tuple[str, float]]) -> str:
    kind, text = _HELP[name]
    lines = [f"{name}{labels} {value:.9g}" if value % 1 else f"{name}{labels} {value:.0f}" for labels, value in samples]
    return "\n".join((f"# HELP {name} [STABLE] {text}", f"# TYPE {name} {kind}", *lines, ""))


def discovery(host: str, nodes: Iterable[str], scheme: str) -> list[dict[str, object]]:
    """Return the host's targets in the format of Prometheus' HTTP discovery. `host`: its address and port."""
    return [
        {
            "targets": [host],
            "labels": {
                "metrics_name": f"metrics-resource-{node}",
                "__scheme__": scheme,
                "__metrics_path__": PATH.replace("{node}", node),
            },
        }
        for node in nodes
    ]
