"""What expressions say of null where something else is wanted, of lists of several types, NaN, and lone surrogates."""

import pytest

from services.api.kinds.resourceslice import Device
from services.cel import environment, faults, types
from services.cel.declarations import Library, of
from services.cel.device_selectors import SelectorFailure, compile_selector
from services.cel.environment import KUBERNETES, Environment, EvaluationError
from services.cel.values import InternalError

CEL = Environment(
    {"nothing": types.STRING, "count": types.INT, "broken": types.STRING, "many": types.list_of(types.INT)}
)
GIVEN = {"nothing": None, "count": None, "broken": "\ud800a", "many": [None]}
VALUES = (
    ("[dyn(1), dyn('a')].max()", 1),
    ("[dyn(1), dyn('a')].min()", 1),
    ("[dyn(3), dyn('a'), dyn(5)].max()", 5),
    ("[dyn(1), dyn('a')].isSorted()", True),
    ("[dyn(2), dyn('a'), dyn(1)].isSorted()", True),
    ("[dyn(2), dyn(1.5)].isSorted()", False),
    ("[dyn(1), dyn(2.5), dyn(2u)].max()", 2.5),
    ("[dyn(1.0), dyn(double('NaN'))].max()", 1.0),
    ("[dyn(duration('1s')), dyn(timestamp(0))].sum() == timestamp(1)", True),
    ("'%.28f'.format([5.0])", "5." + "0" * 28),
    ("'%.9f'.format([5e19])", "50,000,000,000,000,000,000.000000000"),
    ("'%.30f'.format([double(size('abc'))])", "3." + "0" * 30),
    ("'%.20f'.format([0.1])", "0.10000000000000000555"),
    ("'%.1f %.0f'.format([0.25, 2.5])", "0.2 2"),
    ("'%f %f %f'.format([double('NaN'), double('Infinity'), double('-Infinity')])", "NaN ∞ -∞"),
    ("'%.2f %.2f'.format(['NaN', '-Infinity'])", "NaN -∞"),
    ("'%.1074f'.format([5e-324]).endsWith('4703281612148926875') == false", True),
    ("'%x'.format([broken])", "efbfbd61"),
    ("bytes(broken)", b"\xef\xbf\xbda"),
    ("broken.find('a+')", "a"),
    ("broken.matches('^.a$')", True),
    ("format.dns1123Label().validate(broken).hasValue()", True),
    ("quantity('1e400').asApproximateFloat() == double('Infinity')", True),
    ("-1.5 < 2.5 && 1.5 >= 1.5", True),
)
ERRORS = (
    ("null.ip()", "no such overload: ip(null_type)"),
    ("null.getDate('UTC')", "no such overload: getDate(null_type, string)"),
    ("timestamp(null).getHours()", "no such overload: timestamp"),
    ("timestamp(0) <= null", "no such overload"),
    ("optional.unwrap([null])", "no such overload: optional.unwrap(list)"),
    ("optional.unwrap([dyn(optional.of(1)), dyn(null)])", "value null is not optional"),
    ("nothing.startsWith('a')", "no such overload"),
    ("nothing.charAt(0)", "no such overload: charAt(null_type, int)"),
    ("string(count)", "no such overload: string"),
    ("'a'.charAt(count)", "no such overload: charAt(string, null_type)"),
    ("-count", "no such overload: -_"),
    ("count + 1", "no such overload: _+_"),
    ("1 / count", "no such overload"),
    ("count < 1", "no such overload: _<_"),
    ("many.min()", "no such overload: min(list)"),
    ("[dyn(1), dyn(null)].min()", "no such overload"),
    ("[dyn(1), dyn('a')].sum()", "no such overload"),
    ("'a'.matches(dyn(null))", "no such overload"),
    ("[1][dyn(double('NaN'))]", "unsupported index value NaN in list"),
    ("[1][dyn(double('Infinity'))]", "unsupported index value +Inf in list"),
    ("[1][dyn(18446744073709551615u)]", "unsupported index value 18446744073709551615 in list"),
    ("{1: 2}[dyn(double('NaN'))]", "no such key: NaN"),
    ("double('NaN') < 1.0", "NaN values cannot be ordered"),
    ("1 >= dyn(double('NaN'))", "NaN values cannot be ordered"),
)
PRECISIONS = (
    ("%.99999f", "precision 99999 exceeds maximum allowed precision 1074"),
    ("%.1075e", "precision 1075 exceeds maximum allowed precision 1074"),
    ("%.f", 'error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax'),
    ("%.9999999999999999999f",
     'error while converting precision to integer: strconv.Atoi: parsing "9999999999999999999": value out of range'),
    ("%.5", "could not find end of precision specifier"),
)  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_an_edge_that_has_a_value_has_that_of_upstream(text, value):
    program = CEL.compile(text)
    assert (value, value) == (program.evaluate(GIVEN), program.outcome(GIVEN)[0])


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_an_edge_without_a_value_is_an_error_of_the_language(text, message):
    with pytest.raises(EvaluationError) as raised:
        CEL.compile(text).evaluate(GIVEN)
    assert (message, False) == (str(raised.value), isinstance(raised.value, InternalError))


