"""`keplab bench`: how fast this machine's mesh is, and its scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import msgspec
from rich.progress import Progress

from lab.cli.bench import scheduler_perf
from lab.cli.groups import Group
from lab.cli.live import progress_bar
from lab.cli.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail, output_option, print_json, print_table, set_option
from services.api.switches import Switches

if TYPE_CHECKING:
    from lab.benchmarks.result import SchedulerBench

EPILOG = """\
\b
Examples:
  keplab bench mesh
  keplab bench mesh --nodes 5000 --pods 2000
  keplab bench mesh --set kubelet.status_batching=immediate
  keplab bench kubelet --nodes 5000 --pods 10000
  keplab bench kubelet --nodes 200 --pods 9980 --rate 1   # 200 kubelets of 50 pods at rest
  keplab bench rest
  keplab bench rest --pods 1000 --calls 100 -o json | jq .lists.Table
  keplab bench recovery --objects 20000 --kills 20
  keplab bench watch
  keplab bench watch --watchers 50 --objects 2000 -o json | jq .phases
  keplab bench overload --seconds 30
  keplab bench security
  keplab bench store --seconds 5
  keplab bench recording --versions 20000
  keplab bench cel -o json | jq .evaluations_per_s
  keplab bench soak --hours 1
  keplab bench scheduler --list
  keplab bench scheduler --workload TopologySpreading --nodes 5000
  keplab bench scheduler --workload SchedulingBasic --nodes 5000 --form mesh -o json | jq .pods_per_s
  keplab bench --config examples/scheduler_perf/performance-config.yaml --labels integration-test,short
  keplab bench --config examples/scheduler_perf/performance-config.yaml --labels "" --workload 5Nodes --form algorithm
"""


@click.group("bench", cls=Group, epilog=EPILOG, invoke_without_command=True)
@scheduler_perf.options
@set_option
@output_option
@click.pass_context
def bench(
    ctx: click.Context,
    config: str | None,
    workload_re: str,
    labels: str,
    form: Literal["algorithm", "mesh"],
    data_items_dir: Path | None,
    topic: str,
    no_thresholds: bool,
    strict: bool,
    unknown_gates: str,
    assignments: tuple[str, ...],
    output: str,
) -> int:
    """Measure this machine's mesh and its parts.

    Figures compare only with others of the same machine. `make bench` measures everything. With --config it runs a
    file of upstream's scheduler_perf; the options go with that.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx)
        return EXIT_OK
    if config is None:
        _refuse_options(ctx)
        click.echo(ctx.get_help(), err=True)
        return EXIT_USAGE
    asked = scheduler_perf.Asked(
        config=config,
        workload=workload_re,
        labels=labels,
        form=form,
        topic=topic,
        data_items_dir=data_items_dir,
        has_thresholds=not no_thresholds,
        is_strict=strict,
        ignores_unknown_gates=unknown_gates == "ignore",
        assignments=assignments,
        output=output,
    )
    with progress_bar("{task.description}", quiet=output == "json", is_transient=True) as bar:
        return scheduler_perf.bench_file(asked, _shown_by(bar))


def _refuse_options(ctx: click.Context) -> None:
    """Refuse options of the group that mean nothing here. Raises: UsageError."""
    for option in ctx.command.params:
        if ctx.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE:
            why = (
                f"goes with --config, not with {ctx.invoked_subcommand}" if ctx.invoked_subcommand else "wants --config"
            )
            ctx.fail(f"{option.opts[0]} {why}")


