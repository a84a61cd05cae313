"""The plugin for Bind: one Binding with the pod's uid, and the unbind count known to this decision (K1)."""

from scheduler.cache.node_info import PodInfo
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import BindCall
from scheduler.framework.status import Status
from scheduler.switches import PluginSwitches


class DefaultBinder:
    """The default binder; the switch `bind.precondition` adds the precondition `expectedUnbindCount`.

    Source: kubelet-unbinding 4.3.
    """

    name = "DefaultBinder"

    def __init__(self, args: Args, handle: Handle) -> None:
        self._with_unbind_count = handle.switches.of(PluginSwitches).bind_precondition == "uid+unbindCount"

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> BindCall | Status:
        """Return the call to make."""
        return BindCall(node_name, pod.unbind_count if self._with_unbind_count else None)


PLUGIN = PluginEntry("DefaultBinder", DefaultBinder)
