"""Second implementation of authorization: the independent evaluator of T-AUTHZ and of invariant I24.

It is written from guarantees 8.3 to 8.5 alone and shares nothing with the API server's own table, so that
a mistake in one shows as a difference between the two. It judges a call by its identity, the request, and
the node that the pod is bound to, as an auditor who replays the commit log can.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import services.controllers
from services.api.switches import Switches

FOLDER, FILE = Path(services.controllers.__file__).parent, "policy.txt"
NODE_RULES = "system:nodes"
DRIVERS = "system:dra-drivers"
ACCOUNTS = "system:serviceaccount:kube-system:"


@dataclass(frozen=True)
class Call:
    """One call as the audit line records it. `verb` is the plain one (`create` on `pods/binding`).

    `bound_to`: the node of the stored pod; empty when it has none or does not exist. `owned`: namespaces that
    belong to a `user:`. `preconditions`: which of `uid` and `rv` a delete names. `referenced`: a pod bound to
    the calling node refers to this secret, configmap or claim, or to the claim of this volume. `on_node`: the
    node that a service account's token is bound to. `hosted`: the node, or the node that the pod is bound to,
    belongs to the calling kubelet host, whose stages change such objects. `is_retry`: the pod's unbind
    history has this request of this node.
    """

    user: str
    groups: tuple[str, ...]
    verb: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    bound_to: str = ""
    field_selector: str = ""
    owned: tuple[str, ...] = ()
    preconditions: frozenset[str] = frozenset()
    referenced: bool = False
    is_retry: bool = False
    hosted: bool = False
    on_node: str = ""


_TABLE = """
# who                         verbs                       on what                                         with
group:system:mesh-admins      ordinary                    * */status */scale */finalize */log */resize \
*/ephemeralcontainers */approval */history */exec */attach */portforward */proxy nodes/metrics nodes/stats \
nodes/healthz nodes/configz nodes/pods
group:system:mesh-admins      evict                       pods/eviction
group:system:mesh-admins      token                       nodetokens serviceaccounts/token
group:system:mesh-admins      approve,sign                signers.certificates.k8s.io
group:system:mesh-admins      statehash                   statehash
group:system:node-hosts       token                       nodetokens
R:                            create                      tokenreviews.authentication.k8s.io \
subjectaccessreviews.authorization.k8s.io
kube-apiserver-kubelet-client get,create                  nodes/proxy nodes/log nodes/metrics nodes/stats
system:monitor                get                         nodes/metrics nodes/stats
group:system:node-hosts       patch                       pods nodes                                      own-host
group:system:node-hosts       read                        stages.kwok.x-k8s.io logs.kwok.x-k8s.io \
clusterlogs.kwok.x-k8s.io attaches.kwok.x-k8s.io clusterattaches.kwok.x-k8s.io execs.kwok.x-k8s.io \
clusterexecs.kwok.x-k8s.io portforwards.kwok.x-k8s.io clusterportforwards.kwok.x-k8s.io resourceusages.kwok.x-k8s.io \
clusterresourceusages.kwok.x-k8s.io metrics.kwok.x-k8s.io
system:controller:kwok-stages read                        all-but-secrets
system:controller:kwok-stages patch,delete                all-but-secrets
system:controller:kwok-stages patch                       */status */scale
system:controller:kwok-stages create,change               events
keplab:ui                     read                        *
keplab:ui                     get                         */history
system:auditor                read                        all-but-secrets
system:auditor                statehash                   statehash
system:pod-unbinder           read                        pods nodes
system:pod-unbinder           unbind                      pods/unbind
system:pod-unbinder           change                      pods/status
system:pod-unbinder           create,change               events
system:kube-scheduler         read                        pods nodes namespaces services replicasets.apps \
statefulsets.apps poddisruptionbudgets.policy priorityclasses.scheduling.k8s.io podgroups.scheduling.k8s.io \
workloads.scheduling.k8s.io persistentvolumes persistentvolumeclaims storageclasses.storage.k8s.io \
csinodes.storage.k8s.io csidrivers.storage.k8s.io csistoragecapacities.storage.k8s.io \
noderesourcetopologies.topology.node.k8s.io resourceclaims.resource.k8s.io resourceslices.resource.k8s.io \
deviceclasses.resource.k8s.io devicetaintrules.resource.k8s.io
system:kube-scheduler         change                      pods pods/status persistentvolumes persistentvolumeclaims \
podgroups.scheduling.k8s.io/status resourceclaims.resource.k8s.io resourceclaims.resource.k8s.io/status
system:kube-scheduler         get                         jobs.batch cronjobs.batch deployments.apps \
statefulsets.apps daemonsets.apps replicasets.apps
system:kube-scheduler         bind                        pods/binding
system:kube-scheduler         create,delete               resourceclaims.resource.k8s.io
system:kube-scheduler         delete                      pods                                            uid
system:kube-scheduler         create,change               events
system:kube-scheduler         get,create,change           leases.coordination.k8s.io                      own-lease
system:kube-controller-manager read                       all-but-secrets
system:kube-controller-manager create,change              events
system:kube-controller-manager get,create,change          leases.coordination.k8s.io                      own-lease
system:claim-controller       read                        pods resourceclaims.resource.k8s.io \
resourceclaimtemplates.resource.k8s.io podgroups.scheduling.k8s.io deployments.apps statefulsets.apps jobs.batch \
resourceslices.resource.k8s.io devicetaintrules.resource.k8s.io
system:claim-controller       get,create,change           leases.coordination.k8s.io                      own-lease
C:replicaset                  read                        replicasets.apps pods resourceclaims.resource.k8s.io
C:replicaset                  create,change               pods
C:replicaset                  delete                      pods                                            uid
C:replicaset                  change                      replicasets.apps replicasets.apps/status \
resourceclaims.resource.k8s.io/status
C:replicationcontroller       read                        replicationcontrollers pods
C:replicationcontroller       create,change               pods
C:replicationcontroller       delete                      pods                                            uid
C:replicationcontroller       change                      replicationcontrollers/status
C:deployment                  read                        deployments.apps replicasets.apps pods \
resourceclaims.resource.k8s.io
C:deployment                  create,change               replicasets.apps
C:deployment                  delete                      replicasets.apps                                uid
C:deployment                  change                      deployments.apps deployments.apps/status \
resourceclaims.resource.k8s.io/status
C:daemonset                   read                        daemonsets.apps controllerrevisions.apps pods nodes \
resourceclaims.resource.k8s.io
C:daemonset                   create,change               pods controllerrevisions.apps
C:daemonset                   delete                      pods controllerrevisions.apps                   uid
C:daemonset                   change                      daemonsets.apps daemonsets.apps/status \
resourceclaims.resource.k8s.io/status
C:statefulset                 read                        statefulsets.apps controllerrevisions.apps pods \
persistentvolumeclaims resourceclaims.resource.k8s.io
C:statefulset                 create,change               pods persistentvolumeclaims controllerrevisions.apps
C:statefulset                 delete                      pods controllerrevisions.apps                   uid
C:statefulset                 change                      statefulsets.apps statefulsets.apps/status \
resourceclaims.resource.k8s.io/status
C:job                         read                        jobs.batch pods resourceclaims.resource.k8s.io
C:job                         create,change               pods
C:job                         delete                      pods                                            uid
C:job                         change                      jobs.batch jobs.batch/status \
resourceclaims.resource.k8s.io/status
C:cronjob                     read                        cronjobs.batch jobs.batch
C:cronjob                     create                      jobs.batch
C:cronjob                     delete                      jobs.batch                                      uid
C:cronjob                     change                      cronjobs.batch/status
C:horizontal-pod-autoscaler   read                        horizontalpodautoscalers.autoscaling pods \
deployments.apps replicasets.apps statefulsets.apps
C:horizontal-pod-autoscaler   read                        pods.metrics.k8s.io \
custommetrics.custom.metrics.k8s.io externalmetrics.external.metrics.k8s.io
C:horizontal-pod-autoscaler   change                      deployments.apps/scale replicasets.apps/scale \
statefulsets.apps/scale horizontalpodautoscalers.autoscaling/status
C:csrsigning                  read                        certificatesigningrequests.certificates.k8s.io
C:csrsigning                  change                      certificatesigningrequests.certificates.k8s.io/status
C:csrsigning                  sign                        signers.certificates.k8s.io
C:csrcleaner                  read,delete                 certificatesigningrequests.certificates.k8s.io
C:endpoints-controller        read                        services pods endpoints
C:endpoints-controller        create,change               endpoints
C:endpoints-controller        delete                      endpoints                                       uid
C:endpointslice-controller    read                        services pods nodes endpointslices.discovery.k8s.io
C:endpointslice-controller    create,change               endpointslices.discovery.k8s.io
C:endpointslice-controller    delete                      endpointslices.discovery.k8s.io                 uid
C:endpointslicemirroring-controller  read                 services endpoints endpointslices.discovery.k8s.io
C:endpointslicemirroring-controller  create,change        endpointslices.discovery.k8s.io
C:endpointslicemirroring-controller  delete               endpointslices.discovery.k8s.io                 uid
C:ttl-after-finished          read                        jobs.batch
C:ttl-after-finished          delete                      jobs.batch                                      uid,rv
C:node-lifecycle              read                        nodes pods leases.coordination.k8s.io
C:node-lifecycle              change                      nodes nodes/status pods/status
C:node-lifecycle              delete                      pods                                            uid
C:taint-eviction              read                        nodes pods
C:taint-eviction              change                      pods/status
C:taint-eviction              delete                      pods                                            uid
C:taint-eviction              delete                      pods                      if:tainteviction.faithful=true
C:podgc                       read                        nodes pods
C:podgc                       change                      pods/status
C:podgc                       delete                      pods                                            uid
C:podgc                       delete                      pods                              if:podgc.recheck=false
C:descheduler                 read                        nodes pods
C:descheduler                 delete                      pods                                            uid
C:podgroup-protection         read                        podgroups.scheduling.k8s.io pods \
resourceclaims.resource.k8s.io
C:podgroup-protection         change                      podgroups.scheduling.k8s.io \
resourceclaims.resource.k8s.io/status
C:disruption                  read                        pods poddisruptionbudgets.policy replicasets.apps \
deployments.apps statefulsets.apps
C:disruption                  get                         */scale
C:disruption                  change                      poddisruptionbudgets.policy/status pods/status
C:persistentvolume-binder     read                        nodes persistentvolumes persistentvolumeclaims \
storageclasses.storage.k8s.io csinodes.storage.k8s.io csidrivers.storage.k8s.io csistoragecapacities.storage.k8s.io
C:persistentvolume-binder     create,change               persistentvolumes
C:persistentvolume-binder     delete                      persistentvolumes                               uid
C:persistentvolume-binder     change                      persistentvolumeclaims persistentvolumeclaims/status \
persistentvolumes/status
C:resourcequota               read                        *
C:resourcequota               change                      resourcequotas/status
C:attachdetach                read                        nodes pods persistentvolumes persistentvolumeclaims \
csidrivers.storage.k8s.io volumeattachments.storage.k8s.io
C:attachdetach                create                      volumeattachments.storage.k8s.io
C:attachdetach                delete                      volumeattachments.storage.k8s.io                uid
C:attachdetach                change                      nodes/status
C:csi-attacher                read                        persistentvolumes csidrivers.storage.k8s.io \
volumeattachments.storage.k8s.io
C:csi-attacher                change                      persistentvolumes volumeattachments.storage.k8s.io \
volumeattachments.storage.k8s.io/status
C:volume-protection           read,change                 persistentvolumes persistentvolumeclaims
C:volume-protection           read                        pods
C:ephemeral-volume            read                        pods persistentvolumeclaims
C:ephemeral-volume            create                      persistentvolumeclaims
system:serviceaccount:kube-system:resource-claim-controller read pods resourceclaims.resource.k8s.io \
resourceclaimtemplates.resource.k8s.io workloads.scheduling.k8s.io daemonsets.apps deployments.apps jobs.batch \
podgroups.scheduling.k8s.io replicasets.apps statefulsets.apps
system:serviceaccount:kube-system:resource-claim-controller create,delete resourceclaims.resource.k8s.io
system:serviceaccount:kube-system:resource-claim-controller change resourceclaims.resource.k8s.io \
resourceclaims.resource.k8s.io/status pods/status podgroups.scheduling.k8s.io/status
system:serviceaccount:kube-system:resource-claim-controller create,change events
system:serviceaccount:kube-system:resource-claim-controller get,create,change leases.coordination.k8s.io own-lease
system:serviceaccount:kube-system:device-taint-eviction-controller read pods \
resourceclaims.resource.k8s.io resourceslices.resource.k8s.io devicetaintrules.resource.k8s.io
system:serviceaccount:kube-system:device-taint-eviction-controller change pods/status \
devicetaintrules.resource.k8s.io/status
system:serviceaccount:kube-system:device-taint-eviction-controller delete pods uid
system:serviceaccount:kube-system:device-taint-eviction-controller create,change events
system:serviceaccount:kube-system:device-taint-eviction-controller get,create,change \
leases.coordination.k8s.io own-lease
C:namespace                   read                        *
C:namespace                   delete,deletecollection     *
C:namespace                   change                      namespaces/status
C:namespace                   update                      namespaces/finalize
C:gc                          read                        all-but-secrets
C:gc                          delete                      all-but-secrets                                 uid,rv
C:gc                          change                      all-but-secrets
C:*                           create,change               events
C:*                           get,create,change           leases.coordination.k8s.io                      own-lease
group:system:dra-drivers      read                        resourceclaims.resource.k8s.io
group:system:dra-drivers      patch                       resourceclaims.resource.k8s.io/status
group:system:dra-drivers      get                         nodes
group:system:dra-drivers      read,create,update,delete   resourceslices.resource.k8s.io                  own-node
user:*                        ordinary                    pods configmaps secrets serviceaccounts services \
persistentvolumeclaims deployments.apps replicasets.apps daemonsets.apps poddisruptionbudgets.policy jobs.batch \
cronjobs.batch horizontalpodautoscalers.autoscaling podgroups.scheduling.k8s.io workloads.scheduling.k8s.io \
resourceclaims.resource.k8s.io resourceclaimtemplates.resource.k8s.io own-namespace
user:*                        get,change                  deployments.apps/scale replicasets.apps/scale \
statefulsets.apps/scale pods/resize pods/ephemeralcontainers                                              own-namespace
user:*                        read                        events pods/log resourcequotas limitranges \
controllerrevisions.apps endpointslices.discovery.k8s.io                                                   own-namespace
user:*                        get,list                    pods.metrics.k8s.io \
custommetrics.custom.metrics.k8s.io externalmetrics.external.metrics.k8s.io                               own-namespace
user:*                        get                         namespaces                                      own-namespace
user:*                        evict                       pods/eviction                                   own-namespace
"""

_CONDITIONS = ("uid", "uid,rv", "own-lease", "own-namespace", "own-node", "own-host")
_SET = "if:"
"""Prefix of a condition on a switch: the table line applies if the switch has that value."""
_PROCESSES = frozenset(("system:kube-scheduler", "system:kube-controller-manager", "system:claim-controller"))
_VERBS: Mapping[str, tuple[str, ...]] = {
    "read": ("get", "list", "watch"),
    "change": ("update", "patch"),
    "ordinary": ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
}
_SPECIAL: Mapping[str, str] = {"binding": "bind", "unbind": "unbind", "eviction": "evict", "token": "token"}


@cache
def _table() -> str:
    """Return the table, with what lies as `policy.txt` beside controllers that it does not name."""
    return "\n".join((_TABLE, *(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob(f"*/{FILE}")))))


@cache
def _controllers() -> frozenset[str]:
    return frozenset(re.findall(r"^C:([a-z0-9-]+) ", _table(), re.MULTILINE))


@cache
def _lines() -> tuple[tuple[str, frozenset[str], tuple[str, ...], str], ...]:
    read: list[tuple[str, frozenset[str], tuple[str, ...], str]] = []
    for line in _table().splitlines():
        if not line or line.startswith("#"):
            continue
        who, verbs, *rest = line.split()
        condition = rest.pop() if rest[-1] in _CONDITIONS or rest[-1].startswith(_SET) else ""
        meant = frozenset(each for word in verbs.split(",") for each in _VERBS.get(word, (word,)))
        read.append((who, meant, tuple(rest), condition))
    return tuple(read)


@cache
def settings_that_matter() -> tuple[tuple[str, str], ...]:
    """Return the switches, each with its value, that allow additional calls."""
    found = [condition.removeprefix(_SET) for *_, condition in _lines() if condition.startswith(_SET)]
    return tuple((name, value) for name, _, value in (setting.partition("=") for setting in found))


def is_driver(user: str) -> bool:
    """Return whether `user` is a DRA driver's service account: one of kube-system that the table does not name."""
    return user.startswith(ACCOUNTS) and user not in {who for who, *_ in _lines()}


