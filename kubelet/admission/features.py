"""Checks of node features that not every node has: sysctls, AppArmor, group policies, declared features. Pure.

Source: kubelet 5.1, 5.2; upstream `pkg/kubelet/lifecycle/predicate.go`,
`pkg/kubelet/lifecycle/handlers.go`, `pkg/security/apparmor/validate.go`, `pkg/kubelet/sysctl` (reasons,
messages, safe sysctls); node-declared-features 5.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kubelet.managers.allocation import Rejection
from kubelet.view import KubeletPod
from services.api.features.declared_features import EXCLUSIVE_CPUS, GATE, NAMES, missing, needed_to_schedule
from services.api.release import FOLLOWED, RELEASES

GATES: Final = ("AppArmor", "PodLevelResources", "SupplementalGroupsPolicy", GATE, EXCLUSIVE_CPUS, *NAMES)
"""Feature gates that a node definition may set for its node alone (`featureGates`)."""

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
"""Sysctls that are allowed by default: they affect only the pod's own namespaces."""


class NodeFeatures(msgspec.Struct, frozen=True):
    """The features of one node. `app_armor`: its kernel has AppArmor.

    `groups_policy`: its runtime knows SupplementalGroupsPolicy. `declared`: the features that the node
    declares; None: it knows nothing of such features, and runs every pod. `release`: the kubelet's release,
    which decides what pods need.
    """

    app_armor: bool = True
    groups_policy: bool = True
    gates: Mapping[str, bool] = {}
    declared: tuple[str, ...] | None = ()
    release: str = FOLLOWED

    def refuses_first(self, pod: KubeletPod) -> Rejection | None:
        """Return the rejection that no eviction could avoid, or None."""
        context = pod.spec.security_context
        is_strict = context is not None and context.supplemental_groups_policy == "Strict"
        if is_strict and self.gates.get("SupplementalGroupsPolicy", True) and not self.groups_policy:
            text = "SupplementalGroupsPolicy=Strict is not supported in this node"
            return Rejection("SupplementalGroupsPolicyNotSupported", text)
        return None

    def refuses_last(self, pod: KubeletPod) -> Rejection | None:
        """Return the rejection of a pod that fits but lacks a feature of the node, or None."""
        if _wants_app_armor(pod):
            if not self.gates.get("AppArmor", True):
                return Rejection("AppArmor", "Cannot enforce AppArmor: AppArmor disabled by feature-gate")
            if not self.app_armor:
                return Rejection("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
        size = pod.spec.resources
        if size is not None and (size.requests or size.limits) and not self.gates.get("PodLevelResources", True):
            return Rejection("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled")
        return self.lacks(pod)

    def lacks(self, pod: KubeletPod) -> Rejection | None:
        """Return a rejection that names the features the pod needs and the node does not declare, or None."""
        if self.declared is None:
            return None
        absent = missing(needed_to_schedule(pod.spec, self.release), self.declared)
        text = f"Pod requires node features that are not available: {', '.join(absent)}"
        return Rejection("PodFeatureUnsupported", text) if absent else None


def _wants_app_armor(pod: KubeletPod) -> bool:
    containers = (*pod.spec.init_containers, *pod.spec.containers, *pod.spec.ephemeral_containers)
    contexts = [pod.spec.security_context, *(container.security_context for container in containers)]
    profiles = [context.app_armor_profile for context in contexts if context is not None]
    return any(profile is not None and profile.type not in ("", "Unconfined") for profile in profiles)


def check_features(gates: Mapping[str, bool], declared: tuple[str, ...], version: str) -> None:
    """Raise ValueError for an unknown feature gate, declared feature or kubelet release."""
    for field, names, known in (
        ("featureGates", gates, GATES),
        ("declaredFeatures", declared, NAMES),
        ("version", [version] if version else [], tuple(RELEASES)),
    ):
        for name in names:
            if name not in known:
                raise ValueError(f"{field}: {name!r}, want one of {', '.join(known)}")


def forbidden_sysctl(pod: KubeletPod, allowed: tuple[str, ...]) -> Rejection | None:
    """Return the rejection for a sysctl that the pod may not set, or None.

    `allowed`: names, or prefixes that end with a star.
    """
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
