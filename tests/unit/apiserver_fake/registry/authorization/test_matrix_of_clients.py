"""Clients of REST, cell by cell: the table and RBAC's objects against the evaluator that looks at every rule."""

import itertools

import msgspec
import pytest

from apiserver_fake.extensions.rbac.bootstrap import bootstrap_objects
from apiserver_fake.registry.authorization.authorizer import authorize
from apiserver_fake.registry.policy import Attributes, Binding, Policy, PolicyRule, Role, RoleRef, Subject
from lab.scenarios.invariants.policy import Call, RbacQuestion, is_allowed, rbac_allows
from services.api.errors import Forbidden
from services.api.identity import ADMIN, ANONYMOUS, MONITOR, SCHEDULER, Identity, account_groups, external
from services.api.wire import Request

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "bind")
RESOURCES = (
    ("", "pods", ""), ("", "pods", "log"), ("", "pods", "exec"), ("", "pods", "portforward"), ("", "pods", "proxy"),
    ("", "pods", "eviction"), ("", "pods", "status"), ("", "pods", "unbind"), ("", "nodes", ""), ("", "nodes", "proxy"),
    ("", "nodes", "metrics"), ("", "secrets", ""), ("", "configmaps", ""), ("", "events", ""), ("", "namespaces", ""),
    ("", "serviceaccounts", ""), ("", "serviceaccounts", "token"), ("apps", "deployments", ""),
    ("apps", "deployments", "scale"), ("apps", "replicasets", "status"), ("batch", "jobs", ""),
    ("rbac.authorization.k8s.io", "roles", ""), ("rbac.authorization.k8s.io", "clusterroles", ""),
    ("coordination.k8s.io", "leases", ""), ("authentication.k8s.io", "tokenreviews", ""),
    ("authorization.k8s.io", "subjectaccessreviews", ""), ("authorization.k8s.io", "selfsubjectaccessreviews", ""),
    ("example.com", "widgets", ""), ("resource.k8s.io", "resourceclaims", ""), ("", "users", ""),
)  # fmt: skip
PLACES = (("a", ""), ("a", "x"), ("b", "x"), ("", "x"), ("", ""))
PATHS = (
    "/", "/api", "/api/v1", "/apis/apps", "/healthz", "/healthz/ping", "/livez", "/readyz", "/version", "/version/", "/metrics",
    "/metrics/slis", "/openapi/v2", "/openapi/v3/api/v1", "/.well-known/openid-configuration", "/openid/v1/jwks", "/logs", "/debug/x",
)  # fmt: skip
IDENTITIES = (
    ADMIN, ANONYMOUS, SCHEDULER, MONITOR, Identity("ann"), Identity("bob", ("dev",)), Identity("eve", ("system:monitoring",)),
    Identity("root", ("system:masters",)), Identity("system:serviceaccount:a:sa", account_groups("a")),
    Identity("system:serviceaccount:b:sa", account_groups("b")), Identity("system:kube-controller-manager"),
    Identity("system:serviceaccount:kube-system:generic-garbage-collector", account_groups("kube-system")),
    Identity("system:serviceaccount:kube-system:job-controller", account_groups("kube-system")), Identity("system:kube-proxy"),
)  # fmt: skip


def own(kind, name, namespace="", **body):
    meta = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": body.pop("labels", {})}
    return {"kind": kind, "metadata": meta, **body}


def bound(kind, name, role, *subjects, namespace=""):
    ref = dict(zip(("kind", "name"), role.split("/"), strict=True))
    return own(kind, name, namespace, roleRef=ref, subjects=[dict(s) for s in subjects])


