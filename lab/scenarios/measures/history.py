"""History of each pod: when it was created, bound, unbound, Running, Failed, removed. Pure.

It is built from pod changes and the times they were seen. At the end it gives one row per pod, and the
measures of a run. Pods of two runs are compared by *role*: a bare pod's name, or the owner and the order
of creation, because generated names mean nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from lab.scenarios.measures import quantile
from lab.scenarios.measures.claims import ClaimCosts
from lab.scenarios.measures.phases import Phases, Sample
from lab.scenarios.measures.rejections import Fate, Rejections, waits_after_rejection
from lab.scenarios.measures.resizes import Preemptions, Resizes, resize_measures
from lab.scenarios.measures.scheduling_results import Misreported, ReportedReason, SchedulingResults
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import INITIALLY_SCHEDULED, PodGroup
from services.api.meta import Condition, Key, find_condition
from services.reconcile.controller import Change
from services.telemetry.eventlog import Line

OWN_CONDITION = "ReadyForScheduling"
"""Condition type for rejections at PreEnqueue with `preenqueue_report.condition`."""


@dataclass
class PodHistory:
    """History of one pod object; times are seconds since the run began, None if it has not happened."""

    uid: str
    name: str
    role: str
    is_owned: bool
    created_s: float
    bound_s: float | None = None
    running_s: float | None = None
    ready_s: float | None = None
    failed_s: float | None = None
    rejected_s: float | None = None
    """Time at which a node was first seen to unbind the pod, or to fail it before it ran."""
    leaving_s: float | None = None
    """Time at which the pod was first seen with a deletionTimestamp; from then on its owner no longer counts it."""
    gone_s: float | None = None
    reason: str = ""
    unbinds: int = 0
    nodes: list[str] = field(default_factory=list)
    phase: str = "Pending"
    reported: list[tuple[float, ReportedReason]] = field(default_factory=list)
    """Content of PodScheduled, or of the separate condition for rejections at PreEnqueue, with the time of each
    change.
    """
    group: Key | None = None
    """Key of the pod's pod group; None without one."""

    @property
    def outcome(self) -> str:
        """One word for tables: Running, Failed (reason), Pending, Succeeded or gone."""
        if self.phase == "Failed":
            return f"Failed ({self.reason})" if self.reason else "Failed"
        if self.gone_s is not None and self.running_s is None:
            return "gone"
        return self.phase


class History:
    """All pods of a run, in order of creation."""

    def __init__(self) -> None:
        self.pods: dict[str, PodHistory] = {}
        self.resizes = Resizes()
        self._phases, self._phases_of_owned = Phases(), Phases()
        self._roles: dict[str, int] = {}
        self._said_of_groups: dict[Key, list[tuple[float, ReportedReason]]] = {}

    def observe(self, change: Change[Pod], now_s: float) -> None:
        """Process a change of a pod, seen at `now_s`."""
        pod = change.object
        meta = pod.metadata
        record = self.pods.get(meta.uid)
        is_new = record is None
        if record is None:
            record = PodHistory(meta.uid, meta.name, self._role(pod), meta.controller is not None, now_s)
            self.pods[meta.uid] = record
            if (group := pod.spec.scheduling_group) is not None:
                record.group = Key(meta.namespace, group.pod_group_name)
        before = "" if is_new or record.gone_s is not None else record.phase
        if change.new is None:
            record.gone_s = now_s
        else:
            self._advance(record, change.new, now_s)
            self.resizes.observe(change, now_s)
        for phases in (self._phases, self._phases_of_owned) if record.is_owned else (self._phases,):
            phases.move(before, "" if record.gone_s is not None else record.phase, now_s)

    def observe_group(self, change: Change[PodGroup], now_s: float) -> None:
        """Process a change of a pod group, seen at `now_s`."""
        meta = change.object.metadata
        conditions = change.new.status.conditions if change.new is not None else ()
        _note(self._said_of_groups.setdefault(meta.key, []), now_s, conditions, INITIALLY_SCHEDULED)

    def of_group(self, pod: PodHistory) -> list[tuple[float, ReportedReason]]:
        """Return the reasons in the status of the pod's group, with the time of each change."""
        return self._said_of_groups.get(pod.group, []) if pod.group is not None else []

    def _role(self, pod: Pod) -> str:
        owner = pod.metadata.controller
        stem = f"{owner.kind.lower()}/{owner.name}" if owner else f"pod/{pod.metadata.name}"
        if owner and owner.kind == "ReplicaSet" and (template := pod.metadata.labels.get("pod-template-hash")):
            stem = f"deployment/{owner.name.removesuffix('-' + template)}"
        number = self._roles.get(stem, 0)
        self._roles[stem] = number + 1
        return f"{stem}#{number}" if owner or number else stem

    @staticmethod
    def _advance(record: PodHistory, pod: Pod, now_s: float) -> None:
        node = pod.spec.node_name
        if node and (not record.nodes or record.nodes[-1] != node or pod.status.unbind_count > record.unbinds):
            record.nodes.append(node)
            record.bound_s = now_s
        has_failed_early = pod.status.phase == "Failed" and record.running_s is None
        if record.rejected_s is None and (pod.status.unbind_count > record.unbinds or has_failed_early):
            record.rejected_s = now_s
        record.unbinds = max(record.unbinds, pod.status.unbind_count)
        record.phase = pod.status.phase or "Pending"
        if record.phase == "Running" and record.running_s is None:
            record.running_s = now_s
        _note(record.reported, now_s, pod.status.conditions, OWN_CONDITION, "PodScheduled")
        ready = find_condition(pod.status.conditions, "Ready")
        if ready is not None and ready.status == "True" and record.ready_s is None:
            record.ready_s = now_s
        if pod.metadata.deletion_timestamp is not None and record.leaving_s is None:
            record.leaving_s = now_s
        if record.phase == "Failed" and record.failed_s is None:
            record.failed_s, record.reason = now_s, pod.status.reason

    def sample(self, now_s: float) -> None:
        """Note that nothing has changed since the last sample."""
        self._phases.sample(now_s)
        self._phases_of_owned.sample(now_s)

    @property
    def samples(self) -> list[Sample]:
        """Number of pods in each phase, at each change."""
        return self._phases.samples

    @property
    def measured_samples(self) -> list[Sample]:
        """Number of measured pods in each phase, at each change. Measured are the pods that controllers created, or
        all pods if there are none.
        """
        has_owned = any(pod.is_owned for pod in self.pods.values())
        return self._phases_of_owned.samples if has_owned else self._phases.samples


