"""What must hold in every state of every run (guarantees 6), judged from the event log alone.

An `Auditor` takes lines in order, live or afterwards, and keeps one small view of what is stored. Each
invariant is one class; `CHECKS` lists them. A violation names the invariant, the moment, the objects and
the trace. Pure: the same lines give the same verdict.

Not judged here: I6 to I11, I19, I25, I26, I29 to I31 belong to claims, jobs, gangs and leader election.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from services.api.meta import Document
from services.api.switches import Switches
from services.telemetry.eventlog import Line


class Violation(msgspec.Struct, frozen=True):
    """One breach. `at` is seconds of the log's own clock; `objects` are `kind ns/name` texts."""

    invariant: str
    at: float
    objects: tuple[str, ...]
    trace_id: str
    detail: str


Report = Callable[[Line, str], None]
"""Called with the line that broke the rule and a sentence with the two values that disagree."""


class Check(Protocol):
    """One invariant."""

    id: str

    def take(self, line: Line, report: Report) -> None:
        """Look at one line."""
        ...


def _uid(line: Line) -> str:
    return line.obj.get("uid", "") if line.obj else ""


def _is_pod_commit(line: Line) -> bool:
    return line.ev == "store.commit" and line.obj is not None and line.obj["kind"] == "Pod" and "node" in line.data


class SingleRunner:
    """I1: for every pod uid the times a container runs on different nodes do not overlap."""

    id = "I1"

    def __init__(self, switches: Switches) -> None:
        self._running: dict[str, dict[str, dict[str, None]]] = {}

    def take(self, line: Line, report: Report) -> None:
        """Follow kubelet.start, kubelet.stop and node.boot."""
        if line.ev == "node.boot":
            for nodes in self._running.values():
                nodes.pop(line.node, None)
            return
        if line.ev not in ("kubelet.start", "kubelet.stop"):
            return
        nodes = self._running.setdefault(_uid(line), {})
        container = str(line.data.get("container", ""))
        if line.ev == "kubelet.stop":
            if line.node in nodes:
                nodes[line.node].pop(container, None)
                if not nodes[line.node]:
                    del nodes[line.node]
            return
        for other in nodes:
            if other != line.node:
                report(line, f"starts on {line.node} while it runs on {other}")
        nodes.setdefault(line.node, {})[container] = None


class NodeNameChanges:
    """I2: spec.nodeName goes from empty to N by a Binding or at creation, from N to empty by an unbind."""

    id = "I2"

    def __init__(self, switches: Switches) -> None:
        self._node: dict[str, str] = {}
        callers = switches.choice("authz.unbind_callers")
        self._may_unbind = ("system:node:",) if callers == "kubelet" else ("system:node:", "system:pod-unbinder")

    def take(self, line: Line, report: Report) -> None:
        """Compare each commit's node with the one before."""
        if not _is_pod_commit(line):
            return
        uid, node = _uid(line), str(line.data["node"])
        if line.data.get("type") == "DELETED":
            self._node.pop(uid, None)
            return
        before = self._node.get(uid)
        self._node[uid] = node
        by = line.data.get("subresource", "")
        if before is None or before == node:
            return
        if not before and node and by != "binding":
            report(line, f"nodeName became {node} by {by or line.data.get('verb')}, not by a binding")
        elif before and node:
            report(line, f"nodeName went from {before} to {node} in one step")
        elif before and not node and (by != "unbind" or not line.identity.startswith(self._may_unbind)):
            report(line, f"nodeName {before} was cleared by {by or line.data.get('verb')} of {line.identity}")


