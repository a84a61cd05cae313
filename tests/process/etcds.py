"""Real etcds for tests: started on free loopback ports, killed, started again on their data.

Debian's etcd-server is fetched once (`tests/interop/parts.py`); where it cannot be had, tests over it are skipped.
"""

import contextlib
import json
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.interop import parts

START_MAX_S = 30.0


def binary() -> Path:
    """Return etcd, or skip the test with one line that says why it is not to be had."""
    try:
        return parts.etcd()
    except parts.NotToBeHadError as error:
        pytest.skip(str(error))


def free_ports(count: int) -> list[int]:
    """Return ports that are free at this moment."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


class Member:
    """One etcd process and its data."""

    def __init__(self, name, directory, client_port, peer_port, cluster, more):
        self.name, self.url, self.log = name, f"http://127.0.0.1:{client_port}", directory / f"{name}.log"
        peer = f"http://127.0.0.1:{peer_port}"
        self._command = [
            str(binary()), "--name", name, "--data-dir", str(directory / name), "--log-level", "warn",
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, *more,
        ]  # fmt: skip
        self.process = None

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def allow(self, quota_bytes):
        """Start it with another quota."""
        self._command += ["--quota-backend-bytes", str(quota_bytes)]
        self.start()

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, path, document):
        """Ask over its JSON gateway."""
        request = urllib.request.Request(self.url + path, json.dumps(document).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)

    @property
    def status(self):
        """Whom it is and whom it follows; {} while it does not answer."""
        try:
            return self.ask("/v3/maintenance/status", {})
        except OSError:
            return {}


class Etcd:
    """One or several members."""

    def __init__(self, directory: Path, members: int = 1, *more: str) -> None:
        ports = free_ports(2 * members)
        names = [f"m{i}" for i in range(members)]
        cluster = ",".join(f"{name}=http://127.0.0.1:{ports[2 * i + 1]}" for i, name in enumerate(names))
        self.members = [
            Member(name, directory, ports[2 * i], ports[2 * i + 1], cluster, more) for i, name in enumerate(names)
        ]

    @property
    def servers(self):
        return ",".join(member.url for member in self.members)

    def start(self):
        for member in self.members:
            member.start()
        self.wait()

    def wait(self):
        """Wait until every running member has a leader."""
        deadline = time.monotonic() + START_MAX_S
        for member in self.members:
            while member.process is not None and not int(member.status.get("leader", 0)):
                assert time.monotonic() < deadline, member.log.read_text()[-2000:]
                assert member.process.poll() is None, member.log.read_text()[-2000:]
                time.sleep(0.05)

    def leader(self):
        """Return the member that leads."""
        while True:
            for member in self.members:
                status = member.status if member.process is not None else {}
                if status and status.get("leader") == status["header"]["member_id"]:
                    return member
            time.sleep(0.05)

    def stop(self):
        for member in self.members:
            member.kill()
