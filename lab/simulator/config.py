"""What is configured, besides the switches."""

from dataclasses import dataclass
from typing import Final

from services.runtime.config import CommonConfig, setting

PORT: Final = 1212
"""kube-scheduler-simulator's own."""


@dataclass(frozen=True, kw_only=True)
class SimulatorApiConfig(CommonConfig):
    """Serves kube-scheduler-simulator's HTTP API of a mesh."""

    host: str = setting("127.0.0.1", "address of the API")
    port: int = setting(PORT, "port of the API")
    allowed_hosts: tuple[str, ...] = setting((), "host name besides the loopback ones it may be called by")
    cors_origin: tuple[str, ...] = setting((), "origin whose pages may call; may be repeated")
    is_open: bool = setting(False, "calls need no bearer token")
    mesh_dir: str = setting("", "the mesh's data directory, where its supervisor answers")
    scheduler_config: str = setting("", "the scheduler's configuration file, which is written; empty: none is ours")
    import_kubeconfig: str = setting("", "cluster whose objects are imported once, at the start")
    import_selector: str = setting("", "labels of what is imported")
    sync_kubeconfig: str = setting("", "cluster whose changes are followed")
    replay: str = setting("", "record of kube-scheduler-simulator that is replayed at the start")
    scheduler: tuple[str, ...] = setting((), "process of the scheduler, restarted with a new configuration")
