"""One attempt under kube-scheduler-simulator's annotation keys: every plugin's answer for every node.

The simulator wraps each plugin to listen in; here the plugins are simply asked again, one node at a time, right
after the cycle and before the pod is assumed, so that nothing has changed in between. Only done when the switch
`scheduler.record` asks for it: it costs far more than the cycle itself.

The record is kept whole in memory. The API server takes 256 KiB of annotations an object, so what goes there
gives up its history first, then the answers by node.
Source: kubernetes-sigs/kube-scheduler-simulator (its README and how-it-works page).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from scheduler.cache.columns import Columns, Mask
from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import (
    BindPlugin,
    FilterPlugin,
    PermitPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ReservePlugin,
    ScoreExtensions,
    ScorePlugin,
)
from scheduler.framework.runner import Runner
from scheduler.framework.status import Code
from scheduler.framework.vectorized import Forms, VectorScorePlugin

PREFIX: Final = "kube-scheduler-simulator.sigs.k8s.io/"
HISTORY: Final = PREFIX + "result-history"
PASSED, SUCCESS, VICTIM = "passed", "success", "preemption victim"
ANNOTATIONS_MAX_BYTES: Final = 200 * 1024
"""Below the API server's 256 KiB, so that the pod's own annotations fit, too."""
RECORDS_MAX: Final = 4096
Answers = dict[str, Any]


def answers_of(
    runner: Runner, pod: PodInfo, columns: Columns, now: float, *, node: str = "", nominated: str = ""
) -> Answers:
    """Return annotation suffix to value for one attempt; `node` is the chosen one, "" when there was none.

    Shapes: `filter-result` is node → plugin → "passed" or reasons; `score-result` and `finalscore-result` are
    node → plugin → number as text, before NormalizeScore and after it times the weight; the others are
    plugin → "success".
    """
    state = CycleState(now)
    found: Answers = {"selected-node": node, "prefilter-result": {}, "prefilter-result-status": {}}
    names: set[str] | None = None
    for enabled in runner.profile:
        if isinstance(enabled.plugin, PreFilterPlugin):
            answer = enabled.plugin.pre_filter(state, pod, columns)
            status = answer.status if isinstance(answer, PreFilterResult) else answer
            if status.code is Code.SKIP:
                state.skip_filter.add(enabled.name)
                continue
            found["prefilter-result-status"][enabled.name] = SUCCESS if status.is_success else status.message
            if isinstance(answer, PreFilterResult) and answer.node_names is not None:
                found["prefilter-result"][enabled.name] = list(answer.node_names)
                names = set(answer.node_names) if names is None else names & set(answer.node_names)
            if not status.is_success:
                names = set()
    found["filter-result"], feasible = _filter(runner, state, pod, columns, names)
    found["postfilter-result"] = {nominated: {"DefaultPreemption": VICTIM}} if nominated else {}
    if node and feasible.any():
        found |= _scores(runner, state, pod, columns, feasible)
    else:
        found |= {"prescore-result": {}, "score-result": {}, "finalscore-result": {}}
    return found | _after(runner, node)


def _filter(
    runner: Runner, state: CycleState, pod: PodInfo, columns: Columns, names: set[str] | None
) -> tuple[dict[str, dict[str, str]], Mask]:
    filters = [
        e.plugin for e in runner.profile if isinstance(e.plugin, FilterPlugin) and e.name not in state.skip_filter
    ]
    state.alive = columns.valid.copy()
    feasible = np.zeros(columns.capacity, bool)
    by_node: dict[str, dict[str, str]] = {}
    for name in sorted(columns.slots):
        row = columns.slots[name]
        node = columns.nodes[row]
        if node is None or (names is not None and name not in names):
            continue
        said = by_node[name] = {}
        for plugin in filters:
            status = plugin.filter(state, pod, node)
            said[plugin.name] = PASSED if status.is_success else status.message
            if not status.is_success:
                break
        else:
            feasible[row] = True
    return by_node, feasible


def _scores(runner: Runner, state: CycleState, pod: PodInfo, columns: Columns, feasible: Mask) -> Answers:
    forms = Forms([e.plugin for e in runner.profile])
    pre_score: dict[str, str] = {}
    raw: dict[str, dict[str, str]] = {n: {} for n in sorted(columns.slots) if feasible[columns.slots[n]]}
    final: dict[str, dict[str, str]] = {n: {} for n in raw}
    for enabled in runner.profile:
        plugin = enabled.plugin
        if isinstance(plugin, PreScorePlugin):
            if plugin.pre_score(state, pod, columns, feasible).code is Code.SKIP:
                continue
            pre_score[plugin.name] = SUCCESS
        if not isinstance(plugin, ScorePlugin | VectorScorePlugin) or not enabled.weight:
            continue
        scores = forms.scores(state, pod, columns, plugin, feasible)
        scaled = plugin.normalize(state, scores, feasible) if isinstance(plugin, ScoreExtensions) else scores
        for name in raw:
            row = columns.slots[name]
            raw[name][plugin.name] = str(int(scores if isinstance(scores, int) else scores[row]))
            final[name][plugin.name] = str(int(scaled if isinstance(scaled, int) else scaled[row]) * enabled.weight)
    return {"prescore-result": pre_score, "score-result": raw, "finalscore-result": final}


def _after(runner: Runner, node: str) -> Answers:
    def served(point: Any) -> dict[str, str]:
        return {e.name: SUCCESS for e in runner.profile if node and isinstance(e.plugin, point)}

    return {
        "reserve-result": served(ReservePlugin),
        "permit-result": served(PermitPlugin),
        "permit-result-timeout": {},
        "prebind-result": served(PreBindPlugin),
        "bind-result": served(BindPlugin),
    }


class SimulatorRecords:
    """Every attempt of each pod, by uid, the oldest pods dropped first."""

    def __init__(self) -> None:
        self._attempts: OrderedDict[str, list[dict[str, str]]] = OrderedDict()

    def keep(self, uid: str, answers: Mapping[str, Any]) -> None:
        """Remember one attempt."""
        texts = {
            PREFIX + key: value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
            for key, value in answers.items()
        }
        self._attempts.setdefault(uid, []).append(texts)
        self._attempts.move_to_end(uid)
        if len(self._attempts) > RECORDS_MAX:
            self._attempts.popitem(last=False)

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
            if sum(len(k) + len(v) for k, v in found.items()) <= ANNOTATIONS_MAX_BYTES:
                break
            found.pop(key, None)
        return found
