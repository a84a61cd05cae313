"""A cluster followed by a mesh, in virtual time: what is copied, what is left to the mesh, and what rules change."""

import asyncio

import pytest

from lab.exchange.edits import Edits, read_edits
from lab.exchange.rules import Rules
from lab.exchange.stream import Refused
from lab.exchange.sync import KINDS, OWNERS, Sync, VersionForgotten
from services.api.errors import NotFound, from_status
from services.api.meta import Key
from services.api.resources import resources
from tests.component.exchange.test_load_and_play import with_server


class Event:
    def __init__(self, kind, document):
        self.type, self.document = kind, document


class Cluster:
    """A cluster that a test fills: lists come in pages of two, changes when the test makes them."""

    def __init__(self):
        self.objects, self.changes, self.rv, self.lists = {}, {}, 0, []
        self.refusals = []
        """What the next lists raise."""

    def put(self, document):
        """Create an object or give it a newer state; it has a version and a uid of the cluster's."""
        kind = next(each for each in resources().values() if each.kind == document["kind"])
        self.rv += 1
        metadata = {
            "uid": f"there-{document['metadata']['name']}",
            **document["metadata"],
            "resourceVersion": str(self.rv),
        }
        document = {**document, "apiVersion": kind.api_version, "metadata": metadata}
        at = (kind.name, document["metadata"]["name"])
        self._say(kind, "MODIFIED" if at in self.objects else "ADDED", document)
        self.objects[at] = document

    def delete(self, kind, name):
        self._say(resources()[kind], "DELETED", self.objects.pop((kind, name)))

    def forget(self, kind):
        self.end_watch(kind, VersionForgotten())

    def end_watch(self, kind, error):
        self.changes.setdefault(kind, asyncio.Queue()).put_nowait(error)

    def _say(self, kind, what, document):
        bare = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
        self.changes.setdefault(kind.name, asyncio.Queue()).put_nowait(Event(what, bare))

    async def list(self, kind, *, selector=""):
        self.lists.append(kind.name)
        if self.refusals:
            raise self.refusals.pop()
        items = [document for (name, _), document in self.objects.items() if name == kind.name]
        for start in range(0, max(len(items), 1), 2):
            yield items[start : start + 2], str(self.rv)

    async def watch(self, kind, version, *, selector=""):
        queue = self.changes.setdefault(kind.name, asyncio.Queue())
        while True:
            event = await queue.get()
            if isinstance(event, Exception):
                raise event
            if int(event.document["metadata"]["resourceVersion"]) > int(version or 0) or event.type == "DELETED":
                yield event


def pod(name="a", **more):
    spec = {"containers": [{"name": "c", "image": "x"}], "serviceAccountName": "robot", **more.pop("spec", {})}
    metadata = {"name": name, "namespace": "default", **more}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


def node(name="s1", **labels):
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}}


OWNER = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "there-web-1", "controller": True}]


def synced(script, keep_owners=False, pods="as-they-are", edits=None, kinds=KINDS, said=None):
    """Run a script beside a sync; return what the script returns, and the sync. `said`: the lines it says."""

    async def scenario(client):
        cluster = Cluster()
        say = [].append if said is None else said.append
        sync = Sync(cluster, client, Rules(pods, keep_owners), edits=edits, notify=say)
        chosen = [resources()[name] for name in kinds]
        found = await script(cluster, client, lambda: start(sync, chosen))
        for task in running:
            task.cancel()
        running.clear()
        return found, sync.synced

    running = []

    def start(sync, chosen):
        running.append(asyncio.ensure_future(sync.run(chosen)))
        return asyncio.sleep(1)

    return with_server(scenario)


async def is_there(client, name, kind="pods"):
    try:
        return await client.get(kind, Key("default" if kind == "pods" else "", name))
    except NotFound:
        return None


