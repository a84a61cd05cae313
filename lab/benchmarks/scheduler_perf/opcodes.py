"""The operations of a workload template: their fields and their constraints. Pure.

They are the union of several upstream versions, which differ. Source: kubernetes/kubernetes
`test/integration/scheduler_perf/operations.go`, `dra.go`, `update.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from services.api.meta import Document
from services.cel.times import duration
from services.cel.values import EvaluationError

PARAMETER_SIGN: Final = "$"
STAGES: Final = ("Scheduled", "Attempted")
MODES: Final = ("create", "recreate")
COLLECTORS: Final = ("Throughput", "Metrics", "Memory", "SchedulingDuration")


class Wrong(ValueError):
    """An error in an operation, in one line."""


class Op(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One operation. `PARAMS`: for each field that names a workload parameter, the field that gets its value."""

    opcode: str = ""
    PARAMS: ClassVar[Mapping[str, str]] = {}

    @property
    def collects(self) -> bool:
        """Whether metrics have been collected when it ends."""
        return False

    def check(self) -> None:
        """Check the fields for contradictions that do not depend on parameters. Raises: Wrong."""


class Counted(Op, frozen=True, kw_only=True, rename="camel"):
    """An operation on `count` objects."""

    count: int = 0
    count_param: str = ""
    PARAMS: ClassVar[Mapping[str, str]] = {"count_param": "count"}


class NodeAllocatableStrategy(msgspec.Struct, frozen=True, rename="camel"):
    """Additional allocatable resources of the nodes, and the attach limits of their CSI drivers."""

    node_allocatable: dict[str, Any] = msgspec.field(default_factory=dict)
    csi_node_allocatable: dict[str, Any] = msgspec.field(default_factory=dict)
    migrated_plugins: list[str] = msgspec.field(default_factory=list)


class LabelNodePrepareStrategy(msgspec.Struct, frozen=True, rename="camel"):
    """A label whose values are assigned to the nodes in turn."""

    label_key: str = ""
    label_values: list[str] = msgspec.field(default_factory=list)


class UniqueNodeLabelStrategy(msgspec.Struct, frozen=True, rename="camel"):
    """A label with a different value on each node."""

    label_key: str = ""


class CreateNodes(Counted, frozen=True, kw_only=True, rename="camel"):
    """Create nodes, with at most one of the strategies."""

    node_template_path: str | None = None
    template_params: dict[str, Any] = msgspec.field(default_factory=dict)
    node_allocatable_strategy: NodeAllocatableStrategy | None = None
    label_node_prepare_strategy: LabelNodePrepareStrategy | None = None
    unique_node_label_strategy: UniqueNodeLabelStrategy | None = None

    def check(self) -> None:
        """Refuse a label without values, and more than one strategy."""
        strategies = ("node_allocatable_strategy", "label_node_prepare_strategy", "unique_node_label_strategy")
        given = [camel(name) for name in strategies if getattr(self, name) is not None]
        if len(given) > 1:
            raise Wrong(f"{given[0]} and {given[1]}: want one of them")
        label = self.label_node_prepare_strategy
        if label is not None and not (label.label_key and label.label_values):
            raise Wrong("labelNodePrepareStrategy wants labelKey and labelValues")


class CreateNamespaces(Counted, frozen=True, kw_only=True, rename="camel"):
    """Create the namespaces `<prefix>-0`, `<prefix>-1` and so on."""

    prefix: str = ""
    namespace_template_path: str | None = None

    def check(self) -> None:
        """Refuse an empty prefix."""
        if not self.prefix:
            raise Wrong("prefix must be set")


