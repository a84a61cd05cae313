"""A cluster that is recorded: what breaks for a while is asked again, and nothing between is lost."""

import asyncio

import pytest

from lab.exchange import recorder
from lab.exchange.cluster import Event, Expired
from lab.exchange.recorder import Recorder
from lab.exchange.stream import Refused
from lab.scenarios.simulation import simloop
from services.api.errors import from_status
from services.api.resources import resources
from tests.component.exchange.test_load_and_play import LoopClock

UNAVAILABLE = from_status(503, b"{}")


def pod(name, rv):
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "default", "resourceVersion": str(rv)}, "spec": {}}


class Cluster:
    """Lists and watches that give, one after the other, what a test says: pages and events, or errors."""

    def __init__(self, lists, watches):
        self.lists, self.watches, self.versions = list(lists), list(watches), []

    async def list(self, kind, *, selector=""):
        found = self.lists.pop(0)
        if isinstance(found, Exception):
            raise found
        yield found

    async def watch(self, kind, version, *, selector=""):
        self.versions.append(version)
        found = self.watches.pop(0) if self.watches else asyncio.Event()
        if isinstance(found, Exception):
            raise found
        if isinstance(found, asyncio.Event):
            await found.wait()
        for event in found:
            yield event


class Writer:
    def __init__(self):
        self.objects, self.changes = [], []

    def put(self, document):
        self.objects.append(document["metadata"]["name"])

    def change(self, change):
        self.changes.append((change.method, change.name))


def recorded(cluster):
    """Record for an hour; return what was written."""
    writer = Writer()

    async def record():
        recording = Recorder(cluster, writer, LoopClock())
        versions = await recording.snapshot([resources()["pods"]])
        async with asyncio.timeout(3600.0):
            await recording.follow(versions)

    with pytest.raises(TimeoutError):
        simloop.run(record())
    return writer


@pytest.mark.parametrize("error", [UNAVAILABLE, Refused("it does not answer")])
def test_a_list_that_is_refused_after_a_forgotten_version_is_asked_for_again(error):
    lists = [([pod("a", 1), pod("b", 1)], "1"), error, error, ([pod("a", 1), pod("c", 7)], "7")]
    cluster = Cluster(lists, [[Event("MODIFIED", pod("b", 2))], Expired("gone"), [Event("ADDED", pod("d", 8))]])

    found = recorded(cluster)

    assert ["a", "b"] == found.objects
    assert [("update", "b"), ("create", "c"), ("delete", "b"), ("create", "d")] == found.changes
    assert ["1", "2", "7", "8"] == cluster.versions


def test_a_cluster_that_stays_away_ends_the_recording_in_one_line(monkeypatch):
    monkeypatch.setattr(recorder, "BROKEN_MAX", 2)
    cluster = Cluster([([], "1")], [Expired("gone")])
    cluster.lists += [UNAVAILABLE] * 3

    with pytest.raises(Refused, match=r"^pods: the server answered 503$"):
        simloop.run(_follow(cluster))


async def _follow(cluster):
    recording = Recorder(cluster, Writer(), LoopClock())
    await recording.follow(await recording.snapshot([resources()["pods"]]))
