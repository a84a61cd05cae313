"""`keplab bench`: how fast this machine's mesh is."""

from __future__ import annotations

import click

from services.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    output_option,
    print_json,
    print_table,
    set_option,
    switch_overrides,
)

EPILOG = """\
\b
Examples:
  keplab bench mesh
  keplab bench mesh --nodes 5000 --pods 2000
  keplab bench mesh --set kubelet.status_batching=immediate
  keplab bench mesh --engine sqlite -o json | jq .pods_per_s
"""


@click.group("bench", epilog=EPILOG)
def COMMAND() -> None:  # noqa: N802
    """Measure; figures compare only with others of the same machine. `make bench` measures everything."""


@COMMAND.command("mesh", epilog=EPILOG)
@click.option("--nodes", default=100, show_default=True, type=click.IntRange(1, 15_000), help="emulated nodes")
@click.option("--pods", default=2_000, show_default=True, type=click.IntRange(1, 40_000), help="pods created")
@click.option("--engine", default="memory", show_default=True, type=click.Choice(["memory", "sqlite"]))
@set_option
@output_option
def mesh(nodes: int, pods: int, engine: str, assignments: tuple[str, ...], output: str) -> int:
    """Start a mesh of processes, create bare pods as fast as it takes them, wait until all are Running."""
    from services.experiments.bench import bench_mesh

    switch_overrides(assignments)  # a wrong one is told before anything starts

    def say(text: str) -> None:
        click.echo(text, err=True)

    try:
        result = bench_mesh(nodes=nodes, pods=pods, engine=engine, switches=assignments, say=say)
    except TimeoutError as error:
        click.echo(f"Error: {error or 'the mesh did not get there in time'}", err=True)
        return EXIT_FAILED
    if output == "json":
        print_json(result.document())
        return EXIT_OK
    click.echo(f"{result.pods_per_s:,.0f} pods/s created → Running; {result.cpu_us_per_pod:,.0f} µs of CPU a pod")
    click.echo(f"created → Running  p50 {result.p50_ms:,.0f} ms, p99 {result.p99_ms:,.0f} ms")
    click.echo(
        f"created → bound    p50 {result.create_to_bound_p50_ms:,.0f} ms, p99 {result.create_to_bound_p99_ms:,.0f} ms"
    )
    print_table(
        ("PROCESS", "CPU µs/POD", "MiB AT REST", "MiB AFTER"),
        [
            (name, f"{used:,.0f}", result.idle_rss_mib.get(name, ""), result.rss_mib.get(name, ""))
            for name, used in result.cpu_us_per_pod_by_process.items()
        ],
    )
    return EXIT_OK
