"""Which devices a CEL selector means (KEP-4381, dra-core 2).

The variable `device` has `driver`, `attributes`, `capacity` and `allowMultipleAllocations`. Attributes are grouped by
domain; a name without one belongs to the driver's. A domain without attributes is empty, an attribute that was not
published is an error, and an error ends the pod's attempt: it is not a mismatch.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from services.api.cel.evaluator import EvaluationError, Quantity, Version, compiled, type_name
from services.api.cel.parser import Call, Literal, Node, ParseError, parse
from services.api.kinds.resourceslice import Device
from services.api.quantity import milli

FIELDS: Final = ("driver", "attributes", "capacity", "allowMultipleAllocations")
_BOOLEAN: Final = frozenset(
    ("||", "&&", "!", "==", "!=", "<", "<=", ">", ">=", "in", "has", "startsWith", "endsWith", "contains",
     "isGreaterThan", "isLessThan")
)  # fmt: skip
_OTHER: Final[Mapping[str, str]] = {
    "quantity": "kubernetes.Quantity", "semver": "kubernetes.Semver", "size": "int", "compareTo": "int",
}  # fmt: skip


class SelectorError(ValueError):
    """The expression cannot be a selector here; the message says why."""


class SelectorFailure(ValueError):
    """The expression has no answer for this device; the message says why."""


Selector = Callable[[str, Device], bool]
"""`(driver, device)` to whether the device is meant. Raises: SelectorFailure."""


class Domains(Mapping[str, Mapping[str, Any]]):
    """Values by domain and name; every domain exists, most are empty."""

    def __init__(self, values: Mapping[str, Mapping[str, Any]]) -> None:
        self._values = values

    def __getitem__(self, domain: str) -> Mapping[str, Any]:
        return self._values.get(domain, {})

    def __contains__(self, domain: object) -> bool:
        return domain in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@lru_cache(maxsize=1024)
def compile_selector(expression: str) -> Selector:
    """Return the selector; compiled once an expression. Raises: SelectorError."""
    try:
        tree = parse(expression)
        program = compiled(tree, {"device": FIELDS})
    except ParseError as error:
        raise SelectorError(f"compilation failed: {error}") from None
    if (found := _type_of(tree)) not in ("bool", "any"):
        raise SelectorError(f"must evaluate to bool or the unknown type, not {found}")

    def selects(driver: str, device: Device) -> bool:
        try:
            answer = program({"device": _variables(driver, device)})
        except EvaluationError as error:
            raise SelectorFailure(str(error)) from None
        if not isinstance(answer, bool):
            raise SelectorFailure(f"expression yields {type_name(answer)}, not bool")
        return answer

    return selects


def _type_of(tree: Node) -> str:
    match tree:
        case Literal(value):
            return type_name(value)
        case Call(name="?:", args=(_, yes, no)):
            found = _type_of(yes)
            return found if found == _type_of(no) else "any"
        case Call(name=name):
            return "bool" if name in _BOOLEAN else _OTHER.get(name, "any")
    return "any"


def _variables(driver: str, device: Device) -> Mapping[str, Any]:
    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in device.attributes.items():
        if attribute.typed is not None:
            kind, value = attribute.typed
            domain, _, short = name.rpartition("/")
            known = Version.parse(str(value)) if kind == "version" else value
            attributes.setdefault(domain or driver, {})[short] = known
    capacity: dict[str, dict[str, Quantity]] = {}
    for name, each in device.capacity.items():
        domain, _, short = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[short] = Quantity(milli(each.value))
    return {"driver": driver, "attributes": Domains(attributes), "capacity": Domains(capacity),
            "allowMultipleAllocations": False}  # fmt: skip
