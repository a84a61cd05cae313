"""Rotation of a mesh's certificates: leaf certificates before they expire, and the authority in three steps.

Files are replaced; the processes notice and use the new ones for new connections (`services/client/tls.py`,
`serving_tls.py`). An authority is changed as upstream describes it by hand: a bundle with both, certificates
that the new one signs, removal of the old one. Every process has taken a step before the next begins; the next
rotation continues an interrupted one.
Source: kubernetes/website content/en/docs/tasks/tls/manual-rotation-of-ca-certificates.md; guarantees 8.1
(X-TLS4).
"""

import contextlib
import fcntl
import hashlib
import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509

from services.api.errors import UNREADABLE
from services.client.tls import common_name
from services.runtime import certificates, credentials
from services.runtime.config import MeshError
from services.runtime.mesh_directory import read_state

FOLDER = "credentials"
LOCK = "rotation.lock"
IN_USE_MAX_S = 60.0
POLL_S = 0.2
ASK_MAX_S = 2.0


@dataclass(frozen=True)
class MeshCertificate:
    """A certificate of the mesh: the file's name, its subject, and its expiry."""

    name: str
    subject: str
    not_after: datetime


def mesh_certificates(data: Path) -> list[MeshCertificate]:
    """Return the certificates of the mesh on that directory, the authorities' first. Raises: OSError, ValueError."""
    folder = data / FOLDER
    if not (folder / "ca.crt").exists():
        return []
    authorities = x509.load_pem_x509_certificates((folder / "ca.crt").read_bytes())
    entries = [MeshCertificate("ca", common_name(each), each.not_valid_after_utc) for each in authorities]
    for pair in certificates.pairs(folder):
        leaf = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        entries.append(MeshCertificate(pair.certificate.stem, common_name(leaf), leaf.not_valid_after_utc))
    return entries


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep two rotations apart."""
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def renew(data: Path, *, life: timedelta | None = None, all_of_them: bool = False) -> list[str]:
    """Renew the certificates that are due, or all, and return their names. `life`: None for the earlier lifetime.

    Raises: OSError; ValueError for files that are no certificates.
    """
    folder = data / FOLDER
    with _alone(folder):
        signer = certificates.authority(folder)
        wanted = [pair for pair in certificates.pairs(folder) if all_of_them or signer.is_due(pair)]
        for pair in wanted:
            signer.renew(pair, life=life)
        if wanted:
            _refresh(data, signer)
    return [pair.certificate.stem for pair in wanted]


def _refresh(data: Path, signer: certificates.Authority) -> None:
    for path in (data / credentials.KUBECONFIG_FILE, *sorted((data / credentials.CLIENTS_FOLDER).glob("*"))):
        if path.exists():
            credentials.refresh_kubeconfig(path, signer)


def change_authority(data: Path, report: Callable[[str], None]) -> None:
    """Change the authority of a mesh, which may be running; `report` is called with each step that was done.

    Raises: MeshError naming a process that does not use the new files; OSError, ValueError.
    """
    folder = data / FOLDER
    with _alone(folder):
        certificates.add_authority(folder)
        _refresh(data, certificates.authority(folder))
    wait_until_used(data)
    report("both authorities are trusted")
    with _alone(folder):
        certificates.switch_authority(folder)
    renewed = renew(data)
    wait_until_used(data)
    report(f"{len(renewed)} certificates are signed by the new one")
    with _alone(folder):
        certificates.drop_authorities(folder)
        _refresh(data, certificates.authority(folder))
    wait_until_used(data)
    report("the old authority is trusted no more")


def wait_until_used(data: Path, within_s: float = IN_USE_MAX_S) -> int:
    """Wait until all processes of the mesh use the certificates in the files, and return their number; 0 if none
    runs. Raises: MeshError naming the first process that does not.
    """
    deadline = time.monotonic() + within_s
    while True:
        state = read_state(data)
        if state is None:
            return 0
        headers = credentials.admin_headers(data)
        stale = [(process["name"], path) for process in state["processes"] for path in _stale(process, headers)]
        if not stale:
            return sum(bool(process["pid"]) for process in state["processes"])
        if time.monotonic() > deadline:
            name, path = stale[0]
            raise MeshError(f"{name} does not use {path} after {within_s:g} s; nothing is lost: rotate again")
        time.sleep(POLL_S)


def _stale(process: dict[str, Any], headers: dict[str, str]) -> list[str]:
    """Return the files of which a process uses other contents than they have; one that does not answer is starting,
    and will read them."""
    port = (process.get("ports") or {}).get("health")
    if not port or not process["pid"]:
        return []
    try:
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/configz", headers=headers)
        with urllib.request.urlopen(asked, timeout=ASK_MAX_S) as reply:
            used = msgspec.json.decode(reply.read(), type=dict[str, Any]).get("certificates", [])
    except (OSError, *UNREADABLE):
        return [f"(no answer at port {port})"]
    paths: list[str] = []
    for record in used:
        for path, digest in (("certificate", "sha256"), ("authorities", "authorities_sha256")):
            if path in record and hashlib.sha256(Path(record[path]).read_bytes()).hexdigest() != record[digest]:
                paths.append(str(record[path]))
    return paths
