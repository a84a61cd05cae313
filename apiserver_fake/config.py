"""The configuration of an API server process."""

from dataclasses import dataclass

from apiserver_fake.registry.accounts import DEFAULT_ISSUER
from services.api.times import Duration
from services.runtime.config import EXIT_USAGE, CommonConfig, StartError, setting


@dataclass(frozen=True, kw_only=True)
class ApiServerConfig(CommonConfig):
    """Run the API server."""

    engine: str = setting("sqlite", "storage engine: memory, sqlite, or etcd, which several API servers may share")
    etcd_servers: str = setting("", "URLs of etcd's members, separated by commas, for --engine etcd")
    etcd_prefix: str = setting("/registry", "prefix of this mesh's keys in etcd")
    etcd_cafile: str = setting("", "authority that signed the certificates of etcd's members")
    etcd_certfile: str = setting("", "certificate of this API server for etcd")
    etcd_keyfile: str = setting("", "private key of the certificate of --etcd-certfile")
    etcd_user: str = setting("", "user name for an etcd that authenticates users by passwords")
    etcd_password_file: str = setting("", "file with the password of --etcd-user")
    grpc_host: str = setting("127.0.0.1", "address of the gRPC endpoint, which keplab's components use")
    grpc_port: int | None = setting(7443, "port of the gRPC endpoint; 0: any free port, none: no gRPC")
    rest_host: str = setting("127.0.0.1", "address of the REST endpoint, which kubectl uses")
    rest_port: int | None = setting(7080, "port of the REST endpoint; 0: any free port, none: no REST")
    rest_allowed_hosts: tuple[str, ...] = setting(
        (), "host name by which clients may call the REST endpoint, besides the loopback names; may be repeated"
    )
    tls_cert_file: str = setting("", "certificate of the REST endpoint; empty: plain HTTP")
    tls_private_key_file: str = setting("", "private key of the certificate of --tls-cert-file")
    client_ca_file: str = setting(
        "", "authority whose client certificates authenticate users: CN is the user, O the groups"
    )
    authorization_mode: str = setting(
        "mesh",
        "mesh: only the roles of the mesh's identities authorize; RBAC: RBAC objects also authorize clients of "
        "the REST endpoint",
    )
    enable_admission_plugins: tuple[str, ...] = setting(
        (), "admission plugin besides those that are always on: ServiceAccount; may be repeated"
    )
    service_account_issuer: str = setting(DEFAULT_ISSUER, "issuer in the tokens of service accounts")
    service_account_signing_key_file: str = setting(
        "", "private key that signs the tokens of service accounts, RSA or EC P-256; empty: no token is issued"
    )
    kubelet_client_certificate: str = setting(
        "", "client certificate for calls to kubelets, which are then made over TLS; empty: plain HTTP"
    )
    kubelet_client_key: str = setting("", "private key of the certificate for calls to kubelets")
    kubelet_certificate_authority: str = setting("", "authority that signed the certificates of kubelets")
    audit_policy_file: str = setting(
        "", "file with the audit.k8s.io/v1 Policy, which says what is recorded of which requests"
    )
    audit_log_path: str = setting(
        "", "file for audit events, one a line, or - for standard output; empty: no audit log"
    )
    audit_log_maxsize: int = setting(0, "size in megabytes at which the audit log is rotated; 0: 100")
    audit_log_maxbackup: int = setting(0, "number of rotated audit logs that are kept; 0: all")
    audit_log_maxage: int = setting(0, "days for which rotated audit logs are kept; 0: for ever")
    role: tuple[str, ...] = setting((), "YAML file with the role of one more controller; may be repeated")
    cluster_objects: bool = setting(
        False, "create the objects of every cluster: the Service kubernetes, a default storage class, flow schemas"
    )
    max_requests_inflight: int = setting(
        400,
        "seats for requests that only read; priority levels share these seats and those of "
        "--max-mutating-requests-inflight",
    )
    max_mutating_requests_inflight: int = setting(200, "seats for requests that write")
    state_hash: bool = setting(False, "keep a hash over the whole state and log it with every commit")
    log_watch_events: bool = setting(False, "write a line for every event sent to every watcher; costly")
    kwok: tuple[str, ...] = setting(
        (), "file of KWOK ResourceUsages, which state the usage of pods without annotations of it; may be repeated"
    )
    kwok_seed: int = setting(0, "seed of the random choices of ResourceUsage expressions")
    enable_crds: tuple[str, ...] = setting(
        (), "kinds of KWOK that are served as custom resources, separated by commas, or all; may be repeated"
    )
    host_commands: bool = setting(False, "allow PortForwards with commands, which the kubelets run on their machine")
    window_s: float = setting(300.0, "seconds for which changes are kept, so that watches can resume")
    window_changes: int = setting(20_000, "number of changes that are kept in any case")
    objects_max: int = setting(200_000, "limit on the number of objects")
    objects_per_namespace_max: int = setting(50_000, "limit on the number of objects of one kind in one namespace")
    event_ttl: str = setting("1h0m0s", "time for which an Event is kept after its last write")
    watch_queue_events: int = setting(1_000, "number of events that may wait for one watcher before its watch is ended")
    watch_queue_bytes: int = setting(1 << 20, "number of bytes that may wait for one watcher before its watch is ended")

    @property
    def event_ttl_s(self) -> float:
        """Time for which Events are kept, in seconds. Raises: StartError."""
        try:
            return float(Duration.parse(self.event_ttl))
        except ValueError:
            raise StartError(f"--event-ttl {self.event_ttl}: want a duration such as 1h0m0s", EXIT_USAGE) from None