def is_allowed(call: Call, settings: frozenset[tuple[str, str]] = frozenset()) -> bool:
    """Return whether guarantees section 8 allows the call, as far as it can be judged without its body.

    `settings`: those of `settings_that_matter` that are in force.
    """
    if call.user.startswith("system:node:"):
        return NODE_RULES in call.groups and _node_may(call, call.user.removeprefix("system:node:"))
    verb = call.verb if call.verb != "create" else _SPECIAL.get(call.subresource, "create")
    if call.resource in ("nodetokens", "statehash"):
        verb = "token" if call.resource == "nodetokens" else "statehash"
    what = call.resource + (f"/{call.subresource}" if call.subresource else "")
    return any(
        verb in verbs and _is_listed(call, what, resources) and _holds(call, condition, settings)
        for verbs, resources, condition in _lines_of(call.user, call.groups)
    )


@lru_cache(maxsize=1024)
def _lines_of(user: str, groups: tuple[str, ...]) -> tuple[tuple[frozenset[str], tuple[str, ...], str], ...]:
    """Return the lines that are meant for a caller, without whom they are for."""
    return tuple(rest for who, *rest in _lines() if _is_meant(user, groups, who))  # type: ignore[misc]


def _is_meant(user: str, groups: tuple[str, ...], who: str) -> bool:
    kind, _, rest = who.partition(":")
    if kind == "group":
        return rest in groups
    if kind == "R":
        # The processes of the mesh, which ask who is asking them.
        return user in _PROCESSES or "system:node-hosts" in groups or DRIVERS in groups
    if DRIVERS in groups:
        return False
    if kind == "user":
        return user.startswith("user:") and user != "user:"
    if kind == "C":
        name = user.removeprefix("system:controller:")
        return name != user and (name == rest or (rest == "*" and name in _controllers()))
    return user == who


