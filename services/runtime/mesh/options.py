"""Options of a mesh on one machine: one record, from the command line to every process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Literal

from services.api.identity import NO_STAGES, Identity, Stages
from services.runtime import certificates
from services.runtime.components import Schedulers
from services.telemetry.pieces import DEFAULT, DIRECTORY_MIB_MAX, Budget

TELEMETRY_FOLDERS = ("events", "spans", "logs")
"""Subdirectories of the data directory with the processes' telemetry."""


@dataclass(frozen=True, kw_only=True)
class MeshOptions:
    """Options of a mesh.

    `nodes`: number of equal nodes distributed over `hosts` kubelet processes (0: at most three), or `definitions`:
    node definitions (JSON objects as `kubelet/config.py` reads them) by host name. `etcd_servers`: comma-separated
    URLs of the etcd of engine `etcd`; empty: an etcd of `etcd_members` members is started as well. `apiservers`: number
    of API servers that share the etcd.

    `switches`: NAME=VALUE for every process. `arguments`: further flags by process name, `kubelet` standing for
    every host and `scheduler` for every scheduler. `identities`: further identities that get a token, besides the
    processes and the administrator. `roles`: files with the roles of controllers that are not part of keplab; their
    users get a token in a file, too. `without`: processes not to start, so that they can be run by hand.
    `serves_clients`: behave like a cluster for external clients: RBAC decides what they may do, and pods run as
    service accounts with tokens. `stages`: metadata that the nodes' stages change. `has_faults`: give every
    process a file with the faults of its machine (`faults_file_of`). `telemetry`: limits on each process's events,
    spans and logs, and `telemetry_mib_max`: a limit on all of them together (0: none). `security`: `strict` for
    mutual TLS on every gRPC connection. `certificate_life`: lifetime of certificates; they are renewed before its
    end. `simulator_api`: flags of the process that serves kube-scheduler-simulator's API, None for no such process.
    `resource`: OpenTelemetry's resource attributes of every process's spans, besides its own.
    """

    data_dir: Path
    nodes: int = 0
    hosts: int = 0
    definitions: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    engine: str = "sqlite"
    etcd_servers: str = ""
    etcd_members: int = 1
    apiservers: int = 1
    rest_port: int = 0
    grpc_port: int = 0
    switches: tuple[str, ...] = ()
    seed: int | None = None
    log_level: str = "info"
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    identities: tuple[Identity, ...] = ()
    roles: tuple[Path, ...] = ()
    without: frozenset[str] = frozenset()
    serves_clients: bool = False
    stages: Stages = NO_STAGES
    has_faults: bool = False
    telemetry: Budget = DEFAULT
    telemetry_mib_max: int = DIRECTORY_MIB_MAX
    security: Literal["tokens", "strict"] = "tokens"
    certificate_life: timedelta = certificates.LIFE
    schedulers: Schedulers = field(default_factory=Schedulers)
    resource: Mapping[str, str] = field(default_factory=dict)
    simulator_api: tuple[str, ...] | None = None
