"""Parser of a scenario: lines that say what exists, what happens, and what must hold afterwards.

    # A comment. The first comment block is the scenario's title and explanation.
    set kubelet.on_reject=unbind
    nodes n1..n3 cpu=16 numa=2x8
    replicaset web replicas=1 cpu=6       an act; everything from the first act on runs in order
    expect within 5s count pods phase=Running == 1

Words are split as by a shell; `name=value` words are options. The syntax of a line is declared where it
is performed: settings here, verbs in `verbs.py` and `fault_verbs.py`, expectations in `expectation.py`.
Pure: text in, values out.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import PurePath
from typing import Any, Final

from kubelet.runtime.latency import LatencyModel
from lab.scenarios.script import blocks, nodes
from lab.scenarios.script.blocks import Block
from lab.scenarios.script.declaration import FILE, Argument, Declaration, Option, split_docstring
from lab.scenarios.script.expectation import Expectation, parse_expectation
from lab.scenarios.script.value_types import COUNT, DURATION, NAME, NODES, PAIRS, TEXT, choice, suggestion, words_of
from services.api.switches import Switches
from services.kwok.definitions import choose_kinds
from services.runtime.components import Schedulers


class ScriptError(ValueError):
    """A scenario that cannot be read; the message names file, line and what was expected there."""


@dataclass(frozen=True)
class Step:
    """One line. `rest`: the text after the first word, unsplit; `values`: parsed options and arguments; `body`:
    the text after the arguments where the line takes text; `block`: the content of its block.
    """

    line: int
    text: str
    verb: str
    args: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    rest: str = ""
    expectation: Expectation | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""
    block: Block | None = None


@dataclass(frozen=True)
class NodeLine:
    """Nodes declared by one line: their names and the options they share. `fields`: further fields of the node
    definition.
    """

    line: int
    names: tuple[str, ...]
    options: Mapping[str, str]
    fields: Mapping[str, Any] = field(default_factory=dict)
    block: Block | None = None
    """Block that contains the fields."""


@dataclass(frozen=True)
class Begin:
    """Snapshot that the mesh begins from: its file, the treatment of its pods, its format if stated, and options
    of that format.
    """

    line: int
    file: str
    pods: str
    format: str = ""
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Scenario:
    """A parsed scenario. `title` is the first comment line, `about` the rest of that block."""

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
    enable_crds: tuple[str, ...] = ()
    """KWOK kinds of which objects are allowed."""
    hosts: int = 0
    """Number of kubelet processes among which the nodes are distributed; 0: at most three."""
    own_switches: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Switches that differ for one process or component, by its name."""
    window_s: float | None = None
    """Seconds for which the API server keeps changes; None: the default window."""
    files: Mapping[str, Block] = field(default_factory=dict)
    """Files inside the scenario instead of beside it, by path."""
    begin: Begin | None = None
    """Snapshot that the mesh begins from; None: it begins empty."""
    operations: tuple[Any, ...] = ()
    """KEP-140 operations that the scenario was converted from; () for one in keplab's own language."""
    measures: tuple[tuple[int, str], ...] = ()
    """Measures in addition to those of every run: the line's number, and the text after `measure`."""

    @property
    def has_skew(self) -> bool:
        """Whether some process, from the beginning or later, has a switch set differently from the others."""
        return bool(self.own_switches) or any(step.verb == "restart" and step.options for step in self.steps)

    def beside(self, name: str) -> str:
        """Return the path of a file beside the scenario."""
        return str(PurePath(self.path).parent / name)


@dataclass(frozen=True)
class Setting(Declaration):
    """A line about the state before the first act: `change` returns the scenario with it."""

    change: Callable[[Scenario, Step], Scenario] = lambda read, step: read


SETTINGS: Final[dict[str, Setting]] = {}
"""Settings by name. A new setting is one more function below."""

TOPIC: Final = "Settings"
Change = Callable[[Scenario, Step], Scenario]


def setting(*arguments: Argument, name: str = "", **declared: Any) -> Callable[[Change], Change]:
    """Make a function the setting of its name; its docstring is the text of the reference."""

    def register(change: Change) -> Change:
        meaning, notes = split_docstring(change.__doc__)
        called = name or change.__name__.replace("_", "-")
        notes = declared.pop("notes", notes)
        SETTINGS[called] = Setting(called, TOPIC, meaning, notes, arguments, change=change, **declared)
        return change

    return register