def _is_listed(call: Call, what: str, resources: tuple[str, ...]) -> bool:
    if what in resources:
        return True
    if call.resource in ("nodetokens", "statehash"):
        return False
    if call.subresource:
        return f"*/{call.subresource}" in resources
    return "*" in resources or ("all-but-secrets" in resources and what != "secrets")


def _holds(call: Call, condition: str, settings: frozenset[tuple[str, str]]) -> bool:
    if condition.startswith(_SET):
        return tuple(condition.removeprefix(_SET).split("=")) in settings
    match condition:
        case "":
            return True
        case "own-namespace":
            return (call.name if call.resource == "namespaces" else call.namespace) in call.owned
        case "own-host":
            return call.hosted
        case "own-lease":
            return call.namespace == "kube-system" and _is_own_lease(call)
        case "own-node":
            if call.verb in ("list", "watch"):
                return bool(call.on_node) and call.field_selector == f"spec.nodeName={call.on_node}"
            return bool(call.on_node) and (call.verb == "create" or call.bound_to == call.on_node)
    return call.verb != "delete" or frozenset(condition.split(",")) <= call.preconditions


def _is_own_lease(call: Call) -> bool:
    if not call.name:
        return call.verb == "create"
    if call.user == "system:kube-scheduler":
        return "controller" not in call.name
    return call.name in (call.user.rsplit(":", 1)[-1], "kube-controller-manager")


