"""A process of the mesh starts, says so, answers about itself, and leaves with a code that means something."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

WAIT_MAX_S = 20.0
ROOT = Path(__file__).resolve().parents[2]

BAKERY = """
import asyncio, os, sys, time
from dataclasses import dataclass
import msgspec
from services.api.wire import Response
from services.runtime.config import CommonConfig, setting
from services.runtime.config import StartError
from services.runtime.process import main

@dataclass(frozen=True, kw_only=True)
class BakeryConfig(CommonConfig):
    '''A process that bakes, or fails on request.'''
    fails: str = setting("", "how")

class Guild:
    "Knows the baker, and a guest who may not look."
    async def call(self, request):
        spec = msgspec.json.decode(request.body)["spec"]
        status = {"allowed": spec.get("user") == "baker"}
        if request.resource.startswith("tokenreviews"):
            status = {"authenticated": spec["token"] in ("baker", "guest"), "user": {"username": spec["token"]}}
        return Response(code=201, body=msgspec.json.encode({"status": status}))

class Bakery:
    is_ready = True
    def reviews(self): return Guild()
    def __init__(self, config): self.config = config
    def metrics(self): return {'bakery_loaves_total{kind="rye"}': 3.0}
    def ports(self): return {"counter": 4711}
    def http_routes(self):
        return [("/loaves/{kind}/{number}", lambda r: (200, "text/plain", repr((r.params, r.query)).encode())),
                ("/eat", self.eat)]
    def eat(self, request): raise MemoryError
    async def run(self):
        match self.config.fails:
            case "start": raise StartError("the oven is locked by pid 12", 75)
            case "disk": raise OSError(28, "No space left on device", "/flour")
            case "memory": raise MemoryError
            case "stall": time.sleep(0.7)
            case "bug": assert 1 == 2, "arithmetic"
            case "done": return
        await asyncio.Event().wait()