@bench.command("mesh", epilog=EPILOG)
@click.option("--nodes", default=100, show_default=True, type=click.IntRange(1, 15_000), help="emulated nodes")
@click.option("--pods", default=2_000, show_default=True, type=click.IntRange(1, 40_000), help="pods created")
@click.option("--engine", default="memory", show_default=True, type=click.Choice(["memory", "sqlite", "etcd"]))
@set_option
@output_option
def mesh(nodes: int, pods: int, engine: str, assignments: tuple[str, ...], output: str) -> int:
    """Start a mesh of processes, create bare pods as fast as it takes them, wait until all are Running."""
    from lab.benchmarks.mesh import bench_mesh

    Switches.parse(assignments)  # a wrong one is refused before anything starts
    with _in_time("the mesh did not get there in time"):
        result = bench_mesh(nodes=nodes, pods=pods, engine=engine, switches=assignments, say=_say)
    if output == "json":
        print_json(result.document())
        return EXIT_OK
    click.echo(f"{result.pods_per_s:,.0f} pods/s created → Running; {result.cpu_us_per_pod:,.0f} µs of CPU a pod")
    click.echo(f"created → Running  p50 {result.p50_ms:,.0f} ms, p99 {result.p99_ms:,.0f} ms")
    p50_ms, p99_ms = result.create_to_bound_p50_ms, result.create_to_bound_p99_ms
    click.echo(f"created → bound    p50 {p50_ms:,.0f} ms, p99 {p99_ms:,.0f} ms")
    print_table(
        ("PROCESS", "CPU µs/POD", "MiB AT REST", "MiB AFTER"),
        [
            (name, f"{used:,.0f}", result.idle_rss_mib.get(name, ""), result.rss_mib.get(name, ""))
            for name, used in result.cpu_us_per_pod_by_process.items()
        ],
    )
    return EXIT_OK


@bench.command("kubelet", epilog=EPILOG)
@click.option("--nodes", default=5_000, show_default=True, type=click.IntRange(1, 15_000), help="nodes of one process")
@click.option(
    "--pods", default=10_000, show_default=True, type=click.IntRange(1, 40_000), help="pods started in a rush"
)
@click.option(
    "--rate", default=200, show_default=True, type=click.IntRange(1, 1_000), help="pods started a second before"
)
@click.option("--span", default=20.0, show_default=True, type=click.FloatRange(1.0, 600.0), help="seconds of each look")
@set_option
@output_option
def kubelet(nodes: int, pods: int, rate: int, span: float, assignments: tuple[str, ...], output: str) -> int:
    """One process that hosts many kubelets: at rest, at a rate of pod starts, in a rush, at rest with its pods."""
    from lab.benchmarks.kubelet_host import bench_kubelet_host

    Switches.parse(assignments)  # a wrong one is refused before anything starts
    with _in_time("the mesh did not get there in time"):
        result = bench_kubelet_host(nodes=nodes, pods=pods, rate=rate, span_s=span, switches=assignments, say=_say)
    if output == "json":
        print_json(result.document())
        return EXIT_OK
    click.echo(f"{nodes:,} nodes registered after {result.registered_s:g} s, usable after {result.nodes_s:g} s")
    click.echo(f"{pods:,} pods created → Running in {result.rush_s:g} s")
    click.echo(f"at {rate} a second  p50 {result.rate_p50_ms:,.0f} ms, p99 {result.rate_p99_ms:,.0f} ms")
    cores, age = sum(result.loaded_cpu.values()), f"no Lease older than {result.heartbeat_age_s:.1f} s"
    click.echo(f"at rest with {result.loaded_pods:,} pods  {cores:.2f} cores in all, {age}")
    print_table(
        ("PROCESS", "AT REST", "WITH PODS", f"AT {rate}/s", "µs/POD IN THE RUSH", "MiB AT REST", "MiB AFTER"),
        [
            (
                name,
                f"{100 * share:.1f} %",
                f"{100 * result.loaded_cpu[name]:.1f} %",
                f"{100 * result.rate_cpu[name]:.1f} %",
                f"{result.rush_cpu_us_per_pod[name]:,.0f}",
                result.idle_rss_mib[name],
                result.rss_mib[name],
            )
            for name, share in result.idle_cpu.items()
        ],
    )
    return EXIT_OK