class LineReader(Protocol):
    """Reader of the lines of some events of the log."""

    @property
    def events(self) -> Collection[str]:
        """The names of the events."""

    def take(self, line: Line) -> None:
        """Process a line of one of these events."""


class Writes:
    """Commits of the store with their times, without heartbeats (Lease); seconds of the log's own clock."""

    events: Final = ("store.commit",)

    def __init__(self) -> None:
        self.at_s: list[float] = []
        self._jobs: dict[str, tuple[float, float | None, bool]] = {}
        """Of each Job: when it began, when it ended, and whether it was complete then."""

    def take(self, line: Line) -> None:
        """Note a commit."""
        if line.ev != "store.commit" or line.obj is None or line.data.get("replayed"):
            return
        if line.obj["kind"] != "Lease":
            self.at_s.append(line.mono_ns / 1e9)
        if (counts := line.data.get("job")) is not None:
            begun_s, ended_s, is_complete = self._jobs.get(line.obj["uid"], (line.mono_ns / 1e9, None, False))
            if counts["finished"] and ended_s is None:
                ended_s, is_complete = line.mono_ns / 1e9, counts["complete"]
            self._jobs[line.obj["uid"]] = begun_s, ended_s, is_complete

    def job_measures(self) -> dict[str, float | None]:
        """Return the number of complete and of failed Jobs, and the times they took; {} if there are none."""
        if not self._jobs:
            return {}
        ended = [(end - begun, is_complete) for begun, end, is_complete in self._jobs.values() if end is not None]
        return {
            "jobs_complete": float(sum(is_complete for _, is_complete in ended)),
            "jobs_failed": float(sum(not is_complete for _, is_complete in ended)),
            "job_duration_p50_s": quantile([took_s for took_s, _ in ended], 0.50),
        }


SEEN_BY_CLIENTS = (
    "pods_created",
    "pods_failed",
    "pods_running_at_end",
    "pods_disturbed",
    "unbinds",
    "failed_per_min",
    "first_running_s",
    "time_to_running_p50_s",
    "time_to_running_p99_s",
)
"""Measures that need no event log, because watches show them."""


