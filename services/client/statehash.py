"""One hash over what a cache holds, spelled the same by who holds it and by who checks it (I16).

A resource version names one content of one object, so keys and versions are enough; that the content
of a version is the right one is judged where it arrives (W8). Sums do not depend on an order.
"""

import hashlib

MODULUS = 1 << 256


def version_summand(kind: str, namespace: str, name: str, rv: int) -> int:
    """Return what one object at one version adds to the hash, below 2^256."""
    return int.from_bytes(hashlib.sha256(f"{kind}\0{namespace}\0{name}\0{rv}".encode()).digest(), "big")
