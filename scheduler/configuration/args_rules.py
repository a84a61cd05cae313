"""What upstream demands of its own plugins' arguments, beyond their types.

The rules read the arguments as they stand in the file: the types are the plugin's business (its `Args` class),
so whatever has the wrong one is passed over here. Fields left out have upstream's defaults, which are valid.

Source: upstream `pkg/scheduler/apis/config/validation/validation_pluginargs.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from scheduler.configuration.problems import duplicate, forbidden, invalid, required, unsupported
from services.api.times import Duration

STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
RATIO: Final = "RequestedToCapacityRatio"
_LABEL_NAME: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

Rules = Callable[[str, Mapping[str, Any]], Iterator[str]]


def rules_of(plugin: str, path: str, args: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the plugin's arguments, which stand at `path`."""
    rules = _RULES.get(plugin)
    return iter(()) if rules is None else rules(path, args)


def _number(args: Mapping[str, Any], name: str, default: int) -> int:
    value = args.get(name)
    return value if isinstance(value, int) else default


def _items(args: Mapping[str, Any], name: str, kind: type = dict) -> Sequence[Any]:
    """Return the list's items of the right type; with a wrong one among them, nothing can be said of the list."""
    value = args.get(name)
    return value if isinstance(value, list) and all(isinstance(each, kind) for each in value) else ()


def _default_preemption(path: str, args: Mapping[str, Any]) -> Iterator[str]:
    percentage_name, absolute_name = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
    percentage, absolute = _number(args, percentage_name, 10), _number(args, absolute_name, 100)
    if not 0 <= percentage <= 100:
        yield invalid(f"{path}.{percentage_name}", percentage, "not in valid range [0, 100]")
    if absolute < 0:
        yield invalid(f"{path}.{absolute_name}", absolute, "not in valid range [0, inf)")
    if percentage == absolute == 0:
        yield invalid(f"{path}.{percentage_name}", 0, f"cannot be zero at the same time as {absolute_name}")
        yield invalid(f"{path}.{absolute_name}", 0, f"cannot be zero at the same time as {percentage_name}")


def _inter_pod_affinity(path: str, args: Mapping[str, Any]) -> Iterator[str]:
    weight = _number(args, "hardPodAffinityWeight", 1)
    if not 0 <= weight <= 100:
        yield invalid(f"{path}.hardPodAffinityWeight", weight, "not in valid range [0, 100]")