def _node_may(call: Call, node: str) -> bool:
    """X-NR1 to X-NR17 and X-UB2, X-UB3, in that order."""
    is_mine, verb = call.bound_to == node, call.verb
    match call.resource, call.subresource:
        case "nodes", "":
            return call.name == node and verb in ("get", "create", "update", "patch")
        case "nodes", "status":
            return call.name == node and verb in ("get", "update", "patch")
        case "leases.coordination.k8s.io", "":
            mine = call.namespace == "kube-node-lease" and call.name == node
            return mine and verb in ("get", "create", "update", "patch", "delete")
        case "pods", "":
            if verb in ("list", "watch"):
                return call.field_selector == f"spec.nodeName={node}"
            return verb == "create" or (verb in ("get", "delete") and is_mine)
        case "pods", "eviction":
            return verb == "create" and is_mine
        case "pods", "status":
            return verb in ("get", "update", "patch") and is_mine
        case "pods", "unbind":
            return verb == "create" and (is_mine or call.is_retry)
        case (("secrets" | "configmaps" | "persistentvolumeclaims"), ""):
            return verb in ("get", "watch") and bool(call.name) and call.referenced
        case "events", "":
            return verb in ("create", "patch")
        case (("csinodes.storage.k8s.io" | "noderesourcetopologies.topology.node.k8s.io"), ""):
            return call.name == node and verb in ("get", "create", "update", "patch")
        case "persistentvolumes", "":
            return verb == "get" and bool(call.name) and call.referenced
        case (("csidrivers.storage.k8s.io" | "runtimeclasses.node.k8s.io" | "services"), ""):
            return verb in ("get", "list", "watch")
        case "volumeattachments.storage.k8s.io", "":
            return verb == "get" and is_mine
        case "resourceclaims.resource.k8s.io", "":
            return verb == "get" and bool(call.name) and call.referenced
        case "resourceclaims.resource.k8s.io", "status":
            return verb in ("get", "update", "patch") and bool(call.name) and call.referenced
        case "resourceslices.resource.k8s.io", "":
            if verb in ("list", "watch", "deletecollection"):
                return call.field_selector == f"spec.nodeName={node}"
            return verb == "create" or (verb in ("get", "update", "patch", "delete") and is_mine)
    return False


