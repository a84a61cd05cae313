"""Pod: the unit that is scheduled, admitted, unbound and run (core/v1)."""

from dataclasses import dataclass
from typing import Final

import msgspec

from services.api.meta import (
    AGE,
    NAME,
    NONE,
    Column,
    Condition,
    Document,
    LabelSelector,
    Mark,
    ObjectMeta,
    Resource,
    View,
)
from services.api.times import duration, parse_time

RUN: Final = "keplab.dev/run"
"""Annotation of a pod: the behavior of its emulated containers."""
BEGAN: Final = "keplab.dev/began"
"""Annotation of a pod that was imported onto a node: the status that its former kubelet reported, as JSON.

The node's kubelet here adopts the running state from it, once.
"""


class ResourceClaimUse(View, frozen=True):
    """A use of one of the pod's `resourceClaims` by a container: all requests of the claim, or the named one
    (KEP-4381).
    """

    name: str = ""
    request: str = ""


class ResourceRequirements(View, frozen=True):
    """Quantities by resource name, as text, and the claims that a container uses."""

    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerResizePolicy(View, frozen=True):
    """Restart policy of a container for a change of that resource: NotRequired or RestartContainer (KEP-1287)."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerPort(View, frozen=True):
    """A port; only a non-zero `hostPort` matters to scheduling."""

    name: str = ""
    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class ContainerRestartRule(View, frozen=True):
    """Rule for certain exit codes of a container. `action`: Restart or RestartAllContainers (KEP-5307)."""

    action: str = ""


class VolumeMount(View, frozen=True):
    """A volume mount of a container; only the parts that not every node supports are read."""

    bind_mount_options: tuple[str, ...] = ()


class Container(View, frozen=True):
    """The fields of a container that scheduler and kubelet read. `restart_policy` Always on an init
    container makes it a sidecar (KEP-753)."""

    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()


class Toleration(View, frozen=True):
    """A toleration of a pod. An empty key with Exists tolerates every taint; an empty effect matches any effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(View, frozen=True):
    """Requirement `key operator values`; operator In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(View, frozen=True):
    """A term of ANDed requirements; `matchFields` knows metadata.name only. An empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(View, frozen=True):
    """A node selector; its terms are ORed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(View, frozen=True):
    """A preferred term: adds `weight` (1 to 100) to nodes that match."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(View, frozen=True):
    """Required and preferred node affinity."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(View, frozen=True):
    """Affinity term: pods in the namespaces that match the selector, grouped by a node label."""

    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(View, frozen=True):
    """A preferred pod affinity term."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(View, frozen=True):
    """Required and preferred pod (anti-)affinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(View, frozen=True):
    """All affinity rules of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(View, frozen=True):
    """Spread constraint over the values of a node label, for pods that match the selector (KEP-895, 3022, 3094,
    3243).

    `whenUnsatisfiable`: DoNotSchedule or ScheduleAnyway. The policies are Honor or Ignore; "" is the default, Honor
    for affinity and Ignore for taints.
    """

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] = ()


class SchedulingGate(View, frozen=True):
    """A gate that must be removed before the pod is considered (KEP-3521)."""

    name: str = ""


class PodSchedulingGroup(View, frozen=True):
    """Reference to the PodGroup of the namespace that the pod is scheduled with (KEP-4671); it need not exist yet."""

    pod_group_name: str = ""


class PersistentVolumeClaimVolumeSource(View, frozen=True):
    """A claim of the pod's namespace, by name."""

    claim_name: str = ""
    read_only: bool = False


class GCEPersistentDiskVolumeSource(View, frozen=True):
    """A Google disk, by name."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStoreVolumeSource(View, frozen=True):
    """An Amazon disk, by id."""

    volume_id: str = msgspec.field(name="volumeID", default="")
    read_only: bool = False


class AzureDiskVolumeSource(View, frozen=True):
    """An Azure disk."""

    disk_uri: str = msgspec.field(name="diskURI", default="")


class RBDVolumeSource(View, frozen=True):
    """A Ceph image."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = "rbd"
    read_only: bool = False


class ISCSIVolumeSource(View, frozen=True):
    """An iSCSI disk, identified by its qualified name."""

    iqn: str = ""
    read_only: bool = False


class CSIVolumeSource(View, frozen=True):
    """A CSI volume whose lifetime is the pod's."""

    driver: str = ""


class ImageVolumeSource(View, frozen=True):
    """An OCI image or artifact, mounted (KEP-4639)."""

    reference: str = ""
    pull_policy: str = ""


