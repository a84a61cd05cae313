"""What policies ask an authorizer. Values, errors and costs were compared with k8s.io/apiserver's library."""

import pytest

from services.cel.environment import KUBERNETES, CompileError, Environment, EvaluationError
from services.cel.libraries.authorization import (
    AUTHORIZATION,
    AUTHORIZER,
    RESOURCE_CHECK,
    Decision,
    Question,
    authorizer_for,
    resource_check_for,
)

ENVIRONMENT = Environment(
    {"authorizer": AUTHORIZER, "authorizer.requestResource": RESOURCE_CHECK}, libraries=(*KUBERNETES, AUTHORIZATION)
)


def ask(question: Question) -> Decision:
    if question.verb == "fail":
        return Decision(False, error="boom")
    return Decision(question.verb == "get", reason=repr(question))


VARIABLES = {
    "authorizer": authorizer_for("bob", ask),
    "authorizer.requestResource": resource_check_for("bob", ask, group="apps", resource="deployments", namespace="n"),
}


def evaluated(expression: str) -> object:
    return ENVIRONMENT.compile(expression).evaluate(VARIABLES)


def test_a_decision_is_allowed_or_not_and_may_have_failed() -> None:
    pods = "authorizer.group('').resource('pods')"
    assert evaluated(f"{pods}.check('get').allowed()") is True
    assert evaluated(f"{pods}.check('list').allowed()") is False
    assert evaluated(f"{pods}.check('fail').errored() && {pods}.check('fail').error() == 'boom'") is True
    assert evaluated(f"{pods}.check('get').errored()") is False


@pytest.mark.parametrize(
    ("check", "asked"),
    [
        ("authorizer.path('/healthz')", Question("bob", "get", "/healthz")),
        (
            "authorizer.group('apps').resource('x').subresource('status').namespace('n').name('m')",
            Question("bob", "get", "", "apps", "x", "status", "n", "m"),
        ),
        (
            "authorizer.serviceAccount('ns', 'sa').group('').resource('pods')",
            Question("system:serviceaccount:ns:sa", "get", resource="pods"),
        ),
        (
            "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=a').labelSelector('a=b')",
            Question("bob", "get", resource="pods", field_selector="spec.nodeName=a", label_selector="a=b"),
        ),
        ("authorizer.requestResource", Question("bob", "get", "", "apps", "deployments", namespace="n")),
    ],
)
def test_everything_that_is_said_is_asked(check: str, asked: Question) -> None:
    assert evaluated(f"{check}.check('get').reason()") == repr(asked)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("authorizer.path(' ')", "path must not be empty"),
        ("authorizer.group('').resource('')", "resource must not be empty"),
        ("authorizer.serviceAccount('a.b', 'sa')", "Invalid service account namespace"),
        ("authorizer.serviceAccount('a', 's@')", "Invalid service account name"),
        ("authorizer == authorizer", "no such overload"),
    ],
)
def test_what_cannot_be_asked_is_an_error(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError) as refused:
        evaluated(expression)
    assert str(refused.value) == message


def test_an_authorizer_has_no_fields() -> None:
    with pytest.raises(CompileError, match="unexpected failed resolution of"):
        ENVIRONMENT.compile("authorizer.user")


def test_an_expression_may_ask_twice() -> None:
    asked = "authorizer.group('').resource('pods').check('{}').allowed()"
    twice = ENVIRONMENT.compile(f"{asked.format('get')} && {asked.format('get')}")
    assert twice.cost.most == 700_008
    assert twice.evaluate_with_cost(list(VARIABLES.values())) == (True, 700_008)
    with pytest.raises(EvaluationError, match="operation cancelled: actual cost limit exceeded"):
        evaluated(" || ".join(asked.format(verb) for verb in "abc"))


def test_selectors_cost_by_their_length() -> None:
    program = ENVIRONMENT.compile("authorizer.group('').resource('pods').fieldSelector('spec.nodeName=a').check('get')")
    assert program.cost.most == 350_000 + 3 + 10 + 2 + 8 * 50
