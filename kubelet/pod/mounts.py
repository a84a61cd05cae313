"""The volumes of a pod that wait for what they refer to, each tried again after a back-off of its own. Pure.

A try that fails is told by an event, and the next follows after 500 ms, then after twice as long each time, up to
2 min 2 s, whether or not the pod is synced meanwhile. What was mounted once stays.
Source: upstream `pkg/util/goroutinemap/exponentialbackoff`, `pkg/volume/util/operationexecutor` (event).
"""

import msgspec

from kubelet.pod.context import PodContext
from kubelet.references.references import (
    CLAIMS,
    RUNTIME_CLASSES,
    SECRETS,
    Answers,
    Reference,
    claim_problem,
    mounted,
    of_volume,
    volume_problem,
)
from kubelet.timers import EARLY_S
from kubelet.view import KubeletVolume

FIRST_S, LONGEST_S = 0.5, 122.0


class Wait(msgspec.Struct):
    """When a volume is tried next, and how long it waited for that."""

    at_s: float
    backoff_s: float = 0.0


class Mounts:
    """Invariant: `_waits` has exactly the volumes that refer to something and are not mounted."""

    __slots__ = ("_due", "_pod", "_waits")

    def __init__(self, pod: PodContext, now: float) -> None:
        self._pod = pod
        self._waits: dict[str, Wait] = {}
        self._due: list[KubeletVolume] = []
        """Those that are tried with the next answers."""
        self.begin(now)

    def begin(self, now: float) -> None:
        """None is mounted: all are tried from now on."""
        pod = self._pod.pod
        volumes = mounted(pod)
        self._waits = {v.name: Wait(now) for v in volumes if next(of_volume(pod, v), None) or v.downward_api}

    @property
    def names(self) -> list[str]:
        """The volumes that are not mounted, in the pod's order."""
        return list(self._waits)

    @property
    def next_s(self) -> float:
        """When a volume is tried next; only while some are not mounted."""
        return min(wait.at_s for wait in self._waits.values())

    def references(self, t: float) -> list[Reference]:
        """Return what has to be read for the volumes that are due, each once."""
        pod, is_controlled = self._pod.pod, self._pod.node.volumes.is_controlled
        self._due = [v for v in mounted(pod) if v.name in self._waits and self._waits[v.name].at_s <= t + EARLY_S]
        found = (r for v in self._due for r in of_volume(pod, v) if not (is_controlled and r.resource == CLAIMS))
        return list(dict.fromkeys(found))

    def take(self, answers: Answers, t: float) -> tuple[list[str], str]:
        """Mount what can be had, and say of what was due why it cannot.

        Return the volumes whose claims cannot be mounted, and why: those are tried again when the pod is synced.
        """
        pod = self._pod.pod
        unprocessed = {volume.name: text for volume in self._due if (text := claim_problem(pod, volume, answers))}
        due, self._due = self._due, []
        for volume in due:
            if volume.name in unprocessed:
                continue
            if not (problem := volume_problem(pod, volume, answers)):
                del self._waits[volume.name]
                continue
            text = f'MountVolume.SetUp failed for volume "{volume.name}" : {problem}'
            self._pod.event("FailedMount", text, "Warning")
            wait = self._waits[volume.name]
            wait.backoff_s = min(wait.backoff_s * 2 or FIRST_S, LONGEST_S)
            wait.at_s = t + wait.backoff_s
        return sorted(unprocessed), "; ".join(unprocessed.values())


def extras(pod: PodContext) -> list[Reference]:
    """Return what is read besides for each sync of a start: secrets for pulls, and the runtime class."""
    spec = pod.pod.spec
    found = [Reference(SECRETS, each.name) for each in spec.image_pull_secrets]
    return [*found, Reference(RUNTIME_CLASSES, spec.runtime_class_name)] if spec.runtime_class_name else found
