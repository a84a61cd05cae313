"""The definition of one emulated node: its machine, its reservations, its faults. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import msgspec

from kubelet.admission.features import NodeFeatures, check_features
from kubelet.deviceplugin.emulated.plugin import DevicePlugin, check_plugins
from kubelet.dra.emulated.definition import DriverDefinition, parse_drivers
from kubelet.eviction.signals import Eviction, capacities, thresholds
from kubelet.managers.node_machine import Definition, MachineDefinition
from kubelet.managers.options import check_gates
from kubelet.node.health import parse_node_faults
from kubelet.node.image_gc import ImagePolicy
from kubelet.node.shutdown import Period, plain_periods
from kubelet.runtime.usage import NODE_RESOURCES
from kubelet.static_pods.manifests import ManifestError, read_manifest
from kubelet.switches import CpuOptionGates, KubeletSwitches, OptionSwitches, PolicySwitches, declarable_gates
from services.api.features.declared_features import KubeletConfiguration, declared_names
from services.api.kinds.node import Taint
from services.api.metrics.usage import parse_curves
from services.api.quantity import amount, format_amount
from services.api.switches import EMULATED, REGISTER, Switches, Value

RUNTIME_FEATURES = frozenset(("UserNamespacesHostNetwork", "MountOptions"))
"""Features of the emulated container runtime on which declared features depend."""
RESERVABLE = ("cpu", "memory", "ephemeral-storage")
_EVICTED = {"memory.available": "memory", "nodefs.available": "ephemeral-storage"}


class ShutdownPeriod(Definition, frozen=True):
    """The time that pods of this priority or more have when the node shuts down."""

    priority: int
    shutdown_grace_period_seconds: float


class NodeDefinition(MachineDefinition, frozen=True, kw_only=True):
    """One emulated node.

    `max_container_restart_period` is the longest crash-loop back-off here, 1 to 300 s; 0: as everywhere
    (KEP-4603). `usage` is the node's own use over time, in the syntax of `kubelet/runtime/usage.py`.
    `shutdown_grace_period`: seconds to end all pods when the node shuts down; its last part,
    `shutdown_grace_period_critical_pods`, is for the critical ones; or `shutdown_grace_period_by_pod_priority`;
    0: at once. `start_faults` are faults of pods' starts here, in the syntax of `kubelet/runtime/script.py`.
    `kube_reserved` and `system_reserved` are quantities that pods may not have. `images` are present from the
    beginning, with their sizes; others are pulled one after the other, unless `serialize_image_pulls` is false:
    then all at once, or `max_parallel_image_pulls` of them. Unused images are deleted when the disk is fuller
    than `imageGCHighThresholdPercent`, or they are unused for `imageMaximumGCAge` seconds
    (`kubelet/node/image_gc.py`). `device_socket` opens the socket where device plugins register; so do
    `device_plugins`, which are emulated ones. Devices in `numa` and `extended` need no plugin. `static_pods`
    are v1 Pods that the node runs without the API server (`kubelet/static_pods/manifests.py`). `drivers` are
    emulated DRA drivers, processes of their own that offer devices for claims, and may be written
    `gpu.example.com:4` (`kubelet/dra/emulated/definition.py`); `device_socket` lets others register.
    `allowed_unsafe_sysctls` are names, or prefixes that end with a star, that pods may set beside the safe
    ones. `attachable_volumes` is how many claims' volumes can be attached, whatever a CSINode says; 0: any
    number. `app_armor` and `supplemental_groups_policy`: whether the node has these features; `feature_gates`
    apply to this node alone. `version` is the release of its kubelet (`1.35`), which decides the gates that are
    not set; "": the common release. `declared_features` replaces the features that the kubelet declares; None:
    it declares those of its release and gates (`services/api/features/declared_features.py`). `swap_behavior`
    LimitedSwap lets Burstable containers swap and keeps their memory requests as they are (KEP-2400).
    """

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    zone: str = ""
    region: str = ""
    max_container_restart_period: float = 0.0
    usage: str = ""
    eviction: Eviction = Eviction()
    device_socket: bool = False
    device_plugins: tuple[DevicePlugin, ...] = ()
    static_pods: tuple[dict[str, Any], ...] = ()
    drivers: tuple[DriverDefinition, ...] = ()
    start_faults: str = ""
    shutdown_grace_period: float = 0.0
    shutdown_grace_period_critical_pods: float = 0.0
    shutdown_grace_period_by_pod_priority: tuple[ShutdownPeriod, ...] = ()
    kube_reserved: dict[str, str] = {}
    system_reserved: dict[str, str] = {}
    images: dict[str, str] = {}
    image_gc_high_threshold_percent: int = msgspec.field(default=85, name="imageGCHighThresholdPercent")
    image_gc_low_threshold_percent: int = msgspec.field(default=80, name="imageGCLowThresholdPercent")
    image_minimum_gc_age: float = msgspec.field(default=120.0, name="imageMinimumGCAge")
    image_maximum_gc_age: float = msgspec.field(default=0.0, name="imageMaximumGCAge")
    serialize_image_pulls: bool = True
    max_parallel_image_pulls: int = 0
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    attachable_volumes: int = 0
    app_armor: bool = True
    supplemental_groups_policy: bool = True
    feature_gates: dict[str, bool] = {}
    declared_features: tuple[str, ...] | None = None
    version: str = ""
    swap_behavior: Literal["NoSwap", "LimitedSwap"] = "NoSwap"

    @property
    def resource_capacities(self) -> dict[str, int]:
        """The node's capacity of each resource that is watched for evictions."""
        return capacities(self.memory, self.ephemeral_storage)

    @classmethod
    def parse(cls, document: Mapping[str, object]) -> NodeDefinition:
        """Return the definition a JSON object describes. Raises: ValueError naming node and field."""
        shape: dict[str, Any] = dict(document)
        name = shape.get("name", "?")
        try:
            if isinstance(shape.get("drivers"), str):
                shape["drivers"] = parse_drivers(str(shape["drivers"]))
            if isinstance(shape.get("numa"), str):
                shape["numa"] = _numa(str(shape["numa"]))
            # Options of a scenario are texts; numbers in them are meant as numbers.
            definition = msgspec.convert(shape, cls, strict=False)
            definition.check()
        except (msgspec.ValidationError, ValueError) as error:
            raise ValueError(f"node {name}: {error}") from None
        return definition

    def allocatable(self) -> dict[str, str]:
        """Return the capacity less the system's reservations and the configured hard eviction thresholds."""
        amounts = super().allocatable()
        taken_of = self._reserved_amounts()
        if self._reserves_cpus:
            taken_of.pop("cpu", None)  # that stands for all of it
        else:
            amounts["cpu"] = self.cpu_text
        if self.reserved_memory:
            taken_of.pop("memory", None)  # and so does reservedMemory, which must be as much
        for name, taken in taken_of.items():
            amounts[name] = format_amount(name, max(0, amount(name, amounts.get(name, "0")) - taken))
        return amounts

    @property
    def _reserves_cpus(self) -> bool:
        return bool(self.reserved_cpus or self.reserved_system_cpus)

    @property
    def effective_reserved_cpus(self) -> int | tuple[int, ...]:
        """The CPUs that the system keeps: their ids or number, at least the reserved CPUs rounded to whole ones."""
        if self._reserves_cpus:
            return super().effective_reserved_cpus
        milli = sum(amount("cpu", each.get("cpu", "0")) for each in (self.kube_reserved, self.system_reserved))
        return -(-milli // 1000)

    def _reserved_amounts(self) -> dict[str, int]:
        """Return what kubeReserved, systemReserved and the thresholds that are said come to."""
        taken: dict[str, int] = {}
        for reserved in (self.kube_reserved, self.system_reserved):
            for name, text in reserved.items():
                taken[name] = taken.get(name, 0) + amount(name, text)
        hard = self.eviction.hard
        for threshold in thresholds(Eviction(hard=hard), self.resource_capacities) if hard else ():
            if (kept := _EVICTED.get(threshold.signal.name)) is not None:
                taken[kept] = taken.get(kept, 0) + threshold.least
        return taken

    def present_images(self) -> dict[str, int]:
        """Return the sizes, in bytes, of the images that are present from the beginning. Raises: ValueError."""
        return {name: amount("memory", size) for name, size in self.images.items()}

    def shutdown_periods(self) -> tuple[Period, ...]:
        """Return the shutdown period of each priority; empty: no time at all (KEP-2000, KEP-2712)."""
        if chosen := self.shutdown_grace_period_by_pod_priority:
            return tuple(sorted(Period(each.priority, each.shutdown_grace_period_seconds) for each in chosen))
        return plain_periods(self.shutdown_grace_period, self.shutdown_grace_period_critical_pods)

    def _check_shutdown(self) -> None:
        total_s, critical_s = self.shutdown_grace_period, self.shutdown_grace_period_critical_pods
        if not 0 <= critical_s <= total_s or 0 < total_s < 1 or 0 < critical_s < 1:
            raise ValueError(
                f"shutdownGracePeriod: {total_s:g} s, shutdownGracePeriodCriticalPods: {critical_s:g} s; want each 0 "
                "or at least 1, the second not above the first"
            )
        chosen = self.shutdown_grace_period_by_pod_priority
        if chosen and total_s:
            raise ValueError("shutdownGracePeriodByPodPriority: cannot be given together with shutdownGracePeriod")
        if len({each.priority for each in chosen}) < len(chosen):
            raise ValueError("shutdownGracePeriodByPodPriority: a priority is given twice")

    @property
    def pullers(self) -> int:
        """The number of images that are pulled at once; 0: any number."""
        return 1 if self.serialize_image_pulls else self.max_parallel_image_pulls

    def check(self) -> None:
        """Raise ValueError when the definition is invalid."""
        self.check_machine()
        check_features(self.feature_gates, self.declared_features or (), self.version)
        self.image_policy.check()
        if self.attachable_volumes < 0:
            raise ValueError(f"attachableVolumes: {self.attachable_volumes}, want 0 (any number) or more")
        parse_curves(self.usage, NODE_RESOURCES)
        parse_node_faults(self.start_faults)
        self._check_shutdown()
        for field, reserved in (("kubeReserved", self.kube_reserved), ("systemReserved", self.system_reserved)):
            for name, text in reserved.items():
                if name not in RESERVABLE:
                    raise ValueError(f"{field}: {name!r}, want one of {', '.join(RESERVABLE)}")
                amount(name, text)
        total, reserved_amounts = (
            sum(amount("memory", each.limits.get("memory", "0")) for each in self.reserved_memory),
            self._reserved_amounts(),
        )
        if total and reserved_amounts.get("memory", total) != total:
            raise ValueError(
                f'reservedMemory: the total amount "{format_amount("memory", total)}" of type "memory" is not equal to '
                f'the value "{format_amount("memory", reserved_amounts["memory"])}" determined by Node '
                "Allocatable feature"
            )
        self.present_images()
        if self.max_parallel_image_pulls < 0 or (self.serialize_image_pulls and self.max_parallel_image_pulls > 1):
            raise ValueError(
                f"maxParallelImagePulls: {self.max_parallel_image_pulls} with serializeImagePulls "
                f"{str(self.serialize_image_pulls).lower()}; want 0 or more, and above 1 only where pulls are parallel"
            )
        check_plugins(self.device_plugins)
        for place, driver in enumerate(self.drivers):
            try:
                driver.check()
            except ValueError as error:
                raise ValueError(f"drivers[{place}].{error}") from None
            if any(other.name == driver.name for other in self.drivers[:place]):
                raise ValueError(f"drivers[{place}].name: there is a {driver.name} already")
        for index, document in enumerate(self.static_pods):
            try:
                read_manifest(f"definition/{index}", msgspec.json.encode(document), self.name, 0.0)
            except ManifestError as error:
                raise ValueError(f"staticPods[{index}]: {error}") from None
        thresholds(self.eviction, self.resource_capacities)
        if self.max_container_restart_period and not 1 <= self.max_container_restart_period <= 300:
            raise ValueError(f"maxContainerRestartPeriod: {self.max_container_restart_period} s, want 1 to 300")

    @property
    def takes_drivers(self) -> bool:
        """Whether DRA drivers may register."""
        return self.device_socket or bool(self.drivers)

    @property
    def image_policy(self) -> ImagePolicy:
        """The policy for deleting images."""
        return ImagePolicy(
            self.image_gc_high_threshold_percent,
            self.image_gc_low_threshold_percent,
            self.image_minimum_gc_age,
            self.image_maximum_gc_age,
        )

    def declares(self, switches: KubeletSwitches) -> tuple[str, ...] | None:
        """Return the features that the node declares, sorted; None where the gate is off. `switches`: the node's."""
        if not switches.has_declared_features:
            return None
        if self.declared_features is not None:
            return tuple(sorted(set(self.declared_features)))
        policy = "static" if self.has_static_cpus else "none"
        gates = declarable_gates(switches) | self.feature_gates
        return declared_names(KubeletConfiguration(gates, policy, RUNTIME_FEATURES), switches.release)

    def features(self, switches: KubeletSwitches) -> NodeFeatures:
        """Return the node's features that pods may need besides resources. `switches`: the node's."""
        return NodeFeatures(
            self.app_armor,
            self.supplemental_groups_policy,
            self.feature_gates,
            self.declares(switches),
            switches.release,
        )


def _numa(text: str) -> list[dict[str, int]]:
    nodes, sign, cpus = text.partition("x")
    if not (sign and nodes.isdigit() and cpus.isdigit()):
        raise ValueError(f"numa: {text!r}, want for example 2x8: two NUMA nodes of eight CPUs")
    return [{"cpus": int(cpus)}] * int(nodes)


_RESIZABLE = frozenset(("cpu", "memory", "ephemeralStorage", "pods", "extended"))


def resize_node(node: NodeDefinition, text: str) -> NodeDefinition:
    """Return the definition with the machine's changed resources: a JSON object of fields, "" for as defined.

    Raises: ValueError if the text cannot be read or has other fields, or if the node allocates single CPUs or
    its memory.
    """
    if not text.strip():
        return node
    try:
        fields = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ValueError(f"node {node.name}: capacity: {error}") from None
    if not isinstance(fields, dict) or (unknown := sorted(fields.keys() - _RESIZABLE)):
        what = f"{unknown[0]!r}" if isinstance(fields, dict) else f"{text[:40]!r}"
        raise ValueError(f"node {node.name}: capacity: {what}: want {', '.join(sorted(_RESIZABLE))}")
    if node.numa or node.has_static_cpus or node.memory_policy == "Static":
        raise ValueError(f"node {node.name}: capacity: its managers hand out what there was at its start")
    return NodeDefinition.parse({**msgspec.to_builtins(node), **fields})


def node_switches(node: NodeDefinition, switches: Switches) -> Switches:
    """Return the switches of one node's kubelet, with its own release and gates. Raises: SwitchError."""
    registered = {each.name for each in REGISTER}
    own: dict[str, Value] = {name: is_on for name, is_on in node.feature_gates.items() if name in registered}
    if node.version:
        own[EMULATED] = node.version
    return switches.replace(own) if own else switches


def apply_switches(node: NodeDefinition, switches: Switches) -> NodeDefinition:
    """Return the definition with the fields that switches override; an empty switch overrides nothing.

    Raises: ValueError naming the node when the result is invalid, or when a CPU option's feature gate is off.
    """
    policies, options = asdict(switches.of(PolicySwitches)), asdict(switches.of(OptionSwitches))
    fields: dict[str, Any] = {field: text for field, text in policies.items() if text}
    fields |= {field: parse_options(text) for field, text in options.items() if text}
    if "cpu_options" in fields:
        fields["full_pcpus_only"] = False
    if "topology_options" in fields:
        fields["prefer_closest_numa"] = False
    changed = msgspec.structs.replace(node, **fields) if fields else node
    try:
        if fields:
            changed.check()
        gates = node_switches(node, switches).of(CpuOptionGates)
        check_gates(changed.all_cpu_options, alpha=gates.alpha, beta=gates.beta)
    except ValueError as error:
        raise ValueError(f"node {node.name}: {error}") from None
    return changed


def parse_options(text: str) -> dict[str, str]:
    """Return `A+B:VALUE` as {A: true, B: VALUE}; `none` is the empty dict."""
    parts = [part.partition(":") for part in text.split("+")] if text != "none" else []
    return {name: value or "true" for name, _, value in parts}
