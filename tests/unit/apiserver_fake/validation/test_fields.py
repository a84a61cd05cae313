"""Tables of field rules: defaults, refusals and what never changes, from one place."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver_fake.validation.fields import Field, Report, Struct, not_repeated, one_of, unique
from apiserver_fake.validation.formats import label
from apiserver_fake.validation.pod.spec import check as check_spec

PORT = Struct(Field("name", required=True, form=label), unique("name"), Field("port", minimum=1, maximum=65535))
TABLE = Struct(
    Field("mode", default="A", is_blank_absent=True, enum=("A", "B"), is_immutable=True),
    Field("size", default=lambda holder: 2 if holder.get("mode") == "B" else None, minimum=0),
    Field("labels", default={}),
    Field("ports", required="at least one", missing=[], most=2, items=PORT),
    Field("names", items=Field(rule=not_repeated)),
    Field("union", struct=Struct(one_of("x", "y"), Field("x", default=1)), is_immutable="is fixed."),
)


def wrong(document: Any) -> list[str]:
    report = Report()
    TABLE.check(document, "spec.", report)
    return [f"{cause.path}: {cause.message}" for cause in report.causes]


def test_defaults_fill_what_is_absent_in_the_order_of_the_table_and_are_never_shared():
    first, second = TABLE.complete({"union": {}}), TABLE.complete({"mode": "", "union": {"x": 2}})

    assert first == {"mode": "A", "labels": {}, "union": {"x": 1}}
    assert list(first) == ["mode", "labels", "union"]
    assert second["mode"] == "A"
    assert first["labels"] is not second["labels"]


def test_a_default_may_depend_on_the_object():
    assert TABLE.complete({"mode": "B"})["size"] == 2
    assert TABLE.complete({"mode": "B", "size": 5})["size"] == 5


def test_defaults_may_stand_behind_what_the_client_said():
    table = Struct(Field("a", default=1), are_defaults_last=True)

    assert list(table.complete({"z": 0})) == ["z", "a"]


def test_every_broken_rule_is_named_in_the_order_of_the_table():
    assert wrong({"mode": "C", "size": -1, "ports": [], "names": ["n", "n"], "union": {"x": 1, "y": 1}}) == [
        'spec.mode: Unsupported value: "C": supported values: "A", "B"',
        "spec.size: Invalid value: -1: must be greater than or equal to 0",
        "spec.ports: Required value: at least one",
        'spec.names[1]: Duplicate value: "n"',
        'spec.union: Invalid value: "{x, y}": must specify exactly one of: `x`, `y`',
    ]


def test_items_are_checked_up_to_the_limit_and_keys_are_unique():
    ports = [{"name": "a", "port": 0}, {"name": "a"}, {"name": ""}]

    assert wrong({"ports": ports}) == [
        "spec.ports: Too many: 3: must have at most 2 items",
        "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        'spec.ports[1].name: Duplicate value: "a"',
    ]


def test_what_never_changes_is_compared_with_what_is_stored():
    report = Report()
    TABLE.unchanged({"mode": "A", "union": {"x": 1}}, {"mode": "B", "union": {"x": 2}}, "spec.", report)

    assert [f"{cause.path}: {cause.message}" for cause in report.causes] == [
        'spec.mode: Invalid value: "B": field is immutable',
        "spec.union: Forbidden: is fixed.",
    ]


@pytest.mark.parametrize(("init", "path"), [(True, None), (False, "spec.containers[1].ports[0].hostPort")])
def test_containers_share_host_ports_with_each_other_but_init_containers_with_none(init, path):
    first, second = ({"name": name, "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080}]} for name in "ab")
    rest = {"initContainers": [first], "containers": [second]} if init else {"containers": [first, second]}

    assert [cause.path for cause in check_spec(rest, "spec") if cause.reason == "FieldValueDuplicate"] == (
        [path] if path else []
    )
