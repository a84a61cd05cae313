"""Attach volumes to the nodes whose pods want them; detach them, safely, when no pod there wants them any more.

A key is a volume. The desired state comes from pods, claims and volumes, the actual state from
VolumeAttachments and the Nodes, so a restarted controller continues where the last one stopped. A volume that
only one node may have waits until the last attachment is gone. Before a detach the Node stops listing the
volume in `volumesAttached`; only then its `volumesInUse` is read again: a kubelet reads both in the other
order. The controller waits 6 min for a node that is not ready, and not at all for one out of service. The
driver's attacher carries out each `VolumeAttachment` (`csi_attacher`).
Source: controllers 20; KEP-2268; upstream `pkg/controller/volume/attachdetach/reconciler`,
`pkg/volume/util/operationexecutor`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from services.api.kinds.csidriver import CSIDriver
from services.api.kinds.node import Node
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod
from services.api.kinds.volumeattachment import ATTACHMENTS, VolumeAttachment
from services.api.meta import Document, Key
from services.api.switches import Switches
from services.controllers.attach_detach.state import (
    attachment_name,
    attachments_of,
    holds_volumes,
    is_controlled,
    is_out_of_service,
    may_be_shared,
    multi_attach_text,
    on_node,
    users_elsewhere,
    volumes_of,
    wanted_by,
)
from services.controllers.shared_switches import VolumeSwitches
from services.reconcile import writes
from services.reconcile.actions import Action, Create, Delete, Query, RecordEvent, Result, earliest, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.interest import Interest
from services.telemetry.metrics import Metrics, counter

MAX_WAIT_FOR_UNMOUNT_S = 360.0
"""Seconds that a node that is not ready may keep a volume that no pod there wants any more."""
ATTACH_TIMEOUT_S = 120.0
"""Timeout in seconds of one wait for a driver's attacher."""

Spot = tuple[str, str]
"""A volume and a node, by name."""


