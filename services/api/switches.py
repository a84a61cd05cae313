"""The register of switches: every choice between designs, with its type, default, values and source.

A KEP's alternatives are switches, never forks of code. A process takes them from configuration,
prints them at `/configz` and writes them into its event log; `keplab switches` lists them.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from services.api.release import ABSENT, FOLLOWED, RELEASES, is_before

Value = str | int | float | bool
View = TypeVar("View")
_SWITCH = "switch"


class SwitchError(ValueError):
    """A switch was named or set wrongly; the message names the switch and the legal values."""


@dataclass(frozen=True)
class Switch:
    """A switch. `values` lists the legal strings (empty: any); numbers may have `minimum` and `maximum`.

    `scenario` shows the difference between its values: a file below experiments/, without its suffix, or a page.
    """

    name: str
    default: Value
    meaning: str
    source: str
    scenario: str
    values: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    by_release: tuple[Value, ...] = ()
    """Default in each of `RELEASES`, if they differ; `default` is that of the followed release."""
    known_from: str = ""
    """First release that has the gate; empty if every release has it or the switch is no gate."""
    locked_from: str = ""
    """First release in which the gate is locked to its default; empty if none."""

    @property
    def shown_by(self) -> str:
        """Return the repository path of the scenario or page that compares the values."""
        return self.scenario if self.scenario.endswith(".md") else f"experiments/{self.scenario}.txt"

    @property
    def type(self) -> str:
        """`flag`, `integer`, `number` or `choice`/`text`."""
        kinds: dict[type, str] = {bool: "flag", int: "integer", float: "number"}
        return kinds.get(type(self.default), "choice" if self.values else "text")

    def default_in(self, release: str) -> Value:
        """Return its default in a release, for example `1.35`."""
        return self.by_release[list(RELEASES).index(release)] if self.by_release else self.default

    def is_known_in(self, release: str) -> bool:
        """Whether a release has the switch; if not, the release behaves like the switch's default in it."""
        return not self.known_from or not is_before(release, self.known_from)

    def is_locked_in(self, release: str) -> bool:
        """Whether the switch is locked to its default in a release."""
        return bool(self.locked_from) and not is_before(release, self.locked_from)

    @property
    def since(self) -> tuple[tuple[str, Value], ...]:
        """Releases that change the default, each with its new default, from the first on; empty if all have the
        same.
        """
        shown = list(zip(RELEASES, self.by_release, strict=False))
        return tuple(each for i, each in enumerate(shown) if i == 0 or each[1] != shown[i - 1][1])

    def parse(self, text: str) -> Value:
        """Return the typed value. Raises: SwitchError."""
        try:
            return self._parse(text)
        except ValueError as error:
            raise SwitchError(f"switch {self.name}={text!r}: {error}") from None

    def _parse(self, text: str) -> Value:
        if isinstance(self.default, bool):
            if text.lower() not in ("true", "false"):
                raise ValueError("want true or false")
            return text.lower() == "true"
        if isinstance(self.default, int | float):
            try:
                number = type(self.default)(text)
            except ValueError:
                raise ValueError(f"want {'an' if self.type == 'integer' else 'a'} {self.type}") from None
            if not math.isfinite(number):
                raise ValueError("want a number that has an end")
            low, high = self.minimum, self.maximum
            if (low is not None and number < low) or (high is not None and number > high):
                raise ValueError(f"want {low} to {high}" if high is not None else f"want {low} or more")
            return number
        if self.values and text not in self.values:
            raise ValueError(f"want one of {', '.join(value or '(nothing)' for value in self.values)}")
        return text


_UNBIND = "kubelet-unbinding"
EMULATED = "emulate.version"
"""The switch that sets the defaults of all others."""

