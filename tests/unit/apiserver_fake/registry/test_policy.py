"""RBAC against an evaluator of its own, which looks at every rule of every binding and knows no index."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver_fake.extensions.rbac.bootstrap import AUTOUPDATE, bootstrap_objects, reconcile
from apiserver_fake.registry.policy import (
    Attributes,
    Binding,
    Policy,
    PolicyRule,
    Role,
    RoleRef,
    Subject,
    escalation_text,
    forbidden_text,
    missing_rights,
)
from services.api.identity import Identity

USERS = ["ann", "bob", "system:serviceaccount:a:sa", "system:serviceaccount:b:sa"]
GROUPS = ["g", "h", "system:masters"]
NAMESPACES = ["", "a", "b"]


def some(values, least=0):
    return st.lists(st.sampled_from(values), min_size=least, max_size=3).map(tuple)


RULES = st.builds(
    PolicyRule,
    verbs=some(["get", "list", "*"], 1),
    api_groups=some(["", "apps", "*"], 1),
    resources=some(["pods", "pods/log", "*/log", "secrets", "*"], 1),
    resource_names=some(["x", "y"]),
) | st.builds(PolicyRule, verbs=some(["get", "*"], 1), non_resource_urls=some(["/api", "/api/*", "*", "/metrics"], 1))
ROLES = st.builds(
    Role, namespace=st.sampled_from(NAMESPACES), name=st.sampled_from(["r", "s"]), rules=st.lists(RULES).map(tuple)
)
SUBJECTS = (
    st.builds(Subject, kind=st.just("User"), name=st.sampled_from(USERS))
    | st.builds(Subject, kind=st.just("Group"), name=st.sampled_from(GROUPS))
    | st.builds(Subject, kind=st.just("ServiceAccount"), name=st.just("sa"), namespace=st.sampled_from(NAMESPACES))
)
BINDINGS = st.builds(
    Binding,
    namespace=st.sampled_from(NAMESPACES),
    name=st.sampled_from(["b1", "b2", "b3"]),
    role=st.builds(RoleRef, kind=st.sampled_from(["Role", "ClusterRole"]), name=st.sampled_from(["r", "s", "gone"])),
    subjects=st.lists(SUBJECTS, max_size=3).map(tuple),
)
ASKED = st.builds(
    Attributes,
    verb=st.sampled_from(["get", "list", "delete"]),
    group=st.sampled_from(["", "apps"]),
    resource=st.sampled_from(["pods", "secrets"]),
    subresource=st.sampled_from(["", "log"]),
    name=st.sampled_from(["", "x", "y"]),
    namespace=st.sampled_from(NAMESPACES),
) | st.builds(Attributes, verb=st.sampled_from(["get", "post"]), path=st.sampled_from(["/api", "/api/v1", "/metrics"]))
IDENTITIES = st.builds(Identity, user=st.sampled_from(USERS), groups=some(GROUPS))


def unique(found):
    return list({(each.namespace, each.name): each for each in found}.values())


def holds(who, subject, namespace):
    if subject.kind == "User":
        return subject.name == who.user
    if subject.kind == "Group":
        return subject.name in who.groups
    at = subject.namespace or namespace
    return at != "" and who.user == f"system:serviceaccount:{at}:{subject.name}"


def permits(rule, asked):
    if not any(verb in ("*", asked.verb) for verb in rule.verbs):
        return False
    if asked.path:
        return any(
            url in ("*", asked.path) or (url.endswith("*") and asked.path.startswith(url[:-1]))
            for url in rule.non_resource_urls
        )
    whole = asked.resource + ("/" + asked.subresource if asked.subresource else "")
    return (
        any(group in ("*", asked.group) for group in rule.api_groups)
        and any(
            each in ("*", whole) or (asked.subresource and each == "*/" + asked.subresource) for each in rule.resources
        )
        and (not rule.resource_names or asked.name in rule.resource_names)
    )


def is_allowed(who, asked, roles, bindings):
    """The other evaluator: every binding, every subject, every rule."""
    if "system:masters" in who.groups:
        return True
    for binding in bindings:
        if binding.namespace and binding.namespace != asked.namespace:
            continue
        if not any(holds(who, subject, binding.namespace) for subject in binding.subjects):
            continue
        home = "" if binding.role.kind == "ClusterRole" else binding.namespace
        for role in roles:
            is_meant = (role.namespace, role.name) == (home, binding.role.name)
            if is_meant and any(permits(rule, asked) for rule in role.rules):
                return True
    return False


@given(st.lists(ROLES, max_size=4), st.lists(BINDINGS, max_size=4), IDENTITIES, st.lists(ASKED, min_size=1, max_size=5))
def test_the_compiled_policy_answers_as_one_that_looks_at_every_rule(roles, bindings, who, asked):
    roles, bindings = unique(roles), unique(bindings)
    policy = Policy(roles, bindings)

    for each in asked:
        assert policy.decide(who, each).allowed == is_allowed(who, each, roles, bindings), each


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=2), st.lists(ASKED, min_size=1, max_size=5))
def test_who_misses_no_right_of_a_rule_may_do_all_that_the_rule_allows(held, granted, asked):
    def may(rules, each):
        return any(permits(rule, each) for rule in rules)

    if not missing_rights(held, granted):
        assert all(may(held, each) for each in asked if may(granted, each))


def a_policy(*bindings):
    reader = PolicyRule(verbs=("get",), api_groups=("",), resources=("pods",))
    return Policy([Role("", "reader", (reader,))], bindings)


def test_a_reason_names_the_binding_the_role_and_the_first_subject_that_matches():
    account = Subject(kind="ServiceAccount", name="sa", namespace="a")
    policy = a_policy(
        Binding("n", "rb", RoleRef(kind="ClusterRole", name="reader"), (Subject(kind="Group", name="g"), account))
    )

    by_account = policy.decide(Identity("system:serviceaccount:a:sa"), Attributes("get", "", "pods", namespace="n"))
    by_group = policy.decide(Identity("ann", ("g",)), Attributes("get", "", "pods", namespace="n"))

    assert by_account.reason == ('RBAC: allowed by RoleBinding "rb/n" of ClusterRole "reader" to ServiceAccount "sa/a"')
    assert by_group.reason == 'RBAC: allowed by RoleBinding "rb/n" of ClusterRole "reader" to Group "g"'


def test_a_refusal_says_which_role_was_not_found():
    policy = a_policy(Binding("", "crb", RoleRef(kind="ClusterRole", name="gone"), (Subject(kind="User", name="ann"),)))

    decision = policy.decide(Identity("ann"), Attributes("get", "", "pods"))

    assert decision == (False, 'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found')


def test_a_refusal_has_upstreams_words():
    ann = Identity("ann")

    assert [
        forbidden_text(ann, Attributes("get", "apps", "deployments", "scale", "web", "n")),
        forbidden_text(ann, Attributes("list", "", "nodes")),
        forbidden_text(ann, Attributes("get", path="/metrics")),
    ] == [
        'User "ann" cannot get resource "deployments/scale" in API group "apps" in the namespace "n"',
        'User "ann" cannot list resource "nodes" in API group "" at the cluster scope',
        'User "ann" cannot get path "/metrics"',
    ]


def test_what_is_missing_is_shown_with_the_verbs_of_one_resource_together():
    granted = PolicyRule(verbs=("get", "delete"), api_groups=("",), resources=("nodes", "pods"))
    held = PolicyRule(verbs=("get",), api_groups=("",), resources=("*",))

    text = escalation_text(Identity("ann", ("g", "h")), missing_rights([held], [granted]))

    assert text == (
        'user "ann" (groups=["g" "h"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["nodes"], Verbs:["delete"]}\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}'
    )


def the_default_policy():
    roles, bindings, rules_of = [], [], {}
    for _, document in bootstrap_objects():
        meta = document["metadata"]
        if "roleRef" in document:
            ref = msgspec.convert(document["roleRef"], RoleRef)
            subjects = msgspec.convert(document.get("subjects") or [], tuple[Subject, ...])
            bindings.append(Binding(meta.get("namespace", ""), meta["name"], ref, subjects))
        else:
            rules = msgspec.convert(document.get("rules") or [], tuple[PolicyRule, ...])
            rules_of[meta["name"]] = rules
            roles.append(Role(meta.get("namespace", ""), meta["name"], rules))
    return Policy(roles, bindings), rules_of


AUTHENTICATED = ("system:authenticated",)
SCHEDULER = Identity("system:kube-scheduler", AUTHENTICATED)
MANAGER = Identity("system:kube-controller-manager", AUTHENTICATED)


def a_controller(name):
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system", *AUTHENTICATED)
    return Identity(f"system:serviceaccount:kube-system:{name}", groups)


@pytest.mark.parametrize(
    ("who", "asked", "expected"),
    [
        (SCHEDULER, Attributes("create", "", "pods", "binding", "p", "n"), True),
        (SCHEDULER, Attributes("delete", "", "pods", "", "p", "n"), True),
        (SCHEDULER, Attributes("update", "coordination.k8s.io", "leases", "", "kube-scheduler", "kube-system"), True),
        (SCHEDULER, Attributes("update", "coordination.k8s.io", "leases", "", "other", "kube-system"), False),
        (SCHEDULER, Attributes("list", "", "secrets"), False),
        (SCHEDULER, Attributes("patch", "", "persistentvolumes", "", "v"), True),
        (MANAGER, Attributes("list", "", "secrets"), True),
        (MANAGER, Attributes("create", "", "serviceaccounts", "token", "x", "kube-system"), True),
        (MANAGER, Attributes("create", "apps", "replicasets", "", "", "n"), False),
        (a_controller("deployment-controller"), Attributes("create", "apps", "replicasets", "", "", "n"), True),
        (a_controller("deployment-controller"), Attributes("create", "", "pods", "", "", "n"), False),
        (a_controller("generic-garbage-collector"), Attributes("delete", "x.example", "anythings", "", "a", "n"), True),
        (Identity("ann", AUTHENTICATED), Attributes("get", path="/apis/apps"), True),
        (Identity("ann", AUTHENTICATED), Attributes("get", path="/metrics"), False),
        (Identity("ann", AUTHENTICATED), Attributes("create", "authorization.k8s.io", "selfsubjectaccessreviews"), True),
        (Identity("system:anonymous", ("system:unauthenticated",)), Attributes("get", path="/version"), True),
        (Identity("system:anonymous", ("system:unauthenticated",)), Attributes("get", path="/api"), False),
        (Identity("ann", ("system:masters",)), Attributes("impersonate", "", "users", "", "bob"), True),
    ],
)  # fmt: skip
def test_the_default_policy_lets_upstreams_components_do_their_work_and_no_more(who, asked, expected):
    policy, _ = the_default_policy()

    assert policy.decide(who, asked).allowed == expected


def test_every_default_binding_is_to_a_default_role_and_no_name_is_there_twice():
    keys = [(r, d["metadata"].get("namespace"), d["metadata"]["name"]) for r, d in bootstrap_objects()]
    policy, _ = the_default_policy()

    assert len(keys) == len(set(keys))
    for resource, document in bootstrap_objects():
        if "roleRef" in document:
            ref = msgspec.convert(document["roleRef"], RoleRef)
            assert policy.role(ref, document["metadata"].get("namespace", "")) is not None, (resource, document)


def test_a_start_gives_a_default_role_back_what_it_lacks_and_leaves_what_was_added():
    wanted = next(d for _, d in bootstrap_objects() if d["metadata"]["name"] == "system:kube-dns")
    added = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    stored = {**wanted, "rules": [wanted["rules"][1], added]}

    again = reconcile(stored, wanted)

    held = [msgspec.convert(rule, PolicyRule) for rule in again["rules"]]
    assert again["rules"][:2] == [wanted["rules"][1], added]
    assert missing_rights(held, [msgspec.convert(rule, PolicyRule) for rule in wanted["rules"]]) == []
    assert reconcile(again, wanted) is again


def test_a_start_leaves_a_default_role_alone_that_says_so():
    wanted = next(d for _, d in bootstrap_objects() if d["metadata"]["name"] == "system:kube-dns")
    stored = {**wanted, "metadata": {**wanted["metadata"], "annotations": {AUTOUPDATE: "false"}}, "rules": []}

    assert reconcile(stored, wanted) is stored
