"""TrainJob: an out-of-tree owner of a claim that its pods share (KEP-5194).

A train job is a Workload with the annotations below. Its controller creates a claim that is for the Workload, then
the workers, which name the claim; when all workers have ended, `releasing` gives the claim back. There is nothing to
remember: after a crash the caches show every Workload again, and every claim that names one.
Source: kep-5194 6; controllers 13.
"""

from dataclasses import dataclass

from services.api.kinds.pod import Pod
from services.api.kinds.resourceclaim import CLAIMS, ResourceClaim
from services.api.kinds.workload import Workload
from services.api.switches import Switches
from services.reconcile.actions import NOTHING, Action, Create, Result
from services.reconcile.claim_release import Releases, releasing
from services.reconcile.controller import Controller
from services.reconcile.writes import controller_reference
from services.runtime.config import CommonConfig
from services.runtime.manager import Manager
from services.runtime.process import main

USER = "system:serviceaccount:default:train-job"
WORKERS, DEVICE_CLASS = "train.example.com/workers", "train.example.com/device-class"
RUN = "keplab.dev/run"
"""What the emulated containers do, for example `exit 0 after 5s`; handed on to the workers."""


def workers_of(workload, listers):
    owned = listers.of(Pod).owned_by(workload.metadata.uid)
    return {pod.metadata.name: pod for pod in owned}


def reconcile(key, listers, moment):
    workload = listers.of(Workload).get(key)
    if workload is None or WORKERS not in workload.metadata.annotations or workload.metadata.deletion_timestamp:
        return NOTHING
    missing: list[Action] = []
    if listers.of(ResourceClaim).get(key) is None:
        missing.append(Create(CLAIMS, claim_of(workload)))
    held = workers_of(workload, listers)
    names = [f"{key.name}-{index}" for index in range(int(workload.metadata.annotations[WORKERS]))]
    missing += [Create("pods", worker_of(workload, name)) for name in names if name not in held]
    return Result(tuple(missing))


def has_ended(workload, listers):
    """No worker is made again: the job is over when each has ended."""
    held = workers_of(workload, listers)
    wanted = int(workload.metadata.annotations.get(WORKERS, "0"))
    return len(held) >= wanted and all(pod.is_terminal for pod in held.values())


def metadata_of(workload, name):
    return {"name": name, "namespace": workload.metadata.namespace, "ownerReferences": [controller_reference(workload)]}


def claim_of(workload):
    meta = workload.metadata
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "workloads", "name": meta.name, "uid": meta.uid}
    request = {"name": "devices", "exactly": {"deviceClassName": meta.annotations[DEVICE_CLASS]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata_of(workload, meta.name),
        "spec": {"reservedFor": consumer, "devices": {"requests": [request]}},
    }


def worker_of(workload, name):
    run = {mark: text for mark, text in workload.metadata.annotations.items() if mark == RUN}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata_of(workload, name), "annotations": run},
        "spec": {
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "devices", "resourceClaimName": workload.metadata.name}],
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10"}],
        },
    }


def controller(switches: Switches) -> Controller:
    plain = Controller("train-job", Workload, reconcile, USER, owns=(Pod, ResourceClaim))
    return releasing(plain, switches, Releases(Workload, has_ended))


@dataclass(frozen=True, kw_only=True)
class TrainJobConfig(CommonConfig):
    """Run Workloads that are train jobs."""


def build(config, seams):
    return Manager([controller(seams.switches)], seams)


if __name__ == "__main__":
    main("train-job", TrainJobConfig, build)
