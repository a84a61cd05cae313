"""What becomes of the claims of a pod that was unbound (kubelet-unbinding 7.4). Pure."""

from __future__ import annotations

from scheduler.dra.ledger import ClaimLedger, PendingRelease, Release
from scheduler.dra.pod_claims import FindClaim, claim_keys
from services.api.kinds.pod import Pod


def release_unbound(pod: Pod, ledger: ClaimLedger, find: FindClaim) -> None:
    """Have every claim of the pod released before it is tried again; what others use stays where it is."""
    for key in claim_keys(pod):
        claim = find(key)
        if claim is not None:
            ledger.request_release(PendingRelease(Release.UNBIND, key, claim.metadata.uid, pod.metadata.uid))
