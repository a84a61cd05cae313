"""Delete finished certificate requests.

A request is deleted an hour after it was issued, denied or failed, when its certificate has expired, and a day
after its creation if it has no decision. Upstream checks all of them once an hour; here each is deleted at its
time. Source: upstream `pkg/controller/certificates/cleaner/cleaner.go`.
"""

import base64

from services.api.kinds.certificatesigningrequest import APPROVED, DENIED, FAILED, REQUESTS, CertificateSigningRequest
from services.api.meta import Key, find_condition
from services.api.times import seconds_of
from services.reconcile.actions import NOTHING, Delete, Result
from services.reconcile.controller import Controller, Listers, Moment, Registration

DECIDED_S, PENDING_S = 3600.0, 24 * 3600.0
"""Seconds that a request stays after its decision, and without a decision."""


def due_s(request: CertificateSigningRequest) -> float | None:
    """Return when the request may be deleted, in epoch seconds; None while it is approved but not signed yet."""
    conditions, certificate = request.status.conditions, request.status.certificate
    if not conditions:
        return seconds_of(request.metadata.creation_timestamp) + PENDING_S
    over = [DENIED, FAILED, *([APPROVED] if certificate else ())]
    decisions = [condition for name in over if (condition := find_condition(conditions, name)) is not None]
    times = [seconds_of(each.last_transition_time) + DECIDED_S for each in decisions if each.last_transition_time]
    if certificate and find_condition(conditions, APPROVED) is not None:
        times += _expiry(certificate)
    return min(times, default=None)


def _expiry(certificate: str) -> list[float]:
    """Return when the certificate is not valid any more; [] for what is none."""
    # Only here: most meshes sign no certificates.
    from cryptography import x509

    try:
        leaf = x509.load_pem_x509_certificate(base64.b64decode(certificate))
    except ValueError:
        return []
    return [leaf.not_valid_after_utc.timestamp()]


def reconcile(key: Key, listers: Listers, moment: Moment) -> Result:
    """Delete the request, or wait until it is due."""
    request = listers.of(CertificateSigningRequest).get(key)
    if request is None or (at_s := due_s(request)) is None:
        return NOTHING
    if at_s > moment.wall_s:
        return Result(requeue_after_s=at_s - moment.wall_s)
    return Result((Delete(REQUESTS, key, uid=request.metadata.uid),))


CONTROLLER = Registration(
    "csrcleaner",
    lambda _: Controller("csrcleaner", CertificateSigningRequest, reconcile),
    start_order=33,
    is_for_rest=True,
)
