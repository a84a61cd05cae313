"""Create the claims of generic ephemeral volumes: each belongs to one pod and is deleted with it.

Source: KEP-1698; upstream `pkg/controller/volume/ephemeral`.
"""

from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.kinds.pod import Pod
from services.api.meta import Document, Key
from services.reconcile.actions import NOTHING, Action, Create, Result, event
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.interest import Interest
from services.reconcile.writes import controller_reference


def _reconcile(key: Key, listers: Listers, moment: Moment) -> Result:
    """Create the claims that the pod lacks; another owner's claim of that name is reported."""
    pod = listers.of(Pod).get(key)
    if pod is None or not pod.is_active or (document := listers.of(Pod).document(key)) is None:
        return NOTHING
    actions: list[Action] = []
    for volume in document["spec"].get("volumes") or ():
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is None:
            continue
        name = f"{key.name}-{volume['name']}"
        claim = listers.of(PersistentVolumeClaim).get(Key(key.namespace, name))
        if claim is None:
            actions.append(Create("persistentvolumeclaims", _claim(pod, name, template)))
        elif claim.metadata.controller is None or claim.metadata.controller.uid != pod.metadata.uid:
            message = (
                f'ephemeral volume "{volume["name"]}": PVC {key.namespace}/{name} was not created for pod {key} '
                "(pod is not owner)"
            )
            actions.append(event(pod, "FailedBinding", message, warns=True))
    return Result(tuple(actions))


def _claim(pod: Pod, name: str, template: Document) -> Document:
    meta = template.get("metadata") or {}
    owner = controller_reference(pod)
    kept = {field: meta[field] for field in ("labels", "annotations") if meta.get(field)}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": pod.metadata.namespace, "ownerReferences": [owner], **kept},
        "spec": template.get("spec") or {},
    }


def _pod_changed(change: Change[Pod], listers: Listers) -> list[Key]:
    pod = change.new
    needs_claims = pod is not None and any(volume.ephemeral is not None for volume in pod.spec.volumes)
    return [change.object.metadata.key] if needs_claims else []


def _claim_changed(change: Change[PersistentVolumeClaim], listers: Listers) -> list[Key]:
    """A claim that is gone may be needed again; a new one changes nothing."""
    owner = change.object.metadata.controller
    if change.new is not None or owner is None or owner.kind != "Pod":
        return []
    return [Key(change.object.metadata.namespace, owner.name)]


_WATCHES = (Watch(Pod, _pod_changed, Interest(has="spec.volumes")), Watch(PersistentVolumeClaim, _claim_changed))
CONTROLLER = Registration(
    "ephemeral-volume",
    lambda _: Controller("ephemeral-volume", None, _reconcile, watches=_WATCHES, reporter="ephemeral_volume"),
    start_order=17,
)
