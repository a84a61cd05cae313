"""Validation of ResourceClaims: their requests, and the status that the allocator and the drivers write.

A request is `exactly` one kind of device, or a list of alternatives of which the first available one is taken
(KEP-4816). Constraints, configuration and results refer to a request by `name`, or by `name/alternative`. The
texts are upstream's (`pkg/apis/resource/validation`, v1.36). Source: dra-core 1.3; KEP-4381, KEP-4816,
KEP-4817, KEP-5007, KEP-5075.
"""

from collections.abc import Iterable, Iterator, Mapping

from apiserver_fake.registry.validation.devices.names import (
    LIST_MAX,
    NODE_SELECTOR,
    OPAQUE,
    SELECTORS,
    device_qualified_name,
    driver_name,
    fully_qualified,
    no_two,
    pool_name,
    uid,
)
from apiserver_fake.registry.validation.devices.taints import TOLERATIONS
from apiserver_fake.registry.validation.fields import Field, Report, Struct, not_repeated
from apiserver_fake.registry.validation.formats import (
    Causes,
    duplicate,
    invalid,
    label,
    qualified_name,
    quantity,
    required,
    subdomain,
    too_many,
)
from services.api.kinds.resourceclaim import ALL, ALTERNATIVES_MAX, DEVICES_MAX, EXACT_COUNT
from services.api.meta import Document

CONFIGS_GRANTED_MAX, BINDING_CONDITIONS_MAX = 64, 4
NOT_A_REQUEST = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
NONE_OR_BOTH = "exactly one of `exactly` or `firstAvailable` is required"
ATTRIBUTE_MISSING = "exactly one of matchAttribute or distinctAttribute is required"
ATTRIBUTES_BOTH = "exactly one of matchAttribute or distinctAttribute is required, but multiple fields are set"


def _exact_count(request: Document) -> None:
    if request["allocationMode"] == EXACT_COUNT and not request.get("count"):
        request["count"] = 1


def _count(request: Document, at: str, report: Report) -> Causes:
    mode, count = request.get("allocationMode"), request.get("count") or 0
    if mode == ALL and count:
        yield invalid(f"{at}count", count, f"must not be specified when allocationMode is '{ALL}'")
    elif mode == EXACT_COUNT and count <= 0:
        yield invalid(f"{at}count", count, "must be greater than zero")


def _capacities(amounts: Mapping[str, str], path: str, report: Report) -> Causes:
    for name, text in amounts.items():
        yield from device_qualified_name(path, name)
        yield from quantity(f"{path}[{name}]", "memory", text)


_DEVICES = (
    Field("deviceClassName", required=True, form=subdomain),
    SELECTORS,
    Field("allocationMode", default=EXACT_COUNT, is_blank_absent=True, enum=(ALL, EXACT_COUNT)),
    _count,
    TOLERATIONS,
    Field("capacity", struct=Struct(Field("requests", rule=_capacities))),
)
_EXACTLY = Struct(*_DEVICES, completion=_exact_count, are_defaults_last=True)
_ALTERNATIVE = Struct(
    Field("name", required=True, form=label), no_two("name"), *_DEVICES, completion=_exact_count, are_defaults_last=True
)


def _kind_of_request(request: Document, at: str, report: Report) -> Causes:
    is_exact, has_alternatives = request.get("exactly") is not None, bool(request.get("firstAvailable"))
    if not is_exact and not has_alternatives:
        yield required(at[:-1], NONE_OR_BOTH)
    elif is_exact and has_alternatives:
        yield invalid(at[:-1], None, f"{NONE_OR_BOTH}, but multiple fields are set")


_REQUEST = Struct(
    Field("name", required=True, form=label),
    no_two("name"),
    _kind_of_request,
    Field("firstAvailable", most=ALTERNATIVES_MAX, items=_ALTERNATIVE),
    Field("exactly", struct=_EXACTLY),
)


def request_names(requests: Iterable[Document]) -> frozenset[str]:
    """Return the names by which requests can be referenced: each request's name, and `name/alternative` for
    alternatives.
    """
    return frozenset(_request_names(requests))


def _request_names(requests: Iterable[Document]) -> Iterator[str]:
    for request in requests:
        name = request.get("name") or ""
        yield name
        for alternative in request.get("firstAvailable") or ():
            yield f"{name}/{alternative.get('name') or ''}"


def _open_scope(devices: Document, at: str, report: Report) -> Causes:
    report.scope = request_names((devices.get("requests") or [])[:LIST_MAX])
    return ()


