"""The layout of commits in etcd: each object's JSON at its own key, everything else about the commit in the
head.

An object's key below the prefix (`--etcd-prefix`, `/registry`) is as `etcdctl get --prefix --keys-only` shows
it in a real cluster: `<prefix>/<group>/<resource>/<namespace>/<name>`, without a group for the core kinds and
without a namespace for cluster-scoped ones. The value is the JSON that the API serves, resourceVersion
included.

One transaction is one batch of changes. It replaces the head, `<prefix>/.keplab/head`, under the condition that
no other API server has replaced it meanwhile. So there is one order of batches, and resource versions have no
gaps (S3). The head lists the changes of the batch, in order, with the fields of a journal entry except the
content. Content that has no key (of removed objects, and of versions that the same batch replaced again) is in
the head itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from apiserver_fake.storage.etcd.keyvalues import Event, KeyValue, Txn
from apiserver_fake.storage.records import DELETED, Entry

MAGIC = b"keplab1\0"
"""First bytes of the head; another layout gets another number."""
OWN = ".keplab"
"""The folder below the prefix that has no objects: no resource name begins with a dot."""
OPERATIONS_MAX = 128
"""etcd's `--max-txn-ops`, unless it was configured otherwise."""
REQUEST_BYTES_MAX = 1_536 << 10
"""etcd's `--max-request-bytes`, unless it was configured otherwise."""
CHANGES_MAX = OPERATIONS_MAX - 2
BYTES_MAX = REQUEST_BYTES_MAX - (16 << 10)
ENTRY_BYTES = 600
"""Approximate upper bound of an entry's bytes besides content and answer: names twice, traceparent, request
id, fingerprint.
"""


class ForeignChangeError(Exception):
    """A key below the prefix was written by something other than an API server of this mesh; the text names key
    and revision.
    """


class Commit(msgspec.Struct, frozen=True):
    """One committed batch. `id`: its writer's name for it. `rv`: the newest version after it."""

    revision: int
    id: str
    rv: int
    entries: list[Entry]


class _Head(msgspec.Struct, frozen=True, array_like=True):
    id: str
    rv: int
    entries: list[Entry]


_HEAD = msgspec.msgpack.Decoder(_Head)


class Keys:
    """The keys of one mesh: everything below one prefix."""

    def __init__(self, prefix: str) -> None:
        self.prefix = "/" + prefix.strip("/")
        self.all = f"{self.prefix}/".encode()
        self.own = f"{self.prefix}/{OWN}/".encode()
        self.head, self.secret, self.servers = self.own + b"head", self.own + b"secret", self.own + b"servers"

    def object(self, resource: str, namespace: str, name: str) -> bytes:
        """Return the key of an object; `resource` is a wire name such as `deployments.apps`."""
        plural, _, group = resource.partition(".")
        return "/".join(part for part in (self.prefix, group, plural, namespace, name) if part).encode()

    def object_at(self, key_value: KeyValue) -> tuple[str, int]:
        """Return the wire name and the version of the object at a key. Raises: ForeignChangeError if it holds no
        object.
        """
        try:
            document = msgspec.json.decode(key_value.value)
            meta = document["metadata"]
            where = "/".join(part for part in (meta.get("namespace"), meta["name"]) if part)
            path, rv = key_value.key.decode()[len(self.all) :], int(meta["resourceVersion"])
            if not path.endswith(f"/{where}"):
                raise ValueError(f"it holds {where}")
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.MsgspecError) as error:
            raise self._foreign(key_value.key, key_value.revision, f"holds no object of keplab ({error})") from None
        group, _, plural = path[: -len(where) - 1].rpartition("/")
        return f"{plural}.{group}" if group else plural, rv

    def txn(self, commit_id: str, rv: int, entries: Sequence[Entry], revision: int) -> Txn:
        """Return the transaction that commits a batch on top of the head at that revision.

        Without entries it changes nothing but the head's revision.
        """
        last = {self.object(e.resource, e.namespace, e.name): e for e in entries}
        at_keys = {e.rv for e in last.values() if e.type != DELETED}
        listed = [msgspec.structs.replace(e, body=b"") if e.rv in at_keys else e for e in entries]
        head = MAGIC + msgspec.msgpack.encode(_Head(commit_id, rv, listed))
        puts = [(key, e.body) for key, e in last.items() if e.type != DELETED]
        return Txn(self.head, revision, [(self.head, head), *puts], [k for k, e in last.items() if e.type == DELETED])

    def version_of(self, head: bytes | None) -> int:
        """Return the newest version in a head; 0 without a head, when nothing was ever written. Raises:
        ForeignChangeError.
        """
        return self._head(head, 0).rv if head is not None else 0

    def commits(self, events: Iterable[Event]) -> Iterator[Commit]:
        """Yield the batches in a sequence of changes, oldest first. Raises: ForeignChangeError."""
        for revision, group in groupby(events, key=lambda event: event.revision):
            changed = {event.key: event.value for event in group}
            entries: list[Entry] = []
            if self.head in changed:
                head = self._head(changed.pop(self.head) or b"", revision)
                entries = [self._whole(entry, changed, revision) for entry in head.entries]
                yield Commit(revision, head.id, head.rv, entries)
            ours = {self.object(entry.resource, entry.namespace, entry.name) for entry in entries}
            for key in changed:
                if key not in ours and not key.startswith(self.own):
                    raise self._foreign(key, revision, "was changed by a client that is no API server of this mesh")

    def _head(self, value: bytes, revision: int) -> _Head:
        try:
            if not value.startswith(MAGIC):
                raise ValueError("it does not begin as it should")
            return _HEAD.decode(value[len(MAGIC) :])
        except (ValueError, msgspec.MsgspecError) as error:
            raise self._foreign(
                self.head, revision, f"is no head that this version of keplab writes ({error})"
            ) from None

    def _whole(self, entry: Entry, changed: dict[bytes, bytes | None], revision: int) -> Entry:
        if entry.body:
            return entry
        key = self.object(entry.resource, entry.namespace, entry.name)
        body = changed.get(key)
        if body is None:
            raise self._foreign(key, revision, f"lacks the content of change {entry.rv}")
        return msgspec.structs.replace(entry, body=body)

    def _foreign(self, key: bytes, revision: int, what: str) -> ForeignChangeError:
        at = f" (revision {revision})" if revision else ""
        return ForeignChangeError(f"etcd key {key.decode(errors='replace')}{at} {what}")


def size_of(entries: Iterable[Entry]) -> int:
    """Return the approximate bytes of the transaction of these entries, rather too many than too few."""
    return sum(len(e.body) + len(e.answer or b"") + 2 * len(e.namespace + e.name) + ENTRY_BYTES for e in entries)
