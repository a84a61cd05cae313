"""The write and read path of any kind, evaluated by hand: prepare, stage, publish."""

import asyncio
import random

import msgspec
import pytest

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.registry.read import ContinueTokens, NotYet
from apiserver_fake.registry.registry import Registry
from apiserver_fake.registry.writes.new_objects import Limits
from apiserver_fake.storage.store import Store
from services.api.errors import AlreadyExists, ApiError, BadRequest, Conflict, Expired, Forbidden, Invalid, NotFound
from services.api.identity import ADMIN
from services.api.switches import Switches
from services.api.wire import Request


class AClock:
    """Time that a test moves."""

    at = 1_000.0

    def now(self):
        return self.at

    def wall(self):
        return self.at


class World:
    """A registry over a store with one namespace."""

    def __init__(self, *, limits=None, chooser=None, window_changes=20_000):
        self.clock, self.store = AClock(), Store(window_changes=window_changes)
        self.random = chooser or random.Random(1)
        self.registry = Registry(
            self.store,
            whole_catalogue(),
            clock=self.clock,
            random=self.random,
            switches=Switches(),
            cursors=ContinueTokens(b"secret"),
            limits=limits or Limits(),
        )
        self.write("create", "namespaces", body={"metadata": {"name": "default"}}, namespace="")

    def write(self, verb, resource="configmaps", name="", *, body=None, namespace="default", **fields):
        """Perform one write and return its document, or raise its refusal."""
        return msgspec.json.decode(self.respond(verb, resource, name, body=body, namespace=namespace, **fields).body)

    def respond(self, verb, resource="configmaps", name="", *, body=None, namespace="default", **fields):
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        request = Request(verb=verb, resource=resource, namespace=namespace, name=name, body=data, **fields)
        plan = self.registry.prepare(ADMIN, request, "tp")
        staged = self.store.stage()
        response = plan(staged)
        staged.seal(0)
        self.store.publish(staged.changes, self.clock.at)
        return response

    def patch(self, name, patch, **fields):
        return self.write("patch", name=name, body=patch, patch_type="merge", **fields)

    def list(self, resource="configmaps", **fields):
        response = self.registry.reads.list(Request(verb="list", resource=resource, **fields))
        document = msgspec.json.decode(response.body)
        assert document["metadata"]["resourceVersion"] == str(response.rv)
        return document

    def last_change(self):
        (change,) = self.store.changes_after("configmaps", self.store.rv - 1)
        return change


def a_configmap(name="a", **meta):
    return {"metadata": {"name": name, **meta}, "data": {"k": "v"}}


def names(document):
    return [item["metadata"]["name"] for item in document["items"]]


def test_s22_server_owned_fields_of_a_create_are_the_servers():
    world = World()
    claimed = {
        "uid": "mine", "creationTimestamp": "1990-01-01T00:00:00Z", "generation": 9,
        "deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 1,
    }  # fmt: skip

    made = world.write("create", body=a_configmap(**claimed))

    meta = made["metadata"]
    assert (made["apiVersion"], made["kind"], meta["namespace"]) == ("v1", "ConfigMap", "default")
    assert meta["creationTimestamp"] == "1970-01-01T00:16:40Z"
    assert meta["resourceVersion"] == str(world.store.rv)
    assert meta["uid"] != "mine"
    assert not {"deletionTimestamp", "deletionGracePeriodSeconds"} & meta.keys()


def test_s20_a_recreated_name_has_a_new_uid():
    world = World()
    first = world.write("create", body=a_configmap())["metadata"]["uid"]
    world.write("delete", name="a")

    second = world.write("create", body=a_configmap())["metadata"]["uid"]

    assert first != second
    assert (len(first), first[14], first[19] in "89ab") == (36, "4", True)


def test_fields_that_a_kind_does_not_have_are_not_stored():
    world = World()
    made = world.write("create", body={**a_configmap(), "strange": {"a": [1, {"b": None}]}})

    patched = world.patch("a", {"data": {"k": "w"}, "strange": 1})

    assert "strange" not in made
    assert "strange" not in patched
    assert patched["data"] == {"k": "w"}


def test_creating_what_exists_is_already_exists():
    world = World()
    world.write("create", body=a_configmap())

    with pytest.raises(AlreadyExists, match='configmaps "a" already exists') as refused:
        world.write("create", body=a_configmap())

    assert refused.value.details == {"name": "a", "kind": "configmaps"}


