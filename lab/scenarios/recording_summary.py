"""Queries of a recording: its decisions, the reasons for a pod's place, and a state to begin from."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from lab.recordings.reader import Recording
from lab.recordings.redaction import SECRETS
from lab.recordings.rows import POOLS
from lab.scenarios.decisions.decision import SCHEDULER_EVENTS, Decision, Decisions
from lab.scenarios.initial_state import State, StateError, StoredObject

LEFT_OUT: Final = "would_fit_if and wakes_on, which only a scheduler that runs can find out"
NOT_SCORED: Final = "rejected, scores and final: the event log, from which this is, names only the plugins"
_DECISION: Final = msgspec.json.Decoder(Decision)


def decisions_of(recording: Recording) -> list[Decision]:
    """Return the decisions, in seconds of the recording's clock; with scores, if they were recorded."""
    zero_s = recording.meta.clock.zero_s
    return [msgspec.structs.replace(each, at_s=round(each.at_s - zero_s, 9)) for each in _decisions(recording)]


def _decisions(recording: Recording) -> Iterator[Decision]:
    is_recorded = False
    for raw in recording.decisions():
        is_recorded = True
        yield _DECISION.decode(raw)
    if is_recorded:
        return
    reader = Decisions()
    for line in recording.lines():
        if (decision := reader.of(line)) is not None:
            yield decision


def explanation_at(
    recording: Recording, namespace: str, name: str, rv: int, decisions: Sequence[Decision] | None = None
) -> dict[str, Any] | None:
    """Return why a pod was where it was at a version, as `keplab explain -o json` prints it; None for an unknown
    pod.

    `left_out` names what is not known of the past. `decisions`: those about the pod, if already read.
    """
    stop = recording.stop_at(rv)
    known = f"{namespace}/{name}"
    if decisions is None:
        decisions = [each for each in decisions_of(recording) if each.name == known]
    version = recording.version_of("pods", namespace, name, stop)
    pool = recording.model_at(stop).pool_of(version.uid) if version is not None else ""
    return explanation(recording, decisions, known, stop, pool)


def explanation(
    recording: Recording, decisions: Sequence[Decision], known: str, stop: int, pool: str
) -> dict[str, Any] | None:
    """Return the same as `explanation_at` for given `decisions` about the pod `known` and its pool.

    `stop`: a version at which one may stop.
    """
    namespace, _, name = known.partition("/")
    version = recording.version_of("pods", namespace, name, stop)
    until_s = _until(recording, stop)
    tried = [each for each in decisions if each.event in SCHEDULER_EVENTS and each.at_s <= until_s]
    attempts = [each for each in tried if each.event == "sched.attempt"]
    if version is None and not attempts:
        return None
    body = recording.body(version.sha) if version is not None else None
    pod: dict[str, Any] = msgspec.json.decode(body) if body is not None else {}
    status = pod.get("status") or {}
    facts = version.facts if version is not None else {}
    last = attempts[-1] if attempts else None
    why = last.why if last is not None else {}
    totals, has_scores = why.get("total", {}), "rejected" in why
    node = (pod.get("spec") or {}).get("nodeName") or facts.get("node", "")
    return {
        "pod": known,
        "uid": version.uid if version is not None else "",
        "rv": stop,
        "exists": version is not None,
        "phase": status.get("phase") or facts.get("phase", ""),
        "node": node,
        "pool": pool,
        "since_s": round(recording.time_at(stop) - last.at_s, 6) if last is not None else None,
        "outcome": last.outcome if last is not None else "",
        "attempts": why.get("attempt", 0),
        "feasible": list(totals) or ([last.node] if last is not None and last.outcome == "scheduled" else []),
        "feasible_count": why.get("feasible", 0),
        "evaluated": why.get("evaluated", 0),
        "rejected": why.get("rejected", {}),
        "rejected_by": why.get("plugins", []),
        "scores": why.get("scores", {}),
        "final": totals,
        "weights": why.get("weights", {}),
        "message": "" if node else why.get("message", "") or _waits_for(status),
        "victims": why.get("victims", []),
        "preempted_by": why.get("preempted_by", ""),
        "nominated_node": status.get("nominatedNodeName") or why.get("nominated", ""),
        "wakes_on": [],
        "would_fit_if": [],
        "left_out": [LEFT_OUT, *([] if has_scores or last is None else [NOT_SCORED])],
    }


def _waits_for(status: dict[str, Any]) -> str:
    """Return what the condition PodScheduled says of a pod that was not tried: of its gates, for example."""
    conditions = status.get("conditions") or ()
    waiting = (each for each in conditions if each.get("type") == "PodScheduled" and each.get("status") == "False")
    return next((each.get("message", "") for each in waiting), "")


def known_pods(recording: Recording, rv: int) -> list[str]:
    """Return the pods that existed at a version, as `namespace/name`."""
    return sorted(f"{ns}/{name}" for resource, ns, name in recording.state_at(rv) if resource == "pods")


def queue_at(recording: Recording, rv: int) -> dict[str, Any]:
    """Return the pods in each pool of the scheduling queue at a version."""
    model = recording.model_at(rv)
    columns, strings = model.columns("pods"), model.strings
    pods = []
    for slot, number in enumerate(columns["pool"].tolist()):
        if number and columns["name"][slot]:
            pod = f"{strings[columns['ns'][slot]]}/{strings[columns['name'][slot]]}"
            pods.append({"pod": pod, "pool": POOLS[number], "priority": int(columns["priority"][slot])})
    counts = {pool: sum(each["pool"] == pool for each in pods) for pool in POOLS[1:]}
    return {"rv": model.rv, "counts": counts, "pods": sorted(pods, key=lambda each: (each["pool"], each["pod"]))}


def state_at(recording: Recording, rv: int) -> State:
    """Return the state at a version (0: the last), for a simulation to begin from.

    It contains no Secrets, whose values are not recorded, and no objects whose body is not recorded. Raises:
    StateError.
    """
    first, last = recording.rv_range
    rv = rv or last
    if not first <= rv <= last:
        raise StateError(f"{recording.path}: has versions {first} to {last}, not {rv}")
    objects = []
    for (resource, _, _), version in recording.state_at(rv).items():
        body = recording.body(version.sha) if resource != SECRETS else None
        if body is not None:
            objects.append(StoredObject(resource, msgspec.json.decode(body)))
    stop = recording.stop_at(rv)
    wall_s = recording.meta.clock.wall_s + recording.time_at(stop)
    meta = recording.meta
    return State(rv=stop, wall_s=wall_s, objects=tuple(objects), parts=meta.parts, switches=tuple(meta.switches))


def _until(recording: Recording, rv: int) -> float:
    """Return until when decisions belong to a version: until the next one."""
    return next((each.t for each in recording.versions(rv)), float("inf"))