class CreatePods(Counted, frozen=True, kw_only=True, rename="camel"):
    """Create pods and wait until they have nodes, or keep that many pending for `duration`."""

    count_multiplier_param: str = ""
    steady_state: bool = False
    steady_state_param: str = ""
    duration: str = ""
    duration_param: str = ""
    collect_metrics: bool = False
    namespace: str | None = None
    pod_template_path: str | None = None
    skip_wait_to_completion: bool = False
    persistent_volume_template_path: str | None = None
    persistent_volume_claim_template_path: str | None = None
    template_params: dict[str, Any] = msgspec.field(default_factory=dict)
    signature_batch_size: int = 0
    signature_batch_size_param: str = ""
    PARAMS: ClassVar[Mapping[str, str]] = {
        "count_param": "count",
        "steady_state_param": "steady_state",
        "duration_param": "duration",
        "signature_batch_size_param": "signature_batch_size",
    }

    @property
    def collects(self) -> bool:
        """Whether `collect_metrics` is set."""
        return self.collect_metrics

    def check(self) -> None:
        """Refuse combinations of fields that cannot be measured or contradict each other."""
        if self.collect_metrics and self.skip_wait_to_completion:
            raise Wrong("collectMetrics and skipWaitToCompletion cannot be true at the same time")
        if self.skip_wait_to_completion and self.steady_state:
            raise Wrong("skipWaitToCompletion and steadyState cannot be true at the same time")
        if self.signature_batch_size < 0:
            raise Wrong(f"invalid signatureBatchSize={self.signature_batch_size}; should be non-negative")
        if self.count_multiplier_param and not self.count_multiplier_param.startswith(PARAMETER_SIGN):
            raise Wrong(f"countMultiplierParam {self.count_multiplier_param!r}: want $NAME")
        if bool(self.persistent_volume_template_path) != bool(self.persistent_volume_claim_template_path):
            raise Wrong("persistentVolumeTemplatePath and persistentVolumeClaimTemplatePath go together")
        if self.steady_state and not self.duration_param and (not self.duration or seconds(self.duration) <= 0):
            raise Wrong("in a steady state the duration must be above 0")


class CreatePodSets(Counted, frozen=True, kw_only=True, rename="camel"):
    """Perform `createPodsOp` in each of the namespaces `<namespacePrefix>-0` and so on."""

    namespace_prefix: str = ""
    create_pods_op: CreatePods = msgspec.field(default_factory=CreatePods)

    @property
    def collects(self) -> bool:
        """Whether `create_pods_op` collects metrics."""
        return self.create_pods_op.collects

    def check(self) -> None:
        """Refuse an empty prefix, and what `create_pods_op` refuses."""
        if not self.namespace_prefix:
            raise Wrong("namespacePrefix must be set")
        self.create_pods_op.check()


class CreateAny(Op, frozen=True, kw_only=True, rename="camel"):
    """Create objects of any kind; one unless a count is given."""

    namespace: str = ""
    template_path: str = ""
    count: int | None = None
    count_param: str = ""
    template_params: dict[str, Any] = msgspec.field(default_factory=dict)
    PARAMS: ClassVar[Mapping[str, str]] = {"count_param": "count"}

    def check(self) -> None:
        """Refuse an operation without a template."""
        if not self.template_path:
            raise Wrong("templatePath must be set")


class UpdateAny(CreateAny, frozen=True, kw_only=True, rename="camel"):
    """Replace objects, or their subresources; `update_per_second` 0: as fast as possible."""

    update_per_second: int = 0
    subresources: list[str] = msgspec.field(default_factory=list)

    def check(self) -> None:
        """Refuse a negative rate, and more than one subresource."""
        CreateAny.check(self)
        if self.update_per_second < 0:
            raise Wrong(f"invalid updatePerSecond={self.update_per_second}; should be non-negative")
        if len(self.subresources) > 1:
            raise Wrong(f"subresources {self.subresources}: want at most one; none of keplab's lies within another")


class CreatePodGroups(Counted, frozen=True, kw_only=True, rename="camel"):
    """Create PodGroups, and wait until they can be listed."""

    namespace: str = ""
    template_path: str = ""
    template_params: dict[str, Any] = msgspec.field(default_factory=dict)

    def check(self) -> None:
        """Refuse pod groups without a namespace or template."""
        if not self.namespace or not self.template_path:
            raise Wrong("namespace and templatePath must be set")


class WaitForPodGroups(Counted, frozen=True, kw_only=True, rename="camel"):
    """Wait until `count` PodGroups can be listed."""

    namespace: str = ""


class CreateCompositePodGroups(Counted, frozen=True, kw_only=True, rename="camel"):
    """An operation that is refused when a workload uses it: keplab has no kind CompositePodGroup."""

    namespace: str = ""
    template_path: str = ""
    template_params: dict[str, Any] = msgspec.field(default_factory=dict)


class CreateResourceClaims(Counted, frozen=True, kw_only=True, rename="camel"):
    """Create identical ResourceClaims."""

    namespace: str = ""
    template_path: str = ""

    def check(self) -> None:
        """Refuse claims without a namespace or template."""
        if not self.namespace or not self.template_path:
            raise Wrong("namespace and templatePath must be set")


