"""Run one pod on every node that a DaemonSet wants, and replace them when its template changes.

The scheduler binds the pods: each may go to one node only. A failed pod is removed and replaced, with a growing
delay. So a kubelet that rejects such a pod causes no endless loop, and unbinding leaves these pods alone.
Source: controllers 1.2 to 1.4 and 6; kubelet-unbinding 8; upstream `pkg/controller/daemon`,
`flowcontrol.Backoff` with 1 s and 15 min. Deviates: upstream looks again a whole delay after it saw the failed
pod, here after the rest of it.
"""

from dataclasses import replace

from services.api.kinds.controllerrevision import ControllerRevision
from services.api.kinds.daemonset import DaemonSet
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import Document, Key
from services.api.switches import Switches
from services.controllers import shared_revisions as revisions
from services.controllers.daemonset.nodes import Fits, for_node, pod_template
from services.controllers.daemonset.plan import Plan, Sight, by_node, counters_of, plan, roll
from services.controllers.shared_owned_pods import REJECTED_AGAIN_S, OwnedPods, deletions
from services.controllers.shared_ownership import Orphans, changes_of, claim, is_alive, owners_of, selector_of
from services.controllers.shared_pods import ready_since_s
from services.reconcile import writes
from services.reconcile.actions import NOTHING, Action, Batch, Create, Delete, Patch, Query, Result, earliest, event
from services.reconcile.claim_release import Releases, releasing
from services.reconcile.controller import Change, Controller, Listers, Moment, Registration, Watch
from services.reconcile.interest import OF_ADOPTION, Interest

BURST = 250
BACKOFF_BASE_S, BACKOFF_MAX_S = 1.0, 900.0
FORGOTTEN_AFTER_S = 2 * BACKOFF_MAX_S
"""Seconds after the last failure until the back-off starts over."""
SWEEP_S = 60.0


