"""The runner of a profile's plugins: one extension point at a time, over all nodes at once.

Answers of row-pure plugins are cached by template (`templates`); other plugins are called in every cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import Columns, Mask, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.framework.arrangement import (
    Arrangement,
    Enabled,
    FilterPlugins,
    PointPlugins,
    ScorePlugins,
    SigningPlugins,
    serves,
)
from scheduler.framework.cycle_state import CycleState, Diagnosis
from scheduler.framework.events import WILDCARD, Action, ClusterEvent, Registration, with_taints
from scheduler.framework.failures import failure_of
from scheduler.framework.nominated_pods import Ask, BlockedRows, NominatedPodFilter
from scheduler.framework.plugin import BindCall, EnqueueExtensions, PostFilterResult, PreFilterResult, implements
from scheduler.framework.proposal_points import PlacementFeasiblePlugin, PlacementProgress, RelevancePlugin
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, unschedulable
from scheduler.framework.templates import Forms, Remembered, RowPlugins, Templates
from scheduler.framework.timing import Observer
from scheduler.framework.vectorized import RowPure
from services.api.kinds.podgroup import PodGroup

PERMIT_WAIT_MAX_S: Final = 900.0
REJECTING: Final = ("preEnqueue", "preFilter", "filter", "reserve", "permit")
"""Points at which a plugin can reject a pod, which then waits for an event."""


class Prepared(NamedTuple):
    """The result of PreFilter: a rejection on all nodes, or the only candidate nodes.

    `named_by`: the plugins that named these nodes.
    """

    rejection: Status | None
    node_names: tuple[str, ...] | None = None
    named_by: tuple[str, ...] = ()

    @property
    def elsewhere(self) -> str:
        """The reason for nodes that are not in `node_names`."""
        simultaneously = " simultaneously" if len(self.named_by) > 1 else ""
        return f"node(s) didn't satisfy plugin(s) [{' '.join(self.named_by)}]{simultaneously}"


@dataclass(slots=True)
class Feasible:
    """The rows on which a pod fits, or why it fits on none."""

    mask: Mask
    remembered: Remembered | None
    is_narrowed: bool
    """Whether `mask` is a subset of the cached mask."""
    prepared: Prepared
    refusals: list[tuple[Any, Mask | None]] = field(default_factory=list)
    scores: dict[str, Scores | int] = field(default_factory=dict)
    """Scores by plugin, 0 to 100, except scores that are in the cached total."""
    blocked: BlockedRows | None = None
    """Rows that nominations block; None when there are none."""

    @property
    def status(self) -> Status:
        """PreFilter's rejection on all nodes, or success."""
        return self.prepared.rejection or SUCCESS


@runtime_checkable
class UsesFilters(Protocol):
    """A plugin that uses the filters of its own profile; it gets them once, when the profile is made."""

    def use_filters(self, filters: Runner) -> None: ...  # noqa: D102


class RunnerMemory(NamedTuple):
    """State that a runner keeps from one cycle to the next."""

    forms: Forms
    templates: Templates
    nominated_filter: NominatedPodFilter

    @classmethod
    def of(cls, profile: Sequence[Enabled], row_pure: Sequence[Any], ask: Ask) -> RunnerMemory:
        """Return the empty memory of a new runner.

        `row_pure`: plugins whose answers are cached by template. `ask`: the check whether a pod fits a node beside the
        pods nominated there.
        """
        forms = Forms(e.plugin for e in profile)
        return cls(forms, Templates(row_pure, forms), NominatedPodFilter(ask))


