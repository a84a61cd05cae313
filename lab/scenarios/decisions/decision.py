"""The decisions of a run, read from its event log: object by role, event and outcome. Pure.

A decision is a scheduling attempt, a nomination, a victim, or the outcome of a bind; an admission,
rejection, unbind or resize by a kubelet; the deletion of an object; or a pod's step to Failed or
Succeeded. Objects of two runs are compared by *role*, because uids and generated names mean nothing: the
role of an owned pod is its owner and its number in the order of creation, that of a bare object is its
name. Source: guarantees 1.2 for the lines that are read.
"""

from typing import Any, Final

import msgspec

from lab.recordings.roles import Roles
from services.api.identity import NODE_PREFIX
from services.telemetry.eventlog import Line

SCHEDULER_EVENTS: Final = ("sched.attempt", "sched.nominate", "sched.victim", "sched.bind_result")
KUBELET_EVENTS: Final = ("kubelet.admit", "kubelet.reject", "kubelet.unbind_call", "kubelet.resize")
DELETE: Final = "delete"
PHASE: Final = "phase"
EVENTS: Final = (*SCHEDULER_EVENTS, *KUBELET_EVENTS, DELETE, PHASE)
"""Names of decisions. Most are names of event log lines. `delete` (a requested deletion of an object) and
`phase` (a pod's last step) are read from `store.commit`.
"""
NEVER_COMPARED: Final = frozenset(("Event", "Lease"))
"""Kinds whose deletion is not a decision: Events expire, and Leases of nodes are deleted with their nodes."""
_FINAL = frozenset(("Failed", "Succeeded"))
_NOISE = frozenset(("request_id", "unbind_count"))


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision. `at_s`: seconds of the log's own clock. `name`: of the object, `namespace/name`.
    `component`: the one that decided; for decisions read from commits the writer's name, where the log has
    it.

    `outcome`: `scheduled`, `unschedulable` or `error` of an attempt; `ok`, `conflict`, `unknown` or `error`
    of a bind; the reason of a rejection or an unbind; the requests after a resize; the client that requested
    a deletion; the phase. `why`: other data of the line: messages, plugins, requests and the node's sums.
    """

    at_s: float
    role: str
    event: str
    outcome: str
    node: str = ""
    name: str = ""
    component: str = ""
    why: dict[str, Any] = {}

    @property
    def what(self) -> tuple[str, str, str]:
        """Key by which two decisions about one role are compared: event, outcome and node."""
        return self.event, self.outcome, self.node

    @property
    def actor(self) -> tuple[str, str]:
        """Pair of role and actor. Decisions of one pair are compared in order; different actors are not compared in
        time.

        A last phase that a node writes counts as its kubelet's decision. So the outcome of a pod on one kubelet
        (Failed) is compared with its outcome on another (an unbind).
        """
        is_kubelets = self.event == PHASE and self.component.startswith(NODE_PREFIX)
        return self.role, "kubelet" if is_kubelets else self.event.partition(".")[0]


class Decisions:
    """Reader of the decisions in the lines of an event log, which must come in order."""

    def __init__(self) -> None:
        self._roles = Roles()
        self._phases: dict[str, str] = {}
        self._leaving: set[str] = set()

    def of(self, line: Line) -> Decision | None:
        """Return the decision in this line; None if the line has none."""
        if line.obj is None:
            return None
        if line.ev == "store.commit":
            return self._commit(line)
        if line.ev not in EVENTS:
            return None
        role = self._roles.of(line.obj["uid"], f"{line.obj['kind'].lower()}/{line.obj['name']}")
        why = {name: value for name, value in line.data.items() if name not in _NOISE}
        node = line.node or why.get("nominated") or ""
        at_s = line.mono_ns / 1e9
        return Decision(at_s, role, line.ev, self._outcome(line), node, _name(line.obj), line.comp, why)

    def _outcome(self, line: Line) -> str:
        data = line.data
        match line.ev:
            case "sched.attempt" | "sched.bind_result":
                return str(data.get("outcome", ""))
            case "sched.nominate":
                return "nominated"
            case "sched.victim":
                return f"for {self._roles.of(data.get('group') or data.get('preemptor', ''))}"
            case "kubelet.admit":
                return "adopted" if data.get("adopted") else "admitted"
            case "kubelet.resize":
                return " ".join(f"{name}={value}" for name, value in sorted((data.get("requests") or {}).items()))
        return str(data.get("reason", ""))

    def _commit(self, line: Line) -> Decision | None:
        assert line.obj is not None
        if line.obj["kind"] in NEVER_COMPARED:
            return None
        data, uid = line.data, line.obj["uid"]
        is_gone = data.get("type") == "DELETED"
        is_new = self._roles.learn(uid, line.obj["kind"], line.obj["ns"], line.obj["name"], data.get("owners", ()))
        phase, decision = data.get("phase", ""), None
        if phase in _FINAL and phase != self._phases.get(uid):
            self._phases[uid] = phase
            decision = self._make_decision(line, PHASE, phase)
        if (is_gone or data.get("deletion")) and uid not in self._leaving:
            self._leaving.add(uid)
            decision = self._make_decision(line, DELETE, f"by {_writer(line) or '(unknown)'}")
        if is_gone:
            self._phases.pop(uid, None)
            self._leaving.discard(uid)
        # What the store held when the log began was decided before; what a restart reads again was seen before.
        return None if is_new and data.get("replayed") else decision

    def _make_decision(self, line: Line, event: str, outcome: str) -> Decision:
        assert line.obj is not None
        role, component = self._roles.of(line.obj["uid"]), _writer(line) or line.comp
        return Decision(line.mono_ns / 1e9, role, event, outcome, line.data.get("node", ""), _name(line.obj), component)


def _writer(line: Line) -> str:
    """Return who asked for a commit, or nothing where the log does not say."""
    return line.identity or line.data.get("identity") or ""


def _name(obj: dict[str, str]) -> str:
    return f"{obj['ns']}/{obj['name']}" if obj["ns"] else obj["name"]