ANN, DEV = {"kind": "User", "name": "ann"}, {"kind": "Group", "name": "dev"}
ACCOUNT = {"kind": "ServiceAccount", "name": "sa", "namespace": "a"}
WIDGETS = {"verbs": ["get", "list"], "apiGroups": ["example.com"], "resources": ["widgets"]}
NAMED = {"verbs": ["get", "delete"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"]}
OBJECTS = [
    *(document for _, document in bootstrap_objects()),
    own("ClusterRole", "widgets", labels={"rbac.authorization.k8s.io/aggregate-to-view": "true"}, rules=[WIDGETS]),
    own("Role", "named", "a", rules=[NAMED, {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*/scale"]}]),
    own("ClusterRole", "logs", rules=[{"verbs": ["get"], "nonResourceURLs": ["/logs*", "/debug/x"]}]),
    bound("RoleBinding", "views", "ClusterRole/view", ANN, namespace="a"),
    bound("RoleBinding", "edits", "ClusterRole/edit", DEV, namespace="b"),
    bound("RoleBinding", "named", "Role/named", ACCOUNT, ANN, namespace="a"),
    bound("RoleBinding", "other", "Role/named", DEV, namespace="b"),
    bound("RoleBinding", "here", "ClusterRole/admin", {"kind": "ServiceAccount", "name": "sa"}, namespace="b"),
    bound("ClusterRoleBinding", "logs", "ClusterRole/logs", ACCOUNT),
    bound("ClusterRoleBinding", "gone", "ClusterRole/not-there", ANN, DEV),
]


def aggregated(role, roles):
    """Return the role with the rules that its controller writes into it."""
    found = list(role.get("rules") or ())
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        ((key, value),) = selector["matchLabels"].items()
        for other in roles:
            if (other["metadata"].get("labels") or {}).get(key) == value and other is not role:
                found += aggregated(other, roles)["rules"]
    return {**role, "rules": found}


@pytest.fixture(scope="module")
def policy():
    clusterwide = [each for each in OBJECTS if each["kind"] == "ClusterRole"]
    roles = [aggregated(each, clusterwide) for each in OBJECTS if each["kind"].endswith("Role")]
    bindings = [each for each in OBJECTS if each["kind"].endswith("Binding")]

    def at(each):
        return each["metadata"].get("namespace", ""), each["metadata"]["name"]

    return Policy(
        [Role(*at(each), msgspec.convert(each["rules"], tuple[PolicyRule, ...])) for each in roles],
        [
            Binding(
                *at(each),
                msgspec.convert(each["roleRef"], RoleRef),
                msgspec.convert(each.get("subjects") or (), tuple[Subject, ...]),
            )
            for each in bindings
        ],
    )


def test_guarantees_as_34_roles_and_bindings_and_the_independent_evaluator_agree_on_every_cell(world, policy):
    count, allowed, differences = 0, 0, []
    for identity in map(external, IDENTITIES):
        for verb, (group, plural, sub), (namespace, name) in itertools.product(VERBS, RESOURCES, PLACES):
            count += 1
            resource = f"{plural}.{group}" if group else plural
            asked = RbacQuestion(verb, group, plural, sub, namespace, name)
            call = Call(
                identity.user, identity.groups, verb, resource, sub, namespace, name,
                preconditions=frozenset(("uid", "rv")),
            )  # fmt: skip
            by_rbac = sub != "unbind" and rbac_allows(identity.user, identity.groups, asked, OBJECTS)
            request = Request(verb=verb, resource=resource, subresource=sub, namespace=namespace, name=name)
            try:
                authorize(identity, request, world.lookup, world.list, policy)
                answer = True
            except Forbidden:
                answer = False
            allowed += answer
            if answer != (by_rbac or is_allowed(call)):
                differences.append((identity.user, asked, answer))
    assert differences[:5] == []
    assert count >= 20_000
    assert allowed >= 3_000


def test_guarantees_as_34_paths_are_decided_alike(policy):
    cells = list(itertools.product(map(external, IDENTITIES), ("get", "head", "post", "delete"), PATHS))
    differences = [
        (identity.user, verb, path)
        for identity, verb, path in cells
        if policy.decide(identity, Attributes(verb, path=path)).allowed
        != rbac_allows(identity.user, identity.groups, RbacQuestion(verb, path=path), OBJECTS)
    ]
    assert differences == []
    assert len(cells) >= 1_000
