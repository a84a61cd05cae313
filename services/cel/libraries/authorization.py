"""Authorization checks in admission policies: `authorizer.group('').resource('pods').check('get').allowed()`.

The evaluator knows no permissions: its caller supplies an `Asker`, and `authorizer_for(user, ask)` as the
variable.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/cel/library/authz.go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from services.cel.declarations import Library, on
from services.cel.formats import FORMATS
from services.cel.questions import Asker, Decision, Question
from services.cel.types import BOOL, STRING, object_of
from services.cel.values import EvaluationError, register

_PACKAGE: Final = "kubernetes.authorization."
AUTHORIZER: Final = object_of(f"{_PACKAGE}Authorizer")
PATH_CHECK: Final = object_of(f"{_PACKAGE}PathCheck")
GROUP_CHECK: Final = object_of(f"{_PACKAGE}GroupCheck")
RESOURCE_CHECK: Final = object_of(f"{_PACKAGE}ResourceCheck")
DECISION: Final = object_of(f"{_PACKAGE}Decision")


@dataclass(frozen=True, slots=True)
class Authorizer:
    """The variable `authorizer`: it asks on behalf of a user."""

    user: str
    ask: Asker


@dataclass(frozen=True, slots=True)
class PathCheck:
    """A check of a path, such as `/healthz`."""

    of: Authorizer
    path: str


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """A check of an API group."""

    of: Authorizer
    group: str


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    """A check of a resource; `question` has all but the verb."""

    of: Authorizer
    question: Question


register(Authorizer, AUTHORIZER, is_compared=False)
register(PathCheck, PATH_CHECK, is_compared=False)
register(GroupCheck, GROUP_CHECK, is_compared=False)
register(ResourceCheck, RESOURCE_CHECK, is_compared=False)
register(Decision, DECISION, is_compared=False)


def authorizer_for(user: str, ask: Asker) -> Authorizer:
    """Return the value of the variable `authorizer` for requests of that user."""
    return Authorizer(user, ask)


def resource_check_for(
    user: str, ask: Asker, *, group: str, resource: str, subresource: str = "", namespace: str = "", name: str = ""
) -> ResourceCheck:
    """Return the value of `authorizer.requestResource` for a request."""
    found = Question(user, "", "", group, resource, subresource, namespace, name)
    return ResourceCheck(Authorizer(user, ask), found)


def _path(of: Authorizer, path: str) -> PathCheck:
    if not path.strip():
        raise EvaluationError("path must not be empty")
    return PathCheck(of, path)


def _service_account(of: Authorizer, namespace: str, name: str) -> Authorizer:
    if FORMATS["dns1123Subdomain"].problems(name):
        raise EvaluationError("Invalid service account name")
    if FORMATS["dns1123Label"].problems(namespace):
        raise EvaluationError("Invalid service account namespace")
    return replace(of, user=f"system:serviceaccount:{namespace}:{name}")


def _resource(group: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(group.of, Question(group.of.user, "", group=group.group, resource=resource))


def _check_path(check: PathCheck, verb: str) -> Decision:
    return check.of.ask(Question(check.of.user, verb, check.path))


def _check_resource(check: ResourceCheck, verb: str) -> Decision:
    return check.of.ask(replace(check.question, verb=verb))


def _narrow(check: ResourceCheck, **fields: str) -> ResourceCheck:
    return replace(check, question=replace(check.question, **fields))


AUTHORIZATION: Final = Library(
    {
        "path": (on("authorizer_path", (AUTHORIZER, STRING), PATH_CHECK, _path),),
        "group": (on("authorizer_group", (AUTHORIZER, STRING), GROUP_CHECK, GroupCheck),),
        "serviceAccount": (
            on("authorizer_serviceaccount", (AUTHORIZER, STRING, STRING), AUTHORIZER, _service_account),
        ),
        "resource": (on("groupcheck_resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, _resource),),
        "subresource": (
            on(
                "resourcecheck_subresource",
                (RESOURCE_CHECK, STRING),
                RESOURCE_CHECK,
                lambda check, text: _narrow(check, subresource=text),
            ),
        ),
        "namespace": (
            on(
                "resourcecheck_namespace",
                (RESOURCE_CHECK, STRING),
                RESOURCE_CHECK,
                lambda check, text: _narrow(check, namespace=text),
            ),
        ),
        "name": (
            on(
                "resourcecheck_name",
                (RESOURCE_CHECK, STRING),
                RESOURCE_CHECK,
                lambda check, text: _narrow(check, name=text),
            ),
        ),
        "fieldSelector": (
            on(
                "authorizer_fieldselector",
                (RESOURCE_CHECK, STRING),
                RESOURCE_CHECK,
                lambda check, text: _narrow(check, field_selector=text),
            ),
        ),
        "labelSelector": (
            on(
                "authorizer_labelselector",
                (RESOURCE_CHECK, STRING),
                RESOURCE_CHECK,
                lambda check, text: _narrow(check, label_selector=text),
            ),
        ),
        "check": (
            on("pathcheck_check", (PATH_CHECK, STRING), DECISION, _check_path),
            on("resourcecheck_check", (RESOURCE_CHECK, STRING), DECISION, _check_resource),
        ),
        "errored": (on("decision_errored", (DECISION,), BOOL, lambda decision: bool(decision.error)),),
        "error": (on("decision_error", (DECISION,), STRING, lambda decision: decision.error),),
        "allowed": (on("decision_allowed", (DECISION,), BOOL, lambda decision: decision.allowed),),
        "reason": (on("decision_reason", (DECISION,), STRING, lambda decision: decision.reason),),
    }
)
