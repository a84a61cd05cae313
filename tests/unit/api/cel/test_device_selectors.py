"""CEL selectors of devices: what they mean, and what is refused when it is read (dra-core 2)."""

from __future__ import annotations

import pytest

from services.api.cel.device_selectors import SelectorError, SelectorFailure, compile_selector
from services.api.kinds.resourceslice import Device, DeviceAttribute, DeviceCapacity

DEVICE = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string="a100"),
        "index": DeviceAttribute(int_value=3),
        "shared": DeviceAttribute(bool_value=False),
        "firmware": DeviceAttribute(version="1.2.3-rc.1"),
        "other.example/root": DeviceAttribute(string="pci0"),
    },
    capacity={"memory": DeviceCapacity(value="40Gi")},
)
DRIVER = "gpu.example"
OWN = f'device.attributes["{DRIVER}"]'


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ('device.driver == "gpu.example"', True),
        ("device.driver == 'x'", False),
        (f'{OWN}.model == "a100"', True),
        (f'{OWN}["model"] in ["h100", "a100"]', True),
        (f"{OWN}.index >= 3 && {OWN}.index < 4", True),
        (f"!{OWN}.shared", True),
        (f'{OWN}.firmware.isLessThan(semver("1.2.3"))', True),
        (f'{OWN}.firmware.compareTo(semver("1.2.3-rc.2")) < 0', True),
        ('device.attributes["other.example"].root.startsWith("pci")', True),
        (f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40960Mi")) == 0', True),
        (f'"speed" in {OWN}', False),
        (f"has({OWN}.model) ? true : false", True),
        ('size(device.attributes["absent.example"]) == 0', True),
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
        ('device.attributes["absent.example"].speed == 1', "no such key: speed"),
        (f"{OWN}.model > 1", "no such overload: _>_(string, int)"),
        (f"{OWN}.model", "expression yields string, not bool"),
    ],
)
def test_a_question_without_answer_is_an_error_and_not_a_no(expression, why):
    with pytest.raises(SelectorFailure) as failure:
        compile_selector(expression)(DRIVER, DEVICE)

    assert str(failure.value) == why


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("device.driver ==", "column 17: unexpected the end"),
        ("device.colour == 1", "undefined field 'colour'"),
        ("gpu == 1", "undeclared reference to 'gpu'"),
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("1 + 1 == 2", "arithmetic (+) is not supported"),
        ('device.driver.matches("g.*")', "function 'matches' with 1 argument(s) is not supported"),
        (f"{OWN}.?model.orValue('x') == 'x'", "optional fields (.?) are not supported"),
        ("#", "column 1: cannot read '#'"),
        ("(" * 40 + "true" + ")" * 40, "nested deeper than 32"),
        (" || ".join(["true"] * 300), "more than 200 operators"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_when_it_is_read(expression, why):
    with pytest.raises(SelectorError) as error:
        compile_selector(expression)

    assert why in str(error.value)