@bench.command("rest", epilog=EPILOG)
@click.option("--pods", default=5_000, show_default=True, type=click.IntRange(1, 40_000), help="pods listed")
@click.option("--calls", default=300, show_default=True, type=click.IntRange(5, 10_000), help="calls of each operation")
@output_option
def rest(pods: int, calls: int, output: str) -> int:
    """Write a realistic pod and Deployment over REST in every way, and list many pods in every form; over TLS."""
    from lab.benchmarks.rest import bench_rest

    result = bench_rest(pods=pods, calls=calls, say=_say)
    if output == "json":
        print_json(result.document())
        return EXIT_OK
    print_table(
        ("KIND", "OPERATION", "SERVER CPU µs", "OF A GET", "WALL p50 µs", "CALLER CPU µs"),
        [
            (kind, name, f"{cost.cpu_us:,.0f}", f"{cost.of_get:.2f}", f"{cost.p50_us:,.0f}", f"{cost.load_cpu_us:,.0f}")
            for kind, operations in result.operations.items()
            for name, cost in operations.items()
        ],
        texts=2,
    )
    click.echo()
    print_table(
        (f"LIST OF {pods:,} PODS", "TO THE LAST BYTE p50 ms", "SERVER CPU ms", "OF JSON", "KB"),
        [
            (name, f"{cost.p50_ms:,.1f}", f"{cost.cpu_ms:,.1f}", f"{cost.of_json:.2f}", f"{cost.bytes / 1000:,.0f}")
            for name, cost in result.lists.items()
        ],
    )
    return EXIT_OK


@bench.command("recovery", epilog=EPILOG)
@click.option("--objects", default=20_000, show_default=True, type=click.IntRange(1, 199_000), help="pods stored")
@click.option(
    "--kills", default=20, show_default=True, type=click.IntRange(1, 1_000), help="SIGKILLs of the API server"
)
@output_option
def recovery(objects: int, kills: int, output: str) -> int:
    """Kill the API server of a mesh again and again: how long until it serves, and until a write is acknowledged."""
    from lab.benchmarks.recovery import bench_recovery

    with _in_time("the API server did not come back in time"):
        result = bench_recovery(objects=objects, kills=kills)
    if output == "json":
        print_json(result.document())
        return EXIT_OK
    click.echo(f"{objects:,} pods, {result.database_mib:,.0f} MiB; {kills} kills; load average {result.load_average:g}")
    click.echo(f"SIGKILL → serving      p50 {result.ready_p50_s:.2f} s, p99 {result.ready_p99_s:.2f} s")
    p50_s, p99_s = result.first_write_p50_s, result.first_write_p99_s
    click.echo(f"SIGKILL → first write  p50 {p50_s:.2f} s, p99 {p99_s:.2f} s, longest {result.first_write_max_s:.2f} s")
    click.echo(f"a start uses {result.start_cpu_s:.2f} s of CPU; the server has {result.rss_mib:,.0f} MiB")
    return EXIT_OK


@bench.command("store", epilog=EPILOG)
@click.option(
    "--seconds", default=1.0, show_default=True, type=click.FloatRange(0.1, 60.0), help="of each of three rounds"
)
@output_option
def store(seconds: float, output: str) -> int:
    """Writes per second of every engine with 1, 16 and 256 writers, next to raw SQLite and raw etcd.

    Without an etcd on the PATH the rest is measured.
    """
    from lab.benchmarks.store import bench_store
    from services.runtime.config import MeshError
    from services.runtime.etcd_members import find_etcd

    has_etcd = True
    try:
        find_etcd()
    except MeshError as error:
        has_etcd = False
        _say(f"{error}; the rest is measured")
    result = bench_store(seconds=seconds, with_etcd=has_etcd, say=_say)
    if output == "json":
        print_json(result.document())
        return EXIT_OK
    writers = next(iter(result.by_engine.values()))
    print_table(
        ("WRITES/s", *(f"{number} WRITER{'S' if number > 1 else ''}" for number in writers)),
        [(title, *(f"{rate:,.0f}" for rate in rates.values())) for title, rates in result.by_engine.items()],
    )
    click.echo(f"load average {result.load[0]:g} before, {result.load[1]:g} after")
    return EXIT_OK