def test_a_missing_namespace_is_not_found_and_a_terminating_one_forbids_creation():
    world = World()
    with pytest.raises(NotFound, match='namespaces "nons" not found'):
        world.write("create", body=a_configmap(), namespace="nons")

    world.write("create", "namespaces", body={"metadata": {"name": "old"}}, namespace="")
    world.write("delete", "namespaces", "old", namespace="")

    with pytest.raises(Forbidden, match="it is being terminated") as refused:
        world.write("create", body=a_configmap(), namespace="old")
    assert refused.value.details["causes"][0]["reason"] == "NamespaceTerminating"


class Stubborn(random.Random):
    """Chooses the first letter for the first two names, then properly."""

    stubborn = 10

    def choice(self, seq):
        self.stubborn -= 1
        return seq[0] if self.stubborn >= 0 else super().choice(seq)


def test_a_generated_name_that_is_taken_is_drawn_again():
    world = World(chooser=Stubborn(1))
    body = {"metadata": {"generateName": "a-"}}

    first, second = (world.write("create", body=body)["metadata"]["name"] for _ in range(2))

    assert first == "a-bbbbb"
    assert second.startswith("a-")
    assert second != first


def test_creations_beyond_the_limits_are_refused_as_over_quota():
    world = World(limits=Limits(objects=100, per_namespace=2))
    for name in "ab":
        world.write("create", body=a_configmap(name))

    with pytest.raises(Forbidden, match="holds 2, at most 2") as refused:
        world.write("create", body=a_configmap("c"))

    assert refused.value.reason == "QuotaExceeded"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "json parse error: unexpected end of JSON input"),
        (b"[]", "json: cannot unmarshal array into Go value"),
        (
            b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}',
            (
                r'^Pod in version "v1" cannot be handled as a ConfigMap: converting \(v1.Pod\) to \(core.ConfigMap\): '
                "unknown conversion$"
            ),
        ),
        (
            b'{"kind":"Foo","metadata":{"name":"a"}}',
            (
                '^Foo in version "v1" cannot be handled as a ConfigMap: no kind "Foo" is registered for version "v1" in '
                'scheme "pkg/api/legacyscheme/scheme.go:30"$'
            ),
        ),
        (b'{"apiVersion":"v2","metadata":{"name":"a"}}', '^ConfigMap in version "v2" .* for version "v2" in scheme'),
        (b'{"metadata":[]}', "metadata must be an object"),
        (b'{"metadata":{"name":"a","namespace":"other"}}', "does not match the namespace"),
        (b'{"metadata":{"name":"a","labels":{"x":1}}}', "cannot"),
        (b'{"metadata":{"name":7}}', "cannot"),
        (b'{"metadata":{"name":"a"},"data":{"k":1}}', "cannot unmarshal number"),
    ],
)
def test_a_body_that_is_no_configmap_is_a_bad_request(body, message):
    with pytest.raises(BadRequest, match=message):
        World().write("create", body=body)


def test_an_update_without_change_takes_no_version():
    world = World()
    made = world.write("create", body=a_configmap())
    before = world.store.rv

    assert world.write("update", name="a", body=made) == made
    assert world.patch("a", {"data": {"k": "v"}}) == made
    assert world.patch("a", {}) == made
    assert world.store.rv == before


def test_s6_an_old_version_is_a_conflict_wherever_it_is_named():
    world = World()
    old = world.write("create", body=a_configmap())
    world.patch("a", {"data": {"k": "w"}})
    version = old["metadata"]["resourceVersion"]
    text = (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )

    for attempt in (
        lambda: world.write("update", name="a", body=old),
        lambda: world.patch("a", {"metadata": {"resourceVersion": version}, "data": {"k": "x"}}),
        lambda: world.patch("a", {"data": {"k": "x"}}, resource_version=version),
    ):
        with pytest.raises(Conflict) as refused:
            attempt()
        assert refused.value.message == text
    for attempt in (
        lambda: world.write("delete", name="a", body={"preconditions": {"resourceVersion": version}}),
        lambda: world.write("delete", name="a", resource_version=version),
    ):
        with pytest.raises(
            Conflict, match=rf"the precondition \({version}\) does not match the ResourceVersion in record"
        ):
            attempt()
    assert world.store.get("configmaps", "default", "a") is not None


