"""Compilation of a checked tree into a function of the variables' values. Pure.

Every node becomes a closure over a frame. A frame is a list: the spent cost, the cost limit, the variables, and
a place for each name that comprehensions bind. An error is an exception; `&&`, `||`, and the comprehensions
made of them continue if the error does not decide the result.

Source: google/cel-spec doc/langdef.md, "Evaluation"; google/cel-go interpreter/runtimecost.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from services.cel import regex, types, values
from services.cel.checker import Checked, Declarations
from services.cel.costs import LIST_CREATED, MAP_CREATED, OBJECT_CREATED, Charge, charge_of
from services.cel.declarations import Overload
from services.cel.syntax import Call, Fold, Ident, ListOf, Literal, MapOf, Node, ObjectOf, Select
from services.cel.types import Type
from services.cel.values import EvaluationError, NoSuchKey, Optional, type_name

Frame = list[Any]
Run = Callable[[Frame], Any]
SPENT, LIMIT, FIRST = 0, 1, 2
_ATTRIBUTES: Final = (Ident, Select)
_INDEXES: Final = frozenset(("_[_]", "_[?_]", "_?._"))
_PATTERNS: Final = frozenset(("matches", "find", "findAll"))
_UNSET: Final = object()
_ITERATED: Final = {
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "bool": "types.Bool",
    "string": "types.String",
    "bytes": "types.Bytes",
    "null_type": "types.Null",
    "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp",
    "kubernetes.Semver": "cel.Semver",
    "kubernetes.Quantity": "cel.Quantity",
    "kubernetes.URL": "cel.URL",
    "net.IP": "cel.IP",
    "net.CIDR": "cel.CIDR",
}


class CostLimitExceeded(Exception):
    """The cost limit is exceeded; nothing in an expression absorbs this."""


class _Failed:
    """An error as the accumulated value of a comprehension; it may still not decide the result."""

    __slots__ = ("error",)

    def __init__(self, error: EvaluationError) -> None:
        self.error = error


class Planner:
    """Compiler of nodes into closures. `tracked`: the closures add up their costs."""

    def __init__(self, checked: Checked, declared: Declarations, *, tracked: bool) -> None:
        self._checked = checked
        self._declared = declared
        self._tracked = tracked
        self._places = {name: FIRST + place for place, name in enumerate(declared.variables)}
        self._locals: list[dict[str, Run]] = []
        self._accumulators: set[str] = set()
        self._runs: dict[Node, Run] = {}
        self.size = FIRST + len(self._places)

    def plan(self, node: Node) -> Run:
        """Return the closure of a node. Raises: EvaluationError if a constant part has no value."""
        run = self._runs.get(node)
        if run is None:
            run = self._runs[node] = self._plan_node(node)
        return run

    def _plan_node(self, node: Node) -> Run:
        match node:
            case Literal(value=value):
                return lambda frame: value
            case Ident():
                return self._ident(node)
            case Select():
                return self._select(node)
            case Call():
                return self._call(node)
            case ListOf():
                return self._list(node)
            case MapOf():
                return self._map(node)
            case ObjectOf():
                return self._object(node)
            case Fold(bind=True):
                return self._bind(node)
            case Fold():
                return self._fold(node)
        raise TypeError(node)

    def _with_charge(self, run: Run, cost: int) -> Run:
        if not self._tracked:
            return run

        def run_and_charge(frame: Frame) -> Any:
            value = run(frame)
            frame[SPENT] += cost
            if frame[SPENT] > frame[LIMIT]:
                raise CostLimitExceeded
            return value

        return run_and_charge

    def _charged_if_present(self, run: Run, base: int) -> Run:
        """Charge for a field that may be absent: nothing beside its base if it is."""
        if not self._tracked:
            return run

        def run_and_charge(frame: Frame) -> Any:
            value = run(frame)
            frame[SPENT] += base + (1 if value.present else 0)
            if frame[SPENT] > frame[LIMIT]:
                raise CostLimitExceeded
            return value

        return run_and_charge

    def _branch(self, node: Node) -> Run:
        """Plan a branch of `?:`, or a key; a variable there, or what it leads to, costs one less."""
        run = self.plan(node)
        if not self._tracked or self._base_cost(node) or (isinstance(node, Call) and node.function == "_?_:_"):
            return run

        def run_and_refund(frame: Frame) -> Any:
            value = run(frame)
            frame[SPENT] -= 1
            return value

        return run_and_refund

    def _place(self) -> int:
        self.size += 1
        return self.size - 1

    def _static(self, node: Node) -> Type:
        return self._checked.types[node]

    def _ident(self, node: Node) -> Run:
        name = self._checked.names.get(node)
        if isinstance(node, Ident) and not node.name.startswith("."):
            for scope in reversed(self._locals):
                if node.name in scope:
                    return self._with_charge(scope[node.name], 1)
        assert name is not None
        place = self._places.get(name)
        if place is None:
            type_value = self._declared.type_names[name]
            return lambda frame: type_value
        return self._with_charge(lambda frame: frame[place], 1)

    def _select(self, node: Select) -> Run:
        if node in self._checked.names:
            return self._ident(node)
        holder, name = self.plan(node.operand), node.field
        if node.test:
            return self._with_charge(
                lambda frame: values.has_member(holder(frame), name), self._base_cost(node.operand)
            )
        if self._static(node.operand).name == "optional_type":
            return self._with_charge(lambda frame: values.optional_member(holder(frame), name), 1)
        member = values.member

        def run(frame: Frame) -> Any:
            operand = holder(frame)
            if type(operand) is dict:
                try:
                    return operand[name]
                except KeyError:
                    raise NoSuchKey(f"no such key: {name}") from None
            return member(operand, name)

        return self._with_charge(run, 1 + self._base_cost(node.operand))

    def _base_cost(self, node: Node) -> int:
        """What it costs that fields are read from a value that no variable leads to."""
        if isinstance(node, _ATTRIBUTES) or (isinstance(node, Call) and node.function in (*_INDEXES, "_?_:_")):
            return 0
        return 1

    def _list(self, node: ListOf) -> Run:
        runs = [self.plan(each) for each in node.items]
        if node.optional:
            optional = node.optional

            def some(frame: Frame) -> list[Any]:
                elements = []
                for place, run in enumerate(runs):
                    value = run(frame)
                    if place not in optional:
                        elements.append(value)
                    elif _optional(value).present:
                        elements.append(value.value)
                return elements

            return self._with_charge(some, LIST_CREATED)
        return self._with_charge(lambda frame: [run(frame) for run in runs], 0 if _is_constant(node) else LIST_CREATED)

    def _map(self, node: MapOf) -> Run:
        runs = [(self.plan(key), self.plan(value), may) for key, value, may in node.entries]

        def run(frame: Frame) -> dict[Any, Any]:
            mapping: dict[Any, Any] = {}
            for key_run, value_run, may in runs:
                key, value = key_run(frame), value_run(frame)
                if type(key) not in _KEYS:
                    raise EvaluationError(f"unsupported key type: {type_name(key)}")
                if not may:
                    mapping[values.key_of(key)] = value
                elif _optional(value).present:
                    mapping[values.key_of(key)] = value.value
            return mapping

        return self._with_charge(run, 0 if _is_constant(node) else MAP_CREATED)

    def _object(self, node: ObjectOf) -> Run:
        message = self._declared.messages[node.name.removeprefix(".")]
        runs = [(name, self.plan(value), may) for name, value, may in node.fields]

        def run(frame: Frame) -> Any:
            given: dict[str, Any] = {}
            for name, value_run, may in runs:
                value = value_run(frame)
                if not may:
                    given[name] = value
                elif _optional(value).present:
                    given[name] = value.value
            return message.make(given)

        return self._with_charge(run, OBJECT_CREATED)

    def _call(self, node: Call) -> Run:
        name = self._checked.functions.get(node, node.function.removeprefix("."))
        match name:
            case "_&&_":
                return self._plan_logical(node, False)
            case "_||_":
                return self._plan_logical(node, True)
            case "_?_:_":
                test, yes, no = self._flag(node.args[0]), self._branch(node.args[1]), self._branch(node.args[2])
                return lambda frame: yes(frame) if test(frame) else no(frame)
            case "@not_strictly_false":
                return self._not_strictly_false(node)
            case "_?._":
                holder, field = self.plan(node.args[0]), node.args[1]
                assert isinstance(field, Literal)
                text = field.value
                base = self._base_cost(node.args[0])
                return self._charged_if_present(lambda frame: values.optional_member(holder(frame), text), base)
            case "_[_]" | "_[?_]":
                holder, key = self.plan(node.args[0]), self._branch(node.args[1])
                find: Callable[[Any, Any], Any] = values.at_index
                if name == "_[?_]" or self._static(node.args[0]).name == "optional_type":
                    find = values.optional_index
                base = self._base_cost(node.args[0])
                if find is values.optional_index:
                    return self._charged_if_present(lambda frame: find(holder(frame), key(frame)), base)
                return self._with_charge(lambda frame: find(holder(frame), key(frame)), 1 + base)
            case "orValue" | "or" if self._static(node).name != "!error!" and node.target is not None:
                return self._or(node, name)
        operands = node.args if node.target is None or node in self._checked.functions else [node.target, *node.args]
        return self._plan_call(node, name, operands)

    def _or(self, node: Call, name: str) -> Run:
        """Plan `or` and `orValue`: the other is only asked where the value is absent."""
        assert node.target is not None
        holder, other = self.plan(node.target), self.plan(node.args[0])

        def run(frame: Frame) -> Any:
            found = _optional(holder(frame))
            if not found.present:
                return other(frame)
            return found if name == "or" else found.value

        return run

    def _plan_call(self, node: Call, name: str, operands: list[Node]) -> Run:
        overloads = self._checked.overloads[node]
        if name == "_+_" and self._appends(operands):
            return self._plan_append(operands)
        runs = [self.plan(each) for each in operands]
        if len(overloads) == 1 and all(map(self._is_sure, operands, overloads[0].params)):
            function: Callable[..., Any] = overloads[0].impl
        else:
            function = _dispatcher(name, overloads)
        if name in _FOLDED and all(_is_constant(each) or self._is_type(each) for each in operands):
            value = function(*(run([0, values.UINT_MAX]) for run in runs))
            return lambda frame: value
        pattern = operands[1] if name in _PATTERNS and len(operands) > 1 else None
        if pattern is not None and _is_constant(pattern) and type(text := runs[1]([0, values.UINT_MAX])) is str:
            regex.compile_pattern(text)
        charge = charge_of(name, overloads[0].id) if self._tracked else None
        if name == "@in" and _is_table(operands[1]):
            charge = 0 if self._tracked else None  # cel-go looks it up in a table
        return _invocation(function, runs, charge)

    def _is_sure(self, node: Node, wanted: Type) -> bool:
        """Whether what is wanted is certain to come: the value of a variable may be null, or of another type."""
        if wanted.is_dynamic or wanted.kind == "parameter":
            return True
        static_type = self._static(node)
        if static_type.name != wanted.name or _is_open(static_type):
            return False
        match node:
            case Literal():
                return True
            case ListOf(items=items, optional=optional):
                return not optional and all(self._is_sure(each, wanted.params[0]) for each in items)
            case Call():
                overloads = self._checked.overloads.get(node, ())
                return len(overloads) == 1 and not _is_open(overloads[0].result)
        return False

    def _is_type(self, node: Node) -> bool:
        return self._checked.names.get(node) in self._declared.type_names

    def _appends(self, operands: list[Node]) -> bool:
        """Whether this is the step of a comprehension that grows its list: nothing else refers to the list yet."""
        left, right = operands
        return (
            isinstance(left, Ident)
            and left.name in self._accumulators
            and isinstance(right, ListOf)
            and len(right.items) == 1
            and not right.optional
        )

    def _plan_append(self, operands: list[Node]) -> Run:
        left, right = operands
        assert isinstance(right, ListOf)
        accumulated, item = self.plan(left), self.plan(right.items[0])

        def run(frame: Frame) -> Any:
            found = accumulated(frame)
            found.append(item(frame))
            return found

        return self._with_charge(run, 1 + (0 if _is_constant(right) else LIST_CREATED))

    def _flag(self, node: Node) -> Run:
        run = self.plan(node)
        if self._static(node) == types.BOOL and not isinstance(node, Ident | Select | Call):
            return run

        def flag(frame: Frame) -> Any:
            value = run(frame)
            if value is True or value is False:
                return value
            raise EvaluationError("no such overload")

        return flag

    def _plan_logical(self, node: Call, deciding: bool) -> Run:
        """Plan `||` (deciding: true) or `&&`: an error counts only if the other side does not decide."""
        left, right = self._flag(node.args[0]), self._flag(node.args[1])

        def run(frame: Frame) -> Any:
            try:
                if left(frame) is deciding:
                    return deciding
            except EvaluationError as error:
                if _decides(right, frame, deciding):
                    return deciding
                raise error from None
            return right(frame)

        return run

    def _not_strictly_false(self, node: Call) -> Run:
        run = self.plan(node.args[0])

        def holds(frame: Frame) -> bool:
            try:
                return run(frame) is not False
            except EvaluationError:
                return True

        return self._with_charge(holds, 1)

    def _bind(self, node: Fold) -> Run:
        """Plan a name for a value, which is computed when it is first needed, and once."""
        place = self._place()
        init = self.plan(node.init)

        def read_variable(frame: Frame) -> Any:
            value = frame[place]
            if value is _UNSET:
                value = frame[place] = init(frame)
            return value

        self._locals.append({node.accu: read_variable})
        result = self.plan(node.result)
        self._locals.pop()

        def run(frame: Frame) -> Any:
            frame[place] = _UNSET
            return result(frame)

        return run

    def _fold(self, node: Fold) -> Run:
        over, init = self.plan(node.over), self.plan(node.init)
        accu, first, second = self._place(), self._place(), self._place()

        def read_accumulator(frame: Frame) -> Any:
            value = frame[accu]
            if type(value) is _Failed:
                raise value.error
            return value

        grows = isinstance(node.init, ListOf)
        self._locals.append({node.accu: read_accumulator})
        if grows:
            self._accumulators.add(node.accu)
        names: dict[str, Run] = {node.first: lambda frame: frame[first]}
        if node.second:
            names[node.second] = lambda frame: frame[second]
        # What is folded inside may use the same name for what it accumulates: the inner one is found first.
        self._locals.append(names)
        endless = isinstance(node.condition, Literal)
        condition, step = self.plan(node.condition), self.plan(node.step)
        self._locals.pop()
        result = self.plan(node.result)
        self._locals.pop()
        two = bool(node.second)

        def run(frame: Frame) -> Any:
            holder = over(frame)
            frame[accu] = init(frame)
            for item in _items(holder, two):
                if two:
                    frame[first], frame[second] = item
                else:
                    frame[first] = item
                if endless:
                    frame[accu] = step(frame)
                    continue
                if condition(frame) is not True:
                    break
                try:
                    frame[accu] = step(frame)
                except EvaluationError as error:
                    frame[accu] = _Failed(error)
            return result(frame)

        return run


_KEYS: Final = frozenset((str, int, values.Uint, bool, float))


def _items(holder: Any, two: bool) -> Any:
    if isinstance(holder, list | tuple):
        return enumerate(holder) if two else holder
    if isinstance(holder, Mapping):
        if two:
            return ((values.value_of(key), value) for key, value in holder.items())
        return values.keys(holder)
    name = type_name(holder)
    raise EvaluationError(f"got '{_ITERATED.get(name, name)}', expected iterable type")


def _decides(run: Run, frame: Frame, deciding: bool) -> bool:
    try:
        return run(frame) is deciding
    except EvaluationError:
        return False  # the error of the left side is the one that is reported


def _optional(value: Any) -> Optional:
    if type(value) is Optional:
        return value
    raise EvaluationError("no such overload")


def _is_constant(node: Node) -> bool:
    match node:
        case Literal():
            return True
        case ListOf(items=items, optional=optional):
            return not optional and all(map(_is_constant, items))
        case MapOf(entries=entries):
            return all(_is_constant(key) and _is_constant(value) and not may for key, value, may in entries)
        case Call(function=function, args=args, target=None):
            return function in _FOLDED and all(map(_is_constant, args))
    return False


def _is_table(node: Node) -> bool:
    """Whether it is a list of constants that cel-go looks values up in."""
    return isinstance(node, ListOf) and all(
        isinstance(each, Literal) and type(each.value) is not bytes for each in node.items
    )


_FOLDED: Final = frozenset(("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"))


def _is_open(what: Type) -> bool:
    """Whether only evaluation shows what the value is."""
    return what.is_dynamic or what.kind == "parameter" or any(map(_is_open, what.params))


def _invocation(function: Callable[..., Any], runs: list[Run], charge: Charge | None) -> Run:
    if charge is not None:
        charging = charge

        def run_and_charge(frame: Frame) -> Any:
            args = [run(frame) for run in runs]
            try:
                result = function(*args)
            except EvaluationError:
                frame[SPENT] += 1
                raise
            frame[SPENT] += charging if isinstance(charging, int) else charging(args, result)
            if frame[SPENT] > frame[LIMIT]:
                raise CostLimitExceeded
            return result

        return run_and_charge
    if len(runs) == 1:
        (only,) = runs
        return lambda frame: function(only(frame))
    if len(runs) == 2:
        left, right = runs
        return lambda frame: function(left(frame), right(frame))
    return lambda frame: function(*[run(frame) for run in runs])


def _dispatcher(name: str, overloads: Sequence[Overload]) -> Callable[..., Any]:
    """Return the function that chooses among overloads by the values' types."""
    if name in ("_==_", "_!=_"):
        return overloads[0].impl
    known: dict[tuple[type, ...], Callable[..., Any]] = {}
    cacheable = not any(_looks_inside(param) for each in overloads for param in each.params)

    def call(*args: Any) -> Any:
        key = tuple(map(type, args))
        function = known.get(key)
        if function is None:
            for overload in overloads:
                if all(map(_matches, overload.params, args)):
                    function = overload.impl
                    break
            else:
                raise _no_overload(name, args)
            if cacheable:
                known[key] = function
        return function(*args)

    return call


