"""The composition of the scheduler: its machines, and how they are connected."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.cache.pod_group_membership import PodGroups
from scheduler.config import SchedulerConfig
from scheduler.configuration.assembly import MadeProfile
from scheduler.configuration.file import Configured
from scheduler.configuration.plugins import default_profile, plugins
from scheduler.cycle.attempt import Decisions
from scheduler.cycle.clients import Clients
from scheduler.cycle.profiles import Profile, Profiles
from scheduler.cycle.scheduling_cycle import EXTENDER, Batching, Rotation, SchedulingCycle
from scheduler.cycle.waiting_pods import WaitingPods
from scheduler.dispatcher.call_queue import CallQueue
from scheduler.dispatcher.dispatch import Dispatcher
from scheduler.dispatcher.limited_client import LimitedClient, Limits, Sharing
from scheduler.dra.ledger import ClaimLedger
from scheduler.entry import Handle
from scheduler.event_handlers import EventHandlers
from scheduler.extenders.extended_cycle import Extenders, ExtenderTransport
from scheduler.framework.events import WILDCARD, Action, ClusterEvent, Registration
from scheduler.framework.runner import Runner
from scheduler.framework.status import Status
from scheduler.framework.world import World, followed_kinds
from scheduler.loops import Scheduler, SchedulerCore
from scheduler.metrics import SchedulerMetrics
from scheduler.pod_groups.cycle import GroupCycle
from scheduler.pod_groups.queue import GroupedQueue
from scheduler.preemption.progress import RunningPreemptions
from scheduler.queue.exclusions import Exclusions
from scheduler.queue.preenqueue_status import ReportRules, missing_gate
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.resize.accounting import accounting_of
from scheduler.resize.cycle import ResizeCycle
from scheduler.resize.deferred_pods import DeferredPods, make_gate
from scheduler.resize.out_of_tree import RELEVANCE, OutOfTreePlugins
from scheduler.resize.rules import rules_of
from scheduler.switches import AsyncCallSwitches, GangSwitches, SchedulerSwitches
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import View
from services.api.seams import Seams, Tracer
from services.client.client import Client
from services.client.informer import Informer
from services.client.recorder import Recorder
from services.dra.allocated_devices import Allocated
from services.dra.features import Features
from services.reconcile.workqueue import TokenBucket
from services.runtime.config import StartError

V = TypeVar("V", bound=View)

LEASE = "kube-scheduler"
LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of live pods, as upstream's informer selects them.

A finished pod holds nothing: to the scheduler it is gone.
"""


def build(
    config: SchedulerConfig, seams: Seams, to_extenders: Callable[[Tracer], ExtenderTransport] | None = None
) -> Scheduler:
    """Return the scheduler, ready to run. Raises: StartError when feature gates contradict each other."""
    switches, clock, random = seams.switches, seams.clock, seams.random
    if problem := missing_gate(switches):
        raise StartError(problem)
    configured = Configured.read(config.config, config.scheduler_name, switches)
    config = replace(config, **configured.election())
    own, calls = switches.of(SchedulerSwitches), switches.of(AsyncCallSwitches)
    cache = Cache()
    exclusions = Exclusions(by_kind=own.exclusion_scope == "signature")
    nominator = Nominator()
    api = seams.transport.api()

    def informer(view: type[V], field_selector: str = "", *, keep_documents: bool = False) -> Informer[V]:
        return Informer(
            api,
            view,
            clock=clock,
            random=random,
            field_selector=field_selector,
            keep_documents=keep_documents,
            events=seams.events,
        )

    is_extended = bool(configured.extenders)  # then whole objects are sent
    nodes = informer(Node, keep_documents=is_extended)

    pods, waiting = informer(Pod, LIVE_PODS, keep_documents=is_extended), WaitingPods()
    others: dict[type[View], Informer[Any]] = {view: informer(view) for view in followed_kinds(switches)}
    handle = Handle(
        switches=switches,
        cache=cache,
        nominator=nominator,
        world=World({view: each.lister for view, each in others.items()}),
        exclusions=exclusions,
        random=random,
        wall=clock.wall,
        profile=config.scheduler_name,
        preempting=RunningPreemptions(partial(_is_staying, pods)),
        claims=ClaimLedger(allocated=Allocated(consumable_capacity=switches.of(Features).consumable_capacity)),
        groups=PodGroups(is_on=switches.of(GangSwitches).is_on),
        waiting=waiting,
    )
    core = core_of(handle, configured, configured.profiles(config.plugin, handle), clock.now)
    client = _client(config, seams, calls)
    clients = Clients(
        client=client,
        pods=pods,
        nodes=nodes,
        others=others,
        recorder=Recorder(
            client,
            clock,
            random,
            component=config.scheduler_name,
            series_host=seams.component if own.has_event_series else "",
        ),
        dispatcher=_dispatcher(config, seams, client, calls),
        elector=config.elector(seams, LEASE),
    )
    way = partial(to_extenders, seams.tracer) if to_extenders is not None else None
    extenders = _extenders(configured, cache, pods, nodes, way)
    return Scheduler(config, seams, core, clients, handle, waiting, configured, extenders)


def _client(config: SchedulerConfig, seams: Seams, calls: AsyncCallSwitches) -> Client:
    api = seams.transport.api()
    if not calls.qps:
        return Client(api, seams.clock, seams.random, field_manager=config.scheduler_name)
    limits = Limits(calls.qps, calls.burst, Sharing(calls.sharing))
    return LimitedClient(api, seams.clock, seams.random, limits, field_manager=config.scheduler_name)


