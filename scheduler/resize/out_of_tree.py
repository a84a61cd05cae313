"""Plugins that are not kube-scheduler's own, and what they have to say of pods that wait on their nodes for room.

Kube-scheduler's own plugins bow out for such pods, all but the fit, the node's policy and preemption. A stranger's
Filter was written for pods that look for a node, its PostFilter may nominate one. So the first draft of the proposal
asks PostFilter plugins only that say they can (G0); then strangers are advised to bow out, and whoever does not is
asked as for any pod (G1 to G3); the beta asks those that say the pod concerns them (G4). `resize.outside_plugins`
chooses. Source: kep-5836 6.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.configuration.default_plugins import plugins
from scheduler.cycle.profiles import Profile
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.forms import filter_one
from scheduler.framework.interface import (
    SUCCESS,
    Code,
    PodSetPlugin,
    PostFilterResult,
    PreFilterResult,
    RelevancePlugin,
    ResizeInterestedPlugin,
    Status,
)
from scheduler.framework.relevance import ask_relevance

OPT_IN, AS_NEW, RELEVANCE = "postfilter_opt_in", "as_for_new_pods", "relevance"
UNSUPPORTED: Final = "plugin does not support deferred resizes"
ELSEWHERE: Final = "node(s) didn't satisfy plugin(s) [{}]"


class Outsiders:
    """Those of one profile. `points`: its plugins by extension point, names in their order, its own ones included."""

    def __init__(self, profile: Profile, mode: str) -> None:
        own = plugins()
        self._known = profile.runner.plugins_by_name
        self._points = {p: [n for n in names if n not in own] for p, names in profile.points.items()}
        self._mode = mode
        self.post_filters = tuple(profile.points["postFilter"])
        """Every PostFilter plugin of the profile by name, in its order."""
        self.are_none = not any(self._points.values())

    def at(self, point: str) -> list[Any]:
        """Return who runs at that point, in order."""
        return [self._known[name] for name in self._points[point]]

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Return the first no, or success. That is before any cycle: no draft keeps anybody from saying it."""
        for plugin in self.at("preEnqueue"):
            status: Status = plugin.pre_enqueue(pod)
            if not status.is_success:
                return Status(status.code, status.reasons, plugin.name)
        return SUCCESS

    def hear(self, pod: PodInfo, node: NodeInfo, columns: Columns, now: float) -> Hearing:
        """Begin an attempt."""
        return Hearing(self, self._mode, pod, node, columns, now)


