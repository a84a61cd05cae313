"""Build the controller manager: the list below is what it runs."""

from __future__ import annotations

from collections.abc import Callable

from services.api.identity import Identity, controller_identity
from services.api.seams import Room, Seams
from services.api.switches import Switches
from services.api.unbinding import UNBINDER
from services.controllers import (
    daemonset,
    deployment,
    descheduler,
    disruption,
    ephemeral_volume,
    garbage_collector,
    job,
    namespace,
    node_lifecycle,
    persistentvolume_binder,
    pod_unbind,
    podgc,
    podgroup_protection,
    replicaset,
    resourceclaim,
    resourcequota,
    statefulset,
    taint_eviction,
    ttl_after_finished,
    unbind_storm,
    volume_protection,
)
from services.controllers.config import ControllersConfig
from services.reconcile.controller import BuildController
from services.runtime.config import EXIT_USAGE, StartError
from services.runtime.manager import run_controllers

CONTROLLERS: dict[str, BuildController] = {
    "replicaset": replicaset.controller,
    "deployment": deployment.controller,
    "statefulset": statefulset.controller,
    "daemonset": daemonset.controller,
    "job": job.controller,
    "ttl-after-finished": ttl_after_finished.controller,
    "gc": garbage_collector.controller,
    "node-lifecycle": node_lifecycle.controller,
    "taint-eviction": taint_eviction.controller,
    "podgc": podgc.controller,
    "podgroup-protection": podgroup_protection.controller,
    "namespace": namespace.controller,
    "disruption": disruption.controller,
    "persistentvolume-binder": persistentvolume_binder.controller,
    "resourcequota": resourcequota.controller,
    "volume-protection": volume_protection.controller,
    "ephemeral-volume": ephemeral_volume.controller,
    "resourceclaim": resourceclaim.controller,
    "pod-unbind": pod_unbind.controller,
    "descheduler": descheduler.controller,
    "unbind-storm": unbind_storm.controller,
}
_WANTED: dict[str, Callable[[Switches], bool]] = {
    "pod-unbind": lambda switches: switches.choice("unbind.api") == "condition",
    "descheduler": lambda switches: switches.flag("descheduler.enabled"),
    "unbind-storm": lambda switches: switches.choice("kubelet.on_reject") in ("unbind", "defer-then-unbind"),
}
"""Controllers that run with certain switches only: without them they would listen for nothing."""
MANAGER = Identity("system:kube-controller-manager")
"""Whom the shared informers and the leader election act as."""
IDENTITIES: tuple[Identity, ...] = (
    *(controller_identity(name) for name in CONTROLLERS if name not in ("pod-unbind", "unbind-storm")),
    UNBINDER,
)
LEASE = "kube-controller-manager"


def chosen(names: tuple[str, ...]) -> list[str]:
    """Return which controllers to run, in the order of the list above.

    Raises: StartError naming one that does not exist.
    """
    for name in names:
        if name != "*" and name.removeprefix("-") not in CONTROLLERS:
            known = ", ".join(CONTROLLERS)
            raise StartError(f"no controller {name.removeprefix('-')!r}; there are: {known}", EXIT_USAGE)
    is_all = "*" in names or all(name.startswith("-") for name in names)
    return [n for n in CONTROLLERS if f"-{n}" not in names and (n in names or is_all)]


def build(config: ControllersConfig, seams: Seams) -> Room:
    """Return the room that runs the chosen controllers over shared informers."""
    switches = seams.switches
    names = [name for name in chosen(config.controllers) if name not in _WANTED or _WANTED[name](switches)]
    controllers = [CONTROLLERS[name](switches) for name in names]
    return run_controllers(controllers, seams, elector=config.elector(seams, LEASE))
