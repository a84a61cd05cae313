"""Cost of Events in the store under churn, in virtual time: `python -m lab.benchmarks.server.events` (L-OBJ,
L-MEM).

Events of 1 KB are created at a rate, and removed by age, number and size as in the API server.
"""

import gc
import os

import msgspec

from apiserver_fake.registry.controlplane.event_expiry import EventExpiry
from apiserver_fake.storage.records import Selection
from apiserver_fake.storage.store import Staged, Store
from lab.benchmarks.running_mesh import rss_mib
from services.api.meta import Document
from services.api.resources import resources

RATE_PER_S, COUNT, STEP, SWEPT = 20.0, 90_000, 10_000, 600
_FIELDS = (
    "count",
    "firstTimestamp",
    "involvedObject",
    "lastTimestamp",
    "message",
    "reason",
    "reportingComponent",
    "type",
)


def event(number: int) -> Document:
    """Return an Event as a kubelet records it, one of five for its pod."""
    pod, at = number // 5, "2026-01-01T00:00:00Z"
    fields: Document = {f"f:{name}": {} for name in _FIELDS}
    manager = {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "time": at, "fieldsType": "FieldsV1"}
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {
            "name": f"pod-{pod}.{number:016x}",
            "namespace": "default",
            "uid": f"{number:032x}",
            "creationTimestamp": at,
            "managedFields": [{**manager, "fieldsV1": fields}],
        },
        "involvedObject": {
            "kind": "Pod",
            "namespace": "default",
            "name": f"pod-{pod}",
            "uid": f"{pod:032x}",
            "apiVersion": "v1",
            "resourceVersion": str(number),
            "fieldPath": "spec.containers{c}",
        },
        "reason": "Started",
        "message": "Container started",
        "source": {"component": "kubelet", "host": "node-1"},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "type": "Normal",
        "eventTime": None,
        "reportingComponent": "kubelet",
        "reportingInstance": "node-1",
    }


def main() -> None:
    """Print the number and the memory of the stored Events repeatedly."""
    store, expiry, resource, now_s = Store(), EventExpiry(), resources()["events"], 0.0
    gc.collect()
    before = rss_mib(os.getpid())

    def commit(staged: Staged) -> None:
        store.publish(staged.changes, now_s)
        for change in staged.changes:
            expiry.note(change, now_s)

    for number in range(COUNT):
        now_s = number / RATE_PER_S
        staged = store.stage()
        staged.put(resource, event(number))
        commit(staged)
        while number % SWEPT == 0 and (due := expiry.due(now_s)):
            staged = store.stage()
            for namespace, name in due:
                record = store.get("events", namespace, name)
                assert record is not None
                staged.remove(resource, msgspec.json.decode(record.body))
            commit(staged)
        if number % STEP == STEP - 1:
            kept_count = len(store.select("events", Selection()).records)
            print(f"{number + 1:>7,} made  {kept_count:>7,} kept  {rss_mib(os.getpid()) - before:6.1f} MiB")  # noqa: T201


if __name__ == "__main__":
    main()
