"""`metadata.managedFields`: the fields of each manager after an update and after an apply.

A manager is identified by its name, its operation (Update or Apply), the subresource it writes through, and,
for an update, the version in which it writes the object. Every rule works on values: entries in, entries out.
Source: KEP-555; upstream `staging/src/k8s.io/apimachinery/pkg/util/managedfields`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from apiserver_fake.extensions.managedfields.comparison import (
    Comparison,
    compare,
    fields_of,
    is_declared,
    merge_by_schema,
    prune_unowned,
    type_errors,
)
from apiserver_fake.extensions.managedfields.fieldset import (
    LEAF,
    NOTHING,
    SELF,
    Fields,
    Path,
    covers,
    difference,
    intersection,
    of,
    overlap,
    paths,
    sort_fields,
    text_of,
    union,
    without_trees,
)
from apiserver_fake.registry.schema.schemas import Shape
from apiserver_fake.registry.validation.formats import value_text
from services.api.errors import UNREADABLE, BadRequest, Conflict
from services.api.meta import Document

APPLY, UPDATE = "Apply", "Update"
BEFORE_FIRST_APPLY = "before-first-apply"
ANCIENT_CHANGES = "ancient-changes"
UPDATERS_MAX = 10
UNKNOWN = "unknown"
KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
LAST_APPLIED_BYTES_MAX = 256 * 1024

_UNMANAGED_METADATA = frozenset(
    (
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    )
)
UNMANAGED = {
    "f:apiVersion": LEAF,
    "f:kind": LEAF,
    "f:metadata": {SELF: LEAF, **{f"f:{name}": LEAF for name in sorted(_UNMANAGED_METADATA)}},
}
"""Fields that no manager has, because the server sets them or the path determines them."""


class Manager(NamedTuple):
    """The identity of a field manager; `api_version` is "" for an apply, so that a manager has one apply entry."""

    name: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        text = _quoted_text(self.name)
        if self.subresource:
            text += f" with subresource {_quoted_text(self.subresource)}"
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text


class Entry(NamedTuple):
    """The fields of a manager, as named in `api_version`, and the time of its last write."""

    api_version: str
    fields: Fields
    time: str = ""


Managed = Mapping[Manager, Entry]
Compare = Callable[[str], Comparison | None]
"""Function that compares the object before and after in a version; None for a version that is no longer served."""


def _quoted_text(text: str) -> str:
    return msgspec.json.encode(text).decode()


class Unreadable(ValueError):
    """An entry of `managedFields` is malformed."""


def decode_managers(entries: Any, *, is_stored: bool = False) -> Managed:
    """Return the managers in a document's `managedFields`. Stored entries are taken as well-formed.

    Raises: Unreadable.
    """
    managers: dict[Manager, Entry] = {}
    for entry in entries or ():
        if not isinstance(entry, dict) or entry.get("fieldsType") != "FieldsV1":
            raise Unreadable(
                f"invalid fieldsType {value_text(entry.get('fieldsType'))}" if isinstance(entry, dict) else "no entry"
            )
        fields, operation = entry.get("fieldsV1") or {}, str(entry.get("operation"))
        if not is_stored:
            if operation not in (APPLY, UPDATE) or not entry.get("apiVersion") or not _is_tree(fields):
                raise Unreadable(f"invalid operation {value_text(operation)}")
            fields = sort_fields(fields)
        version = str(entry.get("apiVersion") or "")
        key = Manager(
            str(entry.get("manager") or UNKNOWN),
            operation,
            version if operation == UPDATE else "",
            str(entry.get("subresource") or ""),
        )
        managers[key] = Entry(version, fields, str(entry.get("time") or ""))
    return managers


def _is_tree(fields: Any) -> bool:
    if not isinstance(fields, dict):
        return False
    for step, node in fields.items():
        if step != SELF and step[:2] not in ("f:", "k:", "v:", "i:"):
            return False
        if step[:2] in ("k:", "v:"):
            try:
                key = msgspec.json.decode(step[2:])
            except UNREADABLE:
                return False
            if step[0] == "k" and not isinstance(key, dict):
                return False
        if not _is_tree(node):
            return False
    return True


def encode_managers(managed: Managed, live: Any = None) -> list[Document]:
    """Return the managers in the form of `managedFields`: applied entries first, then by time, name and
    version.

    `live`: the stored entries; unchanged ones are reused as they are.
    """
    known = {id(each.get("fieldsV1")): each for each in live or ()}

    def place(item: tuple[Manager, Entry]) -> tuple[str, str, str, str, str]:
        manager, entry = item
        return manager.operation, entry.time, manager.name, entry.api_version, manager.subresource

    managed_fields = []
    for manager, entry in sorted(managed.items(), key=place) if len(managed) > 1 else managed.items():
        stored = known.get(id(entry.fields))
        if stored is not None and stored.get("time", "") == entry.time:
            managed_fields.append(stored)
            continue
        managed_fields.append(
            {
                "manager": manager.name,
                "operation": manager.operation,
                "apiVersion": entry.api_version,
                **({"time": entry.time} if entry.time else {}),
                "fieldsType": "FieldsV1",
                "fieldsV1": entry.fields,
                **({"subresource": manager.subresource} if manager.subresource else {}),
            }
        )
    return managed_fields


def of_request(live: Any, sent: Any, *, is_subresource: bool) -> Managed:
    """Return the managers with which a write begins: those it sends, else those of the stored object.

    An empty list (`[]`), or one empty entry (`[{}]`), resets them. A subresource cannot send any, and unreadable
    entries count as not sent.
    """
    if sent is not None and sent != live and not is_subresource:
        if sent in ([], [{}]):
            return {}
        try:
            if managers := decode_managers(sent):
                return managers
        except Unreadable:
            pass
    return decode_managers(live, is_stored=True)


# -- creations


def first(new: Document, shape: Shape, manager: Manager, *, ignored: Fields, time: str) -> Managed:
    """Return the managers of a new object: its creator alone, with all fields of the document.

    The result equals that of `update_managers` for an object that was empty before.
    """
    managed = {name: value for name, value in new.items() if f"f:{name}" not in ignored}
    managed = {name: value for name, value in managed.items() if name not in ("apiVersion", "kind", "metadata")}
    if meta := {name: value for name, value in new["metadata"].items() if name not in _UNMANAGED_METADATA}:
        managed["metadata"] = meta
    change = compare(empty(shape), managed, shape)
    own = union(change.modified, change.added)
    if SELF in own.get("f:metadata", NOTHING):
        own = difference(own, UNMANAGED)
    return {manager: Entry(manager.api_version, own, time)} if own else {}


# -- updates


def update_managers(
    managed: Managed, comparison: Compare, manager: Manager, *, api_version: str, ignored: Fields, time: str
) -> Managed:
    """Return the managers after an update: changed fields belong to the updating manager alone, removed fields
    to none.

    `ignored`: fields that this write cannot change, whatever it sends.
    """
    versions: dict[str, Comparison | None] = {}
    change = _change_in(api_version, comparison, ignored, versions) or Comparison()
    own = difference(union(change.modified, change.added), UNMANAGED)
    before = managed.get(manager)
    # What the manager has already stays as it is: taken from it and given to it again it would be the same.
    has_all = before is not None and own and not change.removed and covers(before.fields, own)
    others = _release_fields(managed, comparison, manager if has_all else None, ignored, versions)
    if has_all and before is not None:
        others[manager] = Entry(api_version, before.fields, time)
    elif own:
        before = others.get(manager)
        others[manager] = Entry(api_version, union(own, before.fields) if before is not None else own, time)
    return _cap_updaters(others)


def _change_in(
    version: str, comparison: Compare, ignored: Fields, known: dict[str, Comparison | None]
) -> Comparison | None:
    """Return how the object changes as a version has it, without what is ignored; None if it is not served."""
    if version not in known:
        change = comparison(version)
        known[version] = None if change is None else change.without(ignored)
    return known[version]


def _release_fields(
    managed: Managed, comparison: Compare, kept: Manager | None, ignored: Fields, versions: dict[str, Comparison | None]
) -> dict[Manager, Entry]:
    """Return the managers without what a change takes from them; from one that is `kept` it takes nothing."""
    result: dict[Manager, Entry] = {}
    for manager, entry in managed.items():
        change = _change_in(entry.api_version, comparison, ignored, versions)
        if change is None:
            continue
        fields = entry.fields
        if manager != kept and not change.is_same:
            for taken in change:
                if taken and overlap(fields, taken):
                    fields = difference(fields, taken)
        if fields:
            result[manager] = entry if fields is entry.fields else entry._replace(fields=fields)
    return result


def _cap_updaters(managed: dict[Manager, Entry]) -> Managed:
    """Merge the oldest updates into one entry a version where there are more than ten."""
    updaters = [manager for manager in managed if manager.operation == UPDATE]
    left = len(updaters)
    if left <= UPDATERS_MAX:
        return managed
    first: dict[str, Manager] = {}
    for manager in sorted(updaters, key=lambda each: (managed[each].time, each)):
        if left <= UPDATERS_MAX:
            break
        entry = managed[manager]
        bucket = Manager(ANCIENT_CHANGES, UPDATE, entry.api_version)
        oldest = first.get(entry.api_version)
        if oldest is None:
            first[entry.api_version] = manager
            continue
        if bucket not in managed:
            managed[bucket] = managed.pop(oldest)
        del managed[manager]
        managed[bucket] = entry._replace(fields=union(entry.fields, managed[bucket].fields))
        left -= 1
    return managed


# -- apply


class Applied(NamedTuple):
    """The result of an apply: the object, and its managers."""

    document: Document
    managed: Managed


class Conflicts(Exception):
    """Fields that other managers own with different values: `(manager, path)`."""

    def __init__(self, found: list[tuple[Manager, Path]]) -> None:
        super().__init__(found)
        self.found = found

    def refusal(self) -> Conflict:
        """Return the 409 that names the conflicts."""
        causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": text_of(path)}
            for manager, path in self.found
        ]
        if len(causes) == 1:
            text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
            return Conflict(text, details={"causes": causes})
        lines = []
        for manager in sorted({manager for manager, _ in self.found}):
            lines.append(f"conflicts with {manager}:")
            lines += [f"- {text_of(path)}" for other, path in self.found if other == manager]
        text = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
        return Conflict(text, details={"causes": causes})


class Version(NamedTuple):
    """One version of a kind for an apply: its name, its type, and a comparison of the object in another version."""

    api_version: str
    shape: Shape
    compare_in: Callable[[Document, Document, str], Comparison | None]


def apply_configuration(
    live: Document | None,
    config: Document,
    version: Version,
    *,
    manager: str,
    subresource: str,
    ignored: Fields,
    is_forced: bool,
    time: str,
) -> Applied:
    """Return the object and its managers after applying a configuration.

    `live`: the object in the version of the configuration; None if it does not exist yet. An object without
    managers, from before its first apply, gets one that owns all its fields. kubectl may take over fields that it
    applied client-side before. Raises: Conflict, BadRequest; also for a configuration that does not fit its type.
    """
    _check(config, version)
    stored: Document = live if live is not None else {}
    managed = decode_managers((stored.get("metadata") or {}).get("managedFields"), is_stored=True)
    before = {name: value for name, value in stored.items() if name not in ("apiVersion", "kind")}
    before = without_managers(before)
    if not managed and live is not None:
        first = Manager(BEFORE_FIRST_APPLY, UPDATE, version.api_version, subresource)
        change = compare(empty(version.shape), before, version.shape)
        managed = update_managers(
            {}, lambda _: change, first, api_version=version.api_version, ignored=ignored, time=time
        )
    key = Manager(manager, APPLY, "", subresource)
    try:
        result = _apply(before, config, version, managed, key, ignored=ignored, is_forced=is_forced, time=time)
    except Conflicts as conflicts:
        left = _beyond_last_applied(conflicts, before, version) if manager == KUBECTL else conflicts
        if left is not None:
            raise left.refusal() from None
        result = _apply(before, config, version, managed, key, ignored=ignored, is_forced=True, time=time)
    if manager == KUBECTL:
        result = result._replace(document=_with_last_applied(result.document, config))
    return result


def empty(shape: Shape) -> Document:
    """Return an empty object of the type: only the object members that are always present."""
    return {name: {} for name in shape.present if shape.member(name).type == "object"}


def _check(config: Document, version: Version) -> None:
    if (sent := config.get("apiVersion")) != version.api_version:
        raise BadRequest(
            f"Incorrect version specified in apply patch. Specified patch version: {sent}, "
            f"expected: {version.api_version}"
        )
    meta = config.get("metadata") or {}
    if meta.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    if not is_declared(config, version.shape) and (faults := [*type_errors(config, version.shape)]):
        group, _, name = version.api_version.rpartition("/")
        what = f"{meta.get('namespace') or ''}/{meta.get('name') or ''}; {group}/{name}, Kind={config.get('kind')}"
        why = faults[0] if len(faults) == 1 else "\n".join(["errors:", *(f"  {fault}" for fault in faults)])
        # Upstream answers 500 (kubernetes/kubernetes#139253); what is wrong is what was sent.
        raise BadRequest(f"failed to create typed patch object ({what}): {why}")


def without_managers(document: Document) -> Document:
    """Return the document without its `managedFields`."""
    meta = document.get("metadata")
    if not isinstance(meta, dict) or "managedFields" not in meta:
        return document
    return {**document, "metadata": {name: value for name, value in meta.items() if name != "managedFields"}}


def _apply(
    before: Document,
    config: Document,
    version: Version,
    managed: Managed,
    key: Manager,
    *,
    ignored: Fields,
    is_forced: bool,
    time: str,
) -> Applied:
    body = {name: value for name, value in config.items() if name not in ("apiVersion", "kind")}
    own = without_trees(fields_of(body, version.shape), ignored)
    last = managed.get(key)
    now = {**managed, key: Entry(version.api_version, own)}
    everything = NOTHING
    for entry in now.values():
        everything = union(everything, entry.fields)
    after = merge_by_schema(before, body, version.shape)
    # Who names what it named before gives nothing up.
    if last is not None and not (last.fields == difference(own, UNMANAGED) and _keeps_empty(body, after)):
        after = prune_unowned(after, last.fields, everything, version.shape)

    def change_in(api_version: str) -> Comparison | None:
        return version.compare_in(before, after, api_version)

    if not is_forced:
        conflicts: list[tuple[Manager, Path]] = []
        for other, entry in sorted(now.items()):
            change = change_in(entry.api_version) if other != key else None
            if change is not None:
                change = change.without(ignored)
                taken = intersection(entry.fields, union(change.modified, change.added))
                conflicts += [(other, path) for path in paths(taken)]
        if conflicts:
            raise Conflicts(conflicts)
    left = _release_fields(now, change_in, key, ignored, {})
    own = difference(own, UNMANAGED)
    if own:
        # Whose apply changes nothing keeps its time, and has none when this is its first.
        moved = time if after != before else last.time if last is not None else ""
        left[key] = Entry(version.api_version, own, moved)
    else:
        left.pop(key, None)
    return Applied(after, left)


_EMPTY = (b"{}", b"[]", b"null")


def _keeps_empty(config: Document, after: Document) -> bool:
    """Whether no object or list that a configuration has empty has got anything, and nothing is null."""
    text = msgspec.json.encode(config)
    return not any(each in text for each in _EMPTY) or _is_full(config, after)


def _is_full(config: Any, after: Any) -> bool:
    if isinstance(config, dict):
        if not config or not isinstance(after, dict):
            return bool(after == {})
        return all(
            _is_full(value, after.get(name)) if isinstance(value, dict | list | None) else True
            for name, value in config.items()
        )
    if isinstance(config, list):
        return isinstance(after, list) and len(config) == len(after) and all(map(_is_full, config, after))
    return config is not None


def _beyond_last_applied(conflicts: Conflicts, before: Document, version: Version) -> Conflicts | None:
    """Return the conflicts that are none over what kubectl applied from its own side; None when no other is left.

    Those fields are kubectl's although its updates have them, as long as they still have the value that it applied.
    """
    text = ((before.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        last = msgspec.json.decode(text or "")
    except UNREADABLE:
        return conflicts
    if not isinstance(last, dict) or last.get("apiVersion") != version.api_version:
        return conflicts
    last = {name: value for name, value in last.items() if name not in ("apiVersion", "kind")}
    allowed = fields_of(last, version.shape)
    for changed in compare(last, before, version.shape):
        allowed = difference(allowed, changed)
    left = [(who, path) for who, path in conflicts.found if not intersection(of([path]), allowed)]
    return Conflicts(left) if left else None


def _with_last_applied(document: Document, config: Document) -> Document:
    """Return the object with kubectl's own record of what it applied, where it has one, brought up to date."""
    meta = document.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return document
    last_applied = {
        **config,
        "metadata": {k: v for k, v in (config.get("metadata") or {}).items() if k != "managedFields"},
    }
    noted = {k: v for k, v in (last_applied["metadata"].get("annotations") or {}).items() if k != LAST_APPLIED}
    if noted or "annotations" in last_applied["metadata"]:
        last_applied["metadata"]["annotations"] = noted
    text = msgspec.json.encode(last_applied, order="sorted").decode() + "\n"
    annotations = {name: value for name, value in annotations.items() if name != LAST_APPLIED}
    if len(text) <= LAST_APPLIED_BYTES_MAX:
        annotations[LAST_APPLIED] = text
    return {**document, "metadata": {**meta, "annotations": annotations}}
