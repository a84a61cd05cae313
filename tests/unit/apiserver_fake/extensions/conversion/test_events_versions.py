"""events.k8s.io/v1 Events: the same object under other names, there and back."""

import asyncio

import msgspec
import pytest

from apiserver_fake.extensions.conversion.events import EVENTS_V1, FROM_STORED, TO_STORED
from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.rest.versions import versioned_api
from services.api.errors import BadRequest
from services.api.printing import cells
from services.api.wire import Request, Response

STORED = {
    "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "text", "reason": "Pulled", "type": "Normal",
    "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet"}, "count": 3,
    "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:05Z", "reportingComponent": "kubelet",
}  # fmt: skip


def test_an_event_has_the_other_names_and_comes_back_as_it_was():
    [newer] = FROM_STORED.rule([STORED])
    [back] = TO_STORED.rule([newer])

    assert newer["apiVersion"] == "events.k8s.io/v1"
    assert (newer["note"], newer["regarding"]["name"], newer["deprecatedCount"]) == ("text", "p", 3)
    assert (newer["deprecatedSource"], newer["reportingController"]) == ({"component": "kubelet"}, "kubelet")
    assert {name: value for name, value in back.items() if name != "eventTime"} == STORED


def test_its_table_shows_what_that_of_core_events_shows():
    [newer] = FROM_STORED.rule([STORED])
    assert cells(EVENTS_V1.columns, newer, 1_767_225_610.0)[:7] == [
        "5s", "Normal", "Pulled", "pod/p", "", "kubelet", "text"]  # fmt: skip


class Recorder:
    def __init__(self):
        self.asked = []

    async def call(self, request):
        self.asked.append(request.field_selector)
        return Response(code=200, body=msgspec.json.encode({"items": [], "metadata": {}}))


def test_field_selectors_use_the_names_of_the_version():
    served = whole_catalogue().served_versions["events.k8s.io", "v1"]["events"]
    api = Recorder()
    selector = "regarding.kind=Pod,reportingController!=x,type=Normal"
    asyncio.run(versioned_api(api, served).call(Request(verb="list", resource="events", field_selector=selector)))
    assert api.asked == ["involvedObject.kind=Pod,reportingComponent!=x,type=Normal"]
    wrong = Request(verb="list", resource="events", field_selector="involvedObject.kind=Pod")
    with pytest.raises(BadRequest, match=r"field label not supported: involvedObject.kind"):
        asyncio.run(versioned_api(api, served).call(wrong))