class _Plan:
    """Planned actions and queries for one volume."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.queries: list[Query] = []
        self.due_s: list[float | None] = []

    def result(self) -> Result:
        if self.queries:
            return Result(refresh=tuple(self.queries))
        return Result(tuple(self.actions), earliest(*self.due_s))


class AttachDetach:
    """State that the caches lack: start times of operations in progress, and recorded Events."""

    def __init__(self) -> None:
        self._attaching_s: dict[Spot, float] = {}
        self._reported_errors: dict[Spot, str] = {}
        self._multi_attach: set[Spot] = set()
        self._detaching_s: dict[Spot, float] = {}
        self._unreported: set[Spot] = set()
        """Attachments that the Node may not name any more, as they are about to be detached."""
        self._in_use_at_end: dict[str, tuple[str, ...]] = {}
        """What was in use on nodes that are gone."""
        self._forced = {"timeout": 0, "out-of-service": 0}

    def metrics(self) -> Mapping[str, float]:
        """Return how often a possibly mounted volume was detached."""
        return METRICS.of(self)

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Bring one volume to the desired state: first detach where needed, then attach where possible."""
        volume = listers.of(PersistentVolume).get(key)
        attachments = attachments_of(key.name, listers)
        wanted = {} if volume is None else wanted_by(volume, attachments, listers)
        self._forget(key.name, wanted, attachments)
        plan = _Plan()
        for node, attachment in attachments.items():
            if node not in wanted and attachment.metadata.deletion_timestamp is None:
                self._detach(attachment, volume, listers, moment, plan)
        if volume is not None:
            taken = list(attachments)
            for node, pods in wanted.items():
                if (held := attachments.get(node)) is not None:
                    self._follow(held, volume, pods, listers, moment, plan)
                elif taken and not may_be_shared(volume):
                    self._refuse(volume, node, pods, users_elsewhere(wanted, taken), plan)
                else:
                    taken.append(node)
                    self._attaching_s[key.name, node] = moment.now_s
                    plan.actions.append(_attachment(volume, node))
        return plan.result()

    def _forget(self, volume: str, wanted: Mapping[str, object], attachments: Mapping[str, object]) -> None:
        """Keep what is known of the nodes that still want or have the volume."""
        for held in (self._attaching_s, self._reported_errors):
            for spot in [spot for spot in held if spot[0] == volume and spot[1] not in wanted]:
                del held[spot]
        self._multi_attach -= {spot for spot in self._multi_attach if spot[0] == volume and spot[1] not in wanted}
        self._unreported -= {spot for spot in self._unreported if spot[0] == volume and spot[1] not in attachments}
        for spot in [spot for spot in self._detaching_s if spot[0] == volume]:
            if spot[1] in wanted or spot[1] not in attachments:
                del self._detaching_s[spot]

    # --- attach ---

    def _refuse(self, volume: PersistentVolume, node: str, pods: list[Pod], users: list[Pod], plan: _Plan) -> None:
        """The volume is on another node; say so once."""
        spot = volume.metadata.name, node
        if spot in self._multi_attach:
            return
        self._multi_attach.add(spot)
        for pod in pods:
            text = multi_attach_text(pod, users)
            plan.actions.append(_failure_event(pod, f'Multi-Attach error for volume "{volume.metadata.name}" {text}'))

    def _follow(
        self,
        held: VolumeAttachment,
        volume: PersistentVolume,
        pods: list[Pod],
        listers: Listers,
        moment: Moment,
        plan: _Plan,
    ) -> None:
        """The volume is attached here, or is being attached or detached."""
        spot, name = (volume.metadata.name, held.spec.node_name), volume.metadata.name
        self._multi_attach.discard(spot)
        if held.metadata.deletion_timestamp is not None:
            return  # attached again once that is over
        if held.status.attached:
            self._unreported.discard(spot)
            plan.actions += self._report(held.spec.node_name, listers)
            if self._attaching_s.pop(spot, None) is not None:
                text = f'AttachVolume.Attach succeeded for volume "{name}" '  # upstream's has that blank, too
                plan.actions += [event(pod, "SuccessfulAttachVolume", text) for pod in pods]
            return
        since_s = self._attaching_s.setdefault(spot, moment.now_s)
        prefix, error = f'AttachVolume.Attach failed for volume "{name}" :', held.status.attach_error
        if error is not None:
            if self._reported_errors.get(spot) != error.time:
                self._reported_errors[spot] = error.time
                plan.actions += [_failure_event(pod, f"{prefix} {error.message}") for pod in pods]
            return
        left_s = since_s + ATTACH_TIMEOUT_S - moment.now_s
        if left_s <= 0:
            handle = volume.spec.csi.volume_handle if volume.spec.csi is not None else ""
            text = (
                f"timed out waiting for external-attacher of {held.spec.attacher} CSI driver to attach volume {handle}"
            )
            plan.actions += [_failure_event(pod, f"{prefix} {text}") for pod in pods]
            self._attaching_s[spot], left_s = moment.now_s, ATTACH_TIMEOUT_S
        plan.due_s.append(left_s)

    # --- detach ---

    def _detach(
        self, held: VolumeAttachment, volume: PersistentVolume | None, listers: Listers, moment: Moment, plan: _Plan
    ) -> None:
        """Detach the volume as soon as that is safe, or has to be done all the same."""
        name = held.spec.node_name
        spot, unique = (held.spec.source.persistent_volume_name, name), volume.unique_name if volume is not None else ""
        node = listers.of(Node).get(Key("", name))
        waited_s = moment.now_s - self._detaching_s.setdefault(spot, moment.now_s)
        is_ready, is_lost = node is not None and node.is_ready, is_out_of_service(node)
        is_forced = not is_ready and waited_s >= MAX_WAIT_FOR_UNMOUNT_S
        is_mounted = unique in (
            node.status.volumes_in_use if node is not None else self._in_use_at_end.get(name, unique)
        )
        if is_mounted and not is_forced and not is_lost:
            if not is_ready:
                plan.due_s.append(MAX_WAIT_FOR_UNMOUNT_S - waited_s)
            return
        self._unreported.add(spot)
        if not (is_forced or is_lost):
            if node is not None and any(each.name == unique for each in node.status.volumes_attached):
                plan.actions += self._report(name, listers)  # the Node's change leads back here
                return
            query = Query(Node, Key("", name))
            if query not in moment.live:
                plan.queries.append(query)
                return
            live = moment.live[query]
            if isinstance(live, Node) and unique in live.status.volumes_in_use:
                self._unreported.discard(spot)
                plan.actions += self._report(name, listers)
                return
        elif is_mounted:
            self._forced["out-of-service" if is_lost else "timeout"] += 1
        plan.actions += self._report(name, listers)
        plan.actions.append(Delete(ATTACHMENTS, held.metadata.key, uid=held.metadata.uid))

    def _report(self, name: str, listers: Listers) -> list[Action]:
        """Have the Node name what is attached to it, unless it does."""
        node = listers.of(Node).get(Key("", name))
        if node is None:
            return []
        names = []
        for attachment in on_node(name, listers):
            source = attachment.spec.source.persistent_volume_name
            volume = listers.of(PersistentVolume).get(Key("", source))
            is_stable = attachment.status.attached and attachment.metadata.deletion_timestamp is None
            if volume is not None and is_stable and (source, name) not in self._unreported:
                names.append(volume.unique_name)
        if sorted(names) == sorted(each.name for each in node.status.volumes_attached):
            return []
        wanted: Document = {"volumesAttached": [{"name": each, "devicePath": ""} for each in sorted(names)] or None}
        return [writes.status("nodes", node, wanted)]

    # --- what changes lead to which volumes ---

    def node_changed(self, change: Change[Node], listers: Listers) -> Iterable[Key]:
        """Return the volumes affected by a node that came, went, or changed its volume status."""
        old, new, name = change.old, change.new, change.object.metadata.name
        if new is None:
            self._in_use_at_end[name] = change.object.status.volumes_in_use
        else:
            self._in_use_at_end.pop(name, None)
        if old is not None and new is not None and _reported_state(old) == _reported_state(new):
            return ()
        keys = {Key("", each.spec.source.persistent_volume_name): None for each in on_node(name, listers)}
        if is_controlled(new) and not is_controlled(old):
            pods = (pod for pod in listers.of(Pod).all() if pod.spec.node_name == name and pod.spec.volumes)
            keys |= {Key("", volume): None for pod in pods for volume in volumes_of(pod, listers)}
        return keys