_TIMES: Final = ("google.protobuf.Duration", "google.protobuf.Timestamp")
_PLAIN: Final = frozenset(("contains", "startsWith", "endsWith", "matches"))


_KNOW: Final[Mapping[str, frozenset[str]]] = {
    "_+_": frozenset(("int", "uint", "double", "string", "bytes", "list", *_TIMES)),
    "_-_": frozenset(("int", "uint", "double", *_TIMES)),
    "_*_": frozenset(("int", "uint", "double")),
    "_/_": frozenset(("int", "uint", "double")),
    "_%_": frozenset(("int", "uint")),
}
_ORDERED: Final = frozenset(("bool", "int", "uint", "double", "string", "bytes", *_TIMES))
"""Types with an order. For other first operands, cel-go's error names the operator."""


def _no_overload(name: str, args: tuple[Any, ...]) -> EvaluationError:
    if name.startswith("_") or name == "-_":
        knows = type_name(args[0]) in _KNOW.get(name, _ORDERED)
        return EvaluationError("no such overload" if knows else f"no such overload: {name}")
    if name in ("!_", "@in") or name in _PLAIN:
        return EvaluationError("no such overload")
    if name == "size" or name in _FOLDED:
        return EvaluationError(f"no such overload: {name}")
    return EvaluationError(f"no such overload: {name}({', '.join(map(type_name, args))})")


def _looks_inside(param: Type) -> bool:
    """Whether a value is of the type only if the first of what it contains is."""
    return param.kind in ("list", "map") and not all(
        each.is_dynamic or each.kind == "parameter" for each in param.params
    )


def _matches(param: Type, value: Any) -> bool:
    if param.is_dynamic or param.kind == "parameter":
        return True
    if type_name(value) != param.name:
        return False
    if param.kind == "list" and value:
        return _matches(param.params[0], value[0])
    return True
