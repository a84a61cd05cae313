"""What a well-formed KubeSchedulerConfiguration must also be, by upstream's rules and in upstream's words.

Everything wrong is found at once, in the order of the file. What can only be judged when the plugins are
known (do they exist, do they serve that point) is in `merge`.

Source: upstream `pkg/scheduler/apis/config/validation/validation.go`,
`staging/src/k8s.io/component-base/config/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from scheduler.configuration.args_rules import rules_of
from scheduler.configuration.document import (
    Extender,
    KubeSchedulerConfiguration,
    LeaderElection,
    PluginSet,
    Profile,
)
from scheduler.configuration.problems import duplicate, invalid, required

NAMESPACE: Final = "kube-system"
BACKOFF_INITIAL_S: Final = 1
BACKOFF_MAX_S: Final = 10
REMOVED_PLUGINS: Final = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")


def problems(configuration: KubeSchedulerConfiguration) -> list[str]:
    """Return everything wrong with a completed configuration; empty when it is valid."""
    return [
        *_of_client(configuration),
        *_of_leader_election(configuration.leader_election),
        *_of_numbers(configuration),
        *_of_profiles(configuration),
        *_of_extenders(configuration.extenders),
    ]


def _of_client(configuration: KubeSchedulerConfiguration) -> Iterator[str]:
    burst = configuration.client_connection.burst
    if burst < 0:
        yield invalid("clientConnection.burst", burst, "must be non-negative")


def _of_leader_election(given: LeaderElection) -> Iterator[str]:
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
    if longest < initial:
        detail = "must be greater than or equal to PodInitialBackoffSeconds"
        yield invalid("podMaxBackoffSeconds", longest, detail)


def _of_percentage(path: str, value: int | None) -> Iterator[str]:
    if value is not None and not 0 <= value <= 100:
        yield invalid(path, value, "not in valid range [0-100]")


# -- profiles ------------------------------------------------------------------------------------------------


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
        yield required(f"{at}.schedulerName")
    yield from _of_percentage(f"{at}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score)
    yield from _of_percentage(f"{at}.percentageOfPlacementsToScore", profile.percentage_of_placements_to_score)
    for point, plugin_set in profile.plugins.points():
        yield from _of_removed(f"{at}.plugins.{point}", plugin_set)
    seen: set[str] = set()
    for index, given in enumerate(profile.plugin_config):
        here = f"{at}.pluginConfig[{index}]"
        if given.name in seen:
            yield duplicate(here, given.name)
        seen.add(given.name)
        if given.name in REMOVED_PLUGINS:
            yield _removed(here, given.name)
            continue
        yield from rules_of(given.name, f"{here}.args", given.args)


def _of_removed(at: str, plugin_set: PluginSet) -> Iterator[str]:
    for index, plugin in enumerate(plugin_set.enabled):
        if plugin.name in REMOVED_PLUGINS:
            yield _removed(f"{at}.enabled[{index}]", plugin.name)


def _removed(path: str, name: str) -> str:
    version = '(KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")'
    return invalid(path, name, f'was invalid in version "v1" {version}')


def _of_queue_sort(profiles: tuple[Profile, ...]) -> Iterator[str]:
    """One queue holds the pods of all profiles, so all must order them alike."""
    first = profiles[0]
    sort = first.plugins.queue_sort
    if len(sort.enabled) > 1:
        path = "profiles[0].plugins.queueSort.Enabled"
        yield invalid(path, len(sort.enabled), "only one queue sort plugin can be enabled")
    name = sort.enabled[0].name if sort.enabled else ""
    args = next((given.args for given in first.plugin_config if given.name == name), None)
    for index, profile in enumerate(profiles[1:], 1):
        other = profile.plugins.queue_sort
        if other != sort:
            names = ", ".join(plugin.name for plugin in other.enabled) or "none"
            yield invalid(f"profiles[{index}].plugins.queueSort", names, "must be the same for all profiles")
        for given in profile.plugin_config:
            if given.name == name and given.args != args:
                path = f"profiles[{index}].pluginConfig.args"
                yield invalid(path, given.args, "queueSort must be the same for all profiles")


# -- extenders -----------------------------------------------------------------------------------------------


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
        found = f"found {binders} extenders implementing bind"
        yield invalid("extenders", found, "only one extender can implement bind")


def _of_extended_resource(path: str, name: str) -> Iterator[str]:
    """An extended resource has a domain, which is not Kubernetes' own, and is no quota's name."""
    prefix, slash, last = name.rpartition("/")
    if not _NAME.fullmatch(last) or (slash and not _SUBDOMAIN.fullmatch(prefix)):
        yield invalid(
            path,
            name,
            "must be a qualified name: an optional DNS subdomain and '/', then letters, digits, "
            "'-', '_' or '.', at most 63",
        )
    elif not slash or prefix.endswith("kubernetes.io") or name.startswith("requests."):
        yield invalid(path, name, "is an invalid extended resource name")