class CreateResourceDriver(Op, frozen=True, kw_only=True, rename="camel"):
    """Publish a slice of `max_claims_per_node` devices for every node whose name the glob `nodes` matches."""

    driver_name: str = ""
    nodes: str = ""
    max_claims_per_node: int = 0
    max_claims_per_node_param: str = ""
    PARAMS: ClassVar[Mapping[str, str]] = {"max_claims_per_node_param": "max_claims_per_node"}

    def check(self) -> None:
        """Refuse a driver without a name or without nodes."""
        if not self.driver_name or not self.nodes:
            raise Wrong("driverName and nodes must be set")


class AllocResourceClaims(Op, frozen=True, kw_only=True, rename="camel"):
    """Allocate the claims of a namespace that have no devices yet; an empty namespace means all."""

    namespace: str = ""


class UpdateDeviceConditions(Op, frozen=True, kw_only=True, rename="camel"):
    """Set conditions on the allocated devices of all claims of a namespace that wait for binding conditions."""

    namespace: str = ""
    condition_type: str = ""
    condition_type_param: str = ""
    condition_status: str = ""
    condition_status_param: str = ""
    conditions: list[Document] = msgspec.field(default_factory=list)
    duration: str = "60s"
    duration_param: str = ""
    PARAMS: ClassVar[Mapping[str, str]] = {
        "condition_type_param": "condition_type",
        "condition_status_param": "condition_status",
        "duration_param": "duration",
    }

    def check(self) -> None:
        """Refuse an operation without a namespace or conditions."""
        if not self.namespace:
            raise Wrong("namespace must be set")
        if not (self.conditions or self.condition_type or self.condition_type_param):
            raise Wrong("conditions must be set")


class CheckPodScheduled(Op, frozen=True, kw_only=True, rename="camel"):
    """Wait until all pods of a namespace have nodes, or check for five seconds that none has."""

    namespace: str = ""
    duration: str = "60s"
    duration_param: str = ""
    expected_scheduled: bool = False
    scheduled_param: str = ""
    PARAMS: ClassVar[Mapping[str, str]] = {"duration_param": "duration", "scheduled_param": "expected_scheduled"}

    def check(self) -> None:
        """Refuse an operation without a namespace."""
        if not self.namespace:
            raise Wrong("namespace must be set")


class Churn(Op, frozen=True, kw_only=True, rename="camel"):
    """Create an object of each template in every interval from here on; mode `recreate`: delete them in turn."""

    mode: str = ""
    number: int = 0
    interval_milliseconds: int = 0
    namespace: str | None = None
    template_paths: list[str] = msgspec.field(default_factory=list)

    def check(self) -> None:
        """Refuse unknown modes, negative numbers, a missing template, and mode `recreate` with number 0."""
        if self.mode not in MODES:
            raise Wrong(f"mode {self.mode!r}: want {' or '.join(MODES)}")
        if self.number < 0 or (self.mode == "recreate" and self.number == 0):
            raise Wrong(f"number {self.number}: want {'more than' if self.mode == 'recreate' else 'at least'} 0")
        if self.interval_milliseconds < 0:
            raise Wrong(f"intervalMilliseconds {self.interval_milliseconds}: want at least 0")
        if not self.template_paths:
            raise Wrong("templatePaths: at least one template needs to be specified")


class DeletePods(Op, frozen=True, kw_only=True, rename="camel"):
    """Delete the pods of a namespace with these labels; `delete_pods_per_second` 0: all at once."""

    namespace: str = ""
    label_selector: dict[str, str] = msgspec.field(default_factory=dict)
    delete_pods_per_second: int = 0
    skip_wait_to_completion: bool = False

    def check(self) -> None:
        """Refuse a missing namespace and a negative rate."""
        if not self.namespace:
            raise Wrong("namespace must be set")
        if self.delete_pods_per_second < 0:
            raise Wrong(f"invalid deletePodsPerSecond={self.delete_pods_per_second}; should be non-negative")


class Barrier(Op, frozen=True, kw_only=True, rename="camel"):
    """Wait for the pods of `namespaces` that no operation has waited for; no `namespaces`: of all namespaces."""

    namespaces: list[str] = msgspec.field(default_factory=list)
    label_selector: dict[str, str] = msgspec.field(default_factory=dict)
    stage_requirement: str = "Scheduled"

    def check(self) -> None:
        """Refuse unknown stages."""
        if self.stage_requirement and self.stage_requirement not in STAGES:
            raise Wrong(f"stageRequirement {self.stage_requirement!r}: want {' or '.join(STAGES)}")


class Sleep(Op, frozen=True, kw_only=True, rename="camel"):
    """Do nothing for a while."""

    duration: str = ""
    duration_param: str = ""
    PARAMS: ClassVar[Mapping[str, str]] = {"duration_param": "duration"}