def _is_known(name: str, path: str, report: Report) -> Causes:
    parts = name.split("/")
    if len(parts) > 2:
        yield invalid(path, name, NOT_A_REQUEST)
        return
    for part in parts:
        yield from label(path, part)
    if name not in report.scope:
        yield invalid(path, name, NOT_A_REQUEST)


def _named_request(name: str, path: str, report: Report) -> Causes:
    yield from _is_known(name, path, report)
    yield from not_repeated(name, path, report)


_REQUESTS = Field("requests", most=LIST_MAX, items=Field(rule=_named_request))
"""Field with references to requests of the claim."""


def _attribute(constraint: Document, at: str, report: Report) -> Causes:
    named = [name for name in ("matchAttribute", "distinctAttribute") if constraint.get(name) is not None]
    if not named:
        yield required(at[:-1], ATTRIBUTE_MISSING)
    elif len(named) > 1:
        yield invalid(at[:-1], None, ATTRIBUTES_BOTH)
    else:
        yield from fully_qualified(at + named[0], constraint[named[0]])


CONSUMER = Struct(
    Field("resource", required=True), Field("name", required=True), Field("uid", required=True), no_two("uid")
)


def names_claim(consumer: Document) -> bool:
    """Whether the consumer reference names a ResourceClaim."""
    return consumer.get("apiGroup") == "resource.k8s.io" and consumer.get("resource") == "resourceclaims"


def _reserved_for(consumer: Document, path: str, report: Report) -> Causes:
    """KEP-5194: who will use the claim; without a uid only if the scheduler looks it up (`late`), or is the claim's."""
    may_have_none = report.switches.reserved_for_uid_policy != "strict" or names_claim(consumer)
    for name in ("resource", "name", "uid"):
        if not consumer.get(name) and not (name == "uid" and may_have_none):
            yield required(f"{path}.{name}")


_DEVICES_OF_CLAIM = Field(
    "devices",
    struct=Struct(
        _open_scope,
        Field("requests", most=LIST_MAX, items=_REQUEST),
        Field("constraints", most=LIST_MAX, items=Struct(_REQUESTS, _attribute)),
        Field("config", most=LIST_MAX, items=Struct(_REQUESTS, OPAQUE)),
    ),
)
CLAIM_SPEC = Struct(_DEVICES_OF_CLAIM, Field("reservedFor", rule=_reserved_for))


def binding_conditions(holder: Document, at: str, report: Report) -> Causes:
    """Check `bindingConditions` and `bindingFailureConditions`: both or neither are set, and they do not overlap."""
    names = {each: holder.get(each) or [] for each in ("bindingConditions", "bindingFailureConditions")}
    for name, values in names.items():
        if wrong := too_many(at + name, len(values), BINDING_CONDITIONS_MAX):
            yield from wrong
            return
        for index, value in enumerate(values):
            yield from qualified_name(f"{at}{name}[{index}]", value)
            if value in values[:index]:
                yield duplicate(f"{at}{name}[{index}]", value)
    wanted, failures = names.values()
    for index, value in enumerate(failures):
        if value in wanted:
            text = "bindingFailureConditions must not overlap with bindingConditions"
            yield invalid(f"{at}bindingFailureConditions[{index}]", value, text)
    if failures and not wanted:
        text = "bindingConditions are required to use bindingFailureConditions"
        yield invalid(f"{at}bindingConditions", wanted, text)
    if wanted and not failures:
        text = "bindingFailureConditions are required to use bindingConditions"
        yield invalid(f"{at}bindingFailureConditions", failures, text)


_RESULT = Struct(
    Field("request", missing="", rule=_is_known),
    Field("driver", missing="", form=driver_name),
    Field("pool", missing="", form=pool_name),
    Field("device", missing="", form=label),
    binding_conditions,
    TOLERATIONS,
    Field("shareID", rule=lambda value, path, report: uid(path, value)),
    Field("consumedCapacity", rule=_capacities),
)
_GRANTED_CONFIG = Struct(Field("source", required=True, enum=("FromClaim", "FromClass")), _REQUESTS, OPAQUE)
ALLOCATION = Struct(
    Field(
        "devices",
        struct=Struct(
            Field("results", most=DEVICES_MAX, items=_RESULT),
            Field("config", most=CONFIGS_GRANTED_MAX, items=_GRANTED_CONFIG),
        ),
    ),
    Field("nodeSelector", struct=NODE_SELECTOR),
)
