"""I2: a pod's node is changed only by bindings, unbinds and permitted creations."""

from lab.scenarios.invariants.check import Check, Context, Report
from lab.scenarios.invariants.policy import may_change_node_name, unbind_callers
from lab.scenarios.invariants.view import Commit
from services.api.identity import NODE_PREFIX
from services.telemetry.eventlog import Line


class NodeNameChanges(Check):
    """I2: spec.nodeName goes from empty to N by a Binding or at creation (S22), from N to empty by an unbind."""

    id = "I2"
    events = ("store.commit",)
    kinds = ("Pod",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._unbind_callers = unbind_callers(self.switches)

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Judge who set, moved or unset a pod's node."""
        if commit.type == "DELETED" or commit.is_replayed:
            return
        node, by = commit.content.node, commit.subresource
        if commit.before is None or commit.before.uid != commit.content.uid:
            if node and line.identity.startswith(NODE_PREFIX) and line.identity != f"{NODE_PREFIX}{node}":
                report(line, f"was created on {node} by {line.identity}, which may create pods on its own node alone")
            return
        before = commit.before.node
        if before == node:
            return
        if not before and by != "binding":
            report(line, f"nodeName became {node} by {by or commit.verb}, not by a binding")
        elif before and node:
            report(line, f"nodeName went from {before} to {node} in one step")
        elif before and not may_change_node_name(line.identity, by, before, "", unbind_callers=self._unbind_callers):
            report(line, f"nodeName {before} was cleared by {by or commit.verb} of {line.identity}")
