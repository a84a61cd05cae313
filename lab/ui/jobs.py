"""Runs that the page starts: child processes of low priority, one at a time, ended as Ctrl-C ends them.

A job is a `keplab` command on a scenario below the allowed folders. It is given as a list of words and never to
a shell. Its command line is shown; typed by hand it gives the same result.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from lab.experiments.arms import parse_arms
from lab.scenarios.findings import findings_of
from services.api.errors import UNREADABLE, BadRequest, Conflict, NotFound, TooManyRequests
from services.api.switches import SwitchError

ENDING: Final = ".txt"
PRIORITY: Final = 10
LOOK_S: Final = 0.25
INTERRUPTED_MAX_S: Final = 15.0
SEEDS_MAX: Final = 1_000
ARMS_MAX: Final = 20
JOBS_KEPT: Final = 50
WAITING_MAX: Final = 100
UNDER_WAY: Final = ("Waiting", "Running")
"""States of jobs that have not ended."""
ERROR_BYTES: Final = 4_000
NAME_MAX: Final = 63
_log = structlog.get_logger()


class ArmRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One arm: its name, and NAME=VALUE of its switches."""

    name: str
    switches: list[str] = []


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to run: a scenario in arms. `recording`: whether each run is recorded."""

    scenario: str
    arms: list[ArmRequest]
    seeds: int = 1
    seed: int = 0
    processes: bool = False
    recording: bool = True


class Job:
    """One comparison: its id, its progress, and its result."""

    def __init__(self, number: int, request: JobRequest, scenario: Path, folder: Path) -> None:
        self.id, self.request, self.scenario, self.folder = f"job-{number}", request, scenario, folder
        self.state = "Waiting"
        """Waiting, Running, Succeeded, Failed or Cancelled."""
        self.done = 0
        self.total = len(request.arms) * request.seeds
        self.error = ""
        self.exit_code: int | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.is_cancelled = False

    @property
    def record(self) -> Path:
        """File with one line for each finished run."""
        return self.folder / "record.jsonl"

    @property
    def report(self) -> Path:
        """File of the comparison's page."""
        return self.folder / "report.html"

    @property
    def result(self) -> Path:
        """File of the comparison's document."""
        return self.folder / "result.json"

    @property
    def recordings(self) -> Path:
        """Folder of the runs' recordings."""
        return self.folder / "recordings"

    def words(self) -> list[str]:
        """Return the words of the command that does the same by hand."""
        request = self.request
        arms = [word for arm in request.arms for word in ("--arm", arm_text(arm))]
        seeds = ["--seeds", str(request.seeds), *(["--seed", str(request.seed)] if request.seed else [])]
        recording = ["--recording", str(self.recordings)] if request.recording else []
        processes = ["--processes"] if request.processes else []
        return ["compare", str(self.scenario), *arms, *seeds, *processes, "--report", str(self.report), *recording]

    def document(self) -> dict[str, Any]:
        """Return the job's progress and result for the page."""
        return {
            "id": self.id,
            "scenario": str(self.scenario),
            "arms": msgspec.to_builtins(self.request.arms),
            "seeds": self.request.seeds,
            "state": self.state,
            "done": self.done,
            "total": self.total,
            "error": self.error,
            "exit_code": self.exit_code,
            "command": shlex.join(["keplab", *self.words()]),
            "report": f"/ui/v1/jobs/{self.id}/report" if self.report.exists() else "",
            "runs": [each.name for each in sorted(self.recordings.glob("*.keprec"))],
        }


def arm_text(arm: ArmRequest) -> str:
    """Return an arm as `--arm` takes it."""
    return f"{arm.name}:{','.join(arm.switches)}" if arm.switches else arm.name


