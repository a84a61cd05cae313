"""Upstream's validation rules for a well-formed KubeSchedulerConfiguration, in upstream's words.

All problems are found at once, in the order of the file, and worded as upstream's `field.Error`: `path:
Kind: value: detail`. Checks that need the plugins (do they exist, do they serve that point) are in
`assembly`.

The rules for plugins' arguments read them undecoded: the types are the plugin's business (its `Args`
class), so values of a wrong type are skipped here. Fields left out have upstream's defaults, which are
valid.

Source: upstream `pkg/scheduler/apis/config/validation/validation.go`, `validation_pluginargs.go`,
`staging/src/k8s.io/component-base/config/validation`,
`staging/src/k8s.io/apimachinery/pkg/util/validation/field`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from scheduler.configuration.document import Extender, KubeSchedulerConfiguration, Profile
from services.api.times import Duration


def invalid(path: str, value: Any, detail: str) -> str:
    """Return the problem of a value that is not allowed."""
    return f"{path}: Invalid value: {_quote(value)}: {detail}"


def required_value(path: str, detail: str = "") -> str:
    """Return the problem of a missing value."""
    return f"{path}: Required value: {detail}" if detail else f"{path}: Required value"


def duplicate(path: str, value: Any) -> str:
    """Return the problem of a repeated value."""
    return f"{path}: Duplicate value: {_quote(value)}"


def unsupported_value(path: str, value: Any, supported: Iterable[str]) -> str:
    """Return the problem of a value that is not among the supported ones."""
    values = ", ".join(f'"{each}"' for each in supported)
    return f"{path}: Unsupported value: {_quote(value)}: supported values: {values}"


def forbidden(path: str, detail: str) -> str:
    """Return the problem of a field that may not be set here."""
    return f"{path}: Forbidden: {detail}"


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
RATIO: Final = "RequestedToCapacityRatio"
_LABEL_NAME: Final = re.compile(
    r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_PARTS_OF_NAME: Final = "an optional DNS subdomain and '/', then letters, digits, '-', '_' or '.', at most 63"
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")

Rules = Callable[[str, Mapping[str, Any]], Iterator[str]]


def _number(args: Mapping[str, Any], name: str, default: int) -> int:
    value = args.get(name)
    return value if isinstance(value, int) else default


def _in_range(path: str, value: int, most: int) -> Iterator[str]:
    if not 0 <= value <= most:
        yield invalid(path, value, f"not in valid range [0, {most}]")


def _items(args: Mapping[str, Any], name: str, kind: type = dict) -> Sequence[Any]:
    """Return the list's items of the right type; with a wrong one among them, nothing can be said of the list."""
    value = args.get(name)
    return value if isinstance(value, list) and all(isinstance(each, kind) for each in value) else ()


def _default_preemption(path: str, args: Mapping[str, Any]) -> Iterator[str]:
    percentage_name, absolute_name = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
    percentage, absolute = _number(args, percentage_name, 10), _number(args, absolute_name, 100)
    yield from _in_range(f"{path}.{percentage_name}", percentage, 100)
    if absolute < 0:
        yield invalid(f"{path}.{absolute_name}", absolute, "not in valid range [0, inf)")
    if percentage == absolute == 0:
        yield invalid(f"{path}.{percentage_name}", 0, f"cannot be zero at the same time as {absolute_name}")
        yield invalid(f"{path}.{absolute_name}", 0, f"cannot be zero at the same time as {percentage_name}")


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
            yield required_value(at, "must have at least one node selector term")
        for index, term in enumerate(terms):
            yield from _node_selector_term(f"{at}[{index}]", term)
    preferred = _items(added, "preferredDuringSchedulingIgnoredDuringExecution")
    for index, preferred_term in enumerate(preferred):
        at = f"{here}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        if isinstance(preferred_term.get("preference"), dict):
            yield from _node_selector_term(f"{at}.preference", preferred_term["preference"])


