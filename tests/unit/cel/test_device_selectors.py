"""CEL selectors of devices: what they mean, what they cost, and what is refused when it is read (dra-core 2).

Costs are those that upstream's own test expects (k8s.io/dynamic-resource-allocation cel/compile_test.go).
"""

from __future__ import annotations

import pytest

from services.api.kinds.resourceslice import Device, DeviceAttribute, DeviceCapacity
from services.cel.device_selectors import (
    AttributeMissing,
    SelectorError,
    SelectorFailure,
    SelectorTooComplex,
    check_new_selector,
    compile_program,
    compile_selector,
    environment,
)

DEVICE = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string="a100"),
        "index": DeviceAttribute(int_value=3),
        "shared": DeviceAttribute(bool_value=False),
        "firmware": DeviceAttribute(version="1.2.3-rc.1"),
        "numa": DeviceAttribute(ints=(0, 1)),
        "drivers": DeviceAttribute(versions=("1.0.0", "2.0.0")),
        "other.example/root": DeviceAttribute(string="pci0"),
    },
    capacity={"memory": DeviceCapacity(value="40Gi")},
    allow_multiple_allocations=True,
)
DRIVER = "gpu.example"
OWN = f'device.attributes["{DRIVER}"]'
LIST_MAX = 64


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ('device.driver == "gpu.example"', True),
        ("device.driver == 'x'", False),
        (f'{OWN}.model == "a100"', True),
        (f'{OWN}["model"] in ["h100", "a100"]', True),
        (f"{OWN}.index >= 3 && {OWN}.index < 4", True),
        (f"{OWN}.index + 1 == 4", True),
        (f"!{OWN}.shared", True),
        (f'{OWN}.firmware.isLessThan(semver("1.2.3"))', True),
        (f'{OWN}.firmware.compareTo(semver("v1.2.3-rc.2", true)) < 0', True),
        ('device.attributes["other.example"].root.startsWith("pci")', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40960Mi")) == 0', True),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("39Gi"))', True),
        (f'"speed" in {OWN}', False),
        (f"has({OWN}.model) ? true : false", True),
        (f"{OWN}.?speed.orValue(7) == 7", True),
        (f"{OWN}.?index.orValue(7) == 7", False),
        (f'cel.bind(own, {OWN}, own.model == "a100" && own.index == 3)', True),
        (f'{OWN}.model.matches("^[ah]100$")', True),
        (f"{OWN}.exists(name, name == 'index')", True),
        ("device.attributes.all(domain, domain.endsWith('.example'))", True),
        (f"{OWN}.numa.exists(each, each == 1)", True),
        (f"{OWN}.numa.includes(1) && {OWN}.index.includes(3) && !{OWN}.numa.includes(3)", True),
        (f'{OWN}.drivers.includes(semver("2.0.0"))', True),
        ("device.allowMultipleAllocations", True),
        # A domain that no attribute has is empty, and not in the map.
        ('size(device.attributes["absent.example"]) == 0', True),
        ('"absent.example" in device.attributes', False),
        ('"gpu.example" in device.capacity', True),
        # What decides, decides; an error on the other side does not count.
        (f"{OWN}.speed > 1 && false", False),
        (f"true || {OWN}.speed > 1", True),
        (f'{OWN}.index == "3"', False),
    ],
)
def test_an_expression_selects(expression, answer):
    assert compile_selector(expression)(DRIVER, DEVICE) is answer


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (f"{OWN}.speed > 1", "no such key: speed"),
        (f'{OWN}["speed"]', "no such key: speed"),
        ('device.attributes["absent.example"].speed == 1', "no such key: speed"),
        (f"{OWN}.model > 1", "no such overload"),
        (f"{OWN}.model", "CEL result of type string could not be converted to bool"),
        (f'{OWN}.firmware == "1.2.3-rc.1"', "no such overload"),
        (f"{OWN}.firmware < 3", "no such overload: _<_"),
        (f"{OWN}.numa", "CEL result of type list could not be converted to bool"),
        (f"{OWN}.index.exists(each, each > 0)", "got 'types.Int', expected iterable type"),
        (f"{OWN}.firmware.exists(each, each.major() > 0)", "got 'cel.Semver', expected iterable type"),
    ],
)
def test_a_question_without_answer_is_an_error_and_not_a_no(expression, why):
    with pytest.raises(SelectorFailure) as failure:
        compile_selector(expression)(DRIVER, DEVICE)

    assert str(failure.value).startswith(why)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("?!", "Syntax error: extraneous input '?' expecting"),
        (
            "device.colour == 1",
            "compilation failed: ERROR: <input>:1:7: undefined field 'colour'\n | device.colour == 1\n | ......^",
        ),
        (
            "gpu == 1",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'gpu' (in container '')\n | gpu == 1\n | ^",
        ),
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("device.attributes", "not map(string, map(string, dyn))"),
        ('device.driver.matches("(")', "ERROR: <input>:1:23: invalid matches argument"),
        ("device.driver > 1", "found no matching overload for '_>_' applied to '(string, int)'"),
        ('int("x") == 1', "program instantiation failed: type conversion error from 'string' to 'int'"),
        ("true" + " " * 10240, "Too long: may not be more than 10240 bytes"),
        ("(" * 150 + "true" + ")" * 150, "expression recursion limit exceeded: 60"),
    ],
)
def test_what_cannot_be_a_selector_is_refused_when_it_is_read(expression, why):
    with pytest.raises(SelectorError) as error:
        compile_selector(expression)

    assert why in str(error.value)