def _node_affinity(path: str, args: Mapping[str, Any]) -> Iterator[str]:
    added = args.get("addedAffinity")
    if not isinstance(added, dict):
        return
    here = f"{path}.addedAffinity"
    wanted = added.get("requiredDuringSchedulingIgnoredDuringExecution")
    if isinstance(wanted, dict):
        at = f"{here}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        terms = _items(wanted, "nodeSelectorTerms")
        if not terms:
            yield required(at, "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _node_selector_term(f"{at}[{index}]", term)
    preferred = _items(added, "preferredDuringSchedulingIgnoredDuringExecution")
    for index, each in enumerate(preferred):
        at = f"{here}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        if isinstance(each.get("preference"), dict):
            yield from _node_selector_term(f"{at}.preference", each["preference"])


def _node_selector_term(path: str, term: Mapping[str, Any]) -> Iterator[str]:
    for part in ("matchExpressions", "matchFields"):
        for index, requirement in enumerate(_items(term, part)):
            operator, values = requirement.get("operator"), requirement.get("values") or ()
            at = f"{path}.{part}[{index}]"
            if operator not in _OPERATORS:
                yield unsupported(f"{at}.operator", operator, _OPERATORS)
            elif operator in ("In", "NotIn") and not values:
                yield required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            elif operator in ("Exists", "DoesNotExist") and values:
                yield forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
            elif operator in ("Gt", "Lt") and len(values) != 1:
                yield required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")


def _node_resources_fit(path: str, args: Mapping[str, Any]) -> Iterator[str]:
    for index, name in enumerate(_items(args, "ignoredResources", str)):
        yield from _label_name(f"{path}.ignoredResources[{index}]", name)
    for index, group in enumerate(_items(args, "ignoredResourceGroups", str)):
        at = f"{path}.ignoredResourceGroups[{index}]"
        if "/" in group:
            yield invalid(at, group, "resource group name can't contain '/'")
        yield from _label_name(at, group)
    strategy = args.get("scoringStrategy")
    if isinstance(strategy, dict):
        yield from _scoring_strategy(f"{path}.scoringStrategy", strategy)


def _scoring_strategy(path: str, strategy: Mapping[str, Any]) -> Iterator[str]:
    # A strategy that is given must say its type: upstream defaults it only when there is none at all.
    kind = strategy.get("type", "")
    if kind not in STRATEGIES:
        yield unsupported(f"{path}.type", kind, STRATEGIES)
    for index, resource in enumerate(_items(strategy, "resources")):
        weight = _number(resource, "weight", 1) or 1
        if not 0 < weight <= 100:
            detail = f"resource weight of {resource.get('name')} not in valid range (0, 100]"
            yield invalid(f"{path}.resources[{index}].weight", weight, detail)
    ratio = strategy.get("requestedToCapacityRatio")
    at = f"{path}.requestedToCapacityRatio"
    if kind == RATIO and ratio is None:
        yield required(at, f"must be specified when type is {RATIO}")
    elif kind == RATIO and isinstance(ratio, dict):
        yield from _shape(f"{at}.shape", _items(ratio, "shape"))
    elif ratio is not None:
        yield forbidden(at, f"must be nil when type is not {RATIO}")


def _shape(path: str, points: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not points:
        yield required(path, "at least one point must be specified")
        return
    utilizations = [_number(point, "utilization", 0) for point in points]
    for index in range(1, len(points)):
        if utilizations[index - 1] >= utilizations[index]:
            detail = "values must be sorted in increasing order"
            yield invalid(f"{path}[{index}].utilization", utilizations[index], detail)
            break
    for index, point in enumerate(points):
        score = _number(point, "score", 0)
        if not 0 <= utilizations[index] <= 100:
            yield invalid(f"{path}[{index}].utilization", utilizations[index], "not in valid range [0, 100]")
        if not 0 <= score <= 10:
            yield invalid(f"{path}[{index}].score", score, "not in valid range [0, 10]")


def _balanced_allocation(path: str, args: Mapping[str, Any]) -> Iterator[str]:
    seen: set[str] = set()
    for index, resource in enumerate(_items(args, "resources")):
        at, name, weight = f"{path}.resources[{index}]", str(resource.get("name")), _number(resource, "weight", 1)
        if name in seen:
            yield duplicate(f"{at}.name", name)
        seen.add(name)
        if weight not in (0, 1):
            yield invalid(f"{at}.weight", weight, "must be 1")


def _pod_topology_spread(path: str, args: Mapping[str, Any]) -> Iterator[str]:
    kind, constraints = args.get("defaultingType") or "System", _items(args, "defaultConstraints")
    if kind not in ("System", "List"):
        yield unsupported(f"{path}.defaultingType", kind, ("System", "List"))
    elif kind == "System" and constraints:
        yield invalid(f"{path}.defaultingType", kind, "when .defaultConstraints are not empty")
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        at = f"{path}.defaultConstraints[{index}]"
        skew, key = _number(constraint, "maxSkew", 0), str(constraint.get("topologyKey") or "")
        action = str(constraint.get("whenUnsatisfiable") or "")
        if skew <= 0:
            yield invalid(f"{at}.maxSkew", skew, "not in valid range (0, inf)")
        if key:
            yield from _label_name(f"{at}.topologyKey", key)
        else:
            yield required(f"{at}.topologyKey", "can not be empty")
        if not action:
            yield required(f"{at}.whenUnsatisfiable", "can not be empty")
        elif action not in ("DoNotSchedule", "ScheduleAnyway"):
            yield unsupported(f"{at}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        if constraint.get("labelSelector") is not None:
            detail = "constraint must not define a selector, as they deduced for each pod"
            yield forbidden(f"{at}.labelSelector", detail)
        if (key, action) in seen:
            yield duplicate(at, f"{{{key}, {action}}}")
        seen.add((key, action))


def _volume_binding(path: str, args: Mapping[str, Any]) -> Iterator[str]:
    timeout = _number(args, "bindTimeoutSeconds", 600)
    if timeout < 0:
        detail = "invalid BindTimeoutSeconds, should not be a negative value"
        yield invalid(f"{path}.bindTimeoutSeconds", timeout, detail)
    if _items(args, "shape"):
        yield from _shape(f"{path}.shape", _items(args, "shape"))


def _dynamic_resources(path: str, args: Mapping[str, Any]) -> Iterator[str]:
    for name, least_s, detail in (
        ("filterTimeout", 0, "must be zero or positive"),
        ("bindingTimeout", 1, "must be at least 1 second"),
    ):
        text = args.get(name)
        if not isinstance(text, str):
            continue
        try:
            if Duration.parse(text) < least_s:
                yield invalid(f"{path}.{name}", text, detail)
        except ValueError as error:
            yield f"{path}.{name}: {error}"


def _label_name(path: str, name: str) -> Iterator[str]:
    if not _LABEL_NAME.fullmatch(name):
        yield invalid(
            path,
            name,
            "must be a label name: an optional DNS subdomain and '/', then letters, digits, "
            "'-', '_' or '.', at most 63",
        )


_RULES: Final[dict[str, Rules]] = {
    "DefaultPreemption": _default_preemption,
    "DynamicResources": _dynamic_resources,
    "InterPodAffinity": _inter_pod_affinity,
    "NodeAffinity": _node_affinity,
    "NodeResourcesBalancedAllocation": _balanced_allocation,
    "NodeResourcesFit": _node_resources_fit,
    "PodTopologySpread": _pod_topology_spread,
    "VolumeBinding": _volume_binding,
}