class Hearing:
    """What they say in one attempt for one pod on its node; asks filters about that node as it is, or in thought."""

    def __init__(self, outsiders: Outsiders, mode: str, pod: PodInfo, node: NodeInfo, columns: Columns,
                 now: float) -> None:  # fmt: skip
        self.state = CycleState(now)
        self._outsiders = outsiders
        self._mode = mode
        self._pod, self._node, self._columns = pod, node, columns
        self._filters: list[Any] = []
        self._reserved: list[Any] = []

    def _at(self, point: str) -> list[Any]:
        found = self._outsiders.at(point)
        if self._mode == RELEVANCE:
            return [p for p in found if isinstance(p, RelevancePlugin) and p.name not in self.state.irrelevant]
        return found if self._mode == AS_NEW else []

    # -- PreFilter and Filter --------------------------------------------------------------------------

    def prepare(self) -> Status:
        """Find out who takes part; return the first no for whatever node, or for this one."""
        if self._mode == RELEVANCE:
            everybody = {p.name: p for point in _POINTS for p in self._at(point)}
            status = ask_relevance(list(everybody.values()), self.state, self._pod)
            if not status.is_success:
                return status
        for plugin in self._at("preFilter"):
            answer = plugin.pre_filter(self.state, self._pod, self._columns)
            result = answer if isinstance(answer, PreFilterResult) else PreFilterResult(answer)
            if result.status.code is Code.SKIP:
                self.state.skip_filter.add(plugin.name)
            elif not result.status.is_success:
                return Status(result.status.code, result.status.reasons, plugin.name)
            elif result.node_names is not None and self._node.name not in result.node_names:
                return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (ELSEWHERE.format(plugin.name),), plugin.name)
        self._filters = [p for p in self._at("filter") if p.name not in self.state.skip_filter]
        return SUCCESS

    @property
    def has_filters(self) -> bool:
        """Whether anybody judges the node."""
        return bool(self._filters)

    def judge(self, rivals: Sequence[PodInfo]) -> Status:
        """Return what the filters say of the node as it is."""
        return self.filter_beside(self.state, self._pod, self._node, rivals)

    def filter_beside(self, state: CycleState, pod: PodInfo, node: NodeInfo, nominated: Sequence[PodInfo]) -> Status:
        """Return the first no, beside the nominated pods and without them, or success."""
        if nominated:
            crowded, beside = node.with_pods(list(nominated)), state.clone()
            for each in nominated:
                self.add_pod(beside, pod, each, crowded)
            status = self._first_no(beside, pod, crowded)
            if not status.is_success:
                return status
        return self._first_no(state, pod, node)

    def _first_no(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        for plugin in self._filters:
            status = filter_one(plugin, state, pod, node)
            if not status.is_success:
                return Status(status.code, status.reasons, plugin.name)
        return SUCCESS

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> None:
        """Let the state follow a pod that was put on the node."""
        for plugin in self._filters:
            if isinstance(plugin, PodSetPlugin):
                plugin.add_pod(state, pod, added, node)

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> None:
        """Let the state follow a pod that was taken off the node."""
        for plugin in self._filters:
            if isinstance(plugin, PodSetPlugin):
                plugin.remove_pod(state, pod, removed, node)

    def has_only_row_filters(self, state: CycleState) -> bool:
        """Say no: nobody knows what strangers look at."""
        return False

    # -- PostFilter ------------------------------------------------------------------------------------

    def post_filter(self, name: str, no: Status) -> PostFilterResult | None:
        """Ask a PostFilter plugin that is not our own; None when it is not its turn.

        `no`: what was refused, by whom.
        """
        plugin = next((p for p in self._outsiders.at("postFilter") if p.name == name), None)
        if plugin is None:
            return None
        if self._mode == OPT_IN:
            takes = isinstance(plugin, ResizeInterestedPlugin)
            if not takes or not plugin.should_handle_deferred_resize(self._pod, self._node.name):
                return PostFilterResult(Status(Code.UNSCHEDULABLE, (UNSUPPORTED,)))
        elif plugin not in self._at("postFilter"):
            return None
        columns = self._columns
        elsewhere = columns.valid.copy()
        elsewhere[self._node.slot] = no.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        diagnosis = Diagnosis(columns.count, rejectors={no.plugin}, unresolvable=elsewhere.astype(np.bool_))
        for reason in no.reasons:
            diagnosis.count(no.plugin, reason, 1)
        found: PostFilterResult = plugin.post_filter(self.state, self._pod, columns, diagnosis)
        return found

    # -- where it fits ---------------------------------------------------------------------------------

    def reserve(self) -> Status:
        """Run Reserve; on a no, everything is undone and the no returned."""
        for plugin in self._at("reserve"):
            self._reserved.append(plugin)
            status: Status = plugin.reserve(self.state, self._pod, self._node.name)
            if not status.is_success:
                self.unreserve()
                return Status(status.code, status.reasons, plugin.name)
        return SUCCESS

    def unreserve(self) -> None:
        """Undo every Reserve, last first."""
        while self._reserved:
            self._reserved.pop().unreserve(self.state, self._pod, self._node.name)

    def permit(self) -> Status:
        """Run Permit and, unless somebody says no, PostBind. To wait counts as a yes: there is no bind to hold back."""
        for plugin in self._at("permit"):
            status: Status = plugin.permit(self.state, self._pod, self._node.name)[0]
            if not status.is_success and status.code is not Code.WAIT:
                self.unreserve()
                return Status(status.code, status.reasons, plugin.name)
        for plugin in self._at("postBind"):
            plugin.post_bind(self.state, self._pod, self._node.name)
        return SUCCESS


_POINTS: Final = ("preFilter", "filter", "postFilter", "reserve", "permit", "postBind")
