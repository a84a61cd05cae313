"""Audit policies: which rule is about a request, and what a file may say."""

import pytest

from apiserver_fake.extensions.audit.policy import DEFAULT, AuditSettings, read_policy
from apiserver_fake.registry.policy import Attributes
from services.api.identity import Identity

ANN = Identity("ann", ("dev", "system:authenticated"))


def policy(tmp_path, rules, head=""):
    path = tmp_path / "policy.yaml"
    path.write_text(f"apiVersion: audit.k8s.io/v1\nkind: Policy\n{head}\nrules:\n{rules}")
    return read_policy(path)


@pytest.mark.parametrize(
    ("rule", "asked", "is_matched"),
    [
        ("{}", Attributes("get", path="/api"), True),
        ("users: [ann]", Attributes("get", resource="pods"), True),
        ("users: [bob]", Attributes("get", resource="pods"), False),
        ("userGroups: [ops, dev]", Attributes("get", resource="pods"), True),
        ("userGroups: [ops]", Attributes("get", resource="pods"), False),
        ("verbs: [create]", Attributes("get", resource="pods"), False),
        ("namespaces: [a]", Attributes("get", resource="pods", namespace="a"), True),
        ("namespaces: ['']", Attributes("get", resource="nodes"), True),
        ("namespaces: [a]", Attributes("get", path="/api"), False),
        ("resources: [{group: ''}]", Attributes("get", resource="pods", subresource="log"), True),
        ("resources: [{group: apps}]", Attributes("get", resource="pods"), False),
        ("resources: [{resources: [pods]}]", Attributes("get", resource="pods", subresource="log"), False),
        ("resources: [{resources: [pods/log]}]", Attributes("get", resource="pods", subresource="log"), True),
        ("resources: [{resources: [pods/*]}]", Attributes("get", resource="pods"), True),
        ("resources: [{resources: [pods/*]}]", Attributes("get", resource="pods", subresource="log"), True),
        ("resources: [{resources: ['*/scale']}]", Attributes("get", resource="pods", subresource="scale"), True),
        ("resources: [{resources: ['*']}]", Attributes("get", resource="pods", subresource="log"), True),
        ("resources: [{resources: [pods], resourceNames: [a]}]", Attributes("get", resource="pods", name="b"), False),
        ("resources: [{resources: [pods], resourceNames: [a]}]", Attributes("get", resource="pods", name="a"), True),
        ("nonResourceURLs: [/healthz*]", Attributes("get", path="/healthz/ping"), True),
        ("nonResourceURLs: [/healthz]", Attributes("get", path="/healthz/ping"), False),
        ("nonResourceURLs: ['*']", Attributes("get", resource="pods"), False),
    ],
)
def test_a_rule_is_about_what_matches_in_every_field(tmp_path, rule, asked, is_matched):
    said = "" if rule == "{}" else f"  {rule}\n"
    found = policy(tmp_path, f"- level: Request\n{said}")

    assert found.of(ANN, asked).level == ("Request" if is_matched else "None")


def test_the_first_rule_decides_stages_are_united_and_managed_fields_are_the_rules_own(tmp_path):
    rules = "- {level: None, verbs: [watch]}\n- {level: Metadata, omitStages: [ResponseStarted], omitManagedFields: false}\n"
    found = policy(tmp_path, rules, "omitStages: [RequestReceived]\nomitManagedFields: true")

    assert found.of(ANN, Attributes("watch", resource="pods")) == AuditSettings(
        "None", frozenset(("RequestReceived",)), True
    )
    stages = frozenset(("RequestReceived", "ResponseStarted"))
    assert found.of(None, Attributes("get", path="/api")) == AuditSettings("Metadata", stages, False)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("- {level: Everything}\n", "Invalid enum value 'Everything'"),
        ("- {level: None, user: [a]}\n", "unknown field `user`"),
        ("- {level: None, nonResourceURLs: [/a], resources: [{}]}\n", "both regular resources and non-resource URLs"),
        ("- {level: None, nonResourceURLs: [api]}\n", "must begin with a '/'"),
        ("- {level: None, nonResourceURLs: ['/a*b']}\n", "must be the final character"),
        ("- {level: None, resources: [{group: apps/v1}]}\n", "has no version"),
        ("- {level: None, resources: [{resourceNames: [a]}]}\n", "requires at least one resource"),
        ("  []\n", "a policy without rules"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_with_the_file_and_the_fault(tmp_path, rules, why):
    with pytest.raises(ValueError, match=r"policy\.yaml: ") as refused:
        policy(tmp_path, rules)
    assert why in str(refused.value)


def test_the_policy_of_keplab_up_records_bodies_of_nothing():
    found = read_policy(DEFAULT)

    assert {rule.level for rule in found.rules} == {"None", "Metadata"}
    assert found.of(ANN, Attributes("create", resource="secrets", namespace="a")).level == "Metadata"
    assert found.of(ANN, Attributes("get", path="/livez")).level == "None"
