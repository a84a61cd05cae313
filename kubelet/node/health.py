"""The faults of a node itself: its container runtime, its network, its view of containers. Pure.

Clauses, beside those of starts (`kubelet/runtime/script.py`) and separated from them by `;`:

    runtime down [for D]     the node is not Ready; new pods wait, and no sandbox and no container is made
    network down [for D]     the node is not Ready; pods without host network wait for a sandbox
    pleg stuck [for D]       the runtime does not answer what containers do: after 3 min (10 min where it
                             reports itself, see `kubelet/runtime/pleg.py`) the node is not Ready, and new
                             pods wait
    events broken [N times]  the runtime's stream of events fails: five times in all, and the runtime is asked
                             instead

Running containers go on. Source: kubelet 2.1; upstream `pkg/kubelet/runtime.go`,
`pkg/kubelet/nodestatus/setters.go`.
"""

import math
from typing import Final

import msgspec

from kubelet.runtime.pleg import GENERIC, STREAM_TRIES, THRESHOLDS_S
from kubelet.runtime.script import CREATE, NETWORK, NETWORK_DOWN, SANDBOX, StartFault, duration_s, parse_fault

RUNTIME_DOWN: Final = "container runtime is down"
RUNTIME, PLEG = "runtime", "pleg"
_WORDS: Final = {RUNTIME: "down", NETWORK: "down", PLEG: "stuck"}


class Ailment(msgspec.Struct, frozen=True):
    """One broken part of the node, from when it was configured, for so many seconds."""

    part: str
    for_s: float = math.inf


class NodeFaults(msgspec.Struct, frozen=True):
    """All faults of a node."""

    starts: tuple[StartFault, ...] = ()
    ailments: tuple[Ailment, ...] = ()
    stream_failures: int = 0
    """The number of failures of the runtime's stream of events."""

    @property
    def relists_stuck_s(self) -> float:
        """Seconds during which no relist ends; 0: relists end."""
        return max((each.for_s for each in self.ailments if each.part == PLEG), default=0.0)

    @property
    def all_starts(self) -> tuple[StartFault, ...]:
        """The faults of pod starts, including those from broken parts of the node."""
        faults = list(self.starts)
        for ailment in self.ailments:
            if ailment.part == RUNTIME:
                faults += (StartFault(SANDBOX, for_s=ailment.for_s), StartFault(CREATE, for_s=ailment.for_s))
            elif ailment.part == NETWORK:
                faults.append(StartFault(NETWORK, for_s=ailment.for_s))
        return tuple(faults)


def parse_node_faults(text: str) -> NodeFaults:
    """Return the faults that clauses separated by `;` describe. Raises: ValueError naming the clause."""
    starts: list[StartFault] = []
    ailments: list[Ailment] = []
    failures = 0
    for words in filter(None, (clause.split() for clause in text.split(";"))):
        match words:
            case [part, how] if _WORDS.get(part) == how:
                ailments.append(Ailment(part))
            case [part, how, "for", length] if _WORDS.get(part) == how:
                ailments.append(Ailment(part, duration_s(length)))
            case ["events", "broken"]:
                failures += STREAM_TRIES
            case ["events", "broken", count, "times" | "time"] if count.isdigit() and 0 < int(count) <= STREAM_TRIES:
                failures += int(count)
            case ["events", *_]:
                raise ValueError(f"{' '.join(words)!r}: want events broken [1 to {STREAM_TRIES} times]")
            case _:
                starts.append(parse_fault(words))
    return NodeFaults(tuple(starts), tuple(ailments), failures)


def pleg_stuck(threshold_s: float) -> str:
    """Return the message of a node whose relists have been stuck for the threshold."""
    limit = f"{int(threshold_s) // 60}m0s"
    return f"PLEG is not healthy: pleg was last seen active {limit} ago; threshold is {limit}"


class NodeHealth:
    """The node's broken parts since `since_s`, with their effects over time.

    `threshold_s`: how long relists may be stuck.
    """

    def __init__(
        self, ailments: tuple[Ailment, ...] = (), since_s: float = 0.0, threshold_s: float = THRESHOLDS_S[GENERIC]
    ) -> None:
        self._since_s = since_s
        self._pleg_stuck = pleg_stuck(threshold_s)
        self._spans = [
            (each.part, since_s + (threshold_s if each.part == PLEG else 0.0), since_s + each.for_s)
            for each in ailments
        ]

    def __bool__(self) -> bool:
        return bool(self._spans)

    def _now(self, now: float) -> list[str]:
        return [part for part, begin_s, end_s in self._spans if begin_s <= now + 1e-6 < end_s]

    def reasons(self, now: float) -> tuple[str, ...]:
        """Return why the node is not Ready, in Kubernetes' order; empty: it is Ready."""
        parts = self._now(now)
        texts = ((RUNTIME, RUNTIME_DOWN), (PLEG, self._pleg_stuck), (NETWORK, NETWORK_DOWN))
        return tuple(text for part, text in texts if part in parts)

    def holds_back(self, now: float) -> bool:
        """Whether the kubelet admits no new pods now, because it would not learn what becomes of them."""
        return any(part in (RUNTIME, PLEG) for part in self._now(now))

    def next_s(self, now: float) -> float | None:
        """Return when the health changes next by itself; None: never."""
        edges = [at_s for _, begin_s, end_s in self._spans for at_s in (begin_s, end_s)]
        return min((at_s for at_s in edges if now + 1e-6 < at_s < math.inf), default=None)
