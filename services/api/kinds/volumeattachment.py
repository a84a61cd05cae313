"""VolumeAttachment: a volume is, or is to be, attached to a node by a CSI driver (storage.k8s.io/v1)."""

from services.api.meta import AGE, NAME, Column, ObjectView, Resource, View


class VolumeAttachmentSource(View, frozen=True):
    """What is attached: a PersistentVolume. Inline volumes, of migrated in-tree drivers, are not read."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(View, frozen=True):
    """`attacher`: the CSI driver that attaches and detaches."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeError(View, frozen=True):
    """Why the driver's last call failed."""

    time: str = ""
    message: str = ""


class VolumeAttachmentStatus(View, frozen=True):
    """What the external-attacher wrote."""

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
