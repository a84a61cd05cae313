"""Table of the figures of two control planes: what each row is, and how many times ahead keplab is in it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from lab.benchmarks.result import Result
from lab.benchmarks.side_by_side.planes import ENGINES, OTHER

Values = Mapping[str, Mapping[str, Sequence[float]]]
"""Measured values by plane and row, one for each round."""
NO_VALUE: Final = "–"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of the load. `nodes`: the sizes of the cluster in turn; `listed`: pods of the long list; `calls`: number of
    calls one after the other, and of patches; `watchers`: the numbers of watchers in turn.
    """

    nodes: tuple[int, ...] = (100, 5_000)
    pods: int = 2_000
    listed: int = 5_000
    calls: int = 300
    watchers: tuple[int, ...] = (1, 10, 100)
    rounds: int = 2


@dataclass(frozen=True)
class Row:
    """One row of the table. `aim`: name of its figure in `docs/benchmarks/aims.json`, if it has one; several rows may
    share a figure.
    """

    name: str
    title: str
    is_more_better: bool = False
    aim: str = ""


def rows_of(sizes: Sizes) -> Iterator[Row]:
    """Yield every row that these sizes can give, in the order of the table."""
    yield Row("memory.empty", "RSS MiB, API server and store, empty", aim="real.memory.empty")
    for nodes in sizes.nodes:
        where = f"{nodes:,} nodes"
        yield Row(f"create.{nodes}.cpu", f"create of basic pods, CPU µs, {where}", aim="real.rest.create.cpu")
        yield Row(f"create.{nodes}.rate", f"create by 32, a second, {where}", is_more_better=True)
        yield Row(f"create.{nodes}.p50", f"… p50 ms, {where}")
        yield Row(f"create.{nodes}.p99", f"… p99 ms, {where}")
        yield Row(f"backlog.{nodes}.cpu", f"backlog, CPU µs a pod, {where}", aim=f"real.backlog.{nodes}.cpu")
        yield Row(f"backlog.{nodes}.rate", f"backlog, pods a second, {where}", True, aim=f"real.backlog.{nodes}.rate")
        yield Row(f"live.{nodes}.cpu", f"live, CPU µs a pod, {where}", aim=f"real.live.{nodes}.cpu")
        yield Row(f"live.{nodes}.scheduler", f"… of it scheduler, {where}")
        yield Row(f"live.{nodes}.rate", f"live, pods a second, {where}", True, aim=f"real.live.{nodes}.rate")
        pods = f"{where}, {sizes.pods:,} pods"
        yield Row(f"memory.{nodes}", f"RSS MiB, API server and store, {pods}", aim=f"real.memory.{nodes}")
        yield Row(f"memory.{nodes}.scheduler", f"RSS MiB, scheduler, {pods}")
    yield Row("get.p50", "GET, p50 ms", aim="real.rest.get.p50")
    yield Row("get.p99", "GET, p99 ms", aim="real.rest.get.p50")
    yield Row("post.p50", "POST, p50 ms", aim="real.rest.post.p50")
    yield Row("post.p99", "POST, p99 ms")
    for watchers in sizes.watchers:
        to = f"PATCH of a label to {watchers:,} {'watcher' if watchers == 1 else 'watchers'}"
        yield Row(f"watch.{watchers}.rate", f"{to}, deliveries a second", is_more_better=True)
        yield Row(f"watch.{watchers}.cpu", f"{to}, CPU µs a delivery", aim=f"real.rest.watch.{watchers}")
    yield Row("create.realistic.cpu", "create of realistic pods, CPU µs", aim="real.rest.create.cpu")
    yield Row("create.realistic.rate", "create of realistic pods by 32, a second", is_more_better=True)
    listed = f"LIST of {sizes.listed:,} pods, gzip"
    yield Row("list.ms", f"{listed}, ms", aim=f"real.rest.list.{sizes.listed}")
    yield Row("list.cpu", f"{listed}, CPU ms")
    yield Row("list_again.ms", f"{listed}, nothing changed since the last, ms")
    yield Row("list_again.cpu", "… CPU ms")
    yield Row("memory.listed", f"RSS MiB, API server and store, {sizes.listed:,} realistic pods")


def times_ahead(row: Row, other: Sequence[float], own: Sequence[float]) -> float | None:
    """Return how many times ahead of the other plane keplab is, by the medians of the rounds; None without figures."""
    if not other or not own:
        return None
    reached, wanted = (median(own), median(other)) if row.is_more_better else (median(other), median(own))
    return round(reached / wanted, 2) if wanted > 0 and reached > 0 else None


@dataclass(frozen=True)
class Measured(Result):
    """One row with its values: by plane, one for each round; and by engine, how many times ahead keplab is."""

    name: str
    title: str
    values: dict[str, list[float]]
    times_ahead: dict[str, float | None]


@dataclass(frozen=True)
class SideBySide(Result):
    """Figures of a benchmark beside another control plane.

    `server`, `version`: of the other plane. `rows`: what was measured; `figures`: times ahead by the names of
    `docs/benchmarks/aims.json`, the least of its rows and engines. `left_out`: what was not measured, and why.
    `left_behind`: a command that deletes what could not be deleted; empty if all is gone.
    """

    server: str
    version: str
    nodes: tuple[int, ...]
    pods: int
    listed: int
    calls: int
    watchers: tuple[int, ...]
    rounds: int
    rows: list[Measured]
    figures: dict[str, float]
    left_out: dict[str, str]
    left_behind: str = ""
    is_interrupted: bool = False


def measured_rows(sizes: Sizes, values: Values) -> list[Measured]:
    """Return the rows that have a value."""
    measured: list[Measured] = []
    for row in rows_of(sizes):
        by_plane = {plane: list(values[plane].get(row.name, ())) for plane in values}
        if any(by_plane.values()):
            ahead = {name: times_ahead(row, by_plane.get(OTHER, ()), by_plane.get(name, ())) for name in ENGINES}
            measured.append(Measured(row.name, row.title, by_plane, ahead))
    return measured


def figures_of(sizes: Sizes, rows: Sequence[Measured]) -> dict[str, float]:
    """Return times ahead by the names of the table of aims: the least of a figure's rows and engines."""
    by_name = {row.name: row for row in rows}
    figures: dict[str, float] = {}
    for row in rows_of(sizes):
        if row.aim and row.name in by_name:
            known = [ahead for ahead in by_name[row.name].times_ahead.values() if ahead is not None]
            if known:
                figures[row.aim] = min([*known, figures.get(row.aim, known[0])])
    return figures


def rounds_text(values: Sequence[float]) -> str:
    """Return the values of the rounds as a cell of the table."""
    return " ; ".join(f"{value:,.{0 if value >= 1000 else 1 if value >= 100 else 2}f}" for value in values) or NO_VALUE


def ahead_text(ahead: float | None) -> str:
    """Return times ahead as a cell of the table."""
    return NO_VALUE if ahead is None else f"{ahead:.2f}"
