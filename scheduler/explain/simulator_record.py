"""One attempt under kube-scheduler-simulator's annotation keys: every plugin's answer for every visited node.

Like the simulator, an observer records each plugin's answers; but the cycle itself goes unobserved: right
after it, before the pod is assumed, a runner of the same plugins goes through the attempt again, over the
nodes that the cycle visited and scored, while nothing has changed. Answers from Reserve on are recorded as
they are given (`record_rules.add_answer`). This is done only when the switch `scheduler.record` asks for it:
it costs far more than the cycle itself. Source: kubernetes-sigs/kube-scheduler-simulator,
`simulator/scheduler/plugin/wrappedplugin.go`, `simulator/scheduler/plugin/resultstore/store.go`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.cycle.profiles import Profile
from scheduler.cycle.result import Result, Unschedulable
from scheduler.explain.record_rules import PASSED, VICTIM, Answers, RecordRules
from scheduler.framework.cycle_state import NO_SEED, CycleError, CycleState
from scheduler.framework.plugin import PreFilterResult
from scheduler.framework.runner import Prepared, Runner
from scheduler.framework.status import Status


class _Listener:
    """Observes a runner: the plugins' answers at PreFilter, PreScore and Score.

    Those at Score are by node or for all rows.
    """

    def __init__(self) -> None:
        self.prepared: dict[str, PreFilterResult] = {}
        self.pre_scored: dict[str, Status] = {}
        self.scores: Answers = {}

    def of_plugin(self, plugin: str, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the plugin's method, listened to."""

        def observed_call(*args: Any) -> Any:
            answer = call(*args)
            if point == "PreFilter":
                self.prepared[plugin] = answer if isinstance(answer, PreFilterResult) else PreFilterResult(answer)
            elif point == "PreScore":
                self.pre_scored[plugin] = answer
            elif point == "Score" and isinstance(args[-1], NodeInfo):
                self.scores.setdefault(plugin, {})[args[-1].slot] = answer
            elif point == "Score":
                self.scores[plugin] = answer
            return answer

        return observed_call

    def points(self, runner: Any) -> None:
        """Leave the runner as it is."""


@dataclass(frozen=True)
class _SecondWalk:
    """A second run of an attempt. `decided`: the final state of the first run, None after an error."""

    profile: Profile
    pod: PodInfo
    columns: Columns
    nominator: Nominator
    rules: RecordRules
    state: CycleState
    decided: CycleState | None

    def names(self, prepared: Prepared) -> list[str]:
        """Return the nodes that the cycle looked at, sorted."""
        slots, named = self.columns.slots, prepared.node_names
        decided = None if self.rules.all_nodes or self.decided is None else self.decided
        rows = None if decided is None or decided.visited is None else set(decided.visited.tolist())
        return sorted(
            name for name, row in slots.items() if (named is None or name in named) and (rows is None or row in rows)
        )

    def filter_results(self, runner: Runner, prepared: Prepared) -> dict[str, dict[str, str]]:
        """Return what each Filter says of each node, up to the first rejection; nothing after one by PreFilter."""
        by_node: dict[str, dict[str, str]] = {}
        filters = [name for name in self.profile.runner.points["filter"] if name not in self.state.skip_filter]
        all_passed = dict.fromkeys(filters, PASSED)
        self.state.alive = self.columns.valid.copy()
        for name in self.names(prepared) if prepared.rejection is None else ():
            node = self.columns.nodes[self.columns.slots[name]]
            if node is None:
                continue
            status = runner.filter_beside(self.state, self.pod, node, self.nominator.rivals(name, self.pod))
            if status.is_success:
                by_node[name] = all_passed
                continue
            passed = filters[: filters.index(status.plugin)]
            by_node[name] = {**dict.fromkeys(passed, PASSED), status.plugin: status.message}
        return by_node


def answers_of(
    profile: Profile,
    pod: PodInfo,
    columns: Columns,
    now: float,
    nominator: Nominator,
    result: Result,
    rules: RecordRules,
) -> Answers:
    """Return annotation suffix to value for the attempt that just ended with `result`.

    Shapes: `filter-result` is node → plugin → "passed" or reasons; `score-result` and `finalscore-result` are
    node → plugin → number as text, before NormalizeScore and after it times the weight; `postfilter-result` is
    node → plugin → "preemption victim"; the others are plugin → "success" or message. Those of the points after
    the choice are empty: `record_rules.add_answer` fills them in.
    """
    decided = None if isinstance(result, CycleError) else result.state
    state, listener = CycleState(now), _Listener()
    state.seed = NO_SEED if decided is None else decided.seed
    state.data.update(state.seed)
    runner = profile.runner.only(lambda plugin: True, observer=listener)
    feasible = runner.filter(state, pod, columns)
    again = _SecondWalk(profile, pod, columns, nominator, rules, state, decided)
    narrowed = {plugin: each.node_names for plugin, each in listener.prepared.items()}
    answers: Answers = {
        "selected-node": "",
        "prefilter-result": {plugin: list(names) for plugin, names in narrowed.items() if names is not None},
        "prefilter-result-status": rules.texts({plugin: each.status for plugin, each in listener.prepared.items()}),
        "filter-result": again.filter_results(runner, feasible.prepared),
        "postfilter-result": {},
        "prescore-result": {},
        "score-result": {},
        "finalscore-result": {},
        "reserve-result": {},
        "permit-result": {},
        "permit-result-timeout": {},
        "prebind-result": {},
        "bind-result": {},
    }
    if isinstance(result, Unschedulable) and result.post_filter is not None:
        answers["postfilter-result"] = {name: {} for name in again.names(feasible.prepared)}
        if feasible.prepared.rejection is not None:
            answers["postfilter-result"] = {}  # no node was rejected by itself
        chosen = result.post_filter.nominated_node
        if result.post_filter.status.is_success and chosen:
            answers["postfilter-result"][chosen] = {result.post_filter.status.plugin: VICTIM}
    if decided is not None and decided.scored is not None:
        feasible.mask, feasible.is_narrowed = decided.scored, True
        runner.score(state, pod, columns, feasible)
        answers["prescore-result"] = rules.texts(listener.pre_scored)
        names = [name for name in sorted(columns.slots) if feasible.mask[columns.slots[name]]]
        rows = np.array([columns.slots[name] for name in names], np.intp)
        weights = runner.weights
        final = {plugin: each for plugin, each in runner.scores_of(state, feasible, rows).items() if weights[plugin]}
        for i, (name, row) in enumerate(zip(names, rows.tolist(), strict=True)):
            answers["score-result"][name] = {plugin: _text(listener.scores[plugin], row) for plugin in final}
            answers["finalscore-result"][name] = {p: _text(each, i, weights[p]) for p, each in final.items()}
    return answers


def _text(scores: Any, row: int, weight: int = 1) -> str:
    """Return the score of a row, times the weight; a number is the score of every row."""
    return str(int(scores if isinstance(scores, int) else scores[row]) * weight)
