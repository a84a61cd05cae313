"""Sign approved certificate requests of Kubernetes' own signers with the process's signing authority.

The authority is a function: without it (no `--cluster-signing-key-file`) nothing is signed. Requests of other
signers are left to them. Source: upstream `pkg/controller/certificates/signer/signer.go`.
"""

import base64
import binascii
from collections.abc import Iterable

from services.api.kinds.certificatesigningrequest import (
    APPROVED,
    DENIED,
    FAILED,
    KUBE_CLIENT,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    REQUESTS,
    CertificateSigningRequest,
)
from services.api.meta import Document, Key, condition_status, find_condition
from services.api.switches import Switches
from services.reconcile import conditions, writes
from services.reconcile.actions import NOTHING, Result
from services.reconcile.controller import Controller, Listers, Moment, Reconcile, Registration, Sign

LONGEST_S = 365 * 86400
"""Default of `--cluster-signing-duration`, in seconds."""
NODES = "system:nodes"
_CLIENT = frozenset(("digital signature", "key encipherment", "client auth"))
_SERVING = frozenset(("digital signature", "key encipherment", "server auth"))
ALLOWED = {KUBE_CLIENT: _CLIENT, KUBELET_CLIENT: _CLIENT, KUBELET_SERVING: _SERVING}
"""The supported signers, and the allowed usages of each."""
NEEDED = {KUBE_CLIENT: "client auth", KUBELET_CLIENT: "client auth", KUBELET_SERVING: "server auth"}


def fault_of(request: CertificateSigningRequest) -> str:
    """Return why the signer refuses the usages; empty if it signs."""
    signer, usages = request.spec.signer_name, request.spec.usages
    if NEEDED[signer] not in usages or not set(usages) <= ALLOWED[signer]:
        return f"invalid usages for {signer.rpartition('/')[2]} certificate: {_spelt(usages)}"
    return ""


def _spelt(usages: Iterable[str]) -> str:
    return "[" + " ".join(usages) + "]"


def _reconciler(sign: Sign | None) -> Reconcile:
    def reconcile(key: Key, listers: Listers, moment: Moment) -> Result:
        request = listers.of(CertificateSigningRequest).get(key)
        if sign is None or request is None or request.spec.signer_name not in ALLOWED:
            return NOTHING
        status = request.status
        is_decided = condition_status(status.conditions, APPROVED) == "True"
        is_over = status.certificate or any(find_condition(status.conditions, each) for each in (DENIED, FAILED))
        if not is_decided or is_over:
            return NOTHING
        if fault := fault_of(request):
            return _failure_result(request, fault, moment.wall_s)
        seconds = min(request.spec.expiration_seconds or LONGEST_S, LONGEST_S)
        try:
            pem = sign(
                base64.b64decode(request.spec.request, validate=True), request.spec.usages, seconds, moment.wall_s
            )
        except (ValueError, binascii.Error) as error:
            return _failure_result(request, f"unable to sign: {error}", moment.wall_s)
        return Result((writes.status(REQUESTS, request, {"certificate": base64.b64encode(pem).decode()}),))

    return reconcile


def _failure_result(request: CertificateSigningRequest, message: str, wall_s: float) -> Result:
    listed: list[Document] = conditions.as_documents(request.status.conditions)
    listed.append(conditions.new(FAILED, "True", "SignerValidationFailure", message, wall_s))
    return Result((writes.status(REQUESTS, request, {"conditions": listed}),))


def _build(switches: Switches, sign: Sign | None = None) -> Controller:
    return Controller("csrsigning", CertificateSigningRequest, _reconciler(sign), reporter="certificate-controller")


CONTROLLER = Registration("csrsigning", _build, start_order=32, is_for_rest=True, build_signing=_build)
