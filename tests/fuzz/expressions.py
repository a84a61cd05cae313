"""Random expressions over every function that a language has, by the types of its overloads, with values at the edges.

What can be called is read from the libraries themselves: a function that is added to one is drawn without being named.
An evaluation may end with a value or with an error that its caller knows; an exception of another kind is a finding,
and so is a fault that a net has caught.
"""

import importlib
import json
import pkgutil
import random
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from typing import NamedTuple

import msgspec

from apiserver_fake.extensions.admission import expressions as admission
from apiserver_fake.extensions.customresources import jsonpath
from lab.scenarios.measures import expression as measures
from services.api import selectors
from services.api.errors import ApiError
from services.api.kinds.resourceslice import Device
from services.cel import device_selectors, faults, libraries, rules
from services.cel.declarations import Library
from services.cel.environment import KUBERNETES, CompileError, Environment, EvaluationError
from services.cel.libraries import extensions, kubernetes
from services.cel.libraries.authorization import AUTHORIZATION, AUTHORIZER, Decision, authorizer_for
from services.cel.libraries.strings import strings
from services.cel.quantities import QUANTITY
from services.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, NULL, STRING, TIMESTAMP, TYPE, UINT, list_of
from services.cel.values import Duration, Uint
from services.kwok.expressions import Draws, Expressions, Moment, go_object
from services.kwok.stages import jq
from services.kwok.stages.template_functions import FUNCTIONS, Context
from services.kwok.stages.templates import Template, TemplateError

SCALARS = (BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT)
VALUES = {
    "bool": ("true", "false"),
    "bytes": ("b''", "b'a'", r"b'\xff\xfe'", r"b'\000'"),
    "double": ("0.0", "-0.0", "1.5", "2.5", "1e308", "-1e308", "5e-324", "5e19", "1e20", "double('NaN')", "double('Infinity')",
               "double('-Infinity')", "0.1", "9007199254740993.0"),
    "google.protobuf.Duration": ("duration('0s')", "duration('-1.5h')", "duration('2562047h')", "duration('1ns')", "duration('-2562047h')"),
    "google.protobuf.Timestamp": ("timestamp('2026-01-01T00:00:00Z')", "timestamp('0001-01-01T00:00:00Z')", "timestamp(0)",
                                  "timestamp('9999-12-31T23:59:59.999999999+14:00')", "timestamp(-62135596800)"),
    "int": ("0", "1", "-1", "2", "7", "63", "64", "9223372036854775807", "-9223372036854775808", "2147483648"),
    "null_type": ("null",),
    "string": ("''", "'a'", "'1'", "'-1'", "'1.1.1.1'", "'::1'", "'10.0.0.0/8'", "'1Gi'", "'-0.5'", "'1e400'", "'1.2.3'", "'v1'", "'NaN'", "'Infinity'",
               "'https://a.b:1/c?d=e'", "'/a'", "'2026-01-01T00:00:00Z'", "'1h'", "'UTC'", "'Mars/Olympus'", "'+25:00'", "'-99:99'", "'../etc'",
               "'(a+)+$'", "'['", "'%s'", "'%d'", "'%.3f'", "'%.28f'", "'%.99999f'", "'%.1074f'", "'%e'", "'%.'", "'%'", "'%%'", "'%x %X %o %b'",
               "'%s %s %s'", "'%y'", "'%.99999999999999999999f'", "' '", "'\\u00e9\\u200b'", r"'\000'", "'a,b'", "'system:masters'", "'a/b'", "'A' + 'B'",
               "'" + "x" * 300 + "'", "'" + "9" * 60 + "'", "'kubernetes.io/a'", "'dns1123Label'"),
    "type": ("int", "string", "type(1)", "list", "null_type", "type(type(1))"),
    "uint": ("0u", "1u", "18446744073709551615u", "64u"),
}  # fmt: skip
MORE = {  # values of types that functions make: `null` and `dyn` are drawn in their place, too
    "optional_type": ("optional.none()", "optional.of(1)", "optional.of(null)", "optional.of(optional.none())"),
    "list": ("[]", "[null]", "[dyn(1), dyn('a')]", "[dyn(double('NaN')), dyn(1), dyn(2u)]", "[[]]", "[dyn(1), dyn(true), dyn(null)]"),
    "map": ("{}", "{'a': 1}", "{dyn(1): dyn('a'), dyn('a'): dyn(1)}", "{true: 1}", "{1.5: null}", "{'a': {}}"),
}  # fmt: skip
ALONE = {
    "_[_]": "{}[{}]",
    "_[?_]": "{}[?{}]",
    "_?_:_": "({} ? {} : {})",
    "@in": "({} in {})",
    "-_": "-({})",
    "!_": "!({})",
}
DEPTH_MAX = 4


