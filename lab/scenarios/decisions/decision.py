"""The decisions of a run, read from its event log: what was decided about whom, by role. Pure.

A decision is an attempt of a scheduler, a nomination, a victim, what became of a bind; what a kubelet admitted,
rejected, unbound or resized; the deletion of an object; a pod's step to Failed or Succeeded. The objects of two runs
are compared by *role*, because uids and generated names mean nothing: a pod of an owner is its number in the order of
creation, and a bare object is its name. Source: guarantees 1.2 for the lines that are read.
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
"""What a decision may be called: lines of the event log by their own names; `delete`, when the deletion of an object
was asked for, and `phase`, a pod's last step, are read from `store.commit`."""
NEVER_COMPARED: Final = frozenset(("Event", "Lease"))
"""Kinds whose deletion decides nothing: Events expire, and Leases of nodes go with their nodes."""
_FINAL = frozenset(("Failed", "Succeeded"))
_NOISE = frozenset(("request_id", "unbind_count"))


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision. `at_s`: seconds of the log's own clock. `name`: the object as it was called, `namespace/name`.
    `component`: who decided; of what is read from commits the writer's name, where the log has it.

    `outcome`: `scheduled`, `unschedulable` or `error` of an attempt; `ok`, `conflict`, `unknown` or `error` of a bind;
    the reason of a rejection or an unbind; the requests that a resize came to; who asked for a deletion; the phase.
    `why`: what else the line says: messages, plugins, requests and the node's sums.
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
        """What is compared of two decisions about one role."""
        return self.event, self.outcome, self.node

    @property
    def actor(self) -> tuple[str, str]:
        """Whose decisions about which role: those of one actor have an order, two actors are not compared in time.

        A last phase that a node writes is its kubelet's decision: what one kubelet made of a pod (Failed) stands beside
        what another made of it (an unbind)."""
        is_kubelets = self.event == PHASE and self.component.startswith(NODE_PREFIX)
        return self.role, "kubelet" if is_kubelets else self.event.partition(".")[0]


class Decisions:
    """Reads decisions from the lines of an event log, in their order."""

    def __init__(self) -> None:
        self._roles = Roles()
        self._phases: dict[str, str] = {}
        self._leaving: set[str] = set()

    def of(self, line: Line) -> Decision | None:
        """Return the decision that the line says; None for every other line."""
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
        phase, found = data.get("phase", ""), None
        if phase in _FINAL and phase != self._phases.get(uid):
            self._phases[uid] = phase
            found = self._decided(line, PHASE, phase)
        if (is_gone or data.get("deletion")) and uid not in self._leaving:
            self._leaving.add(uid)
            found = self._decided(line, DELETE, f"by {_writer(line) or '(unknown)'}")
        if is_gone:
            self._phases.pop(uid, None)
            self._leaving.discard(uid)
        # What the store held when the log began was decided before; what a restart reads again was seen before.
        return None if is_new and data.get("replayed") else found

    def _decided(self, line: Line, event: str, outcome: str) -> Decision:
        assert line.obj is not None
        role, component = self._roles.of(line.obj["uid"]), _writer(line) or line.comp
        return Decision(line.mono_ns / 1e9, role, event, outcome, line.data.get("node", ""), _name(line.obj), component)


def _writer(line: Line) -> str:
    """Return who asked for a commit, or nothing where the log does not say."""
    return line.identity or line.data.get("identity") or ""


def _name(obj: dict[str, str]) -> str:
    return f"{obj['ns']}/{obj['name']}" if obj["ns"] else obj["name"]
