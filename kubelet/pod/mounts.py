"""The volumes of a pod that wait for the objects they refer to, each retried with its own back-off. Pure.

A failed try is reported by an event, and the next follows after 500 ms, then after twice as long each time,
up to 2 min 2 s, whether or not the pod is synced meanwhile. A volume that was mounted once stays mounted.
Source: upstream `pkg/util/goroutinemap/exponentialbackoff`, `pkg/volume/util/operationexecutor` (event).
"""

from typing import NamedTuple

import msgspec

from kubelet.references.references import (
    CLAIMS,
    RUNTIME_CLASSES,
    SECRETS,
    Answers,
    Reference,
    claim_problem,
    mounted_volumes,
    of_volume,
    volume_problem,
)
from kubelet.timers import EARLY_S
from kubelet.view import KubeletPod, KubeletVolume

FIRST_S, LONGEST_S = 0.5, 122.0


class Wait(msgspec.Struct):
    """The time of a volume's next try, and the back-off before it."""

    at_s: float
    backoff_s: float = 0.0


class Tried(NamedTuple):
    """The result of a try of several volumes.

    It has the messages of volumes that failed, and the volumes whose claims have no volume, with the problem.
    """

    failures: list[str]
    unprocessed: list[str]
    problem: str


class Mounts:
    """The unmounted volumes of one pod.

    Invariant: `_waits` has exactly the volumes that refer to something and are not mounted. `reads_claims`: no
    controller attaches volumes, so the node itself asks for the volume of each claim.
    """

    __slots__ = ("_due", "_reads_claims", "_waits")

    def __init__(self, pod: KubeletPod, now: float, *, reads_claims: bool) -> None:
        self._reads_claims = reads_claims
        self._waits: dict[str, Wait] = {}
        self._due: list[KubeletVolume] = []
        """Those that are tried with the next answers."""
        self.begin(pod, now)

    def begin(self, pod: KubeletPod, now: float) -> None:
        """Begin with no volume mounted: all are tried from now on."""
        volumes = mounted_volumes(pod)
        self._waits = {v.name: Wait(now) for v in volumes if next(of_volume(pod, v), None) or v.downward_api}

    @property
    def names(self) -> list[str]:
        """The volumes that are not mounted."""
        return sorted(self._waits)

    @property
    def next_s(self) -> float:
        """The time at which a volume is tried next; only while some are not mounted."""
        return min(wait.at_s for wait in self._waits.values())

    def references(self, pod: KubeletPod, t: float) -> list[Reference]:
        """Return the objects to read for the volumes that are due, without duplicates."""
        self._due = [
            v for v in mounted_volumes(pod) if v.name in self._waits and self._waits[v.name].at_s <= t + EARLY_S
        ]
        found = (r for v in self._due for r in of_volume(pod, v) if self._reads_claims or r.resource != CLAIMS)
        return list(dict.fromkeys(found))

    def take(self, pod: KubeletPod, answers: Answers, t: float) -> Tried:
        """Mount the volumes whose objects were found.

        Volumes whose claims have none are tried again when the pod is synced.
        """
        unprocessed = {volume.name: text for volume in self._due if (text := claim_problem(pod, volume, answers))}
        due, self._due = self._due, []
        failures: list[str] = []
        for volume in due:
            if volume.name in unprocessed:
                continue
            if not (problem := volume_problem(pod, volume, answers)):
                del self._waits[volume.name]
                continue
            failures.append(f'MountVolume.SetUp failed for volume "{volume.name}" : {problem}')
            wait = self._waits[volume.name]
            wait.backoff_s = min(wait.backoff_s * 2 or FIRST_S, LONGEST_S)
            wait.at_s = t + wait.backoff_s
        return Tried(failures, sorted(unprocessed), "; ".join(unprocessed.values()))


def extras(pod: KubeletPod) -> list[Reference]:
    """Return the other objects to read for each sync of a start: secrets for pulls, and the runtime class."""
    found = [Reference(SECRETS, each.name) for each in pod.spec.image_pull_secrets]
    name = pod.spec.runtime_class_name
    return [*found, Reference(RUNTIME_CLASSES, name)] if name else found
