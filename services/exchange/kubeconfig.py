"""A kubeconfig: where a cluster is and who one is there, as kubectl reads it. Pure but for reading files.

Source: upstream `staging/src/k8s.io/client-go/tools/clientcmd/api/v1/types.go`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from services.exchange.stream import Refused


@dataclass(frozen=True)
class Access:
    """How a cluster is reached. PEM texts are "" where there are none. `program`: what prints a token, for `exec`."""

    server: str
    authority: str = ""
    token: str = ""
    certificate: str = ""
    key: str = ""
    is_insecure: bool = False
    program: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    name: str = ""


def read_access(path: Path, context: str = "") -> Access:
    """Return the cluster and user of a context, the current one if none is said. Raises: Refused naming the fault."""
    try:
        config = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise Refused(f"{path}: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise Refused(f"{path}: no kubeconfig: {str(error).splitlines()[0]}") from None
    if not isinstance(config, dict):
        raise Refused(f"{path}: no kubeconfig: want an object")
    wanted = context or str(config.get("current-context") or "")
    found = _named(path, config, "contexts", wanted) if wanted else _first(path, config, "contexts")
    cluster = _named(path, config, "clusters", str(found.get("cluster"))) if found else _first(path, config, "clusters")
    user = _named(path, config, "users", str(found.get("user"))) if found.get("user") else _first(path, config, "users")
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise Refused(f"{path}: clusters: server {server!r}: want a URL")
    token = str(user.get("token") or "") or _file(path, user.get("tokenFile")).strip()
    if user.get("auth-provider"):
        raise Refused(f"{path}: users: auth-provider is not read; use exec, a token or a certificate")
    if user.get("username"):
        raise Refused(f"{path}: users: username and password are not read; use a token or a certificate")
    program, environment = _program(path, user.get("exec"))
    return Access(
        server=server.rstrip("/"),
        authority=_pem(path, cluster, "certificate-authority"),
        token=token,
        certificate=_pem(path, user, "client-certificate"),
        key=_pem(path, user, "client-key"),
        is_insecure=cluster.get("insecure-skip-tls-verify") is True,
        program=program,
        environment=environment,
        name=wanted,
    )


def _program(path: Path, given: Any) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return what prints a token, and its environment; nothing where there is no `exec`. Raises: Refused."""
    if given is None:
        return (), ()
    found = given if isinstance(given, dict) else {}
    command, arguments, environment = found.get("command"), found.get("args") or [], found.get("env") or []
    if not isinstance(command, str) or not command:
        raise Refused(f"{path}: users: exec.command {command!r}: want a program")
    if not isinstance(arguments, list):
        raise Refused(f"{path}: users: exec.args {arguments!r}: want a list")
    if not isinstance(environment, list) or not all(
        isinstance(each, dict) and {"name", "value"} <= each.keys() for each in environment
    ):
        raise Refused(f"{path}: users: exec.env {environment!r}: want a list of name and value")
    return (command, *map(str, arguments)), tuple((str(each["name"]), str(each["value"])) for each in environment)


def _entries(path: Path, config: dict[str, Any], member: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a member by name; one that is null says nothing. Raises: Refused."""
    entries, what = config.get(member) or [], member[:-1]
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise Refused(f"{path}: {member}: want a list of objects with name and {what}")
    found = {str(each.get("name")): each.get(what) or {} for each in entries}
    if wrong := next((name for name, each in found.items() if not isinstance(each, dict)), None):
        raise Refused(f"{path}: {member}: {what} of {wrong!r}: want an object")
    return found


def _first(path: Path, config: dict[str, Any], member: str) -> dict[str, Any]:
    return next(iter(_entries(path, config, member).values()), {})


def _named(path: Path, config: dict[str, Any], member: str, name: str) -> dict[str, Any]:
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
