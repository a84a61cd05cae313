"""Configuration of the simulator API, besides the switches."""

from dataclasses import dataclass
from typing import Final

from services.runtime.config import CommonConfig, setting

PORT: Final = 1212
"""Default port of kube-scheduler-simulator."""


@dataclass(frozen=True, kw_only=True)
class SimulatorApiConfig(CommonConfig):
    """Serve kube-scheduler-simulator's HTTP API for a mesh."""

    host: str = setting("127.0.0.1", "address of the API")
    port: int = setting(PORT, "port of the API")
    allowed_hosts: tuple[str, ...] = setting(
        (), "host name by which callers may reach it, besides the loopback names; may be repeated"
    )
    cors_origin: tuple[str, ...] = setting((), "origin whose pages may call the API; may be repeated")
    is_open: bool = setting(False, "let callers come without a bearer token")
    mesh_dir: str = setting("", "data directory of the mesh, where its supervisor answers")
    scheduler_config: str = setting(
        "", "configuration file of the scheduler, which the API rewrites; empty: the API rewrites none"
    )
    import_kubeconfig: str = setting("", "kubeconfig of a cluster whose objects are imported once, at the start")
    import_selector: str = setting("", "label selector of the objects that are imported")
    sync_kubeconfig: str = setting("", "kubeconfig of a cluster whose changes are followed")
    replay: str = setting("", "record of kube-scheduler-simulator that is replayed at the start")
    scheduler: tuple[str, ...] = setting((), "process of the scheduler, restarted with a new configuration")
