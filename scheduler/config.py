"""The scheduler's configuration, besides the switches."""

from dataclasses import dataclass

from services.runtime.config import setting
from services.runtime.election import LeaderElectionConfig


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig(LeaderElectionConfig):
    """The configuration of a scheduler, which places pods that name it on nodes and takes unbound pods back."""

    config: str = setting("", "KubeSchedulerConfiguration file: profiles, plugins and their arguments, extenders")
    plugin: tuple[str, ...] = setting((), "plugin that --config may name, module:ATTRIBUTE; may be repeated")
    scheduler_name: str = setting("default-scheduler", "spec.schedulerName of the pods that this scheduler schedules")
    queue_moves: bool = setting(False, "write to the event log each pool of the queue that a pod enters")
    binds_in_flight_max: int = setting(512, "limit on binds in flight; further cycles wait")