def test_s7_another_uid_is_a_conflict_that_names_both():
    world = World()
    uid = world.write("create", body=a_configmap())["metadata"]["uid"]

    for attempt in (
        lambda: world.patch("a", {"data": {}}, uid="other"),
        lambda: world.write("delete", name="a", body={"preconditions": {"uid": "other"}}),
    ):
        with pytest.raises(Conflict, match=rf"precondition \(other\) does not match the UID in record \({uid}\)"):
            attempt()


def test_s6_a_put_without_a_version_is_for_some_kinds_only():
    world = World()
    world.write("create", body=a_configmap())
    world.write("create", "leases.coordination.k8s.io", body={"metadata": {"name": "l"}, "spec": {}})

    world.write("update", name="a", body={"metadata": {"name": "a"}, "data": {"k": "w"}})

    with pytest.raises(Invalid, match=r"metadata\.resourceVersion: Invalid value: 0x0"):
        world.write("update", "leases.coordination.k8s.io", "l", body={"metadata": {"name": "l"}, "spec": {}})


def test_s22_an_update_cannot_touch_server_owned_fields():
    world = World()
    made = world.write("create", body=a_configmap())
    meta = made["metadata"]
    changed = {**made, "data": {"k": "w"}, "metadata": {**meta, "creationTimestamp": "1990-01-01T00:00:00Z"}}
    changed["metadata"]["deletionTimestamp"] = "1990-01-01T00:00:00Z"

    after = world.write("update", name="a", body=changed)["metadata"]

    assert {**after, "resourceVersion": ""} == {**meta, "resourceVersion": ""}


def test_s19_a_finalizer_holds_a_deleted_object_and_deletion_is_never_undone():
    world = World()
    world.write("create", body=a_configmap(finalizers=["example.com/hold"]))

    held = world.write("delete", name="a")["metadata"]
    again = world.write("delete", name="a")["metadata"]
    patched = world.patch("a", {"metadata": {"deletionTimestamp": None}, "data": {"k": "w"}})["metadata"]

    assert held["deletionTimestamp"] == again["deletionTimestamp"] == patched["deletionTimestamp"]
    assert held["resourceVersion"] == again["resourceVersion"]
    added = ["example.com/more", "example.com/hold", "example.com/also"]
    with pytest.raises(Invalid) as refused:
        world.patch("a", {"metadata": {"finalizers": added}})
    assert refused.value.message == (
        'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being '
        'deleted, found new finalizers []string{"example.com/also", "example.com/more"}'
    )

    world.clock.at += 60
    last = world.patch("a", {"metadata": {"finalizers": None}})["metadata"]

    assert world.store.get("configmaps", "default", "a") is None
    change = world.last_change()
    assert (change.type, change.rv) == ("DELETED", int(last["resourceVersion"]))
    assert msgspec.json.decode(change.record.body)["metadata"]["deletionTimestamp"] == held["deletionTimestamp"]


def test_a_removal_yields_the_last_content_at_a_version_of_its_own():
    world = World()
    made = world.write("create", body=a_configmap())

    answer = world.write("delete", name="a")

    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    change = world.last_change()
    content = msgspec.json.decode(change.record.body)
    assert (change.type, content["data"], content["metadata"]["resourceVersion"]) == (
        "DELETED",
        {"k": "v"},
        str(world.store.rv),
    )


@pytest.mark.parametrize("verb", ["create", "patch", "delete"])
def test_a_dry_run_answers_and_stores_nothing(verb):
    world = World()
    world.write("create", body=a_configmap())
    before = world.store.rv
    name, body = {"create": ("", a_configmap("b")), "patch": ("a", {"data": {"k": "w"}}), "delete": ("a", None)}[verb]

    response = world.respond(verb, name=name, body=body, patch_type="merge", dry_run=True)

    assert response.code == (201 if verb == "create" else 200)
    assert world.store.rv == before


