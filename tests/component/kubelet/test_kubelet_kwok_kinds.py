"""KWOK's ResourceUsages, Metrics and Logs against the real API server in virtual time."""

import asyncio
import inspect

import msgspec
import pytest

from services.api.identity import ADMIN
from services.api.meta import Key
from services.runtime.config import StartError
from services.runtime.health import HttpRequest

KWOK = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterResourceUsage
metadata: {name: usage-from-annotation}
spec:
  usages:
  - usage:
      cpu:
        expression: |
          "kwok.x-k8s.io/usage-cpu" in pod.metadata.annotations
          ? Quantity(pod.metadata.annotations["kwok.x-k8s.io/usage-cpu"]) : Quantity("1m")
      memory: {expression: 'Quantity("1Mi") * (1.0 + Rand())'}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ResourceUsage
metadata: {name: grows, namespace: default}
spec:
  usages: [{usage: {cpu: {expression: 'pod.SinceSecond() / 100.0'}, memory: {value: 3Mi}}}]
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Metric
metadata: {name: metrics-resource}
spec:
  path: /metrics/nodes/{nodeName}/metrics/resource
  metrics:
  - {name: node_pods, dimension: node, kind: gauge, value: node.StartedContainersTotal()}
  - name: pod_cpu_usage_seconds_total
    dimension: pod
    kind: counter
    labels: [{name: pod, value: pod.metadata.name}]
    value: pod.CumulativeUsage("cpu")
"""
LOGS = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: logs}
spec: {selector: {matchNames: [p]}, logs: [{logsFile: p.log}]}
"""
STAGE = """\
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: runs}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchLabels: {staged: "yes"}
    matchExpressions: [{key: .status.phase, operator: NotIn, values: [Running]}]
  next:
    statusTemplate: |
      phase: Running
      containerStatuses:
      - {name: main, image: i, ready: true, restartCount: 0, started: true, state: {running: {startedAt: {{ Now | Quote }} } } }
"""


@pytest.fixture
def kwok(tmp_path):
    """Write the documents and return the settings of a host that reads them."""

    def write(*texts):
        file = tmp_path / "kwok.yaml"
        file.write_text("---\n".join(texts))
        return {"stages": (str(file),)}

    return write


def running(pod):
    return pod is not None and pod["status"].get("phase") == "Running"


async def served(world, path, query=None, **params):
    route = next(handler for pattern, handler in world.process.http_routes() if pattern == path)
    answer = route(HttpRequest("", params, query or {}))
    status, _, body = await answer if inspect.isawaitable(answer) else answer
    return status, body


async def used(world):
    """Return what the metrics API has of each pod: thousandths of a core and KiB."""
    answer = await world.call(ADMIN, verb="list", resource="pods.metrics.k8s.io")
    found = {}
    for item in msgspec.json.decode(answer.unwrap().body)["items"]:
        found[item["metadata"]["name"]] = item["containers"][0]["usage"]
    return found


def test_usages_drive_the_metrics_api_and_are_the_same_whenever_one_asks(simulate, kwok):
    async def scenario(world):
        await world.create("quarter", annotations={"kwok.x-k8s.io/usage-cpu": "250m"})
        await world.create("own", annotations={"keplab.dev/usage": "cpu 2; memory 7Mi"})
        await world.create("grows")
        await world.create("moved", labels={"staged": "yes"})
        for name in ("quarter", "own", "grows", "moved"):
            await world.until_pod(name, running)
        await asyncio.sleep(40)
        first = await used(world), await used(world)
        await asyncio.sleep(15)
        return first, await used(world)

    (first, again), later = simulate(scenario, **kwok(KWOK, STAGE))

    assert first == again
    assert (first["quarter"]["cpu"], first["own"], first["moved"]["cpu"]) == (
        "250m",
        {"cpu": "2", "memory": "7Mi"},
        "1m",
    )
    grown = [int(each["grows"]["cpu"].removesuffix("m")) for each in (first, later)]
    assert grown[1] - grown[0] == 150  # a hundredth of a core a second, in scrapes 15 s apart
    assert first["grows"]["memory"] == later["grows"]["memory"] == "3Mi"
    assert first["quarter"]["memory"] != later["quarter"]["memory"]
    assert simulate(scenario, **kwok(KWOK, STAGE)) == ((first, again), later)