class Libraries(tuple):
    """Libraries by who they are, which are no keys themselves."""

    def __hash__(self):
        return hash(tuple(map(id, self)))

    def __eq__(self, other):
        return tuple(map(id, self)) == tuple(map(id, other))


@cache
def every_library():
    """Return all libraries of the language, whoever has them."""
    found = {}
    for module in pkgutil.iter_modules(libraries.__path__):
        read = importlib.import_module(f"{libraries.__name__}.{module.name}")
        found |= {id(each): each for each in vars(read).values() if isinstance(each, Library)}
    return Libraries((*found.values(), strings(3)))


@lru_cache(maxsize=16)
def calls(among):
    """Return what can be written: `(name, overload)` for each overload, sorted."""
    found = {}
    for library in among:
        for name, overloads in library.functions.items():
            for each in overloads:
                found[name, each.id] = (name, each)
    return tuple(found[key] for key in sorted(found))


@lru_cache(maxsize=16)
def functions(among):
    """Return the names that an expression can call, and those of macros."""
    named = {name for name, _ in calls(among) if _is_written(name)}
    return tuple(sorted(named | {macro[0] for library in among for macro in library.macros}))


def _is_written(name):
    return "@" not in name or name == "@in"


class Writer:
    """Writes one expression. `variables`: what it may name, by the type it is declared with."""

    def __init__(self, seed, among, variables=()):
        self._random = random.Random(seed)
        self._among = Libraries(among)
        self._variables = dict(variables)
        self._names = 0
        self.chosen = self._random.choice(functions(self._among))
        """The function or macro that the expression calls at its top."""

    def expression(self, result=None):
        """Return an expression; `result`: the type it should have, mostly."""
        text = self._calling(self.chosen, DEPTH_MAX)
        if result is None or result == DYN:
            return text
        match self._random.randrange(4):
            case 0:
                return self.of(result, DEPTH_MAX)
            case 1:
                return f"({text}) != {self.of(DYN, 1)}"
            case 2:
                return f"dyn({text}) == {self.of(DYN, 1)}"
        return f"[{text}].size() > 0"

    def of(self, wanted, depth):
        """Return an expression of a type; one time in eight of another."""
        draw = self._random
        if depth <= 0 or draw.random() < 0.35:
            return self._plain(wanted, depth)
        if draw.random() < 0.12:
            return draw.choice(("null", "dyn(null)", f"dyn({self.of(draw.choice(SCALARS), depth - 1)})"))
        making = [each for each in calls(self._among) if each[1].result.name == wanted.name and _is_written(each[0])]
        if wanted.kind == "parameter" or wanted.is_dynamic:
            making = [each for each in calls(self._among) if _is_written(each[0])]
        if not making:
            return self._plain(wanted, depth)
        return self._call(*draw.choice(making), depth - 1)

    def _plain(self, wanted, depth):
        draw = self._random
        if wanted.kind == "parameter" or wanted.is_dynamic:
            wanted = draw.choice((*SCALARS, NULL, TYPE))
            if draw.random() < 0.3:
                return f"dyn({draw.choice(MORE['list'] + MORE['map'])})"
        named = [name for name, of in self._variables.items() if of.name == wanted.name or of.is_dynamic]
        if named and draw.random() < 0.3:
            return draw.choice(named)
        if wanted.name in VALUES:
            text = draw.choice(VALUES[wanted.name])
            return f"dyn({text})" if draw.random() < 0.1 else text
        if wanted.name == "list" and draw.random() < 0.7:
            items = [self.of(wanted.params[0], depth - 1) for _ in range(draw.randrange(4))]
            return f"[{', '.join(items)}]"
        if wanted.name == "map" and draw.random() < 0.7:
            pairs = [f"{self.of(wanted.params[0], 0)}: {self.of(wanted.params[1], depth - 1)}" for _ in range(2)]
            return f"{{{', '.join(pairs)}}}"
        if wanted.name in MORE:
            return draw.choice(MORE[wanted.name])
        making = [each for each in calls(self._among) if each[1].result == wanted and _is_written(each[0])]
        if making and depth > -2:
            return self._call(*draw.choice(making), depth - 1)
        return draw.choice(named) if named else "null"

    def _calling(self, name, depth):
        """Return a call of the function, or of the macro, of that name."""
        known = [each for each in calls(self._among) if each[0] == name]
        macros = sorted({key for library in self._among for key in library.macros if key[0] == name})
        if macros and (not known or self._random.random() < 0.5):
            return self._macro(*self._random.choice(macros), depth)
        return self._call(*self._random.choice(known), depth)

    def _call(self, name, overload, depth):
        args = [f"{self.of(each, depth - 1)}" for each in overload.params]
        if name == "_[_]" or name == "_[?_]":
            args[0] = f"({args[0]})"
        if name in ALONE:
            return ALONE[name].format(*args)
        if name.startswith("_") and len(args) == 2:
            return f"({args[0]} {name.strip('_')} {args[1]})"
        if overload.member:
            return f"({args[0]}).{name}({', '.join(args[1:])})"
        return f"{name}({', '.join(args)})"

    def _macro(self, name, count, is_member, depth):
        if name == "has":
            return f"has(({self.of(DYN, depth - 1)}).{self._random.choice(('a', 'b', 'size'))})"
        self._names += 1
        names = [f"v{self._names}", f"w{self._names}"]
        if name == "bind":
            return f"cel.bind({names[0]}, {self.of(DYN, depth - 1)}, {self._using(names[:1], DYN, depth)})"
        over = self._over(name, depth)
        two = count > 2 and name != "map"
        used = names if two else names[:1]
        bodies = [self._using(used, BOOL, depth) for _ in range(count - len(used))]
        return f"({over}).{name}({', '.join((*used, *bodies))})"

    def _over(self, name, depth):
        kinds = ("list", "map", "optional_type") if name.startswith("opt") else ("list", "map")
        if self._random.random() < 0.3:
            return self.of(DYN, depth - 1)
        return self._random.choice(MORE[self._random.choice(kinds)])

    def _using(self, names, wanted, depth):
        kept = self._variables
        self._variables = {**kept, **dict.fromkeys(names, DYN)}
        text = self.of(wanted, depth - 1)
        self._variables = kept
        return text


