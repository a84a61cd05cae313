"""Keys of controllers that reconcile more than one kind: `services.reconcile.kind_keys`."""

from services.reconcile.kind_keys import CLAIM, VOLUME, kind_key, split

__all__ = ["CLAIM", "VOLUME", "kind_key", "split"]