main("bakery", BakeryConfig, lambda config, seams: Bakery(config))
"""


@pytest.fixture
def bakery(tmp_path):
    """Starts the bakery; what is left of it at the end is killed."""
    script = tmp_path / "bakery.py"
    script.write_text(BAKERY)
    started = []

    def start(*arguments, interpreter=(), env=None):
        process = subprocess.Popen(
            [sys.executable, *interpreter, str(script), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def wait_for(condition):
    deadline = time.monotonic() + WAIT_MAX_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.02)
    return found


def end_of(process):
    out, err = process.communicate(timeout=WAIT_MAX_S)
    return process.returncode, out, err


def note_of(path):
    return json.loads(wait_for(lambda: path.exists() and path.read_text()))


def page(port, path, token="baker", **headers):
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    if token:
        asked.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_it_says_when_it_is_ready_answers_about_itself_and_stops_on_sigterm(bakery, tmp_path):
    process = bakery(
        "--ready-file", str(tmp_path / "ready"), "--events-dir", str(tmp_path / "events"), "--set", "unbind.max_attempts=7",
    )  # fmt: skip
    note = note_of(tmp_path / "ready")
    port = note["ports"]["health"]

    assert ("bakery", process.pid, 4711) == (note["name"], note["pid"], note["ports"]["counter"])
    for path in ("/healthz", "/livez", "/readyz"):
        assert (200, "ok\n") == page(port, path, token="")
    for path in ("/metrics", "/configz", "/loaves/rye/1", "/nothing"):
        assert (401, "Unauthorized\n") == page(port, path, token="") == page(port, path, token="stranger")
        assert (403, f'forbidden: User "guest" cannot get path "{path}"\n') == page(port, path, token="guest")
        assert (403, "the host name 'evil.example' is not one of this server's\n") == page(
            port, path, Host="evil.example"
        )
    assert '# TYPE bakery_loaves_total counter\nbakery_loaves_total{kind="rye"} 3.0\n' in page(port, "/metrics")[1]
    configuration = json.loads(page(port, "/configz")[1])
    assert (7, ["unbind.max_attempts=7"]) == (configuration["switches"]["unbind.max_attempts"], configuration["set"])
    assert (200, "({'kind': 'rye', 'number': '1 2'}, {'tail': '3'})") == page(port, "/loaves/rye/1%202?tail=3")
    assert 404 == page(port, "/nothing")[0]

    process.send_signal(signal.SIGTERM)
    code, out, err = end_of(process)

    assert (0, "") == (code, out)
    assert ["process.ready", "process.stopped"] == [json.loads(line)["event"] for line in err.splitlines()]
    (events,) = (tmp_path / "events").iterdir()
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    assert ["proc.start", "proc.ready", "proc.stop"] == [line["ev"] for line in lines]
    assert {"exit_code": 0, "reason": "SIGTERM"} == lines[-1]["data"]


def test_an_idle_process_fits_in_60_mib(bakery, tmp_path):
    bakery("--ready-file", str(tmp_path / "ready"), "--token-file", "")
    port = note_of(tmp_path / "ready")["ports"]["health"]

    (line,) = [x for x in page(port, "/metrics")[1].splitlines() if x.startswith("process_resident_memory_bytes")]

    assert 60 * 2**20 > float(line.split()[1])


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--bogus"], 64, "bakery: unrecognized arguments: --bogus (try --help)"),
        (["--health-port", "x"], 64, "bakery: --health-port: want an integer, not 'x'"),
        (["--health-port", "70000"], 64, "bakery: --health-port: want a port from 0 to 65535, not '70000'"),
        (["--set", "nope=1"], 64, "bakery: no switch is called 'nope'; see `keplab switches`"),
        (["--log-level", "loud"], 64, "bakery: log level 'loud': want one of debug, info, warning, error"),
        (["--server", "nowhere"], 64, "bakery: --server 'nowhere': want HOST:PORT"),
        (["--server", "there:99999"], 64, "bakery: --server 'there:99999': want HOST:PORT"),
        (["--token-file", "/nowhere"], 78, "bakery: token file /nowhere: No such file or directory"),
        (["--data-dir", "/dev/null/x"], 78, "bakery: /dev/null/x: Not a directory"),
        (["--fails", "start"], 75, "bakery: the oven is locked by pid 12"),
        (["--fails", "disk"], 74, "bakery: /flour: No space left on device"),
    ],
)
def test_what_keeps_it_from_working_is_one_line_and_an_exit_code(bakery, arguments, code, line):
    ended, out, err = end_of(bakery(*arguments))
    printed = [x for x in err.splitlines() if not x.startswith("{")]

    assert (code, "", [line]) == (ended, out, printed)
    assert "Traceback" not in err


def test_a_bug_ends_it_with_70_and_a_traceback_in_its_log(bakery):
    code, _, err = end_of(bakery("--fails", "bug"))

    assert 70 == code
    crashed = [json.loads(line) for line in err.splitlines() if "process.crashed" in line]
    assert "AssertionError: arithmetic" in crashed[0]["exception"]


def test_a_process_that_is_out_of_memory_ends_so_that_its_successor_can_work(bakery):
    code, _, err = end_of(bakery("--fails", "memory", "--health-port", "-1"))

    assert (70, "out of memory: this process ends, so that its successor can work") == (code, err.splitlines()[-1])


def test_a_task_that_is_out_of_memory_ends_its_process_and_not_itself_alone(bakery, tmp_path):
    process = bakery("--ready-file", str(tmp_path / "ready"))
    port = note_of(tmp_path / "ready")["ports"]["health"]
    with pytest.raises((OSError, http.client.HTTPException)):
        page(port, "/eat")

    assert 70 == process.wait(WAIT_MAX_S)


def test_a_loop_that_stands_still_is_in_the_event_log_with_what_it_did(bakery, tmp_path):
    process = bakery("--fails", "stall", "--events-dir", str(tmp_path / "events"), "--ready-file", str(tmp_path / "r"))
    note_of(tmp_path / "r")

    def stalls():
        (path,) = (tmp_path / "events").glob("*.jsonl")
        return [x["data"] for x in map(json.loads, path.read_text().splitlines()) if x["ev"] == "loop.stall"]

    stall = wait_for(stalls)[0]
    assert 250 < stall["ms"]
    assert stall["stack"][-1].endswith(" run")
    process.terminate()
    assert 0 == process.wait(WAIT_MAX_S)


def test_a_log_file_is_rotated_while_the_process_runs_and_holds_what_it_says_last(bakery, tmp_path):
    log = tmp_path / "bakery.log"
    log.write_bytes(b"x" * (1 << 20))
    process = bakery("--log-file", str(log), "--telemetry-maxsize", "1", "--ready-file", str(tmp_path / "r"))
    note_of(tmp_path / "r")
    wait_for(lambda: (tmp_path / "bakery.log.000001").exists())
    process.terminate()

    assert 0 == process.wait(WAIT_MAX_S)
    assert "process.stopped" in log.read_text()


def test_a_wrong_size_of_files_is_wrong_usage(bakery):
    code, _, err = end_of(bakery("--telemetry-maxsize", "-1"))

    assert (64, "bakery: --telemetry-maxsize: want 0 or more, not -1") == (code, err.strip())


def test_a_component_that_is_done_ends_the_process_well(bakery):
    assert 0 == end_of(bakery("--fails", "done"))[0]


def test_a_busy_port_is_one_line_and_never_worth_a_restart(bakery):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        code, _, err = end_of(bakery("--health-port", str(taken.getsockname()[1])))

    assert 78 == code
    assert "address already in use" in err
    assert 1 == len(err.splitlines())


def test_assertions_cannot_be_switched_off(bakery):
    code, _, err = end_of(bakery(interpreter=("-O",)))

    assert (64, "bakery: assertions must stay on: start python without -O\n") == (code, err)


def test_help_shows_every_setting(bakery):
    code, out, _ = end_of(bakery("--help"))

    assert 0 == code
    assert "--fails" in out
    assert "KEPLAB_HEALTH_PORT" in out


def test_it_does_not_outlive_the_process_that_started_it(bakery, tmp_path):
    parent = subprocess.Popen(
        [
            sys.executable, "-c",
            "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(60)",
            sys.executable, str(tmp_path / "bakery.py"), "--die-with-parent", "--ready-file", str(tmp_path / "ready"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    pid = note_of(tmp_path / "ready")["pid"]

    parent.kill()
    parent.wait()

    stat = Path(f"/proc/{pid}/stat")
    assert wait_for(lambda: not stat.exists() or "Z" in stat.read_text().split(")")[1])
