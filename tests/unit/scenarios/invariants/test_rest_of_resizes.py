"""At rest every resize is done, or it is said why not."""

import pytest

from lab.scenarios.invariants import unrest_of

SMALL, BIG = {"cpu": "500m"}, {"cpu": "1"}


def pod(desired, allocated, actual, condition="", reason="", **status):
    conditions = [{"type": condition, "status": "True", "reason": reason}] if condition else []
    container = {
        "name": "c",
        "state": {"running": {}},
        "allocatedResources": allocated,
        "resources": {"requests": actual},
    }
    return {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": desired}}]},
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [container], **status},
    }


def said(document):
    return [detail for _, detail in unrest_of({"pods": [document]})]


@pytest.mark.parametrize("document", [
    pod(BIG, {"cpu": "1000m"}, BIG),
    pod(BIG, SMALL, SMALL, "PodResizePending", "Deferred"),
    pod(SMALL, SMALL, BIG, "PodResizeInProgress", "Error"),
    pod(BIG, SMALL, SMALL, phase="Failed"),
], ids=["done", "waits", "fails", "over"])  # fmt: skip
def test_a_resize_that_is_done_or_explained_is_at_rest(document):
    assert said(document) == []


@pytest.mark.parametrize(("document", "why"), [
    (pod(BIG, SMALL, SMALL), "asks for another size than its node has allocated"),
    (pod(BIG, BIG, BIG, "PodResizePending", "Deferred"), "has the size it asks for"),
    (pod(BIG, BIG, SMALL, "PodResizeInProgress"), "runs with another size than was allocated"),
])  # fmt: skip
def test_a_resize_without_a_condition_is_not_at_rest(document, why):
    [detail] = said(document)

    assert why in detail
