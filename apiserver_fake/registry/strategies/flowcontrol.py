"""FlowSchemas and PriorityLevelConfigurations (flowcontrol.apiserver.k8s.io/v1, KEP-1040), which
`fairness/` enforces.

The texts are upstream's (`pkg/apis/flowcontrol/validation`).
"""

import math

from apiserver_fake.registry.strategy import declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct, unique
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    faults,
    forbidden,
    invalid,
    label,
    not_supported,
    required,
    subdomain,
)
from services.api.meta import Document

PRECEDENCE_MAX, QUEUES_MAX, HASH_BITS_MAX = 10_000, 10_000_000, 60
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch")
EXEMPT_NAME = "exempt"
SUBJECTS_BY_KIND = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}


def _subject(subject: Document, at: str, report: Report) -> Causes:
    kind = subject.get("kind") or ""
    if (member := SUBJECTS_BY_KIND.get(kind)) is None:
        yield not_supported(f"{at}kind", kind, sorted(SUBJECTS_BY_KIND))
        return
    who, path = subject.get(member), f"{at}{member}"
    if who is None:
        yield required(path, f"{member} is required when subject kind is '{kind}'")
    else:
        name = who.get("name") or ""
        if not name:
            yield required(f"{path}.name")
        elif kind == "ServiceAccount" and name != "*":
            yield from subdomain(f"{path}.name", name)
        if kind == "ServiceAccount" and who.get("namespace"):
            yield from label(f"{path}.namespace", who["namespace"])
        elif kind == "ServiceAccount":
            yield required(f"{path}.namespace", "must specify namespace for service account")
    for other_kind, other in SUBJECTS_BY_KIND.items():
        if other != member and subject.get(other) is not None:
            yield forbidden(f"{at}{other}", f"{other} is forbidden when subject kind is not '{other_kind}'")


def _subjects(rule: Document, at: str, report: Report) -> Causes:
    if not rule.get("subjects"):
        yield required(f"{at}subjects", "subjects must contain at least one value")


def _some_rule(rule: Document, at: str, report: Report) -> Causes:
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        yield required(at[:-1], "at least one of resourceRules and nonResourceRules has to be non-empty")


def _all_alone(values: list[str], path: str, what: str) -> list[Cause]:
    if "*" in values and len(values) > 1:
        return [invalid(path, values, f"if '*' is present, must not specify other {what}")]
    return []


def _verbs(rule: Document, at: str, report: Report) -> Causes:
    verbs = rule.get("verbs") or []
    if not verbs:
        yield required(f"{at}verbs", "verbs must contain at least one value")
    elif "*" in verbs:
        yield from _all_alone(verbs, f"{at}verbs", "verbs")
    elif not {*verbs} <= {*VERBS}:
        yield not_supported(f"{at}verbs", verbs, VERBS)


def _resources(rule: Document, at: str, report: Report) -> Causes:
    yield from _verbs(rule, at, report)
    for name, one, many in (("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")):
        if not rule.get(name):
            yield required(f"{at}{name}", f"resource rules must supply at least one {one}")
        else:
            yield from _all_alone(rule[name], f"{at}{name}", many)
    namespaces, path = rule.get("namespaces") or [], f"{at}namespaces"
    if not namespaces and not rule.get("clusterScope"):
        yield required(path, "resource rules that are not cluster scoped must supply at least one namespace")
    elif "*" in namespaces:
        yield from _all_alone(namespaces, path, "namespaces")
    else:
        for index, name in enumerate(namespaces):
            for why in faults(label, name):
                text = f"each member of this list must be '*' or a DNS-1123 label; {why}"
                yield invalid(f"{path}[{index}]", name, text)


def _urls(rule: Document, at: str, report: Report) -> Causes:
    yield from _verbs(rule, at, report)
    urls, path = rule.get("nonResourceURLs") or [], f"{at}nonResourceURLs"
    if not urls:
        yield required(path, "nonResourceURLs must contain at least one value")
    elif "*" in urls:
        yield from _all_alone(urls, path, "non-resource URLs")
    else:
        for index, url in enumerate(urls):
            if why := _fault_of_url(url):
                yield invalid(f"{path}[{index}]", url, why)


def _fault_of_url(url: str) -> str:
    if not url:
        return "must not be empty"
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    stars = url.count("*")
    return "wildcard can only do suffix matching" if stars > 1 or (stars and not url.endswith("/*")) else ""


def _lend_name(new: Document, at: str, report: Report) -> Causes:
    report.scope = new["metadata"].get("name") or ""
    return ()


def _precedence(value: int, path: str, report: Report) -> Causes:
    if value <= 0:
        yield invalid(path, value, "must be a positive value")
    if value > PRECEDENCE_MAX:
        yield invalid(path, value, f"must not be greater than {PRECEDENCE_MAX}")
    if value == 1 and report.scope != EXEMPT_NAME:
        yield invalid(path, value, "only the schema named 'exempt' may have matchingPrecedence 1")


