"""Names of processes: the component of a name, and the schedulers of a mesh."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from services.api.identity import KUBELET_CLIENT

DEFAULT_SCHEDULER = "default-scheduler"
DEVICE_PLUGIN: Final = "device-plugin"
DRA_DRIVER: Final = "dra-driver"
CLAIM_CONTROLLER: Final = "claim-controller"
SIMULATOR_API: Final = "simulator-api"
API_SERVER_AS_CLIENT: Final = KUBELET_CLIENT.user
"""User in the API server's client certificate for calls to kubelets."""
MODULES: Final = {
    "apiserver": "apiserver_fake",
    "scheduler": "scheduler",
    "controllers": "services.controllers",
    CLAIM_CONTROLLER: "claim_controller",
    "kubelet": "kubelet",
    DEVICE_PLUGIN: "kubelet.deviceplugin.emulated",
    DRA_DRIVER: "kubelet.dra.emulated",
    SIMULATOR_API: "lab.simulator",
    "etcd": "services.runtime.etcd_members",
    "credentials": "services.runtime.credentials",
}
"""Modules that `python -m` runs, by component."""
SERVICES: Final = ("apiserver", "apiserver-2", "scheduler", "controllers", "claim-controller", "kubelet")
"""Host names of the components of a mesh in containers."""
HEALTH_PORT: Final = 8081
"""Port of the health server of each of those."""
_WITH_DASH: Final = (DEVICE_PLUGIN, DRA_DRIVER, CLAIM_CONTROLLER, SIMULATOR_API)
"""Components whose own names have a dash; in other names a dash separates the component from an instance's name."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""Pattern of a DNS label; the name becomes part of the names of a process, a file and a Lease."""


def component_of(process: str) -> str:
    """Return the component a process runs: `kubelet` for `kubelet/h0`, `scheduler` for `scheduler-2`."""
    name = process.partition("/")[0]
    dashed = (each for each in _WITH_DASH if name == each or name.startswith(f"{each}-"))
    return next(dashed, name.partition("-")[0])


def plugin_name(node: str, resource: str) -> str:
    """Return the process name of a node's device plugin: `device-plugin/n1/example.com/gpu`."""
    return f"{DEVICE_PLUGIN}/{node}/{resource}"


def plugins_of(node: Mapping[str, Any]) -> list[dict[str, object]]:
    """Return the device plugins in a node definition (a JSON object)."""
    return list(node.get("devicePlugins") or ())


def driver_name(node: str, driver: str) -> str:
    """Return the process name of a node's DRA driver: `dra-driver/n1/gpu.example.com`."""
    return f"{DRA_DRIVER}/{node}/{driver}"


def drivers_of(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the DRA drivers in a node definition (a JSON object): the name, and the process's input, JSON or
    `gpu.example.com:4`.
    """
    drivers = node.get("drivers") or ()
    if isinstance(drivers, str):
        return [(text.partition(":")[0], text) for text in drivers.split("+")]
    return [(str(driver["name"]), json.dumps(driver)) for driver in drivers]


@dataclass(frozen=True)
class SchedulerProcess:
    """One scheduler: its process's name, its `spec.schedulerName`, and whether it must lead before it works.

    `config`: path of its KubeSchedulerConfiguration; empty: none.
    """

    name: str
    scheduler_name: str = DEFAULT_SCHEDULER
    is_elected: bool = False
    config: str = ""

    @property
    def arguments(self) -> list[str]:
        """Its command-line flags."""
        elected = ["--leader-elect"] if self.is_elected else []
        config = ["--config", self.config] if self.config else []
        return ["--scheduler-name", self.scheduler_name, *elected, *config]


@dataclass(frozen=True)
class Schedulers:
    """The schedulers of a mesh.

    `replicas` of the default scheduler elect a leader, unless `elect` is off. Then all of them work, and only the
    API server's answer to the second Binding keeps them apart. `others`: names of further schedulers, one process
    each, which know nothing of the default one and share its nodes. `config`: path of the default scheduler's
    KubeSchedulerConfiguration, which may have several profiles.
    """

    replicas: int = 1
    elect: bool = True
    others: tuple[str, ...] = ()
    config: str = ""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"want at least one scheduler, not {self.replicas}")
        for name in self.others:
            if not _NAME.fullmatch(name):
                raise ValueError(f"scheduler name {name!r}: want lower-case letters, digits and '-' between them")
        if len({DEFAULT_SCHEDULER, *self.others}) <= len(self.others):
            raise ValueError(f"schedulers want names of their own, not {', '.join(self.others)}")

    def processes(self) -> tuple[SchedulerProcess, ...]:
        """Return the processes: `scheduler`, or `scheduler-1` and so on, then `scheduler-NAME` of the others."""
        is_alone = self.replicas == 1
        names = ["scheduler"] if is_alone else [f"scheduler-{number}" for number in range(1, self.replicas + 1)]
        is_elected = self.elect and not is_alone
        replicas = [SchedulerProcess(name, is_elected=is_elected, config=self.config) for name in names]
        return (*replicas, *(SchedulerProcess(f"scheduler-{name}", name) for name in self.others))


HOSTS_DEFAULT: Final = 3


def block_sizes(nodes: int, hosts: int = 0) -> list[int]:
    """Return the number of nodes of each host, as equal as possible; `hosts` 0 means at most three hosts."""
    count = min(hosts or HOSTS_DEFAULT, nodes)
    return [nodes // count + (i < nodes % count) for i in range(count)] if count else []