class EmptyDirVolumeSource(View, frozen=True):
    """A directory whose lifetime is the pod's; in memory if `medium` is Memory."""

    medium: str = ""
    size_limit: str | int | float | None = None


class Volume(View, frozen=True):
    """A volume of a pod; only the sources that matter to scheduling are read.

    `ephemeral`: a claim made for this pod alone from a template; its name is `<pod>-<volume>`.
    """

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: Mark | None = None
    empty_dir: EmptyDirVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDiskVolumeSource | None = None
    aws_elastic_block_store: AWSElasticBlockStoreVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    image: ImageVolumeSource | None = None

    def claim_name(self, pod_name: str) -> str:
        """Return the name of the volume's claim; empty if it has none."""
        if self.persistent_volume_claim is not None:
            return self.persistent_volume_claim.claim_name
        return f"{pod_name}-{self.name}" if self.ephemeral is not None else ""


class PodResourceClaim(View, frozen=True):
    """A claim the pod uses: an existing one, or one made for the pod from a template (KEP-4381)."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodResourceClaimStatus(View, frozen=True):
    """The claim that the claim controller made; without a claim name the pod needs none."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(View, frozen=True):
    """Mapping from a container's extended resource to its request in the pod's extended resource claim."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(View, frozen=True):
    """The claim that the scheduler made for the pod's extended resources (KEP-5004)."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class PodSpec(View, frozen=True):
    """Spec of a pod."""

    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = "PreemptLowerPriority"
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    overhead: dict[str, str] = {}
    resources: ResourceRequirements | None = None
    host_network: bool = False
    host_users: bool | None = None
    hostname: str = ""
    subdomain: str = ""
    service_account_name: str = ""
    volumes: tuple[Volume, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()


RESIZE_RESERVED: Final = "keplab.dev/ResizeReserved"
"""Condition of a pod with a deferred resize: its kubelet must reserve the capacity for the generation that the
condition names (switch `resize.reserved_by`).
"""


class ContainerStateRunning(View, frozen=True):
    """A running container."""

    started_at: str | None = None


class ContainerStateTerminated(View, frozen=True):
    """A container that ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerStateWaiting(View, frozen=True):
    """A container that waits to start or to restart."""

    reason: str = ""
    message: str = ""


class ContainerState(View, frozen=True):
    """State of a container: at most one member is set; none means waiting."""

    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None
    waiting: ContainerStateWaiting | None = None


class ContainerStatus(View, frozen=True):
    """Status of a container, reported by the kubelet. `allocated_resources`: the requests its node has allocated;
    `resources`: the resources it runs with, None from a node that cannot resize (KEP-1287).
    """

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = False
    restart_count: int = 0
    started: bool | None = None
    image: str = ""
    allocated_resources: dict[str, str] = {}
    resources: ResourceRequirements | None = None


class UnbindRecord(View, frozen=True):
    """Entry of `status.unbindHistory` (kubelet-unbinding 4.1), which lists the newest first."""

    request_id: str = msgspec.field(name="requestID", default="")
    node_name: str = ""
    binding_generation: int = 0
    reason: str = ""
    message: str = ""
    time: str | None = None
    exclude_seconds: int = 0


class PodStatus(View, frozen=True):
    """Observed state of a pod. Only the API server writes the three binding fields (kubelet-unbinding 4.1)."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    host_ip: str = msgspec.field(name="hostIP", default="")
    pod_ip: str = msgspec.field(name="podIP", default="")
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    qos_class: str = ""
    observed_generation: int = 0
    binding_generation: int = 0
    unbind_count: int = 0
    unbind_history: tuple[UnbindRecord, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    allocated_resources: dict[str, str] = {}
    resources: ResourceRequirements | None = None


class Pod(View, frozen=True):
    """A pod as components see it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_terminal(self) -> bool:
        """Whether the phase is Succeeded or Failed; it never changes again (k/k #35521)."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_active(self) -> bool:
        """Whether the pod is neither terminal nor being deleted (upstream `IsPodActive`)."""
        return not self.is_terminal and self.metadata.deletion_timestamp is None


MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
TOKEN_VOLUME_PREFIX = "kube-api-access-"
"""Name prefix of volumes that hold the token of a pod's service account; five random characters follow."""


@dataclass
class _StatusCells:
    """Table cells of a pod: its status, the number of ready containers, and their restarts."""

    reason: str
    ready: int = 0
    total: int = 0
    restarts: int = 0
    last_restart: str = ""
    is_initializing: bool = False

    def count(self, container: Document) -> None:
        """Add a container's restarts, and remember when one last ended."""
        self.restarts += container.get("restartCount", 0)
        ended = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        self.last_restart = max(self.last_restart, ended)


def _termination_reason(terminated: Document) -> str:
    if reason := terminated.get("reason"):
        return str(reason)
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"


def _status_cells(pod: Document) -> _StatusCells:
    """Return what a table shows of a pod (upstream `printPod`)."""
    status, spec = pod.get("status", {}), pod.get("spec", {})
    sidecars = {each["name"] for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"}
    conditions = {each.get("type"): each for each in status.get("conditions") or ()}
    reason = str(status.get("reason") or status.get("phase") or "Unknown")
    if conditions.get("PodScheduled", {}).get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    total = len(spec.get("containers") or ()) + len(sidecars)
    shown, aside = _StatusCells(reason, total=total), _StatusCells("", total=total)
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state, is_sidecar = container.get("state") or {}, container.get("name") in sidecars
        shown.count(container)
        if is_sidecar:
            aside.count(container)
        terminated, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if is_sidecar and container.get("started"):
            shown.ready += bool(container.get("ready"))
            continue
        shown.is_initializing = True
        if terminated is not None:
            shown.reason = f"Init:{_termination_reason(terminated)}"
        elif waiting and waiting != "PodInitializing":
            shown.reason = f"Init:{waiting}"
        else:
            shown.reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        break
    if not shown.is_initializing or conditions.get("Initialized", {}).get("status") == "True":
        shown.restarts, shown.last_restart = aside.restarts, aside.last_restart
        _count_containers(shown, status, is_ready=conditions.get("Ready", {}).get("status") == "True")
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            shown.reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            shown.reason = "Terminating"
    return shown


def _count_containers(shown: _StatusCells, status: Document, *, is_ready: bool) -> None:
    has_running = False
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        shown.count(container)
        if waiting := (state.get("waiting") or {}).get("reason"):
            shown.reason = waiting
        elif (terminated := state.get("terminated")) is not None:
            shown.reason = _termination_reason(terminated)
        elif container.get("ready") and "running" in state:
            has_running = True
            shown.ready += 1
    if shown.reason == "Completed" and has_running:
        shown.reason = "Running" if is_ready else "NotReady"


def _status_text(pod: Document, now: float) -> str:
    return _status_cells(pod).reason


def _ready(pod: Document, now: float) -> str:
    shown = _status_cells(pod)
    return f"{shown.ready}/{shown.total}"


def _restarts(pod: Document, now: float) -> str:
    shown = _status_cells(pod)
    if not shown.restarts or not shown.last_restart:
        return str(shown.restarts)
    return f"{shown.restarts} ({duration(now - parse_time(shown.last_restart))} ago)"


def _gates(pod: Document, now: float) -> str:
    gates = pod.get("spec", {}).get("readinessGates") or ()
    met = {c["type"] for c in pod.get("status", {}).get("conditions", ()) if c.get("status") == "True"}
    return f"{sum(gate['conditionType'] in met for gate in gates)}/{len(gates)}" if gates else NONE


RESOURCE = Resource(
    Pod,
    short_names=("po",),
    categories=("all",),
    subresources=(
        *("status", "binding", "unbind", "eviction", "log", "resize", "ephemeralcontainers"),
        *("attach", "exec", "portforward", "proxy"),
    ),
    has_generation=True,
    columns=(
        NAME,
        Column("Ready", _ready),
        Column("Status", _status_text),
        Column("Restarts", _restarts),
        AGE,
        Column("IP", "status.podIP", priority=1, default=NONE),
        Column("Node", "spec.nodeName", priority=1, default=NONE),
        Column("Nominated Node", "status.nominatedNodeName", priority=1, default=NONE),
        Column("Readiness Gates", _gates, priority=1),
    ),
    selectable_fields={
        "spec.nodeName": lambda d: d.get("spec", {}).get("nodeName", ""),
        "spec.schedulerName": lambda d: d.get("spec", {}).get("schedulerName", ""),
        "spec.restartPolicy": lambda d: d.get("spec", {}).get("restartPolicy", ""),
        "spec.serviceAccountName": lambda d: d.get("spec", {}).get("serviceAccountName", ""),
        "spec.hostNetwork": lambda d: str(bool(d.get("spec", {}).get("hostNetwork"))).lower(),
        "status.phase": lambda d: d.get("status", {}).get("phase", ""),
        "status.podIP": lambda d: d.get("status", {}).get("podIP", ""),
        "status.nominatedNodeName": lambda d: d.get("status", {}).get("nominatedNodeName", ""),
    },
)
