"""keplab beside another control plane, kube-apiserver with etcd and kube-scheduler for example, on one machine.

The same client calls all planes over TLS, with 32 connections. Each phase runs on one plane after the other before the
next phase begins, so that what else the machine does affects them all; each round begins with another plane.
"""

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.benchmarks.bench import Bench, Reporter, Table, option
from lab.benchmarks.side_by_side import phases
from lab.benchmarks.side_by_side.client import PlaneClient
from lab.benchmarks.side_by_side.figures import (
    Measured,
    SideBySide,
    Sizes,
    ahead_text,
    figures_of,
    measured_rows,
    rounds_text,
)
from lab.benchmarks.side_by_side.objects import NODES, Objects
from lab.benchmarks.side_by_side.phases import Phase
from lab.benchmarks.side_by_side.planes import (
    ENGINES,
    OTHER,
    NamedProcesses,
    Plane,
    is_scheduler,
    keplab_plane,
    pids_of,
)
from lab.benchmarks.workloads import templates
from lab.benchmarks.workloads.capacity import TooManyPods, check_default_nodes
from lab.exchange.rest.endpoint import NoAnswer
from lab.exchange.rest.kubeconfig import Access, read_access
from lab.exchange.stream import Refused
from services.api.errors import ApiError

NODES_MAX: Final = 15_000
WATCHERS_MAX: Final = 1_000
CLEAR_MAX_S: Final = 600.0
RIGHTS: Final = (
    *(("namespaces", verb) for verb in ("create", "get", "list", "watch", "delete")),
    *(("nodes", verb) for verb in ("list", "create", "delete")),
    *(("pods", verb) for verb in ("create", "get", "list", "watch", "patch", "delete")),
    ("serviceaccounts", "create"),
)
"""Resources and verbs that the benchmark needs on the other plane."""
REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NO_SCHEDULER_NAMED: Final = "no scheduler is named, by --process or --scheduler"
NO_START: Final = "the other plane's scheduler is not started here (--scheduler)"


@dataclass(frozen=True, kw_only=True)
class SideBySideOptions:
    """The options of `keplab bench side-by-side`."""

    kubeconfig: str | None = option(None, "kubeconfig of the other control plane", metavar="FILE")
    context: str = option("", "context of the kubeconfig [its current context]", metavar="NAME")
    processes: tuple[str, ...] = option(
        (),
        "a process of the other plane on this machine, whose CPU and memory count; may be repeated. One called "
        "scheduler is its scheduler, the others are API server and store",
        flag="--process",
        metavar="NAME=PID",
    )
    scheduler: str = option(
        "",
        "command that runs the other plane's scheduler in the foreground, instead of a --process; it is started and "
        "stopped for the backlog",
        metavar="COMMAND",
    )
    nodes: str = option("100,5000", "numbers of nodes, measured one after the other", metavar="N,…")
    pods: int = option(2_000, "pods created and scheduled", least=1, most=40_000)
    listed: int = option(5_000, "realistic pods in the long list", least=1, most=40_000)
    calls: int = option(300, "calls one after the other, and patches", least=1, most=10_000)
    watchers: str = option("1,10,100", "numbers of watchers of patched pods", metavar="N,…")
    rounds: int = option(2, "rounds; all are shown, and medians are compared", least=1, most=9)
    with_nodes_present: bool = option(False, "measure a plane that has nodes; pods select the benchmark's own nodes")

    def sizes(self) -> Sizes:
        """Return the sizes of the load. Raises: Refused, TooManyPods."""
        sizes = Sizes(
            nodes=_numbers("--nodes", self.nodes, NODES_MAX),
            pods=self.pods,
            listed=self.listed,
            calls=self.calls,
            watchers=_numbers("--watchers", self.watchers, WATCHERS_MAX),
            rounds=self.rounds,
        )
        requests = templates.pod("pod")["spec"]["containers"][0]["resources"]["requests"]
        allocatable = templates.node()["status"]["allocatable"]
        check_default_nodes(nodes=min(sizes.nodes), pods=sizes.pods, requests=requests, allocatable=allocatable)
        return sizes


def _numbers(flag: str, text: str, most: int) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= most for word in words):
        raise Refused(f"{flag} {text}: want numbers from 1 to {most:,}, such as 10,100")
    return tuple(sorted({int(word) for word in words}))


def _access(options: SideBySideOptions) -> Access:
    """Return the access to the other plane. Raises: Refused."""
    if not options.kubeconfig:
        raise Refused("--kubeconfig: want that of the other control plane")
    access = read_access(Path(options.kubeconfig).expanduser(), options.context)
    if not access.name:
        raise Refused(f"{options.kubeconfig}: no current context; name one with --context")
    if not access.server.startswith("https://"):
        raise Refused(f"{options.kubeconfig}: {access.server}: want https; both planes are called over TLS")
    return access


