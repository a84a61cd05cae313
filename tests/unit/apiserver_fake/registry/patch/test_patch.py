"""The three patches: by example from their RFCs and from kubectl, and by property (V12)."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver_fake.registry.patch.json_patch import json_patch
from apiserver_fake.registry.patch.patch import apply_patch, merge_patch, strategic_merge_patch
from apiserver_fake.registry.schema.schemas import ANYTHING, Shape, conform, shape_of, strict_refusal, unknown_fields
from services.api.errors import ApiError, BadRequest, Invalid, RequestEntityTooLarge

PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2)
NAMES = st.sampled_from(["a", "b", "c", "containers", "x/y", "~"])
JSON = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=4)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return value


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch from one object without nulls to another."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            patch[name] = difference(before, value)
        elif before != value or isinstance(before, bool) != isinstance(value, bool):
            patch[name] = value
    return patch


@given(OBJECTS, OBJECTS)
def test_v12_a_merge_patch_and_its_inverse_lead_back(old, new):
    old, new = without_nulls(old), without_nulls(new)
    frozen = copy.deepcopy((old, new))
    there, back = difference(old, new), difference(new, old)
    assert merge_patch(old, there) == new
    assert merge_patch(merge_patch(old, there), back) == old
    assert (old, new) == frozen


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_applied_twice_is_applied_once_and_changes_nothing_it_was_given(document, patch):
    frozen = copy.deepcopy((document, patch))
    once = merge_patch(document, patch)
    assert merge_patch(once, patch) == once
    assert (document, patch) == frozen


@given(OBJECTS, OBJECTS)
def test_strategic_merge_without_known_lists_and_directives_is_merge(document, patch):
    frozen = copy.deepcopy((document, patch))
    assert bare(strategic_merge_patch(document, patch)) == bare(merge_patch(document, patch))
    assert (document, patch) == frozen


def bare(value: Any) -> Any:
    """Without nulls at any depth: inside replaced lists, strategic merge drops them and RFC 7386 keeps them."""
    if isinstance(value, list):
        return [bare(member) for member in value]
    if isinstance(value, dict):
        return {name: bare(member) for name, member in value.items() if member is not None}
    return value


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_rfc_7386_hold(target, patch, result):
    assert merge_patch(target, patch) == result


@pytest.mark.parametrize(
    ("document", "operations", "result"),
    [
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"foo": ["a", "b"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["a"]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
        (
            {"foo": {"bar": 1}, "q": {}},
            [{"op": "move", "from": "/foo/bar", "path": "/q/t"}],
            {"foo": {}, "q": {"t": 1}},
        ),
        (
            {"a": {"b": 1}},
            [{"op": "copy", "from": "/a", "path": "/c"}, {"op": "add", "path": "/c/d", "value": 2}],
            {"a": {"b": 1}, "c": {"b": 1, "d": 2}},
        ),
        (
            {"/": 9, "~1": 10},
            [{"op": "test", "path": "/~01", "value": 10}, {"op": "remove", "path": "/~1"}],
            {"~1": 10},
        ),
        ({"a": [1, 2]}, [{"op": "replace", "path": "", "value": {"b": 1}}], {"b": 1}),
    ],
)
def test_the_examples_of_rfc_6902_hold(document, operations, result):
    frozen = copy.deepcopy((document, operations))
    assert json_patch(document, operations) == result
    assert (document, operations) == frozen


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "test", "path": "/a", "value": True}],
        [{"op": "remove", "path": "/nope"}],
        [{"op": "replace", "path": "/l/2", "value": 0}],
        [{"op": "add", "path": "/l/3", "value": 0}],
        [{"op": "add", "path": "/l/01", "value": 0}],
        [{"op": "add", "path": "/a/b", "value": 0}],
        [{"op": "move", "from": "/o", "path": "/o/x"}],
        [{"op": "add", "path": "/o" + "/x" * 80, "value": 0}],
        [{"op": "add", "path": "/a"}],
        [{"op": "jump", "path": "/a"}],
        [{"op": "add"}],
    ],
)
def test_kubectl_requests_7_what_cannot_be_applied_is_422_with_the_servers_sentence(operations):
    with pytest.raises(Invalid) as refused:
        apply_patch({"a": 1, "l": [1, 2], "o": {}}, operations, "json", ANYTHING, "Pod")
    assert refused.value.message == "the server rejected our request due to an error in our request"
    # Which operation it was is not named, as by a real server: kubectl would print it in place of the sentence.
    assert refused.value.details == {}


@pytest.mark.parametrize(
    ("operations", "said"),
    [({}, "object into Go value of type []handlers.jsonPatchOp"), ([5], "number into Go value of type handlers.json")],
)
def test_a_malformed_json_patch_is_400(operations, said):
    with pytest.raises(BadRequest, match=re.escape(f"error decoding patch: json: cannot unmarshal {said}")):
        json_patch({"a": 1}, operations)


def test_l_patch_bounds_the_operations_and_what_they_copy():
    with pytest.raises(RequestEntityTooLarge):
        json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)
    doubling = [{"op": "copy", "from": "/a", "path": f"/a/k{number}"} for number in range(30)]
    with pytest.raises(RequestEntityTooLarge):
        json_patch({"a": {"text": "x" * 100}}, doubling)


POINTERS = st.lists(st.sampled_from(["a", "b", "0", "1", "-", "containers"]), max_size=3).map(
    lambda t: "".join("/" + x for x in t)
)
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
            "path": POINTERS,
            "from": POINTERS,
            "value": JSON,
        }
    ),
    max_size=6,
)


@settings(max_examples=300)
@given(OBJECTS, OPERATIONS)
def test_v12_a_json_patch_never_changes_what_it_was_given_and_fails_only_with_an_answer(document, operations):
    given_document, frozen = document, copy.deepcopy((document, operations))
    try:
        result = json_patch(document, operations)
        for operation in operations:  # one by one leads to the same
            document = json_patch(document, [operation])
        assert result == document
    except ApiError as error:
        if error.code not in (400, 422):
            raise
    assert (given_document, operations) == frozen


POD_SHAPE = shape_of("v1", "Pod")
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "finalizers": ["a", "b"], "labels": {"x": "1"}},
    "spec": {
        "containers": [
            {"name": "app", "image": "app:1", "env": [{"name": "A", "value": "1"}]},
            {"name": "log", "image": "log:1"},
        ],
        "tolerations": [{"key": "k"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}


def patched(patch: dict[str, Any], document: dict[str, Any] = POD) -> dict[str, Any]:
    frozen = copy.deepcopy((document, patch))
    result = apply_patch(
        document, patch, "strategic", shape_of(document["apiVersion"], document["kind"]), document["kind"]
    )
    assert (document, patch) == frozen
    return result


def test_containers_merge_by_name_and_share_what_was_not_touched():
    result = patched({"spec": {"containers": [{"name": "log", "image": "log:2"}]}})
    assert result["spec"]["containers"] == [POD["spec"]["containers"][0], {"name": "log", "image": "log:2"}]
    assert result["spec"]["containers"][0] is POD["spec"]["containers"][0]
    assert result["metadata"] is POD["metadata"] or result["metadata"] == POD["metadata"]


def test_what_follows_a_patched_element_stays_and_keeps_its_place():
    result = patched({"spec": {"containers": [{"name": "app", "image": "app:2"}]}})

    assert [("app", "app:2"), ("log", "log:1")] == [(c["name"], c["image"]) for c in result["spec"]["containers"]]


def test_env_merges_inside_containers_and_null_removes():
    result = patched(
        {"spec": {"containers": [{"name": "app", "env": [{"name": "B", "value": "2"}, {"name": "A", "value": None}]}]}}
    )
    assert {"name": "B", "value": "2"} in result["spec"]["containers"][0]["env"]
    assert {"name": "A"} in result["spec"]["containers"][0]["env"]


def test_kubectl_set_image_keeps_the_order_it_names():
    order = [{"name": "new"}, {"name": "log"}, {"name": "app"}]
    result = patched({"spec": {"$setElementOrder/containers": order, "containers": [{"name": "new", "image": "n"}]}})
    assert [each["name"] for each in result["spec"]["containers"]] == ["new", "log", "app"]


def test_a_new_element_without_an_order_comes_first_as_upstream_puts_it():
    result = patched({"spec": {"containers": [{"name": "new", "image": "n"}]}})
    assert [each["name"] for each in result["spec"]["containers"]] == ["new", "app", "log"]


def test_the_patch_directives_delete_replace_and_retain():
    assert [
        c["name"]
        for c in patched({"spec": {"containers": [{"name": "app", "$patch": "delete"}]}})["spec"]["containers"]
    ] == ["log"]
    replaced = patched({"spec": {"containers": [{"name": "only", "image": "o"}, {"$patch": "replace"}]}})
    assert replaced["spec"]["containers"] == [{"name": "only", "image": "o"}]
    assert patched({"metadata": {"labels": {"$patch": "replace", "y": "2"}}})["metadata"]["labels"] == {"y": "2"}
    assert patched({"metadata": {"labels": {"$patch": "delete"}}})["metadata"]["labels"] == {}
    volume = {"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}
    assert patched({"spec": {"volumes": [volume]}})["spec"]["volumes"] == [{"name": "v", "configMap": {"name": "c"}}]


def test_lists_of_plain_values_merge_as_sets_and_lose_what_is_named():
    assert sorted(patched({"metadata": {"finalizers": ["c", "a"]}})["metadata"]["finalizers"]) == ["a", "b", "c"]
    left = patched({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})["metadata"]["finalizers"]
    assert left == ["b"]


def test_lists_without_merge_key_are_replaced():
    assert patched({"spec": {"tolerations": [{"key": "z"}]}})["spec"]["tolerations"] == [{"key": "z"}]
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    }
    taints = [{"key": "b", "effect": "NoExecute"}]
    assert patched({"spec": {"taints": taints}}, node)["spec"]["taints"] == taints


def test_conditions_merge_by_type_so_that_writers_do_not_erase_each_other():
    pod = {**POD, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    result = patched({"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}, pod)
    assert {each["type"] for each in result["status"]["conditions"]} == {"Ready", "PodScheduled"}


@pytest.mark.parametrize(
    "patch",
    [
        {"$patch": "explode"},
        {"spec": {"containers": [{"image": "nameless"}]}},
        {"spec": {"containers": [5]}},
        {"metadata": {"finalizers": [{"a": 1}]}},
        {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "configMap": {}}]}},
        {"spec": {"$setElementOrder/containers": 5}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
    ],
)
def test_directives_that_make_no_sense_are_422(patch):
    with pytest.raises(Invalid):
        patched(patch)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["spec", "metadata", "status", "$patch", "x"]), JSON, max_size=3))
def test_any_strategic_patch_is_answered(patch):
    code = 200
    try:
        patched(patch)
    except ApiError as error:
        code = error.code

    assert code in (200, 400, 422)


def unknown_in(shape, api_version, kind, document):
    unknown = []
    conform(shape, api_version, kind, document, unknown=unknown)
    return unknown


def test_fields_that_a_kind_does_not_have_are_left_out_and_named_in_order():
    containers = [{"name": "c", "imag": "x"}]
    pod = {**POD, "spec": {**POD["spec"], "replica": 3, "containers": containers}, "dataa": {"k": None}}
    unknown = []

    made = conform(POD_SHAPE, "v1", "Pod", pod, unknown=unknown)

    assert unknown == ["spec.containers[0].imag", "spec.replica", "dataa"]
    assert made == {**POD, "spec": {**POD["spec"], "containers": [{"name": "c"}]}}
    refusal = strict_refusal("v1", "Pod", unknown_fields(unknown[:2])).message
    assert refusal == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.containers[0].imag", unknown field "spec.replica"'
    )


def test_a_type_that_keeps_what_it_does_not_know_keeps_it():
    shape = Shape("object", fields={"a": Shape("string")}, keeps_unknown=True)

    assert unknown_in(Shape("object", fields={"spec": shape}), "v1", "X", {"spec": {"a": "1", "b": {"c": None}}}) == []


def test_unknown_fields_below_a_name_of_ones_own_are_named_too():
    attributes = {"model": {"string": "h100", "strng": "h100"}, "numa": {"int": 0}}
    found = {"spec": {"devices": [{"name": "gpu-0", "attributes": attributes}]}}
    shape = shape_of("resource.k8s.io/v1", "ResourceSlice")

    assert unknown_in(shape, "resource.k8s.io/v1", "ResourceSlice", found) == ["spec.devices[0].attributes.model.strng"]


def test_real_fields_of_upstream_are_never_unknown():
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "managedFields": [{"fieldsV1": {"f:x": {}}}]},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "startupProbe": {"grpc": {"port": 1}},
                    "resizePolicy": [{"resourceName": "cpu"}],
                    "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
                    "securityContext": {"seccompProfile": {"type": "x"}},
                }
            ],
            "ephemeralContainers": [{"targetContainerName": "c"}],
            "resourceClaims": [{"resourceClaimTemplateName": "t"}],
            "topologySpreadConstraints": [{"nodeTaintsPolicy": "Honor", "matchLabelKeys": ["a"]}],
            "hostUsers": False,
            "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"audience": "a"}}]}}],
        },
        "status": {"bindingGeneration": 1, "unbindHistory": [{"requestID": "r"}], "hostIPs": [{"ip": "1"}]},
    }
    assert unknown_in(POD_SHAPE, "v1", "Pod", pod) == []


def test_a_document_of_wrong_types_is_400_and_nulls_and_numbers_are_read_as_upstream_reads_them():
    made = conform(
        POD_SHAPE,
        "v1",
        "Pod",
        {"metadata": {"name": "p", "labels": None}, "spec": {"overhead": {"cpu": 1}, "odd": None}},
    )
    assert made == {"metadata": {"name": "p"}, "spec": {"overhead": {"cpu": "1"}}}
    for wrong in (
        {"spec": 5},
        {"spec": {"containers": {}}},
        {"metadata": {"labels": {"a": 1}}},
        {"spec": {"priority": "1"}},
        {"spec": {"priority": 1.5}},
        {"spec": {"hostNetwork": 1}},
        {"metadata": {"creationTimestamp": "soon"}},
    ):
        with pytest.raises(BadRequest):
            conform(POD_SHAPE, "v1", "Pod", wrong)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(["spec", "metadata", "status", "kind"]), JSON))
def test_any_document_conforms_or_is_400(document):
    frozen = copy.deepcopy(document)
    try:
        made = conform(POD_SHAPE, "v1", "Pod", document)
        assert conform(POD_SHAPE, "v1", "Pod", made) == made
    except BadRequest:
        pass
    assert document == frozen


def test_the_shapes_of_a_kind_know_their_merge_keys():
    spec = shape_of("apps/v1", "Deployment").fields["spec"].fields["template"].fields["spec"]
    keys = {name: member.merge_key for name, member in spec.fields.items() if member.merge_key}
    assert keys == {
        "containers": "name",
        "initContainers": "name",
        "ephemeralContainers": "name",
        "imagePullSecrets": "name",
        "hostAliases": "ip",
        "topologySpreadConstraints": "topologyKey",
        "volumes": "name",
        "schedulingGates": "name",
        "resourceClaims": "name",
    }
