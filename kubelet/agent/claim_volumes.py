"""Live reads of the volume to which a claim is bound, with the reason when none can be mounted.

Source: upstream `pkg/kubelet/volumemanager/populator` (texts).
"""

import msgspec

from services.api.errors import ApiError
from services.api.kinds.persistentvolume import PersistentVolume
from services.api.kinds.persistentvolumeclaim import BOUND, PersistentVolumeClaim
from services.api.meta import Key
from services.client.client import Client

_VOLUME, _CLAIM = msgspec.json.Decoder(PersistentVolume), msgspec.json.Decoder(PersistentVolumeClaim)


async def volume_of(client: Client, name: Key) -> PersistentVolume:
    """Return the volume of a claim.

    Raises: ValueError with the reason why no volume can be mounted; UnknownOutcome and what a decoder raises.
    """
    try:
        claim = _CLAIM.decode(await client.get_raw("persistentvolumeclaims", name))
    except ApiError as error:
        raise ValueError(f"failed to fetch PVC from API server: {error.message}") from None
    if claim.metadata.deletion_timestamp is not None:
        raise ValueError("PVC is being deleted")
    if claim.status.phase != BOUND:
        raise ValueError("PVC is not bound")
    if not claim.spec.volume_name:
        raise ValueError("PVC has empty pvc.Spec.VolumeName")
    try:
        return _VOLUME.decode(await client.get_raw("persistentvolumes", Key("", claim.spec.volume_name)))
    except ApiError as error:
        text = f"failed to fetch PV {claim.spec.volume_name} from API server: {error.message}"
        raise ValueError(text) from None
