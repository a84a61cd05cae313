"""Keys of controllers that reconcile more than one kind: `claim/data` in a namespace, `volume/pv-1` in none."""

from services.api.meta import Key

CLAIM, VOLUME, ATTACHMENT = "claim", "volume", "attachment"


def kind_key(kind: str, namespace: str, name: str) -> Key:
    """Return the key under which an object of that kind is reconciled."""
    return Key(namespace, f"{kind}/{name}")


def split(key: Key) -> tuple[str, Key]:
    """Return the kind and the object's own key; the inverse of `kind_key`."""
    kind, _, name = key.name.partition("/")
    return kind, Key(key.namespace, name)
