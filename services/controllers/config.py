"""Flags of the controller manager."""

from dataclasses import dataclass

from services.runtime.config import setting
from services.runtime.election import LeaderElectionConfig


@dataclass(frozen=True, kw_only=True)
class ControllersConfig(LeaderElectionConfig):
    """Run the workload and infrastructure controllers."""

    controllers: tuple[str, ...] = setting(
        ("*",),
        "a controller to run; * is all but those that only clients from outside need, -NAME leaves one out; repeatable",
    )
    custom_resources: bool = setting(
        False, "collect, count and delete objects of kinds that CustomResourceDefinitions define like any others"
    )