def test_the_generation_counts_changes_of_the_spec_alone():
    world = World()
    body = {
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    kind = "replicasets.apps"

    generations = [
        world.write("create", kind, body=body)["metadata"]["generation"],
        world.write("patch", kind, "d", body={"metadata": {"labels": {"x": "y"}}}, patch_type="merge")["metadata"][
            "generation"
        ],
        world.write("patch", kind, "d", body={"spec": {"replicas": 2}}, patch_type="merge")["metadata"]["generation"],
        world.write("patch", kind, "d", body={"status": {"replicas": 2}}, patch_type="merge")["metadata"]["generation"],
    ]

    assert generations == [1, 1, 2, 2]
    assert msgspec.json.decode(world.store.get(kind, "default", "d").body).get("status", {}).get("replicas", 0) == 0


def test_the_response_is_the_stored_bytes():
    world = World()

    response = world.respond("create", body=a_configmap())

    assert response.body is world.store.get("configmaps", "default", "a").body


# -- reads: table 2.1


def a_history():
    """Versions 2 to 5: a, b, c made, then b removed; version 6: a changed. The window begins at 1."""
    world = World()
    for name in "abc":
        world.write("create", body=a_configmap(name))
    world.write("delete", name="b")
    world.patch("a", {"data": {"k": "w"}})
    return world


@pytest.mark.parametrize(
    ("query", "rv", "found"),
    [
        ({}, 6, ["a", "c"]),
        ({"resource_version": "0"}, 6, ["a", "c"]),
        ({"resource_version": "4"}, 6, ["a", "c"]),
        ({"resource_version": "4", "resource_version_match": "NotOlderThan"}, 6, ["a", "c"]),
        ({"resource_version": "4", "resource_version_match": "Exact"}, 4, ["a", "b", "c"]),
        ({"limit": 9}, 6, ["a", "c"]),
        ({"limit": 9, "resource_version": "0"}, 6, ["a", "c"]),
        ({"limit": 9, "resource_version": "4"}, 4, ["a", "b", "c"]),
        ({"limit": 9, "resource_version": "4", "resource_version_match": "NotOlderThan"}, 6, ["a", "c"]),
        ({"limit": 9, "resource_version": "3", "resource_version_match": "Exact"}, 3, ["a", "b"]),
    ],
)
def test_as_12_s11_table_2_1_lists(query, rv, found):
    listed = a_history().list(**query)

    assert (listed["metadata"]["resourceVersion"], names(listed)) == (str(rv), found)


@pytest.mark.parametrize(
    "query", [*({"resource_version": text} for text in ("-1", "01", "x", "1.0", "１", str(1 << 63), str(1 << 64)))]
)
def test_as_12_s11_malformed_version_parameters_are_bad_requests(query):
    with pytest.raises(BadRequest):
        a_history().list(**query)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"resource_version": "0", "resource_version_match": "Exact"},
         'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'),
        ({"resource_version_match": "Exact"},
         "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"),
        ({"resource_version": "4", "resource_version_match": "Sometimes"},
         'Unsupported value: "Sometimes": supported values: "Exact", "NotOlderThan", ""'),
    ],
)  # fmt: skip
def test_as_12_s11_a_match_that_cannot_be_is_invalid(query, message):
    with pytest.raises(Invalid) as refused:
        a_history().list(**query)

    assert refused.value.message == f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: {message}'


