"""What the event log says of a pod's size, once it may have changed."""

import msgspec

from apiserver_fake.event_log import facts_of


def recorded(*, generation, desired="2", allocated=None, node="n1", **meta):
    status = {"bindingGeneration": 2}
    if allocated:
        status["containerStatuses"] = [
            {"name": "c", "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": allocated}}}
        ]
    document = {
        "metadata": {"generation": generation, **meta},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": desired}}}]},
        "status": status,
    }
    return facts_of("pods", msgspec.json.encode(document), is_new=False).get("requests")


def test_a_pod_that_is_as_it_was_bound_does_not_record_its_size_again():
    assert recorded(generation=2) is None


def test_a_resized_pod_records_what_its_node_has_allocated_and_before_that_what_it_requests():
    assert recorded(generation=3, allocated="1") == {"cpu": 1000}
    assert recorded(generation=3) == {"cpu": 2000}


def test_a_pod_that_is_being_deleted_is_not_looked_at_again():
    assert recorded(generation=3, deletionTimestamp="2026-01-01T00:00:00Z") is None