def test_what_gates_do_not_allow_is_refused_where_it_is_new():
    check_new_selector("device.driver == 'x' && device.allowMultipleAllocations")
    check_new_selector(f"{OWN}.numa.includes(1)", list_attributes=True)

    with pytest.raises(SelectorError, match="undeclared reference"):
        check_new_selector(f"{OWN}.numa.includes(1)")
    with pytest.raises(SelectorError, match="must evaluate to bool or the unknown type, not dyn"):
        check_new_selector("dyn(true)")
    with pytest.raises(SelectorError, match="expression of type 'any' cannot be range of a comprehension"):
        check_new_selector(f"{OWN}.numa.exists(each, each == 1)")
    with pytest.raises(SelectorError, match="undefined field"):
        check_new_selector("device.allowMultipleAllocations", consumable_capacity=False)


def test_what_may_cost_too_much_is_refused_where_it_is_new():
    with pytest.raises(SelectorTooComplex, match="too complex, exceeds cost limit"):
        check_new_selector(nested(7))


def test_a_long_chain_of_alternatives_is_no_deep_tree():
    assert compile_selector(" || ".join(["false"] * 1000 + ["true"]))(DRIVER, DEVICE) is True


def test_a_long_chain_of_optional_mappings_is_compiled_at_once_and_cancelled():
    expression = "optional.of(1)" + ".optMap(v, v)" * 25 + ".hasValue()"

    with pytest.raises(SelectorFailure, match="actual cost limit exceeded"):
        compile_selector(expression)(DRIVER, DEVICE)


@pytest.mark.parametrize("expression", ["[" * 59 + "1" + "]" * 59 + " == []", " + ".join(["1"] * 110) + " > 0"])
def test_what_may_be_nested_can_be_evaluated(expression):
    program = environment().compile(expression)

    assert program.evaluate_with_cost(({},))[0] is program.evaluate_in(({},))


def test_the_one_value_of_an_attribute_may_be_false_or_zero():
    device = Device(name="d", attributes={"a": DeviceAttribute(int_value=0), "b": DeviceAttribute(strings=())})

    assert compile_selector(f"{OWN}.a == 0 && {OWN}.b.size() == 0")(DRIVER, device) is True


