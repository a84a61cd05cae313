"""Keep claims that a pod uses, and volumes that are bound to a claim, from being deleted.

The API server adds a finalizer to each; this controller removes it when the object is being deleted and not in
use. A key names its kind, as the volume binder's keys do.
Source: upstream `pkg/controller/volume/pvcprotection`, `pvprotection`.
"""

from services.api.kinds.persistentvolume import BOUND, PersistentVolume
from services.api.kinds.persistentvolumeclaim import IN_USE_FINALIZER as CLAIM_FINALIZER
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod
from services.api.meta import Key, ObjectMeta
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Query, Result
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.interest import Interest
from services.reconcile.kind_keys import CLAIM, VOLUME, kind_key, split

VOLUME_FINALIZER = "kubernetes.io/pv-protection"


def _uses(pod: Pod, claim: str) -> bool:
    """Whether the pod holds the claim: it does until it has ended, whether or not it has a node."""
    return not pod.is_terminal and any(v.claim_name(pod.metadata.name) == claim for v in pod.spec.volumes)


def _reconcile(key: Key, listers: Listers, moment: Moment) -> Result:
    """Take the finalizer off an object that is being deleted and not in use."""
    kind, own_key = split(key)
    if kind == VOLUME:
        volume = listers.of(PersistentVolume).get(own_key)
        if volume is None or volume.status.phase == BOUND:
            return NOTHING
        return _release("persistentvolumes", volume, VOLUME_FINALIZER)
    claim = listers.of(PersistentVolumeClaim).get(own_key)
    if claim is None or not _is_held(claim.metadata, CLAIM_FINALIZER):
        return NOTHING
    if any(_uses(pod, own_key.name) for pod in listers.of(Pod).all(key.namespace)):
        return NOTHING
    # A pod may have been created just before the deletion and not have reached the cache.
    query = Query(Pod, Key(key.namespace, ""))
    if query not in moment.listed:
        return Result(refresh=(query,))
    if any(isinstance(pod, Pod) and _uses(pod, own_key.name) for pod in moment.listed[query]):
        return NOTHING
    return _release("persistentvolumeclaims", claim, CLAIM_FINALIZER)


def _is_held(meta: ObjectMeta, finalizer: str) -> bool:
    return meta.deletion_timestamp is not None and finalizer in meta.finalizers


def _release(resource: str, held: PersistentVolume | PersistentVolumeClaim, finalizer: str) -> Result:
    if not _is_held(held.metadata, finalizer):
        return NOTHING
    left = (each for each in held.metadata.finalizers if each != finalizer)
    return Result((writes.finalizers(resource, held, left),))


def _claim_changed(change: Change[PersistentVolumeClaim], listers: Listers) -> list[Key]:
    return [] if change.new is None else [kind_key(CLAIM, *change.new.metadata.key)]


def _volume_changed(change: Change[PersistentVolume], listers: Listers) -> list[Key]:
    return [] if change.new is None else [kind_key(VOLUME, "", change.new.metadata.name)]


def _pod_changed(change: Change[Pod], listers: Listers) -> list[Key]:
    """The claims of a pod that has ended or is gone."""
    pod = change.object
    if not pod.spec.volumes or (change.new is not None and not change.new.is_terminal):
        return []
    names = dict.fromkeys(name for v in pod.spec.volumes if (name := v.claim_name(pod.metadata.name)))
    return [kind_key(CLAIM, pod.metadata.namespace, name) for name in names]


_WATCHES = (
    Watch(PersistentVolumeClaim, _claim_changed),
    Watch(PersistentVolume, _volume_changed),
    Watch(Pod, _pod_changed, Interest(has="spec.volumes")),
)
CONTROLLER = Registration(
    "volume-protection", lambda _: Controller("volume-protection", None, _reconcile, watches=_WATCHES), start_order=16
)
