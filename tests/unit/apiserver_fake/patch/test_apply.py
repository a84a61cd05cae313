import pytest

import apiserver_fake.patch.apply as apply
from apiserver_fake.schema.schemas import shape_of
from services.api.errors import BadRequest, Conflict


def config_map(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "d"}, "data": data}


def deployment(*containers):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": list(containers)}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w"},
        "spec": {"template": template, "selector": {"matchLabels": {"a": "b"}}},
    }


def applied(live, config, manager="m", *, is_forced=False):
    return apply.plan(
        live, config, shape_of(config["apiVersion"], config["kind"]), manager=manager, is_forced=is_forced, wall_s=0
    )


def test_applying_a_new_object_owns_what_it_names_and_nothing_of_its_identity():
    new = applied(None, config_map(a="1"))

    [entry] = new["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}}}
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("m", "Apply", "v1")


def test_applying_the_same_again_changes_nothing():
    live = applied(None, config_map(a="1"))

    assert applied(live, config_map(a="1")) is None


def test_fields_no_longer_named_go_and_those_of_others_stay():
    live = applied(None, config_map(a="1", b="2"))
    live["data"]["foreign"] = "kept"

    assert applied(live, config_map(b="2"))["data"] == {"b": "2", "foreign": "kept"}


def test_kep_555_another_managers_value_is_a_conflict_that_names_the_field():
    live = applied(None, config_map(a="1"))

    with pytest.raises(Conflict, match=r'1 conflict: conflict with "m" using v1: \.data\.a') as error:
        applied(live, config_map(a="2"), "other")
    assert error.value.details["causes"][0]["reason"] == "FieldManagerConflict"


def test_kep_555_force_takes_the_field_away_from_its_owner():
    live = applied(None, config_map(a="1", b="1"))

    new = applied(live, config_map(a="2"), "other", is_forced=True)

    assert {e["manager"]: e["fieldsV1"] for e in new["metadata"]["managedFields"]} == {
        "m": {"f:data": {"f:b": {}}},
        "other": {"f:data": {"f:a": {}}},
    }
    assert new["data"] == {"a": "2", "b": "1"}


def test_the_same_value_is_owned_together_and_survives_until_both_let_go():
    live = applied(applied(None, config_map(a="1")), config_map(a="1"), "other")

    once = applied(live, config_map(), "m")
    twice = applied(once, config_map(), "other")

    assert once["data"] == {"a": "1"}
    assert "data" not in twice or twice["data"] == {}


def test_containers_merge_by_name_and_a_dropped_one_is_removed():
    live = applied(None, deployment({"name": "a", "image": "1"}, {"name": "b", "image": "1"}))
    live["spec"]["template"]["spec"]["containers"][0]["terminationMessagePath"] = "/defaulted"

    new = applied(live, deployment({"name": "a", "image": "2"}))

    assert new["spec"]["template"]["spec"]["containers"] == [
        {"name": "a", "image": "2", "terminationMessagePath": "/defaulted"}
    ]


def test_a_list_key_given_twice_is_a_bad_request():
    with pytest.raises(BadRequest, match="two items have the key"):
        applied(None, deployment({"name": "a"}, {"name": "a"}))


def test_an_atomic_selector_is_taken_whole():
    live = applied(None, deployment({"name": "a"}))
    changed = deployment({"name": "a"})
    changed["spec"]["selector"] = {"matchLabels": {"x": "y"}}

    assert applied(live, changed)["spec"]["selector"] == {"matchLabels": {"x": "y"}}


def test_field_trees_survive_a_round_trip():
    paths = apply.owned_paths(
        deployment({"name": "a", "ports": [{"containerPort": 80}]}), shape_of("apps/v1", "Deployment")
    )

    assert sorted(apply.paths_of(apply.fields_v1(list(paths)))) == sorted(paths)
