"""Who may do what, as data: the authorization table of guarantees 8.3. Deny by default.

`resources` are wire names, with `/subresource` where one is meant; `*` is every resource itself,
`*/status` every status. Special verbs (bind, unbind, evict, token, impersonate, statehash) are held by
those rules alone that name them: `*` never includes one. Nodes are not in this table, their rules
depend on which pod is bound where (`authorization`).
"""

from __future__ import annotations

from dataclasses import dataclass

SPECIAL = frozenset(("bind", "unbind", "evict", "token", "impersonate", "statehash", "chaos"))
READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
CHANGE = ("update", "patch")
LEASES = "leases.coordination.k8s.io"
WORKLOADS = ("deployments.apps", "replicasets.apps", "statefulsets.apps", "daemonsets.apps", "services",
             "poddisruptionbudgets.policy", "jobs.batch",
             "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io")  # fmt: skip
CONTENT = ("pods", "configmaps", "secrets", "serviceaccounts", "resourceclaims.resource.k8s.io",
           "resourceclaimtemplates.resource.k8s.io", "persistentvolumeclaims")  # fmt: skip
VOLUMES = ("persistentvolumes", "persistentvolumeclaims", "storageclasses.storage.k8s.io", "csinodes.storage.k8s.io",
           "csidrivers.storage.k8s.io", "csistoragecapacities.storage.k8s.io")  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """`who`: a user, `group:<name>`, or `user:*` for `user:<name>`.

    `may_change`: paths that an update or patch may touch, all of them when empty. `needs`:
    preconditions a delete must name, `uid` and `rv`; `unless` is a switch setting under which it need not.
    `where`: "" anywhere, `own` in namespaces of that user, `lease` for the caller's own lease only.
    `to_unknown`: conditions may be changed to Unknown only.
    """

    id: str
    who: str
    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    may_change: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unless: tuple[str, bool] = ("", False)
    where: str = ""
    to_unknown: bool = False


def _controller(name: str, *rules: Rule) -> tuple[Rule, ...]:
    who = f"system:controller:{name}"
    return (
        *rules,
        Rule(f"{name}/events", who, ("create", *CHANGE), ("events",)),
        Rule(f"{name}/lease", who, ("get", "create", *CHANGE), (LEASES,), where="lease"),
    )


def _c(
    name: str, what: str, verbs: tuple[str, ...], *resources: str, may_change: tuple[str, ...] = (),
    needs: tuple[str, ...] = (), unless: tuple[str, bool] = ("", False), to_unknown: bool = False,
) -> Rule:  # fmt: skip
    return Rule(
        f"{name}/{what}", f"system:controller:{name}", verbs, resources, may_change, needs, unless,
        to_unknown=to_unknown,
    )  # fmt: skip


_DISRUPTION_TARGET = "status.conditions[DisruptionTarget]"
_NODE_TAINTS = (
    *(
        f"spec.taints[node.kubernetes.io/{name}]"
        for name in (
            "not-ready", "unreachable", "memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable",
            "unschedulable",
        )
    ),
    "spec.taints[emulation/unbind-storm]",
)  # fmt: skip
_ADOPTION = ("metadata.ownerReferences", "metadata.finalizers", "metadata.labels")

_GC_NAMES = ("gc", "generic-garbage-collector")

