"""What pods use is served as the resource metrics of their node, by KWOK's annotations too."""

import asyncio

import msgspec

from services.runtime.health import HttpRequest

ANNOTATIONS = {"kwok.x-k8s.io/usage-cpu": "250m", "kwok.x-k8s.io/usage-memory": "16Mi"}


def served(w, path, **params):
    route = next(handler for pattern, handler in w.process.http_routes() if pattern == path)
    status, _, body = route(HttpRequest("", params, {}))
    return status, body.decode()


def sample(text, name):
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)
    }


def test_20_cpu_seconds_grow_by_a_quarter_a_second_and_memory_stays(simulate):
    path = "/metrics/nodes/{node}/metrics/resource"

    async def scenario(w):
        await w.create("p", annotations=ANNOTATIONS)
        await w.create("idle")
        await w.until_pod("p", lambda p: p["status"]["phase"] == "Running")
        await w.until_pod("idle", lambda p: p["status"]["phase"] == "Running")
        _, before = served(w, path, node="n1")
        await asyncio.sleep(8)
        return before, served(w, path, node="n1"), served(w, path, node="n9"), served(w, "/discovery/prometheus")

    before, (status, after), (unknown, _), (_, targets) = simulate(scenario)

    of_p = 'pod_cpu_usage_seconds_total{namespace="default",pod="p"}'
    grown = sample(after, "pod_cpu")[of_p] - sample(before, "pod_cpu")[of_p]
    assert (status, unknown, round(grown, 6)) == (200, 404, 2.0)
    assert sample(after, "pod_cpu")['pod_cpu_usage_seconds_total{namespace="default",pod="idle"}'] == 0
    assert sample(after, "node_cpu")["node_cpu_usage_seconds_total"] == sample(after, "pod_cpu")[of_p]
    assert sample(after, "pod_memory")['pod_memory_working_set_bytes{namespace="default",pod="p"}'] == 16 << 20
    assert "# TYPE container_cpu_usage_seconds_total counter\n" in after
    listed = msgspec.json.decode(targets)
    assert "/metrics/nodes/n1/metrics/resource" in [each["labels"]["__metrics_path__"] for each in listed]


def test_keplabs_own_curves_win_over_kwoks_annotations(simulate):
    async def scenario(w):
        await w.create("p", annotations={**ANNOTATIONS, "keplab.dev/usage": "cpu 1"})
        await w.until_pod("p", lambda p: p["status"]["phase"] == "Running")
        await asyncio.sleep(4)
        return served(w, "/metrics/nodes/{node}/metrics/resource", node="n1")[1]

    text = simulate(scenario)

    assert list(sample(text, "pod_memory").values()) == [0]
    assert next(iter(sample(text, "pod_cpu").values())) > 3.9
