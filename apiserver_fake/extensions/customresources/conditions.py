"""The next status of a CustomResourceDefinition: names, establishment, approval, deletion of its objects.

Pure: stored definitions in, the next status out. One step at a time, as upstream's controllers write them one
after the other. Source: upstream `staging/src/k8s.io/apiextensions-apiserver/pkg/controller` (naming,
establishing, approval and finalizing controllers).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from services.api.meta import Document
from services.api.times import format_time

FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
APPROVED = "api-approved.kubernetes.io"
ACCEPTED_NAMES = ("plural", "singular", "shortNames", "kind", "listKind", "categories")


@dataclass(frozen=True)
class Condition:
    """One condition to write."""

    type: str
    status: str
    reason: str
    message: str


def condition_of(definition: Document, condition_type: str) -> Document | None:
    """Return the stored condition of that type."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == condition_type), None)


def is_true(definition: Document, condition_type: str) -> bool:
    """Whether the definition has that condition and it is True."""
    found = condition_of(definition, condition_type)
    return found is not None and found.get("status") == "True"


def with_conditions(definition: Document, conditions: Iterable[Condition], wall_s: float, **status: object) -> Document:
    """Return the definition with these conditions and status members. `lastTransitionTime` changes only with
    the status.
    """
    kept = [dict(each) for each in (definition.get("status") or {}).get("conditions") or ()]
    for wanted in conditions:
        new: Document = {
            "lastTransitionTime": format_time(wall_s),
            "message": wanted.message,
            "reason": wanted.reason,
            "status": wanted.status,
            "type": wanted.type,
        }
        for place, condition in enumerate(kept):
            if condition.get("type") == wanted.type:
                if condition.get("status") == wanted.status:
                    new["lastTransitionTime"] = condition.get("lastTransitionTime")
                kept[place] = new
                break
        else:
            kept.append(new)
    return {**definition, "status": {**(definition.get("status") or {}), "conditions": kept, **status}}


def with_names(definition: Document, others: Iterable[Document], wall_s: float) -> Document | None:
    """Return the definition with its newly accepted names; None if nothing changes.

    `others`: the other definitions of its group.
    """
    spec_names, status = definition["spec"]["names"], definition.get("status") or {}
    accepted = {name: value for name, value in (status.get("acceptedNames") or {}).items() if value}
    requested = {name: spec_names[name] for name in ACCEPTED_NAMES if spec_names.get(name)}
    if requested == accepted:
        return None
    resources, kinds = _taken_names((definition, *others))
    new = dict(accepted)
    conflict: tuple[str, str] | None = None
    for name, reason, taken in (
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("shortNames", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ):
        wanted = requested.get(name)
        if name == "shortNames":
            mine = {*(accepted.get(name) or ()), accepted.get("plural"), accepted.get("singular")}
            clashes = [each for each in wanted or () if each not in mine and each in taken]
        else:
            clashes = [wanted] if wanted != accepted.get(name) and wanted in taken else []
        if clashes:
            texts = [f'"{each}" is already in use' for each in clashes]
            conflict = (reason, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        elif wanted:
            new[name] = wanted
        else:
            new.pop(name, None)
    new.pop("categories", None)
    if requested.get("categories"):
        new["categories"] = requested["categories"]
    names_accepted = (
        Condition("NamesAccepted", "False", *conflict)
        if conflict
        else Condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")
    )
    established = condition_of(definition, "Established")
    written = [names_accepted]
    if not is_true(definition, "Established") and not conflict:
        written.append(Condition("Established", "False", "Installing", "the initial names have been accepted"))
    elif established is None:
        written.append(Condition("Established", "False", "NotAccepted", "not all names are accepted"))
    before = condition_of(definition, "NamesAccepted") or {}
    if new == accepted and all(before.get(name) == getattr(names_accepted, name) for name in _SAID):
        return None
    shown = {name: new[name] for name in ACCEPTED_NAMES if name in new}
    return with_conditions(definition, written, wall_s, acceptedNames={"kind": "", "plural": "", **shown})


_SAID = ("status", "reason", "message")


def _taken_names(definitions: Iterable[Document]) -> tuple[set[str], set[str]]:
    resources: set[str] = set()
    kinds: set[str] = set()
    for definition in definitions:
        names = (definition.get("status") or {}).get("acceptedNames") or {}
        resources |= {names.get("plural") or "", names.get("singular") or "", *(names.get("shortNames") or ())}
        kinds |= {names.get("kind") or "", names.get("listKind") or ""}
    return resources - {""}, kinds - {""}


def with_established(definition: Document, wall_s: float) -> Document | None:
    """Return the definition with Established True, once its names are accepted; None otherwise."""
    if not is_true(definition, "NamesAccepted") or is_true(definition, "Established"):
        return None
    served = Condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
    return with_conditions(definition, (served,), wall_s)


def is_protected(group: str) -> bool:
    """Whether the group belongs to the Kubernetes community, whose APIs need an approval (KEP-1111)."""
    return group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))


def with_approval(definition: Document, wall_s: float) -> Document | None:
    """Return the definition with its approval condition; None if nothing changes."""
    if not is_protected(definition["spec"]["group"]):
        return None
    value = str((definition["metadata"].get("annotations") or {}).get(APPROVED) or "")
    kind = "KubernetesAPIApprovalPolicyConformant"
    if not value:
        text = (
            f'protected groups must have approval annotation "{APPROVED}", '
            "see https://github.com/kubernetes/enhancements/pull/1111"
        )
        condition = Condition(kind, "False", "MissingAnnotation", text)
    elif value.startswith("unapproved"):
        condition = Condition(kind, "False", "UnapprovedAnnotation", f'not approved: "{value}"')
    elif (url := urlsplit(value)).netloc and url.scheme:
        condition = Condition(kind, "True", "ApprovedAnnotation", f"approved in {value}")
    else:
        text = (
            f'protected groups must have approval annotation "{APPROVED}" with either a URL or a reason starting with '
            '"unapproved", see https://github.com/kubernetes/enhancements/pull/1111'
        )
        condition = Condition(kind, "False", "InvalidAnnotation", text)
    before = condition_of(definition, kind) or {}
    if all(before.get(name) == getattr(condition, name) for name in _SAID):
        return None
    return with_conditions(definition, (condition,), wall_s)


def is_ending(definition: Document) -> bool:
    """Whether the definition is deleted and waits for the deletion of its objects."""
    meta = definition["metadata"]
    return bool(meta.get("deletionTimestamp")) and FINALIZER in (meta.get("finalizers") or ())


def ending(definition: Document, wall_s: float) -> Document:
    """Return the definition with the status of one whose objects are being deleted."""
    text = "CustomResource deletion is in progress"
    return with_conditions(definition, (Condition("Terminating", "True", "InstanceDeletionInProgress", text),), wall_s)


def ending_failed(definition: Document, reason: str, message: str, wall_s: float) -> Document:
    """Return the definition with the status of one whose objects could not be deleted; `reason`:
    InstanceDeletionFailed.
    """
    return with_conditions(definition, (Condition("Terminating", "True", reason, message),), wall_s)


def without_finalizer(definition: Document, wall_s: float) -> Document:
    """Return the definition without its finalizer, since no objects of its kind are left."""
    completed = Condition("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
    if not is_true(definition, "Established"):
        completed = Condition("Terminating", "False", "NeverEstablished", "resource was never established")
    done = with_conditions(definition, (completed,), wall_s)
    finalizers = [each for each in definition["metadata"].get("finalizers") or () if each != FINALIZER]
    return {**done, "metadata": {**done["metadata"], "finalizers": finalizers}}
