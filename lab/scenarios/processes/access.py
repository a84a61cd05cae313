"""Access to a mesh that already runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from services.runtime.config import MeshError

if TYPE_CHECKING:
    from lab.scenarios.processes.containers import Containers
    from lab.scenarios.processes.mesh_switches import MeshSwitches
    from services.client.rpc import RpcTransport


@dataclass(frozen=True)
class Access:
    """Access to a running mesh. `folder`: `token.json` with the administrator's token first, `host.json` with
    that of a kubelet host, and for mutual TLS `client.crt`, `client.key`, `host.crt`, `host.key` and
    `ca.crt`.
    """

    server: str
    folder: Path
    is_strict: bool = False
    switches: tuple[str, ...] = ()
    """Switches that are set in all components where these are started."""
    containers: Containers | None = field(default=None, compare=False)
    switching: MeshSwitches | None = field(default=None, compare=False)
    """Interface for changing the components' switches; None: they keep those that they were started with."""

    @property
    def option(self) -> str:
        """Command-line option that names this mesh."""
        return f"--containers {self.containers.project}" if self.containers is not None else f"--server {self.server}"

    def tokens(self, file: str) -> dict[str, str]:
        """Return {identity: token} of one file. Raises: MeshError naming the file."""
        path = self.folder / file
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        except (OSError, ValueError) as error:
            raise MeshError(f"{path}: {error}") from None

    def transport(self, role: str = "client") -> RpcTransport:
        """Return a connection as the administrator, `client`, or as a kubelet host, `host`. Raises: MeshError."""
        from services.client.rpc import RpcTransport
        from services.client.tls import ClientTls, TlsError, TlsFiles
        from services.runtime.real import RealClock, seeded_random

        try:
            files = TlsFiles(*(self.folder / name for name in (f"{role}.crt", f"{role}.key", "ca.crt")))
            tls = ClientTls(files) if self.is_strict else None
        except TlsError as error:
            raise MeshError(str(error)) from None
        tokens = self.tokens("token.json" if role == "client" else "host.json")
        return RpcTransport(self.server, tokens, clock=RealClock(), random=seeded_random(None), tls=tls)

    def flags_of_host(self) -> list[str]:
        """Return the flags with which a kubelet host connects."""
        words = ["--server", self.server, "--token-file", str(self.folder / "host.json")]
        if self.is_strict:
            words += ["--security", "strict", "--certificate-authority", str(self.folder / "ca.crt")]
            words += ["--client-certificate", str(self.folder / "host.crt")]
            words += ["--client-key", str(self.folder / "host.key")]
        return words
