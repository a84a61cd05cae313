"""Device taints: their tolerations, and the taints that administrators add (KEP-5055). Pure.

Source: dra-core 3.3, 8; upstream
`staging/src/k8s.io/dynamic-resource-allocation/resourceclaim/devicetoleration.go` and, for the rules,
`staging/src/k8s.io/dynamic-resource-allocation/resourceslice/tracker/tracker.go`.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from services.api.kinds.devicetaintrule import DeviceTaintRule
from services.api.kinds.resourceclaim import DeviceToleration
from services.api.kinds.resourceslice import NO_EXECUTE, NO_SCHEDULE, Device, DeviceTaint, ResourceSlice


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether the toleration matches that taint; the caller handles the effect."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def is_tolerated(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> bool:
    """Whether any toleration matches that taint."""
    return any(tolerates(each, taint) for each in tolerations)


def blocking(device: Device) -> tuple[DeviceTaint, ...]:
    """Return the taints that claims must tolerate: NoSchedule and NoExecute. None and unknown effects do not count."""
    return tuple(taint for taint in device.taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE))


def with_rules(slices: Iterable[ResourceSlice], rules: Sequence[DeviceTaintRule]) -> list[ResourceSlice]:
    """Return the slices with the rules' taints after their drivers' own, sorted by rule name.

    A slice without affected devices is returned unchanged. A rule without a selector applies to no device, one with
    an empty selector to every device in the cluster.
    """
    ordered = sorted(rules, key=lambda rule: rule.metadata.name)
    return [with_taints(each, ordered) for each in slices]


def with_taints(offer: ResourceSlice, rules: Sequence[DeviceTaintRule]) -> ResourceSlice:
    """Return one slice with the rules' taints, in the order of the rules."""
    spec = offer.spec
    near = [rule for rule in rules if concerns(rule, spec.driver, spec.pool.name)]
    if not near:
        return offer
    devices = []
    for device in spec.devices:
        more = tuple(
            rule.spec.taint
            for rule in near
            if rule.spec.device_selector is not None
            and rule.spec.device_selector.selects(spec.driver, spec.pool.name, device.name)
        )
        devices.append(replace(device, taints=(*device.taints, *more)) if more else device)
    if all(new is old for new, old in zip(devices, spec.devices, strict=True)):
        return offer
    return replace(offer, spec=replace(spec, devices=tuple(devices)))


def concerns(rule: DeviceTaintRule, driver: str, pool: str) -> bool:
    """Whether the rule may apply to devices of that pool."""
    selector = rule.spec.device_selector
    return selector is not None and selector.driver in (None, driver) and selector.pool in (None, pool)