class FailureBackoff:
    """Back-off of removals of failed pods, by set, generation and node. A changed set starts over.

    Without it, a set and a kubelet that always rejects would create and fail pods without end.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[str, int, str], tuple[float, float]] = {}
        """Delay, and when it began."""
        self._swept_s = 0.0

    def wait_s(self, uid: str, generation: int, node: str, now_s: float) -> float:
        """Return the seconds until the next removal is allowed; 0 if it is allowed now."""
        delay_s, at_s = self._entries.get((uid, generation, node), (0.0, now_s))
        return 0.0 if now_s - at_s > FORGOTTEN_AFTER_S else max(0.0, at_s + delay_s - now_s)

    def on_removed(self, uid: str, generation: int, node: str, now_s: float) -> None:
        """Record the removal of a failed pod; the next removal must wait twice as long."""
        delay_s, at_s = self._entries.get((uid, generation, node), (0.0, now_s))
        is_first = now_s - at_s > FORGOTTEN_AFTER_S
        doubled_s = BACKOFF_BASE_S if is_first else max(BACKOFF_BASE_S, min(delay_s * 2, BACKOFF_MAX_S))
        self._entries[(uid, generation, node)] = doubled_s, now_s

    def sweep(self, now_s: float) -> None:
        """Forget expired entries, once a minute."""
        if now_s - self._swept_s < SWEEP_S:
            return
        self._swept_s = now_s
        for key in [key for key, (_, at_s) in self._entries.items() if now_s - at_s > FORGOTTEN_AFTER_S]:
            del self._entries[key]

    def __len__(self) -> int:
        return len(self._entries)


class DaemonSets:
    """The controller's memory and its reconcile function."""

    def __init__(self, switches: Switches) -> None:
        self.pods = OwnedPods(DaemonSet)
        self._history_orphans = Orphans()
        self._fits = Fits()
        self._backoff = FailureBackoff()

    def pod_changed(self, change: Change[Pod], listers: Listers) -> list[Key]:
        """Lower expectations and return the affected sets; most kubelet reports affect none."""
        if change.old is not None and change.new is not None and _is_same(change.old, change.new):
            return []
        return self.pods.on_changed(change, listers)

    def node_changed(self, change: Change[Node], listers: Listers) -> list[Key]:
        """Return the sets whose decision about the node changed; a heartbeat affects none."""
        return self._fits.on_changed(change, listers)

    def history_changed(self, change: Change[ControllerRevision], listers: Listers) -> list[Key]:
        """Return the set whose revision changed or was deleted, or the sets that would adopt it; a new revision affects
        none.
        """
        old, new = change.old, change.new
        self._history_orphans.note(old, new)
        is_made = old is None and new is not None and new.metadata.controller is not None
        return [] if is_made else owners_of(DaemonSet, change, listers)

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Claim pods and revisions, report status, then bring the nodes to the desired state or roll one step
        further.
        """
        daemon_set = listers.of(DaemonSet).get(key)
        self._backoff.sweep(moment.now_s)
        if daemon_set is None:
            self.pods.forget(key)
            self._fits.forget(key)
            return NOTHING
        document, selector = listers.of(DaemonSet).document(key), selector_of(daemon_set)
        if document is None or selector is None or daemon_set.metadata.deletion_timestamp is not None:
            # While it is deleted its revisions may go before its pods: nothing could be said of them.
            return NOTHING
        orphans = self.pods.orphans.adoptable(listers.of(Pod), key.namespace, selector)
        history = self._history_orphans.adoptable(listers.of(ControllerRevision), key.namespace, selector)
        query = Query(DaemonSet, key)
        if (orphans or history) and query not in moment.live:
            return Result(refresh=(query,))
        can_adopt = is_alive(moment.live.get(query), daemon_set)
        uid = daemon_set.metadata.uid
        pods = claim(listers.of(Pod).owned_by(uid), orphans, daemon_set, selector, can_adopt=can_adopt)
        held = claim(listers.of(ControllerRevision).owned_by(uid), history, daemon_set, selector, can_adopt=can_adopt)
        known = listers.of(ControllerRevision)
        lookup = revisions.find(daemon_set, document, held.kept, known, hash_label=revisions.POD_LABEL)
        text = _hash_of(lookup.revision)
        fits = {node.metadata.name: self._fits.of(daemon_set, node) for node in listers.of(Node).all()}
        sight = Sight(daemon_set, text, fits, by_node(pods.kept), moment.wall_s)
        actions: list[Action | Batch] = [
            *self.pods.take_news(daemon_set)[0],
            *changes_of("pods", pods, daemon_set),
            *changes_of(revisions.RESOURCE, held, daemon_set),
            *([lookup.write] if lookup.write is not None else []),
        ]
        is_free = self.pods.expectations.are_satisfied(key, moment.now_s)
        counters, again_s = counters_of(sight)
        actions += _status(daemon_set, counters, lookup.collision_count, is_observed=is_free)
        if not is_free:
            return Result(tuple(actions), again_s)
        actions += _surplus_deletions(held.kept, lookup.revision, pods.kept, daemon_set)
        wanted = self._plan(sight, moment.now_s)
        actions += self._calls(wanted, sight, document, moment.now_s)
        again_s = earliest(again_s, wanted.again_s, REJECTED_AGAIN_S if wanted.creates else None)
        return Result(tuple(actions), again_s)

    def _plan(self, sight: Sight, now_s: float) -> Plan:
        """Return what the nodes need; the next step of an update only when they need nothing."""
        meta = sight.daemon_set.metadata

        def wait_s(node: str) -> float:
            left_s = self._backoff.wait_s(meta.uid, meta.generation, node, now_s)
            if left_s == 0:
                self._backoff.on_removed(meta.uid, meta.generation, node, now_s)
            return left_s

        wanted = plan(sight, wait_s)
        if wanted.creates or wanted.deletes:
            return wanted
        return replace(roll(sight), again_s=wanted.again_s)

    def _calls(self, wanted: Plan, sight: Sight, document: Document, now_s: float) -> list[Action | Batch]:
        """Return the calls, at most a burst of each, deletions first: a creation that is refused ends the reconcile."""
        daemon_set = sight.daemon_set
        deletes, creates = wanted.deletes[:BURST], wanted.creates[:BURST]
        if not deletes and not creates:
            return []
        uids = [pod.metadata.uid for pod in deletes]
        self.pods.expectations.expect(daemon_set.metadata.key, creations=len(creates), deletions=uids, now_s=now_s)
        events = [_ended_pod_event(daemon_set, pod, "Failed", "kill") for pod in wanted.failed]
        events += [_ended_pod_event(daemon_set, pod, "Succeeded", "delete") for pod in wanted.succeeded]
        template = pod_template(daemon_set, document, sight.text)
        creations = tuple(Create("pods", for_node(template, node)) for node in creates)
        return [*events, *deletions(daemon_set, deletes), *([Batch(creations)] if creations else [])]


def _is_same(old: Pod, new: Pod) -> bool:
    """Whether nothing has changed that decides anything here."""
    a, b = old.metadata, new.metadata
    return (
        (a.uid, a.labels, a.deletion_timestamp, a.owner_references)
        == (b.uid, b.labels, b.deletion_timestamp, b.owner_references)
        and (old.spec.node_name, old.status.phase) == (new.spec.node_name, new.status.phase)
        and ready_since_s(old) == ready_since_s(new)
    )


def _hash_of(revision: ControllerRevision) -> str:
    """Return what pods of the revision carry; one without the label goes by its name."""
    return revision.metadata.labels.get(revisions.POD_LABEL) or revision.metadata.name


def _surplus_deletions(
    held: tuple[ControllerRevision, ...], current: ControllerRevision, pods: tuple[Pod, ...], daemon_set: DaemonSet
) -> list[Delete]:
    """Return the deletions of old revisions beyond the limit, none that a pod was made from."""
    old = [each for each in held if each.metadata.name != current.metadata.name]
    if len(old) <= daemon_set.spec.revision_history_limit:
        return []
    hashes = {pod.metadata.labels.get(revisions.POD_LABEL, "") for pod in pods}
    live = [each.metadata.name for each in old if _hash_of(each) in hashes]
    return revisions.surplus(old, live, daemon_set.spec.revision_history_limit, counts_live=True)


def _status(daemon_set: DaemonSet, counters: Document, collision_count: int, *, is_observed: bool) -> list[Patch]:
    """Return the status write if anything differs. `is_observed`: this generation is acted on now."""
    old = daemon_set.status
    observed = daemon_set.metadata.generation if is_observed else old.observed_generation
    wanted = {**counters, "observedGeneration": observed}
    if collision_count != old.collision_count:
        wanted["collisionCount"] = collision_count
    return [writes.status("daemonsets.apps", daemon_set, wanted)] if writes.differing(old, wanted) else []


def _ended_pod_event(daemon_set: DaemonSet, pod: Pod, end: str, verb: str) -> Action:
    where = f"pod {pod.metadata.namespace}/{pod.metadata.name} on node {pod.spec.node_name}"
    text = f"Found {end.lower()} daemon {where}, will try to {verb} it"
    return event(daemon_set, f"{end}DaemonPod", text, warns=end == "Failed")


def _build(switches: Switches) -> Controller:
    memory = DaemonSets(switches)
    of_revisions = Watch(ControllerRevision, memory.history_changed)
    watches = (
        Watch(Pod, memory.pod_changed, Interest(owner=DaemonSet, orphan_changes=OF_ADOPTION)),
        Watch(Node, memory.node_changed),
        of_revisions,
    )
    failed, settled = memory.pods.on_failed, memory.pods.expectations.are_satisfied
    controller = Controller("daemonset", DaemonSet, memory.reconcile, watches=watches, failed=failed, workers=2)
    return releasing(controller, switches, Releases(DaemonSet, lambda daemon_set, listers: False, settled))


CONTROLLER = Registration("daemonset", _build, start_order=4)
