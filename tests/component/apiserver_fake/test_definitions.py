"""What becomes of a CustomResourceDefinition: names, establishment, serving, deletion, and a restart."""

import asyncio

from apiserver_fake.rest import discovery
from lab.scenarios.simulation import simloop
from services.api.kinds.customresourcedefinition import DEFINITIONS
from tests.component.apiserver_fake.custom_resources import (
    CRONTABS,
    GROUP,
    Machine,
    a_crontab,
    a_definition,
    a_version,
    conditions,
)

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def in_cluster(test):
    """Run a test's coroutine function against a new server."""

    async def run():
        async with Machine().cluster() as cluster:
            await test(cluster)

    simloop.run(run())


def test_names_are_accepted_then_the_kind_is_established_each_by_a_write_that_watches_show():
    async def test(cluster):
        seen = []
        watching = asyncio.create_task(cluster.watched(DEFINITIONS, seen))
        found = await cluster.define(a_definition(names={"shortNames": ["ct"]}))
        watching.cancel()

        assert conditions(found) == {
            "NamesAccepted": ("True", "NoConflicts"),
            "Established": ("True", "InitialNamesAccepted"),
        }
        names = {"kind": "CronTab", "listKind": "CronTabList", "plural": "crontabs", "singular": "crontab"}
        assert found["status"]["acceptedNames"] == {**names, "shortNames": ["ct"]}
        assert found["status"]["storedVersions"] == ["v1"]
        shown = [(kind, conditions(document)) for kind, document in seen if kind != "BOOKMARK"]
        assert shown == [
            ("ADDED", {}),
            ("MODIFIED", {"NamesAccepted": ("True", "NoConflicts"), "Established": ("False", "Installing")}),
            ("MODIFIED", conditions(found)),
        ]

    in_cluster(test)


def test_a_name_that_another_definition_of_the_group_has_is_refused_until_it_is_free():
    async def test(cluster):
        await cluster.define(a_definition())
        found = await cluster.define(a_definition(plural="tabs", names={"listKind": "CronTabList"}, kind="Tab"))

        assert conditions(found) == {
            "NamesAccepted": ("False", "ListKindConflict"),
            "Established": ("False", "NotAccepted"),
        }
        assert found["status"]["conditions"][0]["message"] == '"CronTabList" is already in use'
        assert not cluster.is_served(plural="tabs")

        await cluster.call("delete", DEFINITIONS, CRONTABS, code=200)
        await asyncio.sleep(1)

        assert conditions(await cluster.definition(f"tabs.{GROUP}"))["Established"][0] == "True"
        assert cluster.is_served(plural="tabs")

    in_cluster(test)


def test_the_same_names_in_another_group_are_no_conflict():
    async def test(cluster):
        await cluster.define(a_definition())
        found = await cluster.define(a_definition(group="other.example.com"))

        assert conditions(found)["NamesAccepted"] == ("True", "NoConflicts")

    in_cluster(test)


def test_a_deleted_definition_takes_its_objects_with_it_and_is_served_until_they_are_gone():
    async def test(cluster):
        await cluster.define(a_definition())
        held = a_crontab("held")
        held["metadata"]["finalizers"] = ["example.com/hold"]
        await cluster.call("create", body=held, code=201)
        await cluster.call("create", body=a_crontab("free"), code=201)

        marked = await cluster.call("delete", DEFINITIONS, CRONTABS, code=200)
        await asyncio.sleep(1)
        found = await cluster.definition()
        left = await cluster.call("list")
        refused = await cluster.call("create", body=a_crontab("late"), code=405)

        assert marked["metadata"]["finalizers"] == [FINALIZER]
        assert conditions(marked)["Terminating"] == ("True", "InstanceDeletionPending")
        assert conditions(found)["Terminating"] == ("True", "InstanceDeletionInProgress")
        assert [each["metadata"]["name"] for each in left["items"]] == ["held"]
        assert refused["message"] == "create not allowed while custom resource definition is terminating"
        verbs = discovery.resource_list(cluster.server.catalogue, GROUP, "v1")["resources"][0]["verbs"]
        assert verbs == ["delete", "deletecollection", "get", "list", "watch"]

        await cluster.call("patch", name="held", body={"metadata": {"finalizers": None}}, patch_type="merge", code=200)
        await asyncio.sleep(6)

        assert not cluster.is_served()
        await cluster.call("get", DEFINITIONS, CRONTABS, code=404)
        await cluster.call("list", code=404)

    in_cluster(test)