def _processes(options: SideBySideOptions) -> NamedProcesses:
    """Return the other plane's processes. Raises: Refused."""
    pids = pids_of(options.processes)
    if options.scheduler and any(is_scheduler(name) for name in pids):
        raise Refused("--scheduler: a --process is a scheduler already; give one of them")
    return NamedProcesses(pids, options.scheduler)


async def _check(client: PlaneClient, *, with_nodes: bool) -> tuple[str, bool]:
    """Return the other plane's version, and whether it has nodes. Nothing is created.

    Raises: Refused, when it does not answer or is not to be measured.
    """
    try:
        return await _ask(client, with_nodes=with_nodes)
    except NoAnswer as error:
        raise Refused(error.message) from None
    except ApiError as error:
        raise Refused(f"{client.server}: {error.message}") from None


async def _ask(client: PlaneClient, *, with_nodes: bool) -> tuple[str, bool]:
    version = str((await client.document("GET", "/version")).get("gitVersion") or "")
    for resource, verb in RIGHTS:
        wanted = {"resourceAttributes": {"resource": resource, "verb": verb}}
        head = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = await client.document("POST", REVIEWS, {**head, "spec": wanted})
        if not (answer.get("status") or {}).get("allowed"):
            raise Refused(f"{client.server}: the user may not {verb} {resource}")
    has_nodes = bool(await client.names(NODES, limit=1))
    if has_nodes and not with_nodes:
        raise Refused(
            f"{client.server} has nodes; the benchmark creates thousands beside them. Say --with-nodes-present if that "
            "is meant"
        )
    return version, has_nodes


class _Rounds:
    """The rounds of all planes, and the values measured so far."""

    def __init__(self, planes: Sequence[Plane], sizes: Sizes, reporter: Reporter) -> None:
        self._planes, self._sizes, self._reporter = planes, sizes, reporter
        self.values: dict[str, dict[str, list[float]]] = {plane.name: {} for plane in planes}
        self.left_out: dict[str, str] = {}
        self._has_live = all(plane.processes.has_scheduler for plane in planes)
        self._has_backlog = all(plane.processes.can_restart for plane in planes)

    async def run(self) -> None:
        """Measure all phases of all rounds. Raises: ApiError, Refused, TimeoutError."""
        if not self._has_live:
            self.left_out["live"] = NO_SCHEDULER_NAMED
        if not self._has_backlog:
            self.left_out["backlog"] = NO_START
        rounds = range(self._sizes.rounds)
        steps = [(number, step) for number in rounds for step in self._steps(is_first=number == 0)]
        total = len(steps) * len(self._planes)
        for place, (number, (title, phase)) in enumerate(steps):
            turn = number % len(self._planes)
            for turns, plane in enumerate([*self._planes[turn:], *self._planes[:turn]]):
                what = f"round {number + 1} of {self._sizes.rounds}, {title}: {plane.name}"
                self._reporter.progress(what, place * len(self._planes) + turns, total)
                for row, value in (await self._measure(plane, title, phase)).items():
                    self.values[plane.name].setdefault(row, []).append(round(value, 3))
        self._reporter.progress("deleting", total, total)

    async def _measure(self, plane: Plane, title: str, phase: Phase) -> dict[str, float]:
        """Measure one phase. Raises: Refused, TimeoutError."""
        try:
            return await phase(plane, self._sizes)
        except (ApiError, ExceptionGroup) as error:
            cause = _first(error)
            if isinstance(cause, ApiError):
                raise Refused(f"{plane.name} ({plane.client.server}), {title}: {cause.message}") from None
            raise cause from None

    def _steps(self, *, is_first: bool) -> Iterator[tuple[str, Phase]]:
        if is_first:
            yield "empty", phases.measure_empty
            yield "namespaces", phases.prepare
        for nodes in self._sizes.nodes:
            phase = phases.cluster_phase(
                nodes, is_first=is_first, has_live=self._has_live, has_backlog=self._has_backlog
            )
            yield f"{nodes:,} nodes", phase
        yield "one after the other", phases.measure_calls
        for watchers in self._sizes.watchers:
            yield f"{watchers:,} watchers", phases.watch_phase(watchers)
        yield "long list", phases.list_phase(is_first=is_first)


