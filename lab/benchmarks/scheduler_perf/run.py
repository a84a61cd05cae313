"""Run the workloads of a file one after the other, each in a mesh, or on a core, of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from lab.benchmarks.running_mesh import quiet_arguments, running_mesh
from lab.benchmarks.scheduler_perf import data_items, histograms
from lab.benchmarks.scheduler_perf.cases import Step, Workload
from lab.benchmarks.scheduler_perf.cluster import Cluster, Failed, Unsupported, first_of
from lab.benchmarks.scheduler_perf.core_cluster import CoreCluster
from lab.benchmarks.scheduler_perf.data_items import FORM, Comparison, DataItem
from lab.benchmarks.scheduler_perf.executor import Executor, Measured, Progress
from lab.benchmarks.scheduler_perf.located_yaml import FileError
from lab.benchmarks.scheduler_perf.mesh_cluster import MeshCluster
from lab.benchmarks.scheduler_perf.object_templates import template_at
from services.api.identity import ADMIN
from services.api.switches import Switches
from services.runtime.credentials import admin_tokens

Form = Literal["algorithm", "mesh"]
IN_FLIGHT_LIMIT_S: Final = 10.0
WORKLOAD_LIMIT_S: Final = 1800.0
"""Time limit of one workload in seconds (upstream's 30 minutes)."""


@dataclass
class Prepared:
    """A workload with its operations and switches. `ignored`: feature gates that were left out."""

    workload: Workload
    steps: list[Step]
    assignments: tuple[str, ...]
    ignored: tuple[str, ...] = ()


@dataclass
class Outcome:
    """Outcome of one workload. `failed`: why it did not finish; empty if it did. `skipped`: why this form cannot
    run it.
    """

    name: str
    form: Form
    ignored_gates: tuple[str, ...] = ()
    seconds: float = 0.0
    items: list[DataItem] = field(default_factory=list)
    thresholds: list[Comparison] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    failed: str = ""
    skipped: str = ""


@dataclass
class Outcomes:
    """The outcomes so far; an interruption keeps them."""

    topic: str
    all: list[Outcome] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the data items in upstream's format."""
        return data_items.document(item for each in self.all for item in each.items)


def read_templates(workload: Workload, steps: Sequence[Step]) -> None:
    """Read the files that the operations name. Raises: FileError: for a file that cannot be read, with its place."""
    for path, place in _template_paths(workload, steps).items():
        try:
            template_at(str(workload.file.relative(path)))
        except FileError as error:
            raise workload.error(str(error), place) from None
    config = workload.scheduler_config
    if config is not None and not config.is_file():
        raise workload.error(f"schedulerConfigPath {config}: no such file")


def _template_paths(workload: Workload, steps: Sequence[Step]) -> dict[str, tuple[int, int]]:
    """Return the templates that the operations name, each with the place where that is done first."""
    paths: dict[str, tuple[int, int]] = {}
    for step in steps:
        for name in type(step.op).__struct_fields__:
            value = getattr(step.op, name)
            if name.endswith("template_path") and value:
                paths.setdefault(value, step.place)
            elif name == "template_paths":
                for path in value:
                    paths.setdefault(path, step.place)
    if workload.default_pod_template:
        paths.setdefault(workload.default_pod_template, workload.place)
    return paths


def run(
    prepared: Sequence[Prepared],
    form: Form,
    outcomes: Outcomes,
    progress: Progress,
    ended: Callable[[Outcome], None] = lambda outcome: None,
) -> None:
    """Run the workloads; append to `outcomes`, and call `ended` after each. A failure is noted, and the next
    workload runs.
    """
    for prepared_workload in prepared:
        outcome = Outcome(prepared_workload.workload.full_name, form, prepared_workload.ignored)
        outcomes.all.append(outcome)
        began = time.monotonic()
        try:
            _run_one(prepared_workload, form, outcome, outcomes.topic, progress)
        except Unsupported as error:
            outcome.skipped = str(error)
        except (Failed, FileError) as error:
            outcome.failed = str(error)
        finally:
            outcome.seconds = time.monotonic() - began
            for item in outcome.items:
                item.labels[FORM] = form
        ended(outcome)


def _run_one(prepared: Prepared, form: Form, outcome: Outcome, topic: str, progress: Progress) -> None:
    if form == "mesh":
        try:
            asyncio.run(_in_mesh(prepared, outcome, topic, progress))
        except ExceptionGroup as group:
            raise first_of(group) from None
        return
    config = prepared.workload.scheduler_config
    cluster = CoreCluster(Switches.parse(prepared.assignments), str(config or ""))
    _run_to_end(_perform(prepared, cluster, outcome, topic, progress))
    if cluster.in_flight_events:
        raise Failed(f"{cluster.in_flight_events} in-flight events are left")


def _run_to_end(doing: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that waits for nothing to its end."""
    try:
        doing.send(None)
    except StopIteration:
        return
    raise AssertionError("an operation on the core waits for something")


async def _perform(prepared: Prepared, cluster: Cluster, outcome: Outcome, topic: str, progress: Progress) -> None:
    executor = Executor(cluster, prepared.workload, topic, progress)
    outcome.items, outcome.thresholds = executor.items, executor.comparisons
    outcome.measured, outcome.remarks = executor.measured, executor.remarks
    await executor.run(prepared.steps)


async def _in_mesh(prepared: Prepared, outcome: Outcome, topic: str, progress: Progress) -> None:
    arguments = quiet_arguments()
    config = prepared.workload.scheduler_config
    if config is not None:
        arguments["scheduler"] = [*arguments["scheduler"], "--config", str(config)]
    without = {"controllers"}
    if not uses_claim_templates(prepared.workload, prepared.steps):
        without.add("claim-controller")
    async with running_mesh(
        engine="memory", switches=prepared.assignments, without=frozenset(without), arguments=arguments
    ) as mesh:
        token = admin_tokens(Path(mesh.supervisor.status()["data_dir"]))[ADMIN.user]
        async with asyncio.TaskGroup() as group:
            cluster = MeshCluster(mesh, token, group)
            cluster.begin()
            try:
                async with asyncio.timeout(WORKLOAD_LIMIT_S):
                    await _perform(prepared, cluster, outcome, topic, progress)
                cluster.stop_background()
                await _settle(cluster)
            except TimeoutError:
                raise Failed(f"it did not end within {WORKLOAD_LIMIT_S:g} s") from None
            finally:
                cluster.end()


async def _settle(cluster: MeshCluster) -> None:
    """Return when the scheduler keeps no events for pods in flight. Raises: Failed."""
    ends = cluster.now() + IN_FLIGHT_LIMIT_S
    while left := histograms.gauge(await cluster.metrics(), histograms.IN_FLIGHT):
        if cluster.now() > ends:
            raise Failed(f"{left:g} in-flight events are left after {IN_FLIGHT_LIMIT_S:g} s")
        await cluster.sleep(0.2)


def uses_claim_templates(workload: Workload, steps: Sequence[Step]) -> bool:
    """Return whether the workload, its churn included, creates ResourceClaimTemplates, for which a controller
    creates claims.
    """
    paths = _template_paths(workload, steps)
    return any("ResourceClaimTemplate" in template_at(str(workload.file.relative(path))).text for path in paths)
