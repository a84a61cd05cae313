"""Identity of a caller: user name and groups, as authentication established them (guarantees 8.1).

The identity of a kubelet host also says which nodes it may act for (X-ID5, decision 0039). Pure.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec

NODE_PREFIX = "system:node:"
CONTROLLER_PREFIX = "system:controller:"
NODES_GROUP = "system:nodes"
NODE_HOSTS_GROUP = "system:node-hosts"
NODE_HOST_PREFIX = "system:node-host:"
"""User name prefix of kubelet hosts: such a host may exchange its credential for tokens of its own nodes
(X-ID5), and change the fields that the stages of those nodes change.
"""
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
DRIVERS_GROUP = "system:dra-drivers"
"""Group of the service accounts of DRA drivers; it gives them one common role."""
MASTERS_GROUP = "system:mesh-admins"
PRIVILEGED_GROUP = "system:masters"
"""Group that may do everything, whatever RBAC objects say; upstream's own name for it."""
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
SERVICE_ACCOUNTS_GROUP = "system:serviceaccounts"
POD_NAME_KEY, POD_UID_KEY = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
NODE_NAME_KEY, NODE_UID_KEY = "authentication.kubernetes.io/node-name", "authentication.kubernetes.io/node-uid"
CREDENTIAL_ID_KEY = "authentication.kubernetes.io/credential-id"
"""Keys of additional facts in a service account's token, besides the account itself (KEP-4193)."""


ANY = "*"
"""Wildcard in place of a list of names: stages generate such names while they run."""
RESTRICTED = "node-restriction.kubernetes.io"
"""Domain whose labels, subdomains included, only the administrator may change (X-NR3)."""
SHOWN_MAX = 3


class StageFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metadata of one kind of object that stages change: keys of labels and annotations, names of finalizers."""

    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()


class Stages(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields that a host's stages change on its nodes and on the pods bound to them; None: no such stages."""

    pods: StageFields | None = None
    nodes: StageFields | None = None


NO_STAGES = Stages()
EVERY_STAGE = Stages(StageFields((ANY,), (ANY,), (ANY,)), StageFields((ANY,), (ANY,), (ANY,)))
"""Stage fields of hosts that follow Stage objects: every name, as the stages are unknown at the start (decision
0078).
"""


