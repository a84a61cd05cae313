"""The life of a node itself, apart from its pods: its faults, its images, its shutdown. A pure machine.

Source: kubelet 2.1, 6, 8; KEP-2000.
"""

from collections.abc import Callable
from typing import Final

from kubelet.admission.predicates import Ledger
from kubelet.effects import NODE_KEY, Outbox, PowerOff, RecordNodeEvent, ReportNode, SetTimer
from kubelet.eviction.manager import NodePressure
from kubelet.managers.allocation import Rejection
from kubelet.node import shutdown
from kubelet.node.definition import NodeDefinition
from kubelet.node.health import NodeFaults, NodeHealth, parse_node_faults
from kubelet.node.image_gc import PERIOD_S, Collected, ImageCollector
from kubelet.node.status import STATUS_PERIOD_S
from kubelet.pod.context import NodeRuntime
from kubelet.pod.states import PodState
from kubelet.pod.table import PodTable
from kubelet.runtime.pleg import GENERIC
from kubelet.runtime.script import StartFaults
from kubelet.view import WorkerKey
from services.api.quantity import amount

POWER_OFF_S: Final = 1.0
"""Seconds between the end of a graceful shutdown and the power-off: final statuses are written meanwhile."""
TIMERS: Final = ("shutdown", "power-off", "health", "images", "image-gc")
"""The timers for which `due` is called."""