METRICS: Final[Metrics[AttachDetach]] = Metrics(
    counter(
        "attach_detach_controller_attachdetach_controller_forced_detaches",
        "Volumes that were detached though they were perhaps still mounted.",
        lambda memory: memory._forced,
        "reason",
    )
)


def _reported_state(node: Node) -> tuple[object, ...]:
    status = node.status
    return is_controlled(node), node.is_ready, is_out_of_service(node), status.volumes_in_use, status.volumes_attached


def _attachment(volume: PersistentVolume, node: str) -> Create:
    csi = volume.spec.csi
    assert csi is not None
    source = {"persistentVolumeName": volume.metadata.name}
    document = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": attachment_name(volume, node)},
        "spec": {"attacher": csi.driver, "nodeName": node, "source": source},
    }
    return Create(ATTACHMENTS, document)


def _failure_event(pod: Pod, text: str) -> RecordEvent:
    return event(pod, "FailedAttachVolume", text, warns=True)


def _pod_changed(change: Change[Pod], listers: Listers) -> Iterable[Key]:
    """The volumes of a pod that came to a node, left it, or ended."""
    if not change.object.spec.volumes:
        return ()
    old, new = ("" if pod is None or not holds_volumes(pod) else pod.spec.node_name for pod in (change.old, change.new))
    return () if old == new else [Key("", name) for name in volumes_of(change.object, listers)]


def _claim_changed(change: Change[PersistentVolumeClaim], listers: Listers) -> Iterable[Key]:
    sides = (change.old, change.new)
    names = dict.fromkeys(side.spec.volume_name for side in sides if side is not None and side.spec.volume_name)
    is_same = change.old is not None and change.new is not None and len(names) == 1
    return () if is_same and change.old.spec == change.new.spec else [Key("", name) for name in names]  # type: ignore[union-attr]


def _volume_changed(change: Change[PersistentVolume], listers: Listers) -> Iterable[Key]:
    if change.old is not None and change.new is not None and change.old.spec == change.new.spec:
        return ()
    return (change.object.metadata.key,)


def _attachment_changed(change: Change[VolumeAttachment], listers: Listers) -> Iterable[Key]:
    return (Key("", change.object.spec.source.persistent_volume_name),)


def _driver_changed(change: Change[CSIDriver], listers: Listers) -> Iterable[Key]:
    name = change.object.metadata.name
    volumes = listers.of(PersistentVolume).all()
    return [each.metadata.key for each in volumes if each.spec.csi is not None and each.spec.csi.driver == name]


def _build(switches: Switches) -> Controller:
    memory = AttachDetach()
    watches = (
        Watch(Pod, _pod_changed, Interest(has="spec.volumes")),
        Watch(Node, memory.node_changed),
        Watch(PersistentVolumeClaim, _claim_changed),
        Watch(PersistentVolume, _volume_changed),
        Watch(VolumeAttachment, _attachment_changed),
        Watch(CSIDriver, _driver_changed),
    )
    return Controller("attachdetach", None, memory.reconcile, watches=watches, metrics=memory.metrics)


CONTROLLER = Registration(
    "attachdetach", _build, start_order=22, is_wanted=lambda switches: switches.of(VolumeSwitches).controller_attaches
)
