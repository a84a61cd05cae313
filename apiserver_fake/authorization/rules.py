"""Who may do what, as data: the authorization table of guarantees 8.3. Deny by default.

The roles stand in `roles.yaml` and, for controllers, in their folders. Special verbs (bind, unbind, evict, token,
impersonate, statehash) are held by those rules alone that name them: `*` never includes one. Nodes are in neither,
because their rules depend on which pod is bound where (`node`).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from services.runtime.roles import Role, controller_roles, read_roles

SPECIAL = frozenset(("bind", "unbind", "evict", "token", "impersonate", "statehash", "chaos"))


@cache
def roles() -> tuple[Role, ...]:
    """Return every role there is."""
    return (*read_roles(Path(__file__).with_name("roles.yaml")), *controller_roles())


LABELS_AT_REGISTRATION = (
    "topology.kubernetes.io/region", "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
)  # fmt: skip
"""Labels a node may give itself when it is created, and never change (X-NR3)."""

LABELS_OF_NODES = (
    "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
)  # fmt: skip
"""Labels a node may set on itself at any time; also everything below `kubelet.kubernetes.io/` (X-NR3)."""

EVENTS_PER_S, EVENTS_BURST = 20.0, 20.0
"""Events of one node (X-NR15)."""
