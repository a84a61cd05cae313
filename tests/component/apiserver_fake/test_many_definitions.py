"""One more definition costs an API server the same, however many there are, and a watch that begins anew nothing."""

import asyncio

import msgspec

from apiserver_fake.extensions.aggregated.registration import ApiServiceController
from apiserver_fake.extensions.customresources.definition_index import DefinitionIndex
from apiserver_fake.rest import discovery, openapi
from lab.scenarios.simulation import simloop
from services.api.identity import ADMIN
from services.api.kinds.apiservice import API_SERVICES
from services.api.kinds.customresourcedefinition import DEFINITIONS
from services.api.wire import Request
from tests.component.apiserver_fake.custom_resources import Machine, a_definition


class Decodes:
    """How many bodies of definitions and APIServices are decoded."""

    def __init__(self, monkeypatch):
        self.counts = {"CustomResourceDefinition": 0, "APIService": 0}
        decode = msgspec.json.decode

        def counted(body, *given, **named):
            found = decode(body, *given, **named)
            if isinstance(found, dict) and found.get("kind") in self.counts:
                self.counts[found["kind"]] += 1
            return found

        monkeypatch.setattr(msgspec.json, "decode", counted)

    def taken(self):
        found, self.counts = self.counts, dict.fromkeys(self.counts, 0)
        return found


def numbered(number):
    return a_definition(group=f"group{number}.example.com")


def controller_of(server):
    return ApiServiceController(
        server.store,
        server.api_for(ADMIN),
        server._clock,
        frozenset(),
        server.extensions.definitions().index,
        lambda *_: False,
    )


def in_cluster(test):
    async def run():
        async with Machine().cluster() as cluster:
            following = asyncio.create_task(controller_of(cluster.server).run())
            await test(cluster)
            following.cancel()

    simloop.run(run())


def test_the_same_is_decoded_for_the_last_definition_as_for_the_first(monkeypatch):
    decodes, found = Decodes(monkeypatch), []

    async def test(cluster):
        for number in range(20):
            decodes.taken()
            await cluster.define(numbered(number))
            await asyncio.sleep(2.0)
            found.append(decodes.taken())

    in_cluster(test)

    of_definitions = [each["CustomResourceDefinition"] for each in found]
    assert of_definitions[0] > 0
    assert of_definitions == of_definitions[:1] * 20
    # Whether two steps see an APIService before or after its condition was written depends on who comes first.
    assert max(each["APIService"] for each in found) <= 8


def test_watches_that_begin_anew_decode_nothing_of_what_has_not_changed(monkeypatch):
    decodes = Decodes(monkeypatch)

    async def test(cluster):
        for number in range(20):
            await cluster.define(numbered(number))
        await asyncio.sleep(2.0)
        decodes.taken()
        rv = cluster.server.store.rv
        for kind in (DEFINITIONS, API_SERVICES):
            cluster.server.hub.end_kind(kind)
        await asyncio.sleep(5.0)

        assert decodes.taken() == {"CustomResourceDefinition": 0, "APIService": 0}
        assert cluster.server.store.rv == rv

    in_cluster(test)


def test_a_definition_that_goes_while_no_watch_follows_it_takes_its_apiservice_along():
    async def test(cluster):
        await cluster.define(numbered(1))
        await cluster.define(numbered(2))
        await asyncio.sleep(2.0)
        store = cluster.server.store
        assert store.get(API_SERVICES, "", "v1.group1.example.com") is not None

        cluster.server.hub.end_kind(DEFINITIONS)
        request = Request(verb="delete", resource=DEFINITIONS, name="crontabs.group1.example.com")
        (await cluster.server.api_for(ADMIN).call(request)).unwrap()
        await asyncio.sleep(5.0)

        names = [
            each for each in ("v1.group1.example.com", "v1.group2.example.com") if store.get(API_SERVICES, "", each)
        ]
        assert names == ["v1.group2.example.com"]

    in_cluster(test)


def test_the_index_knows_which_versions_a_group_serves():
    async def test(cluster):
        index, store = DefinitionIndex(), cluster.server.store
        await cluster.define(numbered(1))
        record = store.get(DEFINITIONS, "", "crontabs.group1.example.com")

        index.note(record, is_gone=False)

        assert index.versions(record.name) == ["v1"]
        assert index.is_served("group1.example.com", "v1")
        assert not index.is_served("group1.example.com", "v2")
        assert not index.is_served("group2.example.com", "v1")
        assert [name for name, _ in index.others("tabs.group1.example.com")] == [record.name]
        index.note(record, is_gone=True)
        assert (index.versions(record.name), index.is_served("group1.example.com", "v1")) == ([], False)

    in_cluster(test)


def test_one_more_definition_leaves_the_openapi_documents_of_other_groups_as_they_are():
    async def test(cluster):
        catalogue = cluster.server.catalogue
        await cluster.define(numbered(1))
        places = [(group, version) for group, versions in discovery.groups(catalogue).items() for version in versions]
        before = [openapi.group_version_answer(catalogue, *place) for place in places]
        index = openapi.index(catalogue)

        await cluster.define(numbered(2))

        after = [openapi.group_version_answer(catalogue, *place) for place in places]
        assert [each for each, now in zip(before, after, strict=True) if each is not now] == []
        assert openapi.index(catalogue) != index
        (await cluster.server.api_for(ADMIN).call(redefined(1, cluster))).unwrap()
        await asyncio.sleep(1.0)
        assert openapi.group_version_answer(catalogue, "group1.example.com", "v1") not in before

    in_cluster(test)


def redefined(number, cluster):
    """Return the update of a definition by which its kind has one field more."""
    record = cluster.server.store.get(DEFINITIONS, "", f"crontabs.group{number}.example.com")
    definition = msgspec.json.decode(record.body)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["more"] = {"type": "string"}
    return Request(verb="update", resource=DEFINITIONS, name=record.name, body=msgspec.json.encode(definition))
