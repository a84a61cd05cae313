"""The health check of containers: right, cheap, and never longer than it may be."""

import os
import re
import socket
import subprocess
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "deploy/containers/healthy.sh"


def answering(answer):
    """Return the port of a server that gives every connection this answer; None: it accepts and says nothing."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            connection, _ = server.accept()
            if answer is not None:
                request = b""
                while b"\r\n\r\n" not in request:
                    request += connection.recv(1024)
                connection.sendall(answer)
                connection.close()
            else:
                silent.append(connection)

    silent = []
    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


def checked(port, mark, rest="0"):
    environ = {
        **os.environ,
        "KEPLAB_HEALTH_PORT": str(port),
        "KEPLAB_HEALTH_MARK": str(mark),
        "KEPLAB_HEALTH_REST_S": rest,
    }
    return subprocess.run(
        ["/bin/bash", str(CHECK)], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("answer", "code", "why"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, ""),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", 1, "HTTP/1.1 503 Service Unavailable"),
        (b"", 1, "no answer"),
    ],
)
def test_the_check_says_what_readyz_says(tmp_path, answer, code, why):
    mark = tmp_path / "mark"
    mark.touch()
    port = answering(answer)

    done = checked(port, mark)

    assert (done.returncode, done.stdout) == (code, f"/readyz on port {port}: {why}\n" if why else "")
    assert mark.exists() is (code == 0)


def test_a_process_that_accepts_and_never_answers_is_not_ready(tmp_path):
    done = checked(answering(None), tmp_path / "mark")

    assert (done.returncode, "no answer" in done.stdout) == (1, True)


def test_a_port_that_is_closed_is_not_ready(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    done = checked(port, tmp_path / "mark")

    assert (done.returncode, f"/readyz on port {port}: no connection" in done.stdout) == (1, True)


def test_a_check_after_one_that_succeeded_waits_first(tmp_path):
    """`sleep` refuses what is no time, so its error shows that the check would have waited."""
    port, mark = answering(b"HTTP/1.1 200 OK\r\n\r\n"), tmp_path / "mark"

    first, second = (checked(port, mark, rest="soon") for _ in range(2))

    assert ("sleep" in first.stderr, "sleep" in second.stderr) == (False, True)


def test_a_check_ends_itself_before_the_engine_gives_it_up():
    """What the engine gives up goes on beside the next one: on a busy machine they pile up."""
    line = re.search(r"HEALTHCHECK (.*)\\\n\s*CMD (\[.*\])", (ROOT / "Dockerfile").read_text())
    engine_s = int(re.search(r"--timeout=(\d+)s", line[1])[1])
    command = line[2]
    own_s = int(re.search(r'"timeout", "-s", "KILL", "(\d+)"', command)[1])
    rest_s, answer_s = (
        int(re.search(found, CHECK.read_text())[1]) for found in (r"REST_S:-(\d+)", r"read -r -t (\d+)")
    )

    assert rest_s + answer_s < own_s <= engine_s / 2
    assert "python" not in command
