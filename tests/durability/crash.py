"""T-CRASH: kill the API server, cut off what was not synced, start it again, and look for what is lost (guarantees 12.3).

`make crash KILLS=500`, or `python -m tests.durability.crash --help`. Three processes take part: a server (`lives`), its clients,
who write down what they were answered (`load`), and this one, which kills, cuts and judges.
"""

import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from apiserver_fake.storage.sqlite import SqliteJournal
from tests.durability.history import Line, Row, judge, second_opinion
from tests.durability.lives import ACKNOWLEDGE_BEFORE_SYNC, FOLD_OFTEN, WATERMARK
from tests.durability.load import GROUPS, SPACE

TOKEN: Final = "load"
READY_MAX_S: Final = 30.0
ALL: Final = (1 << 63) - 1
"""After an end in good order every change is firm."""
WINDOW: Final = ("--window-s", "0", "--window-changes", "5000")
"""Enough for what a watch misses while the server is away; more would only make recoveries, and the run, longer."""
LOSE_EVERY: Final = 10
LOST_TOGETHER: Final = (
    ("store.db-wal", "acked"),
    ("store.db-wal", "acked", "store.db-shm", "lock"),
    ("store.db-wal",),
    ("acked",),
    ("store.db-shm", "lock"),
    ("store.db",),
)
"""Files that a copy of the store loses; served whole or refused, never with less than was acknowledged."""

Say = Callable[[str], None]


class Refused(Exception):
    """A server did not start on what was left; the message has its words."""


@dataclass
class Report:
    """What a run did and found; times from SIGKILL to the first acknowledged write."""

    seed: int
    mutants: list[str]
    cuts: bool
    kills: int = 0
    kills_before_ready: int = 0
    acknowledged: int = 0
    changes: int = 0
    bytes_cut: int = 0
    torn: int = 0
    files_removed: int = 0
    logs_begun_anew: int = 0
    acked_taken_back: int = 0
    side_files_lost: dict[str, int] = field(default_factory=dict)
    first_write_p50_s: float = 0.0
    first_write_p99_s: float = 0.0
    first_write_max_s: float = 0.0
    load_average: float = 0.0
    checked: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    caught_at: int = 0


# -- what a power cut does


def cut(directory: Path, watermark: bytes, dice: random.Random, report: Report) -> None:
    """Take away what was not synced, as far as chance will have it (12.3, step 3)."""
    log = directory / "store.db-wal"
    if len(watermark) < WATERMARK.size:
        # No commit was acknowledged yet, and the directory itself may not be synced.
        for name, only_without in (("store.db-wal", ""), ("store.db", "store.db-wal"), ("acked", "store.db")):
            path = directory / name
            if path.exists() and not (only_without and (directory / only_without).exists()) and dice.random() < 0.5:
                path.unlink()
                report.files_removed += 1
    for left in directory.glob("*.tmp"):
        if dice.random() < 0.5:
            left.unlink()
            report.files_removed += 1
    if not log.exists() or not log.stat().st_size:
        return
    synced, salt = 0, b""
    if len(watermark) == WATERMARK.size:
        _, synced, salt = WATERMARK.unpack(watermark)
    with log.open("r+b") as file:
        header = file.read(32)
        if header[16:24] != salt:
            # What was acknowledged is in the database, and the log has begun anew since.
            synced = 0
            report.logs_begun_anew += bool(salt)
        size = log.stat().st_size
        if size <= synced:
            return
        end = dice.randint(synced, size)
        file.truncate(end)
        report.bytes_cut += size - end
        if dice.random() < 1 / 3:
            length = min(end - synced, dice.randint(1, 8_192))
            file.seek(end - length)
            file.write(dice.randbytes(length))
            report.torn += 1


def _take_back_acked(directory: Path, older: bytes, dice: random.Random, report: Report) -> bytes:
    """Put the content of `acked` back to what it was a life ago, one time in four: it is never synced. Return it as it
    was found."""
    path = directory / "acked"
    found = path.read_bytes()
    if older and dice.random() < 1 / 4:
        path.write_bytes(older)
        report.acked_taken_back += 1
    return found


# -- what is on the disk