class Jobs:
    """Queue that runs jobs one at a time.

    `tops`: folders with the scenarios that may be run; `folder`: where results go.
    `on_progress` is called whenever there is news of a job.
    """

    def __init__(self, tops: Sequence[Path], folder: Path, on_progress: Callable[[Job], None]) -> None:
        self._tops = [top.resolve() for top in tops if top.is_dir()]
        self._folder = folder / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
        self._on_progress = on_progress
        self.jobs: dict[str, Job] = {}
        self._waiting: asyncio.Queue[Job] = asyncio.Queue()
        self._number = 0

    def scenarios(self) -> list[dict[str, Any]]:
        """Return the scenarios that may be run: path, title, the comment at their beginning, and their arms.

        The arms are those by which the README beside a scenario compares it.
        """
        scenarios: list[dict[str, Any]] = []
        for top in self._tops:
            offered: dict[Path, Mapping[str, Sequence[str]]] = {}
            for path in sorted(top.rglob(f"*{ENDING}")):
                if path.parent not in offered:
                    offered[path.parent] = _folder_arms(path.parent)
                with contextlib.suppress(OSError, UnicodeError):
                    about, arms = _about(path.read_text("utf-8")), _arms(offered[path.parent].get(path.stem, ()))
                    scenarios.append({"path": f"{top.name}/{path.relative_to(top)}", **about, "arms": arms})
        return scenarios

    def _path_of(self, text: str) -> Path:
        """Return the scenario that is meant. Raises: BadRequest for what is not below the folders."""
        given = Path(text.replace("\0", ""))
        for top in self._tops:
            inside = Path(*given.parts[1:]) if given.parts[:1] == (top.name,) else given
            for candidate in (given, top / inside):
                path = candidate.resolve()
                if path.is_relative_to(top) and path.suffix == ENDING and path.is_file():
                    return _display_path(path)
        tops = ", ".join(str(_display_path(top)) for top in self._tops) or "(none)"
        raise BadRequest(f"scenario: {text[:200]!r} is no file *{ENDING} below {tops}")

    def start(self, body: bytes) -> Job:
        """Add a job to the queue. Raises: BadRequest naming the field; TooManyRequests."""
        try:
            request = msgspec.json.decode(body, type=JobRequest)
        except UNREADABLE as error:
            raise BadRequest(f"body: {error}") from None
        scenario = self._path_of(request.scenario)
        if not 1 <= len(request.arms) <= ARMS_MAX:
            raise BadRequest(f"arms: want 1 to {ARMS_MAX}, not {len(request.arms)}")
        if not 1 <= request.seeds <= SEEDS_MAX:
            raise BadRequest(f"seeds: want 1 to {SEEDS_MAX}, not {request.seeds}")
        try:
            parse_arms([arm_text(arm) for arm in request.arms])
        except SwitchError as error:
            raise BadRequest(f"arms: {error}") from None
        if any(arm.name.startswith("-") or not arm.name or len(arm.name) > NAME_MAX for arm in request.arms):
            raise BadRequest(f"arms: want names of 1 to {NAME_MAX} characters that begin with no dash")
        if sum(each.state == "Waiting" for each in self.jobs.values()) >= WAITING_MAX:
            raise TooManyRequests(f"{WAITING_MAX} jobs wait already: cancel one, or wait until one has ended")
        self._number += 1
        job = Job(self._number, request, scenario, self._folder / f"job-{self._number}")
        self.jobs[job.id] = job
        for old in [each for each in self.jobs.values() if each.state not in UNDER_WAY][:-JOBS_KEPT]:
            del self.jobs[old.id]
        self._waiting.put_nowait(job)
        return job

    def of(self, name: str) -> Job:
        """Return a job. Raises: NotFound."""
        if name not in self.jobs:
            raise NotFound(f"there is no job {name[:60]!r}")
        return self.jobs[name]

    def cancel(self, name: str) -> Job:
        """End a job as Ctrl-C does. Raises: NotFound; Conflict when it has ended."""
        job = self.of(name)
        if job.state not in UNDER_WAY:
            raise Conflict(f"{name} has ended: {job.state}")
        job.is_cancelled = True
        if job.process is None:
            job.state = "Cancelled"
            self._on_progress(job)
        else:
            _signal_group(job.process, signal.SIGINT)
        return job

    async def run(self) -> None:
        """Run jobs until cancelled; the running job is then ended."""
        while True:
            job = await self._waiting.get()
            if not job.is_cancelled:
                await self._perform(job)

    async def _perform(self, job: Job) -> None:
        try:
            job.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for old in (job.record, job.report):
                old.unlink(missing_ok=True)
            words = [*job.words(), "--workers", "1", "--record", str(job.record), "-o", "json", "--runs", "none"]
            with (job.folder / "errors.txt").open("wb") as errors, job.result.open("wb") as result:
                job.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "lab.cli",
                    *words,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=result,
                    stderr=errors,
                    start_new_session=True,
                )
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, job.process.pid, PRIORITY)
        except OSError as error:
            job.state, job.error, job.exit_code = "Failed", f"{error.filename}: {error.strerror}", 1
            self._on_progress(job)
            return
        job.state = "Running"
        self._on_progress(job)
        try:
            await self._follow(job, job.process)
        finally:
            await _end_group(job.process)
        job.done = _runs_in(job.record)
        job.exit_code = job.process.returncode
        job.state = "Cancelled" if job.is_cancelled else "Succeeded" if job.exit_code == 0 else "Failed"
        if job.state == "Failed":
            job.error = _last_line(job.folder / "errors.txt") or f"exit code {job.exit_code}"
        self._on_progress(job)

    async def _follow(self, job: Job, process: asyncio.subprocess.Process) -> None:
        """Note how many runs have ended, until all have or it was cancelled for too long."""
        cancelled_s = 0.0
        while True:
            try:
                await asyncio.wait_for(asyncio.shield(process.wait()), LOOK_S)
                return
            except TimeoutError:
                done = _runs_in(job.record)
                if done != job.done:
                    job.done = done
                    self._on_progress(job)
                cancelled_s += LOOK_S if job.is_cancelled else 0.0
                if cancelled_s > INTERRUPTED_MAX_S:
                    return


def _display_path(path: Path) -> Path:
    """Return a path as it is typed from here, if it is below."""
    with contextlib.suppress(ValueError):
        return path.relative_to(Path.cwd())
    return path


def _folder_arms(folder: Path) -> Mapping[str, Sequence[str]]:
    """Return the arms that a folder's README.md has, by scenario; none if it cannot be read."""
    try:
        return findings_of(folder).arms
    except (OSError, UnicodeError):
        return {}


def _arms(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return arms as a request has them; none where a README is about other switches than there are."""
    try:
        return [{"name": arm.name, "switches": list(arm.assignments)} for arm in parse_arms(texts)]
    except SwitchError:
        return []


def _about(text: str) -> dict[str, str]:
    """Return title and explanation of a scenario's text: its first comment."""
    comment = [line.lstrip("#").strip() for line in takewhile(lambda line: line.startswith("#"), text.splitlines())]
    return {"title": comment[0] if comment else "", "about": "\n".join(comment[1:]).strip()}


def _runs_in(record: Path) -> int:
    """Return how many runs a record has; its first line says what it is of."""
    try:
        return max(0, record.read_bytes().count(b"\n") - 1)
    except OSError:
        return 0


def _last_line(path: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line for line in path.read_text("utf-8", "replace")[-ERROR_BYTES:].splitlines() if line.strip()]
        return lines[-1].removeprefix("keplab: ").removeprefix("Error: ") if lines else ""
    return ""


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _end_group(process: asyncio.subprocess.Process) -> None:
    """Have nothing of a process's group be left."""
    _signal_group(process, signal.SIGKILL)
    await asyncio.shield(process.wait())
