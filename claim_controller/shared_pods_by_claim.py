"""Index of the pods that name a claim, kept up to date by a watch.

An entry of `reservedFor` that is not a pod does not say which pods use the claim, so they are found by its
name. Source: kep-5194 8; upstream `podResourceClaimIndex`.
"""

from services.api.kinds.pod import Pod
from services.api.meta import Key
from services.dra.pod_claims import claim_keys


class PodsByClaim:
    """Pod keys by claim key, in the order in which they were seen; pods without a node are included."""

    def __init__(self) -> None:
        self._pods: dict[Key, dict[Key, None]] = {}

    def note(self, old: Pod | None, new: Pod | None) -> None:
        """Record a change of a pod."""
        if old is not None and new is not None and _names_alike(old, new):
            return
        before = claim_keys(old) if old is not None and old.spec.resource_claims else []
        after = claim_keys(new) if new is not None and new.spec.resource_claims else []
        if before == after:
            return
        for claim in before:
            assert old is not None
            if claim not in after and (pods := self._pods.get(claim)) is not None:
                pods.pop(old.metadata.key, None)
                if not pods:
                    del self._pods[claim]
        for claim in after:
            assert new is not None
            self._pods.setdefault(claim, {})[new.metadata.key] = None

    def of(self, claim: Key) -> list[Key]:
        """Return the pods that name the claim."""
        return list(self._pods.get(claim, ()))


def _names_alike(old: Pod, new: Pod) -> bool:
    """Whether two forms of a pod name the same claims; most changes are of other things."""
    return (
        old.spec.resource_claims == new.spec.resource_claims
        and old.status.resource_claim_statuses == new.status.resource_claim_statuses
        and old.metadata.namespace == new.metadata.namespace
    )
