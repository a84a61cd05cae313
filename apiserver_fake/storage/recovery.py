"""The state of before a restart, rebuilt from what a journal kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from apiserver_fake.storage.records import Change, Entry, Record, record_of
from apiserver_fake.storage.store import Store
from services.api.meta import Resource


class Gap(Exception):
    """The journal's entries do not follow each other; the message names both versions (S15)."""


def restore(
    store: Store,
    base: Iterable[Record],
    base_rv: int,
    entries: Iterable[Entry],
    find: Callable[[str], Resource | None],
    now_s: float,
) -> int:
    """Rebuild the state from what a journal kept; return how many entries were replayed.

    Raises: Gap when an RV is missing or repeated, or an entry's predecessor is not the one it names.
    """
    store.load(base, base_rv)
    replayed = 0
    for entry in entries:
        if entry.rv != store.rv + 1:
            raise Gap(f"change {entry.rv} follows {store.rv}")
        resource = find(entry.resource)
        if resource is None:
            raise Gap(f"change {entry.rv} is of kind {entry.resource}, which this server does not know")
        previous = store.get(entry.resource, entry.namespace, entry.name)
        if (previous.rv if previous else 0) != entry.previous_rv:
            raise Gap(
                f"change {entry.rv} follows version {entry.previous_rv} of {entry.resource} "
                f"{entry.namespace}/{entry.name}, but version {previous.rv if previous else 0} is there"
            )
        record = record_of(resource, msgspec.json.decode(entry.body), entry.rv, entry.body, hashing=store.hashing)
        change = Change(entry.rv, entry.type, record, previous, entry.group_end, entry.traceparent)
        store.publish((change,), now_s)
        replayed += 1
    return replayed
