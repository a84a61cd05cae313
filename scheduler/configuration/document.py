"""KubeSchedulerConfiguration v1 as a typed document, field by field as upstream writes it.

Defaults here are upstream's, except where None means "not given": then a switch may decide. Durations are
seconds once decoded; in the file they are Go's words, `1m30s`.

Source: upstream `staging/src/k8s.io/kube-scheduler/config/v1/types.go`; scheduler-queue-and-cycles 9.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
from msgspec import field

from services.api.times import Duration

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all parts of the file: camelCase, frozen; unknown fields are refused."""


class LeaderElection(Part, frozen=True):
    """The leader election among several schedulers. `leader_elect` None: as the process's flag says."""

    leader_elect: bool | None = None
    lease_duration: Duration = Duration(15)
    renew_deadline: Duration = Duration(10)
    retry_period: Duration = Duration(2)
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class ClientConnection(Part, frozen=True):
    """The settings of upstream's client connection; the mesh has its own protocol, so this is only carried."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50.0
    burst: Int32 = 100


class PluginRef(Part, frozen=True):
    """A plugin's name in a list of enabled or disabled ones. `weight` counts for scoring only; 0 is 1."""

    name: str
    weight: Int32 | None = None


class PluginSet(Part, frozen=True):
    """The plugins that one extension point adds to the default ones, and those that it disables (`*`: all)."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


class Plugins(Part, frozen=True):
    """A plugin set for each extension point, and `multiPoint` for all points that a plugin serves."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()
    placement_feasible: PluginSet = PluginSet()
    pod_group_post_filter: PluginSet = PluginSet()

    def points(self) -> Iterator[tuple[str, PluginSet]]:
        """Yield every extension point's name in the file, for example `preFilter`, and its set; `multiPoint`, too."""
        for name, spelt in zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True):
            yield spelt, getattr(self, name)


class PluginConfig(Part, frozen=True):
    """Arguments of one plugin, undecoded; the plugin's own class decodes them."""

    name: str
    args: dict[str, Any] = {}


class Profile(Part, frozen=True):
    """The plugins that run for pods with this `spec.schedulerName`."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    percentage_of_placements_to_score: Int32 | None = None
    plugins: Plugins = Plugins()
    plugin_config: tuple[PluginConfig, ...] = ()


class ExtenderTLS(Part, frozen=True):
    """TLS towards an extender; data wins over files."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


class ManagedResource(Part, frozen=True):
    """An extended resource that an extender manages."""

    name: str
    ignored_by_scheduler: bool = False


class Extender(Part, frozen=True):
    """A server that is called during cycles; a call with an empty verb is not made."""

    url_prefix: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: Int64 = 0
    bind_verb: str = ""
    enable_https: bool = field(default=False, name="enableHTTPS")
    tls_config: ExtenderTLS | None = None
    http_timeout: Duration = Duration(0)
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False


class KubeSchedulerConfiguration(Part, frozen=True):
    """The whole file."""

    api_version: str = API_VERSION
    kind: str = KIND
    parallelism: Int32 = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: Int32 | None = None
    percentage_of_placements_to_score: Int32 | None = None
    pod_initial_backoff_seconds: Int64 | None = None
    pod_max_backoff_seconds: Int64 | None = None
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[Extender, ...] = ()
    delay_cache_until_active: bool = False
    pre_enqueue_pod_status_delay: Duration | None = None
    """The delay of KEP-5501, as its review asked for; no release of Kubernetes has it. None: as the switch says."""


def as_json(value: Any) -> Any:
    """Return the document or a part of it as JSON values, durations as Go writes them; for `/configz`."""
    return msgspec.to_builtins(value, enc_hook=_spell)


def from_json(kind: type, value: Any) -> Any:
    """Return JSON values as the typed document or part. Raises: msgspec.ValidationError for the first misfit."""
    return msgspec.convert(value, kind, dec_hook=_understand)


def _spell(value: Any) -> Any:
    if isinstance(value, Duration):
        return value.text
    raise TypeError(f"{type(value).__name__} has no form in the file")


def _understand(kind: type, value: Any) -> Any:
    if kind is Duration:
        if not isinstance(value, str):
            raise TypeError(f"Expected a duration such as `15s`, got `{type(value).__name__}`")
        return Duration.parse(value)
    raise TypeError(f"{kind.__name__} is not known here")