class Log:
    """The store's changes as this process has read them, life after life; the state after them, by its own count."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.newest = 0
        """The newest change that was on the disk, firm or not."""
        self.state_hash = 0
        self.hashes: dict[int, int] = {}
        """The state hash after each change."""
        self._there: dict[str, int] = {}

    @property
    def rv(self) -> int:
        """The newest change."""
        return self.rows[-1].rv if self.rows else 0

    def read(self, directory: Path, firm: int) -> list[str]:
        """Read what is new on the disk, from a copy; return what is wrong with it.

        `firm`: the newest change that was synced. Those above it may be there and go in the next cut; they count once a
        server has synced them.
        """
        with tempfile.TemporaryDirectory(prefix="keplab-crash-") as folder:
            for name in ("store.db", "store.db-wal"):
                if (directory / name).exists():
                    shutil.copy(directory / name, folder)
            database = sqlite3.connect(Path(folder) / "store.db")
            try:
                if database.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                    return ["S15: the database is damaged"]
                if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'changes'").fetchone():
                    return [f"I13: lost: there is no store, change {firm} was durable"] if firm else []
                self.newest = database.execute("SELECT max(rv) FROM changes").fetchone()[0] or 0
                columns = "rv, type, group_end, previous_rv, resource, namespace, name, body"
                where = f"SELECT {columns} FROM changes WHERE rv > ? AND rv <= ? ORDER BY rv"
                for found in database.execute(where, (self.rv, firm)):
                    self._add(*found)
            finally:
                database.close()
        if self.newest < firm < ALL:
            return [f"I13: lost: change {firm} was durable, the log ends at {self.newest}"]
        return []

    def _add(
        self, rv: int, kind: str, group_end: int, previous_rv: int, resource: str, space: str, name: str, body: bytes
    ) -> None:
        key = f"{resource}/{space}/{name}"
        document = json.loads(body)
        token = "" if kind == "DELETED" else _token_of(document)
        self.rows.append(Row(rv, kind, group_end, previous_rv, key, sha256(body).hexdigest(), token))
        self.state_hash -= self._there.pop(key, 0)
        if kind != "DELETED":
            # Source: guarantees 2.3, computed here with another encoder than the server's.
            text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            head = f"{document['kind']}\0{space}\0{name}\0"
            self._there[key] = int.from_bytes(sha256((head + text).encode()).digest(), "big")
            self.state_hash += self._there[key]
        self.state_hash %= 1 << 256
        self.hashes[rv] = self.state_hash


def _token_of(document: dict[str, Any]) -> str:
    annotations = document["metadata"].get("annotations") or {}
    return str((document.get("data") or {}).get("last") or annotations.get("last") or "")


def is_ours(key: str) -> bool:
    """Whether only the clients of this run write that object, each time with a token."""
    return key.startswith((f"configmaps/{SPACE}/", f"pods/{GROUPS}/"))


# -- the run


class Run:
    """One store, one set of clients, many lives."""

    def __init__(self, folder: Path, report: Report) -> None:
        self._folder, self._report = folder, report
        self._dice = random.Random(report.seed)
        self.store = folder / "store"
        self._history = folder / "history.jsonl"
        self._watermark, self._ready = folder / "watermark", folder / "ready"
        self._target = folder / "target"
        tokens = [{"token": TOKEN, "user": "system:mesh-admin", "groups": ["system:mesh-admins"]}]
        (folder / "tokens").write_bytes(msgspec.json.encode(tokens))
        self._zygote: subprocess.Popen[str] | None = None
        self._load: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self.log = Log()
        self.killed_ns: list[int] = []
        self._recoveries: dict[str, dict[str, Any] | None] = {}
        """What each life found, by its event log; None where it ended before."""

    def __enter__(self) -> "Run":
        self._open()
        return self

    def rewire(self, mutants: Sequence[str]) -> None:
        """Have later lives be of another wiring; none runs now."""
        self._close()
        self._report.mutants = list(mutants)
        self._open()

    def _open(self) -> None:
        module = [sys.executable, "-m", "tests.durability.lives", str(self._watermark), *self._report.mutants]
        errors = (self._folder / "server.log").open("ab")
        self._zygote = subprocess.Popen(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        errors.close()

    def _close(self) -> None:
        assert self._zygote is not None
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait()

    def __exit__(self, *_: object) -> None:
        if self._load is not None and self._load.poll() is None:
            self._load.kill()
            self._load.wait()
        if self._pid:
            self.kill()
        self._close()

    def start(self) -> None:
        """Begin a life of the server; it may not be ready yet."""
        self._ready.unlink(missing_ok=True)
        # A port for each life: a channel to the old one has waited longer and longer for it to come back.
        port = _free_port()
        self._target.write_text(f"127.0.0.1:{port}")
        arguments = [
            "--engine", "sqlite", "--data-dir", str(self.store), "--token-file", str(self._folder / "tokens"),
            "--grpc-port", str(port), "--rest-port", "none", "--health-port", "-1", "--log-level", "error",
            "--events-dir", str(self._folder / "events"), "--state-hash", "--ready-file", str(self._ready),
            *WINDOW,
        ]  # fmt: skip
        self._say(json.dumps(arguments))
        self._pid = int(self._answer("pid"))

    def _say(self, line: str) -> None:
        assert self._zygote is not None
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(line + "\n")
        self._zygote.stdin.flush()

    def _answer(self, word: str) -> str:
        assert self._zygote is not None
        assert self._zygote.stdout is not None
        said, _, value = self._zygote.stdout.readline().strip().partition(" ")
        assert said == word, f"{said} {value}"
        return value

    def wait_until_ready(self) -> None:
        """Return when it serves. Raises: Refused when it ends before."""
        deadline = time.monotonic() + READY_MAX_S
        while not self._ready.exists():
            if not _runs(self._pid):
                code, self._pid = self._answer("exit"), 0
                last = (self._folder / "server.log").read_text().strip().splitlines()[-1:]
                raise Refused(f"exit {code}: {' '.join(last)}")
            if time.monotonic() > deadline:
                raise Refused("not ready in time")
            time.sleep(0.005)
        # Only a load that works has a handler for it.
        if self._load is not None and self.history_size():
            self._load.send_signal(signal.SIGUSR1)

    def wait_or(self, most_s: float) -> None:
        """Return when it serves, or after so long. Raises: Refused."""
        deadline = time.monotonic() + most_s
        while not self._ready.exists() and time.monotonic() < deadline:
            if not _runs(self._pid):
                self.wait_until_ready()
            time.sleep(0.005)

    def kill(self, number: int = signal.SIGKILL) -> str:
        """Send the signal and wait for the end; return the exit code."""
        self.killed_ns.append(time.monotonic_ns())
        os.kill(self._pid, number)
        self._pid = 0
        code = self._answer("exit")
        self._note_recovery()
        return code

    def wait_for_end(self) -> str:
        """Return the exit code of a server that ends by itself."""
        code, self._pid = self._answer("exit"), 0
        self._note_recovery()
        return code

    def start_load(self) -> None:
        """Let the clients begin."""
        words = [str(self._target), TOKEN, str(self._history), str(self._report.seed)]
        errors = (self._folder / "load.log").open("ab")
        module = [sys.executable, "-m", "tests.durability.load", *words]
        self._load = subprocess.Popen(module, stdout=errors, stderr=errors)
        errors.close()

    def stop_load(self) -> None:
        """Let the clients finish what they are at, while the server lives."""
        assert self._load is not None
        self._load.terminate()
        if self._load.wait(60) != 0:
            raise RuntimeError(f"the load failed, see {self._folder / 'load.log'}")

    def wait_for_writes(self) -> None:
        """Return once a write was committed after this call."""
        deadline, before = time.monotonic() + READY_MAX_S, self.firm()
        while self.firm() <= before and time.monotonic() < deadline:
            time.sleep(0.005)

    def wait_for_history(self) -> None:
        """Return once the clients are at work: what they work on is there."""
        deadline = time.monotonic() + READY_MAX_S
        while not self.history_size() and time.monotonic() < deadline:
            time.sleep(0.005)

    def history_size(self) -> int:
        """Return how many bytes the clients have written."""
        return self._history.stat().st_size if self._history.exists() else 0

    def history(self) -> list[Line]:
        """Return what the clients were answered."""
        with self._history.open("rb") as lines:
            return [json.loads(line) for line in lines]

    def watermark(self) -> bytes:
        """Return the newest watermark; it stands over all lives (12.3, step 4)."""
        return self._watermark.read_bytes() if self._watermark.exists() else b""

    def firm(self) -> int:
        """Return the newest change that was synced."""
        found = self.watermark()
        return int(WATERMARK.unpack(found)[0]) if len(found) == WATERMARK.size else 0

    def _note_recovery(self) -> None:
        """Note what the life that has ended found; only the event logs of the last ten are kept."""
        for path in (self._folder / "events").glob("*.jsonl"):
            if path.name not in self._recoveries:
                lines = (line for line in path.read_bytes().splitlines() if b'"store.recovered"' in line)
                self._recoveries[path.name] = next((json.loads(line) for line in lines), None)

    def recovered(self) -> list[dict[str, Any]]:
        """Return what each life found, oldest first."""
        found = [line for line in self._recoveries.values() if line is not None]
        return sorted(found, key=lambda line: int(line["mono_ns"]))


def crash(
    folder: Path,
    *,
    kills: int,
    seed: int,
    mutants: Sequence[str] = (),
    cuts: bool = True,
    say: Say = lambda _: None,
    searches: bool = True,
    is_over: Callable[[], bool] = lambda: False,
) -> Report:
    """Kill so many times and judge; with a mutant stop at the first violation. Files stay in `folder`."""
    report = Report(seed, list(mutants), cuts, load_average=round(os.getloadavg()[0], 1))
    dice = random.Random(seed)
    is_mutant = ACKNOWLEDGE_BEFORE_SYNC in mutants
    with Run(folder, report) as run:
        run.start()
        run.start_load()
        run.wait_for_history()
        older = b""
        for number in range(1, kills + 1):
            if is_over():
                break
            try:
                # A copy that loses files is one whose `acked` its server has written since the last cut took it back.
                is_cut_short = number > 1 and dice.random() < 0.1 and number % LOSE_EVERY > 0
                _one_life(run, report, dice, amid_recovery=is_cut_short)
            except Refused as refused:
                report.violations.append(f"kill {number - 1}: I13: the store is refused: {refused}")
                report.caught_at = number - 1
                break
            report.kills = number
            if cuts:
                cut(run.store, run.watermark(), dice, report)
                if number % LOSE_EVERY:  # not both: that there was more is known nowhere then
                    older = _take_back_acked(run.store, older, dice, report)
            report.violations += [f"kill {number}: {text}" for text in run.log.read(run.store, run.firm())]
            if is_mutant:
                report.violations += _lost_so_far(run)
            if report.violations:
                report.caught_at = number
                break
            if number % LOSE_EVERY == 0 and not is_mutant:
                _lose_side_files(run, report, LOST_TOGETHER[number // LOSE_EVERY % len(LOST_TOGETHER)], folder)
            run.start()
            if number % 25 == 0 or number == kills:
                say(f"{number}/{kills} kills, {run.log.rv} changes, load average {os.getloadavg()[0]:.1f}")
        if not report.violations:
            run.wait_until_ready()
            run.wait_for_writes()
            run.stop_load()
            if (code := run.kill(signal.SIGTERM)) != "0":
                report.violations.append(f"the server left with {code} on SIGTERM")
            run.log.read(run.store, ALL)
        judge_run(run, report, searches=searches and not report.violations)
    return report


def _one_life(run: Run, report: Report, dice: random.Random, *, amid_recovery: bool) -> None:
    """Let a server that was started live for a while, and kill it. Raises: Refused."""
    if amid_recovery:
        # Which must be as good to die in as any other moment.
        run.wait_or(dice.uniform(0.0, 0.4))
        report.kills_before_ready += 1
    else:
        run.wait_until_ready()
        run.wait_for_writes()
        time.sleep(dice.uniform(0.1, 1.0))
    run.kill()


def _lost_so_far(run: Run) -> list[str]:
    newest = max((line["rv"] for line in run.history() if line.get("outcome") == "ok"), default=0)
    return [f"I13: {newest} was acknowledged, the log ends at {run.log.newest}"] if newest > run.log.newest else []


def _lose_side_files(run: Run, report: Report, names: Sequence[str], folder: Path) -> None:
    """Look at a copy that has lost some files: it is whole, or it is refused and says why."""
    copy = folder / "copy"
    shutil.copytree(run.store, copy)
    for name in names:
        (copy / name).unlink(missing_ok=True)
    journal = SqliteJournal(copy)
    try:
        found = journal.survey()
    finally:
        journal.release()
    shutil.rmtree(copy)
    outcome = "refused" if found.refused else "whole"
    # What was written above the newest synced change was not acknowledged, and may go.
    if not found.refused and found.resource_version < run.firm():
        report.violations.append(
            f"D11: a store of {run.firm()} changes is served at {found.resource_version} without {', '.join(names)}"
        )
    what = f"{'+'.join(names)}: {outcome}"
    report.side_files_lost[what] = report.side_files_lost.get(what, 0) + 1


def judge_run(run: Run, report: Report, *, searches: bool) -> None:
    """Hold what clients were answered against the log as it was read."""
    history = run.history()
    result = judge(run.log.rows, history, is_ours=is_ours)
    report.violations += result.violations
    report.checked, report.changes = result.checked, run.log.rv
    report.acknowledged = result.checked.get("ok", 0)
    for line in run.recovered():
        own = run.log.hashes.get(line["rv"])
        if own is not None and line["data"]["state_hash"] != f"{own:064x}":
            report.violations.append(f"S14: the state recovered at {line['rv']} has another hash than the log's")
        report.checked["recoveries"] = report.checked.get("recoveries", 0) + (own is not None)
    if FOLD_OFTEN not in report.mutants and searches:
        found = second_opinion(history)
        report.keys = {name: len(keys) for name, keys in found.items()}
        report.violations += [f"S5: no order explains what clients of {key} were answered" for key in found["illegal"]]
    times = _first_writes(run.killed_ns, history)
    if times:
        report.first_write_p50_s = times[len(times) // 2]
        report.first_write_p99_s = times[min(len(times) - 1, int(0.99 * len(times)))]
        report.first_write_max_s = times[-1]


def _first_writes(killed_ns: Sequence[int], history: Sequence[Line]) -> list[float]:
    """Return the seconds from each kill to the next acknowledged write that was not on its way before, sorted."""
    returns = sorted(
        line["return_ns"]
        for line in history
        if line.get("outcome") == "ok" and line["op"] not in ("get", "list", "event")
    )
    found, place = [], 0
    for index, at in enumerate(killed_ns):
        while place < len(returns) and returns[place] <= at + 20_000_000:
            place += 1
        following = killed_ns[index + 1] if index + 1 < len(killed_ns) else None
        if place < len(returns) and (following is None or returns[place] < following):
            found.append(round((returns[place] - at) / 1e9, 3))
    return sorted(found)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@click.command()
@click.option("--kills", default=500, show_default=True)
@click.option("--seed", type=int, default=None, help="printed with the report")
@click.option("--mutant", "mutants", multiple=True, type=click.Choice([ACKNOWLEDGE_BEFORE_SYNC, FOLD_OFTEN]))
@click.option("--cut/--no-cut", "cuts", default=True, help="take away what was not synced")
@click.option("--folder", type=click.Path(path_type=Path), default=None, help="keep the files here")
def main(kills: int, seed: int | None, mutants: tuple[str, ...], cuts: bool, folder: Path | None) -> None:
    """Kill an API server under load, cut its files as a power cut does, and report what is lost. Exit code 1: something.

    Ctrl-C ends the run after the kill that it is at, and judges.
    """
    place = folder or Path(tempfile.mkdtemp(prefix="keplab-crash-"))
    place.mkdir(parents=True, exist_ok=True)
    chosen = seed if seed is not None else random.SystemRandom().getrandbits(32)
    begun = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - begun:6.1f} s] {text}", err=True)

    stopping: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: stopping.append(number))
    report = crash(place, kills=kills, seed=chosen, mutants=mutants, cuts=cuts, say=say, is_over=lambda: bool(stopping))
    shown = {**asdict(report), "violations": report.violations[:20]}
    click.echo(json.dumps(shown, indent=1))
    if report.violations:
        say(f"files are kept in {place}")
        sys.exit(1)
    if folder is None:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