class Hosting(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nodes of a kubelet host: those in `nodes`, and those whose names begin with `node_prefix` (if not empty)."""

    nodes: frozenset[str] = frozenset()
    node_prefix: str = ""
    stages: Stages = NO_STAGES

    def has(self, node: str) -> bool:
        """Whether this host may act for the node."""
        return node in self.nodes or (self.node_prefix != "" and node.startswith(self.node_prefix))

    def __str__(self) -> str:
        """Describe the host's nodes, for the text of a refusal."""
        if not self.nodes and not self.node_prefix:
            return "for no node: its entry in the token file has neither nodes nor node_prefix"
        names = sorted(self.nodes)
        shown = ", ".join(names[:SHOWN_MAX])
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        begun = f"nodes that begin with {self.node_prefix!r}" if self.node_prefix else ""
        return "for " + " and for ".join(part for part in (shown + more, begun) if part) + " alone"


NOWHERE = Hosting()


def may_change(fields: StageFields, path: str, before: object, after: object) -> bool:
    """Whether stages may make that change to an object's metadata; `path`: one leaf, such as `metadata.labels.KEY`."""
    for prefix, named in (("metadata.labels.", fields.labels), ("metadata.annotations.", fields.annotations)):
        if path.startswith(prefix):
            key = path[len(prefix) :]
            domain = key.rpartition("/")[0]
            return not f".{domain}".endswith(f".{RESTRICTED}") and (key in named or ANY in named)
    if path != "metadata.finalizers":
        return False
    changed = {str(name) for name in _as_list(before)} ^ {str(name) for name in _as_list(after)}
    return ANY in fields.finalizers or changed <= set(fields.finalizers)


def _as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


class Credential(NamedTuple):
    """A caller's credential that can end. `bearer`: a token; `peer`: the peer whose connection it came over.

    `expires_s`: when a certificate expires, seconds since the epoch.
    """

    bearer: str = ""
    peer: str = ""
    expires_s: float = math.inf

    def is_over(self, wall_s: float) -> bool:
        """Whether the certificate has expired; an open connection may outlive it."""
        return wall_s > self.expires_s


LASTING = Credential()


@dataclass(frozen=True)
class Identity:
    """An authenticated caller. `system:anonymous` may call health and version only.

    `on_node`: the node that a service account's token is bound to (KEP-4193); empty if none. `uid` and `extra`
    (sorted by key): further facts that authentication established. `is_asked_about`: the identity makes no calls;
    an access review asks what such a client may do. `hosting`: for a kubelet host, the nodes it may act for.
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
        """The node name of a node identity; empty otherwise. Both user and group are required (X-ID3)."""
        if self.user.startswith(NODE_PREFIX) and NODES_GROUP in self.groups:
            return self.user[len(NODE_PREFIX) :]
        return ""

    @property
    def is_external(self) -> bool:
        """Whether RBAC applies to this caller: REST clients are in `system:authenticated` or
        `system:unauthenticated`.
        """
        return AUTHENTICATED in self.groups or UNAUTHENTICATED in self.groups or self.is_asked_about

    @property
    def is_privileged(self) -> bool:
        """Whether this caller may do everything."""
        return PRIVILEGED_GROUP in self.groups

    @property
    def user_info(self) -> dict[str, Any]:
        """The caller as `UserInfo` of authentication.k8s.io/v1; empty fields are left out."""
        info: dict[str, Any] = {"username": self.user, "uid": self.uid, "groups": list(self.groups)}
        info["extra"] = {key: list(values) for key, values in self.extra}
        return {name: value for name, value in info.items() if value}


ANONYMOUS = Identity("system:anonymous", (UNAUTHENTICATED,))
ADMIN = Identity("system:mesh-admin", (MASTERS_GROUP,))
SCHEDULER = Identity("system:kube-scheduler")
CONTROLLER_MANAGER = Identity("system:kube-controller-manager")
"""Identity of the controllers' shared informers and leader election."""
STAGE_PLAYER = Identity("system:controller:kwok-stages")
"""Identity of the stage player: it applies KWOK's Stages to objects that no kubelet hosts (decision 0078)."""
MONITOR = Identity("system:monitor")
"""Identity of the monitor, which scrapes metrics and health of every process (guarantees 8.3)."""
PAGE = Identity("keplab:ui")
"""Identity of the live page's server: it reads, and changes nothing in this name."""
KUBELET_CLIENT = Identity("kube-apiserver-kubelet-client")
"""Identity of the API server in calls to kubelets."""
CLAIM_MANAGER = Identity("system:claim-controller")
"""Identity of the claim controller's shared informers and leader election."""


def external(identity: Identity) -> Identity:
    """Return the identity as RBAC sees it for a REST client.

    Authenticated callers join `system:authenticated`; mesh administrators also join `system:masters`. Components
    call without these groups, and RBAC objects do not apply to them.
    """
    if UNAUTHENTICATED in identity.groups:
        return identity
    added = [PRIVILEGED_GROUP] if MASTERS_GROUP in identity.groups else []
    groups = tuple(dict.fromkeys((*identity.groups, *added, AUTHENTICATED)))
    return identity if groups == identity.groups else replace(identity, groups=groups)


def account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups that every service account of a namespace is in."""
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
    """Return the identity of a service account of kube-system, such as upstream's controllers use."""
    return Identity(f"{SERVICE_ACCOUNT_PREFIX}kube-system:{name}")


def driver_identity(driver: str, node: str) -> Identity:
    """Return the identity of a DRA driver on a node: its service account, with a token bound to that node."""
    groups = (*account_groups("kube-system"), DRIVERS_GROUP)
    return Identity(system_account(driver).user, groups, node)
