"""CertificateSigningRequests (certificates.k8s.io/v1): the API server writes who asks, and the spec never changes.

The texts are upstream's (`pkg/apis/certificates/validation`, `pkg/registry/certificates/certificates/strategy.go`).
"""

import base64
import binascii

from cryptography import x509

from apiserver_fake.registry.strategies.networking import domain_path
from apiserver_fake.strategy import WriteContext, declared, keep_all_but_status, keep_status
from apiserver_fake.validation.fields import Field, Report, Struct, not_repeated
from apiserver_fake.validation.formats import Cause, Causes, invalid, required, unsupported
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


def decoded(text: str) -> x509.CertificateSigningRequest:
    """Return the certificate request of a PEM block in base64. Raises: ValueError."""
    try:
        return x509.load_pem_x509_csr(base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _request(text: str, path: str, report: Report) -> Causes:
    try:
        decoded(text)
    except ValueError:
        yield invalid(path, text, "PEM block type must be CERTIFICATE REQUEST")


def _signer(name: str, path: str, report: Report) -> Causes:
    if not name:
        yield required(path)
    elif name == LEGACY_UNKNOWN:
        yield invalid(path, name, "the legacy signerName is not allowed via this API version")
    else:
        yield from domain_path(path, name)


SPEC = Struct(
    Field("request", missing="", rule=_request),
    Field("usages", required=True, missing=[], items=Field(enum=USAGES, rule=not_repeated)),
    Field("signerName", missing="", rule=_signer),
    Field("expirationSeconds", minimum=SHORTEST_S, text=f"may not specify a duration less than {SHORTEST_S} seconds"),
)


def _who_asks(new: Document, ctx: WriteContext) -> None:
    spec = {name: value for name, value in (new.get("spec") or {}).items() if name not in ("uid", "extra")}
    new["spec"] = {**spec, "username": ctx.identity.user, "groups": list(ctx.identity.groups)}
    new["status"] = {}


def _keep(old: Document, new: Document, ctx: WriteContext) -> None:
    new["spec"] = old["spec"]
    keep_status(old, new, ctx)


def conditions_of(document: Document) -> list[Document]:
    """Return the conditions of a request."""
    return list((document.get("status") or {}).get("conditions") or [])


def stamped(new: list[Document], old: list[Document], wall_s: float) -> list[Document]:
    """Return the conditions with their times: of the last update where none is said, of the last change of status."""
    now, before = format_time(wall_s), {each.get("type"): each for each in old}
    found = []
    for each in new:
        was = before.get(each.get("type"))
        done = {**each, "lastUpdateTime": each.get("lastUpdateTime") or now}
        if not done.get("lastTransitionTime"):
            is_same = was is not None and was.get("status") == each.get("status")
            done["lastTransitionTime"] = (was or {}).get("lastTransitionTime", now) if is_same else now
        found.append(done)
    return found


def check_conditions(conditions: list[Document]) -> list[Cause]:
    """Return what is wrong with the conditions of a request."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, each in enumerate(conditions):
        at, kind, status = f"status.conditions[{index}]", each.get("type") or "", each.get("status") or ""
        if not kind:
            causes.append(required(f"{at}.type"))
        elif kind in seen:
            causes.append(Cause(f"{at}.type", "FieldValueDuplicate", f'Duplicate value: "{kind}"'))
        seen.add(kind)
        if not status:
            causes.append(required(f"{at}.status"))
        elif kind in (APPROVED, DENIED, FAILED) and status != "True":
            causes.append(unsupported(f"{at}.status", status, ("True",)))
        other = {APPROVED: DENIED, DENIED: APPROVED}.get(kind)
        if other in seen:
            causes.append(invalid(f"{at}.type", kind, f"{APPROVED} and {DENIED} conditions are mutually exclusive"))
    return causes


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Take the certificate and further conditions; what is approved or denied is the approval subresource's."""
    status, before = dict(new.get("status") or {}), conditions_of(old)
    kept = [each for each in before if each.get("type") in (APPROVED, DENIED)]
    others = [each for each in conditions_of(new) if each.get("type") not in (APPROVED, DENIED)]
    if kept or others:
        status["conditions"] = stamped([*kept, *others], before, ctx.wall_s)
    new["status"] = status
    keep_all_but_status(old, new, ctx)


def _validate_status(old: Document, new: Document, ctx: WriteContext) -> Causes:
    yield from check_conditions(conditions_of(new))
    before, after = ((each.get("status") or {}).get("certificate") for each in (old, new))
    if before and before != after:
        yield invalid("status.certificate", after, "field is immutable")
    elif after and not before:
        try:
            x509.load_pem_x509_certificates(base64.b64decode(after, validate=True))
        except ValueError:
            yield invalid("status.certificate", "<certificate data>", "must contain at least one CERTIFICATE PEM block")


STRATEGIES = {
    REQUESTS: declared(
        Struct(Field("spec", missing={}, struct=SPEC)),
        on_create=_who_asks,
        before_update=_keep,
        prepare_status=_prepare_status,
        validate_status=_validate_status,
    )
}
