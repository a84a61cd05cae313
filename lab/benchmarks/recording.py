"""Benchmark of recordings: the cost of writing one, and how fast any of its versions is shown.

Pods are created, bound, run and deleted on a number of nodes, so that a fixed number of pods exists at
any time. Each version comes with five lines of the event log, as in a mesh. A seek goes to a random
version: once for the columns as frames, once for the whole state by name. The cost of a run is that of a
shipped scenario, simulated with and without a recording.
"""

import hashlib
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

import msgspec

from lab.benchmarks.bench import Bench, Reporter, Table, option
from lab.benchmarks.result import Result
from lab.recordings.format import SUFFIX, Meta
from lab.recordings.reader import Recording
from lab.recordings.writer import Writer
from lab.scenarios.loading import load_scenario
from lab.scenarios.recording import run_recorder
from lab.scenarios.run import simulate
from services.api.wire import WatchEvent
from services.telemetry.eventlog import Line

SCENARIO: Final = "experiments/crashes/killed-scheduler.txt"
ROUNDS: Final = 3
LINES_BESIDE: Final = 4
Say = Callable[[str], None]
Step = tuple[list[Line], WatchEvent]


@dataclass
class RecordingResult(Result):
    """Figures of a recording.

    `write_us_per_version`: time of the writer alone, log lines included. `close_s`: until the recording is
    one file. Seeks in milliseconds: `seek` to columns as frames, `state` to all objects by name. `run_cpu_s`:
    CPU of one run of the scenario, without and with a recording.
    """

    versions: int
    nodes: int
    live_pods: int
    write_us_per_version: float
    close_s: float
    size_mib: float
    bytes_per_version: float
    open_s: float
    first_seek_ms: float
    seek_p50_ms: float
    seek_p95_ms: float
    seek_max_ms: float
    state_p50_ms: float
    state_p95_ms: float
    run_cpu_s: tuple[float, float]
    run_versions: int

    @property
    def run_overhead_percent(self) -> float:
        """Additional CPU time of a recorded run, in percent."""
        without, recorded = self.run_cpu_s
        return 100 * (recorded / without - 1)


def bench_recording(
    *, versions: int = 100_000, nodes: int = 1_000, live: int = 20_000, seeks: int = 200, say: Say = lambda text: None
) -> RecordingResult:
    """Write a recording of `versions` versions, then seek in it `seeks` times."""
    with tempfile.TemporaryDirectory(prefix="keplab-bench-") as folder:
        path = Path(folder) / f"bench{SUFFIX}"
        say(f"writing {versions:,} versions")
        writer = Writer(path, Meta(title="bench"))
        spent_s, done = 0.0, 0
        for steps in _chunks(_history(nodes, live), versions):
            begun = time.process_time()
            for lines, event in steps:
                for line in lines:
                    writer.line(line)
                writer.event(event)
            spent_s += time.process_time() - begun
            done += len(steps)
        begun = time.process_time()
        writer.close(Meta(title="bench", ended="now"))
        close_s = time.process_time() - begun
        size = path.stat().st_size
        say("seeking")
        begun = time.perf_counter()
        with Recording.open(path) as recording:
            open_s = time.perf_counter() - begun
            chance = random.Random(1)
            first, last = recording.rv_range
            wanted = [chance.randint(first, last) for _ in range(seeks + 1)]
            shown = [_timed_ms(lambda rv=rv: recording.model_at(rv).frames()) for rv in wanted]  # type: ignore[misc]
            states = [_timed_ms(lambda rv=rv: recording.state_at(rv)) for rv in wanted]  # type: ignore[misc]
        say(f"simulating {SCENARIO}")
        run_cpu_s, run_versions = _run_cost(Path(folder))
    columns, by_name = (quantiles(each[1:], n=20) for each in (shown, states))
    return RecordingResult(
        versions=done,
        nodes=nodes,
        live_pods=live,
        write_us_per_version=round(spent_s / done * 1e6, 1),
        close_s=round(close_s, 2),
        size_mib=round(size / (1 << 20), 1),
        bytes_per_version=round(size / done, 1),
        open_s=round(open_s, 2),
        first_seek_ms=round(shown[0], 1),
        seek_p50_ms=round(columns[9], 1),
        seek_p95_ms=round(columns[18], 1),
        seek_max_ms=round(max(shown[1:]), 1),
        state_p50_ms=round(by_name[9], 1),
        state_p95_ms=round(by_name[18], 1),
        run_cpu_s=run_cpu_s,
        run_versions=run_versions,
    )


