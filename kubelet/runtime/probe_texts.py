"""What a failed probe says, in the words people find in events. Pure. Source: upstream `pkg/probe`."""

from __future__ import annotations

from kubelet.runtime.script import HANGS, REFUSES
from kubelet.view import KubeletContainer, Probe

REDIRECTED = "Probe terminated redirects, Response body: "
"""What a probe that was sent elsewhere says: that is no failure."""


def failure_text(probe: Probe, container: KubeletContainer, how: str, address: str) -> str:
    """Return what follows `Liveness probe failed: `; `how`: refuses, fails or hangs; `address`: the pod's."""
    if (get := probe.http_get) is not None:
        where = f"{get.host or address}:{_port(get.port, container)}"
        url = f"{get.scheme.lower()}://{where}{get.path}"
        match how:
            case "refuses":
                return f'Get "{url}": {_refused(where)}'
            case "hangs":
                return f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
            case _:
                return "HTTP probe failed with statuscode: 503"
    if (socket := probe.tcp_socket) is not None:
        where = f"{socket.host or address}:{_port(socket.port, container)}"
        return f"dial tcp {where}: i/o timeout" if how == HANGS else _refused(where)
    within = f"{probe.timeout_seconds}s"
    if probe.grpc is not None:
        if how == REFUSES:
            where = f"{address}:{probe.grpc.port}"
            return f'timeout: failed to connect service "{where}" within {within}: context deadline exceeded'
        if how == HANGS:
            return f"timeout: health rpc did not complete within {within}: context deadline exceeded"
        return 'service unhealthy (responded with "NOT_SERVING")'
    command = " ".join(probe.exec.command) if probe.exec is not None else ""
    return f'command timed out: "{command}" timed out after {within}' if how == HANGS else f"{command}: exit status 1"


def _refused(where: str) -> str:
    return f"dial tcp {where}: connect: connection refused"


def _port(port: int | str, container: KubeletContainer) -> int:
    """Return the number of a port; of a name that is not declared, 0."""
    if isinstance(port, int):
        return port
    return next((p.container_port for p in container.ports if p.name == port), 0)
