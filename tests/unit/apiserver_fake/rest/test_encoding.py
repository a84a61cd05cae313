"""Objects and lists as a server of Go values writes them."""

from pathlib import Path

import msgspec
import pytest
import yaml

from apiserver_fake.rest.encoding import Encoding, _types, complete, type_of
from services.api.resources import resources

CONDITION = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}


@pytest.mark.parametrize(
    ("api_version", "kind", "sent", "answered"),
    [
        ("apps/v1", "ReplicaSet", {}, {"metadata": {}, "spec": {"selector": None}, "status": {"replicas": 0}}),
        ("apps/v1", "StatefulSet", {"spec": {"a": 1}}, {"status": {"replicas": 0, "availableReplicas": 0}}),
        (
            "apps/v1",
            "DaemonSet",
            {},
            {
                "status": {
                    "currentNumberScheduled": 0,
                    "numberMisscheduled": 0,
                    "desiredNumberScheduled": 0,
                    "numberReady": 0,
                }
            },
        ),
        ("apps/v1", "Deployment", {"spec": {}}, {"spec": {"strategy": {}, "selector": None}, "status": {}}),
        (
            "policy/v1",
            "PodDisruptionBudget",
            {},
            {"status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}},
        ),
        ("v1", "Pod", {"spec": {"containers": [{"name": "c"}]}}, {"spec": {"containers": [{"resources": {}}]}}),
        ("v1", "Pod", {"status": {"conditions": [dict(CONDITION)]}}, {"status": {"conditions": [CONDITION]}}),
        ("v1", "Pod", {}, {"metadata": {}, "spec": {"containers": None}, "status": {}}),
        ("v1", "Service", {}, {"status": {"loadBalancer": {}}}),
        ("v1", "Event", {}, {"source": {}, "firstTimestamp": None, "eventTime": None, "reportingComponent": ""}),
        ("rbac.authorization.k8s.io/v1", "Role", {}, {"rules": None}),
        ("scheduling.k8s.io/v1", "PriorityClass", {}, {"value": 0}),
    ],
)
def test_fields_that_are_no_pointers_and_have_no_omitempty_are_written_with_their_zeros(
    api_version, kind, sent, answered
):
    complete(sent, type_of(api_version, kind))

    def holds(inner, outer):
        if isinstance(inner, dict):
            return isinstance(outer, dict) and all(key in outer and holds(inner[key], outer[key]) for key in inner)
        if isinstance(inner, list):
            return len(inner) == len(outer) and all(map(holds, inner, outer))
        return inner == outer

    assert holds(answered, sent), sent


def test_what_is_set_stays_and_nothing_is_written_where_a_pointer_is_missing():
    pod = {
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}]},
        "status": {"phase": "Running"},
    }
    before = msgspec.json.encode(pod)
    complete(pod, "core.Pod")
    assert msgspec.json.encode({**pod, "metadata": 0}) != before
    del pod["metadata"]
    assert msgspec.json.encode(pod) == before


def test_kinds_that_have_no_such_fields_keep_their_bytes():
    assert type_of("v1", "ConfigMap") == type_of("v1", "Secret") == type_of("stable.example.com/v1", "CronTab") == ""


def test_items_of_a_list_carry_no_kind_and_are_made_once():
    encoding = Encoding()
    owner = b'{"apiVersion":"v1","kind":"Pod","metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod"}]}}'
    turned = b'{"metadata":{"name":"b"},"kind":"Pod","apiVersion":"v1"}'
    [items] = encoding.items([owner, turned], "v1", "Pod")
    first, second = (msgspec.json.decode(item) for item in items)
    assert first["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod"}]
    assert not {"kind", "apiVersion"} & set(first)
    assert first["status"] == {}
    assert list(second) == ["metadata", "spec", "status"]
    assert list(encoding.items([owner, turned], "v1", "Pod")) == [items]
    assert encoding.made == 2


VALID = yaml.safe_load((Path(__file__).parents[3] / "fuzz" / "valid_objects.yaml").read_text())
BARE = [
    {"metadata": {"name": "a"}},
    {"metadata": {"name": "a"}, "spec": {}, "status": {}},
    {"spec": None, "metadata": {}, "rules": [{}, None], "data": {"a": None}},
    {"metadata": {"annotations": {"é": '"\\n'}}, "spec": {"containers": [{"name": "é"}], "template": {}}},
]


