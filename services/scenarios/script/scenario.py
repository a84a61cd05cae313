"""Read a scenario: lines that say what is there, what happens and what must then be so.

    # A comment. The first comment block is the scenario's title and explanation.
    set kubelet.on_reject=unbind          a switch's value; arms and --set override it
    set scheduler: PodUnbinding=false     what one process, or all of a kind, has it set to, whatever the others have;
                                          later it is the act `restart scheduler with PodUnbinding=true`
    limit 120s                            no scenario outlives this
    latency sandbox=constant:0.3          a stage of the kubelet's latency model
    nodes n1..n3 cpu=16 numa=2x8 …        what is there before the first act
    nodes n4 cpu=16 drivers=cards.yaml    a node with a DRA driver that a file beside the scenario describes
    schedulers 2 [elect=off]              replicas of the scheduler; one leads, or all work
    scheduler second                      a scheduler beside it, for pods with that schedulerName
    scheduler-config two.yaml             the scheduler's KubeSchedulerConfiguration, a file beside the scenario
    stages pod-fast.yaml                  KWOK Stages that move pods and nodes, a file beside the scenario
    measure placed = pods.filter(p, has(p.spec.nodeName)).size()     a measure of its own (measures.expression)
    window 5s                             how long changes are kept for watches to resume; later ones begin anew
    replicaset web replicas=1 cpu=6       an act; everything from the first act on runs in order
    expect within 5s count pods phase=Running == 1

Words are split as a shell splits them; `name=value` words are options. Pure: text in, values out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import PurePath

from services.runtime.components import Schedulers
from services.scenarios.script.expectation import Expectation, parse_expectation, words_of

_OF_SCHEDULERS = ("scheduler", "schedulers", "scheduler-config")
SETUP = frozenset(("set", "limit", "hosts", "latency", "node", "nodes", "stages", "window", "measure", *_OF_SCHEDULERS))


class ScriptError(ValueError):
    """A scenario that cannot be read; the message names file, line and what was expected there."""


@dataclass(frozen=True)
class Step:
    """One line that acts or expects. `rest` is the text after the verb, unsplit."""

    line: int
    text: str
    verb: str
    args: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    rest: str = ""
    expectation: Expectation | None = None


@dataclass(frozen=True)
class NodeLine:
    """Nodes declared by one line: their names and the options they share."""

    line: int
    names: tuple[str, ...]
    options: Mapping[str, str]


@dataclass(frozen=True)
class Scenario:
    """A scenario as read. `title` is the first comment line, `about` the rest of that block."""

    name: str
    path: str
    title: str
    about: str
    switches: tuple[str, ...] = ()
    latencies: tuple[str, ...] = ()
    nodes: tuple[NodeLine, ...] = ()
    steps: tuple[Step, ...] = ()
    limit_s: float = 600.0
    schedulers: Schedulers = field(default_factory=Schedulers)
    stages: tuple[str, ...] = ()
    hosts: int = 0
    """Kubelet processes that the nodes are dealt out to; 0: at most three."""
    own_switches: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """By process or component, what is set there otherwise than everywhere."""
    window_s: float | None = None
    """Seconds for which the API server keeps changes; None: as ever."""
    measures: tuple[tuple[int, str], ...] = ()
    """What is measured besides what every run measures: the line's number, and what follows `measure`."""

    @property
    def has_skew(self) -> bool:
        """Whether some process has, from the beginning or later, a switch set otherwise than the others."""
        return bool(self.own_switches) or any(step.verb == "restart" and step.options for step in self.steps)


