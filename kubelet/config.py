"""What a kubelet host can be told: which nodes it emulates, what they consist of, how long things take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from kubelet.claims.driver import DriverDefinition, parse_drivers
from kubelet.image_gc import ImagePolicy
from kubelet.managers.device_definition import DevicePlugin, check_plugins
from kubelet.managers.node_machine import Definition, MachineDefinition
from kubelet.node_health import parse_node_faults
from kubelet.pod_features import NodeFeatures, check_features
from kubelet.pods.latency import LatencyModel
from kubelet.pods.usage import NODE_RESOURCES, parse_curves
from kubelet.resize_policy_forms import Form, form_of
from kubelet.shutdown import Period, plain_periods
from kubelet.signals import DEFAULT_HARD, capacities, thresholds
from kubelet.stages.document import StageError, load_stages
from kubelet.stages.stage import Stage
from kubelet.static_pods import ManifestError, read_manifest
from services.api.quantity import amount, format_amount
from services.api.switches import Switches
from services.api.taints import Taint
from services.api.unbind import nodes_may, spelling
from services.runtime.config import EXIT_USAGE, CommonConfig, StartError, setting


class Eviction(Definition, frozen=True):
    """When a node evicts pods (KubeletConfiguration's names, seconds instead of durations).

    Thresholds are quantities or shares, `{"memory.available": "100Mi"}`; each soft one has a grace period. `hard` None:
    Kubernetes' own, which are then not withheld from the pods (`NodeDefinition.allocatable`).
    """

    hard: dict[str, str] | None = None
    soft: dict[str, str] = {}
    soft_grace_period: dict[str, float] = {}
    max_pod_grace_period: float = 0.0
    pressure_transition_period: float = 300.0

    @property
    def hard_thresholds(self) -> dict[str, str]:
        """What is evicted for at once."""
        return DEFAULT_HARD if self.hard is None else self.hard


RESERVABLE = ("cpu", "memory", "ephemeral-storage")
_EVICTED = {"memory.available": "memory", "nodefs.available": "ephemeral-storage"}


class ShutdownPeriod(Definition, frozen=True):
    """How long pods of this priority or more have when the node shuts down."""

    priority: int
    shutdown_grace_period_seconds: float


class NodeDefinition(MachineDefinition, frozen=True, kw_only=True):
    """One emulated node.

    `max_container_restart_period` is the longest crash-loop back-off here, 1 to 300 s; 0: as everywhere (KEP-4603).
    `usage` is what the node uses itself, over time, in the words of `kubelet/pods/usage.py`.
    `shutdown_grace_period`: seconds to end all pods when the node shuts down, the last of them, as many as
    `shutdown_grace_period_critical_pods`, the critical ones; or `shutdown_grace_period_by_pod_priority`; 0: at once.
    `start_faults` go wrong here when pods start, in the words of `kubelet/start_faults.py`.
    `kube_reserved` and `system_reserved` are quantities that pods may not have.
    `images` are there from the beginning, with their sizes; others are pulled one after the other, unless
    `serialize_image_pulls` is false: then all at once, or `max_parallel_image_pulls` of them.
    Images that nobody uses leave when the disk is fuller than `imageGCHighThresholdPercent`, or they are unused for
    `imageMaximumGCAge` seconds (`kubelet/image_gc.py`).
    `device_socket` opens the socket where device plugins register; so do `device_plugins`, which are emulated ones.
    Devices in `numa` and `extended` need no plugin.
    `static_pods` are v1 Pods that the node runs without the API server (`kubelet/static_pods.py`). `drivers` offer
    devices for claims, and may be written `gpu.example.com:4` (`kubelet/claims/driver.py`).
    `allowed_unsafe_sysctls` are names, or beginnings of names with a star, that pods may set beside the safe ones.
    `attachable_volumes` is how many claims' volumes can be attached, whatever a CSINode says; 0: any number.
    `app_armor` and `supplemental_groups_policy` may be what the node has not; `feature_gates` off are off here alone,
    and `declared_features` is what pods may ask of few nodes only (`kubelet/pod_features.py`).
    `swap_behavior` LimitedSwap lets Burstable containers swap and keeps their memory requests as they are (KEP-2400).
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
    declared_features: tuple[str, ...] = ()
    swap_behavior: Literal["NoSwap", "LimitedSwap"] = "NoSwap"

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
        """Return the capacity less what the definition withholds from pods.

        That is what is reserved for the system, and hard eviction thresholds that are said.
        """
        found = super().allocatable()
        if not self._reserves_cpus:
            found["cpu"] = self.capacity()["cpu"]
        for name, taken in self._withheld().items():
            found[name] = format_amount(name, max(0, amount(name, found.get(name, "0")) - taken))
        return found

    @property
    def _reserves_cpus(self) -> bool:
        return bool(self.reserved_cpus or self.reserved_system_cpus)

    @property
    def reserved(self) -> int | tuple[int, ...]:
        """The CPUs the system keeps: which ones, or how many; at least what is reserved of them, in whole CPUs."""
        if self._reserves_cpus:
            return super().reserved
        milli = sum(amount("cpu", each.get("cpu", "0")) for each in (self.kube_reserved, self.system_reserved))
        return -(-milli // 1000)

    def _said(self) -> dict[str, int]:
        """Return what kubeReserved, systemReserved and the thresholds that are said come to."""
        taken: dict[str, int] = {}
        for reserved in (self.kube_reserved, self.system_reserved):
            for name, text in reserved.items():
                taken[name] = taken.get(name, 0) + amount(name, text)
        sizes = capacities(self.memory, self.ephemeral_storage)
        for each in thresholds(self.eviction.hard or {}, {}, {}, sizes):
            if (kept := _EVICTED.get(each.signal.name)) is not None:
                taken[kept] = taken.get(kept, 0) + each.least
        return taken

    def _withheld(self) -> dict[str, int]:
        taken = self._said()
        if self._reserves_cpus:
            taken.pop("cpu", None)  # that stands for all of it
        if self.reserved_memory:
            taken.pop("memory", None)  # and so does reservedMemory, which must be as much
        return taken

    def present_images(self) -> dict[str, int]:
        """Return the sizes, in bytes, of the images that are there from the beginning. Raises: ValueError."""
        return {name: amount("memory", size) for name, size in self.images.items()}

    def shutdown_periods(self) -> tuple[Period, ...]:
        """Return how long each priority has when the node shuts down; none: no time at all (KEP-2000, KEP-2712)."""
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
        """How many images are pulled at once; 0: any number."""
        return 1 if self.serialize_image_pulls else self.max_parallel_image_pulls

    def check(self) -> None:
        """Raise ValueError when the definition cannot be a node."""
        self.check_machine()
        check_features(self.feature_gates, self.declared_features)
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
        total, said = (
            sum(amount("memory", each.limits.get("memory", "0")) for each in self.reserved_memory),
            self._said(),
        )
        if total and said.get("memory", total) != total:
            raise ValueError(
                f'reservedMemory: the total amount "{format_amount("memory", total)}" of type "memory" is not equal to '
                f'the value "{format_amount("memory", said["memory"])}" determined by Node Allocatable feature'
            )
        self.present_images()
        if self.max_parallel_image_pulls < 0 or (self.serialize_image_pulls and self.max_parallel_image_pulls > 1):
            raise ValueError(
                f"maxParallelImagePulls: {self.max_parallel_image_pulls} with serializeImagePulls "
                f"{str(self.serialize_image_pulls).lower()}; want 0 or more, and above 1 only where pulls are parallel"
            )
        check_plugins(self.device_plugins)
        for index, document in enumerate(self.static_pods):
            try:
                read_manifest(f"definition/{index}", msgspec.json.encode(document), self.name, 0.0)
            except ManifestError as error:
                raise ValueError(f"staticPods[{index}]: {error}") from None
        chosen = self.eviction
        sizes = capacities(self.memory, self.ephemeral_storage)
        thresholds(chosen.hard_thresholds, chosen.soft, chosen.soft_grace_period, sizes)
        if self.max_container_restart_period and not 1 <= self.max_container_restart_period <= 300:
            raise ValueError(f"maxContainerRestartPeriod: {self.max_container_restart_period} s, want 1 to 300")

    @property
    def image_policy(self) -> ImagePolicy:
        """When images leave."""
        return ImagePolicy(
            self.image_gc_high_threshold_percent, self.image_gc_low_threshold_percent,
            self.image_minimum_gc_age, self.image_maximum_gc_age,
        )  # fmt: skip

    @property
    def features(self) -> NodeFeatures:
        """What pods that need more than room find here."""
        return NodeFeatures(
            self.app_armor, self.supplemental_groups_policy, self.feature_gates, self.declared_features
        )  # fmt: skip

    @property
    def takes_plugins(self) -> bool:
        """Whether device plugins may register here."""
        return self.device_socket or bool(self.device_plugins)


def _numa(text: str) -> list[dict[str, int]]:
    nodes, sign, cpus = text.partition("x")
    if not (sign and nodes.isdigit() and cpus.isdigit()):
        raise ValueError(f"numa: {text!r}, want for example 2x8: two NUMA nodes of eight CPUs")
    return [{"cpus": int(cpus)}] * int(nodes)


@dataclass(frozen=True, kw_only=True)
class KubeletConfig(CommonConfig):
    """One process that hosts emulated nodes."""

    nodes: int = setting(0, "number of equal nodes to emulate")
    name_prefix: str = setting("node-", "names of these nodes: the prefix and a number")
    first: int = setting(0, "number of the first of these nodes")
    cpu: str = setting("8", "CPUs of each of these nodes")
    memory: str = setting("32Gi", "memory of each of these nodes")
    pods: int = setting(110, "most pods on each of these nodes")
    zones: int = setting(0, "spread these nodes over so many zones; 0: no zone labels")
    nodes_file: str = setting("", "JSON list of node definitions, in addition")
    definitions: tuple[NodeDefinition, ...] = setting((), "a node definition as JSON, in addition; may be repeated")
    address: str = setting("127.0.0.1", "address the nodes advertise for logs")
    port: int = setting(0, "port the nodes advertise for logs; 0: health_port")
    latency: tuple[str, ...] = setting(
        (), "STAGE=DISTRIBUTION, for example sandbox=lognormal:0.3,0.5 or all=constant:0; may be repeated"
    )
    registration_spread_s: float = setting(
        5.0, "nodes of a host of more than 20 register and watch again within this many seconds"
    )
    status_qps: float = setting(-1.0, "pod status writes a second and node; 0: any, -1: as kubelet.status_qps says")
    crashloop_initial_s: float = setting(0.0, "first back-off of a container, seconds; 0: as crashloop.initial_s says")
    crashloop_max_s: float = setting(0.0, "longest back-off of a container, seconds; 0: as crashloop.max_s says")
    stages: tuple[str, ...] = setting((), "file of KWOK Stages that move pods and nodes; may be repeated")
    stages_seed: int = setting(0, "seed of what stages leave to chance; equal names then have equal luck")
    static_pods: str = setting(
        "", "directory with manifests of static pods: files for every node, in a folder of a node's name for that node"
    )
    device_sockets: bool = setting(False, "device plugins may register with the equal nodes")
    sockets_dir: str = setting("nodes", "directory of the nodes' sockets: plugins register at DIR/NODE/kubelet.sock")
    pod_events: Literal["all", "warnings"] = setting("all", "Events about pods and nodes: all, or only warnings")

    def node_definitions(self) -> tuple[NodeDefinition, ...]:
        """Return all nodes this process hosts. Raises: StartError naming the file and the node."""
        found: list[NodeDefinition] = []
        if self.nodes < 0 or self.first < 0:
            raise StartError(f"--nodes {self.nodes} --first {self.first}: want 0 or more", EXIT_USAGE)
        try:
            for given in self.definitions:
                found.append(given if isinstance(given, NodeDefinition) else NodeDefinition.parse(_object(given)))
            for index in range(self.first, self.first + self.nodes):
                zone = f"zone-{index % self.zones}" if self.zones else ""
                name = f"{self.name_prefix}{index}"
                found.append(
                    NodeDefinition(
                        name=name, cpu=self.cpu, memory=self.memory, pods=self.pods, zone=zone,
                        device_socket=self.device_sockets,
                    )
                )  # fmt: skip
            if self.nodes_file:
                found += _read_file(self.nodes_file)
            for definition in found:
                definition.check()
        except ValueError as error:
            raise StartError(str(error), EXIT_USAGE) from None
        names = [d.name for d in found]
        if len(set(names)) != len(names):
            twice = next(n for i, n in enumerate(names) if n in names[:i])
            raise StartError(f"node {twice} is defined twice", EXIT_USAGE)
        return tuple(found)

    def read_stages(self) -> tuple[Stage, ...]:
        """Return the stages of all files, in order. Raises: StartError naming file, stage and path."""
        try:
            return load_stages(self.stages)
        except StageError as error:
            raise StartError(f"--stages {error}", EXIT_USAGE) from None

    def latency_model(self, seed: int) -> LatencyModel:
        """Return how long each stage takes. Raises: StartError for a malformed `latency`."""
        try:
            return LatencyModel.parse(self.latency, seed)
        except ValueError as error:
            raise StartError(f"--latency {error}", EXIT_USAGE) from None


def _object(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise ValueError(f"--definitions {text[:60]!r}: {error}") from None


def _read_file(path: str) -> list[NodeDefinition]:
    try:
        items = msgspec.json.decode(Path(path).read_bytes(), type=list[dict[str, object]])
    except OSError as error:
        raise ValueError(f"--nodes-file {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ValueError(f"--nodes-file {path}: {error}") from None
    return [NodeDefinition.parse(item) for item in items]


class Settings(msgspec.Struct, frozen=True):
    """The switches a kubelet asks, read once."""

    on_reject: str = "fail"
    unbind_api: str = "subresource"
    unbind_spelling: tuple[str, str] = ("create", "unbind")
    """Verb and subresource of the call, where the kubelet makes it."""
    has_unbinding: bool = True
    teardown: str = "before"
    fallback: str = "fail"
    fence: str = "session"
    user_bound: str = "exempt"
    request_deadline_s: float = 120.0
    unbind_reasons: tuple[str, ...] = ()
    defer_period_s: float = 5.0
    defer_timeout_s: float = 30.0
    defer_reasons: tuple[str, ...] = ("UnexpectedAdmissionError",)
    device_defer_timeout_s: float = 0.0
    tells_device_health: bool = False
    releases_lazily: bool = False
    managers_first: bool = True
    writes_at_once: bool = False
    evicts_for_resizes: bool = True
    orders_resizes_as_upstream: bool = False
    resize_policy: Form | None = None
    guards_devices: bool = False
    dra_reconcile_s: float = 60.0
    dra_wipe_delay_s: float = 30.0
    pleg_mode: str = "evented"
    readmits_running: bool = True

    @classmethod
    def of(cls, switches: Switches) -> Settings:
        """Return what these switches say."""
        return cls(
            on_reject=switches.choice("kubelet.on_reject"),
            unbind_api=_unbind_form(switches),
            unbind_spelling=spelling(switches),
            has_unbinding=switches.flag("PodUnbinding"),
            teardown=switches.choice("kubelet.unbind_teardown"),
            fallback=switches.choice("unbind.fallback"),
            fence=switches.choice("unbind.fence"),
            user_bound=switches.choice("unbind.user_bound"),
            request_deadline_s=switches.number("unbind.request_deadline_s"),
            unbind_reasons=_patterns(switches.choice("unbind.reasons")),
            defer_period_s=switches.number("defer.period_s"),
            defer_timeout_s=switches.number("defer.timeout_s"),
            defer_reasons=_patterns(switches.choice("defer.reasons")),
            device_defer_timeout_s=switches.number("device.defer_timeout_s"),
            tells_device_health=switches.flag("ResourceHealthStatus"),
            releases_lazily=switches.choice("kubelet.release_on_reject") == "lazy",
            managers_first=switches.choice("kubelet.admit_order") == "managers-first",
            writes_at_once=switches.choice("kubelet.status_batching") == "immediate",
            evicts_for_resizes=_evicts_for_resizes(switches),
            orders_resizes_as_upstream=switches.choice("resize.order") == "upstream",
            resize_policy=form_of(switches),
            guards_devices=switches.choice("dra.double_allocation_guard") == "driver",
            dra_reconcile_s=switches.number("kubelet.dra_reconcile_s"),
            dra_wipe_delay_s=switches.number("kubelet.dra_wipe_delay_s"),
            pleg_mode=switches.choice("pleg.mode"),
            readmits_running=switches.flag("restart.readmit_running"),
        )


def _evicts_for_resizes(switches: Switches) -> bool:
    """Whether the kubelet makes room itself for a critical pod's resize: not where only the scheduler is to."""
    chosen = switches.choice("resize.kubelet_eviction")
    if chosen != "generation":
        return chosen == "on"
    has_heir = switches.flag("InPlacePodVerticalScalingSchedulerPreemption")
    return not (has_heir and switches.choice("resize.generation") in ("G3", "G4"))


def _unbind_form(switches: Switches) -> str:
    """Return how this kubelet may give pods back: none when it would have to call and must not."""
    form = switches.choice("unbind.api")
    return "none" if form in ("subresource", "binding_delete") and not nodes_may(switches) else form


def _patterns(text: str) -> tuple[str, ...]:
    """Return the reasons of `A+B`; empty for `all`."""
    return () if text == "all" else tuple(part for part in text.split("+") if part)