_SWITCH = Argument("SWITCH=VALUE", "a switch or feature gate (`keplab switches`)", count="some")


@setting(text=_SWITCH, name="set", form="set [COMPONENT:] SWITCH=VALUE …")
def set_switches(read: Scenario, step: Step) -> Scenario:
    """Set a switch or feature gate, everywhere or in one component or process.

    Arms of a comparison and `--set` override it, except where it is set for one process.
    `restart COMPONENT with SWITCH=VALUE` changes the value in one process later.
    """
    words = tuple(words_of(step.body))
    component, assignments = (words[0], words[1:]) if words and words[0].endswith(":") else ("", words)
    if not assignments:
        raise ValueError(f"want: set {component or '[COMPONENT:]'} SWITCH=VALUE …")
    if not component and "=" not in assignments[0] and len(assignments) > 1:
        what = f"to set it in one component or process, write `set {assignments[0]}: {' '.join(assignments[1:])}`"
        raise ValueError(f"set {assignments[0]!r}: want SWITCH=VALUE; {what}")
    Switches.parse(assignments)
    if component:
        return replace(read, own_switches=(*read.own_switches, (component[:-1], assignments)))
    return replace(read, switches=read.switches + assignments)


@setting(Argument("DURATION", "how long", type=DURATION))
def limit(read: Scenario, step: Step) -> Scenario:
    """End the scenario with an error when it runs for longer; default 600 s."""
    return replace(read, limit_s=step.values["DURATION"])


@setting(Argument("DURATION", "how long", type=DURATION))
def window(read: Scenario, step: Step) -> Scenario:
    """Set for how long the API server keeps changes for watches to resume; later ones are Expired (410) and list."""
    return replace(read, window_s=step.values["DURATION"])


@setting(Argument("COUNT", "how many", type=COUNT))
def hosts(read: Scenario, step: Step) -> Scenario:
    """Distribute the nodes among that many kubelet processes; default: at most three."""
    return replace(read, hosts=step.values["COUNT"])


@setting(text=Argument("STAGE=DISTRIBUTION", "a stage of a pod's life on a node and how long it takes", count="some"))
def latency(read: Scenario, step: Step) -> Scenario:
    """Set the time that a stage of a pod's life on a node takes.

    Stages: worker, mount, sandbox, image, create, stop, resize, relist, attach, mount-claim. Distributions,
    in seconds: `constant:S`, `uniform:MIN,MAX`, `normal:MEAN,SD`, `lognormal:MEDIAN,SIGMA`,
    `pareto:MINIMUM,ALPHA`, `empirical:S,S,…`.
    """
    words = tuple(words_of(step.body))
    LatencyModel.parse(words, seed=0)
    return replace(read, latencies=read.latencies + words)


_FILE = Argument(FILE, "a file beside the scenario")


@setting(
    Argument(FILE, "a snapshot or recording of another tool, beside the scenario"),
    options=(
        Option(
            "pods",
            choice("as-they-are", "pending"),
            "whether pods keep their nodes and statuses, or are scheduled anew",
            default="as-they-are",
        ),
        Option("format", NAME, "its format", otherwise="known by its content"),
        Option("options", PAIRS, "what this format alone understands, by name", otherwise="none"),
    ),
)
def begin(read: Scenario, step: Step) -> Scenario:
    """Begin from a snapshot, with its objects and nodes.

    Objects keep their uids and creation times. Pods that run have been running since the time in the
    snapshot; with `pods=pending` they wait for the scheduler. For simulations only: a mesh of processes gets
    a snapshot by `keplab import`.
    """
    if read.begin is not None:
        raise ValueError(f"the mesh begins from {read.begin.file} already (line {read.begin.line})")
    values = step.values
    options = tuple(sorted((values.get("options") or {}).items()))
    return replace(read, begin=Begin(step.line, values[FILE], values["pods"], values.get("format") or "", options))


@setting(Argument(FILE, "files beside the scenario", count="some"), block="KWOK Stages")
def stages(read: Scenario, step: Step) -> Scenario:
    """Use KWOK Stages to move pods and nodes (docs/how-to/stages.md)."""
    read, names = _files_of(read, step, step.values.get(FILE) or ())
    return replace(read, stages=(*read.stages, *names))


