"""What claims cost a run, from lines of the event log."""

from typing import Any

import pytest

from lab.scenarios.measures.claims import ClaimCosts
from services.telemetry.eventlog import Line


def line(ev: str, at_s: float, obj: tuple[str, str] | None = None, comp: str = "apiserver", **data: Any) -> Line:
    known = {"kind": obj[0], "ns": "default", "name": obj[1], "uid": obj[1]} if obj else None
    return Line(1, 1, round(at_s * 1e9), "", comp, "i1", ev, obj=known, data=data)


def claim(at_s: float, **data: Any) -> Line:
    return line("store.commit", at_s, ("ResourceClaim", "c"), type="MODIFIED", **data)


@pytest.fixture
def costs():
    return ClaimCosts()


def test_each_open_watch_costs_what_is_written_again(costs):
    watched = "resourceclaims.resource.k8s.io"
    costs.take(line("watch.open", 0.0, watch=1, resource=watched))
    costs.take(line("watch.open", 0.0, watch=2, resource=watched))
    costs.take(line("watch.open", 0.0, watch=3, resource="pods"))
    costs.take(line("watch.open", 0.0, comp="scheduler", resource=watched))
    costs.take(claim(1.0, bytes=2048, consumers=["a", "b"]))
    costs.take(line("watch.close", 2.0, watch=2, resource=watched))
    costs.take(claim(3.0, bytes=1024, consumers=["a"]))

    found = costs.measures()

    assert (found["claim_writes"], found["claim_kib_written"], found["claim_watch_kib"]) == (2.0, 3.0, 5.0)
    assert found["claim_consumers_max"] == 2.0


def test_a_conflict_is_counted_at_claims_only(costs):
    costs.take(claim(0.0, bytes=1))
    costs.take(line("api.response", 1.0, code=409, path="resourceclaims.resource.k8s.io/default/c/status"))
    costs.take(line("api.response", 1.0, code=409, path="pods/default/p/status"))
    costs.take(line("api.response", 1.0, code=200, path="resourceclaims.resource.k8s.io/default/c/status"))

    assert costs.measures()["claim_conflicts"] == 1.0


def test_a_claim_is_unused_from_its_last_pods_end_to_its_deallocation(costs):
    costs.take(claim(0.0, bytes=1, granted=["d/p/x"]))
    for name, at_s in (("one", 5.0), ("two", 8.0)):
        ended = line("store.commit", at_s, ("Pod", name), type="MODIFIED", phase="Succeeded", claims=["c"])
        costs.take(ended)
    costs.take(claim(9.5, bytes=1))

    assert costs.measures()["claim_unused_p50_s"] == 1.5


def test_a_claim_that_stays_allocated_was_never_deallocated(costs):
    costs.take(claim(0.0, bytes=1, granted=["d/p/x"]))
    costs.take(claim(9.5, bytes=1, granted=["d/p/x"], consumers=["a"]))

    assert costs.measures()["claim_unused_p50_s"] is None


def test_a_run_without_claims_says_nothing_of_them(costs):
    costs.take(line("store.commit", 1.0, ("Pod", "p"), type="ADDED"))

    assert costs.measures() == {}