def test_the_last_event_of_a_definition_says_that_all_instances_were_removed():
    async def test(cluster):
        seen = []
        await cluster.define(a_definition())
        watching = asyncio.create_task(cluster.watched(DEFINITIONS, seen))
        await cluster.call("delete", DEFINITIONS, CRONTABS, code=200)
        await asyncio.sleep(1)
        watching.cancel()

        kind, last = [each for each in seen if each[0] != "BOOKMARK"][-1]
        assert (kind, conditions(last)["Terminating"]) == ("DELETED", ("False", "InstanceDeletionCompleted"))
        assert not last["metadata"].get("finalizers")

    in_cluster(test)


def test_kinds_and_their_objects_are_known_again_after_a_crash():
    async def run():
        machine = Machine()
        async with machine.cluster() as cluster:
            await cluster.define(a_definition(a_version(selectableFields=[{"jsonPath": ".spec.image"}])))
            await cluster.call("create", body=a_crontab(image="a"), code=201)
            await cluster.call("create", body=a_crontab("two"), code=201)
            state = cluster.server.store.state_hash
        async with machine.cluster() as cluster:
            assert cluster.is_served()
            assert cluster.server.store.state_hash == state
            chosen = await cluster.call("list", field_selector="spec.image=a")
            assert [each["metadata"]["name"] for each in chosen["items"]] == ["one"]
            await cluster.call("create", body=a_crontab("three"), code=201)

    simloop.run(run())


def test_a_crash_before_the_names_are_accepted_is_gone_on_from():
    async def run():
        machine = Machine()
        async with machine.cluster() as cluster:
            cluster.server.extensions.definitions().look_at = lambda record, is_gone: None
            await cluster.call("create", DEFINITIONS, body=a_definition(), code=201)
            await asyncio.sleep(1)
            assert not conditions(await cluster.definition())
        async with machine.cluster() as cluster:
            await asyncio.sleep(1)
            assert conditions(await cluster.definition())["Established"][0] == "True"
            assert cluster.is_served()

    simloop.run(run())


def test_objects_whose_definition_is_gone_do_no_harm_and_are_there_again_with_it():
    async def run():
        machine = Machine()
        async with machine.cluster() as cluster:
            await cluster.define(a_definition())
            await cluster.call("create", body=a_crontab(), code=201)
            # By force: without the finalizer nothing deletes its objects.
            await cluster.call("delete", DEFINITIONS, CRONTABS, code=200)
            await cluster.call(
                "patch", DEFINITIONS, CRONTABS, {"metadata": {"finalizers": None}}, patch_type="merge", code=200
            )
        async with machine.cluster() as cluster:
            assert not cluster.is_served()
            await cluster.define(a_definition())
            left = await cluster.call("list")
            assert [each["metadata"]["name"] for each in left["items"]] == ["one"]

    simloop.run(run())


def test_a_watch_ends_when_its_kind_is_defined_anew_and_goes_on_where_it_was():
    async def test(cluster):
        found = await cluster.define(a_definition())
        seen = []
        watching = asyncio.create_task(cluster.watched(CRONTABS, seen))
        await cluster.call("create", body=a_crontab(), code=201)
        await asyncio.sleep(1)

        found["spec"]["versions"][0]["additionalPrinterColumns"] = [
            {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"}
        ]
        await cluster.call("update", DEFINITIONS, CRONTABS, found, code=200)
        await asyncio.wait_for(watching, 1)

        assert [kind for kind, _ in seen if kind != "BOOKMARK"] == ["ADDED", "END"]
        columns = cluster.server.catalogue.served_versions[GROUP, "v1"]["crontabs"].resource.columns
        assert [column.name for column in columns] == ["Name", "Spec"]

    in_cluster(test)


def test_a_watch_goes_on_when_nothing_of_a_definition_changed_that_matters_to_its_kind():
    async def test(cluster):
        found = await cluster.define(a_definition())
        seen = []
        watching = asyncio.create_task(cluster.watched(CRONTABS, seen))
        await asyncio.sleep(1)
        before = cluster.server.catalogue.served_versions[GROUP, "v1"]["crontabs"]

        found["metadata"]["annotations"] = {"owner": "team"}
        await cluster.call("update", DEFINITIONS, CRONTABS, found, code=200)
        await cluster.call("create", body=a_crontab(), code=201)
        await asyncio.sleep(1)

        assert not watching.done()
        watching.cancel()
        assert [kind for kind, _ in seen if kind != "BOOKMARK"] == ["ADDED"]
        assert cluster.server.catalogue.served_versions[GROUP, "v1"]["crontabs"] is before

    in_cluster(test)