class BindingGenerations:
    """I3: generations grow with each bind, one unbind lies between two binds, unbindCount counts them."""

    id = "I3"

    def __init__(self, switches: Switches) -> None:
        self._max = switches.integer("unbind.max_attempts")
        self._state: dict[str, tuple[int, int, bool]] = {}
        self._bound_once: dict[tuple[str, int], None] = {}

    def take(self, line: Line, report: Report) -> None:
        """Follow bind and unbind commits and the scheduler's results."""
        if line.ev == "sched.bind_result" and line.data.get("outcome") == "ok":
            key = (_uid(line), int(line.data.get("unbind_count", 0)))
            if key in self._bound_once:
                report(line, f"bound twice at unbindCount {key[1]}")
            self._bound_once[key] = None
        if not _is_pod_commit(line) or line.data.get("subresource") not in ("binding", "unbind"):
            return
        uid = _uid(line)
        generation, unbinds = int(line.data["binding_generation"]), int(line.data["unbind_count"])
        old_generation, old_unbinds, is_bound = self._state.get(uid, (0, 0, False))
        if line.data["subresource"] == "binding":
            if is_bound:
                report(line, "bound again without an unbind between")
            if generation <= old_generation:
                report(line, f"binding generation {generation} does not exceed {old_generation}")
            self._state[uid] = (generation, unbinds, True)
            return
        if not is_bound:
            report(line, "unbound twice without a bind between")
        if unbinds != old_unbinds + 1:
            report(line, f"unbindCount went from {old_unbinds} to {unbinds}")
        if unbinds > self._max:
            report(line, f"unbindCount {unbinds} exceeds unbind.max_attempts {self._max}")
        self._state[uid] = (old_generation, unbinds, False)


class StartsAfterBind:
    """I4: a start follows its bind; an unbound binding never started; teardown came before the unbind."""

    id = "I4"

    def __init__(self, switches: Switches) -> None:
        self._bound: dict[tuple[str, int], str] = {}
        self._started: dict[tuple[str, int], str] = {}
        self._unbound: dict[tuple[str, int], None] = {}
        self._torn_down: dict[tuple[str, int], None] = {}
        # These arms exist to show the breach; it is counted by comparison, not failed.
        self._is_counted_only = (
            switches.choice("kubelet.unbind_teardown") == "after" or switches.choice("unbind.fence") == "none"
        )

    def take(self, line: Line, report: Report) -> None:
        """Order starts, binds, teardowns and unbinds of one (uid, generation)."""
        if self._is_counted_only:
            return
        uid = _uid(line)
        if _is_pod_commit(line):
            self._take_commit(line, uid, report)
        elif line.ev == "kubelet.teardown_done":
            self._torn_down[(uid, line.gen or 0)] = None
        elif line.ev == "kubelet.start" and line.gen:
            key = (uid, line.gen)
            if self._bound.get(key) != line.node:
                report(
                    line, f"started on {line.node} at generation {line.gen}, which was bound to {self._bound.get(key)}"
                )
            if key in self._unbound:
                report(line, f"started at generation {line.gen}, which was unbound")
            self._started[key] = line.node

    def _take_commit(self, line: Line, uid: str, report: Report) -> None:
        key = (uid, int(line.data["binding_generation"]))
        if line.data.get("subresource") == "binding":
            self._bound[key] = str(line.data["node"])
        elif line.data.get("subresource") == "unbind":
            if key in self._started:
                report(line, f"unbound at generation {key[1]} although it started on {self._started[key]}")
            if key not in self._torn_down:
                report(line, f"unbound at generation {key[1]} before its teardown was done")
            self._unbound[key] = None


class LedgerFits:
    """I5 (hard part): no admission takes a kubelet's ledger above what the node may allocate."""

    id = "I5"

    def __init__(self, switches: Switches) -> None:
        pass

    def take(self, line: Line, report: Report) -> None:
        """Compare the ledger of each admission with allocatable."""
        if line.ev != "kubelet.admit":
            return
        allocatable: dict[str, int] = line.data.get("allocatable", {})
        for resource, used in line.data.get("ledger", {}).items():
            if resource in allocatable and used > allocatable[resource]:
                report(line, f"{resource}: ledger {used} above allocatable {allocatable[resource]} on {line.node}")


class DenseVersions:
    """I12: the commit log holds every resource version once, over all incarnations."""

    id = "I12"

    def __init__(self, switches: Switches) -> None:
        self._last = 0

    def take(self, line: Line, report: Report) -> None:
        """Expect the successor of the last version."""
        if line.ev != "store.commit" or line.rv is None or line.data.get("replayed"):
            return
        if self._last and line.rv != self._last + 1:
            report(line, f"resource version {line.rv} follows {self._last}")
        self._last = max(self._last, line.rv)


