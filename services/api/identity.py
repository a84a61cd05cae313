"""Who calls: a user name and groups, as authentication established them (guarantees 8.1), and of a kubelet host which
nodes it may act for (X-ID5, decision 0039). Pure."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

NODE_PREFIX = "system:node:"
CONTROLLER_PREFIX = "system:controller:"
NODES_GROUP = "system:nodes"
NODE_HOSTS_GROUP = "system:node-hosts"
NODE_HOST_PREFIX = "system:node-host:"
"""May exchange its credential for tokens of its own nodes (X-ID5), and change what stages of theirs do."""
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
DRIVERS_GROUP = "system:dra-drivers"
"""The service accounts of DRA drivers, which have a role in common."""
MASTERS_GROUP = "system:mesh-admins"
PRIVILEGED_GROUP = "system:masters"
"""May do everything, whatever RBAC objects say; upstream's own name for it."""
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
SERVICE_ACCOUNTS_GROUP = "system:serviceaccounts"
POD_NAME_KEY, POD_UID_KEY = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
NODE_NAME_KEY, NODE_UID_KEY = "authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid"
CREDENTIAL_ID_KEY = "authentication.kubernetes.io/credential-id"
"""Keys of what a service account's token says besides who it is (KEP-4193)."""


ANY = "*"
"""In place of names: stages make them up as they are played."""
RESTRICTED = "node-restriction.kubernetes.io"
"""Labels below this domain are the administrator's alone (X-NR3)."""
SHOWN_MAX = 3


class StageFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of one kind of object that stages change: keys of labels and annotations, names of finalizers."""

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()


class Stages(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the stages of a host change of its nodes, and of the pods that are bound to them; None: there are none."""

    pods: StageFields | None = None
    nodes: StageFields | None = None


NO_STAGES = Stages()
EVERY_STAGE = Stages(StageFields((ANY,), (ANY,), (ANY,)), StageFields((ANY,), (ANY,), (ANY,)))
"""Of hosts that follow Stage objects: which there will be is not known at the start (decision 0078)."""


