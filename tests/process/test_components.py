"""Every component, configured wrongly: one line that says what, an exit code a supervisor understands, no traceback."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = {
    "apiserver": "apiserver_fake",
    "scheduler": "scheduler",
    "kubelet": "kubelet",
    "controllers": "services.controllers",
    "claim-controller": "claim_controller",
}
CONTROLLERS = "system:controller:replicaset"


@pytest.fixture(scope="module")
def taken():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield str(listener.getsockname()[1])


def ended(component, *arguments, cwd):
    """Return (exit code, its line on standard error) of a component that cannot start."""
    done = subprocess.run(
        [sys.executable, "-m", COMPONENTS[component], *arguments], capture_output=True, text=True, timeout=20, cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout == ""
    printed = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(printed) == 1, done.stderr
    return done.returncode, printed[0]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--bogus"], 64, "unrecognized arguments: --bogus"),
        (["--health-port", "x"], 64, "--health-port: want an integer"),
        (["--health-port", "99999"], 64, "want a port from 0 to 65535"),
        (["--set", "nope=1"], 64, "no switch is called 'nope'"),
        (["--set", "kubelet.on_reject"], 64, "want NAME=VALUE"),
        (["--log-level", "loud"], 64, "log level 'loud'"),
        (["--token-file", "/nowhere"], 78, "token file /nowhere: No such file or directory"),
        (["--token-file", "half.json"], 78, "token file half.json: Input data was truncated"),
        (["--data-dir", "/proc/x"], 78, "/proc/x: No such file or directory"),
        (["--events-dir", "/proc/x"], 78, "/proc/x: No such file or directory"),
        (["--spans-dir", "/proc/x"], 78, "/proc/x: No such file or directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_no_component_takes_is_one_line(tmp_path, arguments, code, said):
    (tmp_path / "half.json").write_text('{"a":')

    for component in COMPONENTS:
        found, line = ended(component, *arguments, cwd=tmp_path)

        assert (found, said in line) == (code, True), f"{component}: {found} {line}"


@pytest.mark.parametrize("component", list(COMPONENTS))
def test_a_busy_health_port_is_one_line(tmp_path, component, taken):
    tokens = [] if component == "apiserver" else {"system:node-host:h": "t"}
    if component == "controllers":
        from services.runtime.roles import controller_identities

        tokens = {f"{identity.user}": "t" for identity in controller_identities()}
    if component == "claim-controller":
        from services.runtime.roles import claim_controller_identities

        tokens = {identity.user: "t" for identity in claim_controller_identities()}
    (tmp_path / "tokens.json").write_text(json.dumps(tokens))
    more = ["--engine", "memory"] if component == "apiserver" else []

    code, line = ended(component, "--token-file", "tokens.json", "--health-port", taken, *more, cwd=tmp_path)

    assert (code, "address already in use" in line) == (78, True), line


@pytest.mark.parametrize(
    ("component", "arguments", "code", "said"),
    [
        ("apiserver", ["--engine", "paper"], 64, "engine 'paper' is none of memory, sqlite"),
        ("apiserver", ["--engine", "memory", "--rest-port", "70000"], 64, "--rest-port: want a port"),
        ("scheduler", ["--server", "there:99999"], 64, "--server 'there:99999': want HOST:PORT"),
        ("controllers", ["--health-port", "-1"], 78, "no token of system:controller:"),
        ("claim-controller", ["--health-port", "-1"], 78, "no token of system:serviceaccount:kube-system:"),
        ("kubelet", ["--nodes", "-3"], 64, "want 0 or more"),
        ("kubelet", ["--nodes", "1", "--cpu", "lots"], 64, "quantity 'lots'"),
        ("kubelet", ["--latency", "sandbox=never"], 64, "no distribution 'never'"),
        ("kubelet", ["--nodes-file", "none.json"], 64, "--nodes-file none.json: No such file or directory"),
        ("kubelet", ["--nodes-file", "half.json"], 64, "--nodes-file half.json: Input data was truncated"),
        ("kubelet", ["--nodes-file", "wrong.json"], 64, "node n1: numa: 'x', want for example 2x8"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_component_of_its_own_does_not_take_is_one_line(tmp_path, component, arguments, code, said):
    (tmp_path / "half.json").write_text('[{"name":')
    (tmp_path / "wrong.json").write_text('[{"name": "n1", "numa": "x"}]')

    found, line = ended(component, *arguments, cwd=tmp_path)

    assert (found, said in line) == (code, True), f"{found} {line}"


@pytest.mark.parametrize("damaged_at", [0, 2])
def test_a_damaged_store_is_one_line_and_not_written_over(tmp_path, damaged_at):
    pages = 4096
    store = tmp_path / "data" / "store.db"
    (tmp_path / "tokens.json").write_text("[]")
    arguments = ["--data-dir", "data", "--token-file", "tokens.json", "--health-port", "-1"]
    server = subprocess.Popen(
        [sys.executable, "-m", "apiserver_fake", *arguments, "--ready-file", "ready"], stderr=subprocess.PIPE,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    for line in server.stderr:
        if b"process.ready" in line:
            break
    server.terminate()
    server.communicate(timeout=15)
    with store.open("r+b") as file:
        file.seek(damaged_at * pages)
        file.write(b"\xde\xad" * (pages // 2))
    corrupted = store.read_bytes()

    code, line = ended("apiserver", *arguments, cwd=tmp_path)

    assert (code, "data/store.db: " in line) == (78, True), line
    assert store.read_bytes() == corrupted
