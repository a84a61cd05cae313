"""I8: a pod is bound only when its claims are ready."""

from lab.scenarios.invariants.check import NO_CLAIMS, Check, Context, Report
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line


class ClaimsComeBeforeTheBind(Check):
    """I8: at a bind every claim of the pod is allocated, usable on the node, and reserved for the pod, its pod
    group, or any pod that has the claim.

    Also, no claim lists more than `reserved_for.max`, 256, consumers.
    """

    id = "I8"
    events = ("store.commit",)
    kinds = ("Pod", "ResourceClaim")
    why_not = NO_CLAIMS

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._max = self.switches.integer("reserved_for.max")

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Check the claims of a pod that is bound."""
        pod = commit.content
        if commit.kind == "ResourceClaim" and len(pod.consumers) > self._max:
            report(line, f"claim {pod.name} is reserved for {len(pod.consumers)}")
        if commit.kind != "Pod" or commit.subresource != "binding":
            return
        if pod.claims:
            self.why_not = ""
        for name in pod.claims:
            claim = self.view.get("ResourceClaim", pod.namespace, name)
            if claim is None or claim.granted is None:
                report(line, f"bound to {pod.node} while claim {name} {'has no devices' if claim else 'is missing'}")
            elif claim.nodes is not None and pod.node not in claim.nodes:
                report(line, f"bound to {pod.node}; claim {name} can be used on {', '.join(claim.nodes)}")
            elif not (pod.uid in claim.consumers or claim.shared or pod.group in claim.workloads):
                report(line, f"bound to {pod.node} while claim {name} is not reserved for it")
