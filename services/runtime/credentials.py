"""Token files of a mesh on one machine: the tokens that the API server accepts, and the identities of each
process.

The server's file is JSON `{"tokens": [{"token", "user", "groups": []}], "node_key": hex}`. A kubelet host's
entry also has its own nodes, `nodes` or `node_prefix`, and the fields that `stages` change. A process's file is
JSON `{identity: token}`, its main identity first. Node tokens are not in it: a kubelet host exchanges its own
token for those of its nodes (X-ID5). A DRA driver's token is bound to its node. Files are readable only by
their owner; the texts appear in no log.

    python -m services.runtime.credentials --out DIR --host NAME --node-prefix PREFIX --rest-url URL

writes them where each process of a mesh in containers finds only its own (see `main`).
"""

import argparse
import base64
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import yaml

from services.api.documents import yaml_text
from services.api.errors import UNREADABLE
from services.api.identity import (
    ADMIN,
    CLAIM_MANAGER,
    CONTROLLER_MANAGER,
    MONITOR,
    PAGE,
    SCHEDULER,
    Hosting,
    Identity,
    Stages,
    driver_identity,
    host_identity,
)
from services.api.seams import Random
from services.api.tokens import driver_token
from services.runtime import certificates
from services.runtime.components import API_SERVER_AS_CLIENT, CLAIM_CONTROLLER
from services.runtime.real import seeded_random, write_atomically
from services.runtime.roles import claim_controller_identities, controller_identities

SERVER_FILE = "server.json"
KUBECONFIG_FILE = "kubeconfig"
CLIENTS_FOLDER = "kubeconfigs"
LAB = "lab"
"""Name of the kubelet host that a scenario brings to a running mesh, and of the folder with its files."""
UI = "ui"
"""Name of the live page's server in the files of this module."""
PAGE_TOKEN_FILE = "page.token"
"""File beside them, in a mesh in containers: the token that opens the page in a browser."""
FOLDER = "credentials"
"""Name of the credentials folder in a mesh's data directory."""
MONITOR_FILE = "monitor.token"
"""File with the bare token of `system:monitor`, as Prometheus reads it (`authorization.credentials_file`)."""


@dataclass(frozen=True)
class Credentials:
    """Token files of a mesh. `admin_token` is for the kubeconfig; `users`: the main identity of each process, which
    its client certificate names in the profile `strict`.
    """

    directory: Path
    admin_token: str
    users: Mapping[str, Identity]

    @property
    def server(self) -> Path:
        """Path of the list of all tokens, for the API server."""
        return self.directory / SERVER_FILE

    def of(self, process: str) -> Path:
        """Return the path of the file of one process, for example `kubelet/host-1`."""
        return self.directory / f"{process.replace('/', '_')}.json"


class _Token(msgspec.Struct, frozen=True):
    token: str
    user: str
    groups: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    node_prefix: str = ""
    stages: Stages = Stages()


class _ServerFile(msgspec.Struct):
    tokens: list[_Token]
    node_key: str


