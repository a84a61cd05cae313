"""Which kernel settings a pod may have on a node: what only its own namespaces feel, and what the node allows. Pure.

Source: kubelet 5.1, 5.2; upstream `pkg/kubelet/sysctl` (safe sysctls, messages).
"""

from __future__ import annotations

from typing import Final

from kubelet.managers.allocation import Rejection
from kubelet.view import KubeletPod

REASON: Final = "SysctlForbidden"
SAFE: Final = frozenset(
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


def refusal(pod: KubeletPod, allowed: tuple[str, ...]) -> Rejection | None:
    """Return why the pod may not have what it asks for. `allowed`: names, or beginnings of names with a star."""
    context = pod.spec.security_context
    for sysctl in context.sysctls if context is not None else ():
        name = sysctl.name.replace("/", ".")
        if name not in SAFE and not any(_covers(pattern, name) for pattern in allowed):
            return Rejection(REASON, f'forbidden sysctl: "{name}" not allowlisted')
        if pod.spec.host_network and name.startswith("net."):
            return Rejection(REASON, f'forbidden sysctl: "{name}" not allowed with host net enabled')
        if pod.spec.host_ipc and not name.startswith("net."):
            return Rejection(REASON, f'forbidden sysctl: "{name}" not allowed with host ipc enabled')
    return None


def _covers(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