RULES: tuple[Rule, ...] = (
    # The administrator: everything ordinary, and the special verbs named here.
    Rule("admin/all", "group:system:mesh-admins", (*READ, *WRITE),
         ("*", "*/status", "*/scale", "*/finalize", "*/log", "*/resize", "*/ephemeralcontainers")),
    Rule("admin/evict", "group:system:mesh-admins", ("evict",), ("pods/eviction",)),
    Rule("admin/token", "group:system:mesh-admins", ("token",), ("nodetokens", "serviceaccounts/token")),
    Rule("admin/statehash", "group:system:mesh-admins", ("statehash",), ("statehash",)),
    Rule("node-hosts/token", "group:system:node-hosts", ("token",), ("nodetokens",)),
    # Stages change metadata in the name of the process that plays them; a node itself may not.
    Rule("node-hosts/stages", "group:system:node-hosts", ("patch",), ("pods", "nodes"),
         may_change=("metadata.finalizers", "metadata.labels", "metadata.annotations")),
    Rule("auditor/read", "system:auditor", READ, ("*-secrets",)),
    Rule("auditor/statehash", "system:auditor", ("statehash",), ("statehash",)),
    # Only the switch authz.unbind_callers=kubelet+controller lets this one be used (X-UB1).
    Rule("unbinder/unbind", "system:pod-unbinder", ("unbind",), ("pods/unbind",)),
    Rule("unbinder/read", "system:pod-unbinder", READ, ("pods", "nodes")),
    Rule("unbinder/refuse", "system:pod-unbinder", CHANGE, ("pods/status",),
         may_change=("status.conditions[UnbindRequested]",)),
    Rule("unbinder/events", "system:pod-unbinder", ("create", *CHANGE), ("events",)),
    # The scheduler.
    Rule("scheduler/read", "system:kube-scheduler", READ,
         ("pods", "nodes", "namespaces", "services", "replicasets.apps", "statefulsets.apps",
          "poddisruptionbudgets.policy", "priorityclasses.scheduling.k8s.io", "resourceclaims.resource.k8s.io",
          "resourceslices.resource.k8s.io",
          "deviceclasses.resource.k8s.io", "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io",
          "noderesourcetopologies.topology.node.k8s.io", *VOLUMES)),
    Rule("scheduler/bind", "system:kube-scheduler", ("bind",), ("pods/binding",)),
    Rule("scheduler/status", "system:kube-scheduler", CHANGE, ("pods/status",),
         may_change=("status.conditions[PodScheduled]", _DISRUPTION_TARGET, "status.nominatedNodeName",
                     "status.conditions[ResizeUnschedulable]")),  # early drafts of KEP-5836
    # Only the switch scheduler.record=annotations makes it write them.
    Rule("scheduler/record", "system:kube-scheduler", CHANGE, ("pods",), may_change=("metadata.annotations",)),
    Rule("scheduler/preempt", "system:kube-scheduler", ("delete",), ("pods",), needs=("uid",)),
    Rule("scheduler/claims", "system:kube-scheduler", CHANGE,
         ("resourceclaims.resource.k8s.io",), may_change=("metadata.finalizers",)),
    Rule("scheduler/claim-status", "system:kube-scheduler", CHANGE, ("resourceclaims.resource.k8s.io/status",)),
    Rule("scheduler/volumes", "system:kube-scheduler", CHANGE, ("persistentvolumes",),
         may_change=("spec.claimRef", "metadata.annotations")),
    Rule("scheduler/volume-claims", "system:kube-scheduler", CHANGE, ("persistentvolumeclaims",),
         may_change=("metadata.annotations",)),
    Rule("scheduler/podgroups", "system:kube-scheduler", CHANGE, ("podgroups.scheduling.k8s.io/status",),
         may_change=("status.conditions",)),
    Rule("scheduler/events", "system:kube-scheduler", ("create", *CHANGE), ("events",)),
    Rule("scheduler/lease", "system:kube-scheduler", ("get", "create", *CHANGE), (LEASES,), where="lease"),
    # The process that hosts the controllers: their shared informers and its leader election.
    Rule("controller-manager/read", "system:kube-controller-manager", READ, ("*-secrets",)),
    Rule("controller-manager/lease", "system:kube-controller-manager", ("get", "create", *CHANGE), (LEASES,),
         where="lease"),
    Rule("controller-manager/events", "system:kube-controller-manager", ("create", *CHANGE), ("events",)),
    *_controller(
        "replicaset",
        _c("replicaset", "read", READ, "replicasets.apps", "pods"),
        _c("replicaset", "create", ("create",), "pods"),
        _c("replicaset", "delete", ("delete",), "pods", needs=("uid",)),
        _c("replicaset", "adopt", CHANGE, "pods", may_change=_ADOPTION),
        _c("replicaset", "status", CHANGE, "replicasets.apps/status"),
    ),
    *_controller(
        "deployment",
        _c("deployment", "read", READ, "deployments.apps", "replicasets.apps", "pods"),
        _c("deployment", "own", ("create", *CHANGE), "replicasets.apps"),
        _c("deployment", "delete", ("delete",), "replicasets.apps", needs=("uid",)),
        _c("deployment", "annotate", CHANGE, "deployments.apps",
           may_change=("metadata.annotations", "metadata.finalizers")),
        _c("deployment", "status", CHANGE, "deployments.apps/status"),
    ),
    *_controller(
        "daemonset",
        _c("daemonset", "read", READ, "daemonsets.apps", "controllerrevisions.apps", "pods", "nodes"),
        _c("daemonset", "create", ("create",), "pods"),
        _c("daemonset", "delete", ("delete",), "pods", needs=("uid",)),
        _c("daemonset", "adopt", CHANGE, "pods", may_change=_ADOPTION),
        _c("daemonset", "revisions", ("create", *CHANGE), "controllerrevisions.apps"),
        _c("daemonset", "forget", ("delete",), "controllerrevisions.apps", needs=("uid",)),
        _c("daemonset", "status", CHANGE, "daemonsets.apps/status"),
    ),
    *_controller(
        "statefulset",
        _c("statefulset", "read", READ, "statefulsets.apps", "controllerrevisions.apps", "pods",
           "persistentvolumeclaims"),
        _c("statefulset", "create", ("create",), "pods", "persistentvolumeclaims"),
        _c("statefulset", "delete", ("delete",), "pods", "controllerrevisions.apps", needs=("uid",)),
        _c("statefulset", "adopt", CHANGE, "pods", may_change=_ADOPTION),
        _c("statefulset", "retain", CHANGE, "persistentvolumeclaims", may_change=("metadata.ownerReferences",)),
        _c("statefulset", "revisions", ("create", *CHANGE), "controllerrevisions.apps"),
        _c("statefulset", "status", CHANGE, "statefulsets.apps/status"),
    ),
    *_controller(
        "job",
        _c("job", "read", READ, "jobs.batch", "pods"),
        _c("job", "create", ("create",), "pods"),
        _c("job", "delete", ("delete",), "pods", needs=("uid",)),
        _c("job", "adopt", CHANGE, "pods", may_change=_ADOPTION),
        _c("job", "status", CHANGE, "jobs.batch/status"),
    ),
    *_controller(
        "ttl-after-finished",
        _c("ttl-after-finished", "read", READ, "jobs.batch"),
        _c("ttl-after-finished", "delete", ("delete",), "jobs.batch", needs=("uid", "rv")),
    ),
    *_controller(
        "resourceclaim",
        _c("resourceclaim", "read", READ, "pods", "resourceclaims.resource.k8s.io",
           "resourceclaimtemplates.resource.k8s.io", "workloads.scheduling.k8s.io"),
        _c("resourceclaim", "own", ("create", "delete"), "resourceclaims.resource.k8s.io"),
        _c("resourceclaim", "finalizers", CHANGE, "resourceclaims.resource.k8s.io",
           may_change=("metadata.finalizers",)),
        _c("resourceclaim", "claim-status", CHANGE, "resourceclaims.resource.k8s.io/status",
           may_change=("status.reservedFor", "status.allocation")),
        _c("resourceclaim", "pod-status", CHANGE, "pods/status", may_change=("status.resourceClaimStatuses",)),
    ),
    *_controller(
        "node-lifecycle",
        _c("node-lifecycle", "read", READ, "nodes", "pods", LEASES),
        _c("node-lifecycle", "conditions", CHANGE, "nodes/status", may_change=("status.conditions",),
           to_unknown=True),
        _c("node-lifecycle", "taints", CHANGE, "nodes", may_change=_NODE_TAINTS),
        _c("node-lifecycle", "pods", CHANGE, "pods/status",
           may_change=("status.conditions[Ready]", _DISRUPTION_TARGET)),
        _c("node-lifecycle", "delete", ("delete",), "pods", needs=("uid",)),
    ),
    *_controller(
        "taint-eviction",
        _c("taint-eviction", "read", READ, "nodes", "pods"),
        _c("taint-eviction", "target", CHANGE, "pods/status", may_change=(_DISRUPTION_TARGET,)),
        _c("taint-eviction", "delete", ("delete",), "pods", needs=("uid",), unless=("tainteviction.faithful", True)),
    ),
    *_controller(
        "podgc",
        _c("podgc", "read", READ, "nodes", "pods"),
        _c("podgc", "fail", CHANGE, "pods/status",
           may_change=("status.phase", "status.reason", "status.message", _DISRUPTION_TARGET)),
        _c("podgc", "delete", ("delete",), "pods", needs=("uid",), unless=("podgc.recheck", False)),
    ),
    *_controller(
        "descheduler",
        _c("descheduler", "read", READ, "nodes", "pods"),
        _c("descheduler", "delete", ("delete",), "pods", needs=("uid",)),
    ),
    *_controller(
        "podgroup-protection",
        _c("podgroup-protection", "read", READ, "podgroups.scheduling.k8s.io", "pods"),
        _c("podgroup-protection", "finalizer", CHANGE, "podgroups.scheduling.k8s.io",
           may_change=("metadata.finalizers",)),
    ),
    *_controller(
        "disruption",
        _c("disruption", "read", READ, "pods", "poddisruptionbudgets.policy", "replicasets.apps", "deployments.apps",
           "statefulsets.apps"),
        _c("disruption", "scale", ("get",), "*/scale"),
        _c("disruption", "status", CHANGE, "poddisruptionbudgets.policy/status"),
        _c("disruption", "target", CHANGE, "pods/status", may_change=(_DISRUPTION_TARGET,)),
    ),
    *_controller(
        "persistentvolume-binder",
        _c("persistentvolume-binder", "read", READ, *VOLUMES, "nodes"),
        _c("persistentvolume-binder", "volumes", ("create", *CHANGE), "persistentvolumes"),
        _c("persistentvolume-binder", "reclaim", ("delete",), "persistentvolumes", needs=("uid",)),
        _c("persistentvolume-binder", "claims", CHANGE, "persistentvolumeclaims",
           may_change=("spec.volumeName", "metadata.annotations")),
        _c("persistentvolume-binder", "status", CHANGE, "persistentvolumes/status", "persistentvolumeclaims/status"),
    ),
    *_controller(
        "resourcequota",
        # Secrets are counted like everything else: their number, which says nothing of what is in them.
        _c("resourcequota", "read", READ, "*"),
        _c("resourcequota", "status", CHANGE, "resourcequotas/status"),
    ),
    *_controller(
        "volume-protection",
        _c("volume-protection", "read", READ, "persistentvolumes", "persistentvolumeclaims", "pods"),
        _c("volume-protection", "finalizers", CHANGE, "persistentvolumes", "persistentvolumeclaims",
           may_change=("metadata.finalizers",)),
    ),
    *_controller(
        "ephemeral-volume",
        _c("ephemeral-volume", "read", READ, "pods", "persistentvolumeclaims"),
        _c("ephemeral-volume", "create", ("create",), "persistentvolumeclaims"),
    ),
    *_controller(
        "namespace",
        _c("namespace", "read", READ, "*"),
        _c("namespace", "empty", ("delete", "deletecollection"), "*"),
        _c("namespace", "status", CHANGE, "namespaces/status"),
        _c("namespace", "finalize", ("update",), "namespaces/finalize"),
    ),
    *(
        rule
        for name in _GC_NAMES
        for rule in _controller(
            name,
            _c(name, "read", READ, "*-secrets"),
            _c(name, "delete", ("delete",), "*-secrets", needs=("uid", "rv")),
            _c(name, "references", CHANGE, "*-secrets",
               may_change=("metadata.finalizers", "metadata.ownerReferences")),
        )
    ),
    # Users, each in namespaces of their own.
    Rule("user/content", "user:*", (*READ, *WRITE), (*WORKLOADS, *CONTENT), where="own"),
    Rule("user/scale", "user:*", ("get", *CHANGE),
         ("deployments.apps/scale", "replicasets.apps/scale", "statefulsets.apps/scale"), where="own"),
    Rule("user/resize", "user:*", ("get", *CHANGE), ("pods/resize",), where="own"),
    Rule("user/debug", "user:*", ("get", *CHANGE), ("pods/ephemeralcontainers",), where="own"),
    Rule("user/look", "user:*", READ,
         ("events", "pods/log", "resourcequotas", "limitranges", "controllerrevisions.apps"), where="own"),
    Rule("user/namespace", "user:*", ("get",), ("namespaces",), where="own"),
    Rule("user/evict", "user:*", ("evict",), ("pods/eviction",), where="own"),
)  # fmt: skip

LABELS_AT_REGISTRATION = (
    "topology.kubernetes.io/region", "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
)  # fmt: skip
"""Labels a node may give itself when it is created, and never change (X-NR3)."""

LABELS_OF_NODES = (
    "kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
)  # fmt: skip
"""Labels a node may set on itself at any time; also everything below `kubelet.kubernetes.io/` (X-NR3)."""

EVENTS_PER_S, EVENTS_BURST = 20.0, 20.0
"""Events of one node (X-NR15)."""
