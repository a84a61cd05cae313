"""What a scenario may say after `measure`, what that yields, and what is said of a mistake."""

import re

import pytest

from lab.scenarios.measures import expression
from lab.scenarios.measures.expression import parse_measure
from services.cel.values import EvaluationError

PODS = [
    {"metadata": {"name": "a"}, "status": {"phase": "Running"}, "at": {"created": 1.0, "running": 3.0}},
    {"metadata": {"name": "b"}, "status": {"phase": "Running"}, "at": {"created": 1.0, "running": 6.0}},
    {"metadata": {"name": "c"}, "status": {"phase": "Pending"}, "at": {"created": 1.0}},
]
LINES = {"sched.bind_result": [{"data": {"outcome": "ok"}}, {"data": {"outcome": "conflict"}}]}


def value(text):
    return parse_measure(f"m = {text}")[1].value({"pods": PODS, "created.pods": PODS, "lines": LINES, "seconds": 9.0})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('pods.filter(p, p.status.phase == "Running").size()', 2.0),
        ("pods.exists(p, has(p.at.running))", 1.0),
        ("created.pods.map(p, has(p.at.running), p.at.running - p.at.created).sum()", 7.0),
        ("created.pods.map(p, has(p.at.running), p.at.running - p.at.created).quantile(0.99)", 5.0),
        ("created.pods.map(p, has(p.at.running), p.at.running - p.at.created).mean()", 3.5),
        ("created.pods.map(p, has(p.at.running), p.at.running - p.at.created).stddev()", 1.5),
        ('lines["sched.bind_result"].filter(l, l.data.outcome != "ok").size()', 1.0),
        ("double(pods.size()) / seconds", 3 / 9),
        ("[1, 2, 3, 4].mean()", 2.5),
        ('duration("90s")', 90.0),
        ("pods.filter(p, false).map(p, p.at.created).quantile(0.5)", None),
        ("pods.filter(p, false).map(p, p.at.created).mean()", None),
        ("pods.filter(p, false).map(p, p.at.created).stddev()", None),
        ("pods[?7].at.created", None),
    ],
)
def test_an_expression_yields_a_figure_or_none(text, expected):
    assert value(text) == (pytest.approx(expected) if expected is not None else None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pods.map(p, p.status.reason).size()", "no such key: reason"),
        ("1 / (pods.size() - 3)", "division by zero"),
        ("1.0 / 0.0", "yields inf, want a number that has an end"),
        ("pods[0].status.phase", "yields str, want a number"),
        ("pods.map(p, p.status.phase).mean()", "want a list of numbers, one is 'Running'"),
        ("[1.0].quantile(99.0)", "quantile(99): want 0 to 1"),
    ],
)
def test_an_expression_without_a_value_says_why(text, says):
    with pytest.raises(EvaluationError) as refused:
        value(text)

    assert says in str(refused.value)


@pytest.mark.parametrize("text", ["relevant=0.5", "relevant=0.5s"])
def test_the_least_difference_that_matters_is_a_number_with_or_without_the_unit(text):
    measure, _ = parse_measure(f"m unit=s {text} = 1")

    assert 0.5 == measure.relevant


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "want: measure NAME [unit=UNIT] [better=lower|higher|none] [relevant=NUMBER] [meaning=TEXT]"),
        ("m =", "measure m: want: measure NAME"),
        ("Placed = 1", "'Placed' is no name of a measure; want lower-case letters, digits and _, a letter first"),
        ("pods_failed = 1", "pods_failed is a measure that comes with keplab; want a name of its own"),
        ("cpu_imbalance_end = 1", "cpu_imbalance_end is a measure that comes with keplab"),
        ("m better=more = 1", "measure m: better=more: want lower, higher, none"),
        ("m units=s = 1", "measure m: no option 'units'; want unit, better, relevant, meaning"),
        ("m unit=s relevant=0 = 1", "measure m: relevant=0: want NUMBER or NUMBERs above 0, the least difference that"),
        ("m relevant=2s = 1", "measure m: relevant=2s: want NUMBER above 0"),
        ("m unit=s relevant=nan = 1", "measure m: relevant=nan: want NUMBER or NUMBERs above 0"),
        ("m unit=s", "measure m: options belong to an expression"),
        ("m = pds.size()", "measure m: column 1: undeclared reference to 'pds'; did you mean pods"),
        ("m = pods.fliter(p, true).size()", "undeclared reference to 'fliter'; did you mean filter"),
        ("m = pods.size(", "measure m: column "),
        ("m = pods", "measure m: it yields list(dyn), want a number: int, double, bool or duration"),
        ('m = "many"', "it yields string, want a number"),
        (
            "m = lines.size()",
            'measure m: lines: want lines["EVENT"], the name of an event as it stands in the event log',
        ),
        ("m = pods.map(p, lines[p.metadata.name].size()).sum()", 'want lines["EVENT"]'),
    ],
)
def test_a_mistake_names_the_measure_the_word_and_what_is_legal(text, says):
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        parse_measure(text)

    assert "\n" not in str(refused.value)


def test_options_say_unit_direction_and_meaning():
    measure, made = parse_measure('start unit=s better=lower meaning="Start of web" = pods.size()')

    assert ("start", "s", "lower", "Start of web", "scenario") == (
        measure.name,
        measure.unit,
        measure.better,
        measure.meaning,
        measure.source,
    )
    assert made.text == "pods.size()"


def test_without_a_meaning_the_expression_is_it():
    assert parse_measure("m = pods.size()")[0].meaning == "pods.size()"


def test_a_name_alone_is_a_packages():
    assert parse_measure("spare_nodes")[1] is None


def test_only_what_is_read_is_asked_for():
    made = parse_measure(
        'm = created.jobs.size() + nodes.size() + pods.map(p, p.versions.size()).sum() + lines["sched.attempt"].size()'
    )[1]

    assert (made.at_end, made.created) == ({"nodes", "pods"}, {"jobs"})
    assert (made.has_versions, made.events) == (True, {"sched.attempt"})


def test_an_expression_that_would_take_minutes_is_cancelled(monkeypatch):
    monkeypatch.setattr(expression, "COST_LIMIT", 10_000)
    expression._environment.cache_clear()
    try:
        endless = expression.compile_expression.__wrapped__("pods.map(p, pods.map(q, pods.size()).sum()).sum()")
    finally:
        monkeypatch.undo()
        expression._environment.cache_clear()

    with pytest.raises(EvaluationError, match="cost limit exceeded"):
        endless.value({"pods": PODS * 100})


@pytest.mark.parametrize("text", ["[1e308, 1e308].mean()", "[1e308, -1e308].stddev()"])
def test_numbers_whose_sum_is_above_all_doubles_have_no_figure(text):
    with pytest.raises(EvaluationError, match=r"(mean|stddev)\(\): "):
        expression.compile_expression(text).value({})