async def _clear(plane: Plane, reporter: Reporter) -> str:
    """Delete what was created on a plane; return the command that deletes what is left, empty if nothing is."""
    reporter.say(
        f"deleting what was created on {plane.client.server}; it is what has the label {plane.objects.selector}"
    )
    try:
        await plane.processes.stop_scheduler()
        async with asyncio.timeout(CLEAR_MAX_S):
            await plane.objects.clear()
    except (ApiError, Refused, TimeoutError, ExceptionGroup) as error:
        cause = _first(error)
        if not isinstance(cause, (ApiError, Refused, TimeoutError)):
            raise
        reporter.say(f"not all could be deleted ({str(cause) or 'it takes too long'}); try: {plane.objects.remedy}")
        return plane.objects.remedy
    return ""


async def measure(options: SideBySideOptions, reporter: Reporter) -> SideBySide:
    """Measure all planes; a cancellation ends it early, with what was measured so far.

    Raises: Refused, TooManyPods, TimeoutError.
    """
    access, processes, sizes = _access(options), _processes(options), options.sizes()
    left_behind, is_interrupted, version = "", False, ""
    rounds: _Rounds | None = None
    try:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(PlaneClient(access))
            version, has_nodes = await _check(client, with_nodes=options.with_nodes_present)
            mark = secrets.token_hex(4)
            reporter.say(f"starting keplab beside {access.server}, {version or 'of no version'}; mark: {mark}")
            own = [await stack.enter_async_context(keplab_plane(engine, mark)) for engine in ENGINES]
            other = Plane(OTHER, client, Objects(client, mark), processes)
            planes = [other, *own]
            for plane in planes:
                plane.objects.are_beside_nodes = has_nodes
            rounds = _Rounds(planes, sizes, reporter)
            try:
                if options.scheduler:
                    await processes.start_scheduler()
                await rounds.run()
            finally:
                # A task of its own: this one may have been cancelled, by Ctrl-C.
                left_behind = await asyncio.create_task(_clear(other, reporter))
    except asyncio.CancelledError:
        is_interrupted = True
    rows: list[Measured] = [] if rounds is None else measured_rows(sizes, rounds.values)
    return SideBySide(
        server=access.server,
        version=version,
        nodes=sizes.nodes,
        pods=sizes.pods,
        listed=sizes.listed,
        calls=sizes.calls,
        watchers=sizes.watchers,
        rounds=sizes.rounds,
        rows=rows,
        figures=figures_of(sizes, rows),
        left_out={} if rounds is None else rounds.left_out,
        left_behind=left_behind,
        is_interrupted=is_interrupted,
    )


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def bench_side_by_side(options: SideBySideOptions, reporter: Reporter) -> SideBySide:
    """Measure all planes. Raises: Refused, ApiError, TooManyPods, TimeoutError."""
    try:
        return asyncio.run(measure(options, reporter))
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _table(_: SideBySideOptions, result: SideBySide) -> Iterator[str | Table]:
    if not result.rows:
        yield "nothing was measured"
        return
    yield f"{OTHER}: {result.server}, {result.version}; above 1 keplab is ahead, in every row"
    yield Table(
        ("FIGURE", OTHER.upper(), *(each.upper() for each in ENGINES), *(f"AHEAD: {each.upper()}" for each in ENGINES)),
        [
            (
                row.title,
                *(rounds_text(row.values.get(plane, ())) for plane in (OTHER, *ENGINES)),
                *(ahead_text(row.times_ahead[engine]) for engine in ENGINES),
            )
            for row in result.rows
        ],
        texts=1,
    )
    yield ""
    yield Table(
        ("TIMES AHEAD, THE LEAST OF ROWS AND ENGINES", ""),
        [(name, ahead_text(ahead)) for name, ahead in result.figures.items()],
        texts=1,
    )
    for what, why in result.left_out.items():
        yield f"not measured: {what}; {why}"
    if result.left_behind:
        yield f"left behind on {result.server}; try: {result.left_behind}"


BENCH: Final = Bench(
    name="side-by-side",
    help="""Measure keplab beside another control plane on this machine, with one client, in interleaved rounds.

    The other one, kube-apiserver with etcd and kube-scheduler for example, runs already: --kubeconfig says where, and
    --process which processes its CPU and memory are read from. keplab's are started here as `keplab up` starts them,
    with SQLite and with the memory engine. How long a start takes is not measured, since the other one runs.

    Everything is created in namespaces called keplab-bench-… and as nodes with the label keplab.dev/side-by-side. It is
    deleted at the end, also after Ctrl-C. Nothing else is touched.""",
    options=SideBySideOptions,
    run=bench_side_by_side,
    table=_table,
    document=SideBySide.document,
    late="the planes did not get there in time",
    refusals=(Refused, ApiError, TooManyPods),
    has_bar=True,
    is_failed=lambda result: bool(result.left_behind),
    is_interrupted=lambda result: result.is_interrupted,
)