def test_ks_12_a_pod_is_copied_its_node_and_later_changes_are_not_and_its_deletion_is():
    async def script(cluster, client, start):
        cluster.put(node())
        await start()
        cluster.put(pod())
        await asyncio.sleep(1)
        created = await is_there(client, "a")
        cluster.put(pod(spec={"nodeName": "s1"}))
        cluster.put(pod(spec={"nodeName": "s1"}, labels={"later": "yes"}))
        await asyncio.sleep(1)
        after = await is_there(client, "a")
        cluster.delete("pods", "a")
        await asyncio.sleep(1)
        return created, after, await is_there(client, "a")

    (created, after, gone), found = synced(script)

    assert "nodeName" not in created["spec"]
    assert created["metadata"]["uid"] != "there-a"
    assert created["spec"].get("serviceAccountName", "default") == "default"
    assert "nodeName" not in after["spec"], "the scheduler here decides"
    assert "labels" not in after["metadata"]
    assert gone is None
    assert found.left_out.counts == {"updates of pods that have a node there": 2}


def test_changes_of_pods_without_a_node_and_of_other_kinds_are_copied():
    async def script(cluster, client, start):
        cluster.put(node())
        cluster.put(pod())
        await start()
        cluster.put(pod(labels={"team": "a"}))
        cluster.put(node(zone="b"))
        await asyncio.sleep(1)
        return await is_there(client, "a"), await is_there(client, "s1", "nodes")

    (found, changed), counts = synced(script)

    assert found["metadata"]["labels"] == {"team": "a"}
    assert changed["metadata"]["labels"] == {"zone": "b"}
    assert (counts.created, counts.updated, counts.deleted) == (2, 2, 0)


@pytest.mark.parametrize(("pods", "node_name"), [("as-they-are", "s1"), ("pending", None)])
def test_pods_that_have_a_node_at_the_beginning_keep_it_unless_all_are_to_be_scheduled_anew(pods, node_name):
    async def script(cluster, client, start):
        cluster.put(node())
        cluster.put(pod(spec={"nodeName": "s1"}))
        await start()
        return await is_there(client, "a")

    found, _ = synced(script, pods=pods)

    assert found["spec"].get("nodeName") == node_name


def test_ks_13_owners_are_copied_first_and_make_their_pods_here_or_pods_come_without_owners():
    async def script(cluster, client, start):
        cluster.put(
            {
                "kind": "ReplicaSet",
                "metadata": {"name": "web-1", "namespace": "default"},
                "status": {"replicas": 7},
                "spec": {
                    "selector": {"matchLabels": {"app": "web"}},
                    "template": {
                        "metadata": {"labels": {"app": "web"}},
                        "spec": {"containers": [{"name": "c", "image": "x"}]},
                    },
                },
            }
        )
        cluster.put(pod("web-1-a", ownerReferences=OWNER))
        await start()
        sets, _ = await client.list("replicasets.apps")
        return sets, await is_there(client, "web-1-a")

    (sets, controlled), counts = synced(script, keep_owners=True, kinds=(*KINDS[:-1], *OWNERS, "pods"))
    (none, bare), _ = synced(script)

    assert [(each["metadata"]["name"], (each.get("status") or {}).get("replicas", 0)) for each in sets] == [
        ("web-1", 0)
    ]
    assert controlled is None
    assert counts.left_out.counts == {"pods that their owners make here": 1}
    assert (none, "ownerReferences" in bare["metadata"]) == ([], False)


def test_a_forgotten_version_is_listed_anew_and_what_went_meanwhile_is_deleted():
    async def script(cluster, client, start):
        for name in "abc":
            cluster.put(pod(name))
        await start()
        del cluster.objects["pods", "b"]
        cluster.forget("pods")
        await asyncio.sleep(1)
        return [await is_there(client, name) is not None for name in "abc"], cluster.lists.count("pods")

    (found, lists), counts = synced(script)

    assert (found, lists, counts.deleted) == ([True, False, True], 2, 1)


def test_what_is_deleted_here_may_change_there():
    async def script(cluster, client, start):
        cluster.put(pod())
        await start()
        await client.delete("pods", Key("default", "a"), grace_period_s=0)
        cluster.delete("pods", "a")
        await asyncio.sleep(1)

    _, counts = synced(script)

    assert (counts.failures, counts.deleted) == ([], 0)


