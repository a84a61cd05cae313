"""A kind that is stored in one version and served in two."""

import asyncio

import msgspec
import pytest

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.registry.catalogue import Kind
from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.schema.schemas import ANYTHING
from apiserver_fake.registry.served_version import ServedVersion
from apiserver_fake.registry.strategy import Strategy
from apiserver_fake.rest import discovery, paths
from apiserver_fake.rest.versions import versioned_api
from services.api.meta import Resource
from services.api.wire import Request, Response, WatchEvent, WatchRequest

STORED = Resource(kind="Widget", group="example.com", version="v1")
OLD = Resource(kind="Widget", group="example.com", version="v1beta1")


def to_stored(documents):
    return [{**d, "apiVersion": "example.com/v1", "spec": {"size": int(d["spec"]["size"])}} for d in documents]


def from_stored(documents):
    return [{**d, "apiVersion": "example.com/v1beta1", "spec": {"size": str(d["spec"]["size"])}} for d in documents]


SERVED = ServedVersion(OLD, STORED.name, ANYTHING, Conversion(to_stored), Conversion(from_stored))
WIDGETS = Kind(STORED, ANYTHING, Strategy, lambda: (ServedVersion(STORED, STORED.name, ANYTHING), SERVED))


class AnApi:
    """Holds one stored widget."""

    def __init__(self):
        self.stored = {
            "apiVersion": "example.com/v1",
            "metadata": {"name": "a", "resourceVersion": "7"},
            "spec": {"size": 3},
        }
        self.calls = []

    async def call(self, request):
        self.calls.append(request)
        document = {"kind": "WidgetList", "items": [self.stored]} if request.verb == "list" else self.stored
        return Response(code=200, body=msgspec.json.encode(document))

    async def watch(self, request):
        yield [WatchEvent(type="ADDED", body=msgspec.json.encode(self.stored))]
        yield [WatchEvent(type="BOOKMARK", body=b'{"kind":"Widget","apiVersion":"example.com/v1"}')]
        yield [WatchEvent(type="ERROR", body=b'{"kind":"Status"}')]


def call(api, verb, **fields):
    request = Request(verb=verb, resource=STORED.name, name="a", **fields)
    response = asyncio.run(versioned_api(api, SERVED).call(request))
    return response, msgspec.json.decode(response.body)


@pytest.mark.parametrize("verb", ["create", "update", "patch"])
def test_what_is_written_goes_out_as_it_came_and_is_answered_in_the_callers_version(verb):
    api = AnApi()
    body = b'{"apiVersion":"example.com/v1beta1","metadata":{"name":"a"},"spec":{"size":"5"}}'

    _, answered = call(api, verb, body=body)

    [sent] = api.calls
    assert (sent.verb, sent.body, sent.api_version) == (verb, body, "example.com/v1beta1")
    assert (answered["apiVersion"], answered["spec"]) == ("example.com/v1beta1", {"size": "3"})


def test_a_list_has_the_callers_version_itself_and_in_each_item():
    _, found = call(AnApi(), "list")

    assert (found["kind"], found["apiVersion"]) == ("WidgetList", "example.com/v1beta1")
    assert [item["spec"] for item in found["items"]] == [{"size": "3"}]


def test_events_are_converted_but_errors_are_not():
    async def collect():
        api = versioned_api(AnApi(), SERVED)
        return [
            msgspec.json.decode(e.body) async for batch in api.watch(WatchRequest(resource=STORED.name)) for e in batch
        ]

    added, bookmark, error = asyncio.run(collect())

    assert (added["apiVersion"], added["spec"]) == ("example.com/v1beta1", {"size": "3"})
    assert bookmark["apiVersion"] == "example.com/v1beta1"
    assert error == {"kind": "Status"}


def test_defining_a_kind_changes_what_is_served_and_undefining_it_changes_it_back():
    catalogue = whole_catalogue()
    before = discovery.document_at(catalogue, "apis").body

    catalogue.define([WIDGETS])

    assert discovery.groups(catalogue)["example.com"] == ("v1", "v1beta1")
    route = paths.parse(catalogue, "example.com", "v1beta1", ["namespaces", "n", "widgets", "a"])
    assert (route.request("get").resource, route.resource.version) == ("widgets.example.com", "v1beta1")
    catalogue.define([])
    assert discovery.document_at(catalogue, "apis").body == before


def test_no_object_takes_the_place_of_a_kind_that_is_built_in():
    catalogue = whole_catalogue()
    pods = catalogue.kind("pods")

    catalogue.define([Kind(pods.resource, ANYTHING, Strategy, tuple)])

    assert catalogue.kind("pods") is pods
