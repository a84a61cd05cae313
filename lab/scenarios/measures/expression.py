"""Measures that a scenario states itself, as expressions in CEL. Pure.

    measure placed = pods.filter(p, p.status.phase == "Running").size()
    measure bound_p99 unit=s = created.pods.map(p, has(p.at.bound), p.at.bound - p.at.created).quantile(0.99)
    measure failed_binds better=lower = lines["sched.bind_result"].filter(l, l.data.outcome != "ok").size()
    measure spare_nodes                                        a package's, by its name

The expression is evaluated once, when the scenario has ended. `recorded` describes its variables, and the
fields that each object has besides its document. Functions are those of Kubernetes' libraries, and for a
list of numbers `quantile(q)` (nearest rank), `mean()` and `stddev()` (of the population, not of a
sample). For an empty list they are null; the measure then has no value.

Source: google/cel-spec doc/langdef.md; kubernetes/kubernetes
staging/src/k8s.io/apiserver/pkg/cel/environment/base.go.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from typing import Any, Final

from lab.scenarios.measures import quantile
from lab.scenarios.measures.field_paths import field_mistakes
from lab.scenarios.measures.register import DIRECTIONS, NAME, Measure, find
from services.api.resources import resources
from services.cel.declarations import Library, on
from services.cel.environment import KUBERNETES, CompileError, Environment, EvaluationError, Program
from services.cel.syntax import Call, Ident, Literal, Node, Select
from services.cel.types import BOOL, DOUBLE, DURATION, DYN, INT, STRING, UINT, Type, list_of, map_of
from services.cel.values import Duration, Optional

FORM: Final = "want: measure NAME [unit=UNIT] [better=lower|higher|none] [relevant=NUMBER] [meaning=TEXT] = EXPRESSION"
COST_LIMIT: Final = 20_000_000
"""Cost limit of one evaluation in CEL's units: some seconds. 10,000 pods with six versions each take 2,000,000."""
CREATED: Final = "created."
LINES: Final = "lines"
SECONDS: Final = "seconds"
VERSIONS: Final = "versions"
_HEAD: Final = re.compile(
    r"""(?P<name>[^\s=]+)(?P<options>(?:\s+[a-z]+=(?:"[^"]*"|'[^']*'|[^\s"']\S*))*)(?:\s+=\s*(?P<expression>.*))?"""
)
_OPTION: Final = re.compile(r"""([a-z]+)=("[^"]*"|'[^']*'|\S+)""")
_OPTIONS: Final = ("unit", "better", "relevant", "meaning")
_RESULTS: Final = (INT, UINT, DOUBLE, BOOL, DURATION, DYN)
_CONTAINER: Final = " (in container '')"
_UNDECLARED: Final = re.compile(r"undeclared reference to '([^']+)'")


def _numbers(items: Sequence[Any]) -> list[float]:
    for each in items:
        if isinstance(each, bool) or not isinstance(each, int | float):
            raise EvaluationError(f"want a list of numbers, one is {each!r}")
    return [float(each) for each in items]


def _quantile(items: Sequence[Any], q: float) -> float | None:
    if not 0 <= q <= 1:
        raise EvaluationError(f"quantile({q:g}): want 0 to 1")
    return quantile(_numbers(items), q)


def mean(values: Sequence[float]) -> float | None:
    """Return the arithmetic mean, or None if there are no values."""
    return math.fsum(values) / len(values) if values else None


def stddev(values: Sequence[float]) -> float | None:
    """Return the standard deviation of a whole population, or None if there are no values."""
    if (middle := mean(values)) is None:
        return None
    return math.sqrt(math.fsum((value - middle) ** 2 for value in values) / len(values))


def _of_numbers(
    name: str, figure: Callable[[Sequence[float]], float | None]
) -> Callable[[Sequence[Any]], float | None]:
    """Return the function of a list. It raises EvaluationError where the numbers have none: a sum above all doubles."""

    def call(items: Sequence[Any]) -> float | None:
        try:
            return figure(_numbers(items))
        except (OverflowError, ValueError) as error:
            raise error if isinstance(error, EvaluationError) else EvaluationError(f"{name}(): {error}") from None

    return call


_NUMBERS: Final = list_of(DYN)
STATISTICS: Final = Library(
    {
        "quantile": (on("list_quantile_double", (_NUMBERS, DOUBLE), DYN, _quantile),),
        "mean": (on("list_mean", (_NUMBERS,), DYN, _of_numbers("mean", mean)),),
        "stddev": (on("list_stddev", (_NUMBERS,), DYN, _of_numbers("stddev", stddev)),),
    }
)


@cache
def plurals() -> Mapping[str, str]:
    """Return the wire names of the resources that expressions can name, by plural."""
    return {each.plural: name for name, each in resources().items()}


@cache
def _variables() -> Mapping[str, Type]:
    names = [*plurals(), *(CREATED + plural for plural in plurals())]
    return {**dict.fromkeys(names, list_of(DYN)), LINES: map_of(STRING, list_of(DYN)), SECONDS: DOUBLE}


@cache
def _environment() -> Environment:
    return Environment(_variables(), libraries=(*KUBERNETES, STATISTICS), cost_limit=COST_LIMIT)


