"""Local etcd of one or several members, for a mesh without an external one.

Members listen on loopback, authenticate clients and each other by certificates of an authority of their own,
and keep their data and ports below the mesh's directory. They are children of the supervisor like all other
processes. Run as a program, this module becomes etcd, after it ensures that etcd ends with its parent.
"""

import asyncio
import contextlib
import os
import shutil
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from services.runtime import certificates
from services.runtime.child import POLL_S, Child
from services.runtime.config import MeshError, StartError
from services.runtime.real import die_with_parent

FOLDER = "etcd"
PARTS_VARIABLE = "KEPLAB_PARTS"
"""Environment variable with a folder of programs that are not installed."""
HEALTH_MAX_S = 2.0
LOG_BYTES = 16384


@dataclass(frozen=True)
class Members:
    """Members for the API servers: comma-separated URLs, and the flags with their credentials."""

    servers: str
    flags: list[str]
    children: "list[EtcdChild]"


def find_etcd() -> Path:
    """Return the path of etcd. Raises: MeshError saying how to get it."""
    parts = os.environ.get(PARTS_VARIABLE, "")
    program = shutil.which("etcd") or (shutil.which("etcd", path=parts) if parts else None)
    if program is None:
        raise MeshError(
            "engine etcd: there is no etcd on the PATH; install one (Debian and Ubuntu: apt-get install etcd-server) "
            "or name a running one with --etcd-servers"
        )
    return Path(program).absolute()


def make_members(data: Path, count: int, free_port: Callable[[], int]) -> Members:
    """Return the members of a mesh on that directory. Raises: MeshError when it had other members before; OSError."""
    binary, folder = find_etcd(), data / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ports = _ports(folder, count, free_port)
    pki = folder / "pki"
    pki.mkdir(exist_ok=True, mode=0o700)
    signer = certificates.authority(pki, life=certificates.AUTHORITY_LIFE)
    member, client = signer.peer("member"), signer.client("apiserver", "keplab-apiserver")
    names = ["etcd", *(f"etcd-{number}" for number in range(2, count + 1))]
    urls = {name: f"https://127.0.0.1:{ports[2 * at]}" for at, name in enumerate(names)}
    peers = {name: f"https://127.0.0.1:{ports[2 * at + 1]}" for at, name in enumerate(names)}
    shared = [
        "--cert-file", str(member.certificate), "--key-file", str(member.key),
        "--trusted-ca-file", str(signer.path), "--client-cert-auth",
        "--peer-cert-file", str(member.certificate), "--peer-key-file", str(member.key),
        "--peer-trusted-ca-file", str(signer.path), "--peer-client-cert-auth",
        "--initial-cluster", ",".join(f"{name}={url}" for name, url in peers.items()),
        "--log-level", "warn", "--logger", "zap",
    ]  # fmt: skip
    context = ssl.create_default_context(cafile=signer.path)
    context.load_cert_chain(client.certificate, client.key)
    children = [
        EtcdChild(
            name,
            [
                str(binary), "--name", name, "--data-dir", str(folder / name),
                "--listen-client-urls", urls[name], "--advertise-client-urls", urls[name],
                "--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name], *shared,
            ],
            data,
            ports[2 * at],
            context,
        )
        for at, name in enumerate(names)
    ]  # fmt: skip
    flags = [
        "--etcd-cafile", str(signer.path), "--etcd-certfile", str(client.certificate), "--etcd-keyfile", str(client.key)
    ]  # fmt: skip
    return Members(",".join(urls.values()), flags, children)


def _ports(folder: Path, count: int, free_port: Callable[[], int]) -> list[int]:
    """Return the ports of clients and peers by turns: those of the first time, by which members know each other."""
    path = folder / "ports.json"
    with contextlib.suppress(FileNotFoundError):
        known = msgspec.json.decode(path.read_bytes(), type=list[int])
        if len(known) != 2 * count:
            raise MeshError(f"{folder} holds an etcd of {len(known) // 2} members, and --etcd-members says {count}")
        return known
    ports: list[int] = []
    while len(ports) < 2 * count:
        port = free_port()
        if port not in ports:
            ports.append(port)
    path.write_bytes(msgspec.json.encode(ports))
    return ports


class EtcdChild(Child):
    """One etcd member. It is ready when it reports to be healthy, that is, when there is a leader."""

    def __init__(self, name: str, command: list[str], data: Path, port: int, context: ssl.SSLContext) -> None:
        super().__init__(name, command, data / "logs" / f"{name}.log", data / "run" / f"{name}.ready")
        self._port, self._context = port, context

    async def wait_until_ready(self) -> None:
        """Wait until the member is healthy."""
        while not await self._is_healthy():  # noqa: ASYNC110  etcd sends no notice
            await asyncio.sleep(POLL_S * 5)
        self.ports = {"grpc": self._port}
        self.is_ready = self.was_ever_ready = True

    async def _is_healthy(self) -> bool:
        try:
            async with asyncio.timeout(HEALTH_MAX_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._context)
                writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                answer = await reader.read()
                writer.close()
        except (OSError, TimeoutError):
            return False
        return b'"health":"true"' in answer

    def why(self, code: int) -> str:
        """Return the reason of its end in one line: the signal, or etcd's last message."""
        with contextlib.suppress(OSError):
            for line in reversed(self.log.read_bytes()[-LOG_BYTES:].splitlines()):
                with contextlib.suppress(msgspec.DecodeError):
                    entry = msgspec.json.decode(line, type=dict[str, object])
                    if code >= 0 and entry.get("level") in ("fatal", "panic", "error"):
                        parts = (self.name, entry.get("msg"), entry.get("error"))
                        return ": ".join(str(part) for part in parts if part) + f" (exit {code})"
        return super().why(code)


def main(command: list[str]) -> None:
    """Replace this process by etcd."""
    try:
        die_with_parent(os.environ)
    except StartError as error:
        sys.exit(error.exit_code)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
