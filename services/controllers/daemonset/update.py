"""One step of a DaemonSet's rolling update: which old pods go now, which nodes get a new one besides. Pure.

Without surge an old pod is removed and the next reconcile fills its place; with surge the new one comes first.
Source: controllers 6; upstream `pkg/controller/daemon/update.go`; KEP-1591.
"""

from __future__ import annotations

from services.api.kinds.pod import Pod
from services.controllers.daemonset.nodes import NOWHERE
from services.controllers.daemonset.plan import Plan, Sight, limits


def roll(sight: Sight) -> Plan:
    """Return the next step; nothing for a set whose old pods are left to others (OnDelete).

    To be asked only when the nodes are tidy: at most one pod a node, or an old and a new one while it surges.
    """
    if sight.daemon_set.spec.update_strategy.type != "RollingUpdate":
        return Plan()
    desired = sum(fit.runs for fit in sight.fits.values())
    surge, unavailable = limits(sight.daemon_set, desired)
    if surge == 0:
        # If both are 0 (a percentage of no nodes, or a set of before the rule), one may be unavailable.
        return _replace(sight, unavailable or 1)
    return _surge(sight, surge, desired)


def _nodes(sight: Sight) -> list[str]:
    """Return the nodes that should have a pod or have one."""
    wanted = [node for node, fit in sight.fits.items() if fit.runs or node in sight.pods]
    return wanted + [node for node in sight.pods if node not in sight.fits]


def _pair(sight: Sight, node: str) -> tuple[Pod | None, Pod | None, bool]:
    """Return the node's (new pod, old pod, whether there are no more), terminating ones left aside."""
    new: Pod | None = None
    old: Pod | None = None
    for pod in sight.pods.get(node, ()):
        if pod.metadata.deletion_timestamp is not None:
            continue
        if sight.is_updated(pod):
            if new is not None:
                return None, None, False
            new = pod
        else:
            if old is not None:
                return None, None, False
            old = pod
    return new, old, True


def _replace(sight: Sight, limit: int) -> Plan:
    """Remove old pods that are not available, and as many that are as may be unavailable besides."""
    broken: list[Pod] = []
    candidates: list[Pod] = []
    unavailable = 0
    for node in _nodes(sight):
        new, old, is_tidy = _pair(sight, node)
        if not is_tidy or (new is None) == (old is None):
            unavailable += 1
        elif new is not None:
            unavailable += not sight.is_available(new)
        elif old is not None and not sight.is_available(old):
            broken.append(old)
            unavailable += 1
        elif old is not None:
            candidates.append(old)
    return Plan(deletes=[*broken, *candidates[: max(0, limit - unavailable)]])


def _surge(sight: Sight, limit: int, desired: int) -> Plan:
    """Give nodes a new pod besides the old one; remove old pods whose successor is available.

    A pod on a node that no longer wants it goes only when enough pods are available elsewhere.
    """
    made = Plan()
    unwanted: list[Pod] = []
    candidates: list[str] = []
    surging = available = 0
    for node in _nodes(sight):
        new, old, is_tidy = _pair(sight, node)
        if not is_tidy:
            surging += 1
            continue
        counted = old if old is not None else new
        is_up = counted is not None and sight.is_available(counted)
        available += is_up
        if old is None:
            continue
        if new is not None:
            if sight.is_available(new):
                made.deletes.append(old)
            else:
                surging += 1
        elif not sight.fits.get(node, NOWHERE).runs:
            (unwanted if is_up else made.deletes).append(old)
        elif is_up:
            candidates.append(node)
        else:
            made.creates.append(node)
    made.deletes += unwanted[: max(0, available - desired)]
    made.creates += candidates[: max(0, limit - surging)]
    return made
