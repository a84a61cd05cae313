"""Keys of controllers that reconcile both claims and volumes: `claim/data` in a namespace, `volume/pv-1`."""

from __future__ import annotations

from services.api.meta import Key, ObjectMeta

CLAIM, VOLUME = "claim", "volume"
CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"


def claim_key(meta: ObjectMeta) -> Key:
    """Return the key under which a claim is reconciled."""
    return Key(meta.namespace, f"{CLAIM}/{meta.name}")


def volume_key(name: str) -> Key:
    """Return the key under which a volume is reconciled."""
    return Key("", f"{VOLUME}/{name}")