class Hosting(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nodes of a kubelet host: those of these names, and those whose names begin with `node_prefix` ("": none)."""

    nodes: frozenset[str] = frozenset()
    node_prefix: str = ""
    stages: Stages = NO_STAGES

    def has(self, node: str) -> bool:
        """Whether that node is this host's."""
        return node in self.nodes or (self.node_prefix != "" and node.startswith(self.node_prefix))

    def __str__(self) -> str:
        """Which nodes these are, for a refusal."""
        if not self.nodes and not self.node_prefix:
            return "for no node: its entry in the token file has neither nodes nor node_prefix"
        names = sorted(self.nodes)
        shown = ", ".join(names[:SHOWN_MAX])
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        begun = f"nodes that begin with {self.node_prefix!r}" if self.node_prefix else ""
        return "for " + " and for ".join(part for part in (shown + more, begun) if part) + " alone"


NOWHERE = Hosting()


def may_change(fields: StageFields, path: str, before: object, after: object) -> bool:
    """Whether stages change that leaf of an object's metadata so; `path` as in `metadata.labels.KEY`."""
    for prefix, named in (("metadata.labels.", fields.labels), ("metadata.annotations.", fields.annotations)):
        if path.startswith(prefix):
            key = path[len(prefix) :]
            domain = key.rpartition("/")[0]
            return not f".{domain}".endswith(f".{RESTRICTED}") and (key in named or ANY in named)
    if path != "metadata.finalizers":
        return False
    changed = {str(name) for name in _listed(before)} ^ {str(name) for name in _listed(after)}
    return ANY in fields.finalizers or changed <= set(fields.finalizers)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


class Credential(NamedTuple):
    """What a caller has shown that ends some day. `bearer`: a token, and by `peer` whose connection it came over;
    `expires_s`: of a certificate, seconds since the epoch."""

    bearer: str = ""
    peer: str = ""
    expires_s: float = math.inf

    def is_over(self, wall_s: float) -> bool:
        """Whether the certificate has expired; a connection may be older than that."""
        return wall_s > self.expires_s


LASTING = Credential()


@dataclass(frozen=True)
class Identity:
    """An authenticated caller. `system:anonymous` may call health and version only.

    `on_node`: the node that the token of a service account is bound to (KEP-4193), "" for none. `uid` and `extra`
    (sorted by key): what else authentication established. `is_asked_about`: no call is made as this; a review asks what
    such a client might do. `hosting`: of a kubelet host, which nodes it may act for.
    """

    user: str
    groups: tuple[str, ...] = ()
    on_node: str = ""
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    is_asked_about: bool = False
    hosting: Hosting = NOWHERE
    credential: Credential = field(default=LASTING, compare=False, repr=False)
    """The credential that authenticated it; not part of equality."""

    @property
    def node(self) -> str:
        """The node name, when this is a node: both user and group are required (X-ID3); else ""."""
        if self.user.startswith(NODE_PREFIX) and NODES_GROUP in self.groups:
            return self.user[len(NODE_PREFIX) :]
        return ""

    @property
    def is_external(self) -> bool:
        """Whether RBAC concerns this caller: clients of the REST endpoint are in one of the two groups of all."""
        return AUTHENTICATED in self.groups or UNAUTHENTICATED in self.groups or self.is_asked_about

    @property
    def is_privileged(self) -> bool:
        """Whether this caller may do everything."""
        return PRIVILEGED_GROUP in self.groups

    @property
    def user_info(self) -> dict[str, Any]:
        """The caller as `UserInfo` of authentication.k8s.io/v1; what is empty is left out."""
        info: dict[str, Any] = {"username": self.user, "uid": self.uid, "groups": list(self.groups)}
        info["extra"] = {key: list(values) for key, values in self.extra}
        return {name: value for name, value in info.items() if value}


ANONYMOUS = Identity("system:anonymous", (UNAUTHENTICATED,))
ADMIN = Identity("system:mesh-admin", (MASTERS_GROUP,))
SCHEDULER = Identity("system:kube-scheduler")
CONTROLLER_MANAGER = Identity("system:kube-controller-manager")
"""The shared informers and the leader election of the controllers act as this one."""
STAGE_PLAYER = Identity("system:controller:kwok-stages")
"""Who moves by KWOK's Stages what no kubelet hosts (decision 0078)."""
MONITOR = Identity("system:monitor")
"""Who scrapes: metrics and health, of every process (guarantees 8.3)."""
PAGE = Identity("keplab:ui")
"""The server of the live page: it reads, and changes nothing in this name."""
KUBELET_CLIENT = Identity("kube-apiserver-kubelet-client")
"""The API server as it calls kubelets."""
CLAIM_MANAGER = Identity("system:claim-controller")
"""The shared informers and the leader election of the claim controller act as this one."""


def external(identity: Identity) -> Identity:
    """Return the identity as a client from outside has it: member of the group of all who are authenticated, and an
    administrator of the mesh of the privileged one. Components call as they are; RBAC objects say nothing of them."""
    if UNAUTHENTICATED in identity.groups:
        return identity
    added = [PRIVILEGED_GROUP] if MASTERS_GROUP in identity.groups else []
    groups = tuple(dict.fromkeys((*identity.groups, *added, AUTHENTICATED)))
    return identity if groups == identity.groups else replace(identity, groups=groups)


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of every service account of a namespace."""
    return SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}"


def account_of(user: str) -> tuple[str, str] | None:
    """Return namespace and name of the service account with that user name; None for any other user."""
    namespace, colon, name = user.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    is_account = user.startswith(SERVICE_ACCOUNT_PREFIX) and colon and namespace and name and ":" not in name
    return (namespace, name) if is_account else None


def node_identity(name: str) -> Identity:
    """Return the identity of a node's kubelet."""
    return Identity(NODE_PREFIX + name, (NODES_GROUP,))


def host_identity(name: str, hosting: Hosting) -> Identity:
    """Return the identity of a process that hosts these nodes."""
    return Identity(NODE_HOST_PREFIX + name, (NODE_HOSTS_GROUP,), hosting=hosting)


def controller_identity(name: str) -> Identity:
    """Return the identity of one controller."""
    return Identity(CONTROLLER_PREFIX + name)


def system_account(name: str) -> Identity:
    """Return the identity of a service account of kube-system, as upstream's controllers have."""
    return Identity(f"{SERVICE_ACCOUNT_PREFIX}kube-system:{name}")


def driver_identity(driver: str, node: str) -> Identity:
    """Return the identity of a DRA driver on a node: its service account, by a token bound to that node."""
    groups = (*account_groups("kube-system"), DRIVERS_GROUP)
    return Identity(system_account(driver).user, groups, node)