ALL = (
    'device.capacity["dra.example.com"].quantity.isGreaterThan(quantity("1Ki")) && '
    'device.attributes["dra.example.com"].bool && device.attributes["dra.example.com"].int > 0 && '
    'device.attributes["dra.example.com"].string == "fish" && '
    'device.attributes["dra.example.com"].version.isGreaterThan(semver("0.0.1")) && '
    'device.capacity["dra.example.com"]["quantity"].isGreaterThan(quantity("1Ki")) && '
    'device.attributes["dra.example.com"]["bool"] && device.attributes["dra.example.com"]["int"] > 0 && '
    'device.attributes["dra.example.com"]["string"] == "fish" && '
    'device.attributes["dra.example.com"]["version"].isGreaterThan(semver("0.0.1"))'
)
TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"


def nested(depth):
    inside = "int('1'.find('[0-9]*')) < 100"
    for level in range(depth):
        inside = f"{TEN}.all(z{level}, {inside})"
    return inside


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("true", 0),
        ('"no-such-domain" in device.attributes', 3),
        ('device.driver == ""', 2),
        ('device.driver == "dra.example.com"', 4),
        ('device.attributes["dra.example.com"].name', 4),
        ('cel.bind(dra, device.attributes["dra.example.com"], dra.name)', 15),
        ('device.attributes["dra.example.com"].name > 0', 5),
        ('device.attributes["dra.example.com"].name == "fish"', 5),
        ('device.attributes["dra.example.com"].name.exists(x, x > 0)', 5 + 6 * LIST_MAX),
        ('device.attributes["dra.example.com"].names.all(x, x != "")', 5 + 4 * LIST_MAX),
        ('device.attributes["d"].names.all(x, x.isGreaterThan(semver("0.0.1")))', 5 + 6 * LIST_MAX),
        ('device.attributes["dra.example.com"].name.includes("fish")', 4 + 48),
        ('device.attributes["dra.example.com"].name.includes(semver("1.0.0"))', 4 + 48 + 1),
        ('1 in device.attributes["dra.example.com"].names', 4 + LIST_MAX),
        ('device.attributes["dra.example.com"].names.size() == 2', 6),
        ('device.attributes["d"].name.isGreaterThan(semver("v0.0.1", true)) && isSemver("v1.0.0", true)', 7),
        ('device.capacity["dra.example.com"].name.isGreaterThan(quantity("1Ki"))', 6),
        ('"name" in device.capacity["d"] && device.capacity["d"].name.isGreaterThan(quantity("1Ki"))', 10),
        ('!("name" in device.capacity["d"]) || device.capacity["d"].name.isGreaterThan(quantity("1Ki"))', 11),
        (ALL, 52),
        ('device.attributes.exists_one(x, x == "dra.example.com")', 164),
        ('device.attributes["dra.example.com"].exists_one(x, x == "services")', 133),
        ('device.attributes["dra.example.com"].services.split("example").size() >= 2', 19),
        ('device.attributes["dra.example.com"].services.matches("[^a]?sym")', 18),
        ('device.capacity["dra.example.com"].exists_one(x, x == "memory")', 133),
        ("device.allowMultipleAllocations == true", 3),
        (nested(7), 85555551),
    ],
)
def test_the_cost_of_an_expression_is_estimated_as_upstream_does(expression, cost):
    assert compile_program(expression).cost.most == cost


def test_what_has_cost_too_much_is_cancelled():
    with pytest.raises(SelectorFailure) as failure:
        compile_selector(nested(6))(DRIVER, DEVICE)

    assert str(failure.value) == "operation cancelled: actual cost limit exceeded"


def test_what_a_device_has_not_published_is_an_error_of_its_own():
    with pytest.raises(AttributeMissing):
        compile_selector(f"{OWN}.speed > 1")(DRIVER, DEVICE)
    with pytest.raises(SelectorFailure) as failure:
        compile_selector(f"{OWN}.model > 1")(DRIVER, DEVICE)
    assert not isinstance(failure.value, AttributeMissing)