# -- where users' texts are evaluated


class Surface(NamedTuple):
    """Where a text is evaluated: how one is written from a seed, how it is read, and the errors it may end with."""

    write: Callable[[int], str]
    read: Callable[[str], object]
    raises: tuple = (EvaluationError,)


MANY = (None, 1, "\ud800")
ODD = {
    "odd": [None, 1, "\ud800", float("nan"), {"a": None}, [], Uint(3), Duration(5), b"\xff"],
    "text": "\ud800a",
    "number": None,
    "many": list(MANY),
    "authorizer": authorizer_for("user", lambda question: Decision(allowed=True)),
}
ODD_TYPES = {"odd": DYN, "text": STRING, "number": INT, "many": list_of(STRING), "authorizer": AUTHORIZER}


@cache
def _whole_language():
    return Environment(ODD_TYPES, libraries=every_library())


def language(text):
    """Evaluate with every library there is, costs counted and not."""
    program = _whole_language().compile_anew(text)
    _, error, _ = program.outcome(ODD)
    program.evaluate(ODD)
    assert error is None, f"only the evaluation whose costs are counted fails: {error}"


_SELECTED = (*KUBERNETES, extensions.BINDINGS, kubernetes.INCLUDES)
_DEVICE = msgspec.convert(
    {"name": "a", "attributes": {"x": {"int": 2}, "v": {"version": "1.2.3"}, "s": {"string": "é"}}, "capacity": {"m": {"value": "1Gi"}}},
    Device,
)  # fmt: skip
_DEVICE_NAMES = {
    "device.driver": STRING,
    "device.allowMultipleAllocations": BOOL,
    "device.attributes['d'].x": DYN,
    "device.attributes['d'].none": DYN,
    "device.attributes['d'].v": DYN,
    "device.capacity['d'].m": QUANTITY,
}


