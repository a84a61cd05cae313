"""Which FlowSchema a request belongs to."""

import msgspec
import pytest

from apiserver_fake.fairness import FlowSchemas, attributes_of
from apiserver_fake.rbac.policy import Attributes
from services.api.identity import Identity

LEADER = Identity("system:kube-scheduler", ("system:authenticated",))
NODE = Identity("system:node:n1", ("system:nodes", "system:authenticated"))
ACCOUNT = Identity("system:serviceaccount:kube-system:gc", ("system:authenticated",))
LEASE = Attributes("update", "coordination.k8s.io", "leases", namespace="kube-system", name="x")


def schema(name, precedence, level="low", **rule):
    subjects = rule.pop("subjects")
    return msgspec.json.encode(
        {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {
                "matchingPrecedence": precedence,
                "priorityLevelConfiguration": {"name": level},
                "rules": [{"subjects": subjects, **rule}],
            },
        }
    )


def user(name):
    return [{"kind": "User", "user": {"name": name}}]


def group(name):
    return [{"kind": "Group", "group": {"name": name}}]


def resources(*names, verbs=("*",), groups=("*",), namespaces=("*",), cluster=False):
    rule = {"verbs": verbs, "apiGroups": groups, "resources": names, "namespaces": namespaces, "clusterScope": cluster}
    return [rule]


LEVELS = [b'{"metadata":{"name":"low","uid":"uid-low"}}']
ALL = group("system:authenticated")


def matched(identity, asked, *schemas):
    found = FlowSchemas(schemas, LEVELS).match(identity, asked)
    return None if found is None else found[0].removeprefix("uid-")


def test_the_lowest_precedence_matches_and_names_decide_between_equals():
    b, a = (schema(n, 500, subjects=ALL, resourceRules=resources("*")) for n in ("b", "a"))
    first = schema("z", 100, subjects=ALL, resourceRules=resources("leases"))
    assert matched(LEADER, LEASE, b, a, first) == "z"
    assert matched(LEADER, LEASE._replace(resource="pods"), b, a, first) == "a"


def test_a_schema_without_its_priority_level_matches_nothing():
    dangling = schema("x", 1, "gone", subjects=ALL, resourceRules=resources("*"))
    assert matched(LEADER, LEASE, dangling) is None


@pytest.mark.parametrize(
    ("subjects", "who"),
    [
        (user("system:kube-scheduler"), {LEADER}),
        (user("*"), {LEADER, NODE, ACCOUNT}),
        (group("system:nodes"), {NODE}),
        ([{"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}}], {ACCOUNT}),
        ([{"kind": "ServiceAccount", "serviceAccount": {"name": "other", "namespace": "kube-system"}}], set()),
    ],
)
def test_subjects(subjects, who):
    only = schema("s", 1, subjects=subjects, resourceRules=resources("*"))
    assert {each for each in (LEADER, NODE, ACCOUNT) if matched(each, LEASE, only)} == who


@pytest.mark.parametrize(
    ("rules", "asked", "expected"),
    [
        (resources("nodes", cluster=True), Attributes("get", "", "nodes", name="n"), True),
        (resources("nodes"), Attributes("get", "", "nodes", name="n"), False),
        (resources("pods", namespaces=["a"]), Attributes("get", "", "pods", namespace="a"), True),
        (resources("pods", namespaces=["a"]), Attributes("get", "", "pods", namespace="b"), False),
        (resources("pods"), Attributes("update", "", "pods", "status", namespace="a"), False),
        (resources("pods/status"), Attributes("update", "", "pods", "status", namespace="a"), True),
        (resources("pods", verbs=["get"]), Attributes("list", "", "pods", namespace="a"), False),
        (resources("*", groups=["apps"]), Attributes("list", "", "pods", namespace="a"), False),
    ],
)
def test_resource_rules(rules, asked, expected):
    assert bool(matched(LEADER, asked, schema("s", 1, subjects=ALL, resourceRules=rules))) is expected


@pytest.mark.parametrize(
    ("urls", "path", "expected"),
    [(["*"], "/x", True), (["/healthz"], "/healthz", True), (["/healthz"], "/healthz/ping", False),
     (["/healthz/*"], "/healthz/ping", True), (["/healthz"], "/livez", False)],
)  # fmt: skip
def test_paths(urls, path, expected):
    rules = [{"verbs": ["*"], "nonResourceURLs": urls}]
    only = schema("s", 1, subjects=ALL, nonResourceRules=rules)
    assert bool(matched(LEADER, Attributes("get", path=path), only)) is expected


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/version", {}, Attributes("get", path="/version")),
        ("GET", "/apis/apps/v1", {}, Attributes("get", path="/apis/apps/v1")),
        ("GET", "/api/v1/pods", {}, Attributes("list", "", "pods")),
        ("GET", "/api/v1/pods", {"watch": "1"}, Attributes("watch", "", "pods")),
        ("GET", "/api/v1/watch/pods", {}, Attributes("watch", "", "pods")),
        ("DELETE", "/api/v1/namespaces/a/pods", {}, Attributes("deletecollection", "", "pods", namespace="a")),
        ("GET", "/api/v1/namespaces/a", {}, Attributes("get", "", "namespaces", name="a", namespace="a")),
        ("PUT", "/api/v1/namespaces/a/finalize", {}, Attributes("update", "", "namespaces", "finalize", "a", "a")),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            {},
            Attributes("patch", "apps", "deployments", "scale", "d", "a"),
        ),
    ],
)
def test_what_a_path_asks_for(method, path, query, expected):
    assert attributes_of(method, path, path.strip("/").split("/"), query) == expected
