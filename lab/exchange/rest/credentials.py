"""Credentials for a cluster: a token (given, read from a file, or printed by a program), or a printed certificate.

Credentials that are read or printed expire: a file is read again each minute, a program runs again when its
output expires, and both when the cluster refuses the token. Source: upstream
`staging/src/k8s.io/client-go/plugin/pkg/client/auth/exec/exec.go` and
`staging/src/k8s.io/client-go/transport/token_source.go`.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from lab.exchange.rest.endpoint import show_certificate
from lab.exchange.rest.kubeconfig import Access, Program
from lab.exchange.stream import Refused
from services.api.errors import UNREADABLE

PROGRAM_MAX_S: Final = 30.0
FILE_AGE_S: Final = 60.0
"""Seconds for which a file's token is used before the file is read again."""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Printed(msgspec.Struct, frozen=True, rename="camel"):
    """An ExecCredential, as a program prints it."""

    api_version: str
    status: _Status


class Credentials:
    """Credentials for requests. `wall`: seconds since 1970. `trust`: TLS context that gets the printed certificate."""

    def __init__(self, access: Access, trust: ssl.SSLContext | None, wall: Callable[[], float]) -> None:
        self._access, self._trust, self._wall = access, trust, wall
        self._token = access.token
        self._ends_s = 0.0
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        """Return the token; empty string if there is none. Raises: Refused, if a program prints no credentials."""
        async with self._lock:
            if not self._access.has_lasting_token and self._wall() >= self._ends_s:
                await self._renew()
            return self._token

    async def renew(self, refused: str) -> bool:
        """Replace a token that was refused; return whether there is another one now. Raises: Refused."""
        async with self._lock:
            if not self._access.has_lasting_token and self._token == refused:
                await self._renew()
            return self._token != refused

    async def _renew(self) -> None:
        now_s = self._wall()
        if self._access.token_file is not None:
            with suppress(OSError, UnicodeError):  # then what was read last stays
                self._token = self._access.token_file.read_text("utf-8").strip() or self._token
            self._ends_s = now_s + FILE_AGE_S
        elif self._access.program is not None:
            status = await _run(self._access.program)
            self._token = status.token
            self._ends_s = status.expiration_timestamp.timestamp() if status.expiration_timestamp else float("inf")
            if status.client_certificate_data and self._trust is not None:
                show_certificate(self._trust, status.client_certificate_data, status.client_key_data)


async def _run(program: Program) -> _Status:
    """Return the credentials that a program prints. Raises: Refused: it does not run, or prints none."""
    spec: dict[str, Any] = {"interactive": False}
    if program.cluster is not None:
        spec["cluster"] = program.cluster
    about = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec}
    environment = {**os.environ, **dict(program.environment)}
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(about).decode()
    name = program.command[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *program.command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        hint = "".join(f"; {line.strip()}" for line in program.hint.splitlines() if line.strip())
        raise Refused(f"{name}, which prints credentials: {error.strerror or error}{hint}") from None
    try:
        printed, error_output = await asyncio.wait_for(process.communicate(), PROGRAM_MAX_S)
    except TimeoutError:
        raise Refused(f"{name}, which prints credentials: no answer in {PROGRAM_MAX_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    words = error_output.decode("utf-8", "replace").strip().splitlines()
    if process.returncode:
        raise Refused(f"{name} ended with {process.returncode}: {words[-1] if words else 'it said nothing'}")
    try:
        credential = msgspec.json.decode(printed, type=_Printed)
    except UNREADABLE as error:
        raise Refused(f"{name} printed no ExecCredential: {error}{f'; {words[-1]}' if words else ''}") from None
    if credential.api_version != program.api_version:
        raise Refused(f"{name} printed {credential.api_version}, and the kubeconfig says {program.api_version}")
    status = credential.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise Refused(f"{name} printed neither a token nor a certificate with its key")
    return status
