"""`keplab bench`: measure how fast the mesh and its scheduler are on this machine."""

import click

from lab.cli.bench import scheduler_perf
from lab.cli.bench.commands import Benches, shown_by
from lab.cli.bench.scheduler_perf import PerfOptions
from lab.cli.live import progress_bar
from lab.cli.output import EXIT_OK, EXIT_USAGE, output_option, set_option, takes

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
  keplab bench side-by-side --kubeconfig admin.conf --process kube-apiserver=4242 --process etcd=4243
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


@click.group("bench", cls=Benches, epilog=EPILOG, invoke_without_command=True)
@scheduler_perf.options
@set_option
@output_option
@takes(PerfOptions)
def bench(options: PerfOptions) -> int:
    """Measure this machine's mesh and its parts.

    Figures compare only with other figures of the same machine. `make bench` measures everything. --config runs a file
    of upstream's scheduler_perf; the other options belong to it.
    """
    ctx = click.get_current_context()
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx)
        return EXIT_OK
    if options.config is None:
        _refuse_options(ctx)
        click.echo(ctx.get_help(), err=True)
        return EXIT_USAGE
    with progress_bar("{task.description}", quiet=options.output == "json", is_transient=True) as bar:
        return scheduler_perf.bench_file(options, options.config, shown_by(bar))


def _refuse_options(ctx: click.Context) -> None:
    """Refuse options of the group that mean nothing here. Raises: UsageError."""
    for option in ctx.command.params:
        if ctx.get_parameter_source(option.name or "") is click.core.ParameterSource.COMMANDLINE:
            why = (
                f"goes with --config, not with {ctx.invoked_subcommand}" if ctx.invoked_subcommand else "wants --config"
            )
            ctx.fail(f"{option.opts[0]} {why}")
