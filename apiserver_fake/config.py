"""The configuration of an API server process."""

from dataclasses import dataclass

from apiserver_fake.registry.accounts import DEFAULT_ISSUER
from services.cel.times import duration
from services.cel.values import NANOS, EvaluationError
from services.runtime.config import EXIT_USAGE, CommonConfig, StartError, setting


@dataclass(frozen=True, kw_only=True)
class ApiServerConfig(CommonConfig):
    """Configuration of the API server."""

    engine: str = setting("sqlite", "where state is kept: memory, sqlite, or etcd, which several API servers share")
    etcd_servers: str = setting("", "URLs of the members of etcd, with commas between, for --engine etcd")
    etcd_prefix: str = setting("/registry", "what the keys of this mesh begin with in etcd")
    etcd_cafile: str = setting("", "authority that signed the certificates of etcd's members")
    etcd_certfile: str = setting("", "certificate of this API server for etcd")
    etcd_keyfile: str = setting("", "its key")
    etcd_user: str = setting("", "user name for etcd, where it knows users by passwords")
    etcd_password_file: str = setting("", "file with that user's password")
    grpc_host: str = setting("127.0.0.1", "address of the gRPC endpoint, which keplab's components use")
    grpc_port: int | None = setting(7443, "its port; 0: any free one, none: no gRPC")
    rest_host: str = setting("127.0.0.1", "address of the REST endpoint, which kubectl uses")
    rest_port: int | None = setting(7080, "its port; 0: any free one, none: no REST")
    rest_allowed_hosts: tuple[str, ...] = setting((), "host name besides the loopback ones that kubectl may call it by")
    tls_cert_file: str = setting("", "certificate of the REST endpoint; without one it speaks plain HTTP")
    tls_private_key_file: str = setting("", "its key")
    client_ca_file: str = setting(
        "", "authority whose certificates of clients are identities: CN the user, O the groups"
    )
    authorization_mode: str = setting(
        "mesh", "mesh: roles of the mesh's identities alone; RBAC: clients of the REST endpoint by RBAC objects, too"
    )
    enable_admission_plugins: tuple[str, ...] = setting(
        (), "admission besides what is always on: ServiceAccount; may be repeated"
    )
    service_account_issuer: str = setting(DEFAULT_ISSUER, "who tokens of service accounts say they are from")
    service_account_signing_key_file: str = setting("", "private key that signs them, RSA or EC P-256; empty: none are")
    kubelet_client_certificate: str = setting(
        "", "certificate for calls of kubelets, which are then made over TLS; without one they are plain HTTP"
    )
    kubelet_client_key: str = setting("", "its key")
    kubelet_certificate_authority: str = setting("", "authority that signed the certificates of kubelets")
    audit_policy_file: str = setting("", "audit.k8s.io/v1 Policy: what of which requests is recorded")
    audit_log_path: str = setting("", "file for audit events, a line each, or - for standard output; empty: none")
    audit_log_maxsize: int = setting(0, "megabytes of that file before it is put aside; 0: 100")
    audit_log_maxbackup: int = setting(0, "how many files put aside are kept; 0: all")
    audit_log_maxage: int = setting(0, "days for which they are kept; 0: for ever")
    role: tuple[str, ...] = setting((), "YAML file with the role of one more controller; may be repeated")
    cluster_objects: bool = setting(
        False, "make what a cluster has: the Service kubernetes, a default storage class, flow schemas"
    )
    max_requests_inflight: int = setting(
        400,
        "seats for requests that only read; with those of --max-mutating-requests-inflight what priority levels share",
    )
    max_mutating_requests_inflight: int = setting(200, "seats for requests that write")
    state_hash: bool = setting(False, "keep a hash over the whole state and log it with every commit")
    log_watch_events: bool = setting(False, "write a line for every event sent to every watcher; costly")
    kwok: tuple[str, ...] = setting(
        (), "file of KWOK ResourceUsages, which say what pods use where their annotations do not; may be repeated"
    )
    kwok_seed: int = setting(0, "seed of what their expressions leave to chance")
    enable_crds: tuple[str, ...] = setting(
        (), "kinds of KWOK's that are served as custom resources, parted by commas, or all; may be repeated"
    )
    host_commands: bool = setting(False, "PortForwards may say commands: the kubelets run them on their machine")
    window_s: float = setting(300.0, "seconds for which changes are kept for watches to resume")
    window_changes: int = setting(20_000, "changes that are kept in any case")
    objects_max: int = setting(200_000, "objects in all")
    objects_per_namespace_max: int = setting(50_000, "objects of one kind in one namespace")
    event_ttl: str = setting("1h0m0s", "how long Events are kept after they were last written")
    watch_queue_events: int = setting(1_000, "events that may wait for one watcher before it is cut")
    watch_queue_bytes: int = setting(1 << 20, "bytes that may wait for one watcher before it is cut")

    @property
    def event_ttl_s(self) -> float:
        """How long Events are kept. Raises: StartError."""
        try:
            return duration(self.event_ttl).nanos / NANOS
        except EvaluationError:
            raise StartError(f"--event-ttl {self.event_ttl}: want a duration such as 1h0m0s", EXIT_USAGE) from None
