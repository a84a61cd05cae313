"""Build the controller manager: the list below is what it runs."""

from __future__ import annotations

from collections.abc import Callable

from services.api.identity import Identity, controller_identity
from services.api.seams import Component, Seams
from services.api.switches import Switches
from services.api.unbind import UNBINDER
from services.controllers.config import ControllersConfig
from services.controllers.daemonset.controller import controller as daemonset
from services.controllers.deployment.controller import controller as deployment
from services.controllers.descheduler.controller import controller as descheduler
from services.controllers.disruption.controller import controller as disruption
from services.controllers.ephemeral_volume.controller import controller as ephemeral_volume
from services.controllers.garbage_collector.controller import controller as garbage_collector
from services.controllers.job.controller import controller as job
from services.controllers.namespace.controller import controller as namespace
from services.controllers.node_lifecycle.controller import controller as node_lifecycle
from services.controllers.persistentvolume_binder.controller import controller as persistentvolume_binder
from services.controllers.pod_unbind.controller import controller as pod_unbind
from services.controllers.podgc.controller import controller as podgc
from services.controllers.podgroup_protection.controller import controller as podgroup_protection
from services.controllers.replicaset.controller import controller as replicaset
from services.controllers.resourceclaim.controller import controller as resourceclaim
from services.controllers.resourcequota.controller import controller as resourcequota
from services.controllers.statefulset.controller import controller as statefulset
from services.controllers.taint_eviction.controller import controller as taint_eviction
from services.controllers.ttl_after_finished.controller import controller as ttl_after_finished
from services.controllers.unbind_storm.controller import controller as unbind_storm
from services.controllers.volume_protection.controller import controller as volume_protection
from services.reconcile.controller import BuildController
from services.runtime.config import EXIT_USAGE, StartError
from services.runtime.manager import run_controllers

CONTROLLERS: dict[str, BuildController] = {
    "replicaset": replicaset,
    "deployment": deployment,
    "statefulset": statefulset,
    "daemonset": daemonset,
    "job": job,
    "ttl-after-finished": ttl_after_finished,
    "gc": garbage_collector,
    "node-lifecycle": node_lifecycle,
    "taint-eviction": taint_eviction,
    "podgc": podgc,
    "podgroup-protection": podgroup_protection,
    "namespace": namespace,
    "disruption": disruption,
    "persistentvolume-binder": persistentvolume_binder,
    "resourcequota": resourcequota,
    "volume-protection": volume_protection,
    "ephemeral-volume": ephemeral_volume,
    "resourceclaim": resourceclaim,
    "pod-unbind": pod_unbind,
    "descheduler": descheduler,
    "unbind-storm": unbind_storm,
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


def build(config: ControllersConfig, seams: Seams) -> Component:
    """Return the room that runs the chosen controllers over shared informers."""
    switches = seams.switches
    names = [name for name in chosen(config.controllers) if name not in _WANTED or _WANTED[name](switches)]
    controllers = [CONTROLLERS[name](switches) for name in names]
    return run_controllers(controllers, seams, elector=config.elector(seams, LEASE))