def test_an_update_of_a_lease_that_is_not_there_makes_it_and_of_a_config_map_does_not():
    world = World()

    made = world.respond(
        "update", "leases.coordination.k8s.io", "l", body={"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    )

    assert made.code == 201
    assert world.store.get("leases.coordination.k8s.io", "default", "l").rv == made.rv
    with pytest.raises(NotFound):
        world.write("update", name="c", body=a_configmap("c"))
    with pytest.raises(NotFound):  # a version that was read is of an object that was there
        world.write(
            "update", "leases.coordination.k8s.io", "m", body={"metadata": {"name": "m", "resourceVersion": "3"}}
        )


def test_what_is_created_names_no_version():
    with pytest.raises(BadRequest, match="resourceVersion should not be set on objects to be created"):
        World().write("create", body=a_configmap(resourceVersion="7"))


def test_as_12_s11_s12_versions_outside_the_window_are_too_old_or_not_yet():
    world = World(window_changes=2)
    for name in "abcd":
        world.clock.at += 200
        world.write("create", body=a_configmap(name))
    start = world.store.window_start

    with pytest.raises(Expired, match="too old"):
        world.list(resource_version=str(start - 1), resource_version_match="Exact")
    with pytest.raises(NotYet):
        world.list(resource_version=str(world.store.rv + 1))
    with pytest.raises(NotYet):
        world.registry.reads.get(Request(verb="get", resource="configmaps", namespace="default", name="a",
                                   resource_version=str(world.store.rv + 1)))  # fmt: skip
    assert len(names(world.list(resource_version=str(start), resource_version_match="Exact"))) == start - 1


def test_as_11_s10_all_pages_stay_on_the_version_of_the_first():
    world = World()
    for step in range(25):
        world.write("create", body=a_configmap(f"p{step:02}"))
    before = names(world.list())

    page = world.list(limit=7)
    pages, versions = names(page), {page["metadata"]["resourceVersion"]}
    assert page["metadata"]["remainingItemCount"] == 18
    while token := page["metadata"].get("continue"):
        world.write("delete", name=f"p{len(pages):02}")
        world.write("create", body=a_configmap(f"p{len(pages):02}x"))
        page = world.list(limit=7, continue_token=token)
        pages += names(page)
        versions.add(page["metadata"]["resourceVersion"])

    assert (pages, len(versions)) == (before, 1)


def test_as_11_s10_a_token_goes_with_its_own_list_and_without_version_parameters():
    world = a_history()
    token = world.list(limit=1)["metadata"]["continue"]

    for query in (
        {"continue_token": token, "resource_version": "4"},
        {"continue_token": token, "resource_version_match": "Exact"},
        {"continue_token": token, "label_selector": "a=b"},
        {"continue_token": token[:-3]},
        {"continue_token": "AAAA" + token[4:]},
    ):
        with pytest.raises(BadRequest):
            world.list(limit=1, **query)


def test_as_11_s10_an_expired_token_is_410_with_a_token_for_the_rest():
    world = a_history()
    token = world.list(limit=1)["metadata"]["continue"]
    world.clock.at += 301

    with pytest.raises(Expired) as refused:
        world.list(limit=1, continue_token=token)
    status = refused.value.status()

    assert (status["code"], status["reason"]) == (410, "Expired")
    assert names(world.list(limit=9, continue_token=status["metadata"]["continue"])) == ["c"]


def test_lists_select_by_label_field_and_namespace():
    world = World()
    world.write("create", "namespaces", body={"metadata": {"name": "other"}}, namespace="")
    world.write("create", body=a_configmap("a", labels={"app": "x"}))
    world.write("create", body=a_configmap("b"))
    world.write("create", body=a_configmap("a"), namespace="other")

    assert names(world.list(label_selector="app=x")) == ["a"]
    assert names(world.list(field_selector="metadata.name=a")) == ["a", "a"]
    assert names(world.list(field_selector="metadata.name=a", namespace="other")) == ["a"]
    assert names(world.list(namespace="default", label_selector="!app")) == ["b"]
    with pytest.raises(BadRequest, match="field label not supported"):
        world.list(field_selector="spec.foo=1")


@pytest.mark.parametrize(
    "request_",
    [
        Request(verb="get", resource="nonsense", name="a"),
        Request(verb="list", resource="nonsense"),
        Request(verb="get", resource="configmaps", namespace="default", name="nope"),
    ],
)
def test_what_is_not_there_is_not_found(request_):
    world = World()
    with pytest.raises(NotFound):
        (world.registry.reads.get if request_.verb == "get" else world.registry.reads.list)(request_)


def test_every_refusal_of_random_bodies_is_an_api_error():
    """Nothing that a client can send is a crash."""
    dice = random.Random(7)
    values = [None, 1, -1, "x", "", [], {}, [1], {"a": 1}, True, "2026-01-01T00:00:00Z", 1.5]
    paths = ["metadata", "spec", "status", "data", "kind", "apiVersion", "type", "value", "containers", "labels"]

    def grown(depth):
        if depth == 0 or dice.random() < 0.3:
            return dice.choice(values)
        return {dice.choice(paths): grown(depth - 1) for _ in range(3)}

    world = World()
    refusals = []
    for resource in ("pods", "nodes", "configmaps", "events", "deployments.apps", "poddisruptionbudgets.policy"):
        namespace = "" if resource == "nodes" else "default"
        for _ in range(150):
            body = grown(4)
            if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
                body["metadata"]["name"] = f"n{dice.randrange(3)}"
            try:
                world.write("create", resource, body=body, namespace=namespace)
            except ApiError as error:
                refusals.append(error)

    assert len(refusals) > 100
    assert not [error for error in refusals if error.code not in (400, 403, 404, 409, 422)]


def test_evaluation_never_awaits():
    """P2: the plan of a write is a plain function."""
    world = World()
    request = Request(verb="create", resource="configmaps", namespace="default", body=b'{"metadata":{"name":"a"}}')

    assert not asyncio.iscoroutinefunction(world.registry.prepare(ADMIN, request, ""))