def test_an_object_completed_member_by_member_is_what_completing_all_of_it_gives():
    objects = [
        {"apiVersion": resource.api_version, "kind": resource.kind, **members}
        for resource in resources().values()
        for members in (*BARE, {"metadata": {}, **VALID.get(resource.name, {})})
    ]
    encoding = Encoding()
    for document in (*objects, *objects):
        if of := type_of(document["apiVersion"], document["kind"]):
            body = msgspec.json.encode(document)
            whole = msgspec.json.decode(body)
            has_changed = complete(whole, of)
            made = encoding._complete(body, of)
            assert msgspec.json.encode(whole) == made
            assert has_changed == (made is not body)


def test_a_spec_that_was_completed_is_not_looked_at_again(monkeypatch):
    completed = []

    def noted(document, of):
        completed.append(of)
        return complete(document, of)

    monkeypatch.setattr("apiserver_fake.rest.encoding.complete", noted)
    encoding = Encoding()
    for phase in ("Pending", "Running"):
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": phase}}
        body = encoding.object(msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **pod}), "core.Pod")
        assert msgspec.json.decode(body)["spec"]["containers"] == [{"name": "c", "resources": {}}]
    assert (1, 2) == (completed.count("core.PodSpec"), completed.count("core.PodStatus"))


def test_the_members_that_are_kept_have_a_bound(monkeypatch):
    monkeypatch.setattr("apiserver_fake.rest.encoding.MEMBERS_BYTES_MAX", 1000)
    encoding = Encoding()
    for number in range(100):
        encoding.object(b'{"metadata":{},"spec":{"containers":[{"name":"%d"}]}}' % number, "core.Pod")
    kept = [len(stored) + len(full) for (_, _, stored), full in encoding._members.items()]
    assert 500 < sum(kept) == encoding._members_bytes <= 1000


def test_what_is_kept_has_a_bound():
    encoding = Encoding(kept_bytes_max=1000)
    for number in range(100):
        encoding.object(b'{"kind":"Pod","metadata":{"name":"%d"}}' % number, "core.Pod")
    assert encoding.kept_bytes <= 1000
    encoding.object(b'{"kind":"Pod","metadata":{"name":"99"}}', "core.Pod")
    assert encoding.made == 100


def test_every_kind_can_be_completed_from_nothing():
    for resource in resources().values():
        if of := type_of(resource.api_version, resource.kind):
            made = {}
            complete(made, of)
            again = msgspec.json.decode(msgspec.json.encode(made))
            complete(again, of)
            assert again == made


def test_no_type_has_a_field_without_a_name():
    assert [of for of, fields in _types().items() if any(not field.name for field in fields)] == []


def test_the_rules_of_a_policy_are_answered_as_they_are():
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}
    policy = {"spec": {"matchConstraints": {"resourceRules": [rule], "excludeResourceRules": [rule]}}}
    for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"):
        sent = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, **policy}
        answered = msgspec.json.decode(Encoding().answer(msgspec.json.encode(sent)))
        assert answered["spec"] == policy["spec"]


def test_a_long_list_comes_in_pieces():
    pods = [b'{"kind":"Pod","metadata":{"name":"%d"}}' % number for number in range(450)]
    encoding = Encoding()
    assert [len(piece) for piece in encoding.items(pods, "v1", "Pod")] == [50] * 9 + [0]
    assert [len(piece) for piece in encoding.items([*pods, *pods], "v1", "Pod")] == [500, 400]


def test_a_kubelets_session_is_shown_only_where_kubelets_unbind():
    node = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"status":{"nodeInfo":{"kubeletSession":"s"}}}'
    bare = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}'
    for has_sessions in (True, False):
        encoding = Encoding(has_sessions=has_sessions)
        (listed,) = [item for piece in encoding.items([node], "v1", "Node") for item in piece]
        for body in (encoding.answer(node), encoding.object(node, "core.Node"), listed):
            assert (b"kubeletSession" in body) == has_sessions
        assert b"nodeInfo" in encoding.answer(bare)


def test_an_object_that_lacks_no_zero_value_is_answered_as_it_is_stored():
    whole = Encoding().object(b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"a":1}}', "core.Pod")
    again = Encoding()

    assert again.object(whole, "core.Pod") is whole
    assert again.answer(whole) is whole


@pytest.mark.parametrize("condition", [{"lastProbeTime": None}, {"lastProbeTime": "2026-01-01T00:00:00Z"}, {}])
def test_a_null_that_is_a_zero_value_already_is_left_alone(condition):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"conditions": [condition]}}

    answered = msgspec.json.decode(Encoding().answer(msgspec.json.encode(pod)))

    zeros = {"type": "", "status": "", "lastProbeTime": None, "lastTransitionTime": None}
    assert answered["status"]["conditions"] == [zeros | condition]
