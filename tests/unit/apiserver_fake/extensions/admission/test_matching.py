"""Which requests a rule covers: tables of operations, groups, versions, resources, subresources and scopes."""

import pytest

from apiserver_fake.extensions.admission.matching import Match, Rule
from apiserver_fake.registry.admission.attributes import Attributes, Labels
from services.api.identity import ADMIN
from services.api.resources import resources
from services.api.wire import Request

ALL = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
COVERED = [
    ({}, "CREATE", "pods", "", True),
    ({"operations": ["UPDATE", "DELETE"]}, "CREATE", "pods", "", False),
    ({"operations": ["UPDATE", "DELETE"]}, "DELETE", "pods", "", True),
    ({"apiGroups": [""]}, "CREATE", "pods", "", True),
    ({"apiGroups": ["apps"]}, "CREATE", "pods", "", False),
    ({"apiGroups": ["", "apps"]}, "CREATE", "deployments.apps", "", True),
    ({"apiVersions": ["v1beta1"]}, "CREATE", "pods", "", False),
    ({"resources": ["pods"]}, "CREATE", "pods", "", True),
    ({"resources": ["pods"]}, "UPDATE", "pods", "status", False),
    ({"resources": ["pods/status"]}, "UPDATE", "pods", "status", True),
    ({"resources": ["pods/status"]}, "UPDATE", "pods", "", False),
    ({"resources": ["pods/*"]}, "UPDATE", "pods", "status", True),
    ({"resources": ["pods/*"]}, "UPDATE", "pods", "", True),
    ({"resources": ["*/scale"]}, "UPDATE", "deployments.apps", "scale", True),
    ({"resources": ["*/scale"]}, "UPDATE", "deployments.apps", "", False),
    ({"resources": ["*"]}, "UPDATE", "pods", "status", False),
    ({"resources": ["*/*"]}, "UPDATE", "pods", "status", True),
    ({"scope": "Namespaced"}, "CREATE", "pods", "", True),
    ({"scope": "Namespaced"}, "CREATE", "namespaces", "", False),
    ({"scope": "Cluster"}, "CREATE", "namespaces", "", True),
    ({"scope": "Cluster"}, "CREATE", "nodes", "", True),
    ({"scope": "Cluster"}, "CREATE", "pods", "", False),
]


@pytest.mark.parametrize(("rule", "operation", "resource", "subresource", "expected"), COVERED)
def test_a_rule_covers_what_it_names(rule, operation, resource, subresource, expected):
    assert Rule.of({**ALL, **rule}).covers(operation, resources()[resource], subresource) is expected


def labelled(**labels):
    return {"metadata": {"name": "p", "labels": labels}}


def found(operation, new, old, *, resource="pods", namespace="blue"):
    kind = resources()[resource]
    request = Request(verb=operation.lower(), resource=resource, namespace=namespace)
    return Attributes(operation, kind, kind, "", namespace, "p", new, old, ADMIN, request)


NAMESPACES = {"blue": {"team": "blue"}}
LABELS = Labels(lambda resource, namespace, name: NAMESPACES.get(name))
BLUE = {"matchLabels": {"team": "blue"}}
SELECTED = [
    ({"objectSelector": BLUE}, found("CREATE", labelled(team="blue"), None), True),
    ({"objectSelector": BLUE}, found("CREATE", labelled(), None), False),
    ({"objectSelector": BLUE}, found("UPDATE", labelled(), labelled(team="blue")), True),
    ({"objectSelector": BLUE}, found("DELETE", None, labelled(team="blue")), True),
    ({"namespaceSelector": BLUE}, found("CREATE", labelled(), None), True),
    ({"namespaceSelector": BLUE}, found("CREATE", labelled(), None, namespace="red"), False),
    ({"namespaceSelector": BLUE}, found("CREATE", labelled(), None, resource="nodes", namespace=""), True),
    ({"namespaceSelector": BLUE}, found("CREATE", labelled(), None, resource="namespaces", namespace=""), False),
    ({"namespaceSelector": BLUE}, found("CREATE", labelled(team="blue"), None, resource="namespaces", namespace=""), True),
    ({"excluded": [{**ALL, "resourceNames": ["p"]}]}, found("CREATE", labelled(), None), False),
    ({"excluded": [{**ALL, "resourceNames": ["q"]}]}, found("CREATE", labelled(), None), True),
]  # fmt: skip


@pytest.mark.parametrize(("document", "request_", "expected"), SELECTED)
def test_selectors_look_at_the_namespace_and_at_both_states_of_the_object(document, request_, expected):
    match = Match.of({"rules": [ALL], **document}, "rules", excluded="excluded")
    assert (match.matches(request_, [request_.resource], LABELS) is not None) is expected