def unbind_callers(switches: Switches) -> str:
    """Return which may unbind: kubelet, controller or both. If the API is a condition, the kubelet only requests it."""
    is_asked = switches.choice("unbind.api") == "condition"
    return "controller" if is_asked else switches.choice("authz.unbind_callers")


def may_change_node_name(
    user: str, subresource: str, before: str, after: str, *, unbind_callers: str = "kubelet"
) -> bool:
    """Return whether I2 allows this writer to change a stored pod's `spec.nodeName` in this way."""
    if before == after:
        return True
    if not before:
        return subresource == "binding" and user == "system:kube-scheduler"
    if after:
        return False
    is_node = user == f"system:node:{before}"
    return subresource == "unbind" and (
        (is_node and unbind_callers != "controller") or (user == "system:pod-unbinder" and unbind_callers != "kubelet")
    )


@dataclass(frozen=True)
class RbacQuestion:
    """A question to RBAC objects: a verb on a resource of a group, or on a `path`."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


def rbac_allows(user: str, groups: Sequence[str], asked: RbacQuestion, objects: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether these roles and bindings allow it to a client: every binding and every rule is evaluated.

    A ClusterRole includes the rules that aggregation will add. Source: upstream
    `pkg/registry/rbac/validation/rule.go`.
    """
    if "system:masters" in groups:
        return True
    roles = [each for each in objects if each["kind"] in ("Role", "ClusterRole")]
    for binding in (each for each in objects if each["kind"].endswith("Binding")):
        at = binding["metadata"].get("namespace", "")
        if at and (asked.path or at != asked.namespace):
            continue
        if not any(_is_subject(each, user, groups, at) for each in binding.get("subjects") or ()):
            continue
        ref = binding["roleRef"]
        home = at if ref["kind"] == "Role" else ""
        for role in roles:
            meta = role["metadata"]
            if (role["kind"], meta["name"], meta.get("namespace", "")) == (ref["kind"], ref["name"], home) and any(
                _permits(rule, asked) for rule in _rules_with_aggregated(role, roles)
            ):
                return True
    return False


