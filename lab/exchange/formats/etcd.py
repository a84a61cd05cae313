"""Snapshots of etcd, which kwokctl makes when it is not asked for k8s: recognised, and refused with advice. Pure.

A page of bbolt begins with a header of 16 bytes, and a meta with a magic number. Source: simulator 5.2.
"""

from lab.exchange.format import Format

_MAGIC = bytes.fromhex("edda0ced")
_HEADER = 16


def _fits(head: bytes) -> bool:
    return head[_HEADER : _HEADER + 4] in (_MAGIC, _MAGIC[::-1])


FORMAT = Format(
    name="etcd",
    title="a snapshot of etcd",
    fits=_fits,
    refusal="a bbolt file; run `kwokctl snapshot save --format k8s`",
)