@dataclass(frozen=True)
class Expression:
    """A compiled expression, and what it reads.

    `at_end`: plurals of resources read as they are at the end; `created`: plurals of resources of which all
    objects ever created are read; `has_versions`: whether it reads versions; `events`: events of the event
    log.
    """

    text: str
    program: Program
    at_end: frozenset[str]
    created: frozenset[str]
    has_versions: bool
    events: frozenset[str]

    def value(self, variables: Mapping[str, Any]) -> float | None:
        """Evaluate the expression; return None where there is no value. Raises: EvaluationError."""
        cel_value = self.program.evaluate({**dict.fromkeys(_variables()), **variables})
        if isinstance(cel_value, Optional):
            cel_value = cel_value.value if cel_value.present else None
        if cel_value is None:
            return None
        if isinstance(cel_value, Duration):
            return cel_value.nanos / 1e9
        if not isinstance(cel_value, int | float):
            raise EvaluationError(f"yields {type(cel_value).__name__}, want a number")
        number = float(cel_value)
        if not math.isfinite(number):
            raise EvaluationError(f"yields {number}, want a number that has an end")
        return number


def _nodes(node: Any) -> Iterator[Node]:
    if isinstance(node, Node):
        yield node
        for part in fields(node):
            yield from _nodes(getattr(node, part.name))
    elif isinstance(node, list | tuple):
        for part in node:
            yield from _nodes(part)


@lru_cache(maxsize=1024)
def compile_expression(text: str) -> Expression:
    """Compile an expression. Raises: ValueError that names the word and what is legal."""
    try:
        program = _environment().compile_anew(text)
    except CompileError as error:
        raise ValueError(_why(error)) from None
    except EvaluationError as error:
        raise ValueError(str(error)) from None
    if program.type not in _RESULTS and program.type.name != "optional_type":
        raise ValueError(f"it yields {program.type}, want a number: int, double, bool or duration")
    if mistakes := [f"column {at + 1}: {message}" for at, message in field_mistakes(program.tree)]:
        raise ValueError("; ".join(mistakes))
    at_end = frozenset(name for name in program.names if name in plurals())
    created = frozenset(name.removeprefix(CREATED) for name in program.names if name.startswith(CREATED))
    nodes = list(_nodes(program.tree))
    has_versions = any(isinstance(node, Select) and node.field == VERSIONS for node in nodes)
    return Expression(text, program, at_end, created, has_versions, _events(nodes))


def _events(nodes: list[Node]) -> frozenset[str]:
    """Return which events are read. Raises: ValueError: what is kept of a log must be known before it is written."""
    events: set[str] = set()
    uses = sum(isinstance(node, Ident) and node.name == LINES for node in nodes)
    for node in nodes:
        match node:
            case Call(function="_[_]", args=[Ident(name="lines"), Literal(value=str(event))]):
                uses -= 1
                events.add(event)
    if uses:
        raise ValueError('lines: want lines["EVENT"], the name of an event as it stands in the event log')
    return frozenset(events)


@cache
def _known_words() -> tuple[str, ...]:
    """Return variables, functions and macros."""
    libraries = (*KUBERNETES, STATISTICS)
    functions = {name for each in libraries for name in each.functions if name[0].isalpha()}
    macros = {name for each in libraries for name, _, _ in each.macros}
    return tuple(dict.fromkeys([*_variables(), *sorted(functions | macros)]))


def _why(error: CompileError) -> str:
    """Return all reasons on one line, each with its column and, for a name that is none, those near it."""
    reasons: list[str] = []
    for issue in error.issues:
        reason = f"column {issue.at + 1}: {issue.message.removesuffix(_CONTAINER)}"
        if (match := _UNDECLARED.match(issue.message)) is not None:
            near = difflib.get_close_matches(match[1], _known_words(), n=3)
            reason += f"; did you mean {', '.join(near)}?" if near else ""
        reasons.append(reason)
    return "; ".join(reasons)


def parse_measure(text: str) -> tuple[Measure, Expression | None]:
    """Parse the text after the word `measure`; without an expression it names a package's measure. Raises:
    ValueError that says what was expected.
    """
    match = _HEAD.fullmatch(text.strip())
    if match is None:
        raise ValueError(FORM)
    name, expression = match["name"], match["expression"]
    if NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a measure; want lower-case letters, digits and _, a letter first")
    if find(name) is not None:
        raise ValueError(f"{name} is a measure that comes with keplab; want a name of its own")
    options = {key: value.strip("\"'") for key, value in _OPTION.findall(match["options"])}
    for key in options:
        if key not in _OPTIONS:
            raise ValueError(f"measure {name}: no option {key!r}; want {', '.join(_OPTIONS)}")
    better = options.get("better", "none")
    if better not in DIRECTIONS:
        raise ValueError(f"measure {name}: better={better}: want {', '.join(DIRECTIONS)}")
    relevant = _relevant(name, options.get("relevant", ""), options.get("unit", ""))
    if expression is None:
        if options:
            raise ValueError(f"measure {name}: options belong to an expression; {FORM}")
        return Measure(name, "", name, "", "package"), None
    if not expression.strip():
        raise ValueError(f"measure {name}: {FORM}")
    try:
        compiled_expression = compile_expression(expression.strip())
    except ValueError as error:
        raise ValueError(f"measure {name}: {error}") from None
    meaning = options.get("meaning", compiled_expression.text)
    measure = Measure(name, options.get("unit", ""), meaning, DIRECTIONS[better], "scenario", relevant=relevant)
    return measure, compiled_expression


def _relevant(name: str, text: str, unit: str) -> float:
    """Return the least difference that matters: a number, the unit behind it if the measure has one. Raises:
    ValueError."""
    if not text:
        return 0.0
    number = text.removesuffix(unit)
    try:
        least_difference = float(number)
    except ValueError:
        least_difference = math.nan
    if not (math.isfinite(least_difference) and least_difference > 0):
        form = f"NUMBER or NUMBER{unit}" if unit else "NUMBER"
        raise ValueError(f"measure {name}: relevant={text}: want {form} above 0, the least difference that matters")
    return least_difference