def make(
    directory: Path, *, hosts: Mapping[str, Hosting], random: Random, others: Iterable[Identity] = ()
) -> Credentials:
    """Write token files for a whole mesh and return their paths.

    `hosts`: kubelet host processes by name, `h0`, with the nodes that each may act for; `others`: users with a
    token but no file. Existing credentials in the directory are kept, so that existing kubeconfigs stay valid when
    a mesh comes back; new ones are added. Raises: OSError.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = _read(directory / SERVER_FILE)
    by_user = {t.user: t for t in known.tokens}
    tokens: dict[str, _Token] = {}

    def token(identity: Identity) -> str:
        old = by_user.get(identity.user)
        text = old.token if old else f"{random.getrandbits(192):048x}"
        own = identity.hosting
        nodes = tuple(sorted(own.nodes))
        tokens[identity.user] = _Token(text, identity.user, identity.groups, nodes, own.node_prefix, own.stages)
        return text

    admin = token(ADMIN)
    users = {
        "admin": ADMIN,
        UI: PAGE,
        "scheduler": SCHEDULER,
        "controllers": CONTROLLER_MANAGER,
        CLAIM_CONTROLLER: CLAIM_MANAGER,
    }
    files: dict[str, dict[str, str]] = {
        "admin": {ADMIN.user: admin},
        UI: {PAGE.user: token(PAGE)},
        "scheduler": {SCHEDULER.user: token(SCHEDULER)},
        "controllers": {identity.user: token(identity) for identity in (CONTROLLER_MANAGER, *controller_identities())},
        CLAIM_CONTROLLER: {
            identity.user: token(identity) for identity in (CLAIM_MANAGER, *claim_controller_identities())
        },
    }
    for host, hosting in hosts.items():
        identity = users[f"kubelet/{host}"] = host_identity(host, hosting)
        files[f"kubelet/{host}"] = {identity.user: token(identity)}
    monitor = token(MONITOR)
    for identity in others:
        token(identity)
    server = _ServerFile(
        # A host that is not started has no nodes: another one may have them by now.
        tokens=[*tokens.values(), *(_Token(t.token, t.user, t.groups) for t in known.tokens if t.user not in tokens)],
        node_key=known.node_key or f"{random.getrandbits(256):064x}",
    )
    credentials = Credentials(directory, admin, users)
    _put(credentials.server, msgspec.json.encode(server))
    _put(directory / MONITOR_FILE, monitor.encode())
    for process, content in files.items():
        _put(credentials.of(process), msgspec.json.encode(content))
    return credentials


def admin_headers(data: Path) -> dict[str, str]:
    """Return the headers of an administrator's request to the mesh on that data directory; empty if its credentials
    cannot be read.
    """
    try:
        return {"Authorization": f"Bearer {admin_tokens(data)[ADMIN.user]}"}
    except (OSError, *UNREADABLE, KeyError):
        return {}


def page_tokens(data: Path) -> dict[str, str]:
    """Return the live page's token by user, of the mesh on that data directory. Raises: OSError, UNREADABLE."""
    return tokens_of(data, UI)


def admin_tokens(data: Path) -> dict[str, str]:
    """Return the administrator's token by user, of the mesh on that data directory. Raises: OSError, UNREADABLE."""
    return tokens_of(data, "admin")


def tokens_of(data: Path, process: str) -> dict[str, str]:
    """Return the tokens of a process by user, of the mesh on that data directory. Raises: OSError, UNREADABLE."""
    return msgspec.json.decode((data / FOLDER / f"{process}.json").read_bytes(), type=dict[str, str])


def put(made: Credentials, process: str, user: str) -> Path:
    """Write the token file of one more process, which acts as one user, and return its path. Raises: OSError;
    KeyError that names a user without a token.
    """
    _put(made.of(process), msgspec.json.encode({user: token_of(made, user)}))
    return made.of(process)


def token_of(made: Credentials, user: str) -> str:
    """Return the token of one user. Raises: KeyError that names the user."""
    for token in _read(made.server).tokens:
        if token.user == user:
            return token.token
    raise KeyError(f"this mesh has no token for {user}")


def driver_host(process: str) -> Identity:
    """Return the identity in the certificate of a DRA driver's process: it has no rights; the token identifies the
    caller.
    """
    return Identity(f"system:{process.replace('/', ':')}")


def client_pair(signer: certificates.Authority, process: str, identity: Identity) -> certificates.Pair:
    """Return the client certificate of a process, beside the authority; it is made unless a valid one exists.
    Raises: OSError.
    """
    return signer.client(f"{process.replace('/', '_')}-client", identity.user, identity.groups)


def put_driver(credentials: Credentials, process: str, driver: str, node: str) -> Path:
    """Write the token file of a DRA driver's process and return its path. Raises: OSError; ValueError without the
    list of this mesh's tokens.
    """
    key = _read(credentials.server).node_key
    if not key:
        raise ValueError(f"{credentials.server} has no key for the tokens of drivers")
    identity = driver_identity(driver, node)
    _put(credentials.of(process), msgspec.json.encode({identity.user: driver_token(bytes.fromhex(key), driver, node)}))
    return credentials.of(process)


def kubeconfig(rest_urls: Sequence[str], token: str, authority: Path) -> bytes:
    """Return the administrator's kubeconfig for the REST servers at these URLs, https://HOST:PORT: the context
    `keplab` is the first, `keplab-2` the second and so on.

    `authority`: the certificate of the authority that signed the servers'. Raises: OSError.
    """
    trusted = base64.b64encode(authority.read_bytes()).decode()
    names = ["keplab", *(f"keplab-{number}" for number in range(2, len(rest_urls) + 1))]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": url, "certificate-authority-data": trusted}}
            for name, url in zip(names, rest_urls, strict=True)
        ],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}} for name in names],
        "current-context": "keplab",
    }
    return yaml.safe_dump(document, sort_keys=False).encode()


