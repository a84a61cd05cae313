"""Authorization of certificates: the admission plugins CertificateSubjectRestriction, CertificateApproval
and CertificateSigning.

A caller that writes `certificatesigningrequests/approval` or `/status` needs the verb `approve` or `sign` on
the signer as well: on the resource `signers` of certificates.k8s.io, by the signer's name or by `DOMAIN/*`. A
request for a client certificate of the privileged group (`system:masters`) is refused. Source: upstream
`plugin/pkg/admission/certificates/approval/admission.go`,
`plugin/pkg/admission/certificates/signing/admission.go`,
`plugin/pkg/admission/certificates/subjectrestriction/admission.go`,
`plugin/pkg/admission/certificates/util.go`.
"""

from apiserver_fake.registry.authorization.authorizer import authorize
from apiserver_fake.registry.errors import forbidden
from apiserver_fake.registry.strategy import WriteContext
from services.api.errors import Forbidden
from services.api.kinds.certificatesigningrequest import KUBE_CLIENT, REQUESTS
from services.api.meta import Document
from services.api.wire import Request

SIGNERS = "signers.certificates.k8s.io"
PRIVILEGED = "system:masters"


def check_subject(new: Document, ctx: WriteContext) -> None:
    """Check that a new request does not ask for a client certificate of the privileged group. Raises: Forbidden."""
    spec = new["spec"]
    if spec["signerName"] != KUBE_CLIENT:
        return
    from apiserver_fake.registry.validation.pem import organizations_of_request

    name = new["metadata"]["name"]
    try:
        organizations = organizations_of_request(spec["request"])
    except ValueError as error:
        raise forbidden(REQUESTS, name, f"failed to parse CSR: {error}") from None
    if PRIVILEGED in organizations:
        why = f"use of {KUBE_CLIENT} signer with {PRIVILEGED} group is not allowed"
        raise forbidden(REQUESTS, name, why)


def check_approver(stored: Document, ctx: WriteContext) -> None:
    """Check that the caller may approve or deny requests of that signer. Raises: Forbidden."""
    _check(stored, ctx, "approve")


def check_signer(stored: Document, new: Document, ctx: WriteContext) -> None:
    """Check that the caller may sign for that signer, or changes neither certificate nor conditions. Raises:
    Forbidden.
    """
    before, after = stored.get("status") or {}, new.get("status") or {}
    if any((before.get(name) or None) != (after.get(name) or None) for name in ("certificate", "conditions")):
        _check(stored, ctx, "sign")


def _check(stored: Document, ctx: WriteContext, verb: str) -> None:
    signer = (stored.get("spec") or {}).get("signerName") or ""
    if not any(_may(ctx, verb, name) for name in (signer, f"{signer.partition('/')[0]}/*")):
        why = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise forbidden(REQUESTS, stored["metadata"]["name"], why)


def _may(ctx: WriteContext, verb: str, signer: str) -> bool:
    try:
        authorize(ctx.identity, Request(verb=verb, resource=SIGNERS, name=signer), ctx.lookup, ctx.list, ctx.policy)
    except Forbidden:
        return False
    return True
