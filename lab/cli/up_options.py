"""The options of `keplab up` as a record. Nothing is imported here: the command locks the directory first."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

DEFAULT_AUDIT: Final = "default"
"""Value of `--audit` when no policy is given."""


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """Options of the mesh, one field an option, as click parses it.

    `hosts`: kubelet processes, 0 for at most three; `schedulers`, `etcd_members`, `apiservers`: how many replicas.
    `simulator_api`, `rest_port`, `grpc_port`: TCP ports, 0 for any free one; `simulator_api` None for no such API.
    `assignments`: NAME=VALUE of switches; `latency`: STAGE=DISTRIBUTION of seconds; `enable_crds`: kinds with
    commas between. `certificate_life`: a duration with its unit, `24h`. `audit`: the path of a policy,
    `DEFAULT_AUDIT` for keplab's own, "" for no audit log. `telemetry_maxsize` and `telemetry_total`: MiB, 0 for no
    limit; `telemetry_maxbackup`: closed files, 0 for all. `lock_fd`: the descriptor that already locks the
    directory, -1 if there is none. A path or text that is None or "" was not given.
    """

    nodes: int
    nodes_file: Path | None
    scheduler_config: Path | None
    hosts: int
    schedulers: int
    extra_schedulers: tuple[str, ...]
    engine: Literal["memory", "sqlite", "etcd"]
    etcd_servers: str
    etcd_prefix: str
    etcd_cafile: str
    etcd_certfile: str
    etcd_keyfile: str
    etcd_user: str
    etcd_password_file: str
    etcd_members: int
    apiservers: int
    simulator_api: int | None
    simulator_open: bool
    simulator_config: Path | None
    data: Path
    rest_port: int
    grpc_port: int
    assignments: tuple[str, ...]
    latency: tuple[str, ...]
    stages: tuple[Path, ...]
    enable_crds: tuple[str, ...]
    host_commands: bool
    static_pods: Path | None
    device_sockets: bool
    security: Literal["tokens", "strict"]
    certificate_life: str
    audit: str
    roles: tuple[Path, ...]
    log_level: str
    telemetry_maxsize: int
    telemetry_maxbackup: int
    telemetry_total: int
    faults: bool
    ui: bool
    lock_fd: int
    detach: bool
    output: Literal["text", "json"]

    @property
    def etcd_files(self) -> dict[str, str]:
        """TLS files with which the API servers authenticate to a running etcd, by the flag that names each."""
        return {
            "--etcd-cafile": self.etcd_cafile,
            "--etcd-certfile": self.etcd_certfile,
            "--etcd-keyfile": self.etcd_keyfile,
            "--etcd-password-file": self.etcd_password_file,
        }