NAMES_MAX = 20_000
"""How many names one range may stand for: as many nodes as `keplab up` starts."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_RANGE = re.compile(r"([a-z][a-z0-9-]*?)(\d+)\.\.([a-z][a-z0-9-]*?)(\d+)")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Return seconds of `200ms`, `5s`, `2m` or `1h`. Raises: ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration; want for example 200ms, 5s or 2m")
    return float(match[1]) * _UNIT_S[match[2]]


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names of `n1`, `n1,n2` or `n1..n40`. Raises: ValueError."""
    names: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None and ".." in part:
            raise ValueError(f"{part!r} is no range; want for example n1..n40")
        if match is None:
            names.append(part)
            continue
        stem, first, stem_again, last = match.groups()
        if stem != stem_again or int(first) > int(last):
            raise ValueError(f"{part!r} is no range; want for example n1..n40")
        if int(last) - int(first) >= NAMES_MAX:
            raise ValueError(f"{part!r} is {int(last) - int(first) + 1} names; want at most {NAMES_MAX}")
        width = len(first) if first.startswith("0") else 0
        names += [f"{stem}{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    return tuple(names)


def _count(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d*", text):
        raise ValueError(f"{text!r}: want a number from 1")
    return int(text)


def _split(rest: str) -> tuple[tuple[str, ...], dict[str, str]]:
    args: list[str] = []
    options: dict[str, str] = {}
    for word in words_of(rest):
        name, sign, value = word.partition("=")
        if sign and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.\-/]*", name):
            if name in options:
                raise ValueError(f"option {name} is given twice")
            options[name] = value
        else:
            args.append(word)
    return tuple(args), options


def _comment_block(lines: list[str]) -> tuple[str, str]:
    block = [line.lstrip("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
    return (block[0] if block else ""), "\n".join(block[1:]).strip()


def parse_scenario(text: str, path: str, verbs: frozenset[str]) -> Scenario:
    """Return the scenario. `verbs` are the acts that exist. Raises: ScriptError naming file and line."""
    lines = text.splitlines()
    read, steps = Scenario(PurePath(path).stem, path, *_comment_block(lines)), []
    for number, raw in enumerate(lines, 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        verb, rest = (*line.split(None, 1), "")[:2]
        try:
            if verb not in SETUP:
                steps.append(_step(number, line, verb, rest, verbs))
            elif steps:
                raise ValueError(f"{verb!r} belongs before the first act")
            else:
                read = _set_up(read, number, verb, rest)
        except ValueError as error:
            raise ScriptError(f"{path}:{number}: {error}") from None
    if not steps:
        raise ScriptError(f"{path}: nothing happens in this scenario: no act and no expectation")
    seen: dict[str, int] = {}
    for declared in read.nodes:
        for name in declared.names:
            if name in seen:
                raise ScriptError(f"{path}:{declared.line}: node {name} is already declared on line {seen[name]}")
            seen[name] = declared.line
    return replace(read, steps=tuple(steps))


def _step(number: int, line: str, verb: str, rest: str, verbs: frozenset[str]) -> Step:
    if verb == "expect":
        return Step(number, line, verb, rest=rest, expectation=parse_expectation(rest, parse_duration))
    if verb not in verbs:
        raise ValueError(f"no verb {verb!r}; there are: {', '.join(sorted(verbs | SETUP | {'expect'}))}")
    args, options = _split(rest) if verb != "as" else ((), {})
    return Step(number, line, verb, args, options, rest)


def _set_up(read: Scenario, number: int, verb: str, rest: str) -> Scenario:
    words = tuple(words_of(rest)) if verb in ("set", "latency", "stages") else ()
    folder = PurePath(read.path).parent
    match verb:
        case "set" if words and words[0].endswith(":"):
            return replace(read, own_switches=(*read.own_switches, (words[0][:-1], words[1:])))
        case "set":
            return replace(read, switches=read.switches + words)
        case "window":
            return replace(read, window_s=parse_duration(rest))
        case "measure":
            return replace(read, measures=(*read.measures, (number, rest)))
        case "limit":
            return replace(read, limit_s=parse_duration(rest))
        case "hosts":
            return replace(read, hosts=_count(rest))
        case "latency":
            return replace(read, latencies=read.latencies + words)
        case "scheduler-config":
            if not rest:
                raise ValueError("want a file beside the scenario: scheduler-config two.yaml")
            return replace(read, schedulers=replace(read.schedulers, config=str(folder / rest)))
        case "stages":
            if not rest:
                raise ValueError("want files beside the scenario: stages pod-fast.yaml")
            return replace(read, stages=(*read.stages, *(str(folder / word) for word in words)))
    args, options = _split(rest)
    if verb in ("schedulers", "scheduler"):
        return replace(read, schedulers=_schedulers(read.schedulers, verb, args, options))
    if len(args) != 1:
        raise ValueError("want one name or range, then options: nodes n1..n3 cpu=16")
    return replace(read, nodes=(*read.nodes, NodeLine(number, parse_names(args[0]), options)))


def _schedulers(known: Schedulers, verb: str, args: tuple[str, ...], options: Mapping[str, str]) -> Schedulers:
    if len(args) != 1:
        raise ValueError("want a number: schedulers 2" if verb == "schedulers" else "want a name: scheduler second")
    if verb == "scheduler":
        return replace(known, others=(*known.others, args[0]))
    elect = options.get("elect", "on")
    if elect not in ("on", "off") or not args[0].isdecimal():
        raise ValueError(f"want for example schedulers 2 or schedulers 2 elect=off, not {' '.join(args)} elect={elect}")
    return replace(known, replicas=int(args[0]), elect=elect == "on")
