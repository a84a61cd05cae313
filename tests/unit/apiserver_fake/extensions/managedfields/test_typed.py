"""Which fields documents have and how they differ, merge and lose fields, by their types."""

import pytest

from apiserver_fake.extensions.managedfields.comparison import (
    compare,
    fields_of,
    is_declared,
    merge_by_schema,
    prune_unowned,
    type_errors,
)
from apiserver_fake.extensions.managedfields.fieldset import of, paths
from apiserver_fake.registry.schema.schemas import shape_of

POD, DEPLOYMENT, SERVICE = shape_of("v1", "Pod"), shape_of("apps/v1", "Deployment"), shape_of("v1", "Service")
PORT = '{"containerPort":80,"protocol":"TCP"}'


def a_pod(*containers, **spec):
    return {"spec": {"containers": list(containers), **spec}}


def test_a_configurations_fields_are_what_it_names():
    ports = [{"containerPort": 80}]
    config = {
        **a_pod({"name": "c", "image": "i", "ports": ports}),
        "metadata": {"labels": {"a": "b"}, "finalizers": ["x"]},
    }

    assert fields_of(config, POD) == {
        "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {'v:"x"': {}}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {}, "f:name": {}, "f:image": {}, "f:ports": {f"k:{PORT}": {".": {}, "f:containerPort": {}}},
                }
            }
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "document", "atomic"),
    [
        (DEPLOYMENT, {"spec": {"selector": {"matchLabels": {"a": "b"}}}}, {"f:spec": {"f:selector": {}}}),
        (SERVICE, {"spec": {"selector": {"a": "b"}}}, {"f:spec": {"f:selector": {}}}),
        (POD, {"spec": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]}},
         {"f:spec": {"f:nodeSelector": {}, "f:tolerations": {}}}),
        (POD, {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": []}]}}}}},
         {"f:spec": {"f:affinity": {"f:nodeAffinity": {"f:requiredDuringSchedulingIgnoredDuringExecution": {}}}}}),
        (POD, {"spec": {"imagePullSecrets": [{"name": "s"}], "securityContext": {}}},
         {"f:spec": {"f:imagePullSecrets": {'k:{"name":"s"}': {}}, "f:securityContext": {}}}),
    ],
)  # fmt: skip
def test_what_upstream_has_as_atomic_is_one_field(shape, document, atomic):
    assert fields_of(document, shape) == atomic


