"""What the controller manager can be told."""

from __future__ import annotations

from dataclasses import dataclass

from services.runtime.config import CommonConfig, setting


@dataclass(frozen=True, kw_only=True)
class ControllersConfig(CommonConfig):
    """Run the workload and infrastructure controllers."""

    controllers: tuple[str, ...] = setting(
        ("*",), "a controller to run; * is all, -NAME leaves one out; may be repeated"
    )
    leader_elect: bool = setting(False, "work only while holding the Lease kube-system/kube-controller-manager")
