"""Clusters for the scheduler's core, in one line each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.configuration.plugins import default_profile, plugins
from scheduler.cycle.profiles import Profile, Profiles
from scheduler.cycle.result import ScheduleResult, Unschedulable
from scheduler.cycle.scheduling_cycle import SchedulingCycle
from scheduler.entry import Handle
from scheduler.event_handlers import EventHandlers
from scheduler.framework.arrangement import Enabled
from scheduler.framework.cycle_state import Diagnosis
from scheduler.framework.runner import Runner
from scheduler.framework.world import FixedWorld
from scheduler.queue.exclusions import Exclusions
from scheduler.queue.scheduling_queue import SchedulingQueue
from services.api.kinds.node import Node, NodeInfo, NodeSpec, NodeStatus, Taint
from services.api.kinds.pod import Container, ContainerPort, Pod, PodSpec, PodStatus, ResourceRequirements, UnbindRecord
from services.api.meta import ObjectMeta, View
from services.api.switches import Switches


class Worlds:
    """Builders; every pod has its name as uid."""

    @staticmethod
    def node(
        name: str = "n1",
        *,
        cpu: str = "4",
        memory: str = "8Gi",
        pods: str = "110",
        labels: dict[str, str] | None = None,
        taints: tuple[Taint, ...] = (),
        unschedulable: bool = False,
        session: str = "",
        features: tuple[str, ...] = (),
        **more: str,
    ) -> Node:
        allocatable = {"cpu": cpu, "memory": memory, "pods": pods, **{k.replace("__", "/"): v for k, v in more.items()}}
        return Node(
            metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name, **(labels or {})}),
            spec=NodeSpec(taints=taints, unschedulable=unschedulable),
            status=NodeStatus(
                allocatable=allocatable, node_info=NodeInfo(kubelet_session=session), declared_features=features
            ),
        )

    @staticmethod
    def pod(
        name: str = "p",
        *,
        cpu: str = "",
        memory: str = "",
        node: str = "",
        rv: int = 1,
        port: int = 0,
        host_ip: str = "",
        unbound: tuple[tuple[str, str, int], ...] = (),
        nominated: str = "",
        uid: str = "",
        labels: dict[str, str] | None = None,
        phase: str = "Pending",
        requests: dict[str, str] | None = None,
        **spec: Any,
    ) -> Pod:
        """`unbound`: (node, reason, exclude seconds), newest first."""
        wanted = {**({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {}), **(requests or {})}
        ports = (ContainerPort(container_port=80, host_port=port, host_ip=host_ip),) if port else ()
        spec.setdefault(
            "containers", (Container(name="c", resources=ResourceRequirements(requests=wanted), ports=ports),)
        )
        return Pod(
            metadata=ObjectMeta(
                name=name, namespace="default", uid=uid or name, resource_version=str(rv), labels=labels or {}
            ),
            spec=PodSpec(node_name=node, **spec),
            status=PodStatus(
                phase=phase,
                nominated_node_name=nominated,
                unbind_count=len(unbound),
                unbind_history=tuple(
                    UnbindRecord(request_id=f"r{len(unbound) - i}", node_name=n, reason=r, exclude_seconds=s)
                    for i, (n, r, s) in enumerate(unbound)
                ),
            ),
        )


def new_handle(switches: Switches | None = None, *objects: View) -> Handle:
    """A plugin's surroundings without a scheduler; `objects` are of the other kinds."""
    return Handle(
        switches=switches or Switches(),
        cache=Cache(),
        nominator=Nominator(),
        world=FixedWorld(*objects),
        exclusions=Exclusions(),
        random=random.Random(7),
        wall=lambda: 1_767_225_600.0,
    )


def plugin_of(name: str, handle: Handle | None = None, **args: Any) -> Any:
    """The plugin of that name, with its defaults but for these arguments."""
    entry, handle = plugins()[name], handle or new_handle()
    return entry.make(entry.args(**args) if args else entry.defaults(handle.switches), handle)


class Cluster:
    """Cache, queue, handlers and cycle of one scheduler, without any loop."""

    def __init__(self, extra: Sequence[Enabled] = (), **switches: Any) -> None:
        assigned = Switches({name.replace("__", "."): value for name, value in switches.items()})
        self.handle = new_handle(assigned)
        self.cache, self.exclusions, self.world = self.handle.cache, self.handle.exclusions, self.handle.world
        self.runner = Runner([*default_profile(self.handle), *extra])
        self.queue = SchedulingQueue(
            nominator=self.handle.nominator,
            sort_key=self.runner.sort_key,
            pre_enqueue=self.runner.pre_enqueue,
            registrations_by_profile={"default-scheduler": self.runner.registrations()},
            pop_from_backoff=assigned.flag("SchedulerPopFromBackoffQ"),
        )
        chance = random.Random(7)
        self.cycle = SchedulingCycle(
            self.cache,
            self.runner,
            self.queue.nominator,
            chance,
            percentage=assigned.integer("scheduler.percentage_of_nodes_to_score"),
        )
        self.handlers = EventHandlers(
            self.cache,
            self.queue,
            self.exclusions,
            Profiles([Profile("default-scheduler", self.runner, self.cycle)]),
            chance,
            unbinding=assigned.flag("PodUnbinding"),
        )

    def nodes(self, *nodes: Node, now: float = 0.0) -> Cluster:
        """Have the watch show these nodes."""
        for node in nodes:
            self.handlers.on_node(None, node, now)
        return self

    def pods(self, *pods: Pod, now: float = 0.0) -> Cluster:
        """Have the watch show these pods."""
        for pod in pods:
            self.handlers.on_pod(None, pod, now)
        return self

    def schedule(self, pod: Pod, now: float = 0.0) -> ScheduleResult:
        """Run one cycle that must find a node."""
        result = self.cycle.schedule(PodInfo(pod), now)
        assert isinstance(result, ScheduleResult), result
        return result

    def refuse(self, pod: Pod, now: float = 0.0) -> Diagnosis:
        """Run one cycle that must not find a node."""
        result = self.cycle.schedule(PodInfo(pod), now)
        assert isinstance(result, Unschedulable), result
        return result.diagnosis

    def attempt(self, now: float) -> str:
        """Flush, pop and try one pod; return its name with `->node` or `!`, or "" when no pod is ready."""
        self.queue.flush(now)
        queued = self.queue.pop(now)
        if queued is None:
            return ""
        result = self.cycle.schedule(queued.info, now)
        if isinstance(result, ScheduleResult):
            self.cache.assume(queued.info, result.node_name, result.state)
            self.queue.done(queued.uid)
            self.queue.on_bound(queued)
            return f"{queued.key.name}->{result.node_name}"
        assert isinstance(result, Unschedulable)
        self.queue.add_unschedulable(queued, now, rejectors=result.diagnosis.rejectors)
        return f"{queued.key.name}!"


@pytest.fixture
def a() -> Worlds:
    return Worlds()


@pytest.fixture
def cluster() -> type[Cluster]:
    return Cluster
