"""The past of the store: objects and lists as they were at a version, and what became of one object."""

import asyncio

import pytest

from tests.component.apiserver_fake.test_access import a_cluster

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
WHO = "system:mesh-admin"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def cluster(tmp_path):
    """Run a coroutine function with a server of its own, with a durable store in this folder."""

    def run(scenario):
        async def whole():
            async with a_cluster(tmp_path, engine="sqlite") as one:
                return await scenario(one)

        return asyncio.run(whole())

    return run


async def edited(c):
    """Make `a` with three versions and remove it, with another object beside it; return the versions."""
    made = await c.done("admin", "POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    beside = await c.done("admin", "POST", MAPS, {"metadata": {"name": "b"}})
    changed = await c.done("admin", "PATCH", f"{MAPS}/a", {"data": {"k": "2", "l": "new"}}, headers=MERGE)
    await c.done("admin", "DELETE", f"{MAPS}/a")
    last = await c.done("admin", "POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "3"}})
    return [int(each["metadata"]["resourceVersion"]) for each in (made, beside, changed, last)]


def names(answer):
    return [item["metadata"]["name"] for item in answer["items"]]


def test_an_object_is_read_as_it_was_at_a_version(cluster):
    async def scenario(c):
        made, beside, changed, last = await edited(c)

        async def data(at):
            return (await c.done("admin", "GET", f"{MAPS}/a?at={at}"))["data"]

        assert [await data(at) for at in (made, beside, changed, last)] == [
            {"k": "1"}, {"k": "1"}, {"k": "2", "l": "new"}, {"k": "3"},
        ]  # fmt: skip
        for nothing in (made - 1, changed + 1):  # before it was made, and while it was gone
            assert (await c.refused("admin", "GET", f"{MAPS}/a?at={nothing}"))[0] == 404

    cluster(scenario)


def test_a_list_is_read_as_it_was_at_a_version_in_any_form_and_in_pages(cluster):
    async def scenario(c):
        made, beside, changed, _ = await edited(c)

        for at, found in ((made, ["a"]), (beside, ["a", "b"]), (changed + 1, ["b"])):
            listed = await c.done("admin", "GET", f"{MAPS}?at={at}&labelSelector=!x&fieldSelector=metadata.name!=c")
            kept = [name for name in names(listed) if not name.startswith("kube-")]
            assert (kept, listed["metadata"]["resourceVersion"]) == (found, str(at))
        table = await c.call("admin", "GET", f"{MAPS}?at={made}&fieldSelector=metadata.name=a", headers=TABLE)
        assert [row["cells"][0] for row in table[1]["rows"]] == ["a"]
        first = await c.done("admin", "GET", f"{MAPS}?at={beside}&limit=1")
        rest = await c.done("admin", "GET", f"{MAPS}?continue={first['metadata']['continue']}")
        assert first["metadata"]["resourceVersion"] == rest["metadata"]["resourceVersion"] == str(beside)

    cluster(scenario)


@pytest.mark.parametrize(
    ("method", "path", "code", "said"),
    [
        ("GET", f"{MAPS}/a?at=0", 400, 'at: Invalid value: "0": want a version from 1 on'),
        ("GET", f"{MAPS}?at=01", 400, "must be a decimal number"),
        ("GET", f"{MAPS}?at=x", 400, "must be a decimal number"),
        ("GET", f"{MAPS}?at=2&resourceVersion=3", 400, 'not beside resourceVersion "3"'),
        ("GET", f"{MAPS}?at=2&at=3", 400, "given 2 times"),
        ("GET", f"{MAPS}?at=2&watch=1", 400, "a watch has no past"),
        ("GET", f"{MAPS}/a?at=999999", 504, "Too large resource version: 999999"),
        ("GET", "/apis/metrics.k8s.io/v1beta1/nodes?at=2", 400, "have no past"),
    ],
)
def test_what_cannot_be_read_of_the_past_is_refused(cluster, monkeypatch, method, path, code, said):
    monkeypatch.setattr("apiserver_fake.storage.watch_hub.FUTURE_WAIT_S", 0.01)

    async def scenario(c):
        await edited(c)
        refusal = await c.refused("admin", method, path)
        assert refusal[0] == code
        assert said in refusal[1]

    cluster(scenario)


def test_below_the_window_is_410_and_nothing_is_read_of_it(cluster):
    async def scenario(c):
        made, *_ = await edited(c)
        c.server.store._window_changes = 0
        c.server.store.trim(c.server.store._window[-1][1] + 10_000)

        for path in (f"{MAPS}/a?at={made}", f"{MAPS}?at={made}"):
            assert (await c.refused("admin", "GET", path))[0] == 410
        found = await c.done("admin", "GET", f"{MAPS}/a/history")
        assert found["items"] == []

    cluster(scenario)


def test_history_says_who_wrote_what_when_and_because_of_which_trace(cluster):
    async def scenario(c):
        versions = await edited(c)
        await c.done("admin", "PATCH", f"{MAPS}/a", {"data": {"k": "4"}}, headers={**MERGE, "x-request-id": "mine"})
        return versions, await c.done("admin", "GET", f"{MAPS}/a/history")

    (made, _, changed, last), found = cluster(scenario)

    assert found["kind"] == "ChangeList"
    items = found["items"]
    assert [(item["type"], item["verb"], item["user"]) for item in items] == [
        ("ADDED", "create", WHO), ("MODIFIED", "patch", WHO), ("DELETED", "delete", WHO),
        ("ADDED", "create", WHO), ("MODIFIED", "patch", WHO),
    ]  # fmt: skip
    assert [int(item["resourceVersion"]) for item in items][:2] == [made, changed]
    assert items[4]["previousResourceVersion"] == items[3]["resourceVersion"] == str(last)
    assert items[4]["requestID"] == "mine"
    assert len({item["uid"] for item in items}) == 2
    assert all(item["time"].endswith("Z") and item["time"] > "2020" for item in items)
    assert items[1]["changed"] == [{"path": "data.k", "from": "1", "to": "2"}, {"path": "data.l", "to": "new"}]
    assert {"path": "data", "from": {"k": "2", "l": "new"}} in items[2]["changed"]
    assert items[4]["object"]["data"] == {"k": "4"}


def test_history_survives_a_restart(cluster):
    async def before(c):
        await edited(c)
        return await c.done("admin", "GET", f"{MAPS}/a/history")

    async def after(c):
        return await c.done("admin", "GET", f"{MAPS}/a/history")

    assert cluster(before)["items"] == cluster(after)["items"]


def test_history_is_of_one_object_that_is_or_was_there_and_for_those_who_may_read_it(cluster):
    async def scenario(c):
        await edited(c)
        unknown = await c.refused("admin", "GET", f"{MAPS}/zzz/history")
        assert unknown == (404, 'configmaps "zzz" not found')
        await c.role("reads", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})
        await c.binding("reads", "reads", "ann")
        assert (await c.done("ann", "GET", f"{MAPS}/a?at={c.server.store.rv}"))["data"] == {"k": "3"}
        refusal = await c.refused("ann", "GET", f"{MAPS}/a/history")
        assert 'cannot get resource "configmaps/history"' in refusal[1]
        assert (await c.refused("admin", "PUT", f"{MAPS}/a/history", {}))[0] == 405

    cluster(scenario)


def test_a_node_reads_no_past(cluster):
    async def scenario(c):
        await c.done("admin", "POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
        await c.done("node", "GET", "/api/v1/nodes/n1")
        assert (await c.refused("node", "GET", f"/api/v1/nodes/n1?at={c.server.store.rv}"))[0] == 403
        assert (await c.refused("node", "GET", "/api/v1/nodes/n1/history"))[0] == 403

    cluster(scenario)
