"""The counters of claims, under upstream's names where the meaning is the same."""

from collections import defaultdict
from functools import partial
from typing import Final

from services.telemetry.metrics import Counts, Histogram, Metrics, counter, histogram

WRITES: Final = "prebind_claim_writes_total"
CONFLICTS: Final = "claim_status_conflicts_total"
CREATES: Final = "scheduler_resourceclaim_creates_total"
BINDING_CONDITIONS: Final = "scheduler_dra_bindingconditions_allocations_total"
WAIT_BOUNDS: Final = tuple(0.1 * 2**i for i in range(14))


class ClaimMetrics:
    """The counters of one scheduler's claims.

    `waits`: seconds waited for binding conditions, by profile, driver and outcome.
    """

    def __init__(self) -> None:
        self.counts = Counts()
        self.waits: defaultdict[tuple[str, ...], Histogram] = defaultdict(partial(Histogram, WAIT_BOUNDS))

    def add(self, name: str, *labels: str) -> None:
        """Count one event of that name."""
        self.counts.add(name, *labels)

    def observe_wait(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """Observe the end of a wait for binding conditions."""
        self.counts.add(BINDING_CONDITIONS, profile, driver, status)
        self.waits[profile, driver, status].observe(seconds)


METRICS: Final[Metrics[ClaimMetrics]] = Metrics(
    counter(WRITES, "Writes to claims in PreBind.", lambda own: own.counts.of(WRITES)),
    counter(
        CONFLICTS,
        "Writes to claims that another write preceded.",
        lambda own: {("scheduler", *labels): n for labels, n in own.counts.of(CONFLICTS).items()},
        "component",
    ),
    counter(CREATES, "Claims made for pods.", lambda own: own.counts.of(CREATES), "status", "admin_access"),
    counter(
        BINDING_CONDITIONS,
        "Allocations of devices with binding conditions, by driver and attempt.",
        lambda own: own.counts.of(BINDING_CONDITIONS),
        "profile",
        "driver",
        "status",
    ),
    histogram(
        "scheduler_dra_bindingconditions_wait_duration_seconds",
        "Time that PreBind waited for devices.",
        lambda own: own.waits,
        "profile",
        "driver",
        "status",
    ),
)
