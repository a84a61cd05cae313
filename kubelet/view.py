"""The pod as a kubelet reads it: the shared view and the few fields that only a node uses. Pure."""

from typing import NamedTuple

import msgspec

from services.api.kinds.pod import MIRROR_ANNOTATION, Container, ContainerRestartRule, Pod, PodSpec, Volume, VolumeMount
from services.api.meta import View


class ReadinessGate(View, frozen=True):
    """A condition set by another client, without which the pod is not Ready (KEP-580)."""

    condition_type: str = ""


class PodOS(View, frozen=True):
    """The operating system for which the pod was made."""

    name: str = ""


class ExecAction(View, frozen=True):
    """A command run in the container."""

    command: tuple[str, ...] = ()


class HTTPGetAction(View, frozen=True):
    """An HTTP request; `port` is a number or the name of one of the container's ports."""

    path: str = "/"
    port: int | str = 0
    host: str = ""
    scheme: str = "HTTP"


class TCPSocketAction(View, frozen=True):
    """A TCP connection that is opened and closed."""

    port: int | str = 0
    host: str = ""


class GRPCAction(View, frozen=True):
    """A call of grpc.health.v1.Health (KEP-2727)."""

    port: int = 0
    service: str | None = None


class Probe(View, frozen=True):
    """A probe of a container, with its periods and thresholds; times in seconds. Defaults are the API server's."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    grpc: GRPCAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class SleepAction(View, frozen=True):
    """A wait, as a hook (KEP-3960)."""

    seconds: int = 0


class LifecycleHandler(View, frozen=True):
    """The action of one hook. No socket is opened for it: a hook of that kind fails."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(View, frozen=True):
    """The hooks of a container."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None


class ExitCodes(View, frozen=True):
    """Exit codes: those in `values`, or all others."""

    operator: str = "In"
    values: tuple[int, ...] = ()


class RestartRule(ContainerRestartRule, frozen=True):
    """A rule by which a container with such an exit code is restarted, whatever its policy (KEP-5307)."""

    exit_codes: ExitCodes = ExitCodes()


class AppArmorProfile(View, frozen=True):
    """The AppArmor profile that confines a container; `type` Unconfined: none."""

    type: str = ""


class SecurityContext(View, frozen=True):
    """The fields of a container's security context that a node uses."""

    app_armor_profile: AppArmorProfile | None = None


class KeySelector(View, frozen=True):
    """One key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class ResourceFieldSelector(View, frozen=True):
    """A resource of a container; `container_name` "": of the container that has the variable."""

    container_name: str = ""
    resource: str = ""
    divisor: str | int = ""


class ObjectFieldSelector(View, frozen=True):
    """A field of the pod."""

    field_path: str = ""


class EnvVarSource(View, frozen=True):
    """The source of a variable's value."""

    field_ref: ObjectFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None


class EnvVar(View, frozen=True):
    """A variable; if its value comes from a source, `value` is ""."""

    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class ObjectSource(View, frozen=True):
    """A ConfigMap or Secret whose keys are all variables."""

    name: str = ""
    optional: bool = False


class EnvFromSource(View, frozen=True):
    """Variables from a whole object."""

    prefix: str = ""
    config_map_ref: ObjectSource | None = None
    secret_ref: ObjectSource | None = None


class VolumeUse(VolumeMount, frozen=True):
    """A volume that a container mounts, or uses as a device."""

    name: str = ""


class KeyToPath(View, frozen=True):
    """A key that becomes a file."""

    key: str = ""


class ObjectVolume(View, frozen=True):
    """A ConfigMap or Secret as files: of all keys, or of `items`. A secret volume has `secretName`."""

    name: str = ""
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool = False


class TokenProjection(View, frozen=True):
    """A token of the pod's service account."""

    audience: str = ""


class DownwardItem(View, frozen=True):
    """A file of the downward API."""

    resource_field_ref: ResourceFieldSelector | None = None


class DownwardVolume(View, frozen=True):
    """Files of the downward API."""

    items: tuple[DownwardItem, ...] = ()


class VolumeProjection(View, frozen=True):
    """One source of a projected volume."""

    config_map: ObjectVolume | None = None
    secret: ObjectVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: TokenProjection | None = None


class ProjectedVolume(View, frozen=True):
    """Several sources in one directory."""

    sources: tuple[VolumeProjection, ...] = ()


class KubeletVolume(Volume, frozen=True):
    """A volume, with the fields that only a node uses."""

    config_map: ObjectVolume | None = None
    secret: ObjectVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    projected: ProjectedVolume | None = None


class KubeletContainer(Container, frozen=True):
    """A container, with the fields that only a node uses."""

    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    volume_mounts: tuple[VolumeUse, ...] = ()
    volume_devices: tuple[VolumeUse, ...] = ()
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False

    security_context: SecurityContext | None = None

    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    image_pull_policy: str = ""
    restart_policy_rules: tuple[RestartRule, ...] = ()


class Sysctl(View, frozen=True):
    """A kernel setting that a pod requests."""

    name: str = ""


class PodSecurityContext(View, frozen=True):
    """The fields of a pod's security context that a node uses."""

    sysctls: tuple[Sysctl, ...] = ()
    app_armor_profile: AppArmorProfile | None = None
    supplemental_groups_policy: str = ""


class KubeletPodSpec(PodSpec, frozen=True):
    """The shared spec, with the fields that only a node uses."""

    containers: tuple[KubeletContainer, ...] = ()
    init_containers: tuple[KubeletContainer, ...] = ()
    ephemeral_containers: tuple[KubeletContainer, ...] = ()
    readiness_gates: tuple[ReadinessGate, ...] = ()
    os: PodOS | None = None
    security_context: PodSecurityContext | None = None
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    volumes: tuple[KubeletVolume, ...] = ()
    image_pull_secrets: tuple[ObjectSource, ...] = ()
    runtime_class_name: str = ""


class KubeletPod(Pod, frozen=True):
    """A pod as the kubelet sees it."""

    spec: KubeletPodSpec = KubeletPodSpec()


class WorkerKey(NamedTuple):
    """One pod for one binding: a pod that comes back with the same uid is another one here (N3)."""

    uid: str
    generation: int


CRITICAL_PRIORITY = 2_000_000_000
STATIC_ANNOTATION = "kubernetes.io/config.source"


def worker_key(pod: Pod) -> WorkerKey:
    """Return uid and binding generation; 0 when the pod was never bound through the binding subresource."""
    return WorkerKey(pod.metadata.uid, pod.status.binding_generation)


def is_static(pod: Pod) -> bool:
    """Whether the pod is a static pod, or the mirror of one."""
    annotations = pod.metadata.annotations
    return MIRROR_ANNOTATION in annotations or annotations.get(STATIC_ANNOTATION, "api") != "api"


def is_critical(pod: Pod) -> bool:
    """Whether pods of lower priority may be evicted for the pod (upstream `IsCriticalPod`)."""
    return is_static(pod) or pod.spec.priority >= CRITICAL_PRIORITY


def is_daemon(pod: Pod) -> bool:
    """Whether a DaemonSet owns the pod."""
    owner = pod.metadata.controller
    return owner is not None and owner.kind == "DaemonSet"
