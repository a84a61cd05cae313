"""What a pod needs that not every node has or allows: sysctls, AppArmor, group policies, declared features. Pure.

Source: kubelet 5.1, 5.2; upstream `pkg/kubelet/lifecycle/predicate.go`, `pkg/kubelet/lifecycle/handlers.go`,
`pkg/security/apparmor/validate.go`, `staging/src/k8s.io/component-helpers/nodedeclaredfeatures`, `pkg/kubelet/sysctl`
(reasons, messages, who needs what, safe sysctls).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kubelet.managers.allocation import Rejection
from kubelet.view import KubeletPod

GATES: Final = ("AppArmor", "PodLevelResources", "SupplementalGroupsPolicy")
"""What a node definition may switch off for its node alone (`featureGates`)."""
HOST_USERS, RESTART_ALL = "UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits"
DECLARABLE: Final = (RESTART_ALL, HOST_USERS)

SAFE_SYSCTLS: Final = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
"""What only the namespaces of the pod itself feel."""


class NodeFeatures(msgspec.Struct, frozen=True):
    """`app_armor`: the node's kernel has it. `groups_policy`: its runtime knows SupplementalGroupsPolicy."""

    app_armor: bool = True
    groups_policy: bool = True
    gates: Mapping[str, bool] = {}
    declared: tuple[str, ...] = ()

    @property
    def status(self) -> dict[str, bool]:
        """What the Node's status says of a runtime that lacks something."""
        return {} if self.groups_policy else {"supplementalGroupsPolicy": False}

    def refuses_first(self, pod: KubeletPod) -> Rejection | None:
        """Return what no eviction would help against."""
        context = pod.spec.security_context
        is_strict = context is not None and context.supplemental_groups_policy == "Strict"
        if is_strict and self.gates.get("SupplementalGroupsPolicy", True) and not self.groups_policy:
            text = "SupplementalGroupsPolicy=Strict is not supported in this node"
            return Rejection("SupplementalGroupsPolicyNotSupported", text)
        return None

    def refuses_last(self, pod: KubeletPod) -> Rejection | None:
        """Return why a pod that fits may not run here."""
        if _wants_app_armor(pod):
            if not self.gates.get("AppArmor", True):
                return Rejection("AppArmor", "Cannot enforce AppArmor: AppArmor disabled by feature-gate")
            if not self.app_armor:
                return Rejection("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
        size = pod.spec.resources
        if size is not None and (size.requests or size.limits) and not self.gates.get("PodLevelResources", True):
            return Rejection("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled")
        missing = [name for name in _needs(pod) if name not in self.declared]
        if missing:
            text = f"Pod requires node features that are not available: {', '.join(missing)}"
            return Rejection("PodFeatureUnsupported", text)
        return None


def _wants_app_armor(pod: KubeletPod) -> bool:
    containers = (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers)
    contexts = [pod.spec.security_context, *(container.security_context for container in containers)]
    profiles = [context.app_armor_profile for context in contexts if context is not None]
    return any(profile is not None and profile.type not in ("", "Unconfined") for profile in profiles)


def _needs(pod: KubeletPod) -> list[str]:
    """Return the features that a node must have declared, in the order they are listed."""
    spec = pod.spec
    rules = [rule for each in (*spec.containers, *spec.init_containers) for rule in each.restart_policy_rules]
    found = [RESTART_ALL] if any(rule.action == "RestartAllContainers" for rule in rules) else []
    return [*found, HOST_USERS] if spec.host_network and spec.host_users is False else found


def check_features(gates: Mapping[str, bool], declared: tuple[str, ...]) -> None:
    """Raise ValueError for what no node can lack, or declare."""
    for field, names, known in (("featureGates", gates, GATES), ("declaredFeatures", declared, DECLARABLE)):
        for name in names:
            if name not in known:
                raise ValueError(f"{field}: {name!r}, want one of {', '.join(known)}")


def forbidden_sysctl(pod: KubeletPod, allowed: tuple[str, ...]) -> Rejection | None:
    """Return why the pod may not have what it asks for. `allowed`: names, or beginnings of names with a star."""
    context = pod.spec.security_context
    for sysctl in context.sysctls if context is not None else ():
        name = sysctl.name.replace("/", ".")
        is_allowed = any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in allowed)
        problem = ""
        if name not in SAFE_SYSCTLS and not is_allowed:
            problem = "allowlisted"
        elif pod.spec.host_network and name.startswith("net."):
            problem = "allowed with host net enabled"
        elif pod.spec.host_ipc and not name.startswith("net."):
            problem = "allowed with host ipc enabled"
        if problem:
            return Rejection("SysctlForbidden", f'forbidden sysctl: "{name}" not {problem}')
    return None
