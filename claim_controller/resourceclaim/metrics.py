"""Metrics of the resource claim controller: claims by state, creations, and consumers.

Source: dra-core 4; kep-5194 10; upstream `pkg/controller/resourceclaim/metrics` (1.34 to 1.36).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from services.api.kinds.resourceclaim import EXTENDED_RESOURCE_CLAIM, POD_CLAIM_NAME, ResourceClaim
from services.api.meta import Document
from services.telemetry.metrics import Metrics, Samples, counter, gauge

STATUSES: Final = ("success", "failure")


class ClaimCounts:
    """Counts of claims, updated from the watch of claims and from requested and failed creations."""

    def __init__(self) -> None:
        self.claims: Counter[tuple[str, str, str]] = Counter()
        """By `allocated`, `admin_access` and `source`."""
        self.entries: Counter[str] = Counter({"pod": 0, "nonpod": 0})
        self.creates: Counter[tuple[str, str]] = Counter()
        """By `status` and `admin_access`; a request whose outcome is not known counts as a success."""
        self.releases: Counter[tuple[str, str]] = Counter()
        """Entries of workloads and pod groups by who took them off and what came of it."""
        self.orphans: dict[str, None] = {}
        """Uids of claims whose workload is gone."""

    def note(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """Count a change of a claim."""
        for claim, by in ((old, -1), (new, 1)):
            if claim is None:
                continue
            self.claims[_labels(claim)] += by
            for entry in claim.status.reserved_for:
                self.entries["pod" if entry.is_pod else "nonpod"] += by
        if old is not None and (new is None or new.status.allocation is None):
            self.orphans.pop(old.metadata.uid, None)

    def count_create(self, document: Document) -> None:
        """Count a claim that is being created."""
        self.creates["success", _truth(_asks_for_admin_access(document))] += 1

    def count_refusal(self, document: Document, *, is_sent: bool) -> None:
        """Count a claim that was not created after all; `is_sent`: the request was sent to the API server."""
        access = _truth(_asks_for_admin_access(document))
        self.creates["success", access] -= 1
        if is_sent:
            self.creates["failure", access] += 1

    def samples(self) -> Samples:
        """Return the metric samples."""
        return METRICS.of(self)


def _labels(claim: ResourceClaim) -> tuple[str, str, str]:
    exact = (each.exactly for each in claim.spec.devices.requests)
    access = any(each.admin_access for each in exact if each is not None)
    annotations = claim.metadata.annotations
    source = "resource_claim_template" if POD_CLAIM_NAME in annotations else ""
    if EXTENDED_RESOURCE_CLAIM in annotations:
        source = "extended_resource"
    return _truth(claim.status.allocation is not None), _truth(access), source


def _asks_for_admin_access(document: Document) -> bool:
    return any((each.get("exactly") or {}).get("adminAccess") for each in _requests(document))


def _requests(document: Document) -> Iterator[Document]:
    yield from ((document.get("spec") or {}).get("devices") or {}).get("requests") or ()


def _truth(value: bool) -> str:
    return "true" if value else "false"


METRICS: Final[Metrics[ClaimCounts]] = Metrics(
    counter(
        "resourceclaim_controller_creates_total",
        "ResourceClaims requested, by status and admin access.",
        lambda counts: counts.creates,
        "status",
        "admin_access",
    ),
    gauge(
        "resourceclaim_controller_resource_claims",
        "ResourceClaims by allocation status, admin access and source.",
        lambda counts: counts.claims,
        "allocated",
        "admin_access",
        "source",
    ),
    gauge(
        "claim_reservedfor_entries", "Consumers that claims are reserved for.", lambda counts: counts.entries, "kind"
    ),
    counter(
        "claim_release_total",
        "Entries of workloads and pod groups in reservedFor: taken off, or why not.",
        lambda counts: counts.releases,
        "by",
        "result",
    ),
    gauge("claim_orphaned", "Allocated claims whose workload is gone.", lambda counts: len(counts.orphans)),
)