UPSTREAM_CLIENTS = ("kube-scheduler", "kube-controller-manager")
"""Kubernetes' own components that may run beside or instead of the mesh's; each is the user `system:NAME`."""


def client_kubeconfig(rest_url: str, signer: certificates.Authority, user: str) -> bytes:
    """Return the kubeconfig of a client with a certificate for this user. Raises: OSError."""
    name = user.removeprefix("system:")
    pair = signer.client(f"client-{name}", user)
    trusted, certificate, key = (
        base64.b64encode(path.read_bytes()).decode() for path in (signer.path, pair.certificate, pair.key)
    )
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "keplab", "cluster": {"server": rest_url, "certificate-authority-data": trusted}}],
        "users": [{"name": name, "user": {"client-certificate-data": certificate, "client-key-data": key}}],
        "contexts": [{"name": name, "context": {"cluster": "keplab", "user": name}}],
        "current-context": name,
    }
    return yaml.safe_dump(document, sort_keys=False).encode()


def put_client_kubeconfigs(directory: Path, rest_url: str, signer: certificates.Authority) -> None:
    """Write the kubeconfigs of Kubernetes' own components below that directory, by their names. Raises: OSError."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in UPSTREAM_CLIENTS:
        write_atomically(directory / name, client_kubeconfig(rest_url, signer, f"system:{name}"), mode=0o400)


def refresh_kubeconfig(path: Path, signer: certificates.Authority) -> None:
    """Update the authorities, and the client certificate if there is one, in a kubeconfig of this mesh. Raises:
    OSError, ValueError.
    """
    document = yaml_text.load(path.read_bytes())
    for cluster in document["clusters"]:
        cluster["cluster"]["certificate-authority-data"] = _encode_file(signer.path)
    user = document["users"][0]
    if "client-certificate-data" in user["user"]:
        pair = signer.path.parent / f"client-{user['name']}"
        user["user"]["client-certificate-data"] = _encode_file(pair.with_suffix(".crt"))
        user["user"]["client-key-data"] = _encode_file(pair.with_suffix(".key"))
    mode = stat.S_IMODE(path.stat().st_mode)
    write_atomically(path, yaml.safe_dump(document, sort_keys=False).encode(), mode=mode)


def _encode_file(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.runtime.credentials", description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--host", required=True, help="name that all kubelet hosts share as their credential")
    parser.add_argument(
        "--node-prefix", required=True, help="prefix of the names of their nodes, and of no other nodes"
    )
    parser.add_argument(
        "--rest-url",
        action="append",
        required=True,
        help="URL of the API server for people, https://HOST:PORT; repeated for each server; without a port: no URL",
    )
    parser.add_argument(
        "--server-name", action="append", default=[], help="further host name of the API servers; may be repeated"
    )
    parser.add_argument(
        "--etcd-member", action="append", default=[], help="host name of a member of their etcd; may be repeated"
    )
    parser.add_argument(
        "--lab-node-prefix",
        default="",
        help="make a folder `lab` for scenarios against this mesh, with the administrator's token and the credential "
        "of a kubelet host whose nodes' names, and no others, begin with this prefix; empty: no folder",
    )
    parser.add_argument(
        "--switches",
        type=Path,
        help="folder of files of switches, which are emptied, so that a mesh that is started has its own switches",
    )
    parser.add_argument("--renew", action="store_true", help="renew all certificates [KEPLAB_RENEW=1]")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Write a folder for every component below `--out`, each with only its own credentials, and `admin/kubeconfig`.

    The API server's folder has every token, because it must check them. The authority's key is in a folder of its
    own, which no component gets. A second run renews certificates that expire within a month, and with `--renew`
    all. Raises: OSError; SystemExit for wrong usage.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    out: Path = arguments.out
    for path in sorted(arguments.switches.iterdir()) if arguments.switches is not None else ():
        if path.stat().st_size:
            write_atomically(path, b"")
    hosts = {arguments.host: Hosting(node_prefix=arguments.node_prefix)}
    if arguments.lab_node_prefix:
        hosts[LAB] = Hosting(node_prefix=arguments.lab_node_prefix)
    credentials = make(out / "apiserver", hosts=hosts, random=seeded_random(None))
    is_renewed = arguments.renew or os.environ.get("KEPLAB_RENEW") == "1"
    signer = certificates.authority(out / "authority")
    if is_renewed:
        _renew_all(signer)
    certificates.signing_key(out / "apiserver")
    # A compose file cannot leave a word out, only empty a variable in it.
    urls = [url for url in arguments.rest_url if not url.endswith(":")]
    if not urls:
        parser.error(f"--rest-url {arguments.rest_url[0]}: want https://HOST:PORT")
    hosts_named = [host for url in urls if (host := urlsplit(url).hostname)]
    serving = signer.server("apiserver", [*hosts_named, *arguments.server_name])
    calling = signer.client("apiserver-kubelet-client", API_SERVER_AS_CLIENT)
    _hand_out(out / "apiserver", signer, {"apiserver": serving, "apiserver-kubelet-client": calling})
    alike = ("scheduler", "controllers", CLAIM_CONTROLLER, UI)
    processes = {**{name: name for name in alike}, "kubelet": f"kubelet/{arguments.host}"}
    for component, process in processes.items():
        pairs = {"client": client_pair(signer, component, credentials.users[process])}
        if component == "kubelet":
            pairs["serving"] = signer.server("kubelet")
        _hand_out(out / component, signer, pairs)
        _put(out / component / "token.json", credentials.of(process).read_bytes())
    if not (out / UI / PAGE_TOKEN_FILE).exists():
        _put(out / UI / PAGE_TOKEN_FILE, f"{seeded_random(None).getrandbits(256):064x}".encode())
    if arguments.lab_node_prefix:
        client, host = (client_pair(signer, name, credentials.users[name]) for name in ("admin", f"kubelet/{LAB}"))
        _hand_out(out / LAB, signer, {"client": client, "host": host})
        _put(out / LAB / "token.json", credentials.of("admin").read_bytes())
        _put(out / LAB / "host.json", credentials.of(f"kubelet/{LAB}").read_bytes())
    if arguments.etcd_member:
        _make_etcd(out, arguments.etcd_member, is_renewed=is_renewed)
    (out / "admin").mkdir(exist_ok=True, mode=0o700)
    (out / "monitor").mkdir(exist_ok=True, mode=0o700)
    _put(out / "monitor" / MONITOR_FILE, (out / "apiserver" / MONITOR_FILE).read_bytes())
    _put(out / "admin" / MONITOR_FILE, (out / "apiserver" / MONITOR_FILE).read_bytes())
    _put(out / "admin" / KUBECONFIG_FILE, kubeconfig(urls, credentials.admin_token, signer.path))
    put_client_kubeconfigs(out / "admin" / CLIENTS_FOLDER, urls[0], signer)


def _make_etcd(out: Path, members: Sequence[str], *, is_renewed: bool) -> None:
    """Hand out what members of etcd know each other by and the API servers' certificate for them, all of an authority
    that signs for no one else, as kubeadm's `etcd-ca`: whom etcd's authority vouches for may read everything.
    Source: upstream `cmd/kubeadm/app/phases/certs/certlist.go`."""
    # As long as the authority: API servers do not read theirs again.
    signer = certificates.authority(out / "authority" / "etcd", life=certificates.AUTHORITY_LIFE)
    if is_renewed:
        _renew_all(signer)
    for name in members:
        _hand_out(out / name, signer, {"member": signer.peer(name, [name])})
    calling = signer.client("apiserver-etcd-client", "keplab-apiserver")
    _put(out / "apiserver" / "etcd-ca.crt", signer.path.read_bytes())
    _put(out / "apiserver" / "apiserver-etcd-client.crt", calling.certificate.read_bytes())
    _put(out / "apiserver" / "apiserver-etcd-client.key", calling.key.read_bytes())


def _renew_all(signer: certificates.Authority) -> None:
    for pair in certificates.pairs(signer.path.parent):
        signer.renew(pair)


def _hand_out(folder: Path, signer: certificates.Authority, pairs: Mapping[str, certificates.Pair]) -> None:
    """Write copies of certificates and keys, and the authority's certificate, to a component's folder."""
    folder.mkdir(exist_ok=True, mode=0o700)
    for name, pair in pairs.items():
        _put(folder / f"{name}.key", pair.key.read_bytes())
        _put(folder / f"{name}.crt", pair.certificate.read_bytes())
    _put(folder / "ca.crt", signer.path.read_bytes())


def _read(path: Path) -> _ServerFile:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_ServerFile)
    except (FileNotFoundError, *UNREADABLE):
        return _ServerFile([], "")


def _put(path: Path, data: bytes) -> None:
    write_atomically(path, data, mode=0o400)


if __name__ == "__main__":
    main()
