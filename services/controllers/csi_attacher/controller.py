"""Carry out VolumeAttachments as the external-attacher beside a CSI driver does: attach, detach, report errors.

Every driver is emulated. ControllerPublishVolume and ControllerUnpublishVolume take a constant time. The
CSIDriver's annotation `keplab.dev/attach-failures` makes that many first calls of each attachment fail. A
failed call is repeated after 1 s, then after twice as long each time, up to 5 min. Finalizers keep the
attachment until it is detached, and the volume until it has no attachment.

It is a controller of its own, not a part of `attach_detach`: upstream it is another process with its own
permissions, and `--controllers=*,-csi-attacher` leaves the attachments to a real one.
Source: controllers 20; kubernetes-csi/external-attacher `pkg/controller`.
"""

from collections.abc import Iterable

from services.api.kinds.csidriver import CSIDriver
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.volumeattachment import ATTACHMENTS, VolumeAttachment
from services.api.meta import Key
from services.api.switches import Switches
from services.api.times import format_time
from services.controllers.shared_switches import VolumeSwitches
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Action, Result
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.kind_keys import ATTACHMENT, VOLUME, kind_key, split

ATTACH_S, DETACH_S = 3.0, 3.0
"""Durations of the emulated driver's attach and detach, in seconds (kubelet 8)."""
RETRY_MIN_S, RETRY_MAX_S = 1.0, 300.0
FAILURES = "keplab.dev/attach-failures"
ERROR = "rpc error: code = Internal desc = emulated"


def finalizer_of(driver: str) -> str:
    """Return the finalizer that the attacher of this driver puts on attachments and volumes."""
    return "external-attacher/" + "".join(each if each.isalnum() else "-" for each in driver)


class CSIAttacher:
    """Driver calls in progress, with their end times by attachment and kind of call; and failure counts."""

    def __init__(self) -> None:
        self._ends_s: dict[tuple[str, bool], float] = {}
        self._failures: dict[str, int] = {}

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Attach, detach, or remove the finalizer of a volume that is being deleted."""
        kind, own = split(key)
        if kind == VOLUME:
            return _free(listers.of(PersistentVolume).get(own), listers)
        attachment = listers.of(VolumeAttachment).get(own)
        if attachment is None:
            return NOTHING
        if attachment.metadata.deletion_timestamp is not None:
            return self._detach(attachment, moment)
        return NOTHING if attachment.status.attached else self._attach(attachment, listers, moment)

    def _left_s(self, attachment: VolumeAttachment, takes_s: float, moment: Moment, *, attaches: bool) -> float:
        """Return how long the call still takes; the first time it begins."""
        call = attachment.metadata.uid, attaches
        return self._ends_s.setdefault(call, moment.now_s + takes_s) - moment.now_s

    def _attach(self, attachment: VolumeAttachment, listers: Listers, moment: Moment) -> Result:
        meta, spec = attachment.metadata, attachment.spec
        finalizer = finalizer_of(spec.attacher)
        steps: list[Action] = []
        volume = listers.of(PersistentVolume).get(Key("", spec.source.persistent_volume_name))
        if volume is None or volume.spec.csi is None or volume.spec.csi.driver != spec.attacher:
            return NOTHING  # not this driver's, or not there yet
        if finalizer not in volume.metadata.finalizers:
            steps.append(writes.finalizers("persistentvolumes", volume, [*volume.metadata.finalizers, finalizer]))
        if finalizer not in meta.finalizers:
            steps.append(writes.finalizers(ATTACHMENTS, attachment, [*meta.finalizers, finalizer]))
        left_s = self._left_s(attachment, ATTACH_S, moment, attaches=True)
        if steps or left_s > 0:
            return Result(tuple(steps), max(left_s, 0.0))
        del self._ends_s[meta.uid, True]
        driver = listers.of(CSIDriver).get(Key("", spec.attacher))
        failed = self._failures.get(meta.uid, 0)
        if failed < _failures_of(driver):
            self._failures[meta.uid] = failed + 1
            again_s = min(RETRY_MIN_S * 2**failed, RETRY_MAX_S)
            self._ends_s[meta.uid, True] = moment.now_s + again_s + ATTACH_S
            problem = {"time": format_time(moment.wall_s), "message": ERROR}
            wrong = writes.status(ATTACHMENTS, attachment, {"attached": False, "attachError": problem})
            return Result((wrong,), again_s + ATTACH_S)
        return Result((writes.status(ATTACHMENTS, attachment, {"attached": True, "attachError": None}),))

    def _detach(self, attachment: VolumeAttachment, moment: Moment) -> Result:
        meta, finalizer = attachment.metadata, finalizer_of(attachment.spec.attacher)
        self._ends_s.pop((meta.uid, True), None)
        if finalizer not in meta.finalizers:
            return NOTHING
        left_s = self._left_s(attachment, DETACH_S, moment, attaches=False)
        if left_s > 0:
            return Result(requeue_after_s=left_s)
        return Result((writes.finalizers(ATTACHMENTS, attachment, [f for f in meta.finalizers if f != finalizer]),))

    def attachment_changed(self, change: Change[VolumeAttachment], listers: Listers) -> Iterable[Key]:
        """Return the attachment's key; after its deletion, the volume's."""
        meta, volume = change.object.metadata, change.object.spec.source.persistent_volume_name
        if change.new is not None:
            return (kind_key(ATTACHMENT, "", meta.name),)
        for attaches in (True, False):
            self._ends_s.pop((meta.uid, attaches), None)
        self._failures.pop(meta.uid, None)
        return (kind_key(VOLUME, "", volume),)


def _failures_of(driver: CSIDriver | None) -> int:
    text = driver.metadata.annotations.get(FAILURES, "0") if driver is not None else "0"
    return int(text) if text.isdecimal() else 0


def _free(volume: PersistentVolume | None, listers: Listers) -> Result:
    """Take the finalizer off a volume that is being deleted and has no attachment."""
    if volume is None or volume.metadata.deletion_timestamp is None or volume.spec.csi is None:
        return NOTHING
    meta, finalizer = volume.metadata, finalizer_of(volume.spec.csi.driver)
    named = (each.spec.source.persistent_volume_name for each in listers.of(VolumeAttachment).all())
    if finalizer not in meta.finalizers or meta.name in named:
        return NOTHING
    return Result((writes.finalizers("persistentvolumes", volume, [f for f in meta.finalizers if f != finalizer]),))


def _volume_changed(change: Change[PersistentVolume], listers: Listers) -> Iterable[Key]:
    """A volume that is being deleted; the attachments of one that has come."""
    meta = change.object.metadata
    if change.old is None:
        waiting = listers.of(VolumeAttachment).all()
        return [
            kind_key(ATTACHMENT, "", each.metadata.name)
            for each in waiting
            if each.spec.source.persistent_volume_name == meta.name
        ] + ([kind_key(VOLUME, "", meta.name)] if meta.deletion_timestamp is not None else [])
    return () if meta.deletion_timestamp is None else (kind_key(VOLUME, "", meta.name),)


def _build(switches: Switches) -> Controller:
    memory = CSIAttacher()
    watches = (Watch(VolumeAttachment, memory.attachment_changed), Watch(PersistentVolume, _volume_changed))
    return Controller("csi-attacher", None, memory.reconcile, watches=watches, reads=(CSIDriver,), workers=4)


CONTROLLER = Registration(
    "csi-attacher", _build, start_order=23, is_wanted=lambda switches: switches.of(VolumeSwitches).controller_attaches
)