def device_selector(text):
    """Check it as the API server does, and select with it as the scheduler does, which takes more."""
    with suppress(device_selectors.SelectorError):
        device_selectors.check_new_selector(text)
    device_selectors.compile_selector(text)("d", _DEVICE)


_TEXT = {"type": "string", "nullable": True}
_SCHEMA = {
    "type": "object",
    "properties": {
        "text": _TEXT,
        "count": {"type": "integer", "nullable": True},
        "share": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "some": {"type": "array", "items": _TEXT, "maxItems": 5},
        "by": {"type": "object", "additionalProperties": {"type": "integer", "nullable": True}, "maxProperties": 5},
        "either": {"x-kubernetes-int-or-string": True},
        "bytes": {"type": "string", "format": "byte"},
    },
}
_RULED = (
    {"text": "a", "count": 1, "share": 1.5, "at": "2026-01-01T00:00:00Z", "some": ["a", None], "by": {"a": None}, "either": "1", "bytes": "AA=="},
    {"text": None, "count": None, "share": 1e400, "at": "x", "some": [1], "by": {"a": "b"}, "either": [], "bytes": "é"},
)  # fmt: skip
_RULE_NAMES = {
    "self.text": STRING,
    "self.count": INT,
    "self.share": DOUBLE,
    "self.at": TIMESTAMP,
    "self.some": list_of(STRING),
    "self.either": DYN,
    "self.bytes": BYTES,
    "oldSelf.text": STRING,
    "self.by['a']": INT,
}


def rule(text):
    """Check a rule of a schema, and validate documents that are and that are not what the schema says."""
    schema = {**_SCHEMA, rules.RULES: [{"rule": text, "messageExpression": f"string({text})"}, {"rule": "1 == 2", "messageExpression": text}]}  # fmt: skip
    causes = list(rules.check(schema, "spec"))
    found = rules.Rules.of(schema)
    for document in _RULED:
        causes += found.validate(document, _RULED[0]).causes
    json.dumps([each._asdict() for each in causes], ensure_ascii=False).encode()


