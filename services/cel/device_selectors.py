"""CEL selectors of devices (KEP-4381, dra-core 2).

The variable `device` has `driver`, `attributes`, `capacity` and `allowMultipleAllocations`. Attributes are
grouped by domain; a name without a domain belongs to the driver's. A domain without attributes is empty. A read
of an unpublished attribute is an error, and an error ends the pod's attempt: it is not a mismatch.

Source: kubernetes/kubernetes staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, Final

from services.api.kinds.resourceslice import Device, DeviceAttribute
from services.cel import types
from services.cel.costs import Range
from services.cel.environment import COST_LIMIT, KUBERNETES, CompileError, Environment, EvaluationError, Program
from services.cel.libraries import extensions, kubernetes
from services.cel.quantities import QUANTITY, Quantity, quantity
from services.cel.types import ANY, BOOL, DYN, STRING, Type, map_of
from services.cel.values import NoSuchKey, type_name, utf8
from services.cel.versions import semver

LENGTH_MAX: Final = 10 * 1024
_DOMAIN_MAX, _ID_MAX, _DRIVER_MAX, _VALUE_MAX, _ENTRIES_MAX = 63, 32, 63, 64, 32
_DEVICE: Final = types.object_of("kubernetes.DRADevice")
_FIELDS: Final = {
    "driver": STRING,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    "allowMultipleAllocations": BOOL,
}


class SelectorError(ValueError):
    """Error: the expression cannot be a selector; the message says why."""


class SelectorTooComplex(SelectorError):
    """Error: an evaluation may exceed the cost limit; the API server reports this as forbidden, not as invalid."""


class SelectorFailure(ValueError):
    """Error: the expression has no result for this device; the message says why."""


class AttributeMissing(SelectorFailure):
    """Error: the device has not published an attribute that the expression reads."""


Selector = Callable[[str, Device], bool]
"""Function of `(driver, device)`: whether the selector matches the device. Raises: SelectorFailure."""


class Domains(dict[str, Mapping[str, Any]]):
    """Values by domain and name; unknown domains read as empty."""

    def __missing__(self, domain: str) -> Mapping[str, Any]:
        return {}


def _sizes(path: tuple[str, ...]) -> Range | None:
    """Return how large a part of `device` can be: the API limits names and values of attributes."""
    match path:
        case ("device",):
            return Range()
        case ("device", "allowMultipleAllocations"):
            return Range(0, 1)
        case ("device", "driver"):
            return Range(0, _DRIVER_MAX)
        case ("device", "attributes" | "capacity") | ("device", "attributes" | "capacity", "@values"):
            return Range(0, _ENTRIES_MAX)
        case ("device", "attributes" | "capacity", "@keys"):
            return Range(0, _DOMAIN_MAX)
        case ("device", "attributes" | "capacity", "@values", "@keys"):
            return Range(0, _ID_MAX)
        case ("device", "attributes", "@values", _):
            return Range(0, _VALUE_MAX)
        case ("device", "capacity", "@values", "@values"):
            return Range()
    return None


@cache
def environment(*, list_attributes: bool = True, consumable_capacity: bool = True) -> Environment:
    """Return the environment for compiling selectors. Gates limit only new selectors; stored ones are always
    evaluated.
    """
    fields = {name: what for name, what in _FIELDS.items() if consumable_capacity or name != "allowMultipleAllocations"}
    # What may be a list can be gone through by macros: `any` cannot.
    fields["attributes"] = map_of(STRING, map_of(STRING, DYN if list_attributes else ANY))
    return Environment(
        {"device": _DEVICE},
        objects={"kubernetes.DRADevice": fields},
        libraries=(*KUBERNETES, extensions.BINDINGS, *([kubernetes.INCLUDES] if list_attributes else [])),
        cost_limit=COST_LIMIT,
        sizes=_sizes,
    )


@lru_cache(maxsize=1024)
def compile_selector(expression: str) -> Selector:
    """Return the selector; each expression is compiled once. Raises: SelectorError."""
    program = compile_program(expression)
    run = program.evaluate_in

    def selects(driver: str, device: Device) -> bool:
        try:
            answer = run((variables(driver, device),))
        except NoSuchKey as error:
            raise AttributeMissing(str(error)) from None
        except EvaluationError as error:
            raise SelectorFailure(str(error)) from None
        if answer is True or answer is False:
            return bool(answer)
        raise SelectorFailure(
            f"CEL result of type {type_name(answer)} could not be converted to bool: "
            f"type conversion error from '{type_name(answer)}' to 'bool'"
        )

    return selects


def check_new_selector(expression: str, *, list_attributes: bool = False, consumable_capacity: bool = True) -> None:
    """Check a new expression, one not stored before, against what the gates DRAListTypeAttributes and
    DRAConsumableCapacity allow. Raises: SelectorError, SelectorTooComplex.
    """
    among = environment(list_attributes=list_attributes, consumable_capacity=consumable_capacity)
    if _compile(expression, among, DYN if list_attributes else ANY).cost.most > COST_LIMIT:
        raise SelectorTooComplex("too complex, exceeds cost limit")


def compile_program(expression: str) -> Program:
    """Return the program of a stored selector, with its estimated cost. Raises: SelectorError."""
    return _compile(expression, environment(), DYN)


def _compile(expression: str, among: Environment, unknown: Type) -> Program:
    """Return the program. `unknown`: the type of attributes, which may be what the expression yields."""
    if len(utf8(expression)) > LENGTH_MAX:
        raise SelectorError(f"Too long: may not be more than {LENGTH_MAX} bytes")
    try:
        program = among.compile(expression)
    except CompileError as error:
        raise SelectorError(f"compilation failed: {error}") from None
    except EvaluationError as error:
        raise SelectorError(f"program instantiation failed: {error}") from None
    if program.type not in (BOOL, unknown):
        raise SelectorError(f"must evaluate to bool or the unknown type, not {program.type}")
    return program


_KNOWN: Final[dict[int, tuple[Device, str, _Variables]]] = {}
_KNOWN_MAX: Final = 4096


def variables(driver: str, device: Device) -> Mapping[str, Any]:
    """Return the value of `device` in expressions; cached, because many selectors read the same device."""
    known = _KNOWN.get(id(device))
    if known is not None and known[0] is device and known[1] == driver:
        return known[2]
    if len(_KNOWN) >= _KNOWN_MAX:
        _KNOWN.clear()
    device_variables = _Variables(driver, device)
    _KNOWN[id(device)] = (device, driver, device_variables)
    return device_variables


class _Variables(dict[str, Any]):
    """The value of `device` for one device; each part is made when it is first read."""

    __slots__ = ("_device", "_driver")

    def __init__(self, driver: str, device: Device) -> None:
        super().__init__(driver=driver, allowMultipleAllocations=device.allow_multiple_allocations)
        self._driver, self._device = driver, device

    def __missing__(self, name: str) -> Any:
        if name == "attributes":
            domains = _by_domain(self._driver, self._device.attributes.items(), _attribute)
        elif name == "capacity":
            domains = _by_domain(self._driver, self._device.capacity.items(), lambda each: _quantity(each.value))
        else:
            raise KeyError(name)
        self[name] = domains
        return domains

    def __iter__(self) -> Iterator[str]:
        return iter(_FIELDS)


def _by_domain(driver: str, values: Any, value_of: Callable[[Any], Any]) -> Domains:
    domains: dict[str, dict[str, Any]] = {}
    for name, entry in values:
        value = value_of(entry)
        if value is not None:
            domain, slash, short = name.partition("/")
            if slash:
                domains.setdefault(domain, {})[short] = value
            else:
                domains.setdefault(driver, {})[name] = value
    return Domains(domains)


def _quantity(text: str) -> Quantity:
    return quantity(text)


def _attribute(attribute: DeviceAttribute) -> Any:
    if attribute.string is not None:
        return attribute.string
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.version is not None:
        return semver(attribute.version)
    if attribute.versions is not None:
        return tuple(map(semver, attribute.versions))
    lists = (attribute.strings, attribute.ints, attribute.bools)
    return next((each for each in lists if each is not None), None)
