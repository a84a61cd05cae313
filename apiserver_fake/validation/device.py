"""Rules that the kinds of dynamic resource allocation share: names, selectors, configuration, references.

What this server cannot do yet is refused, field by field (`beyond`): a field that was stored and ignored would be a
promise, and one that was dropped could turn a request into another one. Texts of upstream's
`pkg/apis/resource/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from apiserver_fake.strategy import Cause
from apiserver_fake.validation.formats import forbidden, invalid, required, subdomain, too_many
from apiserver_fake.validation.pod.placement import check_node_term
from services.api.device_selectors import SelectorError, compile_selector
from services.api.meta import Document

LIST_MAX, CONFIG_BYTES_MAX, DRIVER_NAME_MAX, POOL_NAME_MAX = 32, 10 * 1024, 63, 253
_ID_RE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
ID_TEXT = "the name must be a C identifier of at most 32 characters"


def beyond(holder: Document, names: Iterable[str], at: str) -> list[Cause]:
    """Refuse the fields of that list that are set: they mean something that nothing here does."""
    return [
        forbidden(f"{at}.{name}", "is not supported by this server")
        for name in names
        if holder.get(name) not in (None, False, [], {}, "")
    ]


def driver_name(path: str, value: str) -> list[Cause]:
    """Check a driver's name: a DNS subdomain of at most 63 characters."""
    if not value:
        return [required(path)]
    if len(value) > DRIVER_NAME_MAX:
        return [invalid(path, value, f"must be no more than {DRIVER_NAME_MAX} bytes")]
    return subdomain(path, value)


def pool_name(path: str, value: str) -> list[Cause]:
    """Check a pool's name: DNS subdomains separated by slashes, at most 253 characters."""
    if not value:
        return [required(path)]
    if len(value) > POOL_NAME_MAX:
        return [invalid(path, value, f"must be no more than {POOL_NAME_MAX} bytes")]
    return [cause for part in value.split("/") for cause in subdomain(path, part)]


def attribute_name(path: str, value: str, *, is_full: bool = False) -> list[Cause]:
    """Check `[domain/]id`; `is_full`: the domain must be there."""
    domain, slash, name = value.rpartition("/")
    if is_full and not slash:
        return [invalid(path, value, "must include a domain")]
    causes = driver_name(path, domain) if slash else []
    return causes if _ID_RE.fullmatch(name) else [*causes, invalid(path, value, ID_TEXT)]


def check_selectors(selectors: list[Document], at: str) -> list[Cause]:
    """Check CEL selectors: each must be an expression that can be evaluated here."""
    causes = too_many(at, len(selectors), LIST_MAX)
    for index, each in enumerate(selectors[:LIST_MAX]):
        here = f"{at}[{index}].cel"
        expression = (each.get("cel") or {}).get("expression") or ""
        if not expression:
            causes.append(required(here if each.get("cel") is None else f"{here}.expression"))
            continue
        try:
            compile_selector(expression)
        except SelectorError as error:
            causes.append(invalid(f"{here}.expression", expression, str(error)))
    return causes


def check_opaque(config: Document, at: str) -> list[Cause]:
    """Check configuration for one driver."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{at}.opaque")]
    causes = driver_name(f"{at}.opaque.driver", opaque.get("driver") or "")
    parameters, here = opaque.get("parameters"), f"{at}.opaque.parameters"
    if parameters is None:
        causes.append(required(here))
    elif len(msgspec.json.encode(parameters)) > CONFIG_BYTES_MAX:
        text = f"Too long: may not be more than {CONFIG_BYTES_MAX} bytes"
        causes.append(Cause(here, "FieldValueTooLong", text))
    return causes


def check_one_term(selector: Document, at: str) -> list[Cause]:
    """Check a node selector that must have exactly one term."""
    terms, here = selector.get("nodeSelectorTerms") or [], f"{at}.nodeSelectorTerms"
    if len(terms) != 1:
        return [invalid(here, len(terms), "must have exactly one node selector term")]
    causes: list[Cause] = []
    check_node_term(terms[0], f"{here}[0]", causes)
    return causes
