"""Tables of field rules: defaults, refusals and what never changes, from one place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apiserver_fake.registry.switches import NO_GATES, ApiServerSwitches
from apiserver_fake.registry.validation.fields import (
    Field,
    RememberedStruct,
    Report,
    Struct,
    not_repeated,
    one_of,
    unique,
)
from apiserver_fake.registry.validation.formats import label
from apiserver_fake.registry.validation.pod.spec import POD_SPEC
from apiserver_fake.registry.validation.pod.spec import check as check_spec

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
    TABLE.check_immutable({"mode": "A", "union": {"x": 1}}, {"mode": "B", "union": {"x": 2}}, "spec.", report)

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


def test_what_was_found_valid_is_not_checked_again_but_for_other_gates_or_another_place() -> None:
    looked_at: list[Any] = []

    def look(holder: Any, at: str, report: Report) -> Any:
        looked_at.append((holder["a"], at))
        report.scope = "of the rules alone"
        return () if holder["a"] < 9 else label("a", "-")

    def identity(holder: Any, report: Report) -> bytes | None:
        return None if holder["a"] == 5 else msgspec.json.encode([holder, report.pod])

    table = RememberedStruct(identity, look, completion=lambda holder: None)

    def check(value: int, at: str = "", gates: ApiServerSwitches = NO_GATES, pod: Any = None) -> int:
        report = Report(gates)
        report.pod, report.scope = pod, "of who asks"
        table.check({"a": value}, at, report)
        assert report.scope == "of who asks"
        return len(report.causes)

    assert [check(1), check(1), check(2), check(1, "spec."), check(1, gates=ApiServerSwitches())] == [0] * 5
    assert looked_at == [(1, ""), (2, ""), (1, "spec."), (1, "")]
    assert check(9) == check(9) == 1, "what is wrong is wrong each time"
    assert check(5) == check(5) == 0
    assert looked_at[-2:] == [(5, "")] * 2, "what has no identity is checked each time"
    assert check(2, pod={"name": "p"}) == 0
    assert looked_at[-1] == (2, ""), "another identity is another object"


class OfASpec(Report):
    """A report that says nothing of what rules of a remembered spec must not look at."""

    __slots__ = ()

    @property
    def update(self) -> Any:
        """What an update changes."""
        raise AssertionError("a rule of a spec asked what an update changes")

    @update.setter
    def update(self, value: Any) -> None:
        """Take what is set at the start."""


NAME = {"name": "p"}
VOLUMES = [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {
    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
    {"name": "other", "persistentVolumeClaim": {"claimName": "p-data"}}]  # fmt: skip
IN_HOST_NETWORK = {"hostNetwork": True, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}
CLAIMED = "spec.volumes[1].persistentVolumeClaim.claimName"


@pytest.mark.parametrize("is_wrong_first", [False, True])
@pytest.mark.parametrize(
    ("more", "right", "wrong", "path"),
    [
        ({"volumes": VOLUMES}, {"name": "q"}, NAME, CLAIMED),
        ({"volumes": VOLUMES}, None, NAME, CLAIMED),
        (IN_HOST_NETWORK, None, NAME, "spec.containers[0].ports[0].hostPort"),
    ],
    ids=["claim of another pod", "claim of a template", "ports of a template"],
)
def test_equal_specs_are_judged_by_the_pod_that_has_them(
    more: Any, right: Any, wrong: Any, path: str, is_wrong_first: bool
) -> None:
    spec = POD_SPEC.complete({"containers": [{"name": "c", "image": "i"}], "schedulerName": f"for-{path}", **more})
    spec["containers"] = more.get("containers", spec["containers"])  # ports are completed, too

    def found(pod: Any) -> list[str]:
        report = OfASpec()
        report.pod = pod
        POD_SPEC.check(spec, "spec.", report)
        return [cause.path for cause in report.causes]

    for pod in [wrong, right, wrong, right] if is_wrong_first else [right, wrong, right, wrong]:
        assert found(pod) == ([path] if pod is wrong else [])


@pytest.mark.parametrize(("mount", "wrong"), [("kube-api-access-zzzzz", 0), ("kube-api-access-yyyyy", 1), ("other", 1)])
def test_pods_that_differ_in_their_tokens_volume_alone_are_one_to_remember(mount: str, wrong: int) -> None:
    def spec(name: str, mount: str) -> Any:
        mounts = [{"name": mount, "mountPath": "/token"}]
        container = {"name": "c", "image": "i", "volumeMounts": mounts}
        source = {"projected": {"sources": [{"configMap": {"name": "m"}}]}}
        return POD_SPEC.complete({"containers": [container], "volumes": [{"name": name, **source}]})

    assert check_spec(spec("kube-api-access-aaaaa", "kube-api-access-aaaaa"), "spec") == []
    assert len(check_spec(spec("kube-api-access-zzzzz", mount), "spec")) == wrong
