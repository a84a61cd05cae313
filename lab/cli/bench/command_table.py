"""The commands of `keplab bench`: name, module and one line of help for each.

The help is this table, so that it imports no benchmark. To add a benchmark, add a module of `lab/benchmarks/`
that has `BENCH`, and a row here; the first line of its help is the row's.
"""

from lab.cli.command_table import Row

BENCHES: dict[str, Row] = {
    row.name: row
    for row in (
        Row(
            "cel",
            "Compile and evaluate device selectors, and show the rate of both and the cost by Kubernetes' estimate",
            "lab.benchmarks.cel",
        ),
        Row(
            "kubelet",
            "Measure a process that hosts many kubelets: at rest, at a rate of pod starts, in a rush, at rest with "
            "its pods",
            "lab.benchmarks.kubelet_host",
        ),
        Row(
            "mesh",
            "Start a mesh of processes, create bare pods as fast as it takes them, and wait until all are Running",
            "lab.benchmarks.mesh",
        ),
        Row(
            "overload",
            "Measure heartbeats and binds while one user floods, one opens 1,000 watches and one lists in a loop",
            "lab.benchmarks.overload",
        ),
        Row("recording", "Write a recording, read random versions of it, and record a run", "lab.benchmarks.recording"),
        Row(
            "recovery",
            "Kill the API server of a mesh again and again, and measure the time until it serves and acknowledges "
            "a write",
            "lab.benchmarks.recovery",
        ),
        Row(
            "rest",
            "Write a realistic pod and Deployment in every way, and list many pods in every form, over REST and TLS",
            "lab.benchmarks.rest",
        ),
        Row(
            "scheduler",
            "Schedule the pods of one of upstream's scheduler_perf workloads; all nodes are scored",
            "lab.benchmarks.scheduler",
        ),
        Row(
            "security",
            "Measure what mutual TLS costs a call and a connection, with the profiles `tokens` and `strict` in turn",
            "lab.benchmarks.security",
        ),
        Row(
            "side-by-side",
            "Measure keplab beside another control plane on this machine, with one client, in interleaved rounds",
            "lab.benchmarks.side_by_side.run",
        ),
        Row(
            "simulation",
            "Simulate a mesh under load, and show what a pod costs from its creation to its end",
            "lab.benchmarks.simulation",
        ),
        Row(
            "soak",
            "Run a mesh for hours under churn and faults, and judge after a warm-up whether anything grows",
            "lab.benchmarks.soak.run",
        ),
        Row(
            "store",
            "Measure the writes per second of every engine with 1, 16 and 256 writers, next to raw SQLite and raw etcd",
            "lab.benchmarks.store",
        ),
        Row(
            "watch",
            "Send changes to 1, 10, 100 and 1,000 watchers, and measure a healthy client while many watchers begin "
            "or stall",
            "lab.benchmarks.watch",
        ),
    )
}
