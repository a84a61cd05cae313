"""VolumeAttachment: a CSI driver attaches, or is to attach, a volume to a node (storage.k8s.io/v1)."""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource, View


class VolumeAttachmentSource(View, frozen=True):
    """The attached PersistentVolume. Inline volumes of migrated in-tree drivers are not read."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(View, frozen=True):
    """Spec of an attachment. `attacher`: the CSI driver that attaches and detaches."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeError(View, frozen=True):
    """Error of the driver's last call."""

    time: str = ""
    message: str = ""


class VolumeAttachmentStatus(View, frozen=True):
    """Status that the external-attacher writes."""

    attached: bool = False
    attach_error: VolumeError | None = None
    detach_error: VolumeError | None = None


class VolumeAttachment(ObjectView, frozen=True):
    """One attachment as components see it."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


_COLUMNS = (
    NAME,
    Column("Attacher", "spec.attacher"),
    Column("PV", "spec.source.persistentVolumeName"),
    Column("Node", "spec.nodeName"),
    Column("Attached", "status.attached", "boolean", default=False),
    AGE,
)
ATTACHMENTS = "volumeattachments.storage.k8s.io"
RESOURCE = Resource(VolumeAttachment, "storage.k8s.io", namespaced=False, subresources=("status",), columns=_COLUMNS)