class AcknowledgedIsStored:
    """I13: every acknowledged write is in the commit log, as that object."""

    id = "I13"

    def __init__(self, switches: Switches) -> None:
        self._uid_of: dict[int, str] = {}

    def take(self, line: Line, report: Report) -> None:
        """Match acknowledgements (`client.return`) with commits."""
        if line.ev == "store.commit" and line.rv is not None:
            self._uid_of[line.rv] = _uid(line)
        elif line.ev == "client.return" and line.data.get("outcome") == "ok" and line.rv and line.data.get("wrote"):
            if line.rv not in self._uid_of:
                report(line, f"acknowledged at {line.rv}, which was never committed")
            elif _uid(line) and self._uid_of[line.rv] != _uid(line):
                report(line, f"acknowledged {_uid(line)} at {line.rv}, where {self._uid_of[line.rv]} is stored")


class CommitsHaveRequests:
    """I14: a request answered with a definite refusal wrote nothing."""

    id = "I14"

    def __init__(self, switches: Switches) -> None:
        self._by_request: dict[tuple[str, str], int] = {}

    def take(self, line: Line, report: Report) -> None:
        """Match request ids of commits with answers."""
        if not line.req_id:
            return
        key = (line.identity, line.req_id)
        if line.ev == "store.commit" and not line.data.get("replayed"):
            if key in self._by_request and self._by_request[key] != line.data.get("group_end"):
                report(line, f"request {line.req_id} committed twice")
            self._by_request[key] = int(line.data.get("group_end") or line.rv or 0)
        elif line.ev == "api.response" and key in self._by_request:
            # RequestIDReused repeats an id with another body: the first use may well have been committed.
            code = int(line.data.get("code", 0))
            if 400 <= code < 500 and line.data.get("reason") != "RequestIDReused":
                report(line, f"request {line.req_id} was refused with {code} and yet committed")


class Nominations:
    """I17 (safety part): no bound or terminal pod is nominated."""

    id = "I17"

    def __init__(self, switches: Switches) -> None:
        pass

    def take(self, line: Line, report: Report) -> None:
        """Look at the nomination each pod commit leaves."""
        if not _is_pod_commit(line) or line.data.get("type") == "DELETED" or not line.data.get("nominated"):
            return
        if line.data["node"] or line.data.get("phase") in ("Succeeded", "Failed"):
            report(line, f"nominated to {line.data['nominated']} while bound to {line.data['node'] or 'nothing'}")


class VictimsHavePreemptors:
    """I18: what the scheduler deletes is a victim it announced, once."""

    id = "I18"

    def __init__(self, switches: Switches) -> None:
        self._victims: dict[str, bool] = {}

    def take(self, line: Line, report: Report) -> None:
        """Match the scheduler's deletes with its sched.victim lines."""
        if line.ev == "sched.victim":
            self._victims.setdefault(_uid(line), False)
        elif _is_pod_commit(line) and line.data.get("verb") == "delete" and line.identity == "system:kube-scheduler":
            uid = _uid(line)
            if uid not in self._victims:
                report(line, "deleted by the scheduler without being a victim")
            elif self._victims[uid]:
                report(line, "deleted twice as a victim")
            self._victims[uid] = True


_PHASES = {"": 0, "Pending": 0, "Running": 1, "Unknown": 1, "Succeeded": 2, "Failed": 2}


class PhaseOrder:
    """I21: Pending, Running, then Succeeded or Failed; terminal is final."""

    id = "I21"

    def __init__(self, switches: Switches) -> None:
        self._phase: dict[str, str] = {}

    def take(self, line: Line, report: Report) -> None:
        """Compare each commit's phase with the one before."""
        if not _is_pod_commit(line):
            return
        uid, phase = _uid(line), str(line.data.get("phase", ""))
        before = self._phase.get(uid, "")
        if line.data.get("type") == "DELETED":
            self._phase.pop(uid, None)
            return
        if _PHASES[phase] < _PHASES[before] or (_PHASES[before] == 2 and phase != before):
            report(line, f"phase went from {before} to {phase}")
        self._phase[uid] = phase


class DeletionIsOneWay:
    """I22: deletionTimestamp is never unset or moved later; a removed uid never comes back."""

    id = "I22"

    def __init__(self, switches: Switches) -> None:
        self._deletion: dict[str, str] = {}
        self._removed: dict[str, None] = {}

    def take(self, line: Line, report: Report) -> None:
        """Follow deletion timestamps (RFC 3339 in UTC compare as texts)."""
        if line.ev != "store.commit" or line.data.get("replayed"):
            return
        uid, stamp = _uid(line), str(line.data.get("deletion") or "")
        if uid in self._removed:
            report(line, "a removed uid came back")
        before = self._deletion.get(uid, "")
        if line.data.get("type") == "DELETED":
            self._removed[uid] = None
            self._deletion.pop(uid, None)
            return
        if before and not stamp:
            report(line, f"deletionTimestamp {before} was unset")
        elif before and stamp > before:
            report(line, f"deletionTimestamp moved from {before} to {stamp}")
        if stamp:
            self._deletion[uid] = stamp


