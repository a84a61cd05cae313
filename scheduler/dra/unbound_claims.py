"""What becomes of the claims of a pod that a node gave back (kubelet-unbinding 7.4). Pure."""

from __future__ import annotations

from scheduler.dra.ledger import ClaimLedger, Letting, Release
from scheduler.dra.pod_claims import FindClaim, claim_keys
from services.api.kinds.pod import Pod


def give_back(pod: Pod, ledger: ClaimLedger, find: FindClaim) -> None:
    """Have every claim of the pod let go before it is tried again; what others use stays where it is."""
    for key in claim_keys(pod):
        claim = find(key)
        if claim is not None:
            ledger.let_go(Letting(Release.GIVE_BACK, key, claim.metadata.uid, pod.metadata.uid))
