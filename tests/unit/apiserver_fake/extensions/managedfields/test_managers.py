"""Who manages which fields after updates and applies (KEP-555)."""

import pytest

from apiserver_fake.extensions.managedfields.comparison import compare
from apiserver_fake.extensions.managedfields.managers import (
    APPLY,
    UPDATE,
    Manager,
    Version,
    apply_configuration,
    decode_managers,
    empty,
    encode_managers,
    of_request,
    update_managers,
    without_managers,
)
from apiserver_fake.registry.schema.schemas import shape_of
from services.api.errors import ApiError, BadRequest, Conflict
from services.api.times import format_time

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class World:
    """One object, written by managers; time goes on by a second a write."""

    def __init__(self, api_version, kind):
        self.api_version, self.kind, self.live, self.at = api_version, kind, None, 0
        self.shape = shape_of(api_version, kind)

    def _time(self):
        self.at += 1
        return format_time(self.at)

    def _store(self, document, managed):
        meta = {"name": "x", "uid": "u", **document.get("metadata", {}), "managedFields": encode_managers(managed)}
        self.live = {"apiVersion": self.api_version, "kind": self.kind, **document, "metadata": meta}
        return self.live

    def update(self, document, manager="m", subresource="", sent=None):
        before = empty(self.shape) if self.live is None else without_managers(self.live)
        stored = [] if self.live is None else self.live["metadata"].get("managedFields", [])
        managed = of_request(stored, sent, is_subresource=bool(subresource))
        new = {**before, **document}
        managed = update_managers(
            managed, lambda _: compare(before, new, self.shape), Manager(manager, UPDATE, self.api_version, subresource),
            api_version=self.api_version, ignored={} if subresource else {"f:status": {}}, time=self._time(),
        )  # fmt: skip
        return self._store(new, managed)

    def apply(self, manager="m", *, is_forced=False, **config):
        config = {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": "x"}, **config}
        version = Version(self.api_version, self.shape, lambda old, new, _: compare(old, new, self.shape))
        found = apply_configuration(
            self.live, config, version, manager=manager, subresource="", ignored={"f:status": {}},
            is_forced=is_forced, time=self._time(),
        )  # fmt: skip
        return self._store(found.document, found.managed)

    def fields(self, manager, operation=None):
        for each in self.live["metadata"]["managedFields"]:
            if each["manager"] == manager and operation in (None, each["operation"]):
                return each["fieldsV1"]
        return None

    def managers(self):
        return [(each["manager"], each["operation"]) for each in self.live["metadata"]["managedFields"]]


def data(**values):
    return {f"f:{name}": {} for name in values}


def test_kep_555_a_new_object_that_is_applied_has_what_it_names_and_nothing_of_its_identity():
    world = World("v1", "ConfigMap")
    world.apply(data={"a": "1"})

    [entry] = world.live["metadata"]["managedFields"]
    assert entry == {
        "manager": "m", "operation": "Apply", "apiVersion": "v1", "time": format_time(1), "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:a": {}}},
    }  # fmt: skip


def test_kep_555_applying_the_same_again_changes_nothing():
    world = World("v1", "ConfigMap")
    before = world.apply(data={"a": "1"})

    assert world.apply(data={"a": "1"}) == before


def test_kep_555_a_creator_has_what_it_sent_and_a_writer_what_it_changed():
    world = World("v1", "ConfigMap")
    world.update({"data": {"a": "1", "b": "1"}}, "creator")
    world.update({"data": {"a": "1", "b": "2"}}, "writer")
    world.update({"data": {"a": "1", "b": "2"}}, "idle")

    assert world.fields("creator") == {"f:data": {".": {}, "f:a": {}}}
    assert world.fields("writer") == {"f:data": {"f:b": {}}}
    assert world.fields("idle") is None


def test_kep_555_a_field_that_an_update_removes_has_no_manager_any_more():
    world = World("v1", "ConfigMap")
    world.update({"data": {"a": "1", "b": "1"}}, "creator")
    world.update({"data": {"a": "1"}}, "writer")

    assert world.managers() == [("creator", UPDATE)]
    assert world.fields("creator") == {"f:data": {".": {}, "f:a": {}}}


@pytest.mark.parametrize(
    ("operation", "text"),
    [(APPLY, 'conflict with "first": .data.a'), (UPDATE, 'conflict with "first" using v1: .data.a')],
)
def test_kep_555_another_managers_value_is_a_conflict_that_names_the_field(operation, text):
    world = World("v1", "ConfigMap")
    if operation == APPLY:
        world.apply("first", data={"a": "1"})
    else:
        world.update({"data": {"a": "1"}}, "first")

    with pytest.raises(Conflict) as error:
        world.apply("second", data={"a": "2"})

    assert error.value.message == f"Apply failed with 1 conflict: {text}"
    [cause] = error.value.details["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".data.a")


def test_kep_555_conflicts_with_a_subresource_say_so():
    world = World("apps/v1", "Deployment")
    world.apply("me", spec={"replicas": 1})
    world.update({"spec": {"replicas": 2}}, "hpa", "scale")

    with pytest.raises(Conflict) as error:
        world.apply("me", spec={"replicas": 0})

    assert error.value.message == (
        'Apply failed with 1 conflict: conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas'
    )


def test_kep_555_several_conflicts_are_listed_by_manager():
    world = World("v1", "ConfigMap")
    world.update({"data": {"a": "1", "b": "1"}}, "zed")
    world.apply("one", data={"c": "1"})

    with pytest.raises(Conflict) as error:
        world.apply("two", data={"a": "2", "b": "2", "c": "2"})

    assert error.value.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .data.c\nconflicts with "zed" using v1:\n- .data.a\n- .data.b'
    )


