"""One watch stream held against the commit log, event by event (W1 to W12). Pure.

`event` and `mark` return what is wrong as sentences that begin with the rule's name and show the two
neighbours that disagree.
"""

from __future__ import annotations

from services.scenarios.invariants.view import Key, Matches, View


class Stream:
    """A stream of one kind. `start` None: it begins with the state, up to the bookmark that says so (W12).

    `matches` None: the selector is not told by commit lines, so only the order can be judged. Once
    `is_blind`, the stream has fallen out of the window of the view and nothing is said of it any more.
    """

    def __init__(self, view: View, kind: str, matches: Matches | None, start: int | None) -> None:
        self._view, self._table = view, view.table(kind)
        self._kind, self._matches, self._start = kind, matches, start or 0
        self._initial: dict[Key, tuple[int, str]] | None = {} if start is None else None
        self._position = 0 if start is None else self._table.position_after(start)
        self._bookmark = 0
        self.last = start or 0
        """The version up to which the receiver has been told."""
        self.is_blind = start is not None and start < self._table.oldest_rv

    @property
    def has_begun(self) -> bool:
        """Whether the state, if it was asked for, is complete."""
        return self._initial is None

    def event(self, kind: str, namespace: str, name: str, rv: int, sha256: str) -> list[str]:
        """Take an ADDED, MODIFIED or DELETED; return what is wrong with it."""
        if self.is_blind:
            return []
        if self._initial is not None:
            wrong = []
            if kind != "ADDED":
                wrong.append(f"W12: {kind} of {namespace}/{name} before the state was complete")
            if (namespace, name) in self._initial:
                wrong.append(f"W12: {namespace}/{name} came twice before the state was complete")
            self._initial[(namespace, name)] = (rv, sha256)
            return wrong
        if rv <= self._start:
            return [f"W10: {rv} was delivered to a stream that starts after {self._start}"]
        if rv <= self.last:
            return [f"W1: {rv} was delivered after {self.last}"]
        wrong = self._advance(rv - 1, "W3", f"event {rv}")
        self.last = rv
        if self._matches is None or self.is_blind:
            return wrong
        changes, index = self._table.changes, self._position - self._table.dropped
        if index >= len(changes) or changes[index].rv != rv:
            return [*wrong, f"W8: {kind} of {namespace}/{name} at {rv}, where no such change is stored"]
        change = changes[index]
        self._position += 1
        stored, wanted = change.content, change.seen_by(self._matches)
        if (stored.namespace, stored.name) != (namespace, name):
            wrong.append(f"W8: {namespace}/{name} at {rv}, where {stored.namespace}/{stored.name} is stored")
        elif wanted != kind:
            wrong.append(
                f"{'W9' if wanted else 'W7'}: {namespace}/{name} at {rv} came as {kind}, not {wanted or 'at all'}"
            )
        elif sha256 and stored.sha256 and sha256 != stored.sha256:
            wrong.append(f"W8: {namespace}/{name} at {rv} came as {sha256[:12]}, {stored.sha256[:12]} is stored")
        return wrong

    def mark(self, rv: int, *, ends_initial: bool) -> list[str]:
        """Take a bookmark; return what is wrong with it."""
        if self.is_blind:
            return []
        wrong = []
        commit = self._view.at(rv)
        if commit is not None and commit.group_end != rv:
            wrong.append(f"W4: a bookmark at {rv}, inside the group that ends at {commit.group_end}")
        if rv > self._view.rv:
            wrong.append(f"W6: a bookmark at {rv}, the newest version is {self._view.rv}")
        if self._initial is not None:
            return [*wrong, *self.complete(rv)] if ends_initial else wrong
        if ends_initial:
            wrong.append(f"W12: a second end of the state at {rv}")
        if rv < max(self.last, self._bookmark):
            return [*wrong, f"W1: a bookmark at {rv} after {max(self.last, self._bookmark)}"]
        wrong += self._advance(rv, "W6", f"bookmark {rv}")
        self._bookmark = self.last = rv
        return wrong

    def complete(self, rv: int) -> list[str]:
        """The state is all there, as of `rv`: compare it with what is stored."""
        found, self._initial = self._initial or {}, None
        self.last = self._bookmark = rv
        self._position = self._table.position_after(rv)
        if self._matches is None:
            return []
        stored = self._table.at(rv, self._matches)
        if stored is None:
            self.is_blind = True
            return []
        wrong = []
        for (namespace, name), (seen_rv, sha256) in found.items():
            there = stored.get((namespace, name))
            if there is None:
                wrong.append(f"W12: {namespace}/{name} is in the state at {rv} and not stored")
            elif there.rv != seen_rv or (sha256 and there.sha256 and sha256 != there.sha256):
                wrong.append(f"W12: {namespace}/{name} is in the state at {rv} as of {seen_rv}, stored is {there.rv}")
        wrong += [f"W12: {key[0]}/{key[1]} is missing from the state at {rv}" for key in stored if key not in found]
        return wrong

    def _advance(self, rv: int, rule: str, what: str) -> list[str]:
        """Step over the changes up to `rv`; those that match should have been delivered before."""
        table = self._table
        if self._matches is None:
            return []
        if self._position < table.dropped:
            self.is_blind = True
            return []
        wrong = []
        index, changes = self._position - table.dropped, table.changes
        while index < len(changes) and changes[index].rv <= rv:
            change = changes[index]
            if change.seen_by(self._matches):
                stored = change.content
                wrong.append(
                    f"{rule}: {what} came after {self.last}, without {stored.namespace}/{stored.name} at {change.rv}"
                )
            index += 1
        self._position = index + table.dropped
        return wrong