@bench.command("watch", epilog=EPILOG)
@click.option("--watchers", default=200, show_default=True, type=click.IntRange(1, 250), help="that begin, or stall")
@click.option(
    "--objects", default=10_000, show_default=True, type=click.IntRange(1, 40_000), help="pods they begin with"
)
@output_option
def watch(watchers: int, objects: int, output: str) -> int:
    """Send changes to 1, 10, 100 and 1,000 watchers; then see what a healthy client sees while many begin or stall."""
    from lab.benchmarks.watch import bench_watch

    with _in_time("the watches did not begin in time"):
        result = bench_watch(watchers=watchers, objects=objects, say=_say)
    if output == "json":
        print_json(result.document())
        return EXIT_OK
    click.echo(f"load average before: {result.load_average}")
    print_table(
        ("WATCHERS", "CHANGES", "EVENTS/s", "SERVER CPU µs/EVENT"),
        [
            (f"{count:,}", f"{each.changes:,}", f"{each.events_per_s:,.0f}", f"{each.server_us_per_event:,.1f}")
            for count, each in result.fan_out.items()
        ],
        texts=0,
    )
    click.echo()
    print_table(
        (
            f"{watchers} WATCHES, {objects:,} PODS",
            "CALLS",
            "p50 ms",
            "p99 ms",
            "MAX ms",
            "s",
            "SERVER CPU s",
            "MiB",
            "BEGUN",
            "REFUSED",
            "DELIVERED p99 ms",
        ),
        [
            (
                name,
                f"{each.calls:,}",
                each.p50_ms,
                each.p99_ms,
                each.max_ms,
                each.took_s,
                each.server_cpu_s,
                each.server_rss_mib,
                each.begun,
                each.refused,
                each.delivered_p99_ms or "",
            )
            for name, each in result.phases.items()
        ],
    )
    return EXIT_OK


@bench.command("overload", epilog=EPILOG)
@click.option("--nodes", default=50, show_default=True, type=click.IntRange(1, 5_000), help="emulated nodes")
@click.option("--objects", default=20_000, show_default=True, type=click.IntRange(10, 40_000), help="objects listed")
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(1.0, 600.0), help="of each phase")
@output_option
def overload(nodes: int, objects: int, seconds: float, output: str) -> int:
    """Heartbeats and binds while one user floods, one opens a thousand watches, one lists everything in a loop."""
    from lab.benchmarks.overload import bench_overload

    with _in_time("the mesh did not get there in time"):
        result = bench_overload(nodes=nodes, objects=objects, seconds=seconds, say=_say)
    if output == "json":
        print_json(result.document())
        return EXIT_OK
    print_table(
        ("PHASE", "HEARTBEAT p50 ms", "p99 ms", "FAILED", "BIND p50 ms", "p99 ms", "FAILED", "API SERVER MiB"),
        [
            (
                name,
                phase.heartbeat_p50_ms,
                phase.heartbeat_p99_ms,
                f"{phase.heartbeats_failed} of {phase.heartbeats}",
                phase.bind_p50_ms,
                phase.bind_p99_ms,
                f"{phase.binds_failed} of {phase.binds}",
                phase.rss_mib,
            )
            for name, phase in result.phases.items()
        ],
    )
    for user, codes in result.answers.items():
        click.echo(f"{user}: " + ", ".join(f"{count:,} x {code or 'broken'}" for code, count in sorted(codes.items())))
    click.echo(f"load average when it began: {result.load_average}")
    return EXIT_OK


@bench.command("security", epilog=EPILOG)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 20), help="of both; medians are shown")
@output_option
def security(rounds: int, output: str) -> int:
    """What mutual TLS costs a call and a connection: the profiles `tokens` and `strict` in turn."""
    from lab.benchmarks.security import bench_profiles

    with _in_time("the mesh did not get there in time"):
        results = bench_profiles(rounds)
    if output == "json":
        print_json([asdict(result) for result in results])
        return EXIT_OK
    print_table(
        ("PROFILE", "CALL: SERVER µs", "CLIENT µs", "ALONE ms", "CONNECTION: SERVER µs", "CLIENT µs", "ms"),
        [tuple(asdict(result).values()) for result in results],
    )
    return EXIT_OK


