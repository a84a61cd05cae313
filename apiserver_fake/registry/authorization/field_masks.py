"""The fields that a write changes, and whether a rule's mask contains them. Pure."""

from collections.abc import Callable, Iterator
from typing import Any

from services.api.errors import Forbidden
from services.api.identity import Identity
from services.api.meta import Document
from services.api.wire import Request
from services.runtime.roles import Rule


def check_mask(identity: Identity, request: Request, rule: Rule, old: Document, new: Document) -> None:
    """Raise Forbidden naming the first changed path that the rule's mask does not contain."""
    for path, _, after in changes(old, new):
        if not any(_is_below(path, allowed) for allowed in rule.may_change):
            raise _forbidden_change(identity, request, path)
        if rule.to_unknown and path.endswith(".status") and after != "Unknown":
            raise _forbidden_change(identity, request, path)


def check_changes(
    identity: Identity, request: Request, old: Document, new: Document, may: Callable[[str, Any, Any], bool]
) -> None:
    """Raise Forbidden naming the first changed path that `may(path, before, after)` does not allow."""
    for path, before, after in changes(old, new):
        if not may(path, before, after):
            raise _forbidden_change(identity, request, path)


def _forbidden_change(identity: Identity, request: Request, path: str) -> Forbidden:
    return Forbidden(
        f'{request.resource} "{request.name}" is forbidden: User "{identity.user}" may not change {path}',
        details={
            "name": request.name,
            "kind": request.resource.partition(".")[0],
            "causes": [{"reason": "FieldValueForbidden", "field": path, "message": "may not be changed"}],
        },
    )


def _is_below(path: str, allowed: str) -> bool:
    return path.startswith(allowed) and (len(path) == len(allowed) or path[len(allowed)] in ".[")


_KEYED = {"conditions": "type", "taints": "key"}
_SERVERS_OWN = frozenset(("metadata.resourceVersion", "metadata.generation", "metadata.managedFields"))


def changes(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield `(path, before, after)` for every leaf that differs, in document order.

    Conditions are named by type and taints by key (`status.conditions[Ready].status`); other lists
    are leaves. Versions that the server counts itself are left out.
    """
    if old is new or path in _SERVERS_OWN:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from changes(old.get(name), new.get(name), f"{path}.{name}" if path else name)
        return
    key = _KEYED.get(path.rpartition(".")[2])
    if key and (isinstance(old, list) or isinstance(new, list)):
        before, after = _by_key(old, key), _by_key(new, key)
        if before is not None and after is not None:
            for name in dict.fromkeys([*before, *after]):
                yield from _entry_changes(before.get(name), after.get(name), f"{path}[{name}]")
            return
    if isinstance(old, dict) and new is None:
        yield from changes(old, {}, path) if old else iter(((path, old, new),))
    elif isinstance(new, dict) and old is None:
        if new:
            yield from changes({}, new, path)
    elif old != new and not (old in (None, []) and new in (None, [])):
        yield path, old, new


def _entry_changes(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(old, list) or isinstance(new, list) or old is None or new is None:
        # Several taints of one key differ in effect: compared as a whole.
        if old != new:
            yield path, old, new
            if isinstance(new, dict) and "status" in new:
                yield f"{path}.status", None, new["status"]
        return
    yield from changes(old, new, path)


def _by_key(entries: Any, key: str) -> dict[str, Any] | None:
    entries_by_key: dict[str, Any] = {}
    for entry in entries or []:
        if not isinstance(entry, dict) or not isinstance(entry.get(key), str):
            return None
        name = entry[key]
        if name in entries_by_key:
            before = entries_by_key[name]
            entries_by_key[name] = [*before, entry] if isinstance(before, list) else [before, entry]
        else:
            entries_by_key[name] = entry
    return entries_by_key