@setting(Argument(FILE, "files beside the scenario", count="some"), block="KWOK documents")
def kwok(read: Scenario, step: Step) -> Scenario:
    """Load KWOK's ResourceUsages, Metrics, Logs and its other kinds, Stages included (docs/how-to/kwok-kinds.md)."""
    return stages(read, step)


@setting(Argument("KIND", "a kind of KWOK's, or `all`", count="some"))
def enable_crds(read: Scenario, step: Step) -> Scenario:
    """Serve KWOK's kinds: their objects take effect as soon as they are created (docs/how-to/kwok-kinds.md)."""
    return replace(read, enable_crds=choose_kinds((*read.enable_crds, *step.args)))


@setting(_FILE, block="a KubeSchedulerConfiguration")
def scheduler_config(read: Scenario, step: Step) -> Scenario:
    """Give the default scheduler a KubeSchedulerConfiguration."""
    read, (name,) = _files_of(read, step, (step.values.get(FILE),))
    return replace(read, schedulers=replace(read.schedulers, config=name))


def _files_of(read: Scenario, step: Step, names: Iterable[str | None]) -> tuple[Scenario, tuple[str, ...]]:
    """Return the paths of a line's files; its block is one that stands inside the scenario."""
    if step.block is None:
        return read, tuple(read.beside(str(name)) for name in names)
    path = read.beside(f"{PurePath(read.path).stem}-line-{step.line}.yaml")
    return replace(read, files={**read.files, path: step.block}), (path,)


@setting(Argument("NAME", "the name that other lines use"), name="file", block="the file's text")
def file_inside(read: Scenario, step: Step) -> Scenario:
    """Define a file inside the scenario, in place of one beside it.

    Every line that takes a file beside the scenario finds it by that name: `apply`, `stages`,
    `scheduler-config`, `static-pod`, `nodes … drivers=`.
    """
    if step.block is None:
        raise ValueError("want a block: file NAME <<EOF, its lines, and EOF alone")
    path = read.beside(step.values["NAME"])
    if path in read.files:
        raise ValueError(f"file {step.values['NAME']} is already there from line {read.files[path].first_line - 1} on")
    return replace(read, files={**read.files, path: step.block})


_MEASURE_OPTIONS = (
    Option("unit", NAME, "its unit: `s`", otherwise="none"),
    Option("better", choice("lower", "higher", "none"), "which direction is better", otherwise="none"),
    Option("relevant", TEXT, "the least difference that matters, in its unit: `0.5` or `0.5s`", otherwise="any"),
    Option("meaning", TEXT, "what it says, in a sentence"),
)


@setting(
    text=Argument("NAME", "the measure's name"),
    options=_MEASURE_OPTIONS,
    form="measure NAME [unit=UNIT] [better=lower|higher|none] [relevant=NUMBER] [meaning=TEXT] [= EXPRESSION]",
)
def measure(read: Scenario, step: Step) -> Scenario:
    """State a measure of this scenario: an expression in CEL over objects and events, or a package's by its name.

    It is evaluated once, when the scenario has ended (`lab/scenarios/measures/expression.py`).
    """
    return replace(read, measures=(*read.measures, (step.line, step.body)))


_ELECT = Option("elect", choice("on", "off"), "whether they elect a leader; off: all of them work", default="on")


@setting(Argument("COUNT", "how many", type=None), options=(_ELECT,))
def schedulers(read: Scenario, step: Step) -> Scenario:
    """Run that many replicas of the default scheduler: one leads, or all work."""
    count = step.args[0]
    if not re.fullmatch(r"\d+", count):
        raise ValueError(f"want for example schedulers 2 or schedulers 2 elect=off, not {count}")
    return replace(read, schedulers=replace(read.schedulers, replicas=int(count), elect=step.values["elect"] == "on"))


@setting(Argument("NAME", "the spec.schedulerName of its pods"))
def scheduler(read: Scenario, step: Step) -> Scenario:
    """Run another scheduler beside the default one, for pods with that schedulerName."""
    return replace(read, schedulers=replace(read.schedulers, others=(*read.schedulers.others, step.args[0])))


