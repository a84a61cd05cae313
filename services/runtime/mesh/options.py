"""What a mesh on one machine is to run: one record, from the command line to every process."""

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
"""Below the data directory: what the processes say of themselves."""


@dataclass(frozen=True, kw_only=True)
class MeshOptions:
    """What to run.

    `nodes`: number of equal nodes dealt out to `hosts` kubelet processes (0: at most three), or
    `definitions`: node definitions (JSON objects as `kubelet/config.py` reads them) by host name.
    `etcd_servers`: URLs of the etcd of engine `etcd`, with commas between; empty: one of `etcd_members` is started as
    well. `apiservers`: how many API servers share it.
    `switches`: NAME=VALUE for every process. `arguments`: further flags by process name, `kubelet` standing
    for every host and `scheduler` for every scheduler. `identities`: who else gets a token, beside the
    processes and the administrator. `roles`: files with the roles of controllers that are not part of keplab; their
    users get a token, too, and a file with it. `without`: processes not to start, so that they can be run by hand.
    `serves_clients`: clients from outside find what a cluster has: RBAC decides what they may do, and pods run as
    service accounts with tokens. `stages`: what the stages of the nodes change of metadata. `has_faults`: give every
    process a file that says what is wrong with its machine (`faults_file_of`). `telemetry`: how much of each process's
    events, spans and logs is kept, and `telemetry_mib_max`: of all of them together (0: all). `security`: `strict` for
    mutual TLS on every gRPC connection. `certificate_life`: how long certificates are good; they are renewed before.
    `simulator_api`: flags of the process that serves kube-scheduler-simulator's API, None for no such process.
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