@pytest.mark.parametrize(("clause", "reason"), PRECISIONS)
def test_a_precision_that_no_double_fills_is_refused_with_the_words_of_the_format_library(clause, reason):
    with pytest.raises(EvaluationError) as raised:
        CEL.compile(f"dyn('{clause}').format([1.0])").evaluate(GIVEN)
    assert f"could not parse formatting clause: error while parsing precision: {reason}" == str(raised.value)


# -- whatever a function raises


class Raising:
    """A library whose function `broken()` raises what it is told to."""

    def __init__(self, error):
        self.error = error
        overload = of("broken", (types.DYN,), types.BOOL, self._raise)
        self.environment = Environment(
            {"self": types.STRING}, libraries=(*KUBERNETES, Library({"broken": (overload,)}))
        )

    def _raise(self, _):
        raise self.error


@pytest.fixture
def reported(monkeypatch):
    found = []
    known = faults._Faults()
    known.listener = lambda subject, stack: found.append((subject, stack))
    monkeypatch.setattr(environment.faults, "report", known.report)
    return found


RAISED = (KeyError("a"), RecursionError("too deep"), MemoryError(), ZeroDivisionError("by zero"), AssertionError())


@pytest.mark.parametrize("error", RAISED, ids=lambda each: type(each).__name__)
def test_whatever_a_function_raises_the_evaluation_ends_with_an_error_of_the_language(error, reported):
    program = Raising(error).environment.compile("self == 'b' || broken(self)")
    with pytest.raises(InternalError, match="internal error: " + type(error).__name__) as raised:
        program.evaluate({"self": "a"})
    assert error is raised.value.__cause__
    _, answer, cost = program.outcome({"self": "a"})
    assert (str(raised.value), True) == (str(answer), cost > 0)
    with pytest.raises(InternalError):
        program.evaluate_with_cost(["a"])


def test_a_fault_in_an_expression_is_reported_once_with_its_stack(reported):
    program = Raising(KeyError("a")).environment.compile("broken(self)")
    for _ in range(3):
        program.outcome({"self": "a"})
    [(subject, stack)] = reported
    assert "the expression broken(self)" == subject
    assert "in _raise" in stack


def test_an_error_of_the_language_is_no_fault(reported):
    assert "no such overload: ip(null_type)" == str(CEL.compile("null.ip()").outcome(GIVEN)[1])
    assert [] == reported


def test_a_fault_decides_although_the_other_side_of_or_is_true(reported):
    program = Raising(KeyError("a")).environment.compile("broken(self) || true")
    assert isinstance(program.outcome({"self": "a"})[1], InternalError)


def test_a_fault_while_an_expression_is_compiled_is_an_error_of_its_evaluation(monkeypatch, reported):
    def broken(*_):
        raise RecursionError("too deep")

    monkeypatch.setattr(environment, "check", broken)
    with pytest.raises(InternalError, match="internal error: RecursionError: too deep"):
        CEL.compile_anew("1 + 1")
    assert ["the expression 1 + 1"] == [subject for subject, _ in reported]


def test_a_device_selector_with_a_fault_has_no_answer(monkeypatch, reported):
    program = Raising(KeyError("a")).environment.compile("broken(self)")
    monkeypatch.setattr("services.cel.device_selectors.compile_program", lambda _: program)
    compile_selector.cache_clear()
    with pytest.raises(SelectorFailure, match="internal error: KeyError"):
        compile_selector("anything")("d", Device(name="a"))
    compile_selector.cache_clear()
