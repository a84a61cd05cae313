"""Planted bugs in what becomes of devices and the claims that have them (I6 to I10, I30)."""

from pathlib import Path

from claim_controller.resourceclaim import consumers, controller
from claim_controller.resourceclaim.controller import ClaimController
from kubelet.dra.manager import ClaimManager
from scheduler.framework.status import SUCCESS
from scheduler.plugins.dynamic_resources import DynamicResources
from services.dra.allocated_devices import Allocated

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
CLAIMS = EXPERIMENTS / "claims"
GO_ON_LONG_ENOUGH = (
    *(CLAIMS / f"{name}.txt" for name in ("driver-away", "killed", "one-for-each", "shared")),
    *(EXPERIMENTS / "faults" / f"{name}.txt" for name in ("fm-k2-prepare", "fm-k9", "fm-k9-refuses")),
)
"""Shipped scenarios in which devices are released: each ends later than I30 allows a leak to last."""
ENDS_SLOWLY = """
nodes n1 cpu=4 drivers=gpu.example.com:1
apply gpus.yaml
wait 1s
pod p claim-templates=gpu grace=20 run="on SIGTERM ignore"
expect within 10s each pods name=p phase == Running
delete pod/p
wait 30s
"""
ENDS_BY_ITSELF = """
nodes n1 cpu=4 drivers=gpu.example.com:1
apply gpus.yaml
wait 1s
pod p claim-templates=gpu run="exit 0 after 1s" restart=Never
expect within 20s each pods name=p phase == Succeeded
wait 70s
"""


def grants_what_is_granted(monkeypatch):
    monkeypatch.setattr(Allocated, "put", lambda self, uid, *allocations: None)


def binds_without_granting(monkeypatch):
    async def nothing(self, state, pod, node_name, client):
        return SUCCESS

    monkeypatch.setattr(DynamicResources, "pre_bind", nothing)


def takes_devices_from_pods_that_are_still_ending(monkeypatch):
    is_done = consumers.is_done
    for module in (consumers, controller):
        monkeypatch.setattr(module, "is_done", lambda pod: is_done(pod) or pod.metadata.deletion_timestamp is not None)


def leaves_claims_of_pods_that_have_ended(monkeypatch):
    monkeypatch.setattr(ClaimController, "_is_orphan", lambda self, claim, listers, moment: False)


def never_unprepares(monkeypatch):
    unprepare = ClaimManager.unprepare

    def forgets(self, key, now):
        for uid in [uid for uid, cached in self.cached.items() if list(cached.pods) == [key]]:
            del self.cached[uid]
        unprepare(self, key, now)

    monkeypatch.setattr(ClaimManager, "unprepare", forgets)


PLANTS = [
    (grants_what_is_granted, CLAIMS / "one-for-each.txt", "I6"),
    (never_unprepares, CLAIMS / "one-for-each.txt", "I7"),
    (binds_without_granting, CLAIMS / "one-for-each.txt", "I8"),
    (takes_devices_from_pods_that_are_still_ending, ENDS_SLOWLY, "I9"),
    (leaves_claims_of_pods_that_have_ended, ENDS_BY_ITSELF, "I10"),
    *((never_unprepares, scenario, "I30") for scenario in GO_ON_LONG_ENOUGH),
]
