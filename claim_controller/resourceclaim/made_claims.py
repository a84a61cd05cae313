"""Claims that exist for an owner, whether the cache shows them or not: no entry gets a second one (D1).

The cache shows what this controller made, since a key waits for its own writes. It need not show yet:

* what a request without an answer made, or one whose answer is newer than the cache. Such an entry is kept as asked for
  until the cache shows its claim or the server refuses it; meanwhile the namespace is listed for it.
* what a former life or a former leader made. The namespace is listed at the first need, and the claims that the cache
  lacks are kept by name; each is read by its name before it counts. A leader's writes end with its lease. A request of
  a killed process may arrive later, so lists are repeated until none can be under way, each at twice the age of the one
  before: a few lists for any number of pods.

Source: guarantees 5.3 (D1), 9; upstream `pkg/controller/resourceclaim/controller.go`, findPodResourceClaim, which has a
cache of its own recent writes beside the informer's and reads nothing live.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from claim_controller.resourceclaim.claims_from_templates import is_made_for
from services.api.kinds.pod import Pod, PodResourceClaim
from services.api.kinds.podgroup import PodGroup, PodGroupResourceClaim
from services.api.kinds.resourceclaim import POD_CLAIM_NAME, ResourceClaim
from services.api.meta import Document, Key
from services.reconcile.actions import Query
from services.reconcile.controller import Listers, Moment

SERVES_S: Final = 1.0
"""Seconds for which the first list of a namespace serves."""
UNDER_WAY_S: Final = 31.0
"""Seconds after which no request of a former life is under way: a request's deadline and one more (guarantees 9)."""
_UNCERTAIN: Final = "InternalError"
"""The reason of a refusal that does not say whether the claim was made."""


class MadeClaims:
    """Finds claims by the uid of their owner, and says what must be read live first.

    Invariant: an owner's entry is only reported to have no claim when no claim that was made for it can be stored.
    """

    def __init__(self) -> None:
        self._asked: dict[str, dict[str, None]] = {}
        """Entries by owner uid whose creation was asked for and whose claim was not seen since."""
        self._unseen: dict[str, dict[str, str]] = {}
        """Claims by owner uid and entry that a list showed and the cache did not."""
        self._listed_s: dict[str, tuple[float, float]] = {}
        """By namespace, when it was listed first and last."""

    def claims_of(
        self,
        owner: Pod | PodGroup,
        entries: Iterable[PodResourceClaim | PodGroupResourceClaim],
        listers: Listers,
        moment: Moment,
    ) -> tuple[dict[str, str], tuple[Query, ...]]:
        """Return the names of the owner's claims by entry, and the live reads without which some may be missing."""
        uid, namespace = owner.metadata.uid, owner.metadata.namespace
        names = _made_for(uid, listers.of(ResourceClaim).owned_by(uid))
        lacking = [each.name for each in entries if each.name not in names]
        if not lacking:
            return names, ()
        everything = Query(ResourceClaim, Key(namespace, ""))
        if everything in moment.listed:
            self._on_listed(namespace, moment.listed[everything], listers, moment.now_s)
            return names | _made_for(uid, moment.listed[everything]), ()
        asked = self._asked.get(uid, ())
        if any(name in asked for name in lacking) or not self._serves(namespace, moment.now_s):
            return names, (everything,)
        unseen = self._unseen.get(uid, {})
        reads = [Query(ResourceClaim, Key(namespace, unseen[name])) for name in lacking if name in unseen]
        if any(read not in moment.live for read in reads):
            return names, tuple(reads)
        return names | _made_for(uid, [moment.live[read] for read in reads]), ()

    def ask(self, uid: str, entry: str) -> None:
        """Record that a claim is about to be created for an owner's entry."""
        self._asked.setdefault(uid, {})[entry] = None

    def refuse(self, document: Document, reason: str) -> None:
        """Record that the claim of that document was not created, if the reason says so for certain."""
        if reason.startswith(_UNCERTAIN):
            return
        metadata = document["metadata"]
        self._on_known(metadata["ownerReferences"][0]["uid"], metadata["annotations"][POD_CLAIM_NAME])

    def note(self, claim: ResourceClaim | None) -> None:
        """Record that the cache shows a claim."""
        owner = claim.metadata.controller if claim is not None else None
        if claim is None or owner is None or (owner.uid not in self._asked and owner.uid not in self._unseen):
            return
        entry = claim.metadata.annotations.get(POD_CLAIM_NAME, "")
        self._on_known(owner.uid, entry)
        if (unseen := self._unseen.get(owner.uid)) is not None:
            unseen.pop(entry, None)

    def forget(self, uid: str) -> None:
        """Forget an owner that is gone or has ended."""
        self._asked.pop(uid, None)
        self._unseen.pop(uid, None)

    def _on_known(self, uid: str, entry: str) -> None:
        asked = self._asked.get(uid)
        if asked is not None:
            asked.pop(entry, None)
            if not asked:
                del self._asked[uid]

    def _serves(self, namespace: str, now_s: float) -> bool:
        """Whether the last list of the namespace still says what others made."""
        first_s, last_s = self._listed_s.get(namespace, (0.0, None))
        if last_s is None:
            return False
        return last_s - first_s >= UNDER_WAY_S or now_s - last_s < max(SERVES_S, last_s - first_s)

    def _on_listed(self, namespace: str, claims: Sequence[Any], listers: Listers, now_s: float) -> None:
        self._listed_s[namespace] = self._listed_s.get(namespace, (now_s, now_s))[0], now_s
        cache = listers.of(ResourceClaim)
        for claim in claims:
            meta = claim.metadata
            if meta.controller is not None and POD_CLAIM_NAME in meta.annotations and cache.get(meta.key) is None:
                self._unseen.setdefault(meta.controller.uid, {})[meta.annotations[POD_CLAIM_NAME]] = meta.name


def _made_for(uid: str, claims: Iterable[Any]) -> dict[str, str]:
    """Return the names of the claims that belong to the object of that uid, by the entry that each was made for."""
    own = (claim for claim in claims if isinstance(claim, ResourceClaim) and is_made_for(claim, uid))
    return {
        claim.metadata.annotations[POD_CLAIM_NAME]: claim.metadata.name
        for claim in own
        if POD_CLAIM_NAME in claim.metadata.annotations
    }