REGISTER: tuple[Switch, ...] = (
    Switch(EMULATED, FOLLOWED, "the Kubernetes release whose defaults of feature gates and of behaviour are taken, "
           "where releases differ; what is set besides it wins", "upstream `pkg/features/kube_features.go`",
           "scheduling/releases", tuple(RELEASES)),
    Switch("PodUnbinding", True, "feature gate: unbinding in apiserver, scheduler and kubelet", f"{_UNBIND} 4.6",
           "unbinding/old-scheduler"),
    Switch("kubelet.on_reject", "fail", "what the kubelet does with a pod it cannot admit", f"{_UNBIND} 2",
           "unbinding/job", ("fail", "recreate", "unbind", "defer", "defer-then-unbind")),
    Switch("defer.timeout_s", 30.0, "how long a deferred pod is tried again on its node", f"{_UNBIND} 2",
           "unbinding/deferred", minimum=0.0),
    Switch("defer.period_s", 5.0, "how often a deferred pod is tried again when nothing leaves", f"{_UNBIND} 2",
           "unbinding/deferred-period", minimum=0.1),
    Switch("defer.reasons", "UnexpectedAdmissionError", "rejections that defer-then-unbind takes for transient: A+B, "
           "globs allowed", f"{_UNBIND} 6.1", "unbinding/defer-then-unbind"),
    Switch("device.defer_timeout_s", 0.0, "how long a pod is deferred whose devices are missing, 0 as long as any "
           "other", "kubelet 11", "devices/slow-plugin-deferred", minimum=0.0),
    Switch("ResourceHealthStatus", True, "feature gate: a container's status has the health of its devices "
           "(KEP-4680)", "kubelet 5.5", "devices/ill-device",
           by_release=(False, False, True, True)),
    Switch("unbind.reasons", "all", "reasons for which a pod is unbound: A+B, globs allowed; all: what 6.1 has on",
           f"{_UNBIND} 11", "node-life/broken-network"),
    Switch("kubelet.unbind_teardown", "before", "tear down before or after the unbind call", f"{_UNBIND} 6.2",
           "unbinding/teardown", ("before", "after")),
    Switch("kubelet.start_fence", False, "the first container waits for an acknowledged startTime", f"{_UNBIND} 4.4",
           "unbinding/start-fence"),
    Switch("kubelet.status_batching", "faithful", "write statuses serially and coalesced, or at once", "kubelet 11",
           "docs/benchmarks/README.md", ("faithful", "immediate")),
    Switch("store.raw", False, "administrators may write objects straight into the store, past admission",
           "simulator 5.3", "docs/how-to/other-tools.md"),
    Switch("unbind.api", "subresource", "form of the unbind: the kubelet calls POST pods/unbind or DELETE "
           "pods/binding, or asks a controller by a condition; or none", f"{_UNBIND} 4.2", "unbinding/binding-delete",
           ("subresource", "binding_delete", "condition", "none")),
    Switch("unbind.max_attempts", 5, "unbinds a pod may have before the kubelet falls back", f"{_UNBIND} 4.3",
           "unbinding/limit", minimum=0, maximum=1000),
    Switch("unbind.attempt_decay", False, "one unbind less counts against the limit for every ten minutes since the "
           "last", f"{_UNBIND} 9", "unbinding/attempt-decay"),
    Switch("unbind.fallback", "fail", "what follows when the unbind is refused for good", f"{_UNBIND} 6.2",
           "unbinding/limit-held", ("fail", "hold")),
    Switch("unbind.fence", "session", "protection against a delayed unbind request", f"{_UNBIND} 4.5",
           "unbinding/delayed", ("none", "resourceVersion", "session")),
    Switch("unbind.request_deadline_s", 120.0, "how long the kubelet tries to unbind", f"{_UNBIND} 6.2",
           "unbinding/deadline", minimum=0.0),
    Switch("unbind.require_scheduler_capability", True, "refuse to unbind a pod whose scheduler cannot take it back",
           f"{_UNBIND} 4.6", "unbinding/old-scheduler"),
    Switch("unbind.storm_taint", False, "a node that unbinds too much is tainted for five minutes",
           f"{_UNBIND} 9", "unbinding/storm-taint"),
    Switch("unbind.gang", "member", "whether a member of a pod group is unbound whose siblings run",
           f"{_UNBIND} 7.4", "unbinding/gang-refuse", ("member", "refuse")),
    Switch("unbind.claim_release", "scheduler", "who deallocates the claims of a pod that was unbound: the "
           "scheduler at once, its PostFilter once the pod fits nowhere, or the claim controller", f"{_UNBIND} 7.4",
           "unbinding/devices-postfilter", ("scheduler", "postfilter", "rc")),
    Switch("DRAAdminAccess", True, "feature gate: claims may ask for devices that are in use, in namespaces that allow "
           "it (KEP-5018)", "dra-core 0.1", "claims/gated-fields"),
    Switch("DRAPrioritizedList", True, "feature gate: requests may list alternatives (KEP-4816)", "dra-core 0.1",
           "claims/gated-fields"),
    Switch("DRAResourceClaimDeviceStatus", True, "feature gate: drivers may write status.devices of claims (KEP-4817)",
           "dra-core 0.1", "claims/device-status"),
    Switch("DRAPartitionableDevices", True, "feature gate: devices may draw from counters that they share, and say "
           "themselves where they are (KEP-4815)", "dra-core 0.1", "claims/gated-fields",
           by_release=(False, False, True, True)),
    Switch("DRADeviceTaints", True, "feature gate: devices may be tainted, requests tolerate taints (KEP-5055)",
           "dra-core 0.1", "claims/gated-fields",
           by_release=(False, False, True, True)),
    Switch("DRADeviceTaintRules", False, "feature gate: administrators taint devices by DeviceTaintRules (KEP-5055)",
           "dra-core 0.1", "claims/taint-rules",
           by_release=(False, False, False, True)),
    Switch("DRAConsumableCapacity", True, "feature gate: claims may share a device by its capacity (KEP-5075)",
           "dra-core 0.1", "claims/gated-fields",
           by_release=(False, False, True, True)),
    Switch("DRADeviceBindingConditions", True, "feature gate: pods are bound when conditions of their devices are True "
           "(KEP-5007)", "dra-core 0.1", "claims/gated-fields",
           by_release=(False, False, True, True)),
    Switch("DRAExtendedResource", True, "feature gate: pods may get devices of a class by an extended resource "
           "(KEP-5004)", "dra-core 0.1", "claims/gated-fields",
           by_release=(False, False, True, True)),
    Switch("DRAListTypeAttributes", False, "feature gate: attributes of devices may be lists (KEP-5491)",
           "dra-core 0.1", "claims/gated-fields"),
    Switch("DRAResourceClaimGranularStatusAuthorization", True, "feature gate: who changes a claim's allocation needs "
           "resourceclaims/binding, who changes status.devices resourceclaims/driver", "dra-core 9",
           "claims/device-status",
           by_release=(False, False, True, True)),
    Switch("reserved_for.mode", "pods", "for whom claims are reserved: for each pod, for the workload that the claim "
           "names (gate DRAReservedForWorkloads of KEP-5194), or for a pod group that names the claim (gate "
           "DRAWorkloadResourceClaims of KEP-5729)", "kep-5194 0", "claims/for-a-workload",
           ("pods", "kep5194", "kep5729")),
    Switch("template.allow_reservedFor", False, "whether a claim template may say for which workload its claims are",
           "kep-5194 2", "claims/for-a-workload"),
    Switch("reservedFor.uid_policy", "strict", "whether a claim must name its workload's uid, or the scheduler looks "
           "it up when it copies the reference", "kep-5194 2", "claims/for-a-workload", ("strict", "late")),
    Switch("reservedFor.self", False, "whether a claim may name itself as its consumer; the claim controller takes the "
           "entry off once no pod that may run names the claim", "kep-5194 13", "kep-5194/claim-itself"),
    Switch("reserved_for.max", 256, "for how many consumers a claim may be reserved", "kep-5194 13",
           "claims/for-a-workload", minimum=1),
    Switch("reserved_for.allow_without_allocation", False, "whether a claim may be reserved for a workload before it "
           "is allocated", "kep-5194 13", "claims/for-a-workload"),
    Switch("scheduler.reserve_fence", "none", "how a pod that needs no entry in reservedFor makes sure that its claim "
           "is allocated as Filter saw it: not at all, by a live read, or by a conditional status update",
           "kep-5194 3.3", "kep-5194/lost-fence", ("none", "get", "touch")),
    Switch("scheduler.postfilter_dealloc", "never_nonpod", "whether PostFilter frees a claim that a workload has "
           "reserved: never, or when the scheduler knows of no scheduled pod that uses it; in_memory: then, for a "
           "retry at once, and in the API when the pod is bound, if it is", "kep-5194 3.4",
           "kep-5194/postfilter-in-memory", ("never_nonpod", "if_no_scheduled_pods", "in_memory")),
    Switch("scheduler.periodic_release", 0.0, "how often, in seconds, the scheduler frees claims that are reserved for "
           "workloads alone and that no pod it knows on a node, or has assumed there, uses; 0: never", "kep-5194 13",
           "kep-5194/periodic-release", minimum=0.0),
    Switch("scheduler.verify_owner", False, "look the workload up before its reference is copied into reservedFor",
           "kep-5194 5.4", "kep-5194/dead-owner"),
    Switch("dra.inflight_sharing", "podgroup", "which pods may rely on an allocation that is not written yet: none, "
           "those of one pod group, or any", "dra-core 11", "kep-5194/in-flight-group", ("none", "podgroup", "any")),
    Switch("dra.filter_timeout_s", 10.0, "how long the search for devices on one node may take, unless the plugin's "
           "argument filterTimeout says so; 0: as long as it takes (gate DRASchedulerFilterTimeout)", "dra-core 6.4",
           "claims/hard-search", minimum=0.0),
    Switch("dra.binding_poll_s", 5.0, "how often the scheduler looks whether a device's binding conditions are True",
           "dra-core 6.7", "binding-conditions/attached-after-12s", minimum=0.1),
    Switch("dra.binding_timeout_s", 600.0, "how long after its allocation a device may take to be attached, unless the "
           "plugin's argument bindingTimeout says so", "dra-core 6.7", "binding-conditions/given-up", minimum=1.0),
    Switch("dra.unresolvable_on_no_devices", True, "whether a node without free devices is one that preemption cannot "
           "help", "dra-core 11", "claims/no-victims"),
    Switch("dra.distinct_attribute", "upstream", "whether distinctAttribute compares all devices of a request, or as "
           "upstream only with the latest", "dra-core 3.3", "claims/pairwise", ("correct", "upstream"),
           by_release=("upstream", "upstream", "upstream", "correct")),
    Switch("dra.cel_missing_key", "error", "what reading an attribute that a device has not published means: an error, "
           "which ends the attempt, or that another device is meant", "dra-core 2", "claims/missing-attribute",
           ("error", "false")),
    Switch("dra.counter_bugs", False, "keep upstream's defects of shared counters: one budget for pools of one name, "
           "and what was given up stays consumed", "dra-core 3.3", "claims/two-budgets"),
    Switch("release.design", "owner", "who takes a workload off a claim that is reserved for it: its owner; the claim "
           "controller once it notices that the workload is gone, or by a watch of built-in kinds; or the claim "
           "controller with the pod group", "kep-5194 5", "kep-5194/job-deleted",
           ("rc_never", "rc_builtin", "owner", "podgroup")),
    Switch("owner_deletion", "finalizer", "what releases the claims of a workload that is deleted: a finalizer on the "
           "workload, the claim controller's look whether it is there, or nothing", "kep-5194 5.3",
           "kep-5194/owner-gone", ("finalizer", "rc_fallback", "leak")),
    Switch("rc.owner_check_interval", 60.0, "seconds until the claim controller looks again for a claim's workload",
           "kep-5194 5.3", "kep-5194/owner-gone", minimum=1.0),
    Switch("rc.unknown_entry", "skip", "what the claim controller does with a claim that is reserved for what it "
           "does not know: report an error and leave all entries, or skip that entry; by_mode: skip in mode kep5194",
           "kep-5194 1", "kep-5194/downgrade", ("by_mode", "error", "skip"),
           by_release=("by_mode", "by_mode", "skip", "skip")),
    Switch("rc.dealloc_when_empty", "spec_reservedFor", "which claims the claim controller deallocates that it finds "
           "reserved for no consumer: none, those whose spec names a workload, or any", "kep-5194 5.1",
           "kep-5194/emptied", ("transition_only", "spec_reservedFor", "any")),
    Switch("release.on_scale_to_zero", True, "a workload without replicas gives its claims back", "kep-5194 5.2",
           "kep-5194/scaled-to-zero"),
    Switch("release.on_suspend", False, "a suspended Job gives its claims back", "kep-5194 5.2",
           "kep-5194/suspended"),
    Switch("release.clear_allocation_by", "rc", "who clears the allocation of a claim that no consumer holds: the "
           "claim controller, or the owner in the same write", "kep-5194 5.1", "kep-5194/cleared-by-owner",
           ("rc", "owner")),
    Switch("release.owner_types", "*", "resources whose controllers give claims back: A+B, as jobs.batch+"
           "deployments.apps; *: all", "kep-5194 13", "kep-5194/scaled-to-zero"),
    Switch("dra.double_allocation_guard", "none", "who refuses a device that another claim has: no component, its "
           "driver at prepare, or the apiserver", "dra-core 11", "claims/two-schedulers",
           ("none", "driver", "apiserver")),
    Switch("kubelet.recheck_on_restart", "sandbox_only", "when a kubelet asks again whether a pod that ran before may "
           "use its claims: when the pod needs a new sandbox, or whenever the kubelet restarts", "kep-5194 4",
           "devices/recheck", ("sandbox_only", "always")),
    Switch("kubelet.dra_reconcile_s", 60.0, "how often the kubelet looks for prepared devices that no pod uses",
           "dra-core 7", "devices/reconcile", minimum=1.0),
    Switch("kubelet.dra_wipe_delay_s", 30.0, "how long the slices of a DRA driver are kept that cannot be reached",
           "dra-core 7", "devices/driver-under-load", minimum=0.0),
    Switch("unbind.user_bound", "exempt", "pods whose nodeName the user set", f"{_UNBIND} 11", "unbinding/user-bound",
           ("exempt", "fail", "allow")),
    Switch("unbind.rate_node_per_min", 10.0, "unbinds per node and minute", f"{_UNBIND} 4.3", "unbinding/rate-limited",
           minimum=0.0),
    Switch("unbind.rate_node_burst", 20, "burst of unbinds per node", f"{_UNBIND} 4.3", "unbinding/rate-limited",
           minimum=1),
    Switch("unbind.rate_namespace_per_min", 60.0, "unbinds per namespace and minute", f"{_UNBIND} 4.3",
           "unbinding/rate-limited-wider", minimum=0.0),
    Switch("unbind.rate_cluster_per_min", 100.0, "unbinds in the cluster per minute", f"{_UNBIND} 4.3",
           "unbinding/rate-limited-wider", minimum=0.0),
    Switch("authz.unbind_callers", "kubelet", "who may call unbind", f"{_UNBIND} 4.4", "unbinding/job",
           ("kubelet", "kubelet+controller", "controller")),
    Switch("bind.precondition", "uid+unbindCount", "what a Binding must match", f"{_UNBIND} 4.3", "unbinding/rebound",
           ("uid", "uid+unbindCount")),
    Switch("apiserver.enforce_exclusion", False, "refuse a Binding to an excluded node", f"{_UNBIND} 4.3",
           "unbinding/exclusion-enforced"),
    Switch("exclusion.base_s", 60.0, "first exclusion of a node that rejected the pod", f"{_UNBIND} 7.3",
           "unbinding/attempt-decay", minimum=0.0),
    Switch("exclusion.max_s", 1800.0, "longest exclusion", f"{_UNBIND} 7.3", "unbinding/attempt-decay", minimum=0.0),
    Switch("numa_scheduler", "none", "what the scheduler knows of NUMA nodes: nothing, reports of nrt.refresh_s ago, "
           "these with every zone charged for pods they lack, or all at once", f"{_UNBIND} 1.1",
           "unbinding/numa-oracle", ("none", "nrt_stale", "nrt_overreserve", "oracle")),
    Switch("nrt.refresh_s", 10.0, "how often a kubelet reports its NUMA nodes (not with numa_scheduler=oracle)",
           f"{_UNBIND} 1.1", "unbinding/numa-overreserve", minimum=0.1),
    Switch("exclusion.scope", "pod", "whom a node that gave a pod back is closed to: the pod, or all of its signature",
           f"{_UNBIND} 7.3", "unbinding/signature", ("pod", "signature")),
    Switch("scheduler.exclusion", "hard", "how the scheduler treats nodes that rejected the pod", f"{_UNBIND} 7.3",
           "unbinding/exclusion-none", ("hard", "soft", "none", "adaptive")),
    Switch("SchedulerPopFromBackoffQ", True, "feature gate: an idle scheduler takes pods from back-off (KEP-5142)",
           "scheduler-queue-and-cycles 2.2", "scheduling/idle"),
    Switch("scheduler.scoring_strategy", "LeastAllocated", "NodeResourcesFit's strategy",
           "scheduler-queue-and-cycles 6", "scheduling/packed",
           ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")),
    Switch("balanced.formula", "v136", "NodeResourcesBalancedAllocation's formula", "scheduler-queue-and-cycles 6",
           "scheduling/balanced", ("v135", "v136"),
           by_release=("v135", "v135", "v136", "v136")),
    Switch("scheduler.percentage_of_nodes_to_score", 100, "share of nodes scored; 0 is upstream's adaptive sampling",
           "scheduler-queue-and-cycles 4", "scheduling/sampled", minimum=0, maximum=100),
    Switch("scheduler.backoff_initial_s", 1.0, "first back-off of a pod", "scheduler-queue-and-cycles 1",
           "scheduling/pod-back-off", minimum=0.0),
    Switch("scheduler.backoff_max_s", 10.0, "longest back-off of a pod", "scheduler-queue-and-cycles 1",
           "scheduling/pod-back-off", minimum=0.0),
    Switch("scheduler.event_recorder", "events", "how the scheduler's Events of a pod are put together: those that "
           "differ in their text alone are a series of the first (client-go tools/events, KEP-383), or each text has "
           "an Event and a count (tools/record)", "scheduler-queue-and-cycles 4.1", "scheduling/event-series",
           ("events", "record")),
    Switch("telemetry.queue_moves", "off", "whether each move of a pod between pools of the scheduling queue is a line "
           "of the event log (`sched.moved`): from, to, by, hint", "scheduler-queue-and-cycles 2",
           "docs/how-to/recordings.md", ("off", "on")),
    Switch("scheduler.record", "memory", "write each decision onto the pod, under kube-scheduler-simulator's keys",
           "kubernetes-sigs/kube-scheduler-simulator", "scheduling/recorded", ("memory", "annotations")),
    Switch("scheduler.record_skip", "empty", "what such a record says of a plugin that skips at PreFilter or PreScore: "
           "an empty text as kube-scheduler-simulator, or nothing",
           "kubernetes-sigs/kube-scheduler-simulator", "scheduling/recorded-skip", ("empty", "omit")),
    Switch("scheduler.record_all", False, "such a record has also the nodes that a sampling cycle did not look at",
           "kubernetes-sigs/kube-scheduler-simulator", "scheduling/recorded-all"),
    Switch("descheduler.enabled", False, "a descheduler removes Failed pods (RemoveFailedPods)", f"{_UNBIND} 2",
           "unbinding/descheduler-choice"),
    Switch("descheduler.interval_s", 300.0, "how often the descheduler looks", f"{_UNBIND} 2",
           "unbinding/descheduler-choice", minimum=0.1),
    Switch("descheduler.reasons", "*", "Failed pods of these reasons are removed: A+B, globs allowed", f"{_UNBIND} 2",
           "unbinding/descheduler-choice"),
    Switch("descheduler.min_lifetime_s", 0.0, "younger pods are left alone", f"{_UNBIND} 2",
           "unbinding/descheduler-choice", minimum=0.0),
    Switch("descheduler.exclude_owners", "Job", "pods of these kinds of owner are left alone: A+B", f"{_UNBIND} 2",
           "unbinding/descheduler-choice"),
    Switch("rs.failed_backoff", "off", "ReplicaSet waits before replacing failed pods (PR #130411)", "controllers 2",
           "unbinding/rs-backoff", ("off", "on")),
    Switch("job.count_rejections", True, "pods that a kubelet refused count as failures of their Job", "controllers 15",
           "unbinding/job-fail"),
    Switch("MutablePodResourcesForSuspendedJobs", True, "feature gate: a suspended Job may be given other resources "
           "(KEP-5440)", "controllers 5", "jobs/right-sized",
           by_release=(False, False, True, True)),
    Switch("MaxUnavailableStatefulSet", False, "feature gate: a rolling update of a StatefulSet may take several pods "
           "at once (KEP-961)", "controllers 4", "stateful-sets/two-at-once",
           by_release=(False, False, False, True)),
    Switch("controllers.own_write_gate", True, "a key waits until its own last write is seen (KEP-5647)",
           "guarantees C7", "jobs/late-cache",
           by_release=(False, False, True, True)),
    Switch("ReduceDefaultCrashLoopBackOffDecay", False, "feature gate: crash-loop back-off from 1 s to 60 s instead of "
           "10 s to 300 s (KEP-4603)", "kubelet 1", "pod-life/decay"),
    Switch("ContainerRestartRules", True, "feature gate: containers have restart policies and rules by exit code of "
           "their own (KEP-5307)", "kubelet 3.3", "pod-life/restart-rules",
           by_release=(False, True, True, True)),
    Switch("RestartAllContainersOnContainerExits", True, "feature gate: a container's end may restart all "
           "containers of its pod; a feature that kubelets declare (KEP-5532)", "node-declared-features 1",
           "features/switched-off",
           by_release=(False, False, True, True), known_from="1.35"),
    Switch("NodeDeclaredFeatures", True, "feature gate: kubelets declare features, pods run only on nodes that declare "
           "what they need (KEP-5328)", "node-declared-features 1", "features/unfiltered",
           by_release=(False, False, True, True), known_from="1.35", locked_from="1.37"),
    Switch("pleg.mode", "evented", "when nodes notice what containers do: by relisting every second, or by events",
           "kubelet 11", "node-life/noticing", ("generic", "evented")),
    Switch("restart.readmit_running", True, "running pods are asked again whether they fit when their kubelet "
           "restarts; not with the gate NotEvictPodOnKubeletRestart", "kubelet 6, 11", "devices/reboot"),
    Switch("topology.policy", "", "topology manager policy of all nodes; empty: as each node is defined", "kubelet 11",
           "numa/topology-error", ("", "none", "best-effort", "restricted", "single-numa-node")),
    Switch("topology.scope", "", "topology manager scope of all nodes; empty: as each node is defined", "kubelet 11",
           "numa/scope", ("", "container", "pod")),
    Switch("topology.options", "", "topology manager options of all nodes, A+B:VALUE, or none; empty: as defined",
           "kubelet 11", "numa/many"),
    Switch("cpu.policy", "", "CPU manager policy of all nodes; empty: as each node is defined", "kubelet 11",
           "numa/smt", ("", "none", "static")),
    Switch("cpu.options", "", "CPU manager options of all nodes, A+B, or none; empty: as defined", "kubelet 11",
           "numa/smt"),
    Switch("memory.policy", "", "memory manager policy of all nodes; empty: as each node is defined", "kubelet 5.4",
           "numa/memory", ("", "None", "Static")),
    Switch("CPUManagerPolicyAlphaOptions", False, "feature gate: the CPU options align-by-socket (KEP-3327) and "
           "distribute-cpus-across-cores (KEP-4176)", "kubelet 5.4", "numa/socket"),
    Switch("CPUManagerPolicyBetaOptions", True, "feature gate: the CPU options distribute-cpus-across-numa (KEP-2902) "
           "and prefer-align-cpus-by-uncorecache (KEP-4800)", "kubelet 5.4", "numa/even"),
    Switch("KubeletCrashLoopBackOffMax", True, "feature gate: a node may set its longest crash-loop back-off "
           "(KEP-4603)", "kubelet 1", "pod-life/own-limit",
           by_release=(False, True, True, True)),
    Switch("node.grace_s", 50.0, "silence after which a node is Unknown", "kubelet 2.3", "node-life/silence",
           minimum=1.0),
    Switch("node.lease_duration_s", 40, "lease duration; renewed at a quarter of it", "kubelet 1", "node-life/silence",
           minimum=1),
    Switch("tainteviction.faithful", False, "keep upstream's timer defects", "controllers 9", "unbinding/taint-timer"),
    Switch("podgc.threshold", 12500, "terminal pods kept", "controllers 8", "jobs/garbage", minimum=0),
    Switch("podgc.recheck", True, "re-read uid and node before force-deleting an orphan", "controllers 8",
           "node-life/orphan"),
    Switch("volumes.provision_s", 2.0, "how long it takes to make a volume for a claim", "scheduler-queue-and-cycles 6",
           "volumes/waiting", minimum=0.0),
    Switch("kubelet.enable_controller_attach_detach", False, "the attach/detach controller, not the kubelet, attaches "
           "volumes of CSI drivers with attachRequired (KubeletConfiguration enableControllerAttachDetach)",
           "controllers 20", "attach-detach/volume-moves"),
    Switch("StorageCapacityScoring", False, "feature gate: nodes with more free storage rank higher (KEP-4049)",
           "scheduler-queue-and-cycles 5.2", "volumes/roomy",
           by_release=(False, False, False, True)),
    Switch("NominatedNodeNameForExpectation", True, "feature gate: a pod whose binding takes long says where it is "
           "going (KEP-5278)", "scheduler-queue-and-cycles 7", "volumes/waiting",
           by_release=(False, True, True, True)),
    Switch("ClearingNominatedNodeNameAfterBinding", True, "feature gate: a Binding clears the pod's nominatedNodeName "
           "(KEP-5278)", "scheduler-queue-and-cycles 7", "volumes/waiting",
           by_release=(False, True, True, True)),
    Switch("SchedulerAsyncPreemption", True, "feature gate: evictions do not hold the scheduling loop (KEP-4832)",
           "preemption 4", "preemption/in-the-loop"),
    Switch("preemption.async_activate", "on-error-or-in-memory", "when a preemptor is tried again at the end of its "
           "evictions, whatever events it missed", "preemption 4", "preemption/last-victim-gone-activated",
           ("on-error", "on-error-or-in-memory", "always")),
    Switch("preemption.revert_nomination", False, "evictions that failed take the nomination back (KEP-4832's text)",
           "preemption 4", "preemption/nomination-reverted"),
    Switch("preemption.clear_nominations", "evictions", "when lower nominations to the node are cleared: with its "
           "evictions, or also when all victims terminate already", "preemption 3.5", "preemption/higher-steals",
           ("evictions", "always")),
    Switch("interpodaffinity.faithful_hints", True, "a pod that only others' anti-affinity refuses is not woken by a "
           "new node, as in releases", "scheduler-queue-and-cycles 2.3", "scheduling/others-anti-affinity"),
    Switch("preemption.pdb_empty_selector", "ignore", "whether a budget with selector {} counts, as from 1.38 on",
           "preemption 3.3", "preemption/empty-budget", ("match", "ignore")),
    Switch("preemption.waiting_victim", "backoff", "where a victim goes that waits at Permit", "preemption 3.5",
           "preemption/at-permit", ("backoff", "unschedulable", "delete"),
           by_release=("unschedulable", "unschedulable", "backoff", "backoff")),
    Switch("preemption.pre_bind_victim", "cancel", "what happens to a victim in PreBind", "preemption 3.5",
           "volumes/evicted-early", ("cancel", "delete"),
           by_release=("delete", "delete", "cancel", "cancel")),
    Switch("SchedulerAsyncAPICalls", False, "feature gate: API calls do not hold the scheduling loop (KEP-5229)",
           "kep-5229 1", "async-api-calls/held-up"),
    Switch("async_api.parallelism", 0, "calls the dispatcher makes at once, 0 for no limit; 16 until 1.34.1",
           "kep-5229 4", "async-api-calls/limiter", minimum=0),
    Switch("async_api.client", "shared", "whether binds and status patches share the client's rate limit, and its line",
           "kep-5229 1", "async-api-calls/held-up", ("shared", "separate_per_type", "priority")),
    Switch("async_api.qps", 0.0, "calls a second of the scheduler's client, 0 for no limit; upstream 50", "kep-5229 1",
           "async-api-calls/held-up", minimum=0.0),
    Switch("async_api.burst", 100, "calls at once of a limited client", "kep-5229 1", "async-api-calls/held-up",
           minimum=1),
    Switch("SchedulerPreEnqueuePodStatus", False, "feature gate: pod status reports PreEnqueue rejections (KEP-5501)",
           "kep-5501 1", "preenqueue-status/models"),
    Switch("preenqueue_report.model", "implicit_delayed", "whose message reports a PreEnqueue rejection, and when",
           "kep-5501 7", "preenqueue-status/models",
           ("off", "explicit_immediate", "explicit_delayed", "implicit_delayed_optout", "implicit_delayed",
            "implicit_immediate")),
    Switch("preenqueue_report.delay_s", 5.0, "how long a rejection must last to be reported", "kep-5501 3",
           "preenqueue-status/models", minimum=0.0),
    Switch("preenqueue_report.clear_delay_s", 5.0, "how long a reported rejection outlives its end", "kep-5501 4.1",
           "preenqueue-status/clear", minimum=0.0),
    Switch("preenqueue_report.on_other_plugin_rejects", "keep_stale", "what becomes of a text once a silent plugin "
           "rejects", "kep-5501 7", "preenqueue-status/stale", ("keep_stale", "clear", "generic")),
    Switch("preenqueue_report.reason", "NotReadyForScheduling", "the reason of reported rejections: one of their own, "
           "or one that exists", "kep-5501 12", "preenqueue-status/reason",
           ("NotReadyForScheduling", "Unschedulable", "SchedulingGated")),
    Switch("preenqueue_report.condition", "PodScheduled", "the condition that has them: the one that a bind "
           "overwrites, or one of their own", "kep-5501 12", "preenqueue-status/own-condition",
           ("PodScheduled", "ReadyForScheduling")),
    Switch("preenqueue_report.delay_scope", "global", "who says how long a rejection must last to be reported: "
           "preenqueue_report.delay_s, its plugin, or its plugin each time", "kep-5501 12",
           "preenqueue-status/delay-scope", ("global", "per_plugin", "per_call")),
    Switch("preenqueue_report.qps", 0.0, "reports a second, apart from other calls; 0: they share async_api.qps",
           "kep-5501 12", "preenqueue-status/rate-limit", minimum=0.0),
    Switch("preenqueue_report.target", "pod", "whose status reports the rejection of a pod group's members: each "
           "pod's, or their group's", "kep-5501 12", "preenqueue-status/group-status", ("pod", "podgroup")),
    Switch("preenqueue_report.gates_message", "unified", "whether SchedulingGates says the API server's words",
           "kep-5501 5", "preenqueue-status/gated", ("unified", "legacy")),
    Switch("GenericWorkload", False, "feature gate: pod groups, gang scheduling and their preemption (KEP-4671)",
           "preemption 1", "gangs/evicted-as-one"),
    Switch("PodGroupPreemptionPolicy", False, "feature gate: a pod group has a preemptionPolicy", "preemption 1",
           "gangs/never-preempts"),
    Switch("OpportunisticBatching", True, "feature gate: a like pod tries the next best node first (KEP-5598)",
           "scheduler-queue-and-cycles 8", "scheduling/same-kind",
           by_release=(False, True, True, True)),
    Switch("batching.validity", "unchanged", "what ends a batch: any change of another node, so that the answer is a "
           "full cycle's, or its age of 500 ms alone, as upstream", "scheduler-queue-and-cycles 8",
           "scheduling/same-kind", ("unchanged", "age")),
    Switch("gang.generation", "W1", "how a gang's quorum is enforced: W0 waits at Permit (1.35), W1 is a group cycle "
           "with Permit (1.36), W2 decides by PlacementFeasible (1.37), W3 drops Permit", "preemption 6.3",
           "gangs/permit-livelock", ("W2", "W0", "W1", "W3", "off"),
           by_release=("off", "W0", "W1", "W2")),
    Switch("gang.permit_timeout_s", 300.0, "how long a member waits at Permit for its gang", "preemption 6.3",
           "gangs/permit-timeout", minimum=0.0, maximum=900.0),
    Switch("gang.group_preemption", "per-pod", "whether a group that does not fit may preempt: member by member, or "
           "the group as one preemptor over the whole cluster (KEP-5710)", "preemption 7.3", "gangs/preempts-as-one",
           ("off", "per-pod", "cluster"),
           by_release=("off", "off", "per-pod", "cluster")),
    Switch("gang.retry", "hints", "what retries a rejected group: any member's queueing hint, or the back-off alone",
           "preemption 6.4", "gangs/retry", ("hints", "backoffOnly")),
    Switch("gang.backoff_max_s", 10.0, "longest back-off of a pod group", "preemption 6.4", "gangs/group-back-off",
           minimum=0.0),
    Switch("gang.all_mode_with_basic", "reject", "disruption mode `all` on a group with the basic policy",
           "preemption 7.1", "gangs/basic-as-one", ("reject", "accept")),
    Switch("MatchLabelKeysInPodTopologySpreadSelectorMerge", True, "feature gate: matchLabelKeys of spread constraints "
           "join their selector at creation (KEP-3243)", "scheduler-queue-and-cycles 6", "scheduling/label-keys"),
    Switch("RelaxedServiceNameValidation", True, "feature gate: a Service's name may be any DNS label, one that begins "
           "with a digit too (KEP-5311)", "upstream `pkg/registry/core/service/strategy.go`", "services/names",
           by_release=(False, False, True, True)),
    Switch("TaintTolerationComparisonOperators", False, "feature gate: tolerations may say Gt and Lt (KEP-5471)",
           "scheduler-queue-and-cycles 5.2", "scheduling/tolerations"),
    Switch("InPlacePodLevelResourcesVerticalScaling", True, "feature gate: pods with resources of their own may be "
           "resized (KEP-5419)", "kep-1287-in-place-resize 13", "resize/pod-level",
           by_release=(False, False, True, True)),
    Switch("InPlacePodVerticalScalingInitContainers", True, "feature gate: init containers that are no sidecars may be "
           "resized", "node-declared-features 5", "features/init-containers",
           by_release=(False, False, True, True), known_from="1.36", locked_from="1.37"),
    Switch("InPlacePodVerticalScalingSchedulerPreemption", False, "feature gate: the scheduler preempts for deferred "
           "resizes (KEP-5836)", "kep-5836 1", "kep-5836/one-victim"),
    Switch("resize.generation", "G3", "which draft of KEP-5836 is at work: G0 of February to G4 of September 2026",
           "kep-5836 1", "kep-5836/parked-woken", ("G0", "G1", "G2", "G3", "G4")),
    Switch("resize.parked_wakeup", "generation", "what another pod's growth does for one that was found to fit",
           "kep-5836 6.3", "kep-5836/parked-woken",
           ("generation", "none", "fit_scaleup_hint", "handler_add_or_activate")),
    Switch("resize.double_preemption", "generation", "what keeps a deferred pod from preempting again while its "
           "victims are leaving", "kep-5836 13.5", "kep-5836/restart-guarded",
           ("generation", "accept", "memory", "nnn", "spec_node_name")),
    Switch("resize.retry_scope", "node_only", "what wakes a deferred pod: its node's events, any node's, or the clock "
           "alone", "kep-5836 7", "kep-5836/by-the-clock", ("node_only", "any_event", "periodic")),
    Switch("resize.retry_period_s", 10.0, "how long a deferred pod waits that only the clock wakes", "kep-5836 16",
           "kep-5836/by-the-clock", minimum=0.1),
    Switch("resize.accounting", "per_container", "what a pod on a node counts for while it is resized: the most of "
           "each container, or of the whole pod", "kep-5836 4.1", "kep-5836/granularity",
           ("per_container", "aggregated")),
    Switch("resize.update_order", "one_step", "which of queue and cache hears first of a deferred pod's change; the "
           "other hears a moment later", "kep-5836 13.4", "kep-5836/cache-first",
           ("one_step", "queue_first", "cache_first")),
    Switch("resize.group_member", "individual", "whether a resizing member of a pod group preempts for itself or for "
           "its group", "kep-5836 14", "kep-5836/for-its-group", ("individual", "group")),
    Switch("resize.reserved_space", "evict_pod", "what a new pod of higher priority does to one whose deferred "
           "resize reserves space: evict it, or take the space that is only desired; once_accepted: a deferred resize "
           "reserves nothing before the scheduler has found room for it or chosen its victims", "kep-5836 13.3",
           "kep-5836/newcomer-beside", ("evict_pod", "ignore_unactuated", "once_accepted")),
    Switch("resize.reserved_by", "scheduler", "who reserves the capacity that the scheduler has found, or evicts pods "
           "for, when a resize is deferred: the scheduler, or also the pod's kubelet, which it tells by a condition "
           "and which admits no other pod to it", "kep-5836 13.3", "kep-5836/reserved-by-kubelet",
           ("scheduler", "kubelet")),
    Switch("resize.supersede", "follow_spec", "what a pod counts for whose deferred resize is replaced by another",
           "kep-5836 13.2", "kep-5836/superseded", ("follow_spec", "hold_max_until_resolved")),
    Switch("resize.reprieve_uses_allocated", False, "victims of a resize are chosen by allocated resources, as the "
           "kubelet counts", "kep-5836 4.3", "kep-5836/over-eviction-allocated"),
    Switch("resize.feasibility", "admission", "who says no to a resize that the pod's node could never do: the node, "
           "as Infeasible, or the API server, as PodResizeValidator since v1.36", "kep-1287-in-place-resize 3.2",
           "resize/deferred-resize", ("node", "admission"),
           by_release=("node", "node", "admission", "admission")),
    Switch("resize.adjust_pod_count", False, "a deferred pod is not counted twice where pods are limited",
           "kep-5836 6.2", "kep-5836/pod-limit"),
)  # fmt: skip


def find(name: str) -> Switch:
    """Return the switch of that name. Raises: SwitchError that suggests near names."""
    for known in REGISTER:
        if known.name == name:
            return known
    if name in ABSENT:
        raise SwitchError(f"{name} is a gate of Kubernetes ({ABSENT[name]}) that keplab does not model")
    near = difflib.get_close_matches(name, [s.name for s in REGISTER], n=3) or [
        s.name for s in REGISTER if len(name) > 4 and name.lower() in s.name.lower()
    ]
    hint = f"; did you mean {', '.join(near)}?" if near else "; see `keplab switches`"
    raise SwitchError(f"no switch is called {name!r}{hint}")


def switch(name: str) -> Any:
    """Declare a field of a component's typed view: the value of the switch `name`, by default the register's.

    A view is a frozen dataclass; its wiring fills it with `Switches.of`, a test by naming the fields it wants:

        @dataclass(frozen=True)
        class QueueSwitches:
            initial_backoff_s: float = switch("scheduler.initial_backoff_s")

    Raises: SwitchError when the register has no switch of that name.
    """
    return field(default=find(name).default, metadata={_SWITCH: name})


def names_of(view: type) -> frozenset[str]:
    """Return the names of the switches that a typed view has."""
    return frozenset(names_in(view))


def names_in(view: type) -> tuple[str, ...]:
    """Return the names of the switches that a typed view reads, in the order of its fields."""
    return tuple(f.metadata[_SWITCH] for f in fields(view) if _SWITCH in f.metadata)


class Switches(Mapping[str, Value]):
    """An immutable assignment of all switches; unset switches have the default of the emulated release."""

    def __init__(self, values: Mapping[str, Value] | None = None) -> None:
        release = str((values or {}).get(EMULATED, FOLLOWED))
        self._values = {s.name: s.default_in(release) for s in REGISTER}
        for name, value in (values or {}).items():
            known = find(name)
            if known.is_locked_in(release) and value != known.default_in(release):
                raise SwitchError(
                    f"switch {name}={_text(value)}: locked to {_text(known.default_in(release))} since Kubernetes "
                    f"{known.locked_from}, and {EMULATED}={release}"
                )
            self._values[name] = value
        self._set = tuple(sorted((values or {}).keys()))
        self._views: dict[type, Any] = {}

    @classmethod
    def parse(cls, assignments: Iterable[str]) -> Switches:
        """Read `NAME=VALUE` texts; a later one wins. Raises: SwitchError."""
        values: dict[str, Value] = {}
        for text in assignments:
            name, sign, value = text.partition("=")
            if not sign:
                raise SwitchError(f"{text!r}: want NAME=VALUE")
            values[name.strip()] = find(name.strip()).parse(value.strip())
        return cls(values)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def of(self, view: type[View]) -> View:
        """Return a component's typed view of these switches: a frozen dataclass whose fields are made by `switch`.

        Each view is made once: many nodes of one process ask for the same ones.
        """
        known: View | None = self._views.get(view)
        if known is None:
            declared = fields(view)  # type: ignore[arg-type]  # a dataclass, which typing has no bound for
            values = {f.name: self._values[f.metadata[_SWITCH]] for f in declared if _SWITCH in f.metadata}
            known = self._views[view] = view(**values)
            assert view.__dataclass_params__.frozen, view  # type: ignore[attr-defined]  # it is shared
        return known

    def choice(self, name: str) -> str:
        """Return a choice or text switch."""
        return str(self._values[name])

    def flag(self, name: str) -> bool:
        """Return a flag."""
        return bool(self._values[name])

    def number(self, name: str) -> float:
        """Return a number."""
        return float(self._values[name])

    def integer(self, name: str) -> int:
        """Return an integer."""
        return int(self._values[name])

    def is_set(self, name: str) -> bool:
        """Whether the switch was assigned, even to its default."""
        return name in self._set

    @property
    def assignments(self) -> tuple[str, ...]:
        """The `NAME=VALUE` texts of the assigned switches, sorted."""
        return tuple(f"{name}={_text(self._values[name])}" for name in self._set)

    @property
    def chosen_values(self) -> dict[str, Value]:
        """The values of the assigned switches."""
        return {name: self._values[name] for name in self._set}

    def replace(self, other: Mapping[str, Value]) -> Switches:
        """Return these switches with some values replaced."""
        return Switches({**self.chosen_values, **other})


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
