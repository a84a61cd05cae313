"""Definition of a KWOK kind, and the pods that its documents apply to. Pure.

A kind is a file of `kinds/` that defines `KIND`. A document of the plain kind applies to the pod of its
namespace and name; one of the cluster kind applies to all pods that its selector selects. An entry without
containers applies to those that no other entry names.
Source: kubernetes-sigs/kwok pkg/apis/internalversion/object_selector.go, pkg/kwok/server; simulator 5.4.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from services.api.meta import Key

API_VERSION: Final = "kwok.x-k8s.io/v1alpha1"
CLUSTER: Final = "Cluster"


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of a document's parts: camelCase names; unknown fields are an error that names them.

    Raises: ValueError from the constructor, beginning with the field below this part: `.value: want …`.
    """


class Selector(Part, frozen=True):
    """Selector of pods: an empty list selects all."""

    match_namespaces: tuple[str, ...] = ()
    match_names: tuple[str, ...] = ()

    def matches(self, key: Key) -> bool:
        """Whether the selector matches the pod."""
        return (not self.match_namespaces or key.namespace in self.match_namespaces) and (
            not self.match_names or key.name in self.match_names
        )


class Entry(Part, frozen=True):
    """Settings of some containers; without any it applies to those that no other entry names."""

    containers: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[object, ...]:
        """The containers it applies to, or other lookup keys."""
        return self.containers


@dataclass(frozen=True)
class Kind:
    """One KWOK kind. `field` of the spec lists the entries. `has_cluster`: there is a Cluster kind with a selector.

    `is_of_pods`: a document of the plain kind applies to one pod. `check`: rules across fields; returns the path of
    an invalid field and the problem.
    """

    name: str
    spec: type[Part]
    field: str
    has_cluster: bool = True
    is_of_pods: bool = True
    check: Callable[[Any], tuple[str, str] | None] = lambda _: None
    unique: str = ""
    """A field of the spec that must be unique among documents."""

    @property
    def names(self) -> tuple[str, ...]:
        """The kinds as documents write them."""
        return (self.name, f"{CLUSTER}{self.name}") if self.has_cluster else (self.name,)


@dataclass(frozen=True)
class Rule:
    """A parsed document. `selector` None: it applies to the pod of its `key`. `folder`: base folder of its files."""

    kind: str
    key: Key
    selector: Selector | None
    spec: Any
    entries: tuple[Any, ...]
    folder: str = ""
    where: str = ""


@dataclass(frozen=True)
class Match:
    """The entry that applies to a container, or a port, and its document."""

    entry: Any
    rule: Rule


class Rules:
    """The documents of one kind, those of pods before those of the cluster."""

    def __init__(self, rules: tuple[Rule, ...] = ()) -> None:
        self.all = rules
        self._of_pods = {rule.key: rule for rule in reversed(rules) if rule.selector is None}
        self._of_cluster = tuple(rule for rule in rules if rule.selector is not None)

    def __bool__(self) -> bool:
        return bool(self.all)

    def find(self, key: Key, what: object) -> Match | None:
        """Return the entry for this container, or port, of the pod.

        A document of the pod itself excludes all others, even without a matching entry; of the cluster's documents the
        first with a matching entry counts.
        """
        own = self._of_pods.get(key)
        for rule in (own,) if own is not None else self._of_cluster:
            if rule.selector is not None and not rule.selector.matches(key):
                continue
            if (entry := _entry(rule.entries, what)) is not None:
                return Match(entry, rule)
        return None

    def has_own(self, key: Key) -> bool:
        """Whether a document applies to this pod alone."""
        return key in self._of_pods


def _entry(entries: tuple[Any, ...], what: object) -> Any:
    named = next((each for each in entries if what in each.names), None)
    return named if named is not None else next((each for each in entries if not each.names), None)