def _timed_ms(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return (time.perf_counter() - begun) * 1e3


def _run_cost(folder: Path) -> tuple[tuple[float, float], int]:
    """Return the CPU seconds of a run without and with a recording, the least of some, and its versions."""
    scenario, versions = load_scenario(SCENARIO), 0
    spent: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        begun = time.process_time()
        simulate(scenario)
        spent[0].append(time.process_time() - begun)
        path = folder / f"run-{number}{SUFFIX}"
        begun = time.process_time()
        with run_recorder(path, scenario, seed=0) as recorder:
            simulate(scenario, recorder=recorder)
        spent[1].append(time.process_time() - begun)
        with Recording.open(path) as recording:
            versions = len(recording)
    return (round(min(spent[0]), 3), round(min(spent[1]), 3)), versions


def _chunks(steps: Iterator[Step], count: int) -> Iterator[list[Step]]:
    chunk: list[Step] = []
    for number, step in enumerate(steps, 1):
        chunk.append(step)
        if len(chunk) == 1_000 or number == count:
            yield chunk
            chunk = []
        if number == count:
            return


def _history(nodes: int, live: int) -> Iterator[Step]:
    """Yield commits for ever: nodes first, then lives of pods, of which `live` are there at a time."""
    chance, rv = random.Random(0), 0
    for number in range(nodes):
        rv += 1
        yield _commit(rv, "ADDED", "nodes", "Node", _node(number, rv))
    there: deque[tuple[int, str]] = deque()
    number = 0
    while True:
        number += 1
        node = f"node-{chance.randrange(nodes)}"
        for type_, phase, bound in (
            ("ADDED", "Pending", ""),
            ("MODIFIED", "Pending", node),
            ("MODIFIED", "Running", node),
        ):
            rv += 1
            yield _commit(rv, type_, "pods", "Pod", _pod(number, rv, bound, phase))
        there.append((number, node))
        if len(there) > live:
            old, node = there.popleft()
            for type_, phase in (("MODIFIED", "Succeeded"), ("DELETED", "Succeeded")):
                rv += 1
                yield _commit(rv, type_, "pods", "Pod", _pod(old, rv, node, phase))


def _commit(rv: int, type_: str, resource: str, kind: str, document: dict[str, Any]) -> Step:
    body, meta = msgspec.json.encode(document), document["metadata"]
    obj = {"kind": kind, "ns": meta.get("namespace", ""), "name": meta["name"], "uid": meta["uid"]}
    spec, status = document["spec"], document["status"]
    facts = {
        "node": spec.get("nodeName", ""),
        "phase": status.get("phase", ""),
        "binding_generation": 1,
        "nominated": "",
    }
    data = {
        "type": type_,
        "group_end": rv,
        "content_sha256": hashlib.sha256(body).hexdigest(),
        "prev_rv": rv - 1,
        **facts,
    }
    ns = rv * 2_000_000
    request = {"verb": "patch", "path": f"{resource}/{meta.get('namespace', '')}/{meta['name']}/status"}
    lines = [
        _line(ns, "api.request", None, None, request),
        _line(ns, "store.commit", obj, rv, {**data, "verb": "patch"}),
    ]
    lines += [_line(ns, "api.response", None, rv, {**request, "code": 200, "definite": True})]
    lines += [_line(ns, "ctrl.reconcile", obj, None, {"result": "done"})] * (LINES_BESIDE - 2)
    event = WatchEvent(
        type=type_, resource=resource, namespace=obj["ns"], name=obj["name"], uid=obj["uid"], rv=rv, body=body
    )
    return lines, event


def _line(ns: int, ev: str, obj: dict[str, str] | None, rv: int | None, data: dict[str, Any]) -> Line:
    return Line(
        1,
        1,
        ns,
        "2026-01-01T00:00:00.000000Z",
        "apiserver",
        "0" * 16,
        ev,
        rv,
        None,
        obj,
        "",
        None,
        f"r-{ns}",
        "a",
        "",
        data,
    )


def _node(number: int, rv: int) -> dict[str, Any]:
    name = f"node-{number}"
    sizes = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    meta = {"name": name, "uid": f"node-uid-{number:08d}", "resourceVersion": str(rv), "labels": labels}
    kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [{"type": kind, "status": str(kind == "Ready"), "reason": "Kubelet"} for kind in kinds]
    status = {"capacity": sizes, "allocatable": sizes, "conditions": conditions}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": status}


def _pod(number: int, rv: int, node: str, phase: str) -> dict[str, Any]:
    name, owner = f"web-{number // 10:05d}-{number % 10}", f"web-{number // 10:05d}"
    meta = {
        "name": name,
        "namespace": f"team-{number % 7}",
        "uid": f"{number:08d}-0000-4000-8000-{number:012d}",
        "resourceVersion": str(rv),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": "web", "pod-template-hash": owner},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": owner,
                "uid": f"rs-{number // 10}",
                "controller": True,
            }
        ],
        "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:phase": {}}}}],
    }
    requests = {"cpu": "250m", "memory": "256Mi"}
    container = {
        "name": "main",
        "image": "registry.example.com/web:1",
        "resources": {"requests": requests},
        "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
    }
    spec = {
        "containers": [container],
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        **({"nodeName": node} if node else {}),
    }
    conditions = [
        {"type": kind, "status": str(phase == "Running")} for kind in ("Initialized", "Ready", "PodScheduled")
    ]
    status = {"phase": phase, "conditions": conditions if node else [], "qosClass": "Burstable"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


@dataclass(frozen=True, kw_only=True)
class RecordingOptions:
    """The options of `keplab bench recording`."""

    versions: int = option(100_000, "versions recorded", least=1_000, most=2_000_000)
    nodes: int = option(1_000, "nodes", least=1, most=15_000)
    pods: int = option(20_000, "pods at any time", least=1, most=100_000)
    seeks: int = option(200, "random versions read", least=10, most=10_000)


def _run_bench(options: RecordingOptions, reporter: Reporter) -> RecordingResult:
    return bench_recording(
        versions=options.versions, nodes=options.nodes, live=options.pods, seeks=options.seeks, say=reporter.say
    )


def _table(_: RecordingOptions, result: RecordingResult) -> Iterator[Table]:
    p50_ms, p95_ms, max_ms = result.seek_p50_ms, result.seek_p95_ms, result.seek_max_ms
    rows = (
        ("write", f"{result.write_us_per_version:,.1f} µs a version, with its five lines"),
        ("end", f"{result.close_s:,.2f} s until it is one file"),
        ("size", f"{result.size_mib:,.1f} MiB, {result.bytes_per_version:,.0f} bytes a version"),
        ("open", f"{result.open_s:,.2f} s, and {result.first_seek_ms:,.0f} ms for the first version"),
        ("seek", f"p50 {p50_ms:,.1f} ms, p95 {p95_ms:,.1f} ms, at most {max_ms:,.1f} ms"),
        ("state", f"p50 {result.state_p50_ms:,.1f} ms, p95 {result.state_p95_ms:,.1f} ms"),
        ("run", f"{result.run_overhead_percent:+,.1f} % of CPU for a run of {result.run_versions:,} versions"),
    )
    yield Table(("WHAT", "TAKES"), rows, texts=2)


BENCH: Final = Bench(
    name="recording",
    help="Write a recording, read random versions of it, and record a run.",
    options=RecordingOptions,
    run=_run_bench,
    table=_table,
    document=RecordingResult.document,
)
