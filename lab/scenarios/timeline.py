"""Status of a scenario's run in the format of kube-scheduler-simulator's KEP-140: its phase and its
timeline. Pure.

Source: simulator 8; kubernetes-sigs/kube-scheduler-simulator,
`keps/140-scenario-based-simulation/README.md`.
"""

from collections.abc import Sequence

from lab.scenarios.result import RunResult
from lab.scenarios.script.operations import Operation
from services.api.meta import Document


def status_of(operations: Sequence[Operation], result: RunResult) -> Document:
    """Return the status in KEP-140's format: phase, step, and the timeline by major step.

    The scenario's own operations have their ids. Actions of the scheduler are added as a `podScheduled`, or
    as a `delete` of a preempted pod.
    """
    steps = list(dict.fromkeys(each.step for each in operations))
    done = next((each.step for each in operations if each.what == "done"), None)
    ends = [each.at_s for each in result.expectations if each.text.startswith("settle ")]
    reached = steps[min(len(ends), len(steps)) - 1] if ends else steps[0]
    timeline: dict[str, list[Document]] = {}
    for operation in operations:
        if operation.step <= reached:
            entry = {
                "id": operation.id,
                "step": {"major": operation.step, "minor": 0},
                operation.what: {"operation": dict(operation.body)},
            }
            timeline.setdefault(str(operation.step), []).append(entry)
    minors: dict[int, int] = {}
    for number, (at_s, what, body) in enumerate(_besides(operations, result)):
        major = next((step for step, end in zip(steps, ends, strict=False) if at_s <= end), reached)
        minors[major] = minors.get(major, 0) + 1
        entry = {"id": f"{what}-{number}", "step": {"major": major, "minor": minors[major]}, what: body}
        timeline.setdefault(str(major), []).append(entry)
    unmet = (f"{each.text[:80]}: {each.seen}" for each in result.expectations if not each.passed)
    failed = result.error or next(unmet, "")
    phase = "Failed" if failed else "Succeeded" if done is not None and reached >= done else "Paused"
    message = failed or ("" if phase == "Succeeded" else "no operation says done")
    in_order = dict(sorted(timeline.items(), key=lambda each: int(each[0])))
    return {
        "phase": phase,
        **({"message": message} if message else {}),
        "stepStatus": {"step": {"major": reached, "minor": minors.get(reached, 0)}, "phase": "Finished"},
        "scenarioResult": {"simulatorVersion": "keplab", "timeline": in_order},
    }


def _besides(operations: Sequence[Operation], result: RunResult) -> list[tuple[float, str, Document]]:
    """Return what the scheduler did, in the order of time: when, what, and to which pod."""
    own = {str((each.body.get("objectMeta") or {}).get("name")) for each in operations if each.what == "delete"}
    entries: list[tuple[float, str, Document]] = []
    for pod in result.pods:
        if pod.bound_s is not None and pod.nodes:
            entries.append((pod.bound_s, "podScheduled", {"pod": pod.name, "nodeName": pod.nodes[-1]}))
        if pod.leaving_s is not None and pod.name not in own and not pod.is_owned:
            entries.append((pod.leaving_s, "delete", {"pod": pod.name}))
    return sorted(entries, key=lambda each: (each[0], each[1], each[2]["pod"]))
