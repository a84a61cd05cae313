"""A kubeconfig: address of a cluster and credentials for it, as kubectl reads it. Pure but for reading files.

Source: upstream `staging/src/k8s.io/client-go/tools/clientcmd/api/v1/types.go`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.exchange.stream import Refused
from services.api.documents import yaml_text
from services.api.meta import Document

CREDENTIALS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
"""API versions of the credentials that a program may print."""
_CLUSTER_CONFIG: Final = "client.authentication.k8s.io/exec"


@dataclass(frozen=True)
class Program:
    """A program that prints credentials, for `exec`. `cluster`: cluster information passed to it, if it wants that;
    `hint`: how to install it.
    """

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    api_version: str = CREDENTIALS[0]
    cluster: Document | None = None
    hint: str = ""


@dataclass(frozen=True)
class Access:
    """Address and credentials of a cluster. A PEM text that is "" is absent. `token_file`: file from which the token
    is read again. `server_name`: host name in the server's certificate, if it is not that of the address.
    """

    server: str
    authority: str = ""
    token: str = ""
    token_file: Path | None = None
    certificate: str = ""
    key: str = ""
    is_insecure: bool = False
    server_name: str = ""
    proxy: str = ""
    program: Program | None = None
    name: str = ""

    @property
    def has_lasting_token(self) -> bool:
        """Whether the token, if there is one, never changes."""
        return self.token_file is None and (self.program is None or bool(self.token))


def read_access(path: Path, context: str = "") -> Access:
    """Return the cluster and user of a context, by default the current one. Raises: Refused naming the fault."""
    try:
        config = yaml_text.load(path.read_bytes())
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path}: no kubeconfig: {str(error).splitlines()[0]}") from None
    if not isinstance(config, dict):
        raise Refused(f"{path}: no kubeconfig: want an object")
    wanted = context or str(config.get("current-context") or "")
    context_entry = _find_by_name(path, config, "contexts", wanted) if wanted else _first(path, config, "contexts")
    cluster = (
        _find_by_name(path, config, "clusters", str(context_entry.get("cluster")))
        if context_entry
        else _first(path, config, "clusters")
    )
    user = (
        _find_by_name(path, config, "users", str(context_entry.get("user")))
        if context_entry.get("user")
        else _first(path, config, "users")
    )
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise Refused(f"{path}: clusters: server {server!r}: want a URL")
    token_file = user.get("tokenFile")
    token = _file(path, token_file).strip() or str(user.get("token") or "")
    if user.get("auth-provider"):
        raise Refused(f"{path}: users: auth-provider is not read; use exec, a token or a certificate")
    if user.get("username"):
        raise Refused(f"{path}: users: username and password are not read; use a token or a certificate")
    authority = _pem(path, cluster, "certificate-authority")
    return Access(
        server=server.rstrip("/"),
        authority=authority,
        token=token,
        token_file=path.parent / token_file if token_file else None,
        certificate=_pem(path, user, "client-certificate"),
        key=_pem(path, user, "client-key"),
        is_insecure=cluster.get("insecure-skip-tls-verify") is True,
        server_name=str(cluster.get("tls-server-name") or ""),
        proxy=_proxy(path, cluster.get("proxy-url")),
        program=_program(path, user.get("exec"), cluster, authority),
        name=wanted,
    )


def _proxy(path: Path, given: Any) -> str:
    if given and not str(given).startswith(("http://", "https://")):
        raise Refused(f"{path}: clusters: proxy-url {given!r}: want a URL of http or https")
    return str(given or "")


def _program(path: Path, given: Any, cluster: Document, authority: str) -> Program | None:
    """Return what prints credentials, None where there is no `exec`. Raises: Refused."""
    if given is None:
        return None
    exec_config = given if isinstance(given, dict) else {}
    command, arguments, environment = (
        exec_config.get("command"),
        exec_config.get("args") or [],
        exec_config.get("env") or [],
    )
    if not isinstance(command, str) or not command:
        raise Refused(f"{path}: users: exec.command {command!r}: want a program")
    if not isinstance(arguments, list):
        raise Refused(f"{path}: users: exec.args {arguments!r}: want a list")
    if not isinstance(environment, list) or not all(
        isinstance(each, dict) and {"name", "value"} <= each.keys() for each in environment
    ):
        raise Refused(f"{path}: users: exec.env {environment!r}: want a list of name and value")
    api_version = exec_config.get("apiVersion") or CREDENTIALS[0]
    if api_version not in CREDENTIALS:
        raise Refused(f"{path}: users: exec.apiVersion {api_version!r}: want one of {', '.join(CREDENTIALS)}")
    if exec_config.get("interactiveMode") == "Always":
        raise Refused(f"{path}: users: exec.interactiveMode 'Always': {command} would be given no terminal")
    # A name alone is looked for as a shell does; a relative path begins where the kubeconfig is.
    place = str(path.parent / command) if "/" in command else command
    return Program(
        (place, *map(str, arguments)),
        tuple((str(each["name"]), str(each["value"])) for each in environment),
        api_version,
        _cluster_info(cluster, authority) if exec_config.get("provideClusterInfo") is True else None,
        str(exec_config.get("installHint") or ""),
    )


def _cluster_info(cluster: Document, authority: str) -> Document:
    """Return what programs are given about a cluster."""
    info: Document = {"server": cluster["server"]}
    if authority:
        info["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
    for field in ("tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression"):
        if cluster.get(field):
            info[field] = cluster[field]
    for extension in cluster.get("extensions") or ():
        if isinstance(extension, dict) and extension.get("name") == _CLUSTER_CONFIG:
            info["config"] = extension.get("extension")
    return info


def _entries(path: Path, config: dict[str, Any], member: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a member by name; one that is null says nothing. Raises: Refused."""
    entries, what = config.get(member) or [], member[:-1]
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise Refused(f"{path}: {member}: want a list of objects with name and {what}")
    by_name = {str(each.get("name")): each.get(what) or {} for each in entries}
    if wrong := next((name for name, each in by_name.items() if not isinstance(each, dict)), None):
        raise Refused(f"{path}: {member}: {what} of {wrong!r}: want an object")
    return by_name


def _first(path: Path, config: dict[str, Any], member: str) -> dict[str, Any]:
    return next(iter(_entries(path, config, member).values()), {})


def _find_by_name(path: Path, config: dict[str, Any], member: str, name: str) -> dict[str, Any]:
    entries = _entries(path, config, member)
    if name not in entries:
        raise Refused(f"{path}: {member}: no {name!r}; there are {', '.join(entries) or 'none'}")
    return entries[name]


def _file(path: Path, name: Any) -> str:
    if not isinstance(name, str) or not name:
        return ""
    place = path.parent / name
    try:
        return place.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise Refused(f"{place}: {getattr(error, 'strerror', None) or error}") from None


def _pem(path: Path, entry: dict[str, Any], name: str) -> str:
    data = entry.get(f"{name}-data")
    if not data:
        return _file(path, entry.get(name))
    try:
        return base64.b64decode(str(data), validate=True).decode()
    except ValueError:
        raise Refused(f"{path}: {name}-data: want base64 of PEM") from None
