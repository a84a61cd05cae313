"""Environments that expressions are compiled in, and the compiled programs. Pure.

    program = Environment({"self": types.DYN}).compile("self.replicas <= self.maxReplicas")
    program.evaluate({"self": {"replicas": 3, "maxReplicas": 5}})

`KUBERNETES` are the libraries that every expression of the API server has.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/cel/environment/base.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from services.cel import costs, faults, types
from services.cel.checker import Checked, Declarations, Fields, check
from services.cel.costs import Range, Sizes
from services.cel.declarations import Library, Message, Overload
from services.cel.evaluator import FIRST, SPENT, CostLimitExceeded, Frame, Planner, Run
from services.cel.libraries import extensions, kubernetes, messages, standard
from services.cel.libraries.strings import strings
from services.cel.literals import literal_issues
from services.cel.syntax import CompileError, Macro, Node, parse
from services.cel.types import Type
from services.cel.values import EvaluationError, InternalError, well_formed

KUBERNETES: Final = (
    standard.LIBRARY,
    messages.MESSAGES,
    strings(2),
    extensions.OPTIONALS,
    extensions.SETS,
    extensions.TWO_VARIABLES,
    kubernetes.QUANTITIES,
    kubernetes.VERSIONS,
    kubernetes.ADDRESSES,
    kubernetes.URLS,
    kubernetes.LISTS,
    kubernetes.REGEX,
    kubernetes.FORMATS,
)
COST_LIMIT: Final = 1_000_000
CANCELLED: Final = "operation cancelled: actual cost limit exceeded"


def _unknown(_: tuple[str, ...]) -> Range | None:
    return None


class Program:
    """A compiled expression. `type` is the type of its result; `cost` its estimated cost, least and most.

    An evaluation raises no other exception than EvaluationError.
    """

    def __init__(self, text: str, checked: Checked, declared: Declarations, cost: Range, limit: int) -> None:
        self._text = text
        self.type: Type = checked.types[checked.root]
        self.cost = cost
        self._limit = limit
        self._names = tuple(declared.variables)
        self._checked, self._declared = checked, declared
        self._tracked: tuple[Run, int] | None = None
        planner = Planner(checked, declared, tracked=False)
        self._run = planner.plan(checked.root)
        self._places = planner.size - FIRST - len(self._names)
        # What is far from what may be spent is run without counting. The estimate takes reading a text for one unit
        # in some functions, where it may be a thousand: text in expressions has 10 KiB at most.
        self._counts = cost.most > limit // 1024

    @property
    def tree(self) -> Node:
        """The parsed tree, macros expanded."""
        return self._checked.root

    @property
    def names(self) -> frozenset[str]:
        """The variables and types that the expression names."""
        return frozenset(self._checked.names.values())

    def evaluate(self, variables: Mapping[str, Any]) -> Any:
        """Return the value. Raises: EvaluationError, also when the evaluation exceeds its cost limit."""
        return self.evaluate_in([variables[name] for name in self._names])

    def evaluate_in(self, inputs: Sequence[Any]) -> Any:
        """Return the value, given the variables in the order of their declaration. Raises: EvaluationError."""
        if self._counts:
            return self.evaluate_with_cost(inputs)[0]
        try:
            return self._run([0, 0, *inputs, *(None,) * self._places])
        except EvaluationError:
            raise
        except Exception as error:
            raise _internal(self._text, error) from error

    def evaluate_with_cost(self, inputs: Sequence[Any]) -> tuple[Any, int]:
        """Return the value and its cost. Raises: EvaluationError."""
        value, error, cost = self._outcome(inputs)
        if error is not None:
            raise error from None
        return value, cost

    def outcome(self, variables: Mapping[str, Any]) -> tuple[Any, EvaluationError | None, int]:
        """Return the value or the error, and the cost of either."""
        return self._outcome([variables[name] for name in self._names])

    def _outcome(self, inputs: Sequence[Any]) -> tuple[Any, EvaluationError | None, int]:
        frame: Frame = [0, self._limit, *inputs]
        try:
            if self._tracked is None:
                planner = Planner(self._checked, self._declared, tracked=True)
                self._tracked = planner.plan(self._checked.root), planner.size - FIRST - len(self._names)
            run, places = self._tracked
            frame += (None,) * places
            return run(frame), None, frame[SPENT]
        except EvaluationError as error:
            return None, error, frame[SPENT]
        except CostLimitExceeded:
            return None, EvaluationError(CANCELLED), frame[SPENT]
        except Exception as error:
            return None, _internal(self._text, error), frame[SPENT]


def _internal(text: str, error: Exception) -> InternalError:
    """Report the exception and return the error that the evaluation ends with."""
    faults.report(f"the expression {text}", error)
    return InternalError(f"internal error: {faults.fault_text(error)}")


class Environment:
    """Variables with their types, fields of objects, and libraries.

    `cost_limit`: the cost limit of one evaluation. `sizes`: possible sizes of what variables contain, for the
    estimate.
    """

    def __init__(
        self,
        variables: Mapping[str, Type],
        *,
        objects: Mapping[str, Fields] | None = None,
        libraries: Sequence[Library] = KUBERNETES,
        cost_limit: int = COST_LIMIT,
        sizes: Sizes = _unknown,
    ) -> None:
        functions: dict[str, tuple[Overload, ...]] = {}
        macros: dict[tuple[str, int, bool], Macro] = {}
        names: dict[str, Type] = {}
        message_types: dict[str, Message] = {}
        for library in libraries:
            for name, overloads in library.functions.items():
                functions[name] = (*functions.get(name, ()), *overloads)
            macros.update(library.macros)
            names.update(library.types)
            message_types.update(library.messages)
        self._macros = macros
        self._declared = Declarations(dict(variables), functions, objects or {}, names, message_types)
        self._limit, self._sizes = cost_limit, sizes
        self.compile: Callable[[str], Program] = lru_cache(maxsize=1024)(self.compile_anew)

    def compile_anew(self, expression: str) -> Program:
        """Compile the program without a cache; `compile` caches. Raises: CompileError, EvaluationError."""
        try:
            return self._compile(expression)
        except (CompileError, EvaluationError):
            raise
        except Exception as error:
            raise _internal(expression, error) from error

    def _compile(self, expression: str) -> Program:
        expression = well_formed(expression)
        root = parse(expression, self._macros)
        checked, issues = check(root, self._declared)
        issues = issues or literal_issues(checked)
        if issues:
            raise CompileError(expression, issues)
        cost = costs.estimate(checked, self._sizes)
        return Program(expression, checked, self._declared, cost, self._limit)


__all__ = ["KUBERNETES", "CompileError", "Environment", "EvaluationError", "Program", "types"]