class Measures:
    """Measures from the event log, in addition to the pods' history."""

    def __init__(self) -> None:
        self._writes, self._results = Writes(), SchedulingResults()
        self._preemptions, self._rejections, self._claims = Preemptions(), Rejections(), ClaimCosts()

    def readers(self) -> tuple[LineReader, ...]:
        """Return what must get its lines of the event log."""
        return self._writes, self._results, self._preemptions, self._rejections, self._claims

    def of(self, history: History, started_s: float, duration_s: float) -> dict[str, float | None]:
        """Return the measures of a finished run, by name; times in seconds.

        They cover the pods that controllers created, and count from the creation of the first of these: bare pods
        only set the scene. In a scenario without such pods they cover all pods. `started_s`: start of the run on
        the log's clock. `pods_disturbed` counts all pods, bare ones too, that ran and then failed.
        `status_missing_min` and `status_stale_min`: minutes summed over all pods, until each is bound.
        `api_writes_per_running_pod`: None when none of the pods runs at the end. Measures of resizes and victims
        cover all pods.
        """
        writes, results = self._writes, self._results
        owned = [p for p in history.pods.values() if p.is_owned]
        pods = owned or list(history.pods.values())
        running = [p for p in pods if p.phase == "Running" and p.gone_s is None]
        failed = [p for p in pods if p.failed_s is not None]
        starts = [(p.running_s, p.running_s - p.created_s) for p in pods if p.running_s is not None]
        took = [took_s for _, took_s in starts]
        waits = _waits(pods, {uid: at_s - started_s for uid, at_s in self._rejections.first_s.items()})
        begun_s = min((p.created_s for p in pods), default=0.0)
        first_running = min((at_s for at_s, _ in starts), default=None)
        total = sum(at_s >= started_s + begun_s for at_s in writes.at_s)
        until_s = [min(t for t in (p.bound_s, p.gone_s, duration_s) if t is not None) for p in pods]
        misreported = [
            results.misreported_times(p.uid, p.reported, started_s, end_s, history.of_group(p))
            for p, end_s in zip(pods, until_s, strict=True)
        ]
        disturbed = (p.running_s is not None and p.failed_s is not None for p in history.pods.values())
        return {
            "pods_created": float(len(pods)),
            "pods_failed": float(len(failed)),
            "pods_running_at_end": float(len(running)),
            "pods_disturbed": float(sum(disturbed)),
            "unbinds": float(sum(p.unbinds for p in pods)),
            "failed_per_min": 60.0 * len(failed) / (duration_s - begun_s) if duration_s > begun_s else None,
            "first_running_s": first_running - begun_s if first_running is not None else None,
            "time_to_running_p50_s": quantile(took, 0.50),
            "time_to_running_p99_s": quantile(took, 0.99),
            "rejected_to_running_p50_s": quantile(waits, 0.50),
            "rejected_to_running_p99_s": quantile(waits, 0.99),
            "api_writes": float(total),
            "api_writes_per_running_pod": total / len(running) if running else None,
            "status_patches": float(sum(results.patches_by_uid.get(p.uid, 0) for p in pods)),
            "status_missing_min": sum(each.missing for each in misreported) / 60.0,
            "status_stale_min": sum(each.stale for each in misreported) / 60.0,
            **_gate_reports(results, misreported),
            **resize_measures(history.resizes, self._preemptions),
            **writes.job_measures(),
            **self._claims.measures(),
        }


def _gate_reports(results: SchedulingResults, misreported: list[Misreported]) -> dict[str, float | None]:
    """Return what reporting the rejections of PreEnqueue took, and brought; {} when none was reported."""
    if not results.reports:
        return {}
    seen = [each.seen_s for each in misreported if each.seen_s is not None]
    return {
        "gate_reports": float(results.reports),
        "gate_report_kib": results.report_bytes / 1024,
        "gate_reason_seen_p50_s": quantile(seen, 0.50),
        "gate_reason_seen_p99_s": quantile(seen, 0.99),
        "status_misleading_min": sum(each.misleading for each in misreported) / 60.0,
    }


def _note(
    reported: list[tuple[float, ReportedReason]], now_s: float, conditions: tuple[Condition, ...], *types: str
) -> None:
    """Note what the first of these conditions that is there says, if it is news."""
    shown = next((condition for each in types if (condition := find_condition(conditions, each)) is not None), None)
    is_false = shown is not None and shown.status == "False"
    report = ReportedReason(shown.reason, shown.message) if shown is not None and is_false else ReportedReason()
    if report != (reported[-1][1] if reported else ReportedReason()):
        reported.append((now_s, report))


def _waits(pods: list[PodHistory], rejected_s: Mapping[str, float]) -> list[float]:
    """Return how long each rejection had to wait for a pod that runs, workload by workload.

    `rejected_s`: when kubelets rejected pods, by uid. Starts that fail over and over are no such answer: of those it is
    when the pod was seen to be unbound.
    """
    workloads: dict[str, list[Fate]] = {}
    for pod in pods:
        fates = workloads.setdefault(pod.role.rpartition("#")[0] or pod.role, [])
        ended_s = min((at_s for at_s in (pod.failed_s, pod.leaving_s, pod.gone_s) if at_s is not None), default=None)
        fates.append(Fate(pod.created_s, rejected_s.get(pod.uid, pod.rejected_s), pod.running_s, ended_s))
    return [wait for fates in workloads.values() for wait in waits_after_rejection(fates)]