@setting(
    Argument("NODES", "one name, names with commas or a range", type=NODES),
    options=nodes.NODE_OPTIONS,
    block="fields of a node's definition",
    notes="The same as `nodes`, with the same options.",
    name="node",
)
@setting(
    Argument("NODES", "one name, names with commas or a range", type=NODES),
    options=nodes.NODE_OPTIONS,
    block="fields of a node's definition",
    notes=nodes.NODE_NOTES,
    name="nodes",
)
def declare_nodes(read: Scenario, step: Step) -> Scenario:
    """Declare emulated nodes with identical options."""
    fields: dict[str, Any] = {}
    if step.block is not None:
        for part in blocks.parts_of(step.block):
            if not isinstance(part.document, Mapping) or fields:
                raise blocks.BlockError(f"{part.place()}: want one object with fields of a node's definition")
            if "name" in part.document:
                raise blocks.BlockError(f"{part.place('name')}: name: the line names the nodes, {step.args[0]}")
            fields = dict(part.document)
    return replace(
        read, nodes=(*read.nodes, NodeLine(step.line, step.values["NODES"], step.options, fields, step.block))
    )


def _comment_block(lines: list[str]) -> tuple[str, str]:
    block = [line.lstrip("#").strip() for line in takewhile(lambda line: line.startswith("#"), lines)]
    return (block[0] if block else ""), "\n".join(block[1:]).strip()


_NEWLINE = re.compile(r"\r\n|\r|\n")


def parse_scenario(text: str, path: str, verbs: Mapping[str, Declaration]) -> Scenario:
    """Parse a scenario. `verbs`: the acts that exist. Raises: ScriptError naming file and line."""
    lines = _NEWLINE.split(text)
    read, steps = Scenario(PurePath(path).stem, path, *_comment_block(lines)), []
    for step in _steps(lines, path, verbs):
        try:
            if (setting := SETTINGS.get(step.verb)) is None:
                steps.append(step)
            elif steps:
                raise ValueError(f"{step.verb!r} belongs before the first act, which is on line {steps[0].line}")
            else:
                read = setting.change(read, step)
        except blocks.BlockError as error:
            raise ScriptError(str(error)) from None
        except ValueError as error:
            raise ScriptError(f"{path}:{step.line}: {error}") from None
    if not steps:
        raise ScriptError(f"{path}: nothing happens in this scenario: no act and no expectation")
    seen: dict[str, int] = {}
    for declared in read.nodes:
        for name in declared.names:
            if name in seen:
                raise ScriptError(f"{path}:{declared.line}: node {name} is already declared on line {seen[name]}")
            seen[name] = declared.line
    return replace(read, steps=tuple(steps))


def _steps(lines: list[str], path: str, verbs: Mapping[str, Declaration]) -> Iterator[Step]:
    """Yield every line that is neither empty nor a comment, read by its declaration."""
    number = 0
    while number < len(lines):
        line, number = lines[number].strip(), number + 1
        if not line or line.startswith("#"):
            continue
        at = number
        try:
            statement, word = blocks.opening(line)
            block = None
            if word:
                end = blocks.closing(lines, number, word)
                block = Block(path, "".join(f"{each}\n" for each in lines[number:end]), number + 1)
                number = end + 1
            yield _step(at, line, statement, block, verbs)
        except ValueError as error:
            raise ScriptError(f"{path}:{at}: {error}") from None


def _step(number: int, line: str, statement: str, block: Block | None, verbs: Mapping[str, Declaration]) -> Step:
    verb, rest = (*statement.split(None, 1), "", "")[:2]
    if verb == "expect":
        if block is not None:
            raise ValueError("expect takes no block")
        return Step(number, line, verb, rest=rest, expectation=parse_expectation(rest))
    declared = SETTINGS.get(verb) or verbs.get(verb)
    if declared is None:
        known = sorted({*verbs, *SETTINGS, "expect"})
        raise ValueError(f"no verb {verb!r}{suggestion(verb, known)}; there are: {', '.join(known)}")
    if block is not None and not declared.block:
        raise ValueError(f"{verb} takes no block; those that do: {', '.join(_with_blocks(verbs))}")
    words = declared.read(rest, has_block=block is not None)
    return Step(number, line, verb, words.args, words.options, rest, None, words.values, words.body, block)


def _with_blocks(verbs: Mapping[str, Declaration]) -> list[str]:
    return sorted(name for name, declared in {**SETTINGS, **verbs}.items() if declared.block)