def _node_selector_term(path: str, term: Mapping[str, Any]) -> Iterator[str]:
    for part in ("matchExpressions", "matchFields"):
        for index, requirement in enumerate(_items(term, part)):
            operator, values = requirement.get("operator"), requirement.get("values") or ()
            at = f"{path}.{part}[{index}]"
            if operator not in _OPERATORS:
                yield unsupported_value(f"{at}.operator", operator, _OPERATORS)
            elif operator in ("In", "NotIn") and not values:
                yield required_value(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            elif operator in ("Exists", "DoesNotExist") and values:
                yield forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
            elif operator in ("Gt", "Lt") and len(values) != 1:
                yield required_value(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")


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
        yield unsupported_value(f"{path}.type", kind, STRATEGIES)
    for index, resource in enumerate(_items(strategy, "resources")):
        weight = _number(resource, "weight", 1) or 1
        if not 0 < weight <= 100:
            detail = f"resource weight of {resource.get('name')} not in valid range (0, 100]"
            yield invalid(f"{path}.resources[{index}].weight", weight, detail)
    ratio = strategy.get("requestedToCapacityRatio")
    at = f"{path}.requestedToCapacityRatio"
    if kind == RATIO and ratio is None:
        yield required_value(at, f"must be specified when type is {RATIO}")
    elif kind == RATIO and isinstance(ratio, dict):
        yield from _shape(f"{at}.shape", _items(ratio, "shape"))
    elif ratio is not None:
        yield forbidden(at, f"must be nil when type is not {RATIO}")


def _shape(path: str, points: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not points:
        yield required_value(path, "at least one point must be specified")
        return
    utilizations = [_number(point, "utilization", 0) for point in points]
    for index in range(1, len(points)):
        if utilizations[index - 1] >= utilizations[index]:
            detail = "values must be sorted in increasing order"
            yield invalid(f"{path}[{index}].utilization", utilizations[index], detail)
            break
    for index, point in enumerate(points):
        yield from _in_range(f"{path}[{index}].utilization", utilizations[index], 100)
        yield from _in_range(f"{path}[{index}].score", _number(point, "score", 0), 10)


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
        yield unsupported_value(f"{path}.defaultingType", kind, ("System", "List"))
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
            yield required_value(f"{at}.topologyKey", "can not be empty")
        if not action:
            yield required_value(f"{at}.whenUnsatisfiable", "can not be empty")
        elif action not in ("DoNotSchedule", "ScheduleAnyway"):
            yield unsupported_value(f"{at}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway"))
        if constraint.get("labelSelector") is not None:
            detail = "constraint must not define a selector, as they deduced for each pod"
            yield forbidden(f"{at}.labelSelector", detail)
        if (key, action) in seen:
            yield duplicate(at, f"{{{key}, {action}}}")
        seen.add((key, action))


def _volume_binding(path: str, args: Mapping[str, Any]) -> Iterator[str]:
    timeout = _number(args, "bindTimeoutSeconds", 600)
    if timeout < 0:
        yield invalid(
            f"{path}.bindTimeoutSeconds", timeout, "invalid BindTimeoutSeconds, should not be a negative value"
        )
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
        yield invalid(path, name, f"must be a label name: {_PARTS_OF_NAME}")


_RULES: Final[dict[str, Rules]] = {
    "DefaultPreemption": _default_preemption,
    "DynamicResources": _dynamic_resources,
    "InterPodAffinity": lambda path, args: _in_range(
        f"{path}.hardPodAffinityWeight", _number(args, "hardPodAffinityWeight", 1), 100
    ),
    "NodeAffinity": _node_affinity,
    "NodeResourcesBalancedAllocation": _balanced_allocation,
    "NodeResourcesFit": _node_resources_fit,
    "PodTopologySpread": _pod_topology_spread,
    "VolumeBinding": _volume_binding,
}


NAMESPACE: Final = "kube-system"
BACKOFF_INITIAL_S: Final = 1
BACKOFF_MAX_S: Final = 10
REMOVED_PLUGINS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


def problems(configuration: KubeSchedulerConfiguration) -> list[str]:
    """Return all problems of a completed configuration; empty when it is valid."""
    return [
        *_of_connections(configuration),
        *_of_numbers(configuration),
        *_of_profiles(configuration),
        *_of_extenders(configuration.extenders),
    ]


def _of_connections(configuration: KubeSchedulerConfiguration) -> Iterator[str]:
    burst, given = configuration.client_connection.burst, configuration.leader_election
    if burst < 0:
        yield invalid("clientConnection.burst", burst, "must be non-negative")
    if given.leader_elect is False:
        return
    at = "leaderElection"
    for name, value in (
        ("leaseDuration", given.lease_duration),
        ("renewDeadline", given.renew_deadline),
        ("retryPeriod", given.retry_period),
    ):
        if value <= 0:
            yield invalid(f"{at}.{name}", value.text, "must be greater than zero")
    if given.lease_duration <= given.renew_deadline:
        yield invalid(f"{at}.leaseDuration", given.renew_deadline.text, "must be greater than `RenewDeadline`")
    if given.resource_lock != "leases":
        yield invalid(f"{at}.resourceLock", given.resource_lock, 'resourceLock value must be "leases"')
    if given.resource_namespace != NAMESPACE:
        yield invalid(f"{at}.resourceNamespace", given.resource_namespace, f"only {NAMESPACE} is supported here")


def _of_numbers(configuration: KubeSchedulerConfiguration) -> Iterator[str]:
    if configuration.parallelism <= 0:
        yield invalid("parallelism", configuration.parallelism, "should be an integer value greater than zero")
    yield from _of_percentage("percentageOfNodesToScore", configuration.percentage_of_nodes_to_score)
    yield from _of_percentage("percentageOfPlacementsToScore", configuration.percentage_of_placements_to_score)
    initial, longest = configuration.pod_initial_backoff_seconds, configuration.pod_max_backoff_seconds
    initial = BACKOFF_INITIAL_S if initial is None else initial
    longest = BACKOFF_MAX_S if longest is None else longest
    if initial <= 0:
        yield invalid("podInitialBackoffSeconds", initial, "must be greater than 0")
    delay = configuration.pre_enqueue_pod_status_delay
    if delay is not None and delay < 0:
        yield invalid("preEnqueuePodStatusDelay", delay.text, "must be greater than or equal to 0")
    if longest < initial:
        yield invalid("podMaxBackoffSeconds", longest, "must be greater than or equal to PodInitialBackoffSeconds")


def _of_percentage(path: str, value: int | None) -> Iterator[str]:
    if value is not None and not 0 <= value <= 100:
        yield invalid(path, value, "not in valid range [0-100]")


def _of_profiles(configuration: KubeSchedulerConfiguration) -> Iterator[str]:
    first_at: dict[str, int] = {}
    for index, profile in enumerate(configuration.profiles):
        at = f"profiles[{index}]"
        name = profile.scheduler_name or ""
        yield from _of_profile(at, profile)
        if name in first_at:
            yield duplicate(f"{at}.schedulerName", f"profiles[{first_at[name]}].schedulerName")
        first_at.setdefault(name, index)
    yield from _of_queue_sort(configuration.profiles)


def _of_profile(at: str, profile: Profile) -> Iterator[str]:
    if not profile.scheduler_name:
        yield required_value(f"{at}.schedulerName")
    yield from _of_percentage(f"{at}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score)
    yield from _of_percentage(f"{at}.percentageOfPlacementsToScore", profile.percentage_of_placements_to_score)
    for point, plugin_set in profile.plugins.points():
        for index, plugin in enumerate(plugin_set.enabled):
            if plugin.name in REMOVED_PLUGINS:
                yield _removal_error(f"{at}.plugins.{point}.enabled[{index}]", plugin.name)
    seen: set[str] = set()
    for index, given in enumerate(profile.plugin_config):
        here = f"{at}.pluginConfig[{index}]"
        if given.name in seen:
            yield duplicate(here, given.name)
        seen.add(given.name)
        if given.name in REMOVED_PLUGINS:
            yield _removal_error(here, given.name)
            continue
        rules = _RULES.get(given.name)
        if rules is not None:
            yield from rules(f"{here}.args", given.args)


def _removal_error(path: str, name: str) -> str:
    version = '(KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'
    return invalid(path, name, f'was invalid in version "v1" {version}')


def _of_queue_sort(profiles: tuple[Profile, ...]) -> Iterator[str]:
    """One queue holds the pods of all profiles, so all must order them alike."""
    first = profiles[0]
    sort = first.plugins.queue_sort
    if len(sort.enabled) > 1:
        at = "profiles[0].plugins.queueSort.Enabled"
        yield invalid(at, len(sort.enabled), "only one queue sort plugin can be enabled")
    name = sort.enabled[0].name if sort.enabled else ""
    args = next((given.args for given in first.plugin_config if given.name == name), None)
    for index, profile in enumerate(profiles[1:], 1):
        other = profile.plugins.queue_sort
        if other != sort:
            names = ", ".join(plugin.name for plugin in other.enabled) or "none"
            yield invalid(f"profiles[{index}].plugins.queueSort", names, "must be the same for all profiles")
        for given in profile.plugin_config:
            if given.name == name and given.args != args:
                at = f"profiles[{index}].pluginConfig.args"
                yield invalid(at, given.args, "queueSort must be the same for all profiles")


def _of_extenders(extenders: tuple[Extender, ...]) -> Iterator[str]:
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        at = f"extenders[{index}]"
        if extender.prioritize_verb and extender.weight <= 0:
            yield invalid(f"{at}.weight", extender.weight, "must have a positive weight applied to it")
        for position, resource in enumerate(extender.managed_resources):
            path = f"{at}.managedResources[{position}].name"
            yield from _of_extended_resource(path, resource.name)
            if resource.name in managed:
                yield invalid(path, resource.name, "duplicate extender managed resource name")
            managed.add(resource.name)
    binders = sum(1 for extender in extenders if extender.bind_verb)
    if binders > 1:
        count_text = f"found {binders} extenders implementing bind"
        yield invalid("extenders", count_text, "only one extender can implement bind")


def _of_extended_resource(path: str, name: str) -> Iterator[str]:
    """An extended resource has a domain, which is not Kubernetes' own, and is no quota's name."""
    prefix, slash, last = name.rpartition("/")
    if not _NAME.fullmatch(last) or (slash and not _SUBDOMAIN.fullmatch(prefix)):
        yield invalid(path, name, f"must be a qualified name: {_PARTS_OF_NAME}")
    elif not slash or prefix.endswith("kubernetes.io") or name.startswith("requests."):
        yield invalid(path, name, "is an invalid extended resource name")
