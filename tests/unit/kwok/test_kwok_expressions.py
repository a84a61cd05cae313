"""KWOK's expressions: its functions, both ways to call them, Go's zeros, quantities with operators."""

import pytest

from services.kwok.expressions import Draws, Expressions, Moment, go_object

NOW_S = 1_767_225_600.0
POD = {
    "metadata": {"name": "p", "namespace": "a", "creationTimestamp": "2025-12-31T23:59:00Z"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]},
    "status": {"phase": "Running", "containerStatuses": [{"name": "c", "ready": True, "restartCount": 2}]},
}
OBJECTS = {
    "node": go_object("node", {"metadata": {"name": "n1"}, "status": {"allocatable": {"memory": "4Gi"}}}),
    "pod": go_object("pod", POD),
    "container": go_object("container", POD["spec"]["containers"][0]),
}


def moment():
    return Moment(
        NOW_S,
        Draws((7, "x")),
        usage=lambda resource, of, container: {"cpu": 0.25, "memory": 1024.0}[resource] + len(container),
        cumulative=lambda resource, of, container: 42.0,
        started=lambda node: {"n1": 9.0}[node],
    )


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1", 1),
        ("1.5", 1.5),
        ("true", 1),
        ('duration("1s")', 1e9),  # as KWOK: a duration is its nanoseconds
        ("pod.SinceSecond()", 60),
        ("SinceSecond(pod)", 60),
        ("Now().UnixSecond()", NOW_S),
        ("UnixSecond(now())", NOW_S),
        ("pod.metadata.creationTimestamp.UnixSecond()", NOW_S - 60),
        ('Quantity("250m")', 0.25),
        ('"250m".Quantity()', 0.25),
        ('Quantity("1Gi").AsApproximateFloat64()', 2**30),
        ('Quantity("1Gi") + Quantity("1Ki")', 2**30 + 1024),
        ('Quantity("3") / 2', 1.5),
        ('Quantity("3") * 0.5 - Quantity("500m")', 1),
        ('-Quantity("3")', -3),
        ('Quantity("1Ki") > Quantity("1k")', 1),
        ('container.resources.requests["cpu"] * 2', 1),
        ('"cpu" in container.resources.limits ? 1.0 : 0.0', 0),
        ('"kwok.x-k8s.io/usage-cpu" in pod.metadata.annotations', 0),
        ('Quantity(node.status.allocatable["memory"]).AsApproximateFloat64() - node.Usage("memory")', 2**32 - 1024),
        ('pod.Usage("cpu", container.name)', 1.25),
        ('pod.CumulativeUsage("cpu")', 42),
        ("node.StartedContainersTotal()", 9),
        ('startedContainersTotal("n1")', 9),
        ("pod.Ready(container.name) ? 1.0 : 0.0", 1),
        ("pod.RestartCount(container.name)", 2),
        ('pod.status.phase == "Running" ? 2.0 : 5.0', 2),
        ("math.greatest(1, 2)", None),
    ],
)
def test_an_expression_gives_a_number(expression, value):
    found = Expressions(has_usage=True)

    if value is None:
        with pytest.raises(ValueError, match="undeclared reference to 'math'"):
            found.number(expression, OBJECTS, moment())
    else:
        assert value == found.number(expression, OBJECTS, moment())


@pytest.mark.parametrize("expression", ["pod", '"a"', "pod.metadata.nothing", 'Quantity("x")', "1 / 0", 'Rand() / "a"'])
def test_what_is_no_number_is_refused(expression):
    with pytest.raises(ValueError, match=r"."):
        Expressions().number(expression, OBJECTS, moment())


def test_equal_moments_have_equal_luck_and_draws_differ():
    found = Expressions()
    first = found.number("Rand()", OBJECTS, moment())
    assert first == found.number("Rand()", OBJECTS, moment())
    assert 0 <= first < 1
    assert found.number("Rand() == Rand()", OBJECTS, moment()) == 0
    assert first != found.number("Rand()", OBJECTS, Moment(NOW_S, Draws((8, "x"))))


def test_a_label_is_a_text():
    assert Expressions().text("pod.metadata.namespace + '/' + container.name", OBJECTS, moment()) == "a/c"
    with pytest.raises(ValueError, match="gives int: want a text"):
        Expressions().text("1", OBJECTS, moment())
