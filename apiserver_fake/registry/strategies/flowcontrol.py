"""Priority and fairness (flowcontrol.apiserver.k8s.io/v1, KEP-1040): stored and shown; this server queues no requests.

The texts are upstream's (`pkg/apis/flowcontrol/validation`).
"""

from apiserver_fake.strategy import declared
from apiserver_fake.validation.fields import Check, Field, Report, Struct, unique
from apiserver_fake.validation.formats import Causes, forbidden, invalid, required, subdomain, unsupported
from services.api.meta import Document

PRECEDENCE_MAX = 10_000
VERBS = ("*", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy")


def _members(of: str, kinds: dict[str, str]) -> Check:
    def check(union: Document, at: str, report: Report) -> Causes:
        kind = union.get(of) or ""
        if kind not in kinds:
            yield unsupported(f"{at}{of}", kind, kinds)
            return
        member = kinds[kind]
        if member and union.get(member) is None:
            yield required(f"{at}{member}", f"{member} is required when subject kind is {kind}")
        for other in kinds.values():
            if other and other != member and union.get(other) is not None:
                yield forbidden(f"{at}{other}", f"{other} is forbidden when subject kind is not {kind}")

    return check


def _rule(rule: Document, at: str, report: Report) -> Causes:
    if not rule.get("subjects"):
        yield required(f"{at}subjects", "subjects must contain at least one value")
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        yield required(at[:-1], "at least one of resourceRules and nonResourceRules has to be non-empty")


def _resources(rule: Document, at: str, report: Report) -> Causes:
    yield from _verbs(rule, at, report)
    for name in ("apiGroups", "resources"):
        if not rule.get(name):
            yield required(f"{at}{name}", "must contain at least one value")
    if not rule.get("namespaces") and not rule.get("clusterScope"):
        yield required(
            f"{at}namespaces", "resource rules that are not cluster scoped must supply at least one namespace"
        )


def _verbs(rule: Document, at: str, report: Report) -> Causes:
    verbs = rule.get("verbs") or []
    if not verbs:
        yield required(f"{at}verbs", "verbs must contain at least one value")
    elif "*" in verbs and len(verbs) > 1:
        yield invalid(f"{at}verbs", verbs, "if '*' is present, must not specify other verbs")
    elif unknown := [each for each in verbs if each not in VERBS]:
        yield unsupported(f"{at}verbs", unknown, VERBS)


SUBJECTS = Struct(_members("kind", {"User": "user", "Group": "group", "ServiceAccount": "serviceAccount"}))
FLOW_SCHEMA_SPEC = Struct(
    Field(
        "matchingPrecedence",
        default=1000,
        minimum=1,
        maximum=PRECEDENCE_MAX,
        text=f"must be between 1 and {PRECEDENCE_MAX}",
    ),
    Field("distinguisherMethod", struct=Struct(Field("type", missing="", enum=("ByNamespace", "ByUser")))),
    Field(
        "priorityLevelConfiguration",
        missing={},
        struct=Struct(Field("name", required="must reference a priority level", form=subdomain)),
    ),
    Field(
        "rules",
        items=Struct(
            _rule,
            Field("subjects", items=SUBJECTS),
            Field("resourceRules", items=Struct(_resources)),
            Field("nonResourceRules", items=Struct(_verbs)),
        ),
    ),
)


def _level(spec: Document, at: str, report: Report) -> Causes:
    kind = spec.get("type") or ""
    if kind not in ("Exempt", "Limited"):
        yield unsupported(f"{at}type", kind, ("Exempt", "Limited"))
    elif kind == "Exempt" and spec.get("limited") is not None:
        yield forbidden(f"{at}limited", "must be nil if the type is not Limited")
    elif kind == "Limited" and spec.get("exempt") is not None:
        yield forbidden(f"{at}exempt", "must be nil if the type is Limited")
    elif kind == "Limited" and spec.get("limited") is None:
        yield required(f"{at}limited", "must not be empty when type is Limited")


def _response(response: Document, at: str, report: Report) -> Causes:
    kind, queuing = response.get("type") or "", response.get("queuing")
    if kind not in ("Queue", "Reject"):
        yield unsupported(f"{at}type", kind, ("Queue", "Reject"))
    elif kind == "Reject" and queuing is not None:
        yield forbidden(f"{at}queuing", "must be nil if limited.limitResponse.type is not Limited")
    elif kind == "Queue" and queuing is None:
        yield required(f"{at}queuing", "must not be empty if limited.limitResponse.type is Limited")


def _hands(queuing: Document, at: str, report: Report) -> Causes:
    if queuing["handSize"] > queuing["queues"]:
        text = f"should not be greater than queues ({queuing['queues']})"
        yield invalid(f"{at}handSize", queuing["handSize"], text)


QUEUING = Struct(
    Field("queueLengthLimit", default=50, minimum=1, text="must be positive"),
    Field("queues", default=64, minimum=1, text="must be positive"),
    Field("handSize", default=8, minimum=1, text="must be positive"),
    _hands,
)
PERCENT = Field("lendablePercent", default=0, minimum=0, maximum=100)
LIMITED = Struct(
    Field("nominalConcurrencyShares", default=30, minimum=0, text="must be a non-negative integer"),
    PERCENT,
    Field("limitResponse", default={}, struct=Struct(_response, Field("queuing", struct=QUEUING))),
)
EXEMPT = Struct(Field("nominalConcurrencyShares", default=0, minimum=0), PERCENT)
LEVEL_SPEC = Struct(_level, Field("limited", struct=LIMITED), Field("exempt", struct=EXEMPT))
CONDITIONS = Struct(Field("conditions", items=Struct(Field("type", missing=""), unique("type"))))

STRATEGIES = {
    "flowschemas.flowcontrol.apiserver.k8s.io": declared(
        Struct(Field("spec", default={}, struct=FLOW_SCHEMA_SPEC)), has_status=True, status=CONDITIONS
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": declared(
        Struct(Field("spec", default={}, struct=LEVEL_SPEC)), has_status=True, status=CONDITIONS
    ),
}
