"""Rules of the claims for devices that a pod names, and of the containers that use them (KEP-4381).

The texts are upstream's (`pkg/apis/core/validation`).
"""

from __future__ import annotations

from apiserver_fake.strategy import Cause
from apiserver_fake.validation.formats import duplicate, invalid, label, required, subdomain, too_many
from services.api.meta import Document

CLAIMS_MAX = 32
"""Claims a pod may name (V7)."""


def check_claims(spec: Document, at: str) -> list[Cause]:
    """Check `resourceClaims`, and that every container refers to one of them."""
    claims, here = spec.get("resourceClaims") or [], f"{at}.resourceClaims"
    causes = too_many(here, len(claims), CLAIMS_MAX)
    names: dict[str, None] = {}
    for index, each in enumerate(claims[:CLAIMS_MAX]):
        place, name = f"{here}[{index}]", each.get("name") or ""
        causes += label(f"{place}.name", name) if name else [required(f"{place}.name")]
        if name in names:
            causes.append(duplicate(f"{place}.name", name))
        names[name] = None
        causes += _check_source(each, place)
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            used = (container.get("resources") or {}).get("claims") or []
            causes += _check_used(used, names, f"{at}.{kind}[{index}].resources.claims")
    return causes


def _check_source(claim: Document, at: str) -> list[Cause]:
    named = [name for name in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(name) is not None]
    if len(named) > 1:
        text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        return [invalid(at, claim.get("name") or "", text)]
    if not named:
        text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        return [invalid(at, claim.get("name") or "", text)]
    return subdomain(f"{at}.{named[0]}", claim[named[0]])


def _check_used(used: list[Document], names: dict[str, None], at: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: dict[tuple[str, str], None] = {}
    for index, each in enumerate(used):
        name, request = each.get("name") or "", each.get("request") or ""
        if not name:
            causes.append(required(f"{at}[{index}]"))
        elif name not in names:
            found = "must be one of the names in pod.spec.resourceClaims"
            causes.append(Cause(f"{at}[{index}].name", "FieldValueNotFound", f'Not found: "{name}": {found}'))
        if (name, request) in seen:
            causes.append(duplicate(f"{at}[{index}]", f"{name}/{request}" if request else name))
        seen[name, request] = None
    return causes