def _is_subject(subject: Mapping[str, Any], user: str, groups: Sequence[str], at: str) -> bool:
    match subject["kind"]:
        case "User":
            return bool(subject["name"] == user)
        case "Group":
            return subject["name"] in groups
    home = subject.get("namespace") or at
    return bool(home) and user == f"system:serviceaccount:{home}:{subject['name']}"


def _rules_with_aggregated(role: Mapping[str, Any], roles: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    rules = list(role.get("rules") or ())
    for selector in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        wanted = selector.get("matchLabels") or {}
        for other in roles:
            labels = other["metadata"].get("labels") or {}
            is_chosen = wanted and all(labels.get(key) == value for key, value in wanted.items())
            if other is not role and other["kind"] == "ClusterRole" and is_chosen:
                rules += _rules_with_aggregated(other, roles)
    return rules


def _permits(rule: Mapping[str, Any], asked: RbacQuestion) -> bool:
    def has(field: str, *values: str) -> bool:
        return not {"*", *values}.isdisjoint(rule.get(field) or ())

    if not has("verbs", asked.verb):
        return False
    if asked.path:
        urls = rule.get("nonResourceURLs") or ()
        return any(url in ("*", asked.path) or (url[-1:] == "*" and asked.path.startswith(url[:-1])) for url in urls)
    whole = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    spelt = (whole, f"*/{asked.subresource}") if asked.subresource else (whole,)
    names = rule.get("resourceNames") or ()
    return has("apiGroups", asked.group) and has("resources", *spelt) and (not names or asked.name in names)