def test_kep_555_force_takes_the_field_away_from_its_manager():
    world = World("v1", "ConfigMap")
    world.apply("first", data={"a": "1", "b": "1"})
    world.apply("second", is_forced=True, data={"a": "2"})

    assert (world.fields("first"), world.fields("second")) == ({"f:data": data(b=1)}, {"f:data": data(a=1)})
    assert world.live["data"] == {"a": "2", "b": "1"}


def test_kep_555_the_same_value_is_shared_and_stays_until_no_manager_names_it():
    world = World("v1", "ConfigMap")
    world.apply("first", data={"a": "1"})
    world.apply("second", data={"a": "1"})

    once = world.apply("first", data={})
    twice = world.apply("second", data={})

    assert once["data"] == {"a": "1"}
    assert not twice.get("data")


def test_kep_555_containers_merge_by_name_and_one_that_is_not_named_any_more_goes():
    def spec(*containers):
        return {"template": {"spec": {"containers": list(containers)}}}

    world = World("apps/v1", "Deployment")
    world.apply(spec=spec({"name": "a", "image": "1"}, {"name": "b", "image": "1"}))
    world.live["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] = "/defaulted"

    world.apply(spec=spec({"name": "a", "image": "2"}))

    assert world.live["spec"]["template"]["spec"]["containers"] == [
        {"name": "a", "image": "2", "terminationMessagePath": "/defaulted"}
    ]


def test_kep_555_an_object_from_before_its_first_apply_gets_a_manager_for_what_it_has():
    world = World("v1", "ConfigMap")
    world.live = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "uid": "u"}, "data": {"a": "1"}}

    with pytest.raises(Conflict, match=r'conflict with "before-first-apply" using v1: \.data\.a'):
        world.apply("me", data={"a": "2"})
    world.apply("me", data={"b": "2"})

    assert world.managers() == [("me", APPLY), ("before-first-apply", UPDATE)]


def test_kubectl_takes_over_what_it_applied_from_its_own_side():
    world = World("v1", "ConfigMap")
    text = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}'
    world.update({"metadata": {"annotations": {LAST_APPLIED: text}}, "data": {"a": "1"}}, "kubectl-client-side-apply")

    with pytest.raises(Conflict):
        world.apply("other", data={"a": "2"})
    new = world.apply("kubectl", data={"a": "2"})

    assert new["data"] == {"a": "2"}
    assert '"a":"2"' in new["metadata"]["annotations"][LAST_APPLIED]


def test_kubectl_does_not_take_over_what_was_changed_since():
    world = World("v1", "ConfigMap")
    text = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1"}}'
    world.update({"metadata": {"annotations": {LAST_APPLIED: text}}, "data": {"a": "1"}}, "kubectl-client-side-apply")
    world.update({"data": {"a": "9"}}, "kubectl-edit")

    with pytest.raises(Conflict, match=r'conflict with "kubectl-edit" using v1: \.data\.a'):
        world.apply("kubectl", data={"a": "2"})


def test_the_oldest_updates_are_merged_where_there_are_more_than_ten():
    world = World("v1", "ConfigMap")
    for number in range(13):
        world.update({"data": {f"k{each}": "1" for each in range(number + 1)}}, f"m{number}")

    names = [name for name, _ in world.managers()]
    assert names == ["ancient-changes", *(f"m{number}" for number in range(4, 13))]
    assert world.fields("ancient-changes") == {"f:data": {".": {}, **{f"f:k{each}": {} for each in range(4)}}}


@pytest.mark.parametrize("sent", [[{}], []])
def test_managers_can_be_reset_and_unreadable_ones_count_as_not_sent(sent):
    world = World("v1", "ConfigMap")
    world.update({"data": {"a": "1"}})
    stored = world.live["metadata"]["managedFields"]

    assert of_request(stored, sent, is_subresource=False) == {}
    assert of_request(stored, sent, is_subresource=True) == decode_managers(stored)
    assert of_request(stored, [{"manager": "x", "operation": "Delete"}], is_subresource=False) == decode_managers(
        stored
    )
    assert of_request(stored, None, is_subresource=False) == decode_managers(stored)


def test_a_configuration_that_is_not_of_its_type_is_refused_with_upstreams_text():
    world = World("v1", "ConfigMap")

    with pytest.raises(ApiError) as error:
        world.apply(bogus=1)

    assert (error.value.code, error.value.message) == (
        400, "failed to create typed patch object (/x; /v1, Kind=ConfigMap): .bogus: field not declared in schema"
    )  # fmt: skip
    with pytest.raises(BadRequest, match="managedFields must be nil"):
        world.apply(metadata={"name": "x", "managedFields": []})
