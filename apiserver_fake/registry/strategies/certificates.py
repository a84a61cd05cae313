"""CertificateSigningRequests (certificates.k8s.io/v1): the API server records the requester, and the spec
is immutable.

The texts are upstream's (`pkg/apis/certificates/validation`,
`pkg/registry/certificates/certificates/strategy.go`).
"""

from apiserver_fake.registry.admission import certificates
from apiserver_fake.registry.strategy import WriteContext, declare_strategy, keep_all_but_status, keep_status
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    path_segment,
    required,
    signer_name,
)
from services.api.kinds.certificatesigningrequest import APPROVED, DENIED, FAILED, LEGACY_UNKNOWN, REQUESTS
from services.api.meta import Document
from services.api.times import format_time

USAGES = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
SHORTEST_S = 600


def _request(text: str, path: str, report: Report) -> Causes:
    from apiserver_fake.registry.validation.pem import fault_of_request

    if why := fault_of_request(text):
        yield invalid(path, text, why)


def _usages(spec: Document, at: str, report: Report) -> Causes:
    usages, seen = spec.get("usages") or [], set()
    if not usages:
        yield required(f"{at}usages")
    yield from (not_supported(f"{at}usages[{i}]", each, USAGES) for i, each in enumerate(usages) if each not in USAGES)
    for index, usage in enumerate(usages):
        if usage in seen:
            yield duplicate(f"{at}usages[{index}]", usage)
        seen.add(usage)


def _signer(name: str, path: str, report: Report) -> Causes:
    if name == LEGACY_UNKNOWN:
        yield invalid(path, name, "the legacy signerName is not allowed via this API version")
    else:
        yield from signer_name(path, name)


SPEC = Struct(
    Field("request", missing="", rule=_request),
    _usages,
    Field("signerName", missing="", rule=_signer),
    Field(
        "expirationSeconds",
        minimum=SHORTEST_S,
        text=f"may not specify a duration less than {SHORTEST_S} seconds (10 minutes)",
    ),
)


def _who_asks(new: Document, ctx: WriteContext) -> None:
    spec = {name: value for name, value in (new.get("spec") or {}).items() if name not in ("uid", "extra")}
    new["spec"] = {**spec, "username": ctx.identity.user, "groups": list(ctx.identity.groups)}
    new["status"] = {}


def _check_bounds(old: Document | None, new: Document, ctx: WriteContext) -> None:
    if old is None:
        certificates.check_subject(new, ctx)


def _keep(old: Document, new: Document, ctx: WriteContext) -> None:
    new["spec"] = old["spec"]
    keep_status(old, new, ctx)


def conditions_of(document: Document) -> list[Document]:
    """Return the conditions of a request."""
    return list((document.get("status") or {}).get("conditions") or [])


def with_times(new: list[Document], old: list[Document], wall_s: float) -> list[Document]:
    """Return the conditions with missing times filled in: `lastUpdateTime`, and `lastTransitionTime` if the
    status changed.
    """
    now, before = format_time(wall_s), {each.get("type"): each for each in old}
    conditions = []
    for condition in new:
        was = before.get(condition.get("type"))
        done = {**condition, "lastUpdateTime": condition.get("lastUpdateTime") or now}
        if not done.get("lastTransitionTime"):
            is_same = was is not None and was.get("status") == condition.get("status")
            done["lastTransitionTime"] = (was or {}).get("lastTransitionTime", now) if is_same else now
        conditions.append(done)
    return conditions


def check_conditions(conditions: list[Document]) -> list[Cause]:
    """Return the errors in the conditions of a request."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        at, kind, status = f"status.conditions[{index}]", condition.get("type") or "", condition.get("status") or ""
        allowed = ("True",) if kind in (APPROVED, DENIED, FAILED) else ("False", "True", "Unknown")
        if not kind:
            causes.append(required(f"{at}.type"))
        if not status:
            causes.append(required(f"{at}.status"))
        elif status not in allowed:
            causes.append(not_supported(f"{at}.status", status, allowed))
        if {APPROVED: DENIED, DENIED: APPROVED}.get(kind) in seen:
            text = f"{APPROVED} and {DENIED} conditions are mutually exclusive"
            causes.append(invalid("status.conditions", kind, text))
        if kind in seen:
            causes.append(duplicate(f"{at}.type", kind))
        seen.add(kind)
    return causes


def _places(kind: str, conditions: list[Document]) -> list[int]:
    return [index for index, each in enumerate(conditions) if each.get("type") == kind]


def removed_conditions(old: Document, new: Document) -> Causes:
    """Refuse the removal of an approval, denial or failure."""
    for kind in (APPROVED, DENIED, FAILED):
        if len(_places(kind, conditions_of(new))) < len(_places(kind, conditions_of(old))):
            yield forbidden("status.conditions", f'updates may not remove a condition of type "{kind}"')


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Take the certificate and conditions; what is approved or denied stays as the approval subresource wrote it."""
    status, before, after = dict(new.get("status") or {}), conditions_of(old), conditions_of(new)
    for kind in (APPROVED, DENIED):
        was, now = (_places(kind, each) for each in (before, after))
        if len(was) == len(now):
            after = [before[was[now.index(i)]] if i in now else each for i, each in enumerate(after)]
    if after:
        status["conditions"] = with_times(after, before, ctx.wall_s)
    new["status"] = status
    keep_all_but_status(old, new, ctx)


def _validate_status(old: Document, new: Document, ctx: WriteContext) -> Causes:
    yield from check_conditions(conditions_of(new))
    before, after = ((each.get("status") or {}).get("certificate") for each in (old, new))
    if after and before != after:
        from apiserver_fake.registry.validation.pem import fault_of_certificates

        if why := fault_of_certificates(after):
            yield invalid("status.certificate", "<certificate data>", why)
    yield from removed_conditions(old, new)
    for kind in (APPROVED, DENIED):
        if len(_places(kind, conditions_of(new))) > len(_places(kind, conditions_of(old))):
            yield forbidden("status.conditions", f'updates may not add a condition of type "{kind}"')
    if before and before != after:
        yield forbidden("status.certificate", "updates may not modify existing certificate content")


STRATEGIES = {
    REQUESTS: declare_strategy(
        Struct(Field("spec", missing={}, struct=SPEC)),
        name=path_segment,
        on_create=_who_asks,
        before_update=_keep,
        prepare_status=_prepare_status,
        validate_status=_validate_status,
        check_bounds=_check_bounds,
        check_status=certificates.check_signer,
    )
}
