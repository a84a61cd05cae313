"""Formats and fields that the kinds of `resource.k8s.io` share: names, selectors, opaque parameters, node
selectors.

The texts are upstream's (`pkg/apis/resource/validation`, v1.36). Source: KEP-4381; dra-core 1.1.
"""

import re
from typing import Any

import msgspec

from apiserver_fake.registry.validation.fields import Check, Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    SUBDOMAIN_TEXT,
    Cause,
    Causes,
    duplicate,
    forbidden,
    invalid,
    required,
    subdomain,
    too_long,
)
from apiserver_fake.registry.validation.pod.placement import NODE_SELECTOR_TERMS
from services.api.meta import Document

LIST_MAX, OPAQUE_BYTES_MAX, EXPRESSION_BYTES_MAX = 32, 10 * 1024, 10 * 1024
DRIVER_NAME_MAX, POOL_NAME_MAX, ID_MAX = 63, 253, 32
_ID_RE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ID_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)
UNQUALIFIED = "a fully qualified name must be a domain and a name separated by a slash"
_UID_RE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
UID_TEXT = (
    "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal "
    "characters"
)
NOT_AN_OBJECT = Cause("", "FieldValueInvalid", "Invalid value: <value omitted>: must be a valid JSON object")


def driver_name(path: str, value: str) -> list[Cause]:
    """Check a driver's name: a DNS subdomain of at most 63 bytes, in which capitals are tolerated."""
    if not value:
        return [required(path)]
    causes = [too_long(path, DRIVER_NAME_MAX)] if len(value) > DRIVER_NAME_MAX else []
    return causes + ([invalid(path, value, SUBDOMAIN_TEXT)] if subdomain(path, value.lower()) else [])


def pool_name(path: str, value: str) -> list[Cause]:
    """Check a pool's name: DNS subdomains separated by slashes, at most 253 bytes."""
    if not value:
        return [required(path)]
    causes = [too_long(path, POOL_NAME_MAX)] if len(value) > POOL_NAME_MAX else []
    return causes + [cause for part in value.split("/") for cause in subdomain(path, part)]


def device_qualified_name(path: str, value: str) -> list[Cause]:
    """Check the name of an attribute or a capacity: `id` or `domain/id`."""
    domain, slash, name = value.rpartition("/")
    if "/" in domain:
        return [invalid(path, value, "must not contain more than one slash")]
    causes: list[Cause] = []
    if slash:
        causes += driver_name(path, domain) if domain else [invalid(path, "", "the domain must not be empty")]
        if not name:
            return [*causes, invalid(path, "", "the name must not be empty")]
    if len(name) > ID_MAX:
        causes.append(too_long(path, ID_MAX))
    return causes if _ID_RE.fullmatch(name) else [*causes, invalid(path, name, ID_TEXT)]


def fully_qualified(path: str, value: str) -> list[Cause]:
    """Check `domain/id`."""
    causes = device_qualified_name(path, value)
    return causes if "/" in value else [*causes, invalid(path, value, UNQUALIFIED)]


def uid(path: str, value: str) -> list[Cause]:
    """Check the uid that identifies a share of a device."""
    return [] if _UID_RE.fullmatch(value) else [invalid(path, value, UID_TEXT)]


def no_two(*names: str) -> Check:
    """Return a rule that no two items of a list have equal members of these names; the refusal names the item."""

    def check(item: Document, at: str, report: Report) -> Causes:
        key = "/".join(str(item.get(name) or "") for name in names)
        if key in report.seen:
            yield duplicate(at[:-1], key)
        report.seen.add(key)

    return check


def _selector(selector: Document, at: str, report: Report) -> Causes:
    """CEL selectors: each must be an expression whose evaluation cannot cost too much."""
    cel = selector.get("cel")
    if cel is None:
        yield required(f"{at}cel")
        return
    expression, here = cel.get("expression") or "", f"{at}cel.expression"
    if not expression:
        yield required(here)
        return
    if len(expression.encode()) > EXPRESSION_BYTES_MAX:
        yield too_long(here, EXPRESSION_BYTES_MAX)
        return
    if report.update is not None and _same_selectors(*report.update):
        return
    # Only here: CEL is large, and few clusters have selectors.
    from services.cel.device_selectors import SelectorError, SelectorTooComplex, check_new_selector

    gates = report.switches
    try:
        check_new_selector(
            expression,
            list_attributes=gates.dra_list_type_attributes,
            consumable_capacity=gates.dra_consumable_capacity,
        )
    except SelectorTooComplex as error:
        yield forbidden(here, str(error))
    except SelectorError as error:
        yield invalid(here, expression, str(error))


def _same_selectors(old: Document, new: Document) -> bool:
    """Whether a class has the selectors that it had: they were valid once, and gates limit what is new.

    Any other order is new. Source: upstream `validateDeviceClassSpec` (`stored`).
    """
    return bool((old.get("spec") or {}).get("selectors") == (new.get("spec") or {}).get("selectors"))


SELECTORS = Field("selectors", most=LIST_MAX, items=Struct(_selector))


def json_object(maximum: int) -> Check:
    """Return a rule for opaque driver data: it must be an object of at most `maximum` bytes of JSON."""

    def check(value: Any, path: str, report: Report) -> Causes:
        if len(msgspec.json.encode(value)) > maximum:
            yield too_long(path, maximum)
        elif not isinstance(value, dict):
            yield NOT_AN_OBJECT._replace(path=path)

    return check


OPAQUE = Field(
    "opaque",
    required=True,
    struct=Struct(
        Field("driver", missing="", form=driver_name),
        Field("parameters", required=True, rule=json_object(OPAQUE_BYTES_MAX)),
    ),
)
"""Field with the opaque configuration for one driver."""


def _one(selector: Document, at: str, report: Report) -> Causes:
    # That there is one makes it possible to merge the selectors of devices from several slices.
    terms = selector.get("nodeSelectorTerms") or []
    if len(terms) != 1:
        yield invalid(f"{at}nodeSelectorTerms", terms, "must have exactly one node selector term")


NODE_SELECTOR = Struct(NODE_SELECTOR_TERMS)
ONE_TERM = Struct(NODE_SELECTOR_TERMS, _one)
"""A node selector that must have exactly one term."""
