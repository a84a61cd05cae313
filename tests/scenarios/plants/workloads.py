"""Planted bugs in what controllers make of many pods (I11, I19, I20, I26, I28)."""

from pathlib import Path

from scheduler.framework.status import SUCCESS
from scheduler.plugins.gang_scheduling import GangScheduling
from services.controllers import shared_pods
from services.controllers.garbage_collector.controller import GarbageCollector
from services.controllers.job import controller as job
from services.controllers.job import survey as job_survey
from services.controllers.podgc.controller import PodGC
from services.reconcile.actions import NOTHING

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
NO_SUCH_NODE = """
nodes n1 cpu=4
pod p cpu=1 node=n9
wait 150s
"""
OWNER_GONE = """
nodes n1 cpu=4
replicaset web replicas=2 cpu=1
expect within 10s count pods phase=Running == 2
delete replicaset/web
wait 120s
"""
GANG = """
set GenericWorkload=true gang.permit_timeout_s=20
nodes n1..n3 cpu=4
podgroup red min-count=4
pod red-1 cpu=3 group=red
pod red-2 cpu=3 group=red
pod red-3 cpu=3 group=red
pod red-4 cpu=3 group=red
wait 60s
"""
JOB = """
nodes n1 cpu=16
job work cpu=1 completions=6 parallelism=3 run="exit 0 after 3s"
wait 30s
"""


def leaves_pods_of_nodes_that_are_gone(monkeypatch):
    monkeypatch.setattr(PodGC, "reconcile", lambda self, key, listers, moment: NOTHING)


def leaves_pods_of_owners_that_are_gone(monkeypatch):
    monkeypatch.setattr(GarbageCollector, "reconcile", lambda self, key, listers, moment: NOTHING)


def counts_a_pod_again(monkeypatch):
    """What leaves the stored list of uids is added to the counters twice."""
    survey = job_survey.survey

    def doubles(each, *rest, **more):
        found = survey(each, *rest, **more)
        found.counted = {kind: [*uids, *uids] for kind, uids in found.counted.items()}
        return found

    monkeypatch.setattr(job, "survey", doubles)


def releases_a_member_before_its_gang_is_complete(monkeypatch):
    monkeypatch.setattr(GangScheduling, "placement_feasible", lambda self, group, progress: SUCCESS)
    monkeypatch.setattr(GangScheduling, "permit", lambda self, state, pod, node_name: (SUCCESS, 0.0))


def counts_no_pod_as_ready(monkeypatch):
    add = shared_pods._add
    monkeypatch.setattr(
        shared_pods, "_add", lambda count, fact, number: add(count, fact._replace(is_ready=False), number)
    )


PLANTS = [
    (leaves_pods_of_nodes_that_are_gone, NO_SUCH_NODE, "I11"),
    (leaves_pods_of_owners_that_are_gone, OWNER_GONE, "I11"),
    (leaves_pods_of_nodes_that_are_gone, EXPERIMENTS / "daemon-sets" / "nodes.txt", "I11"),
    (leaves_pods_of_owners_that_are_gone, EXPERIMENTS / "stateful-sets" / "retention.txt", "I11"),
    (counts_a_pod_again, JOB, "I19"),
    (releases_a_member_before_its_gang_is_complete, GANG, "I26"),
]