def test_a_metric_is_a_page_of_the_host_in_place_of_its_own(simulate, kwok):
    path = "/metrics/nodes/{nodeName}/metrics/resource"

    async def scenario(world):
        await world.create("quarter", annotations={"kwok.x-k8s.io/usage-cpu": "250m"})
        await world.create("moved", labels={"staged": "yes"})
        for name in ("quarter", "moved"):
            await world.until_pod(name, running)
        pages = [await served(world, path, nodeName="n1")]
        await asyncio.sleep(8)
        pages.append(await served(world, path, nodeName="n1"))
        await world.delete("quarter")
        await world.until_pod("quarter", lambda pod: pod is None)
        pages.append(await served(world, path, nodeName="n1"))
        node = await world.admin.get("nodes", Key("", "n1"))
        annotations = node["metadata"]["annotations"]
        return (
            pages,
            await served(world, path, nodeName="n9"),
            await served(world, "/discovery/prometheus"),
            annotations,
        )

    pages, (unknown, said), (_, targets), annotations = simulate(scenario, **kwok(KWOK, STAGE))

    def value(page, name):
        return float(next(line for line in page[1].decode().splitlines() if line.startswith(name)).split()[-1])

    quarter = 'pod_cpu_usage_seconds_total{pod="quarter"}'
    assert [page[0] for page in pages] == [200, 200, 200]
    assert value(pages[1], quarter) - value(pages[0], quarter) == pytest.approx(2, abs=0.01)
    assert value(pages[0], "node_pods") == value(pages[2], "node_pods") == 2
    assert quarter not in pages[2][1].decode()
    assert "# TYPE pod_cpu_usage_seconds_total counter\n" in pages[0][1].decode()
    assert (unknown, said) == (404, b"node 'n9' is not here\n")
    assert annotations["metrics.k8s.io/resource-metrics-path"] == "/metrics/nodes/n1/metrics/resource"
    assert [each["labels"] for each in msgspec.json.decode(targets)] == [
        {
            "metrics_name": "metrics-resource",
            "__scheme__": "http",
            "__metrics_path__": "/metrics/nodes/n1/metrics/resource",
        }
    ]


def test_the_log_of_a_container_is_a_file_and_is_followed_as_it_grows(simulate, kwok, tmp_path):
    log = tmp_path / "p.log"
    log.write_text(
        "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:01Z stderr P two-\n2026-01-01T00:00:01Z stderr F half\n"
        "no form at all\n2026-01-01T00:00:02Z stdout F thr"
    )
    path, names = "/containerLogs/{namespace}/{pod}/{container}", {"namespace": "default", "container": "main"}

    async def text(world, **query):
        status, body = await served(world, path, query, pod="p", **names)
        return (
            (status, body.decode()) if isinstance(body, bytes) else (status, b"".join([p async for p in body]).decode())
        )

    async def scenario(world):
        await world.create("p", labels={"staged": "yes"})
        await world.create("q", run="forever")
        await world.until_pod("p", running)
        await world.until_pod("q", running)
        found = [
            await text(world),
            await text(world, tailLines="2", timestamps="true"),
            await text(world, previous="true"),
        ]
        found += [await text(world, sinceTime="2026-01-01T00:00:01Z", limitBytes="6"), await text(world, tailLines="0")]
        _, followed = await served(world, path, {"follow": "true", "tailLines": "1"}, pod="p", **names)
        pieces = b""
        async for piece in followed:
            pieces += piece
            if b"thr" not in pieces and log.read_text().endswith("thr"):
                with log.open("a") as file:
                    file.write("ee\n")
            elif pieces == b"three\n":
                log.write_text("2026-01-01T00:00:03Z stdout F anew\n")
            elif b"anew" in pieces:
                break
        log.unlink()
        found += [
            await text(world),
            await served(world, path, {}, pod="q", **names),
            await served(world, path, {}, pod="z", **names),
        ]
        return found, pieces.decode()

    (whole, tail, previous, since, none, missing, (_, own), (unknown, _)), pieces = simulate(
        scenario, **kwok(LOGS, STAGE)
    )

    assert whole == (200, "one\ntwo-half\nno form at all\nthr\n")
    assert tail == (200, "no form at all\n2026-01-01T00:00:02Z thr\n")
    assert previous == (400, 'previous terminated container "main" in pod "p" not found\n')
    assert (since, none) == ((200, "two-ha"), (200, ""))
    assert pieces == "three\nanew\n"
    assert missing == (400, f"log file {log}: No such file or directory\n")
    assert b"container main started" in own  # no document is for q
    assert unknown == 404


def test_a_document_that_cannot_be_used_keeps_the_host_from_starting(simulate, kwok):
    with pytest.raises(
        StartError, match=r"document 1: ClusterLogs logs: spec.logs\[0\].logsFile: want the path of a file"
    ):
        simulate(lambda world: None, **kwok(LOGS.replace("logsFile: p.log", "")))