def test_a_creation_is_compared_with_an_empty_object_of_the_type():
    """As upstream shows it: `.` on maps and pointers that were not there, none on structs and required lists."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}
    container = {"name": "c", "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], "securityContext": {}}}
    new = {"metadata": {"labels": {"a": "b"}}, "spec": {"strategy": strategy, "template": template}}

    found = compare({"metadata": {}, "spec": {}, "status": {}}, new, DEPLOYMENT)

    assert (found.modified, found.removed) == ({}, {})
    labels = {".": {}, "f:a": {}}
    assert found.added == {
        "f:metadata": {"f:labels": labels},
        "f:spec": {
            "f:strategy": {"f:type": {}, "f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
            "f:template": {
                "f:metadata": {"f:labels": labels},
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"c"}': {
                            ".": {},
                            "f:name": {},
                            "f:ports": {".": {}, f"k:{PORT}": {".": {}, "f:containerPort": {}, "f:protocol": {}}},
                            "f:resources": {},
                        }
                    },
                    "f:securityContext": {},
                },
            },
        },
    }


def test_changes_name_the_fields_and_not_what_is_above_them():
    old = a_pod({"name": "a", "image": "1"}, {"name": "b", "image": "1"}, hostname="h")
    new = a_pod({"name": "a", "image": "2"}, {"name": "c", "image": "1"})

    found = compare(old, new, POD)

    assert found.modified == of([("f:spec", "f:containers", 'k:{"name":"a"}', "f:image")])
    whole = {".": {}, "f:name": {}, "f:image": {}}
    assert found.added == {"f:spec": {"f:containers": {'k:{"name":"c"}': whole}}}
    assert found.removed == {"f:spec": {"f:containers": {'k:{"name":"b"}': whole}, "f:hostname": {}}}


def test_keys_that_occur_twice_are_one_field_that_changes():
    ports = [
        {"containerPort": 80, "protocol": "TCP", "name": "a"},
        {"containerPort": 80, "protocol": "TCP", "name": "b"},
    ]
    one, two = a_pod({"name": "c", "ports": ports[:1]}), a_pod({"name": "c", "ports": ports})
    at = ("f:spec", "f:containers", 'k:{"name":"c"}', "f:ports", f"k:{PORT}")

    assert compare(one, two, POD).added == of([at])
    assert at in [*paths(compare(two, one, POD).removed)]


def test_lists_merge_in_the_configurations_order_with_the_others_where_they_stood():
    def names(*each):
        return a_pod(*({"name": name} for name in each))

    def order(live, wanted):
        return "".join(
            each["name"] for each in merge_by_schema(names(*live), names(*wanted), POD)["spec"]["containers"]
        )

    assert order("abc", "ca") == "bca"
    assert order("abc", "b") == "abc"
    assert order("ab", "xa") == "xab"
    assert order("ab", "bx") == "abx"
    assert order("", "ba") == "ba"


def test_ports_without_protocol_merge_with_the_defaulted_ones():
    live = {"spec": {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}, {"port": 53, "protocol": "UDP"}]}}

    assert merge_by_schema(live, {"spec": {"ports": [{"port": 80, "targetPort": 81}]}}, SERVICE) == {
        "spec": {"ports": [{"port": 80, "protocol": "TCP", "targetPort": 81}, {"port": 53, "protocol": "UDP"}]}
    }


def test_what_was_applied_and_is_not_any_more_goes_unless_it_has_another_manager():
    live = {"data": {"a": "1", "b": "2", "c": "3", "foreign": "x"}}
    shape = shape_of("v1", "ConfigMap")
    last = fields_of({"data": {"a": "1", "b": "2", "c": "3"}}, shape)
    managed = of([("f:data", "f:a"), ("f:data", "f:b")])

    assert prune_unowned(live, last, managed, shape) == {"data": {"a": "1", "b": "2", "foreign": "x"}}


def test_an_item_that_is_not_applied_any_more_goes_whole_unless_others_have_parts_of_it():
    live = a_pod({"name": "a", "image": "1"}, {"name": "b", "image": "1", "terminationMessagePath": "/d"})
    last = fields_of(a_pod({"name": "a"}, {"name": "b", "image": "1"}), POD)
    now = fields_of(a_pod({"name": "a"}), POD)

    assert [each["name"] for each in prune_unowned(live, last, now, POD)["spec"]["containers"]] == ["a"]


def test_a_configuration_must_be_of_its_type():
    config = a_pod({"name": "a", "imag": "x"}, {"name": "a"}, bogus=1)

    assert [*type_errors(config, POD)] == [
        '.spec.containers[name="a"].imag: field not declared in schema',
        '.spec.containers: duplicate entries for key [name="a"]',
        ".spec.bogus: field not declared in schema",
    ]


@pytest.mark.parametrize(
    "config",
    [
        a_pod({"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]}),
        a_pod({"name": "c", "image": 1}, nodeSelector={"a": "b"}, tolerations=[{"key": "k"}]),
        a_pod({"name": "c", "bogus": 1}),
        a_pod({"name": "c", "image": 1, "ports": []}),
        a_pod({"name": "c", "ports": {}, "env": None}),
        a_pod({"name": "c", "args": ["a", 1]}),
        a_pod("c"),
        a_pod({"name": "c", "resources": {"limits": {"cpu": 1, "memory": ["1Gi"]}}}),
        a_pod({"name": "c", "env": [{"name": "A", "valueFrom": {"bogus": 1}}]}),
        a_pod({"name": "c"}, tolerations=[{"key": "k"}, {"bogus": "k"}]),
        a_pod({"name": "c"}, {"name": "c"}),
        a_pod({"image": "i"}),
        a_pod({"name": "c", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]}),
    ],
)
def test_what_is_found_declared_at_a_glance_has_no_fault(config):
    assert is_declared(config, POD) == (not [*type_errors(config, POD)])


def test_merging_shares_what_the_configuration_does_not_change():
    live = {**a_pod({"name": "c", "image": "i", "command": ["a"]}, {"name": "d"}), "metadata": {"labels": {"a": "b"}}}

    same = merge_by_schema(
        live, {**a_pod({"name": "c", "command": ["a"]}, {"name": "d"}), "metadata": {"labels": {}}}, POD
    )
    other = merge_by_schema(live, a_pod({"name": "c", "image": "j"}), POD)

    assert same is live
    assert other["spec"]["containers"][1] is live["spec"]["containers"][1]
    assert other["metadata"] is live["metadata"]
    assert (
        merge_by_schema({"spec": {"hostNetwork": True}}, {"spec": {"hostNetwork": 1}}, POD)["spec"]["hostNetwork"]
        is not True
    )
