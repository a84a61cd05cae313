"""The picture of a kubelet host: nodes, one timer heap, one journal, and what the process shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from kubelet.agent.agent import Agent
from kubelet.agent.host import Host
from kubelet.agent.log_server import ContainerLogs
from kubelet.config import KubeletConfig
from kubelet.deviceplugin.report import pod_resources
from kubelet.dra.times import claims_in_use
from kubelet.managers.resource_managers import manager_metrics
from kubelet.node.policies import settled
from kubelet.pod.context import RESIZE_IN_PROGRESS, RESIZE_PENDING
from kubelet.pod.logs import Run
from kubelet.pod.states import ContainerState
from kubelet.resize.metrics import PENDING, by_priority
from kubelet.runtime.pleg import pleg_metrics
from services.api.seams import Seams
from services.runtime.config import EXIT_USAGE, StartError
from services.runtime.health import HttpRequest, HttpResponse

_METRIC_STATES = {ContainerState.RUNNING: "running", ContainerState.EXITED: "exited"}


class KubeletProcess:
    """A process that hosts emulated nodes."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @property
    def agents(self) -> list[Agent]:
        """The nodes, each as it was last booted."""
        return cast("list[Agent]", self.host.agents)

    async def run(self) -> None:
        """Host the nodes until cancelled."""
        await self.host.run()

    @property
    def is_ready(self) -> bool:
        """Whether every node is registered and knows its pods."""
        return all(agent.is_ready for agent in self.agents)

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges of all nodes together, upstream names."""
        found: dict[str, float] = {}
        states: dict[str, int] = {"running": 0, "waiting": 0, "exited": 0}
        running = waiting_statuses = 0
        resizes = {"deferred": 0, "infeasible": 0, "in progress": 0}
        priorities: list[tuple[str, int]] = []
        for agent in self.agents:
            for name, value in agent.kubelet.out.counters.items():
                found[name] = found.get(name, 0.0) + value
            running += agent.kubelet.running_pods
            waiting_statuses += agent.kubelet.statuses.versions.waiting
            for worker in agent.kubelet.table.pods.values():
                if (pending := worker.conditions.get(RESIZE_PENDING)) is not None:
                    resizes[pending.reason.lower()] += 1
                    priorities.append((pending.reason.lower(), worker.pod.spec.priority))
                resizes["in progress"] += RESIZE_IN_PROGRESS in worker.conditions
                for container in worker.containers:
                    states[_METRIC_STATES.get(container.state, "waiting")] += 1
        agents = self.agents
        statuses = [a.kubelet.statuses.versions for a in agents]
        found |= {
            "kubelet_nodes": len(agents),
            "kubelet_nodes_ready": sum(a.is_ready for a in agents),
            "kubelet_running_pods": running,
            "kubelet_status_waiting": waiting_statuses,
            "kubelet_status_writes_total": sum(a.calls.status_writes for a in agents),
            "kubelet_status_write_failures_total": sum(a.calls.status_failures for a in agents),
            "kubelet_pod_status_sync_duration_seconds_sum": sum(
                a.kubelet.statuses.versions.sync_seconds_sum for a in agents
            ),
            "kubelet_pod_status_sync_duration_seconds_count": sum(s.syncs for s in statuses),
            "kubelet_lease_renewals_total": sum(a.heartbeats.lease_renewals for a in agents),
            "kubelet_node_status_writes_total": sum(a.node_writes for a in agents),
            "kubelet_checkpoint_batches_total": self.host.journal.batches,
            "kubelet_checkpoint_syncs_total": self.host.journal.syncs,
            "kubelet_checkpoint_useless_lines": self.host.journal.useless_lines,
            "kubelet_checkpoint_lost_pods": sum(self.host.journal.silent.values()),
            "kubelet_timers": len(self.host.timers),
        }
        held = (each.claim for agent in agents for each in agent.kubelet.claims.cached.values())
        found |= claims_in_use(claim.devices for claim in held)
        found |= pleg_metrics([agent.kubelet.runtime.pleg for agent in agents], self.host.clock.now())
        found |= manager_metrics([agent.kubelet.managers for agent in agents])
        found["kubelet_pod_in_progress_resizes"] = resizes.pop("in progress")
        if self.host.switches.has_resize_preemption:
            found.update(by_priority(priorities))
        else:
            found.update({f'{PENDING}{{reason="{reason}"}}': count for reason, count in resizes.items()})
        for state, count in states.items():
            found[f'kubelet_running_containers{{container_state="{state}"}}'] = count
        return found

    def http_routes(self) -> list[tuple[str, Callable[[HttpRequest], HttpResponse]]]:
        """Return what the process serves besides its health: container logs, and who has which devices."""
        return [
            ("/containerLogs/{namespace}/{pod}/{container}", ContainerLogs(self._run_of, self.host.clock).answer),
            ("/podResources/{node}", self._pod_resources),
        ]

    def _run_of(self, namespace: str, pod: str, container: str, previous: bool) -> Run | str | None:
        runs = (agent.run_of(namespace, pod, container, previous=previous) for agent in self.agents)
        return next((run for run in runs if run is not None), None)

    def _pod_resources(self, request: Any) -> HttpResponse:
        for agent in self.agents:
            if agent.name == request.params["node"]:
                entries = agent.kubelet.ledger.entries.values()
                shares = ((entry.pod, entry.allocation.devices) for entry in entries)
                found = pod_resources(agent.kubelet.managers.devices, shares)
                return 200, "application/json", msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
        return 404, "text/plain", f"node {request.params['node']!r} is not here\n".encode()


def build(config: KubeletConfig, seams: Seams) -> KubeletProcess:
    """Return a host of the nodes the configuration names. Raises: StartError."""
    try:
        definitions = tuple(settled(node, seams.switches) for node in config.node_definitions())
    except ValueError as error:
        raise StartError(str(error), EXIT_USAGE) from None
    host = Host(config, seams, definitions)
    host.make = lambda place: Agent(host, definitions[place], place)
    host.agents += (host.make(place) for place in range(len(definitions)))
    return KubeletProcess(host)
