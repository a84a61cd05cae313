"""Who calls: a user name and groups, as authentication established them (guarantees 8.1)."""

from dataclasses import dataclass

NODE_PREFIX = "system:node:"
CONTROLLER_PREFIX = "system:controller:"
NODES_GROUP = "system:nodes"
NODE_HOSTS_GROUP = "system:node-hosts"
"""May exchange its credential for node tokens and nothing else (X-ID5)."""
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
DRIVERS_GROUP = "system:dra-drivers"
"""The service accounts of DRA drivers, which have a role in common."""
MASTERS_GROUP = "system:mesh-admins"


@dataclass(frozen=True)
class Identity:
    """An authenticated caller. `system:anonymous` may call health and version only.

    `on_node`: the node that the token of a service account is bound to (KEP-4193), "" for none.
    """

    user: str
    groups: tuple[str, ...] = ()
    on_node: str = ""

    @property
    def node(self) -> str:
        """The node name, when this is a node: both user and group are required (X-ID3); else ""."""
        if self.user.startswith(NODE_PREFIX) and NODES_GROUP in self.groups:
            return self.user[len(NODE_PREFIX) :]
        return ""


ANONYMOUS = Identity("system:anonymous", ("system:unauthenticated",))
ADMIN = Identity("system:mesh-admin", (MASTERS_GROUP,))
SCHEDULER = Identity("system:kube-scheduler")
CONTROLLER_MANAGER = Identity("system:kube-controller-manager")
"""The shared informers and the leader election of the controllers act as this one."""
CLAIM_MANAGER = Identity("system:claim-controller")
"""The shared informers and the leader election of the claim controller act as this one."""


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
    groups = ("system:serviceaccounts", "system:serviceaccounts:kube-system", DRIVERS_GROUP)
    return Identity(system_account(driver).user, groups, node)