def _dispatcher(config: SchedulerConfig, seams: Seams, client: Client, calls: AsyncCallSwitches) -> Dispatcher:
    qps = seams.switches.of(ReportRules).qps
    if not qps:
        return Dispatcher(client, seams, is_asynchronous=calls.is_on, parallelism=calls.parallelism)
    # A burst of one second: what a limit of its own is for is a burst of reports.
    unlimited = Client(seams.transport.api(), seams.clock, seams.random, field_manager=config.scheduler_name)
    queue = CallQueue(TokenBucket(qps, max(qps, 1.0)))
    return Dispatcher(client, seams, calls.is_on, calls.parallelism, report_client=unlimited, _queue=queue)


def _extenders(
    configured: Configured,
    cache: Cache,
    pods: Informer[Pod],
    nodes: Informer[Node],
    to_extenders: Callable[[], ExtenderTransport] | None,
) -> Extenders | None:
    if not configured.extenders:
        return None
    if to_extenders is None:
        raise StartError(
            f"--config {configured.path}: extenders: there is no way to them from here: only schedulers "
            "that are processes of their own reach them"
        )
    return Extenders(configured.extenders, to_extenders(), cache, pods.lister.document, nodes.lister.document)


def _is_staying(pods: Informer[Pod], victim: PodInfo) -> bool:
    live: Pod | None = pods.lister.get(victim.key)
    return live is not None and live.metadata.uid == victim.uid and live.metadata.deletion_timestamp is None


def core_of(
    handle: Handle,
    configured: Configured | None = None,
    made_profiles: Sequence[MadeProfile] = (),
    now: Callable[[], float] | None = None,
) -> SchedulerCore:
    """Return the pure machines around a handle; benchmarks and tests drive them without an API server.

    Without made profiles there is one, the default profile, with the name `handle.profile`. `now`: monotonic
    seconds, to time plugins, hints and events by; None: nothing is timed.
    """
    switches = handle.switches
    configured = configured or Configured(switches)
    made_profiles = made_profiles or [MadeProfile(handle.profile, None, tuple(default_profile(handle)), None)]
    rotation, rules = Rotation(), rules_of(switches)
    asks = rules is not None and rules.outside_plugins == RELEVANCE
    profiles = Profiles(
        [
            _profile(handle, each, configured.percentage(each.percentage), rotation, asks_relevance=asks)
            for each in made_profiles
        ],
        {EXTENDER: (Registration(ClusterEvent(WILDCARD, Action.ALL)),)} if configured.extenders else None,
    )
    out_of_tree: dict[str, OutOfTreePlugins] = {}
    pre_enqueue: Callable[[PodInfo, str], Status] = profiles.pre_enqueue
    if rules is not None:
        out_of_tree = {p.name: OutOfTreePlugins(p.runner, plugins(), rules.outside_plugins) for p in profiles.all()}
        pre_enqueue = make_gate(handle.preempting, out_of_tree, pre_enqueue)
    queue = _queue(handle, configured, profiles, pre_enqueue)
    metrics = SchedulerMetrics(profiles.names[0], now)
    resizes, accounting = None, accounting_of(switches)
    if rules is not None:
        resizes = DeferredPods(
            handle.cache,
            queue,
            ResizeCycle(handle, rules, out_of_tree),
            rules,
            lambda pod: pod.spec.scheduler_name in profiles,
            metrics if now is not None else None,
            accounting,
        )
    if now is not None:
        profiles.watch(metrics)
        queue.watch(metrics)
    return SchedulerCore(
        cache=handle.cache,
        queue=queue,
        exclusions=handle.exclusions,
        profiles=profiles,
        handlers=EventHandlers(
            handle.cache,
            queue,
            handle.exclusions,
            profiles,
            handle.random,
            unbinding=switches.of(SchedulerSwitches).has_unbinding,
            groups=handle.groups if handle.groups.is_on else None,
            resizes=resizes,
            accounting=accounting,
        ),
        decisions=Decisions(),
        metrics=metrics,
        group_cycle=GroupCycle(handle, profiles) if handle.groups.is_on else None,
        resizes=resizes,
    )


def _queue(
    handle: Handle, configured: Configured, profiles: Profiles, pre_enqueue: Callable[[PodInfo, str], Status]
) -> SchedulingQueue:
    """Return the scheduling queue; where pods may be groups, one in which a group is one entry."""
    switches = handle.switches
    gangs = switches.of(GangSwitches)
    make: Callable[..., SchedulingQueue] = SchedulingQueue
    if handle.groups.is_on:
        make = partial(
            GroupedQueue,
            groups=handle.groups,
            world=handle.world,
            is_one_by_one=gangs.is_one_by_one,
            has_hints=gangs.retry == "hints",
            group_backoff_max_s=gangs.backoff_max_s,
        )
    return make(
        nominator=handle.nominator,
        sort_key=profiles.sort_key,
        pre_enqueue=pre_enqueue,
        registrations_by_profile=profiles.registrations(),
        backoff_initial_s=configured.backoff_initial_s,
        backoff_max_s=configured.backoff_max_s,
        pop_from_backoff=switches.of(SchedulerSwitches).pops_from_backoff,
    )


def _profile(
    handle: Handle, profile: MadeProfile, percentage: int, rotation: Rotation, *, asks_relevance: bool
) -> Profile:
    runner = Runner(profile.plugins, profile.points, asks_relevance=asks_relevance)
    batching = None
    own = handle.switches.of(SchedulerSwitches)
    if own.has_batching:
        batching = Batching(
            handle.cache, runner, handle.nominator, handle.random, is_exact=own.batching_validity == "unchanged"
        )
    cycle = SchedulingCycle(
        handle.cache,
        runner,
        handle.nominator,
        handle.random,
        percentage=percentage,
        rotation=rotation,
        batching=batching,
    )
    return Profile(profile.name, runner, cycle)
