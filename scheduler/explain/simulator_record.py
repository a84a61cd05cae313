"""One attempt under kube-scheduler-simulator's annotation keys: every plugin's answer for every node.

Like the simulator, an observer listens in to each plugin while a runner of the same plugins goes through the attempt
again, right after the cycle and before the pod is assumed, so that nothing has changed in between. Only done when the
switch `scheduler.record` asks for it: it costs far more than the cycle itself.

The record is kept whole in memory. The API server takes 256 KiB of annotations an object, so what goes there
gives up its history first, then the answers by node.
Source: kubernetes-sigs/kube-scheduler-simulator (its README and how-it-works page).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cycle.profiles import Profile
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import PreFilterResult
from scheduler.framework.runner import Prepared, Runner
from services.api.lru import LRU

PREFIX: Final = "kube-scheduler-simulator.sigs.k8s.io/"
HISTORY: Final = PREFIX + "result-history"
PASSED, SUCCESS, VICTIM = "passed", "success", "preemption victim"
ANNOTATIONS_MAX_BYTES: Final = 200 * 1024
"""Below the API server's 256 KiB, so that the pod's own annotations fit, too."""
RECORDS_MAX: Final = 4096
Answers = dict[str, Any]


class _Listener:
    """Observes a runner: what plugins answer at PreFilter and Score, the latter by node or for all rows at once."""

    def __init__(self) -> None:
        self.prepared: dict[str, PreFilterResult] = {}
        self.scores: Answers = {}

    def of_plugin(self, plugin: str, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the plugin's method, listened to."""

        def observed(*args: Any) -> Any:
            answer = call(*args)
            if point == "PreFilter":
                self.prepared[plugin] = answer if isinstance(answer, PreFilterResult) else PreFilterResult(answer)
            elif point == "Score" and isinstance(args[-1], NodeInfo):
                self.scores.setdefault(plugin, {})[args[-1].slot] = answer
            elif point == "Score":
                self.scores[plugin] = answer
            return answer

        return observed

    def points(self, runner: Any) -> None:
        """Leave the runner as it is."""


def answers_of(
    profile: Profile, pod: PodInfo, columns: Columns, now: float, *, node: str = "", nominated: str = ""
) -> Answers:
    """Return annotation suffix to value for one attempt; `node` is the chosen one, "" when there was none.

    Shapes: `filter-result` is node → plugin → "passed" or reasons; `score-result` and `finalscore-result` are
    node → plugin → number as text, before NormalizeScore and after it times the weight; the others are
    plugin → "success".
    """
    state, listener = CycleState(now), _Listener()
    runner = profile.runner.only(lambda plugin: True, observer=listener)
    feasible = runner.filter(state, pod, columns)
    asked = {plugin: each for plugin, each in listener.prepared.items() if plugin not in state.skip_filter}
    served = {point: dict.fromkeys(names if node else (), SUCCESS) for point, names in profile.runner.points.items()}
    found: Answers = {
        "selected-node": node,
        "prefilter-result": {p: list(each.node_names) for p, each in asked.items() if each.node_names is not None},
        "prefilter-result-status": {
            plugin: SUCCESS if each.status.is_success else each.status.message for plugin, each in asked.items()
        },
        "filter-result": _filtered(profile, runner, state, pod, columns, feasible.prepared),
        "postfilter-result": {nominated: {"DefaultPreemption": VICTIM}} if nominated else {},
        "prescore-result": {},
        "score-result": {},
        "finalscore-result": {},
        "reserve-result": served["reserve"],
        "permit-result": served["permit"],
        "permit-result-timeout": {},
        "prebind-result": served["preBind"],
        "bind-result": served["bind"],
    }
    if node and feasible.mask.any():
        runner.score(state, pod, columns, feasible)
        found["prescore-result"] = {n: SUCCESS for n in profile.runner.points["preScore"] if n not in state.skip_score}
        names = [name for name in sorted(columns.slots) if feasible.mask[columns.slots[name]]]
        rows = np.array([columns.slots[name] for name in names], np.intp)
        weights = runner.weights
        final = {plugin: each for plugin, each in runner.scores_of(state, feasible, rows).items() if weights[plugin]}
        for i, (name, row) in enumerate(zip(names, rows.tolist(), strict=True)):
            found["score-result"][name] = {plugin: _text(listener.scores[plugin], row) for plugin in final}
            found["finalscore-result"][name] = {p: _text(each, i, weights[p]) for p, each in final.items()}
    return found


def _filtered(
    profile: Profile, runner: Runner, state: CycleState, pod: PodInfo, columns: Columns, prepared: Prepared
) -> dict[str, dict[str, str]]:
    """Return what each Filter says of each node, up to the first rejection; nothing after a rejection by PreFilter."""
    by_node: dict[str, dict[str, str]] = {}
    filters = [name for name in profile.runner.points["filter"] if name not in state.skip_filter]
    state.alive = columns.valid.copy()
    for name in sorted(columns.slots) if prepared.rejection is None else ():
        node = columns.nodes[columns.slots[name]]
        if node is None or (prepared.node_names is not None and name not in prepared.node_names):
            continue
        status = runner.filter_node(state, pod, node)
        passed = filters if status.is_success else filters[: filters.index(status.plugin)]
        by_node[name] = dict.fromkeys(passed, PASSED)
        if not status.is_success:
            by_node[name][status.plugin] = status.message
    return by_node


def _text(scores: Any, row: int, weight: int = 1) -> str:
    """Return the score of a row, times the weight; a number is the score of every row."""
    return str(int(scores if isinstance(scores, int) else scores[row]) * weight)


class SimulatorRecords:
    """Every attempt of each pod, by uid, the oldest pods dropped first."""

    def __init__(self) -> None:
        self._attempts: LRU[str, list[dict[str, str]]] = LRU(RECORDS_MAX)

    def keep(self, uid: str, answers: Mapping[str, Any]) -> None:
        """Remember one attempt."""
        texts = {
            PREFIX + key: value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
            for key, value in answers.items()
        }
        attempts = self._attempts.get(uid, [])
        attempts.append(texts)
        self._attempts.put(uid, attempts)

    def whole(self, uid: str) -> dict[str, str]:
        """Return all annotations of the pod, however large; {} for a pod never tried."""
        attempts = self._attempts.get(uid)
        if not attempts:
            return {}
        return {**attempts[-1], HISTORY: msgspec.json.encode(attempts).decode()}

    def fitting(self, uid: str) -> dict[str, str]:
        """Return what the API server takes: without the history, or without answers by node, when that is too much."""
        found = self.whole(uid)
        by_node = (HISTORY, PREFIX + "filter-result", PREFIX + "score-result", PREFIX + "finalscore-result")
        for key in by_node:
            if sum(len(k) + len(v) for k, v in found.items()) > ANNOTATIONS_MAX_BYTES:
                found.pop(key, None)
        return found