class StartCollectingMetrics(Op, frozen=True, kw_only=True, rename="camel"):
    """Start to collect metrics of the pods of these namespaces with these labels."""

    name: str = ""
    namespaces: list[str] = msgspec.field(default_factory=list)
    label_selector: dict[str, str] = msgspec.field(default_factory=dict)
    collectors: list[str] = msgspec.field(default_factory=list)

    def check(self) -> None:
        """Refuse a collection without namespaces, and unknown collectors."""
        if not self.namespaces:
            raise Wrong("namespaces cannot be empty")
        for name in self.collectors:
            if name not in COLLECTORS:
                raise Wrong(f"collector {name!r}: want one of {', '.join(COLLECTORS)}")


class StopCollectingMetrics(Op, frozen=True, kw_only=True, rename="camel"):
    """Stop to collect metrics."""

    @property
    def collects(self) -> bool:
        """Always true."""
        return True


class Profile(Op, frozen=True, kw_only=True, rename="camel"):
    """An operation without effect: there is no Go profile of a Python process."""

    type: str = "CPU"
    file_path: str = ""


OPCODES: Final[dict[str, type[Op]]] = {
    "createNodes": CreateNodes,
    "createNamespaces": CreateNamespaces,
    "createPods": CreatePods,
    "createPodSets": CreatePodSets,
    "createPodGroups": CreatePodGroups,
    "createCompositePodGroups": CreateCompositePodGroups,
    "waitForPodGroups": WaitForPodGroups,
    "createAny": CreateAny,
    "updateAny": UpdateAny,
    "createResourceClaims": CreateResourceClaims,
    "createResourceDriver": CreateResourceDriver,
    "allocResourceClaims": AllocResourceClaims,
    "updateDeviceConditions": UpdateDeviceConditions,
    "checkPodScheduled": CheckPodScheduled,
    "churn": Churn,
    "deletePods": DeletePods,
    "barrier": Barrier,
    "sleep": Sleep,
    "startCollectingMetrics": StartCollectingMetrics,
    "stopCollectingMetrics": StopCollectingMetrics,
    "startCollectingProfile": Profile,
    "stopCollectingProfile": Profile,
}


def camel(name: str) -> str:
    """Return a field's name as it is written in the file."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def seconds(text: str) -> float:
    """Return a Go duration in seconds. Raises: Wrong."""
    try:
        return duration(text).nanos / 1e9
    except EvaluationError:
        raise Wrong(f"duration {text!r}: want one such as 30s or 1m30s") from None


def resolve(op: Op, parameter: Callable[[str, type], Any]) -> Op:
    """Return the operation with its parameters' values; `parameter`: value by name and wanted type. Raises: Wrong."""
    if isinstance(op, CreateCompositePodGroups):
        raise Wrong("keplab has no kind CompositePodGroup")
    values: dict[str, Any] = {}
    types = {f.name: f.type for f in msgspec.structs.fields(op)}
    for field, target in op.PARAMS.items():
        name = getattr(op, field)
        if name:
            values[target] = parameter(_name(field, name), _parameter_type(types[target]))
    multiplier = getattr(op, "count_multiplier_param", "")
    if multiplier:
        count = values.get("count", getattr(op, "count", 0))
        values["count"] = count * parameter(_name("count_multiplier_param", multiplier), int)
    given = getattr(op, "template_params", None)
    if given:
        is_name = {key: isinstance(each, str) and each.startswith(PARAMETER_SIGN) for key, each in given.items()}
        values["template_params"] = {
            key: parameter(each[1:], object) if is_name[key] else each for key, each in given.items()
        }
    resolved_op = msgspec.structs.replace(op, **values)
    for name in ("count", "max_claims_per_node"):
        number = getattr(resolved_op, name, None)
        if number is not None and number < 0:
            raise Wrong(f"invalid {camel(name)}={number}; should be non-negative")
    if isinstance(resolved_op, CreatePods):
        resolved_op = msgspec.structs.replace(
            resolved_op, duration_param="", signature_batch_size=resolved_op.signature_batch_size or 1
        )
    resolved_op.check()
    if getattr(resolved_op, "duration", ""):
        seconds(resolved_op.duration)  # type: ignore[attr-defined]  # those that have one
    return resolved_op


def _name(field: str, text: str) -> str:
    if not text.startswith(PARAMETER_SIGN) or len(text) == 1:
        raise Wrong(f"{camel(field)} {text!r}: want $NAME")
    return text[1:]


def _parameter_type(annotation: Any) -> type:
    for each in (bool, int, str):
        if annotation is each or annotation == each | None:
            return each
    return object