class Runner:
    """The runner of one profile's plugins, sorted by extension point.

    If other pods of at least the pod's priority are nominated to a row, the row is filtered again as if they ran there.

    `points`: names of plugins in their order, by extension point; None: every plugin at every point that it implements.
    `asks_relevance`: ask plugins that implement it first whether the pod concerns them (KEP-5836, G4). `observer`:
    observes the calls. `memory`: memory of the observed runner, which this one shares; None: a new one. `is_part`: the
    runner has only some plugins of a profile; they keep using the filters of the whole profile.
    """

    def __init__(
        self,
        profile: Sequence[Enabled],
        points: Mapping[str, Sequence[str]] | None = None,
        *,
        asks_relevance: bool = False,
        observer: Observer | None = None,
        memory: RunnerMemory | None = None,
        is_part: bool = False,
    ) -> None:
        arrangement = Arrangement(profile, points, observer)
        self.profile, self.points, self.sort_key = arrangement.profile, arrangement.points, arrangement.sort_key()
        self.plugins_by_name: dict[str, Any] = {e.name: e.plugin for e in profile}
        self.weights: dict[str, int] = {e.name: e.weight for e in profile}
        self._choosy = arrangement.plugins_with(RelevancePlugin) if asks_relevance else []
        # Answers of plugins that depend on the whole pod are not cached by template.
        row_pure = [p for p in arrangement.plugins_with(RowPure) if p not in self._choosy]
        self._filters = FilterPlugins.of(arrangement, row_pure)
        self._scores = ScorePlugins.of(arrangement, row_pure)
        self._plugins = PointPlugins.of(arrangement)
        self._placement = arrangement.plugins_with(PlacementFeasiblePlugin)
        self._signing = SigningPlugins.of(self._filters, self._scores)
        self._pure = _row_plugins(arrangement, self._filters, self._scores)
        own = memory or RunnerMemory.of(profile, row_pure, self._filter_with_nominated)
        self._forms, self._templates, self._nominated_filter = own
        for plugin in arrangement.plugins_with(UsesFilters) if memory is None and not is_part else ():
            plugin.use_filters(self)
        if observer is not None:
            observer.points(self)

    def with_observer(self, observer: Observer) -> Runner:
        """Return a runner with the same plugins and the same cache; `observer` observes its calls."""
        memory = RunnerMemory(self._forms, self._templates, self._nominated_filter)
        return Runner(self.profile, self.points, asks_relevance=bool(self._choosy), observer=observer, memory=memory)

    def only(
        self, is_kept: Callable[[Any], bool], *, asks_relevance: bool = False, observer: Observer | None = None
    ) -> Runner:
        """Return a runner of the plugins that `is_kept` accepts, at the same points, with an empty cache."""
        kept = [e for e in self.profile if is_kept(e.plugin)]
        names = {e.name for e in kept}
        points = {p: [name for name in at if name in names] for p, at in self.points.items()}
        return Runner(kept, points, asks_relevance=asks_relevance, observer=observer, is_part=True)

    def _relevant_plugins(self, plugins: list[Any], state: CycleState) -> list[Any]:
        """Return the plugins that the pod concerns. Most pods concern all plugins; then callers skip this."""
        return [plugin for plugin in plugins if plugin.name not in state.irrelevant]

    # -- queue ---------------------------------------------------------------------------------------

    def registrations(self) -> dict[str, tuple[Registration, ...]]:
        """Return, by plugin, the events that may change its rejection; a plugin without events gets every event."""
        anything = (Registration(ClusterEvent(WILDCARD, Action.ALL)),)
        return {
            e.name: with_taints(e.plugin.events_to_register()) if implements(e.plugin, EnqueueExtensions) else anything
            for e in self.profile
            if implements(e.plugin, EnqueueExtensions) or any(serves(e.plugin, point) for point in REJECTING)
        }

    def pre_enqueue(self, pod: PodInfo, first: str = "") -> Status:
        """Return the first rejection, or success; the plugin that gated the pod before is called first."""
        plugins = self._plugins.pre_enqueue
        if first:
            plugins = sorted(plugins, key=lambda p: p.name != first)
        for plugin in plugins:
            try:
                status = plugin.pre_enqueue(pod)
            except Exception as error:
                status = failure_of(error, "PreEnqueue", plugin.name)
            if status.code is not Code.SUCCESS:
                return _of(status, plugin)
        return SUCCESS

    # -- PreFilter and Filter --------------------------------------------------------------------------

    def filter(self, state: CycleState, pod: PodInfo, columns: Columns, nominator: Nominator | None = None) -> Feasible:
        """Return the rows that every filter passes."""
        prepared = self.pre_filter(state, pod, columns)
        if prepared.rejection is not None:
            return Feasible(columns.full(False), None, True, prepared)
        remembered = self._templates.recall(state, pod, columns, self._pure)
        mask = remembered.mask
        feasible = Feasible(mask, remembered, False, prepared)
        if prepared.node_names is not None:
            mask = mask & columns.mask_of(prepared.node_names)
        for other in self._filters.callees:
            if other.name in state.skip_filter:
                continue
            state.alive = mask
            passed = self._forms.passing_rows(state, pod, columns, other, mask)
            feasible.refusals.append((other, passed))
            if passed is not None:
                mask = mask & passed
        if nominator is not None and len(nominator):
            is_local = self.has_only_row_filters(state)
            asked = remembered.mask if is_local else mask
            blocked = feasible.blocked = self._nominated_filter.of(
                state, pod, columns, nominator, asked, is_local=is_local
            )
            if blocked:
                mask = mask & blocked.free
        feasible.is_narrowed = mask is not remembered.mask
        feasible.mask = mask
        return feasible

    def pre_filter(self, state: CycleState, pod: PodInfo, columns: Columns) -> Prepared:
        """Run PreFilter; plugins that skip their Filter are noted in the state.

        After a rejection that preemption may resolve, the other plugins still run; any other rejection ends PreFilter.
        """
        names: set[str] | None = None
        named_by: list[str] = []
        rejection: Status | None = None
        if self._choosy:
            status = self._ask_relevance(state, pod)
            if not status.is_success:
                return Prepared(status)
        for plugin in (
            self._plugins.pre_filter
            if not state.irrelevant
            else self._relevant_plugins(self._plugins.pre_filter, state)
        ):
            try:
                answer = plugin.pre_filter(state, pod, columns)
            except Exception as error:
                answer = failure_of(error, "PreFilter", plugin.name)
            if answer is SKIP:  # the answer of most plugins for most pods
                state.skip_filter.add(plugin.name)
                continue
            result = answer if isinstance(answer, PreFilterResult) else PreFilterResult(answer)
            if result.status.code is Code.SKIP:
                state.skip_filter.add(plugin.name)
            elif result.status.code is Code.UNSCHEDULABLE:
                # A later plugin may reject the pod so that preemption cannot help.
                rejection = _of(result.status, plugin)
            elif not result.status.is_success:
                return Prepared(_of(result.status, plugin))
            elif result.node_names is not None:
                named_by.append(plugin.name)
                names = set(result.node_names) if names is None else names & set(result.node_names)
        return Prepared(rejection, None if names is None else tuple(sorted(names)), tuple(named_by))

    def _ask_relevance(self, state: CycleState, pod: PodInfo) -> Status:
        """Record in the state the plugins that the pod does not concern; they are called at no further point."""
        irrelevant = []
        for plugin in self._choosy:
            status: Status
            try:
                status = plugin.is_relevant_for_pod(state, pod)
            except Exception as error:
                status = failure_of(error, "Relevance", plugin.name)
            if status.code is Code.SKIP:
                irrelevant.append(plugin.name)
            elif not status.is_success:
                return _of(status, plugin)
        state.irrelevant = frozenset(irrelevant)
        state.skip_filter.update(irrelevant)
        state.skip_score.update(irrelevant)
        return SUCCESS

    def filter_beside(self, state: CycleState, pod: PodInfo, node: NodeInfo, nominated: Sequence[PodInfo]) -> Status:
        """Return the first rejection of one node, both with the pods nominated there and without them, or success.

        Both are needed, because the nominated pods may never run: the pod must not take their capacity, and its
        affinity must not depend on them.
        """
        if nominated:
            status = self._filter_with_nominated(state, pod, node, nominated)
            if not status.is_success:
                return status
        return self.filter_node(state, pod, node)

    def _filter_with_nominated(
        self, state: CycleState, pod: PodInfo, node: NodeInfo, nominated: Sequence[PodInfo]
    ) -> Status:
        with_nominated = node.with_pods(list(nominated))
        if any(p.name not in state.skip_filter for p in self._filters.followers):
            state = state.clone()
            for nominated_pod in nominated:
                self.add_pod(state, pod, nominated_pod, with_nominated)
        return self.filter_node(state, pod, with_nominated)

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Update the plugins' state for a pod that is hypothetically added to the node."""
        for plugin in self._filters.followers:
            if plugin.name not in state.skip_filter:
                plugin.add_pod(state, pod, added, node)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Update the plugins' state for a pod that is hypothetically removed from the node."""
        for plugin in self._filters.followers:
            if plugin.name not in state.skip_filter:
                plugin.remove_pod(state, pod, removed, node)

    # -- signing (KEP-5598) ------------------------------------------------------------------------------

    def template_of(self, pod: PodInfo) -> int:
        """Return the number of the pod's template; row-pure plugins treat pods with the same number alike."""
        return self._templates.signature(pod)

    def row_fits(self, state: CycleState, pod: PodInfo, columns: Columns, row: int) -> bool:
        """Return whether the row-pure filters pass one row, from the cache."""
        return bool(self._templates.recall(state, pod, columns, self._pure).mask[row])

    def fragments(self, state: CycleState, pod: PodInfo, *, of_scores: bool) -> tuple[Hashable, ...] | None:
        """Return the signatures of the plugins that are not cached by template.

        None if a plugin that is active in this cycle cannot sign. Call it after PreFilter; with `of_scores` also after
        PreScore.
        """
        if not state.skip_filter.issuperset(self._signing.unsigned_filters):
            return None
        if of_scores and not state.skip_score.issuperset(self._signing.unsigned_scores):
            return None
        signatures = tuple([plugin.sign(pod) for plugin in self._signing.signers])
        return None if None in signatures else signatures

    def has_only_row_filters(self, state: CycleState) -> bool:
        """Whether, in this cycle, a node's answer depends on the pod's template and on that node alone."""
        return all(p.name in state.skip_filter for p in self._filters.callees)

    def has_filters(self, state: CycleState) -> bool:
        """Whether any plugin filters in this cycle."""
        return any(p.name not in state.skip_filter for p in self._filters.plugins)

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        """Return the first filter's rejection of one node, or success."""
        for plugin in self._filters.plugins:
            if plugin.name in state.skip_filter:
                continue
            try:
                status = plugin.filter(state, pod, node)
            except Exception as error:
                status = failure_of(error, "Filter", plugin.name)
            if not status.is_success:
                return _of(status, plugin, f'running "{plugin.name}" filter plugin')
        return SUCCESS

    def diagnose(
        self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Feasible, target: Diagnosis | None = None
    ) -> Diagnosis:
        """Return which plugin refused which nodes, and why, for a pod without a feasible node.

        A node counts for the first plugin that refused it, in the profile's order. `target`: the diagnosis to fill in;
        None for a new one.
        """
        diagnosis = target or Diagnosis(columns.count, unresolvable=np.zeros(columns.capacity, bool))
        rejection = feasible.prepared.rejection
        if rejection is not None:
            diagnosis.pre_filter_message = rejection.message
            diagnosis.refuse(rejection.plugin, (rejection.message,), rejection.code, columns.valid)
            return diagnosis
        alive = columns.valid.copy()
        named_by = feasible.prepared.named_by
        if feasible.prepared.node_names is not None:
            absent = alive & ~columns.mask_of(feasible.prepared.node_names)
            nodes = int(np.count_nonzero(absent))
            if nodes:
                diagnosis.count(named_by[0], feasible.prepared.elsewhere, nodes)
                diagnosis.rejectors.update(named_by)
                diagnosis.unresolvable |= absent
                alive &= ~absent
        masks = {plugin.name: mask for plugin, mask in feasible.refusals}
        for plugin in self._filters.plugins:
            if plugin.name in state.skip_filter:
                continue
            state.alive = alive
            passed = (
                masks[plugin.name]
                if plugin.name in masks
                else self._forms.passing_rows(state, pod, columns, plugin, alive)
            )
            if passed is None:
                continue
            refused = alive & ~passed
            if refused.any():
                self._forms.explain(diagnosis, state, pod, columns, plugin, refused)
                alive &= passed
        for status, rows in feasible.blocked.rejections.items() if feasible.blocked is not None else ():
            # The rows that are still alive would fit without the pods nominated there.
            diagnosis.refuse(status.plugin, status.reasons, status.code, rows & alive)
        return diagnosis

    # -- PreScore and Score --------------------------------------------------------------------------------

    def score(self, state: CycleState, pod: PodInfo, columns: Columns, feasible: Feasible) -> tuple[Scores, Status]:
        """Return the weighted total of each row, -1 where the pod does not fit, and a status: success or an error."""
        mask, known = feasible.mask, feasible.remembered
        assert known is not None
        for plugin in (
            self._plugins.pre_score if not state.irrelevant else self._relevant_plugins(self._plugins.pre_score, state)
        ):
            status = plugin.pre_score(state, pod, columns, mask)
            if status.code is Code.SKIP:
                state.skip_score.add(plugin.name)
            elif status.code is not Code.SUCCESS:
                text = f'running PreScore plugin "{plugin.name}": {status.message}'
                return known.ranked, Status(Code.ERROR, (text,), plugin.name)
        if not any(known.varies) and self._scores.other_names <= state.skip_score:
            # Constant normalised scores cannot change the best row.
            return (known.ranked if not feasible.is_narrowed else np.where(mask, known.total, -1.0)), SUCCESS
        total = known.total.copy()
        normalized = zip(self._scores.normalized, known.raw[len(self._scores.plain) :], known.varies, strict=True)
        for enabled, raw, varies in normalized:
            if enabled.name not in state.skip_score:
                # A number instead of an array of zeros saves work on every node for most pods.
                scores = feasible.scores[enabled.name] = enabled.plugin.normalize(state, raw if varies else 0, mask)
                total += scores * enabled.weight
        for enabled in self._scores.callees:
            if enabled.name in state.skip_score:
                continue
            scores = self._forms.scores(state, pod, columns, enabled.plugin, mask)
            if enabled.name in self._scores.normalizing:
                scores = enabled.plugin.normalize(state, scores, mask)
            feasible.scores[enabled.name] = scores
            total += scores * enabled.weight
        np.copyto(total, -1.0, where=~mask)
        return total, SUCCESS

    def scores_of(self, state: CycleState, feasible: Feasible, rows: NDArray[np.intp]) -> dict[str, Scores | int]:
        """Return each plugin's scores (0 to 100, before weights) for a few rows. Call it after `score`."""
        known, skipped = feasible.remembered, state.skip_score
        assert known is not None
        table: dict[str, Scores | int] = {
            enabled.name: raw[rows]
            for enabled, raw in zip(self._scores.plain, known.raw, strict=False)
            if enabled.name not in skipped
        }
        for enabled in (*self._scores.normalized, *self._scores.callees):
            name = enabled.name
            if name in skipped:
                continue
            scores = feasible.scores.get(name)
            if scores is None:  # a constant score, which `score` did not add
                scores = enabled.plugin.normalize(state, 0, feasible.mask)
            table[name] = scores if isinstance(scores, int) else scores[rows]
        return table

    # -- other points -------------------------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, columns: Columns, diagnosis: Diagnosis
    ) -> PostFilterResult | None:
        """Run PostFilter plugins until one succeeds or is final; None if there are no such plugins.

        The messages of plugins that did not help are joined, in order; after a success there are none (12.1). The last
        result that changes the nomination counts.
        """
        result: PostFilterResult | None = None
        messages: list[str] = []
        for plugin in (
            self._plugins.post_filter
            if not state.irrelevant
            else self._relevant_plugins(self._plugins.post_filter, state)
        ):
            latest: PostFilterResult
            try:
                latest = plugin.post_filter(state, pod, columns, diagnosis)
            except Exception as error:
                status = _of(
                    failure_of(error, "PostFilter", plugin.name), plugin, f'running PostFilter plugin "{plugin.name}"'
                )
                latest = PostFilterResult(status)
            if latest.status.is_success or latest.retry_with is not None:
                return replace(latest, status=_of(latest.status, plugin))
            if latest.status.code is not Code.UNSCHEDULABLE:
                diagnosis.post_filter_message = latest.status.message
                return latest
            if result is None or latest.nominated_node is not None:
                result = latest
            messages += latest.status.reasons
        diagnosis.post_filter_message = ", ".join(messages)
        if result is None and self._plugins.post_filter:  # the pod concerns none of these plugins
            return PostFilterResult(unschedulable())
        return result

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Reserve in order; after a rejection, run Unreserve of all plugins in reverse order."""
        if state.record is not None:
            state.record.on_selected(node_name)
        for plugin in (
            self._plugins.reserve if not state.irrelevant else self._relevant_plugins(self._plugins.reserve, state)
        ):
            try:
                status = plugin.reserve(state, pod, node_name)
            except Exception as error:
                status = failure_of(error, "Reserve", plugin.name)
            if state.record is not None:
                state.record.add_answer("reserve", plugin.name, status)
            if not status.is_success:
                self.unreserve(state, pod, node_name)
                return _of(status, plugin, f'running Reserve plugin "{plugin.name}"')
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Undo every plugin's Reserve, the last one first."""
        for plugin in reversed(self._relevant_plugins(self._plugins.reserve, state)):
            try:
                plugin.unreserve(state, pod, node_name)
            except Exception as error:  # the other plugins still unreserve
                failure_of(error, "Unreserve", plugin.name)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, dict[str, float]]:
        """Return success, a rejection, or Wait, and the seconds that each waiting plugin allows."""
        waits: dict[str, float] = {}
        for plugin in (
            self._plugins.permit if not state.irrelevant else self._relevant_plugins(self._plugins.permit, state)
        ):
            try:
                status, timeout_s = plugin.permit(state, pod, node_name)
            except Exception as error:
                status, timeout_s = failure_of(error, "Permit", plugin.name), 0.0
            if state.record is not None:
                state.record.add_answer("permit", plugin.name, status, timeout_s)
            if status.code is Code.WAIT:
                waits[plugin.name] = min(timeout_s, PERMIT_WAIT_MAX_S)
            elif not status.is_success:
                return _of(status, plugin, f'running Permit plugin "{plugin.name}"'), {}
        return (Status(Code.WAIT) if waits else SUCCESS), waits

    def placement_feasible(self, group: PodGroup, progress: PlacementProgress) -> Status:
        """Return the first answer of PlacementFeasible that is not a success, or success."""
        for plugin in self._placement:
            try:
                status = plugin.placement_feasible(group, progress)
            except Exception as error:
                status = failure_of(error, "PlacementFeasible", plugin.name)
            if status.code is not Code.SUCCESS:
                return _of(status, plugin)
        return SUCCESS

    def has_pre_bind_work(self, state: CycleState, pod: PodInfo, node_name: str) -> bool:
        """Whether any PreBind plugin announces work (KEP-5278); a plugin that raises is called again by `pre_bind`."""
        everyone = self._plugins.pre_bind
        plugins = everyone if not state.irrelevant else self._relevant_plugins(everyone, state)
        try:
            return any(p.pre_bind_pre_flight(state, pod, node_name).code is not Code.SKIP for p in plugins)
        except Exception:
            return True

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str, client: Any) -> Status:
        """Run PreBind in order until one fails."""
        for plugin in (
            self._plugins.pre_bind if not state.irrelevant else self._relevant_plugins(self._plugins.pre_bind, state)
        ):
            try:
                if plugin.pre_bind_pre_flight(state, pod, node_name).code is Code.SKIP:
                    continue
                status = await plugin.pre_bind(state, pod, node_name, client)
            except Exception as error:
                status = failure_of(error, "PreBind", plugin.name)
            if state.record is not None:
                state.record.add_answer("prebind", plugin.name, status)
            if not status.is_success:
                return _of(status, plugin, f'running PreBind plugin "{plugin.name}"')
        return SUCCESS

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> BindCall | Status:
        """Return the call of the first Bind plugin that does not skip."""
        for plugin in self._plugins.bind if not state.irrelevant else self._relevant_plugins(self._plugins.bind, state):
            answer: BindCall | Status
            try:
                answer = plugin.bind(state, pod, node_name)
            except Exception as error:
                answer = failure_of(error, "Bind", plugin.name)
            if state.record is not None:
                state.record.add_answer("bind", plugin.name, SUCCESS if isinstance(answer, BindCall) else answer)
            if isinstance(answer, BindCall):
                return answer
            if answer.code is not Code.SKIP:
                return _of(answer, plugin, f'running Bind plugin "{plugin.name}"')
        return Status(Code.ERROR, ("all Bind plugins skipped",))

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Run PostBind after the bind succeeded."""
        for plugin in (
            self._plugins.post_bind if not state.irrelevant else self._relevant_plugins(self._plugins.post_bind, state)
        ):
            try:
                plugin.post_bind(state, pod, node_name)
            except Exception as error:  # the pod stays bound
                failure_of(error, "PostBind", plugin.name)


def _row_plugins(arrangement: Arrangement, filters: FilterPlugins, scores: ScorePlugins) -> RowPlugins:
    """Return the callables of the row-pure plugins."""
    return RowPlugins(
        arrangement.callees(filters.pure), arrangement.scorers(scores.plain), arrangement.scorers(scores.normalized)
    )


def _of(status: Status, plugin: Any, running: str = "") -> Status:
    """Return the status with the plugin's name; an error also gets the text `running` as a prefix."""
    if running and not status.code.is_rejected:
        return Status(Code.ERROR, (f"{running}: {status.message}",), plugin.name)
    return Status(status.code, status.reasons, plugin.name)


def default_normalize(raw: Scores | int, feasible: Mask, *, reverse: bool) -> Scores | int:
    """Return raw scores scaled to 100 for the best feasible one (DefaultNormalize, scheduler-queue-and-cycles 6)."""
    best = raw if isinstance(raw, int) else int(raw[feasible].max(initial=0))
    if best == 0:
        return 100 if reverse else 0
    scaled = np.floor(np.asarray(raw, np.float64) * 100.0 / best)
    return 100.0 - scaled if reverse else scaled
