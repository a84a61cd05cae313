"""Token files of a mesh on one machine: what the API server accepts, and what each process may say it is.

The server's file is JSON `{"tokens": [{"token", "user", "groups": []}], "node_key": hex}`; a process's
file is JSON `{identity: token}`, its main identity first. Node tokens are not in it: a kubelet host
exchanges its own token for those of its nodes (X-ID5). Files are readable by their owner alone; the
texts appear in no log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from services.api.identity import ADMIN, NODE_HOSTS_GROUP, SCHEDULER, Identity
from services.api.seams import Random
from services.runtime.real import write_atomically

SERVER_FILE = "server.json"
CONTROLLER_MANAGER = Identity("system:kube-controller-manager")


@dataclass(frozen=True)
class Credentials:
    """Where a mesh's token files lie. `admin_token` is for the kubeconfig."""

    directory: Path
    admin_token: str

    @property
    def server(self) -> Path:
        """The list of all tokens, for the API server."""
        return self.directory / SERVER_FILE

    def of(self, process: str) -> Path:
        """The file of one process, for example `kubelet/host-1`."""
        return self.directory / f"{process.replace('/', '_')}.json"


class _Token(msgspec.Struct, frozen=True):
    token: str
    user: str
    groups: tuple[str, ...] = ()


class _ServerFile(msgspec.Struct):
    tokens: list[_Token]
    node_key: str


def host_identity(host: str) -> Identity:
    """Return the bootstrap identity of one kubelet host."""
    return Identity(f"system:node-host:{host}", (NODE_HOSTS_GROUP,))


def make(
    directory: Path,
    *,
    hosts: Sequence[str],
    controllers: Iterable[Identity],
    random: Random,
    others: Iterable[Identity] = (),
) -> Credentials:
    """Write token files for a whole mesh and return where they are.

    `hosts`: names of kubelet host processes, `h0`; `controllers`: whom the controller manager speaks
    as; `others`: users who get a token and no file. A directory that has
    credentials keeps them, so that a mesh which comes back is still known to those who hold its
    kubeconfig; what is new is added. Raises: OSError.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = _read(directory / SERVER_FILE)
    by_user = {t.user: t for t in known.tokens}
    tokens: dict[str, _Token] = {}

    def token(identity: Identity) -> str:
        old = by_user.get(identity.user)
        text = old.token if old else f"{random.getrandbits(192):048x}"
        tokens[identity.user] = _Token(text, identity.user, identity.groups)
        return text

    admin = token(ADMIN)
    files: dict[str, dict[str, str]] = {
        "admin": {ADMIN.user: admin},
        "scheduler": {SCHEDULER.user: token(SCHEDULER)},
        "controllers": {identity.user: token(identity) for identity in (CONTROLLER_MANAGER, *controllers)},
    }
    for host in hosts:
        identity = host_identity(host)
        files[f"kubelet/{host}"] = {identity.user: token(identity)}
    for identity in others:
        token(identity)
    server = _ServerFile(
        tokens=[*tokens.values(), *(t for t in known.tokens if t.user not in tokens)],
        node_key=known.node_key or f"{random.getrandbits(256):064x}",
    )
    made = Credentials(directory, admin)
    _put(made.server, msgspec.json.encode(server))
    for process, content in files.items():
        _put(made.of(process), msgspec.json.encode(content))
    return made


def token_of(made: Credentials, user: str) -> str:
    """Return the token of one user. Raises: KeyError that names the user."""
    for token in _read(made.server).tokens:
        if token.user == user:
            return token.token
    raise KeyError(f"this mesh has no token for {user}")


def _read(path: Path) -> _ServerFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_ServerFile)
    except (FileNotFoundError, msgspec.MsgspecError):
        return _ServerFile([], "")


def _put(path: Path, data: bytes) -> None:
    write_atomically(path, data, mode=0o400)