_ADMITTED = {
    "object": {"metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"replicas": 3, "none": None, "share": 1.5}},
    "oldObject": None,
    "params": {"a": [1, "b", None]},
    "namespaceObject": None,
    "request": {"name": "a", "userInfo": {"username": "u", "groups": ["g"], "extra": {"a": ["b"]}}, "options": None},
    "authorizer": ODD["authorizer"],
    "authorizer.requestResource": None,
}
_ADMISSION_NAMES = {
    "object.metadata.name": DYN,
    "object.spec.replicas": DYN,
    "object.spec.none": DYN,
    "object.spec": DYN,
    "oldObject.metadata": DYN,
    "params.a": DYN,
    "request.userInfo.groups": list_of(STRING),
    "request.dryRun": BOOL,
    "namespaceObject.metadata.name": STRING,
    "variables.one": DYN,
    "authorizer": AUTHORIZER,
}


def policy(text):
    """Evaluate what a policy says, as a validation, as a variable, and as a mutation."""
    compiler = admission.Compiler(has_params=True)
    compiler.variable("one", "object.metadata.labels")
    program = compiler.compile_expression(text, is_mutation=True)
    compiler.variable("two", text)
    using = compiler.compile_expression("variables.two == 1")
    for each in (program, using, compiler.compile_expression("[variables.two].size() > 0")):
        evaluation = admission.Evaluation(_ADMITTED, compiler.variables)
        with suppress(admission.ExpressionError, admission.MutationError):
            admission.plain(evaluation.value(text, each))
    admission.are_met((admission.Condition("c", text, program),), _ADMITTED)


_KWOK = Expressions(has_usage=True)
_KWOK_OBJECTS = {
    "node": go_object("node", {"metadata": {"name": "a", "creationTimestamp": "x"}, "status": {"capacity": {"cpu": "x"}}}),
    "pod": go_object("pod", {"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"containerStatuses": [{"name": "a"}, {}]}}),
    "container": go_object("container", {"resources": {"requests": {"cpu": "1", "memory": "1e400"}}}),
}  # fmt: skip
_KWOK_NAMES = {
    "node": DYN,
    "pod": DYN,
    "pod.metadata": DYN,
    "pod.status": DYN,
    "container.resources.requests['cpu']": QUANTITY,
    "container.resources.requests['memory']": QUANTITY,
}


def kwok_expression(text):
    """Evaluate it as a figure of usage, and as a label."""
    for read in (_KWOK.number, _KWOK.text):
        with suppress(ValueError):
            read(text, _KWOK_OBJECTS, Moment(1e9, Draws((1,))))


_MEASURE_NAMES = {"pods": DYN, "seconds": DOUBLE, 'lines["sched.bind_result"]': DYN, "created.pods": DYN}
_MEASURED = {
    "pods": [{"metadata": {"name": "a"}, "spec": None, "at": {"created": 1.0}}, None],
    "created.pods": [1, 2.5, float("inf"), float("-inf"), 1e308, 1e308],
    "lines": {"sched.bind_result": [{"data": {"outcome": "ok"}}]},
    "seconds": float("nan"),
}


def measure(text):
    """Read it as what a scenario states, and evaluate it."""
    measures.compile_expression(text).value(_MEASURED)


@cache
def _libraries_of(environment):
    """Return the functions that an environment knows as one library, with its macros."""
    return Libraries((Library(environment._declared.functions, environment._macros),))


def _written(among, names, *results):
    return lambda seed: Writer(seed, among, names).expression(results[seed % len(results)] if results else None)


class Words:
    """Writes texts of a language that has no types: each rule is parts in a row, a part is a text or another rule."""

    def __init__(self, seed, grammar):
        self._random = random.Random(seed)
        self._grammar = grammar

    def text(self, rule="start", depth=7):
        """Return a text of the rule; deep down the first part of each, which refers to no other."""
        forms = self._grammar[rule]
        form = self._random.choice(forms) if depth > 0 else forms[0]
        parts = [form] if isinstance(form, str) else form
        return "".join(self.text(each[1:], depth - 1) if each[:1] == "→" else each for each in parts)


def _jq_grammar():
    plain = sorted(jq._PLAIN)
    given = sorted(jq._WITH_FILTER)
    return {
        "start": ("→filter", ("→filter", " | ", "→filter"), ("→filter", ", ", "→filter"), ("(" * 20, "→filter", ")" * 20)),
        "filter": (".", "→path", ("→filter", " | ", "→function"), ("→filter", "→sign", "→filter"), ("(", "→filter", ")"), "→function", "→literal"),
        "path": (".a", ".b[]", ".none.x", '.a["b"]', ".[0]", (".[", "→literal", "]"), ("→path", "?"), ("→path", "[", "→filter", "]"), ".a[-1]", ".big", ".deep"),
        "sign": (" == ", " // ", " and ", " or ", " < ", " >= ", " != "),
        "function": ("not", *plain, *((each, "(", "→filter", ")") for each in given), "empty", "nothing"),
        "literal": ("1", "null", "true", '"a"', '"\\ud800"', "-0", "1.5", "9" * 400, "9" * 400 + ".5", "-" + "9" * 30, '"' + "9" * 400 + '"', '"1e999"'),
    }  # fmt: skip


_JQ_GIVEN = (
    {"a": [{"b": 1}, None, "x", 1.5], "b": {"c": [1, "a"], "d": None}, "big": 10**30, "deep": [[[[[[1]]]]]], "z": "9" * 5000},
    None,
    [1, "a", None, {"x": []}, float("inf")],
)  # fmt: skip


def query(text):
    """Evaluate a filter of a Stage with objects of several forms."""
    read = jq.Query(text)
    for given in _JQ_GIVEN:
        read.values(given)
    assert read.root is not None


def _template_grammar():
    names = sorted((*FUNCTIONS, "and", "or", *Context("").functions()))
    calls = [
        form
        for name in names
        for form in (
            (name, " ", "→value"),
            (name, " ", "→value", " ", "→value"),
            (name, " ", "→value", " ", "→value", " ", "→value"),
            name,
        )
    ]
    return {
        "start": ("→node", ("→node", "→node"), ("→node", "→node", "→node")),
        "node": ("x", ("{{ ", "→pipeline", " }}"), ("{{ if ", "→pipeline", " }}", "→node", "{{ else }}", "→node", "{{ end }}"),
                 ("{{ range $i, $v := ", "→pipeline", " }}", "→node", "{{ end }}"), ("{{ range ", "→value", " }}{{ . }}{{ end }}"), ("{{ with ", "→value", " }}", "→node", "{{ end }}"),
                 ("{{ $x := ", "→pipeline", " }}{{ $x }}"), '{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}', ("{{- ", "→value", " -}}")),
        "pipeline": ("→value", "→call", ("→value", " | ", "→call"), ("→call", " | ", "→call"), "→call"),
        "call": tuple(calls),
        "value": (".", ".a", ".b.c", ".none", ".list", ".text", ("(", "→call", ")"), ("(", "→call", ")"), '"a"', '""', "1", "0", "-1", "9" * 18, "9" * 400, "1e308", "1e-308", "1.5", "true", "nil",
                  '"%d %s %v %x %q %f"', '"%*d"', '"%.99999f"', '"%99999999999d"', '"NaN"', '"inf"', '"1e400"', '"0x10"', "$", "$x", '"\\ud800"', '"' + "9" * 5000 + '"', "10000000000", '"' + "x" * 2000 + '"'),
    }  # fmt: skip


_TEMPLATE_GIVEN = {
    "a": 1,
    "b": {"c": "x", "d": [1]},
    "list": [3, "a", None, {"k": 1}, 1e308],
    "text": "é",
    "big": 10**30,
}


def template(text):
    """Fill a template of a Stage."""
    Template(text).fill_yaml(_TEMPLATE_GIVEN, Context("2026-01-01T00:00:00Z", pod_ip="10.0.0.1"))


_SELECTOR_GRAMMAR = {
    "start": ("→term", ("→term", ",", "→start")),
    "term": ("a", ("→key", "→sign", "→value"), ("!", "→key"), ("→key", " in (", "→value", ",", "→value", ")"), ("→key", " notin (", "→value", ")"), "→key"),
    "key": ("a", "b", "x.io/a", "", " ", "\ud800", "é", "a" * 400, "metadata.name", "status.phase", "(", "a b"),
    "sign": ("=", "==", "!=", ">", "<", " in ", " notin ", ">=", "<>"),
    "value": ("b", "1", "", "-1", "9" * 18, "9" * 5000, "²", "-", "٣", "a,b", "(", ")", "\ud800", "x" * 2000, "--1"),
}  # fmt: skip
_LABELS = ({}, {"a": "b", "b": "²"}, {"a": "9" * 5000, "b": "-"}, {"a": "\ud800", "b": "1_0"})


def label_selector(text):
    """Read a label selector, and ask it about labels."""
    read = selectors.parse_label_selector(text)
    for labels in _LABELS:
        read.matches(labels)


def field_selector(text):
    """Read a field selector, and ask it about fields."""
    read = selectors.parse_field_selector(text)
    for labels in _LABELS:
        read.matches(labels)


_PATH_GRAMMAR = {
    "start": (".a", ("→step", "→start"), ("{", "→step", "}"), ("$", "→step")),
    "step": (".a", ".list", "..", "..x", "[*]", ".*", ("[", "→index", "]"), ("[?(@", "→start", "→sign", "→value", ")]"), ".a\\.b", "['a.b']", "[", "..a[0]"),
    "index": ("0", "-1", "1:3", ":", "-99:99", "0,2", "1:3:2", "::0", "9" * 400, "'a'", "9" * 5000 + ":", "x", "0:1:0", "²"),
    "sign": ("==", "!=", "<", ">=", " =~ ", ""),
    "value": ("1", '"a"', "'a'", "true", "9" * 5000, "1e999", "null", "", "@.a", "\ud800", "²"),
}  # fmt: skip


def path(text):
    """Read a path of a printer column, and follow it."""
    for given in (_TEMPLATE_GIVEN, None, [_TEMPLATE_GIVEN, 1]):
        jsonpath.find(text, given)


SURFACES = {
    "language": Surface(_written(every_library(), ODD_TYPES), language, (CompileError, EvaluationError)),
    "device-selector": Surface(_written(Libraries(_SELECTED), _DEVICE_NAMES, BOOL), device_selector, (device_selectors.SelectorError, device_selectors.SelectorFailure)),
    "rule": Surface(_written(Libraries(KUBERNETES), _RULE_NAMES, BOOL, STRING, DYN), rule, ()),
    "policy": Surface(_written(Libraries((*KUBERNETES, AUTHORIZATION)), _ADMISSION_NAMES, BOOL, STRING, DYN), policy, (admission.ExpressionError,)),
    "kwok-expression": Surface(_written(_libraries_of(_KWOK._environment), _KWOK_NAMES, DOUBLE, QUANTITY, DYN), kwok_expression, ()),
    "measure": Surface(_written(Libraries((*KUBERNETES, measures.STATISTICS)), _MEASURE_NAMES, DOUBLE, DYN, INT), measure, (ValueError,)),
    "jq": Surface(lambda seed: Words(seed, _jq_grammar()).text(), query, (jq.JqError,)),
    "template": Surface(lambda seed: Words(seed, _template_grammar()).text(), template, (TemplateError,)),
    "label-selector": Surface(lambda seed: Words(seed, _SELECTOR_GRAMMAR).text(), label_selector, (ApiError,)),
    "field-selector": Surface(lambda seed: Words(seed, _SELECTOR_GRAMMAR).text(), field_selector, (ApiError,)),
    "jsonpath": Surface(lambda seed: Words(seed, _PATH_GRAMMAR).text(), path, (jsonpath.JSONPathError,)),
}  # fmt: skip


def check(name, text):
    """Read the text where it is evaluated. Raises: what that may not end with, or AssertionError for a fault."""
    caught = []
    faults.listen(lambda subject, stack: caught.append(stack))
    faults.forget()
    refusal = "?"
    try:
        SURFACES[name].read(text)
    except SURFACES[name].raises as error:
        refusal = str(error)
    finally:
        faults.listen(lambda subject, stack: None)
    assert caught == [], caught[0]
    assert refusal.encode(errors="backslashreplace"), "an error without a message"
