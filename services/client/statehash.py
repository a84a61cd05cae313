"""Hash over the contents of a cache, with the same definition for the cache and its checker (I16).

A resource version identifies one content of one object, so keys and versions are enough. Whether the content of
a version is correct is checked on arrival (W8). Sums do not depend on an order.
"""

import hashlib

MODULUS = 1 << 256


def version_summand(kind: str, namespace: str, name: str, rv: int) -> int:
    """Return the summand of one object at one version, below 2^256."""
    return int.from_bytes(hashlib.sha256(f"{kind}\0{namespace}\0{name}\0{rv}".encode()).digest(), "big")
