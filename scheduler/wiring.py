"""The scheduler, put together: which machine is handed to which."""

from __future__ import annotations

from scheduler.cache import Cache
from scheduler.config import SchedulerConfig
from scheduler.decisions import Decisions
from scheduler.event_handlers import EventHandlers
from scheduler.exclusions import Exclusions
from scheduler.framework.runner import Runner
from scheduler.loops import Hearts, Scheduler, Wires
from scheduler.metrics import Metrics
from scheduler.profiles import default_profile
from scheduler.queue import SchedulingQueue
from scheduler.scheduling_cycle import SchedulingCycle
from scheduler.status_writer import StatusWriter
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.seams import Seams
from services.client.client import Client
from services.client.informer import Informer
from services.client.recorder import Recorder

LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""A finished pod holds nothing: to the scheduler it is gone (upstream's informer selects the same)."""


def build(config: SchedulerConfig, seams: Seams) -> Scheduler:
    """Return the room, ready to run."""
    switches, clock, random = seams.switches, seams.clock, seams.random
    cache, exclusions = Cache(), Exclusions()
    runner = Runner(default_profile(switches, exclusions))
    queue = SchedulingQueue(
        sort_key=runner.sort_key,
        pre_enqueue=runner.pre_enqueue,
        registrations=runner.registrations(),
        backoff_initial_s=switches.number("scheduler.backoff_initial_s"),
        backoff_max_s=switches.number("scheduler.backoff_max_s"),
        pop_from_backoff=switches.flag("SchedulerPopFromBackoffQ"),
    )
    hearts = Hearts(
        cache=cache,
        queue=queue,
        exclusions=exclusions,
        runner=runner,
        cycle=SchedulingCycle(
            cache,
            runner,
            queue.nominator,
            random,
            percentage=switches.integer("scheduler.percentage_of_nodes_to_score"),
        ),
        handlers=EventHandlers(
            cache,
            queue,
            exclusions,
            runner,
            random,
            scheduler_name=config.scheduler_name,
            unbinding=switches.flag("PodUnbinding"),
            unbind_backoff_max_s=switches.number("unbind.backoff_max_s"),
        ),
        decisions=Decisions(),
        metrics=Metrics(config.scheduler_name),
    )
    api = seams.transport.api()
    client = Client(api, clock, random, field_manager=config.scheduler_name)
    wires = Wires(
        client=client,
        pods=Informer(api, Pod, clock=clock, random=random, field_selector=LIVE_PODS, keep_documents=False,
                      events=seams.events),
        nodes=Informer(api, Node, clock=clock, random=random, keep_documents=False, events=seams.events),
        recorder=Recorder(client, clock, random, component=config.scheduler_name),
        status_writer=StatusWriter(client),
    )  # fmt: skip
    return Scheduler(config, seams, hearts, wires)
