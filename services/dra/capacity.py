"""Consumption of a device's capacity by a share (consumable capacity, KEP-5075). Pure.

Every capacity of the device counts. A capacity without a request is consumed by the policy's default, or whole.
Amounts are compared in thousandths.
Source: dra-core 3.3; upstream
`staging/src/k8s.io/dynamic-resource-allocation/structured/internal/incubating/consumable_capacity.go`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from services.api.kinds.resourceslice import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from services.api.quantity import format_amount, milli, units

_DECIMAL = ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


class Consumption(NamedTuple):
    """Consumption of one capacity: its published name, full name, amount (thousandths and text), and the total."""

    name: str
    full_name: str
    amount: int
    text: str
    value: int


def full_name(name: str, driver: str) -> str:
    """Return the name with its domain; the default domain is the driver's."""
    return name if "/" in name else f"{driver}/{name}"


def consumption_of(
    published: Mapping[str, DeviceCapacity], driver: str, requests: Mapping[str, str]
) -> tuple[Consumption, ...] | None:
    """Return a claim's consumption of each capacity; None if the device cannot serve it: a capacity is missing, or
    its policy has no such amount.
    """
    wanted = {full_name(name, driver): text for name, text in requests.items()}
    if wanted.keys() - {full_name(name, driver) for name in published}:
        return None
    consumptions = []
    for name, capacity in published.items():
        full = full_name(name, driver)
        text = _round_amount(wanted.get(full), capacity)
        if _violates(text, capacity.request_policy):
            return None
        consumptions.append(Consumption(name, full, milli(text), text, milli(capacity.value)))
    return tuple(consumptions)


def _round_amount(requested: str | None, capacity: DeviceCapacity) -> str:
    policy = capacity.request_policy
    if requested is None:
        return canonical(policy.default if policy is not None and policy.default is not None else capacity.value)
    if policy is not None and policy.valid_range is not None:
        return _within(requested, policy.valid_range)
    if policy is not None and policy.valid_values:
        return canonical(_next_of(policy.valid_values, requested))
    return canonical(requested)


def _within(requested: str, range_: CapacityRequestPolicyRange) -> str:
    """Return the next step from the minimum; steps are whole units, as upstream counts them."""
    if milli(requested) < milli(range_.min):
        return canonical(range_.min)
    if range_.step is None:
        return canonical(requested)
    least, step = units(range_.min), units(range_.step)
    return _format(1000 * (least - (least - units(requested)) // step * step), range_.step)


def _next_of(values: Sequence[str], requested: str) -> str:
    return next((each for each in values if milli(each) >= milli(requested)), requested)


def _violates(text: str, policy: CapacityRequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and milli(policy.default) == milli(text)):
        return False
    if policy.valid_range is not None:
        range_ = policy.valid_range
        if range_.max is not None and milli(text) > milli(range_.max):
            return True
        return range_.step is not None and (units(text) - units(range_.min)) % units(range_.step) != 0
    return bool(policy.valid_values) and all(milli(each) != milli(text) for each in policy.valid_values)


def canonical(text: str) -> str:
    """Return the quantity as Kubernetes writes it: `1024Mi` is `1Gi`, `0.5` is `500m`."""
    has_exponent = text[-1:].isdigit() and "e" in text.lower()
    return text if has_exponent else _format(milli(text), text)


def _format(amount: int, like: str) -> str:
    """Return thousandths as text, in the binary or decimal family of `like`."""
    if amount % 1000:
        return f"{amount}m"
    whole = amount // 1000
    if like.endswith("i"):
        return format_amount("", whole)
    for factor, suffix in _DECIMAL:
        if whole and whole % factor == 0:
            return f"{whole // factor}{suffix}"
    return str(whole)
