"""The wait for the attach/detach controller to attach a pod's volumes, and the report of volumes in use. Pure.

The order protects data: first the Node's `volumesInUse` names the volume, then its `volumesAttached` is
read. The controller does the two the other way round, so it never detaches a volume that is about to be
mounted. A volume is reported as in use until the last pod of the node that mounts it is over. Source:
upstream `pkg/kubelet/volumemanager` (reconciler, VerifyControllerAttachedVolume), `pkg/kubelet/nodestatus`.
"""

from collections.abc import Mapping
from typing import Final

from kubelet.effects import AttachGivenUp, AttachVolumes, Outbox, ReadAttached, ReadVolumes, ReportNode, SetTimer
from kubelet.pod.pod import Pod
from kubelet.pod.table import PodTable
from kubelet.runtime.volumes import claims_of
from kubelet.view import KubeletPod, WorkerKey
from services.api.kinds.node import Node
from services.api.meta import Key

LOOK_MIN_S, LOOK_MAX_S = 0.5, 122.0
"""Shortest and longest seconds before a failed operation of a volume is tried again.

The delay doubles each time.
"""
RECOVER_RETRY_S: Final = 1.0
TIMER: Final = "volumes"


class VolumeManager:
    """The volumes of one node's pods that the controller attaches.

    Invariant: nothing is reported before the volumes of every pod that ran before this kubelet began are known.
    """

    def __init__(self, table: PodTable, out: Outbox) -> None:
        self._table, self._out = table, out
        self._names: dict[WorkerKey, dict[Key, str]] = {}
        """The unique names of the attachable volumes of each pod that mounts some, or is about to, by claim."""
        self._waiting: dict[WorkerKey, int] = {}
        """Pods that wait for volumes, and how often the Node was read for them."""
        self._recovering: dict[WorkerKey, KubeletPod] = {}
        self._has_sources = False
        self._wanted: tuple[str, ...] | None = None
        """What was last reported as in use; None: nothing yet, the Node says what an earlier kubelet did."""
        self._stored: frozenset[str] = frozenset()
        self._reported: frozenset[str] = frozenset()
        self._attached: frozenset[str] = frozenset()
        table.on(AttachVolumes, self._attach)
        table.on(AttachGivenUp, self._give_up)

    # --- pods ---

    def _attach(self, machine: Pod, effect: AttachVolumes, now: float) -> None:
        """A pod begins to wait for its volumes."""
        self._waiting[machine.key] = 0
        if machine.key in self._names:
            self._look(machine.key, now)
        else:
            self._out.effects.append(ReadVolumes(machine.key, machine.pod))

    def _give_up(self, machine: Pod, effect: AttachGivenUp, now: float) -> None:
        """The wait is over for this time; what is in use stays reported, as the pod will try again."""
        self._waiting.pop(machine.key, None)

    def recover(self, key: WorkerKey, pod: KubeletPod) -> None:
        """Count the volumes of a pod that an earlier kubelet started as in use."""
        if claims_of(pod) and self._table.is_active(key):
            self._recovering[key] = pod
            self._out.effects.append(ReadVolumes(key, pod))

    def sources_ready(self) -> None:
        """Note that every pod that ran before this kubelet is known now."""
        self._has_sources = True
        self._report()

    def release(self, key: WorkerKey) -> None:
        """Count the volumes of a pod that is over as unmounted."""
        self._waiting.pop(key, None)
        self._recovering.pop(key, None)
        if self._names.pop(key, None):
            used = self._volumes_in_use()
            self._reported = frozenset(name for name in self._reported if name in used)
        self._report()

    # --- what the API server says ---

    def volumes_read(self, key: WorkerKey, names: Mapping[Key, str] | str, now: float) -> None:
        """Take the names of a pod's attachable volumes, or why they are not known."""
        if key in self._recovering:
            if isinstance(names, str):
                self._out.effects.append(SetTimer(now + RECOVER_RETRY_S, TIMER, key))
                return
            del self._recovering[key]
        elif key not in self._waiting:
            return
        if isinstance(names, str):
            del self._waiting[key]
            machine = self._table.pods[key]
            self._table.perform(machine, machine.volumes_failed(names, now), now)
            return
        self._names[key] = dict(names)
        self._report()
        if key in self._waiting:
            self._look(key, now)

    def node_written(self, node: Node, now: float) -> None:
        """Take the Node after a status write: its volumes in use are those that this kubelet reported."""
        self._stored = frozenset(node.status.volumes_in_use)
        if self._wanted is not None:
            self._reported = self._stored & frozenset(self._volumes_in_use())
        self.node_read(node, now)

    def node_read(self, node: Node, now: float) -> None:
        """Take the volumes that the controller shows as attached."""
        self._attached = frozenset(each.name for each in node.status.volumes_attached)
        for key in [key for key in self._waiting if key in self._names]:
            self._go_on(key, now)

    def due(self, key: WorkerKey) -> None:
        """Look again at the Node or at the pod's volumes."""
        if (pod := self._recovering.get(key)) is not None:
            self._out.effects.append(ReadVolumes(key, pod))
        elif key in self._waiting and key in self._names:
            self._out.effects.append(ReadAttached(key))

    def look_again(self, key: WorkerKey, now: float) -> None:
        """Set a timer for the next look, if the pod still waits after a read of the Node or a failed read."""
        if key in self._waiting:
            self._look_later(key, now)

    # --- own affairs ---

    def _volumes_in_use(self) -> dict[str, None]:
        return dict.fromkeys(name for names in self._names.values() for name in names.values())

    def _report(self) -> None:
        if not self._has_sources or self._recovering:
            return
        wanted = tuple(sorted(self._volumes_in_use()))
        if wanted != (self._wanted if self._wanted is not None else tuple(sorted(self._stored))):
            self._wanted = wanted
            self._out.effects.append(ReportNode(volumes_in_use=wanted))

    def _look(self, key: WorkerKey, now: float) -> None:
        self._go_on(key, now)
        if key in self._waiting:
            self._look_later(key, now)

    def _look_later(self, key: WorkerKey, now: float) -> None:
        tries = self._waiting[key]
        self._waiting[key] = tries + 1
        self._out.effects.append(SetTimer(now + min(LOOK_MIN_S * 2**tries, LOOK_MAX_S), TIMER, key))

    def _go_on(self, key: WorkerKey, now: float) -> None:
        """Let the pod mount its volumes if all are reported as in use and attached."""
        names, machine = self._names[key], self._table.pods.get(key)
        if machine is None:
            return
        missing = [claim for claim, name in names.items() if name not in self._reported or name not in self._attached]
        if missing:
            machine.startup.unattached = tuple(missing)
            return
        del self._waiting[key]
        self._table.perform(machine, machine.volumes_attached(tuple(names), now), now)
