"""Rules that the kinds of dynamic resource allocation share: names, selectors, configuration, references.

What this server cannot do yet is refused, field by field (`beyond`): a field that was stored and ignored would mislead
its reader, and one that was dropped could turn a request into another one. Texts of upstream's
`pkg/apis/resource/validation`.
"""

from __future__ import annotations

import re

import msgspec

from apiserver_fake.validation.fields import Check, Field, Report, Struct
from apiserver_fake.validation.formats import Cause, Causes, forbidden, invalid, required, subdomain
from apiserver_fake.validation.pod.placement import NODE_TERM
from services.api.cel.device_selectors import SelectorError, compile_selector
from services.api.meta import Document

LIST_MAX, CONFIG_BYTES_MAX, DRIVER_NAME_MAX, POOL_NAME_MAX = 32, 10 * 1024, 63, 253
_ID_RE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
ID_TEXT = "the name must be a C identifier of at most 32 characters"


def beyond(*names: str) -> Check:
    """Return a rule that refuses these fields when they are set: they mean something that nothing here does."""

    def check(holder: Document, at: str, report: Report) -> Causes:
        for name in names:
            if holder.get(name) not in (None, False, [], {}, ""):
                yield forbidden(at + name, "is not supported by this server")

    return check


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


def _selector(each: Document, at: str, report: Report) -> Causes:
    """CEL selectors: each must be an expression that can be evaluated here."""
    expression = (each.get("cel") or {}).get("expression") or ""
    if not expression:
        yield required(f"{at}cel" if each.get("cel") is None else f"{at}cel.expression")
        return
    try:
        compile_selector(expression)
    except SelectorError as error:
        yield invalid(f"{at}cel.expression", expression, str(error))


SELECTORS = Field("selectors", most=LIST_MAX, items=Struct(_selector))


def _parameters(parameters: Document, path: str, report: Report) -> Causes:
    if len(msgspec.json.encode(parameters)) > CONFIG_BYTES_MAX:
        yield Cause(path, "FieldValueTooLong", f"Too long: may not be more than {CONFIG_BYTES_MAX} bytes")


OPAQUE = Field(
    "opaque",
    required=True,
    struct=Struct(Field("driver", missing="", form=driver_name), Field("parameters", required=True, rule=_parameters)),
)
"""Configuration for one driver."""


def _one_term(terms: list[Document], path: str, report: Report) -> Causes:
    if len(terms) != 1:
        yield invalid(path, len(terms), "must have exactly one node selector term")
    else:
        NODE_TERM.check(terms[0], f"{path}[0].", report)


ONE_TERM = Struct(Field("nodeSelectorTerms", missing=[], rule=_one_term))
"""A node selector that must have exactly one term."""
