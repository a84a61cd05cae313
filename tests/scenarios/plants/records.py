"""Planted bugs in what the mesh says of itself: answers and the event log (I13, I27)."""

from msgspec.structs import replace

from apiserver_fake.storage.writer import Writer
from services.telemetry.eventlog import MemoryEvents

STEADY = """
nodes n1 cpu=16
replicaset web replicas=3 cpu=1
expect within 10s count pods phase=Running == 3
wait 20s
"""


def acknowledges_what_it_never_stores(monkeypatch):
    """Every answer to a pod's creation names the next version."""
    answer = Writer._answer

    def ahead(self, operation, response):
        if response.code == 201 and operation.cause is not None and operation.cause.verb == "create":
            response = replace(response, rv=response.rv + 1000)
        answer(self, operation, response)

    monkeypatch.setattr(Writer, "_answer", ahead)


def loses_a_line(monkeypatch):
    take = MemoryEvents.take
    monkeypatch.setattr(MemoryEvents, "take", lambda self, line: None if line.seq == 20 else take(self, line))


PLANTS = [(acknowledges_what_it_never_stores, STEADY, "I13"), (loses_a_line, STEADY, "I27")]
