"""I3: binding generations increase, unbinds are counted, and the scheduler's results agree with the store."""

from lab.scenarios.invariants.check import Check, Context, Departed, Report, uid_of
from lab.scenarios.invariants.view import Commit
from services.telemetry.eventlog import Line


class BindingGenerations(Check):
    """I3: generations grow with each bind, one unbind lies between two binds, unbindCount counts them.

    Also K1 and K2: the result that the scheduler reports of a bind, ok or failed, is its true outcome. When
    several schedulers request the same binding, one of them succeeds and the log does not say which; then
    only the store is judged.
    """

    id = "I3"
    events = ("store.commit", "sched.bind_call", "sched.bind_result")
    kinds = ("Pod",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._max = self.switches.integer("unbind.max_attempts")
        self._decays = self.switches.flag("unbind.attempt_decay")
        self._state: dict[str, tuple[int, int, bool]] = {}
        self._bound_once: dict[str, dict[int, None]] = {}
        self._given_up: dict[str, dict[tuple[int, str], None]] = {}
        self._callers: dict[str, dict[tuple[int, str], str]] = {}
        """Which scheduler asked for which binding; "*" for several."""
        self._departed = Departed()

    def take(self, line: Line, report: Report) -> None:
        """Take a call of a scheduler, or its result."""
        uid, count = uid_of(line), int(line.data.get("unbind_count", 0))
        outcome = line.data.get("outcome")
        binding, callers = (count, line.node), self._callers.setdefault(uid, {})
        if line.ev == "sched.bind_call":
            self._given_up.get(uid, {}).pop(binding, None)
            callers[binding] = line.comp if callers.get(binding, line.comp) == line.comp else "*"
        elif callers.get(binding) == "*":
            return
        elif outcome == "ok":
            counts = self._bound_once.setdefault(uid, {})
            if count in counts:
                report(line, f"bound twice at unbindCount {count}")
            counts[count] = None
            commit = self.view.by_rv.get(line.rv) if line.rv else None
            if commit is not None and commit.content.uid != uid:
                report(line, f"the bind of {uid} bound {commit.content.uid} at version {line.rv}")
        elif outcome in ("error", "conflict") and line.obj is not None:
            stored = self.view.get("Pod", line.obj["ns"], line.obj["name"])
            if stored is not None and (stored.uid, stored.node, stored.unbinds) == (uid, line.node, count):
                report(line, f"the scheduler took its bind to {line.node} for failed; it is stored at {stored.rv}")
            self._given_up.setdefault(uid, {})[(count, line.node)] = None

    def on_commit(self, line: Line, commit: Commit, report: Report) -> None:
        """Match a bind or unbind with the scheduler's results."""
        uid = commit.content.uid
        if commit.type == "DELETED":
            self._state.pop(uid, None)
            forgotten = self._departed.add(uid)
            self._bound_once.pop(forgotten, None)
            self._given_up.pop(forgotten, None)
            self._callers.pop(forgotten, None)
            return
        if commit.type == "ADDED" and commit.content.node:
            self._state[uid] = (0, 0, True)
        elif commit.subresource == "binding":
            self._on_bound(line, commit, report)
        elif commit.subresource == "unbind":
            self._unbound(line, commit, report)
        elif commit.before is not None and commit.before.uid == uid and not commit.is_replayed:
            before, after = commit.before, commit.content
            if (before.generation, before.unbinds) != (after.generation, after.unbinds):
                went = f"from {before.generation} and {before.unbinds} to {after.generation} and {after.unbinds}"
                by = f"{commit.verb} {commit.subresource}".rstrip()
                report(line, f"binding generation and unbindCount went {went} by {by}")

    def _on_bound(self, line: Line, commit: Commit, report: Report) -> None:
        uid, node, generation = commit.content.uid, commit.content.node, commit.content.generation
        old_generation, old_unbinds, is_bound = self._state.get(uid, (0, 0, False))
        if is_bound:
            report(line, "bound again without an unbind between")
        if generation <= old_generation:
            report(line, f"binding generation {generation} does not exceed {old_generation}")
        if commit.content.unbinds != old_unbinds:
            report(line, f"a binding changed unbindCount from {old_unbinds} to {commit.content.unbinds}")
        if (commit.content.unbinds, node) in self._given_up.get(uid, ()):
            report(line, f"bound to {node} after the scheduler took that bind for failed")
        self._state[uid] = (generation, commit.content.unbinds, True)

    def _unbound(self, line: Line, commit: Commit, report: Report) -> None:
        uid, unbinds = commit.content.uid, commit.content.unbinds
        old_generation, old_unbinds, is_bound = self._state.get(uid, (0, 0, False))
        if not is_bound:
            report(line, "unbound twice without a bind between")
        if unbinds != old_unbinds + 1:
            report(line, f"unbindCount went from {old_unbinds} to {unbinds}")
        if unbinds > self._max and not self._decays:
            report(line, f"unbindCount {unbinds} exceeds unbind.max_attempts {self._max}")
        self._state[uid] = (old_generation, unbinds, False)
