"""The answer to `keplab explain`: why a pod is on its node or on none, from record, queue and cache.

The decision comes from the decision record; the present state (pool, events that would wake the pod, the
change that would make it fit) is looked up at the moment of asking. Asking changes nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from scheduler.cache.node_info import PodInfo
from scheduler.cache.pod_group_membership import PodGroups
from scheduler.cycle.attempt import Decision
from scheduler.cycle.core import Core
from scheduler.explain.node_groups import node_groups
from scheduler.explain.would_fit import Filters, would_fit_if
from scheduler.queue.scheduling_queue import Pool, QueuedPod
from scheduler.resize.deferral import waits
from services.api.kinds.pod import Pod
from services.api.kinds.podgroup import PodGroup
from services.api.meta import Key, find_condition

POOL_ORDER = (Pool.IN_FLIGHT, Pool.ACTIVE, Pool.BACKOFF, Pool.ERROR_BACKOFF, Pool.UNSCHEDULABLE, Pool.GATED)
NODES_SHOWN = 100


class HttpRequest(Protocol):
    """The part of a request that a route uses."""

    @property
    def params(self) -> dict[str, str]: ...  # noqa: D102


class Records(Protocol):
    """The decision records of pods."""

    def whole(self, uid: str) -> dict[str, str]:
        """Return all annotations of a pod, however large."""
        ...


@dataclass
class Explainer:
    """The answers for all pods.

    `pod_of` reads the informer's copy, `pod_keys` names all pods; `now` is monotonic seconds. `groups`: the
    members of each PodGroup, which `group_of` finds.
    """

    core: Core
    pod_of: Callable[[Key], Pod | None]
    now: Callable[[], float]
    records: Records | None = None
    pod_keys: Callable[[], Iterable[Key]] = tuple
    groups: PodGroups = field(default_factory=PodGroups)
    group_of: Callable[[Key], PodGroup | None] = lambda key: None

    def pods(self) -> list[str]:
        """Return every pod about which `pod` answers, as `namespace/name`, in order; also some that are gone."""
        queued = {each.key for each in self.core.queue.all()}
        return sorted(map(str, {*self.pod_keys(), *queued, *self.core.decisions.keys()}))

    def pod(self, key: Key) -> dict[str, Any] | None:
        """Return the document of `keplab explain pod/NAME`; None for an unknown pod."""
        core, now = self.core, self.now()
        decision, queued, live = core.decisions.of(key), core.queue.get(key), self.pod_of(key)
        if decision is None and queued is None and live is None:
            return None
        known = decision or Decision("", 0, now, "")
        document = {"pod": str(key), "uid": _uid(decision, queued, live), **known.document()}
        document["since_s"] = round(now - decision.at_s, 3) if decision is not None else None
        document["node"] = (live.spec.node_name if live is not None else "") or document["node"]
        document["exists"] = live is not None
        document["phase"] = live.status.phase if live is not None else ""
        document["excluded"] = dict(core.exclusions.of(document["uid"]))
        document |= self._waiting(queued, now)
        if queued is None and live is not None and not live.spec.node_name and not document["message"]:
            condition = find_condition(live.status.conditions, "PodScheduled")
            document["message"] = condition.message if condition is not None else ""
        if queued is None and live is not None and live.spec.node_name and not waits(live):
            document["message"] = ""  # why it did not fit, or not grow, before it did
        if queued is not None and queued.pool is Pool.GATED:
            runner = core.profiles.of(queued.info).runner
            document["message"] = runner.pre_enqueue(queued.info, queued.gating_plugin).message
        if live is not None and not live.spec.node_name and live.spec.scheduler_name not in core.profiles:
            document["message"] = (
                f"it waits for the scheduler {live.spec.scheduler_name!r}; this one is {', '.join(core.profiles.names)}"
            )
        document["nominated_node"] = core.queue.nominator.node_of(document["uid"]) or document["nominated_node"]
        document["filters"], document["node_groups"] = self._node_groups(queued)
        document["would_fit_if"] = self._would_fit(queued)
        document["devices"] = self._devices(queued)
        document["features"] = self._features(queued)
        if self.records is not None:
            document["annotations"] = self.records.whole(document["uid"])
        return document

    def _waiting(self, queued: QueuedPod | None, now: float) -> dict[str, Any]:
        if queued is None:
            return {"pool": "", "pool_since_s": None, "wakes_on": [], "gated_by": ""}
        deadline = self.core.queue.next_attempt(queued)
        return {
            "pool": queued.pool.value,
            "pool_since_s": round(now - queued.timestamp, 3),
            "waiting_since_s": None if queued.initial_attempt is None else round(now - queued.initial_attempt, 3),
            "attempts": queued.attempts,
            "next_attempt_in_s": None if deadline is None else round(max(deadline - now, 0.0), 3),
            "moved_by": queued.moved_by,
            "gated_by": queued.gating_plugin,
            "rejected_by": sorted(queued.unschedulable_plugins | queued.pending_plugins),
            "wakes_on": self.core.queue.wakes_on(queued),
        }

    def _node_groups(self, queued: QueuedPod | None) -> tuple[list[str], list[dict[str, Any]]]:
        """Return what the filters say of the nodes now; nothing of a pod that has a node or is gated."""
        if queued is None or queued.info.spec.node_name or queued.pool is Pool.GATED:
            return [], []
        core = self.core
        runner, pod = core.profiles.of(queued.info).runner, PodInfo(queued.info.pod)
        asked, groups = node_groups(runner, core.cache.columns, core.queue.nominator, self.now(), pod)
        return asked, msgspec.to_builtins(groups)

    def _would_fit(self, queued: QueuedPod | None) -> list[dict[str, Any]]:
        if queued is None or queued.info.spec.node_name:
            return []  # a pod with a node waits for capacity on it: no other shape of the pod is asked for
        core = self.core
        filters = Filters(core.profiles.of(queued.info).runner, core.cache, core.queue.nominator, self.now())
        # A pod of its own: what a changed spec makes the runner remember must not stick to the queued one.
        answer: list[dict[str, Any]] = msgspec.to_builtins(would_fit_if(filters, PodInfo(queued.info.pod)))
        return answer

    def _devices(self, queued: QueuedPod | None) -> list[dict[str, Any]]:
        """Return what the pod's claims find on each node, for the first nodes; nothing for a pod that has all."""
        if queued is None or queued.pool is Pool.GATED or not queued.info.spec.resource_claims:
            return []
        plugin = self.core.profiles.of(queued.info).runner.plugins_by_name.get("DynamicResources")
        nodes = [info.node for info in self.core.cache.columns.nodes if info is not None and info.node is not None]
        asked = plugin.device_shortages(queued.info.pod, nodes[:NODES_SHOWN]) if plugin is not None else ""
        return [] if isinstance(asked, str) else msgspec.to_builtins(asked)

    def _features(self, queued: QueuedPod | None) -> list[dict[str, Any]]:
        """Return which features each node lacks that the pod needs, for the first nodes; nothing for those that have
        all (KEP-5328)."""
        if queued is None or queued.pool is Pool.GATED:
            return []
        plugin = self.core.profiles.of(queued.info).runner.plugins_by_name.get("NodeDeclaredFeatures")
        if plugin is None:
            return []
        nodes = [info for info in self.core.cache.columns.nodes if info is not None]
        lacking = ((info.name, plugin.lacks(queued.info, info)) for info in sorted(nodes, key=lambda info: info.name))
        missing_features = [{"node": node, "missing": list(names)} for node, names in lacking if names]
        return missing_features[:NODES_SHOWN]

    def queue(self) -> dict[str, Any]:
        """Return the document of `keplab explain scheduler/queue`: every pool with its pods."""
        queue, now = self.core.queue, self.now()
        pods = sorted(queue.all(), key=lambda q: (POOL_ORDER.index(q.pool), q.timestamp, q.ticket))
        return {
            "counts": {pool.value: queue.pools[pool] for pool in POOL_ORDER},
            "pods": [
                {
                    "pod": str(queued.key),
                    "priority": queued.info.priority,
                    "nominated_node": queue.nominator.node_of(queued.uid),
                    **self._waiting(queued, now),
                }
                for queued in pods
            ],
            "in_flight_events": queue.in_flight_event_count,
            "rejected_by_plugin": queue.unschedulable_plugins(),
            "quorums": self._quorums(pods),
        }

    def _quorums(self, pods: Iterable[QueuedPod]) -> list[dict[str, Any]]:
        """Return how many members the gangs of gated pods have, and want (preemption 6.3)."""
        keys = dict.fromkeys(self.groups.group_of(each.info) for each in pods if each.pool is Pool.GATED)
        groups = [(key, group) for key in keys if key is not None and (group := self.group_of(key)) is not None]
        return [
            {"group": str(key), "members": self.groups.count_members(key), "min_count": group.spec.min_count}
            for key, group in groups
            if group.spec.is_gang
        ]

    def routes(self) -> list[tuple[str, Any]]:
        """Serve `/explain/queue`, `/explain/pods` and `/explain/<namespace>/<pod>` as JSON."""

        def queue(request: HttpRequest) -> tuple[int, str, bytes]:
            return 200, "application/json", msgspec.json.encode(self.queue())

        def pod(request: HttpRequest) -> tuple[int, str, bytes]:
            key = Key(request.params["namespace"], request.params["name"])
            found = self.pod(key)
            if found is None:
                return 404, "text/plain", f"pod {key} is not known to this scheduler\n".encode()
            return 200, "application/json", msgspec.json.encode(found)

        def pods(request: HttpRequest) -> tuple[int, str, bytes]:
            return 200, "application/json", msgspec.json.encode({"pods": self.pods()})

        return [("/explain/queue", queue), ("/explain/pods", pods), ("/explain/{namespace}/{name}", pod)]


def _uid(decision: Decision | None, queued: QueuedPod | None, live: Pod | None) -> str:
    if live is not None:
        return live.metadata.uid
    return queued.uid if queued is not None else decision.uid if decision is not None else ""