class NodeLife:
    """The life of one node. Invariant: `_reasons` is why the Node's status was last written as not Ready."""

    def __init__(
        self,
        definition: NodeDefinition,
        runtime: NodeRuntime,
        ledger: Ledger,
        table: PodTable,
        pressure: NodePressure,
        out: Outbox,
        *,
        set_admission: Callable[[Rejection | None, bool, float], None],
        end_pod: Callable[[WorkerKey, float, float], None],
    ) -> None:
        self._definition, self._runtime, self._images, self._out = definition, runtime, runtime.images, out
        self._ledger, self._table, self._pressure = ledger, table, pressure
        self._set_admission, self._end_pod = set_admission, end_pod
        self._images.on_change = self._images_changed
        self._health = NodeHealth()
        self._reasons: tuple[str, ...] = ()
        self._refused: Rejection | None = None
        """Why no pod is admitted any more."""
        self._shutdown: shutdown.Shutdown | None = None
        self._is_powering_off = False
        self._images_reported_s = float("-inf")
        self._collector = ImageCollector(
            definition.image_policy, amount("ephemeral-storage", definition.ephemeral_storage)
        )
        self._gc_at_s: float | None = None
        self._began_s = 0.0

    def begin(self, now: float) -> None:
        """Begin the node's configured faults and its image collection, now that the kubelet knows its pods."""
        self._began_s = now
        self._collector.look(now, self._images.present, self._table.images_in_use())
        if self._images.present:
            self._pressure.images_changed(self._images.total, now)
            self._collect_images(now)
        if self._definition.start_faults and not self._health:
            self.faults_changed(parse_node_faults(self._definition.start_faults), now)

    def due(self, what: str, now: float) -> None:
        """Handle a timer of `TIMERS`."""
        match what:
            case "shutdown" if self._shutdown is not None:
                self._further(self._shutdown, now)
            case "power-off":
                self._out.effects.append(PowerOff())
            case "health":
                self._look(now)
            case "images":
                self._out.effects.append(ReportNode(images=self._images.status_images()))
            case "image-gc":
                self._gc_at_s = None
                self._collect_images(now)

    def _set_timer(self, what: str, at_s: float) -> None:
        self._out.effects.append(SetTimer(at_s, what, NODE_KEY))

    def faults_changed(self, faults: NodeFaults, now: float) -> None:
        """Replace the node's faults."""
        if faults.stream_failures:
            self._runtime.pleg.fail_stream(now, faults.stream_failures)
        self._runtime.pleg.stick(now, faults.relists_stuck_s)
        self._health = NodeHealth(faults.ailments, now, self._runtime.pleg.threshold_s)
        self._look(now)
        self._runtime.faults = StartFaults(faults.all_starts, now)
        for pod in list(self._table.pods.values()):
            if self._runtime.pleg.mode == GENERIC and pod.state not in (PodState.STOPPED, PodState.TERMINATED):
                self._table.perform(pod, pod.pleg_changed(now), now)
            if pod.state == PodState.STARTING:
                self._table.perform(pod, pod.faults_changed(self._runtime.faults, now), now)

    def _look(self, now: float) -> None:
        """Say what stands against the node's being Ready, and take new pods, or not."""
        reasons = self._health.reasons(now)
        if self._refused is not None:
            reasons = (*reasons, shutdown.NOT_READY)
        if reasons != self._reasons:
            self._reasons = reasons
            self._out.effects.append(ReportNode(reasons=reasons))
        if (next_s := self._health.next_s(now)) is not None:
            self._set_timer("health", next_s)
        self._set_admission(self._refused, self._health.holds_back(now), now)

    def _images_changed(self, now: float) -> None:
        """Report the images that are new or gone, those of some seconds together; watch the disk pressure."""
        self._pressure.images_changed(self._images.total, now)
        self._collect_later(now)
        if now >= self._images_reported_s:
            self._images_reported_s = now + STATUS_PERIOD_S
            self._set_timer("images", self._images_reported_s)

    def _collect_later(self, now: float) -> None:
        """Look at the next of the times of the period; where there is no image there is nothing to see."""
        if self._gc_at_s is None and self._images.present:
            periods = int((now - self._began_s) / PERIOD_S + 1e-9) + 1
            self._gc_at_s = self._began_s + periods * PERIOD_S
            self._set_timer("image-gc", self._gc_at_s)

    def _collect_images(self, now: float) -> None:
        collection = self._collector.collect(
            now, self._images.present, self._table.images_in_use(), self._pressure.own_use(now).get("imagefs", 0)
        )
        self._delete_images(collection, now)
        if collection.error:
            self._out.effects.append(RecordNodeEvent("FreeDiskSpaceFailed", collection.error, "Warning"))
        if collection.has_failed_twice:
            self._out.effects.append(RecordNodeEvent("ImageGCFailed", collection.error, "Warning"))
        self._collect_later(now)

    def reclaim_images(self, now: float) -> None:
        """Delete every unused image because their disk is short, before any pod is evicted."""
        self._delete_images(self._collector.delete_unused(now, self._images.present, self._table.images_in_use()), now)

    def _delete_images(self, found: Collected, now: float) -> None:
        for image, why in found.images:
            self._images.delete(image, now)
            self._out.counts.add("kubelet_image_garbage_collected_total", why)

    def shut_down(self, now: float) -> None:
        """End all pods gracefully, as far as the node is configured to; then request the power-off."""
        if self._shutdown is not None:
            return
        periods = self._definition.shutdown_periods()
        self._shutdown = shutdown.Shutdown(periods, [(key, entry.pod) for key, entry in self._ledger.entries.items()])
        if periods:
            self._out.effects.append(RecordNodeEvent(shutdown.EVENT, shutdown.DETECTED, "Normal"))
            self._refused = Rejection(*shutdown.REFUSED)
            self._look(now)
        self._further(self._shutdown, now)

    def pod_ended(self, now: float) -> None:
        """Go on with the shutdown, because the pod that ended may have been the last of its group."""
        if self._shutdown is not None:
            self._set_timer("shutdown", now)

    def _further(self, plan: shutdown.Shutdown, now: float) -> None:
        step = plan.step(now, lambda key: key not in self._ledger.entries)
        for key, grace_s in step.ending:
            self._end_pod(key, grace_s, now)
        if step.next_s is not None:
            self._set_timer("shutdown", step.next_s)
        elif not self._is_powering_off:
            self._is_powering_off = True
            self._set_timer("power-off", now + (POWER_OFF_S if self._refused is not None else 0.0))
