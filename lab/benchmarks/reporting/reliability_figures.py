"""Figures of what reliability costs: writes of each engine, watches, recovery, overload. Each has meshes of its own."""

from collections.abc import Callable

from lab.benchmarks.overload import bench_overload
from lab.benchmarks.recovery import bench_recovery
from lab.benchmarks.reporting.report import Figures
from lab.benchmarks.store import bench_store
from lab.benchmarks.watch import FAN_OUT, bench_watch
from services.runtime.config import MeshError
from services.runtime.etcd_members import find_etcd

RECOVERY_AIM_S = 3.0
"""Aim in seconds for SIGKILL to the first acknowledged write, with 20,000 objects. Source: guarantees 12.3."""
BESIDE_STARTS_AIM_MS = 100.0
"""Aim in milliseconds for another client's latency while 200 watches start. Source: guarantees W16, AS-20."""

Say = Callable[[str], None]


def measure(found: Figures, say: Say, *, is_quick: bool) -> None:
    """Add all reliability figures to `found`; takes about four minutes, or half a minute with `is_quick`."""
    _writes(found, say, seconds=0.3 if is_quick else 2.0)
    _watches(found, say, is_quick=is_quick)
    _recovery(found, say, is_quick=is_quick)
    _overload(found, say, is_quick=is_quick)


def _writes(figures: Figures, say: Say, *, seconds: float) -> None:
    try:
        find_etcd()
    except MeshError as error:
        say(f"{error}; the other engines are measured")
        has_etcd = False
    else:
        has_etcd = True
    say("writes of each engine")
    result = bench_store(seconds=seconds, with_etcd=has_etcd, say=say)
    figures.runs.append({"workload": "Store", **result.document()})
    for engine, rates in result.by_engine.items():
        for writers, rate in rates.items():
            name = f"store.{engine.replace(' ', '_').replace(',', '')}.{writers}.writes_per_s"
            figures.add(name, f"writes, {engine}, {writers} at once", rate, "1/s")


def _watches(figures: Figures, say: Say, *, is_quick: bool) -> None:
    watchers, objects = (20, 500) if is_quick else (200, 10_000)
    result = bench_watch(watchers=watchers, objects=objects, fan_out=FAN_OUT[:2] if is_quick else FAN_OUT, say=say)
    figures.runs.append({"workload": "Watch", **result.document()})
    for count, fan_out in result.fan_out.items():
        figures.add(f"fan_out.{count}.events_per_s", f"events to {count:,} watchers", fan_out.events_per_s, "events/s")
        figures.add(f"fan_out.{count}.cpu_us", "… CPU of the API server for each", fan_out.server_us_per_event, "µs")
    for name, phase in result.phases.items():
        title = f"another client's get, p99, {watchers} watches of {objects:,} pods: {name}"
        at_most = BESIDE_STARTS_AIM_MS if phase.begun else None
        figures.add(
            f"watch.{name.replace(',', '').replace(' ', '_')}.p99_ms", title, phase.p99_ms, "ms", at_most=at_most
        )


def _recovery(figures: Figures, say: Say, *, is_quick: bool) -> None:
    objects, kills = (1_000, 2) if is_quick else (20_000, 12)
    say(f"{kills} kills of an API server with {objects:,} objects")
    result = bench_recovery(objects=objects, kills=kills)
    figures.runs.append({"workload": "Recovery", **result.document()})
    where = f"SIGKILL with {objects:,} objects"
    figures.add("recovery.ready_p99_s", f"{where} → serving, p99", result.ready_p99_s, "s")
    figures.add("recovery.write_p50_s", f"{where} → first acknowledged write, p50", result.first_write_p50_s, "s")
    write = f"{where} → first acknowledged write, p99"
    figures.add("recovery.write_p99_s", write, result.first_write_p99_s, "s", at_most=RECOVERY_AIM_S)
    figures.add("recovery.start_cpu_s", "… CPU of a process until it serves", result.start_cpu_s, "s")


def _overload(figures: Figures, say: Say, *, is_quick: bool) -> None:
    nodes, objects, seconds = (5, 500, 3.0) if is_quick else (50, 10_000, 20.0)
    result = bench_overload(nodes=nodes, objects=objects, seconds=seconds, say=say)
    figures.runs.append({"workload": "Overload", **result.document()})
    for name, phase in result.phases.items():
        where = f"{nodes} kubelets, {name}"
        key = f"overload.{name.replace(' ', '_')}"
        figures.add(f"{key}.heartbeat_p99_ms", f"{where}: heartbeat, p99", phase.heartbeat_p99_ms, "ms", at_most=1_000)
        figures.add(f"{key}.heartbeats_failed", f"… not answered, of {phase.heartbeats}", phase.heartbeats_failed, "")
        figures.add(f"{key}.bind_p99_ms", f"{where}: bind, p99", phase.bind_p99_ms, "ms")
        figures.add(f"{key}.rss_mib", "… memory of the API server", phase.rss_mib, "MiB")
