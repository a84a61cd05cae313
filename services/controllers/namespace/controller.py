"""Empty a namespace that is being deleted, pods first, and finalize it.

Reads live, kind by kind: the caches may not yet show what was created just before the deletion.
Source: controllers 11, KEP-5080; upstream `pkg/controller/namespace/deletion/namespaced_resources_deleter.go`.
"""

from collections.abc import Sequence

from services.api.kinds.customresourcedefinition import CustomResourceDefinition, defined_resource
from services.api.kinds.namespace import Namespace
from services.api.meta import AnyObject, Document, Key, View
from services.api.resources import resources
from services.api.switches import Switches
from services.reconcile import conditions, writes
from services.reconcile.actions import NOTHING, Action, Batch, Delete, Patch, Query, Result, Update
from services.reconcile.controller import Controller, Listers, Moment, Registration, is_read, refusal_message

FINALIZER = "kubernetes"
DEFINED = Query(CustomResourceDefinition, Key("", ""))
"""Live read of the defined kinds; a kind may be as new as its objects."""
LOOK_AGAIN_MIN_S, LOOK_AGAIN_MAX_S = 0.2, 5.0
Content = dict[str, Sequence[AnyObject]]
"""Remaining objects by wire name of their kind, in the order of removal."""


def _order(defined: Sequence[View], listers: Listers) -> list[str]:
    """Return the namespaced kinds in the order of removal: pods, the rest by name, events last; `defined`: what defines
    kinds besides those that are built in."""
    found = [defined_resource(each) for each in defined if isinstance(each, CustomResourceDefinition)]
    served = {**{each.name: each for each in found if each is not None}, **resources()}
    names = [resource.name for resource in served.values() if resource.namespaced and is_read(listers, resource)]
    return sorted(names, key=lambda name: (name != "pods", name == "events", name))


CONDITIONS = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure":
        ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure":
        ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}  # fmt: skip
"""Status conditions of a deleted namespace, in this order: reason and message while the condition is False."""


class Namespaces:
    """Failed deletions, and the reconcile function."""

    def __init__(self) -> None:
        self._failures: dict[Key, list[str]] = {}

    def on_failed(self, key: Key, action: Action, reason: str) -> None:
        """Keep the first reasons for the condition."""
        if isinstance(action, Delete) and len(self._failures.setdefault(key, [])) < 3:
            self._failures[key].append(f"{action.resource}/{action.key.name}: {refusal_message(reason)}")

    def reconcile(self, key: Key, listers: Listers, moment: Moment) -> Result:
        """Delete pods, then all other objects; report what remains; drop the finalizer when nothing remains."""
        namespace = listers.of(Namespace).get(key)
        if namespace is None:
            self._failures.pop(key, None)
            return NOTHING
        if namespace.metadata.deletion_timestamp is None or FINALIZER not in namespace.spec.finalizers:
            return NOTHING
        if listers.kinds.are_followed and DEFINED not in moment.listed:
            return Result(refresh=(DEFINED,))
        order = _order(moment.listed.get(DEFINED, ()), listers)
        queries = [Query(AnyObject, Key(key.name, ""), resource) for resource in order]
        if any(query not in moment.listed for query in queries):
            return Result(refresh=tuple(queries))
        content: Content = {
            query.resource: objects
            for query in queries
            if (objects := [o for o in moment.listed[query] if isinstance(o, AnyObject)])
        }
        document = listers.of(Namespace).document(key)
        if document is None:
            return NOTHING
        if not content:
            return Result((_finalize(key, document),))
        actions: list[Action | Batch] = list(self._report(namespace, document, content, moment.wall_s))
        if deletions := _deletions(content):
            actions.append(Batch(tuple(deletions)))
        return Result(tuple(actions), _look_again_s(content))

    def _report(self, namespace: Namespace, document: Document, content: Content, wall_s: float) -> list[Patch]:
        """Return the write of the five conditions, if it says anything new."""
        before = [dict(c) for c in (document.get("status") or {}).get("conditions") or ()]
        now = [dict(c) for c in before]
        true = _true_conditions(content, self._failures.pop(namespace.metadata.key, []))
        for condition, otherwise in CONDITIONS.items():
            reason, message = true.get(condition, otherwise)
            status = "True" if condition in true else "False"
            if conditions.put(now, condition, status, reason, message, wall_s) is None:
                next(each for each in now if each["type"] == condition)["message"] = message
        if now == before:
            return []
        return [writes.status("namespaces", namespace, {"conditions": now})]


def _true_conditions(content: Content, failures: list[str]) -> dict[str, tuple[str, str]]:
    """Return reason and message of each condition that is True."""
    remaining = ", ".join(f"{name} has {len(objects)} resource instances" for name, objects in content.items())
    by_type = {"NamespaceContentRemaining": ("SomeResourcesRemain", f"Some resources are remaining: {remaining}")}
    if failures:
        listed = ", ".join(sorted(failures))
        message = f"Failed to delete all resource types, {len(failures)} remaining: {listed}"
        by_type["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    counts: dict[str, int] = {}
    for leftover in (each for objects in content.values() for each in objects):
        for finalizer in leftover.metadata.finalizers:
            counts[finalizer] = counts.get(finalizer, 0) + 1
    if counts:
        waiting = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(counts.items()))
        message = f"Some content in the namespace has finalizers remaining: {waiting}"
        by_type["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return by_type


def _deletions(content: Content) -> list[Action]:
    """Return deletes of what is not yet going: of pods alone while there are any (KEP-5080)."""
    chosen = {"pods": content["pods"]} if "pods" in content else content
    return [
        Delete(resource, each.metadata.key, uid=each.metadata.uid, propagation="Background")
        for resource, objects in chosen.items()
        for each in objects
        if each.metadata.deletion_timestamp is None
    ]


def _look_again_s(content: Content) -> float:
    """Return half the longest grace period, within bounds: what is left then goes soon after."""
    graces = [
        each.metadata.deletion_grace_period_seconds or 0
        for objects in content.values()
        for each in objects
        if each.metadata.deletion_timestamp is not None
    ]
    return min(LOOK_AGAIN_MAX_S, max(graces) / 2 + 1.0) if graces else LOOK_AGAIN_MIN_S


def _finalize(key: Key, document: Document) -> Update:
    spec = dict(document.get("spec") or {})
    spec["finalizers"] = [name for name in spec.get("finalizers", ()) if name != FINALIZER]
    return Update("namespaces", key, {**document, "spec": spec}, subresource="finalize")


def _build(switches: Switches) -> Controller:
    memory = Namespaces()
    return Controller("namespace", Namespace, memory.reconcile, failed=memory.on_failed, workers=10)


CONTROLLER = Registration("namespace", _build, start_order=12)