def _distinguisher(method: Document, path: str, report: Report) -> Causes:
    if (kind := method.get("type") or "") not in ("ByNamespace", "ByUser"):
        # The value is shown as upstream's internal type is written, which has no JSON names.
        yield not_supported(f"{path}.type", {"Type": kind}, ("ByNamespace", "ByUser"))


FLOW_SCHEMA_SPEC = Struct(
    Field("matchingPrecedence", default=1000, is_blank_absent=True, rule=_precedence),
    Field("distinguisherMethod", rule=_distinguisher),
    Field(
        "priorityLevelConfiguration",
        missing={},
        struct=Struct(Field("name", required="must reference a priority level", form=subdomain)),
    ),
    Field(
        "rules",
        items=Struct(
            _subjects,
            Field("subjects", items=Struct(_subject)),
            _some_rule,
            Field("resourceRules", items=Struct(_resources)),
            Field("nonResourceRules", items=Struct(_urls)),
        ),
    ),
)


def _level(spec: Document, at: str, report: Report) -> Causes:
    kind = spec.get("type") or ""
    if (kind == "Exempt") != (report.scope == EXEMPT_NAME):
        yield invalid(f"{at}type", kind, "type must be 'Exempt' if and only if name is 'exempt'")
    if kind not in ("Exempt", "Limited"):
        yield not_supported(f"{at}type", kind, ("Exempt", "Limited"))
    elif kind == "Exempt" and spec.get("limited") is not None:
        yield forbidden(f"{at}limited", "must be nil if the type is not Limited")
    elif kind == "Limited" and spec.get("exempt") is not None:
        yield forbidden(f"{at}exempt", "must be nil if the type is Limited")
    elif kind == "Limited" and spec.get("limited") is None:
        yield required(f"{at}limited", "must not be empty when type is Limited")


def _response(response: Document, at: str, report: Report) -> Causes:
    kind, queuing = response.get("type") or "", response.get("queuing")
    if kind not in ("Queue", "Reject"):
        yield not_supported(f"{at}type", kind, ("Queue", "Reject"))
    elif kind == "Reject" and queuing is not None:
        yield forbidden(f"{at}queuing", "must be nil if limited.limitResponse.type is not Limited")
    elif kind == "Queue" and queuing is None:
        yield required(f"{at}queuing", "must not be empty if limited.limitResponse.type is Limited")


def _queues(queues: int, path: str, report: Report) -> Causes:
    if queues <= 0:
        yield invalid(path, queues, "must be positive")
    elif queues > QUEUES_MAX:
        yield invalid(path, queues, f"must not be greater than {QUEUES_MAX}")


def _hands(queuing: Document, at: str, report: Report) -> Causes:
    queues, hand = queuing["queues"], queuing["handSize"]
    if hand <= 0:
        yield invalid(f"{at}handSize", hand, "must be positive")
    elif hand > queues:
        yield invalid(f"{at}handSize", hand, f"should not be greater than queues ({queues})")
    elif math.ceil(math.log2(queues) * hand) > HASH_BITS_MAX:
        text = f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater than"
        yield invalid(f"{at}handSize", hand, f"{text} {HASH_BITS_MAX}")


QUEUING = Struct(
    Field("queueLengthLimit", default=50, is_blank_absent=True, minimum=1, text="must be positive"),
    Field("queues", default=64, is_blank_absent=True, rule=_queues),
    Field("handSize", default=8, is_blank_absent=True),
    _hands,
)
SHARES = "must be a non-negative integer"
PERCENT = Field("lendablePercent", default=0, minimum=0, maximum=100)
LIMITED = Struct(
    Field("nominalConcurrencyShares", default=30, minimum=0, text=SHARES),
    Field("limitResponse", default={}, struct=Struct(_response, Field("queuing", struct=QUEUING))),
    PERCENT,
    Field("borrowingLimitPercent", minimum=0, text=f"if specified, {SHARES}"),
)
EXEMPT = Struct(Field("nominalConcurrencyShares", default=0, minimum=0, text=SHARES), PERCENT)
LEVEL_SPEC = Struct(_level, Field("limited", struct=LIMITED), Field("exempt", struct=EXEMPT))
CONDITIONS = Struct(Field("conditions", items=Struct(unique("type"), Field("type", required="must not be empty"))))

STRATEGIES = {
    "flowschemas.flowcontrol.apiserver.k8s.io": declare_strategy(
        Struct(_lend_name, Field("spec", default={}, struct=FLOW_SCHEMA_SPEC)), has_status=True, status=CONDITIONS
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": declare_strategy(
        Struct(_lend_name, Field("spec", default={}, struct=LEVEL_SPEC)), has_status=True, status=CONDITIONS
    ),
}