class FinalizersHold:
    """I23: nothing is removed while it has a finalizer."""

    id = "I23"

    def __init__(self, switches: Switches) -> None:
        pass

    def take(self, line: Line, report: Report) -> None:
        """Look at what a removal still had."""
        if line.ev == "store.commit" and line.data.get("type") == "DELETED" and line.data.get("finalizers"):
            report(line, f"removed with finalizers {', '.join(line.data['finalizers'])}")


class CompleteLog:
    """I27: every process's lines are numbered without a gap."""

    id = "I27"

    def __init__(self, switches: Switches) -> None:
        self._seq: dict[tuple[str, str], int] = {}

    def take(self, line: Line, report: Report) -> None:
        """Expect the successor of the process's last line."""
        key = (line.comp, line.inc)
        if line.seq != self._seq.get(key, 0) + 1:
            report(line, f"line {line.seq} of {line.comp}-{line.inc} follows {self._seq.get(key, 0)}")
        self._seq[key] = line.seq


CHECKS: tuple[Callable[[Switches], Check], ...] = (
    SingleRunner,
    NodeNameChanges,
    BindingGenerations,
    StartsAfterBind,
    LedgerFits,
    DenseVersions,
    AcknowledgedIsStored,
    CommitsHaveRequests,
    Nominations,
    VictimsHavePreemptors,
    PhaseOrder,
    DeletionIsOneWay,
    FinalizersHold,
    CompleteLog,
)


class Auditor:
    """Judges lines as they come. `violations` holds at most `limit`; `count` counts all."""

    def __init__(self, switches: Switches, *, limit: int = 100) -> None:
        self.violations: list[Violation] = []
        self.count = 0
        self.lines = 0
        self.commits: dict[str, int] = {}
        """Commits by kind."""
        self._limit = limit
        self._checks: list[Check] = [make(switches) for make in CHECKS]

    def take(self, line: Line) -> None:
        """Judge one line by every invariant."""
        self.lines += 1
        if line.ev == "store.commit" and line.obj is not None and not line.data.get("replayed"):
            kind = line.obj["kind"]
            self.commits[kind] = self.commits.get(kind, 0) + 1
        for check in self._checks:
            check.take(line, lambda at, detail, check=check: self._report(check.id, at, detail))  # type: ignore[misc]

    def take_all(self, lines: Iterable[Line]) -> None:
        """Judge lines already in order."""
        for line in lines:
            self.take(line)

    def report(self, invariant: str, at: float, objects: tuple[str, ...], detail: str) -> None:
        """Add a violation that was seen elsewhere, for example on a watch stream or at rest."""
        self.count += 1
        if len(self.violations) < self._limit:
            self.violations.append(Violation(invariant, at, objects, "", detail))

    def _report(self, invariant: str, line: Line, detail: str) -> None:
        self.count += 1
        if len(self.violations) >= self._limit:
            return
        objects = (f"{line.obj['kind']} {line.obj['ns']}/{line.obj['name']}",) if line.obj else ()
        self.violations.append(Violation(invariant, line.mono_ns / 1e9, objects, line.trace_id, detail))


def unrest_of(documents: Mapping[str, Iterable[Document]]) -> list[tuple[str, str]]:
    """Return what keeps a mesh from rest (I20): `(kind ns/name, the two numbers that disagree)` a workload.

    `documents`: what is stored by resource. Only for stories whose workloads can be satisfied.
    """
    found = []
    for resource in ("replicasets.apps", "deployments.apps"):
        for document in documents.get(resource, ()):
            wanted = document["spec"].get("replicas", 1)
            ready = document.get("status", {}).get("readyReplicas", 0)
            if wanted != ready:
                meta = document["metadata"]
                what = f"{document['kind']} {meta['namespace']}/{meta['name']}"
                found.append((what, f"{ready} of {wanted} replicas are ready at rest"))
    return found