def test_namespaces_and_classes_of_every_cluster_stay_as_they_are():
    async def script(cluster, client, start):
        for name in ("default", "kube-system", "team"):
            cluster.put({"kind": "Namespace", "metadata": {"name": name, "labels": {"copied": "yes"}}})
        await start()
        return [
            (await client.get("namespaces", Key("", n)))["metadata"].get("labels", {}).get("copied")
            for n in ("default", "team")
        ]

    assert synced(script)[0] == [None, "yes"]


def test_rules_set_remove_and_drop(tmp_path):
    file = tmp_path / "edits.yaml"
    file.write_text(
        "- select: {kind: Pod, name: 'web-*', labels: 'app in (web)'}\n"
        "  set: {/spec/schedulerName: mine, /metadata/annotations/example.com~1copied: 'yes', /spec/containers/0/image: z}\n"
        "  remove: [/spec/priority, /spec/tolerations/0, /not/there]\n"
        "- {select: {kind: ConfigMap, namespace: secret}, drop: true}\n"
    )
    edits = read_edits(file)
    web = {
        "kind": "Pod",
        "metadata": {"name": "web-1", "labels": {"app": "web"}},
        "spec": {"priority": 3, "tolerations": [{}, {"key": "k"}], "containers": [{"image": "x"}]},
    }

    made = edits.of(web)

    assert made["spec"] == {"schedulerName": "mine", "tolerations": [{"key": "k"}], "containers": [{"image": "z"}]}
    assert made["metadata"]["annotations"] == {"example.com/copied": "yes"}
    assert web["spec"]["priority"] == 3, "the object itself stays"
    assert edits.of({"kind": "ConfigMap", "metadata": {"name": "m", "namespace": "secret"}}) is None
    assert edits.of({**web, "metadata": {"name": "web-1"}}) == {**web, "metadata": {"name": "web-1"}}
    assert Edits().of(web) is web


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: b", "want a list of rules, not dict"),
        ("- {select: {kind: Pod}}", "rule 1: want set, remove or drop: it changes nothing"),
        ("- {drop: true}\n- {set: {spec: 1}}", "rule 2: 'spec': want a JSON pointer such as /spec/schedulerName"),
        ("- {select: {labels: 'a in'}, drop: true}", "rule 1: select.labels: "),
        ("- {replace: {}}", "rule 1: replace: want one of select, set, remove, drop"),
        ("- {drop: maybe}", "rule 1: drop 'maybe': want true or false"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused_by_its_number(tmp_path, text, wanted):
    file = tmp_path / "edits.yaml"
    file.write_text(text)

    with pytest.raises(Refused, match=r".") as refused:
        read_edits(file)

    assert wanted in str(refused.value)


@pytest.mark.parametrize("error", [from_status(503, b"{}"), Refused("it does not answer")])
def test_a_cluster_that_cannot_be_read_for_a_while_is_read_again(error):
    async def script(cluster, client, start):
        await start()
        cluster.end_watch("pods", error)
        cluster.put(pod("a"))
        await asyncio.sleep(3)
        first = await is_there(client, "a")
        cluster.refusals = [error, error]
        cluster.forget("pods")
        cluster.put(pod("b"))
        await asyncio.sleep(5)
        return first, await is_there(client, "b"), len(cluster.refusals)

    (first, second, left), found = synced(script)
    assert first is not None
    assert second is not None
    assert (left, found.failures) == (0, [])


def test_that_a_cluster_stays_away_is_said_once_each_time():
    away = Refused("it does not answer")

    async def script(cluster, client, start):
        await start()
        for names in (("a", "b"), ("c", "d")):
            for _ in range(5):
                cluster.end_watch("pods", away)
            await asyncio.sleep(60)
            for name in names:
                cluster.put(pod(name))
            await asyncio.sleep(1)
        return [each for each in said if each.endswith("trying again")], await is_there(client, "d")

    said = []
    (lines, last), _ = synced(script, said=said)

    assert lines == ["pods: it does not answer; trying again"] * 2
    assert last is not None