@bench.command("soak", epilog=EPILOG)
@click.option("--hours", default=1.0, show_default=True, type=click.FloatRange(0.02, 1_000), help="how long")
@click.option("--nodes", default=6, show_default=True, type=click.IntRange(1, 1_000), help="emulated nodes")
@click.option("--rate", default=1.0, show_default=True, type=click.FloatRange(0.05, 100), help="bare pods a second")
@click.option(
    "--fault-every",
    default=20.0,
    show_default=True,
    type=click.FloatRange(1),
    help="seconds between faults, on average",
)
@click.option("--engine", default="sqlite", show_default=True, type=click.Choice(["memory", "sqlite"]))
@click.option("--seed", default=0, show_default=True, help="of load and faults")
@click.option(
    "--out",
    default=Path("runs/soak"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="where soak.json and soak.md go",
)
@output_option
def soak(
    hours: float, nodes: int, rate: float, fault_every: float, engine: str, seed: int, out: Path, output: str
) -> int:
    """Run a mesh for hours under churn and faults, and judge after a warm-up what grows.

    Pods, Deployments, Jobs and claims come and go, processes are killed and paused. Judged are memory, files, threads,
    tasks, queues, watches, the store, latencies and lease ages.

    Ctrl-C ends it early and judges what is there. Exit code 1 when a slope is above its limit.
    """
    from lab.benchmarks.soak.report import HEADINGS, RISING, page
    from lab.benchmarks.soak.run import bench_soak

    with _in_time("the mesh did not get there in time"):
        found = bench_soak(
            hours=hours, nodes=nodes, rate=rate, fault_period_s=fault_every, seed=seed, engine=engine, say=_say
        )
    document, rows = found.document(), found.rows()
    out.mkdir(parents=True, exist_ok=True)
    (out / "soak.json").write_bytes(msgspec.json.encode(document))
    (out / "soak.md").write_text(page(found))
    if output == "json":
        print_json({key: value for key, value in document.items() if key != "samples"})
    else:
        print_table(HEADINGS, [row.cells() for row in rows])
        click.echo(f"{found.summary}\nwrote {out}/soak.json and {out}/soak.md")
    if found.is_interrupted:
        raise KeyboardInterrupt
    return EXIT_FAILED if any(row.result in RISING for row in rows) else EXIT_OK


@bench.command("recording", epilog=EPILOG)
@click.option("--versions", default=100_000, show_default=True, type=click.IntRange(1_000, 2_000_000), help="recorded")
@click.option("--nodes", default=1_000, show_default=True, type=click.IntRange(1, 15_000), help="nodes")
@click.option("--pods", default=20_000, show_default=True, type=click.IntRange(1, 100_000), help="pods at any time")
@click.option("--seeks", default=200, show_default=True, type=click.IntRange(10, 10_000), help="drawn versions shown")
@output_option
def recording(versions: int, nodes: int, pods: int, seeks: int, output: str) -> int:
    """Write a recording, show drawn versions of it, and record a run."""
    from lab.benchmarks.recording import bench_recording

    result = bench_recording(versions=versions, nodes=nodes, live=pods, seeks=seeks, say=_say)
    if output == "json":
        print_json(result.document())
        return EXIT_OK
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
    print_table(("WHAT", "TAKES"), rows, texts=2)
    return EXIT_OK


@bench.command("cel", epilog=EPILOG)
@output_option
def cel(output: str) -> int:
    """Compile and evaluate device selectors: how many a second of each, and what Kubernetes says they cost."""
    from lab.benchmarks.cel import EXPRESSIONS, bench_cel

    result = bench_cel()
    if output == "json":
        print_json(result.document())
        return EXIT_OK
    print_table(
        ("SELECTOR", "EVALUATIONS/s", "COSTS COUNTED/s", "COMPILATIONS/s", "COST", "EXPRESSION"),
        [
            (
                name,
                f"{result.evaluations_per_s[name]:,.0f}",
                f"{result.counted_per_s[name]:,.0f}",
                f"{result.compilations_per_s[name]:,.0f}",
                f"{result.cost[name]:,}",
                expression,
            )
            for name, expression in EXPRESSIONS.items()
        ],
    )
    return EXIT_OK


@bench.command("scheduler", epilog=EPILOG)
@click.option("--workload", default="SchedulingBasic", show_default=True, metavar="NAME", help="one that --list names")
@click.option("--nodes", default=500, show_default=True, type=click.IntRange(1, 15_000), help="nodes without kubelets")
@click.option("--pods", type=click.IntRange(1, 200_000), help="pods measured; default: upstream's, scaled")
@click.option("--init-pods", type=click.IntRange(0, 200_000), help="pods there are first; default: upstream's, scaled")
@click.option(
    "--form",
    default="algorithm",
    show_default=True,
    type=click.Choice(["algorithm", "mesh"]),
    help="the scheduler's core in this process, or scheduler and API server as processes",
)
@click.option("--list", "is_list", is_flag=True, help="name the workloads and end")
@set_option
@output_option
def scheduler(
    workload: str,
    nodes: int,
    pods: int | None,
    init_pods: int | None,
    form: str,
    is_list: bool,
    assignments: tuple[str, ...],
    output: str,
) -> int:
    """Schedule the pods of one of upstream's scheduler_perf workloads; all nodes are scored."""
    from lab.benchmarks.workloads import register

    if is_list:
        return _list(output)
    Switches.parse(assignments)  # a wrong one is refused before anything starts
    try:
        chosen = register.workload(workload)
    except register.UnknownWorkload as error:
        fail(str(error))
    size = chosen.size(nodes, init_pods=init_pods, pods=pods)
    with (
        _in_time("the pods were not scheduled in time"),
        progress_bar("{task.description}", quiet=output == "json", is_transient=True) as bar,
    ):
        if form == "algorithm":
            from lab.benchmarks.algorithm import bench_algorithm

            result = bench_algorithm(chosen, size, assignments=assignments, progress=_shown_by(bar))
        else:
            from lab.benchmarks.scheduler_mesh import bench_scheduler_mesh

            result = bench_scheduler_mesh(chosen, size, assignments=assignments, progress=_shown_by(bar))
    if output == "json":
        print_json(result.document())
        return EXIT_OK
    _show(result)
    return EXIT_OK


def _list(output: str) -> int:
    from lab.benchmarks.workloads.register import WORKLOADS

    if output == "json":
        print_json([{"workload": each.name, "what": each.what} for each in WORKLOADS.values()])
    else:
        print_table(("WORKLOAD", "WHAT"), [(each.name, each.what) for each in WORKLOADS.values()])
    return EXIT_OK


def _say(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def _in_time(late: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        _say(f"Error: {error or late}")
        raise click.exceptions.Exit(EXIT_FAILED) from None


def _shown_by(bar: Progress) -> Callable[[str, int, int], None]:
    """Return what shows how far it is; drawing costs CPU, so that it is done ten times a second."""
    task, shown_at = bar.add_task("starting", total=None), 0.0

    def show(what: str, done: int, total: int) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if done == total or now - shown_at > 0.1:
            shown_at = now
            bar.update(task, description=what, completed=done, total=total)

    return show


def _show(result: SchedulerBench) -> None:
    what = "pop (or due) → assume" if result.form == "algorithm" else "created → bound"
    click.echo(
        f"{result.pods_per_s:,.0f} pods/s: {result.pods:,} pods of {result.workload} on {result.nodes:,} nodes, "
        f"{result.cpu_us_per_pod:,.0f} µs of CPU a pod"
    )
    if result.resize_attempts:
        click.echo(f"attempts to preempt for deferred resizes: {result.resize_attempts:,}")
    click.echo(f"{what}  p50 {result.p50_ms:,.3f} ms, p99 {result.p99_ms:,.3f} ms")
    rows = [("process", name, f"{used:,.1f}") for name, used in result.cpu_us_per_pod_by_process.items()]
    for kind, found in (
        ("plugin", result.by_plugin),
        ("extension point", result.by_extension_point),
        ("besides plugins", result.by_part),
    ):
        rows += [(kind, name, f"{spent:,.1f}") for name, spent in found.items() if spent >= SHOWN_MIN_US]
    print_table(("", "WHERE THE TIME GOES", "µs/POD"), rows, texts=2)


SHOWN_MIN_US = 0.05
