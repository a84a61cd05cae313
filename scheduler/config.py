"""What is configured, besides the switches."""

from dataclasses import dataclass

from services.runtime.config import setting
from services.runtime.election import LeaderElectionConfig


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig(LeaderElectionConfig):
    """Places pods that name this scheduler on nodes, and takes unbound pods back."""

    config: str = setting("", "KubeSchedulerConfiguration file: profiles, plugins and their arguments, extenders")
    plugin: tuple[str, ...] = setting((), "a plugin that --config may name, module:ATTRIBUTE; may be repeated")
    scheduler_name: str = setting("default-scheduler", "pods with this spec.schedulerName are ours")
    queue_moves: bool = setting(False, "write to the event log each pool of the queue that a pod enters")
    binds_in_flight_max: int = setting(512, "binds on their way at once; further cycles wait")
