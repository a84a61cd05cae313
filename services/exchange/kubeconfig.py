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
    found = _named(path, config, "contexts", wanted) if wanted else _first(config, "contexts")
    cluster = _named(path, config, "clusters", str(found.get("cluster"))) if found else _first(config, "clusters")
    user = _named(path, config, "users", str(found.get("user"))) if found.get("user") else _first(config, "users")
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise Refused(f"{path}: clusters: server {server!r}: want a URL")
    token = str(user.get("token") or "") or _file(path, user.get("tokenFile")).strip()
    command = user.get("exec") if isinstance(user.get("exec"), dict) else {}
    if user.get("auth-provider"):
        raise Refused(f"{path}: users: auth-provider is not read; use exec, a token or a certificate")
    if user.get("username"):
        raise Refused(f"{path}: users: username and password are not read; use a token or a certificate")
    environment = tuple((str(each["name"]), str(each["value"])) for each in (command or {}).get("env") or ())
    return Access(
        server=server.rstrip("/"),
        authority=_pem(path, cluster, "certificate-authority"),
        token=token,
        certificate=_pem(path, user, "client-certificate"),
        key=_pem(path, user, "client-key"),
        is_insecure=cluster.get("insecure-skip-tls-verify") is True,
        program=(str(command["command"]), *map(str, command.get("args") or ())) if command else (),
        environment=environment,
        name=wanted,
    )


def _first(config: dict[str, Any], member: str) -> dict[str, Any]:
    entries = config.get(member) or [{}]
    found = entries[0].get(member[:-1]) if isinstance(entries, list) and isinstance(entries[0], dict) else None
    return found if isinstance(found, dict) else {}


def _named(path: Path, config: dict[str, Any], member: str, name: str) -> dict[str, Any]:
    entries = [each for each in config.get(member) or () if isinstance(each, dict)]
    for each in entries:
        if each.get("name") == name and isinstance(each.get(member[:-1]), dict):
            return dict(each[member[:-1]])
    known = ", ".join(str(each.get("name")) for each in entries) or "none"
    raise Refused(f"{path}: {member}: no {name!r}; there are {known}")


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
