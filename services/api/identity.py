"""Who calls: a user name and groups, as authentication established them (guarantees 8.1)."""

from dataclasses import dataclass, replace
from typing import Any

NODE_PREFIX = "system:node:"
CONTROLLER_PREFIX = "system:controller:"
NODES_GROUP = "system:nodes"
NODE_HOSTS_GROUP = "system:node-hosts"
"""May exchange its credential for node tokens and nothing else (X-ID5)."""
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


@dataclass(frozen=True)
class Identity:
    """An authenticated caller. `system:anonymous` may call health and version only.

    `on_node`: the node that the token of a service account is bound to (KEP-4193), "" for none. `uid` and `extra`
    (sorted by key): what else authentication established. `is_asked_about`: no call is made as this; a review asks what
    such a client might do.
    """

    user: str
    groups: tuple[str, ...] = ()
    on_node: str = ""
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    is_asked_about: bool = False

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
