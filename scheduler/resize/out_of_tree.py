"""Plugins that are not kube-scheduler's own, and their answers for pods that wait on their nodes for capacity.

Kube-scheduler's own plugins skip such pods, all but the fit, the node's policy and preemption. An
out-of-tree Filter was written for pods that look for a node, and its PostFilter may nominate one. So the
first draft of the proposal calls only PostFilter plugins that declare they can handle it (G0); then plugins
are advised to skip, and those that do not are called as for any pod (G1 to G3); the beta calls those that
declare the pod relevant (G4). Source: kep-5836 6.1.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from scheduler.cache.columns import Columns
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.framework.cycle_state import CycleState, Diagnosis
from scheduler.framework.failures import failure_of
from scheduler.framework.plugin import PostFilterResult
from scheduler.framework.proposal_points import RelevancePlugin, ResizeInterestedPlugin
from scheduler.framework.runner import Runner
from scheduler.framework.status import SUCCESS, Code, Status
from services.api.podresources import Amounts

OPT_IN, AS_NEW, RELEVANCE = "postfilter_opt_in", "as_for_new_pods", "relevance"
UNSUPPORTED: Final = "plugin does not support deferred resizes"
_CYCLE_POINTS: Final = ("preFilter", "filter", "postFilter", "reserve", "permit", "postBind")


class OutOfTreePlugins:
    """A profile's out-of-tree plugins.

    One runner has their gates, which always hold, another the plugins that a draft calls. `own`: the names of
    kube-scheduler's own plugins.
    """

    def __init__(self, runner: Runner, own: Container[str], mode: str) -> None:
        known, points, post_filters = runner.plugins_by_name, runner.points, runner.points["postFilter"]
        served = {name for point in _CYCLE_POINTS for name in points[point] if name not in own}
        by_mode: dict[str, set[str]] = {
            OPT_IN: set(),
            AS_NEW: served,
            RELEVANCE: {name for name in served if isinstance(known[name], RelevancePlugin)},
        }
        self.asked = by_mode[mode]
        self.gates = runner.only(lambda plugin: plugin.name not in own)
        self.runner = runner.only(lambda plugin: plugin.name in self.asked, asks_relevance=mode == RELEVANCE)
        self.is_opt_in = mode == OPT_IN
        self.post_filters = tuple(post_filters)
        """Every PostFilter plugin of the profile by name, in its order, kube-scheduler's own ones included."""
        self.out_of_tree_post_filters = {name: known[name] for name in post_filters if name in served}


@dataclass
class ResizeAttempt:
    """One attempt for one pod on its node.

    `need`: the pod's requests; `rivals`: pods nominated there with at least the same priority.
    """

    plugins: OutOfTreePlugins
    pod: PodInfo
    node: NodeInfo
    need: Amounts
    rivals: Sequence[PodInfo]
    columns: Columns
    now: float

    def __post_init__(self) -> None:
        self.post_filters = self.plugins.post_filters
        self.runner = self.plugins.runner
        self.state = CycleState(self.now)

    def pre_filter(self) -> Status:
        """Determine the plugins that take part; return the first rejection on all nodes, or on this one."""
        prepared = self.runner.pre_filter(self.state, self.pod, self.columns)
        if prepared.rejection is not None:
            return prepared.rejection
        if prepared.node_names is not None and self.node.name not in prepared.node_names:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (prepared.elsewhere,), prepared.named_by[0])
        return SUCCESS

    @property
    def has_filters(self) -> bool:
        """Whether any plugin filters the node."""
        return self.runner.has_filters(self.state)

    def filter(self) -> Status:
        """Return the first rejection of the node by a filter, or success."""
        return self.runner.filter_beside(self.state, self.pod, self.node, self.rivals) if self.has_filters else SUCCESS

    def post_filter(self, name: str, rejection: Status) -> PostFilterResult | None:
        """Call an out-of-tree PostFilter plugin about a rejection by `name`; None when it is not to be called."""
        plugin: Any = self.plugins.out_of_tree_post_filters.get(name)
        if plugin is None:
            return None
        try:
            return self._ask(plugin, name, rejection)
        except Exception as error:
            return PostFilterResult(failure_of(error, "PostFilter", name))

    def _ask(self, plugin: Any, name: str, rejection: Status) -> PostFilterResult | None:
        if self.plugins.is_opt_in:
            takes = isinstance(plugin, ResizeInterestedPlugin)
            if not takes or not plugin.should_handle_deferred_resize(self.pod, self.node.name):
                return PostFilterResult(Status(Code.UNSCHEDULABLE, (UNSUPPORTED,)))
        elif name not in self.plugins.asked or name in self.state.irrelevant:
            return None
        columns = self.columns
        elsewhere = columns.valid.copy()
        elsewhere[self.node.slot] = rejection.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        diagnosis = Diagnosis(columns.count, rejectors={rejection.plugin}, unresolvable=elsewhere.astype(np.bool_))
        for reason in rejection.reasons:
            diagnosis.count(rejection.plugin, reason, 1)
        answer: PostFilterResult = plugin.post_filter(self.state, self.pod, columns, diagnosis)
        return answer

    def reserve(self, *, is_bound: bool) -> Status:
        """Run Reserve and, for a pod that then counts as bound, Permit and, unless a plugin rejects, PostBind.

        A rejection undoes it. Wait counts as success: there is no bind.
        """
        runner, (state, pod, node) = self.runner, (self.state, self.pod, self.node.name)
        status = runner.reserve(state, pod, node)
        if not status.is_success:
            return status
        if is_bound:
            status, _ = runner.permit(state, pod, node)
            if status.is_success or status.code is Code.WAIT:
                runner.post_bind(state, pod, node)
                return SUCCESS
        runner.unreserve(state, pod, node)
        return status
