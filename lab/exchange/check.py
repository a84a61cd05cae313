"""Find mistakes in a snapshot, recording or trace before it is replayed, and mend those that can be. Pure.

There are two families: what SimKube's `skctl validate` finds, by its codes, and what makes a replay differ from
what was meant.
SimKube's own: acrlabs/simkube, `sk-cli/src/validation`. Source: simulator 6.3.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from lab.exchange.simkube import TEMPLATES, gvk_of
from lab.exchange.stream import Change, Placed, Stream, kind_of, title_of
from services.api.errors import UNREADABLE
from services.api.kinds.pod import RUN, PodSpec
from services.api.meta import Document, Key, LabelSelector, metadata_of
from services.api.node_selection import may_go_to
from services.api.quantity import amount
from services.api.selectors import from_label_selector

STATUS, ACCOUNT, ENV_SECRET, ENV_CONFIG, VOLUME_SECRET, VOLUME_CONFIG = (
    "W0000",
    "E0001",
    "E0002",
    "E0003",
    "E0004",
    "E0005",
)
BACKWARDS, UNKNOWN, NO_RUN_TIME, TOO_LARGE, NO_NODE, NO_POD = "K0001", "K0002", "K0003", "K0004", "K0005", "K0006"


class Rule(NamedTuple):
    """A kind of mistake. `is_error`: a replay fails by it, or differs; `fix`: what `--fix` does, "" for nothing."""

    code: str
    name: str
    is_error: bool
    about: str
    fix: str = ""


_MISSING = "Pods cannot be created, or do not start, while it is not there."
RULES: Final[dict[str, Rule]] = {
    rule.code: rule
    for rule in (
        Rule(
            STATUS,
            "status_field_populated",
            False,
            "An object that is applied has a status. Controllers write statuses; a client that applies one is "
            "overruled or overrules, and the file is larger for it. Snapshots have them rightly, and are not judged.",
            "the status is removed",
        ),
        Rule(
            ACCOUNT,
            "service_account_missing",
            True,
            f"A pod template names a ServiceAccount that is not there by then. {_MISSING}",
            "the reference is removed: pods run as `default`",
        ),
        Rule(
            ENV_SECRET,
            "envvar_secret_missing",
            True,
            f"An environment variable comes from a Secret that is not there by then. {_MISSING}",
            "the variable is removed",
        ),
        Rule(
            ENV_CONFIG,
            "envvar_configmap_missing",
            True,
            f"An environment variable comes from a ConfigMap that is not there by then. {_MISSING}",
            "the variable is removed",
        ),
        Rule(
            VOLUME_SECRET,
            "volume_secret_missing",
            True,
            f"A volume is a Secret that is not there by then. {_MISSING}",
            "the volume becomes an emptyDir",
        ),
        Rule(
            VOLUME_CONFIG,
            "volume_configmap_missing",
            True,
            f"A volume is a ConfigMap that is not there by then. {_MISSING}",
            "the volume becomes an emptyDir",
        ),
        Rule(
            BACKWARDS,
            "time_going_back",
            True,
            "An event has an earlier time than the one before it. A replay makes it at once, as SimKube does.",
        ),
        Rule(
            UNKNOWN,
            "delete_of_unknown_object",
            True,
            "An object is deleted that nothing in the file has made, or that is deleted already.",
            "the delete is left out",
        ),
        Rule(
            NO_RUN_TIME,
            "pod_without_run_time",
            False,
            "Nothing says how long pods run that are made to end: they run on, and what waits for their end waits.",
        ),
        Rule(
            TOO_LARGE,
            "request_above_every_node",
            True,
            "A pod requests more of a resource than any node of the file offers: it is never scheduled.",
        ),
        Rule(
            NO_NODE,
            "node_selector_without_match",
            True,
            "No node of the file has the labels that a pod's node selector or required node affinity asks for.",
        ),
        Rule(
            NO_POD,
            "selector_without_match",
            False,
            "No pod and no pod template of the file has the labels that a Service's, PodDisruptionBudget's or a "
            "workload's selector asks for.",
        ),
    )
}


class Finding(NamedTuple):
    """One mistake found. `at_s`: seconds after the beginning."""

    code: str
    at_s: float
    where: str
    object: str
    text: str

    def line(self) -> str:
        """Return the finding as one line for people."""
        place = f"{self.where}: " if self.where else ""
        return f"{self.at_s:.3f} s: {place}{self.object}: {self.text}"


_MAKERS: Final = frozenset(("ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job"))


@dataclass
class _PodDemand:
    """Requests of pods, judged once all nodes are known; equal requests are kept once."""

    at_s: float
    where: str
    object: str
    spec: Document


@dataclass
class Checker:
    """Checker of one stream. `has_statuses`: whether objects of its format rightly have statuses."""

    has_statuses: bool
    is_trace: bool = False
    """Whether the stream is a trace: it records only owners, and the run times of their pods."""
    timed: frozenset[tuple[str, str]] = frozenset()
    """Owners whose pods have known run times, `(kind with group, namespace/name)`."""
    known: set[tuple[str, Key]] = field(default_factory=set)
    _nodes: dict[str, tuple[Mapping[str, str], Mapping[str, Any]]] = field(default_factory=dict)
    _asked: dict[bytes, _PodDemand] = field(default_factory=dict)
    _selectors: list[tuple[float, str, str, LabelSelector, str]] = field(default_factory=list)
    _labels: set[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=set)
    _endless: dict[tuple[str, Key], Finding] = field(default_factory=dict)
    _latest: float = 0.0

    def check(self, stream: Stream) -> Iterator[Finding]:
        """Yield the mistakes in the order in which they are found."""
        waiting: list[Placed] = []
        for placed in stream.objects:
            # Everything of the snapshot is there at once: what is needed may stand behind what needs it.
            self.learn(placed.document)
            if _templates(placed.document) or placed.document.get("kind") in ("Service", "PodDisruptionBudget"):
                waiting.append(placed)
            elif not self.has_statuses:
                yield from self._status(0.0, placed.document, placed.where)
        for placed in waiting:
            yield from self._object(0.0, placed.document, placed.where)
        moment: list[Change] = []
        for change in stream.changes:
            if moment and change.at_s != moment[0].at_s:
                yield from self._moment(moment)
                moment = []
            if change.at_s < self._latest:
                yield Finding(
                    BACKWARDS, change.at_s, change.where, _change_name(change), f"it follows {self._latest:.3f} s"
                )
            self._latest = max(self._latest, change.at_s)
            moment.append(change)
            if len(moment) >= 10_000:
                yield from self._moment(moment)
                moment = []
        yield from self._moment(moment)
        yield from self._at_end()

    def _moment(self, changes: list[Change]) -> Iterator[Finding]:
        for change in changes:
            if change.method in ("create", "update") and change.document is not None:
                self.learn(change.document)
        for change in changes:
            at = (kind_of(change.resource), change.key)
            if change.method == "delete":
                if at not in self.known:
                    yield Finding(UNKNOWN, change.at_s, change.where, _change_name(change), "nothing has made it")
                self.known.discard(at)
                self._endless.pop(at, None)
            elif change.document is not None and change.method != "patch":
                yield from self._object(change.at_s, change.document, change.where)

    def learn(self, document: Document) -> None:
        """Remember an object as known."""
        kind = str(document.get("kind") or "")
        metadata = metadata_of(document)
        key = Key(str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        self.known.add((kind, key))
        if kind == "Node":
            offered = (document.get("status") or {}).get("allocatable") or (document.get("status") or {}).get(
                "capacity"
            )
            self._nodes[key.name] = (metadata.get("labels") or {}, offered or {})
        for template in _templates(document):
            labels = metadata_of(template).get("labels") or {}
            self._labels.add((key.namespace, tuple(sorted((str(k), str(v)) for k, v in labels.items()))))

    def _status(self, at_s: float, document: Document, where: str) -> Iterator[Finding]:
        if not self.has_statuses and document.get("status"):
            yield Finding(STATUS, at_s, where, title_of(document), _status_text(document))

    def _object(self, at_s: float, document: Document, where: str) -> Iterator[Finding]:
        yield from self._status(at_s, document, where)
        kind, gvk = str(document.get("kind") or ""), gvk_of(document)
        place = str(metadata_of(document).get("namespace") or "")
        templates = _templates(document)
        for template in templates:
            spec = template.get("spec") or {}
            for code, reference in missing(spec, place, self.known):
                yield Finding(code, at_s, where, title_of(document), _missing_text(reference))
            if isinstance(spec, dict):
                self._ask(at_s, document, where, spec)
        yield from self._run_time(at_s, document, where, gvk, place, templates)
        selector = (document.get("spec") or {}).get("selector")
        if isinstance(selector, dict) and selector and kind in (*_MAKERS, "Service", "PodDisruptionBudget"):
            wanted = {"matchLabels": selector} if kind == "Service" else selector
            try:
                converted = msgspec.convert(wanted, LabelSelector)
            except UNREADABLE:
                return
            if not (kind == "Job" and not templates):
                self._selectors.append((at_s, where, title_of(document), converted, place))

    def _run_time(
        self, at_s: float, document: Document, where: str, gvk: str, place: str, templates: list[Document]
    ) -> Iterator[Finding]:
        name = str(metadata_of(document).get("name") or "")
        if self.is_trace:
            key = (gvk, f"{place}/{name}" if place else name)
            if templates and key not in self.timed and any(_ends(each) for each in templates):
                yield Finding(NO_RUN_TIME, at_s, where, title_of(document), "its pods have no lifecycles")
                self.timed |= {key}
            return
        if document.get("kind") != "Pod":
            return
        at = ("Pod", Key(place, name))
        is_over = (document.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        notes = metadata_of(document).get("annotations") or {}
        is_said = any(each == RUN or str(each).startswith(f"{RUN}.") for each in notes)
        has_command = any(
            each.get("command") or each.get("args") for each in (document.get("spec") or {}).get("containers") or ()
        )
        if is_over or is_said or has_command or not _ends(document):
            self._endless.pop(at, None)
        elif at not in self._endless:
            self._endless[at] = Finding(NO_RUN_TIME, at_s, where, title_of(document), "nothing says when it ends")

    def _ask(self, at_s: float, document: Document, where: str, spec: Document) -> None:
        asked = {name: spec.get(name) for name in ("nodeSelector", "affinity", "overhead")}
        asked["containers"] = [(each or {}).get("resources") for each in spec.get("containers") or ()]
        asked["initContainers"] = [(each or {}).get("resources") for each in spec.get("initContainers") or ()]
        code = msgspec.json.encode(asked, order="sorted")
        if code not in self._asked:
            self._asked[code] = _PodDemand(at_s, where, title_of(document), spec)

    def _at_end(self) -> Iterator[Finding]:
        yield from self._endless.values()
        if self._nodes:
            for demand in self._asked.values():
                yield from self._fits(demand)
        for at_s, where, name, selector, place in self._selectors:
            matcher = from_label_selector(selector)
            if not any(space == place and matcher.matches(dict(labels)) for space, labels in self._labels):
                yield Finding(NO_POD, at_s, where, name, "its selector matches no pod")

    def _fits(self, asked: _PodDemand) -> Iterator[Finding]:
        for resource, wanted in requests_of(asked.spec).items():
            most = max((_amount(resource, offered.get(resource)) for _, offered in self._nodes.values()), default=0)
            if wanted > most:
                shown = "none offers it" if not most else f"the largest node offers {most:,}"
                yield Finding(
                    TOO_LARGE, asked.at_s, asked.where, asked.object, f"{resource} {wanted:,} is requested, {shown}"
                )
        try:
            spec = msgspec.convert({k: asked.spec[k] for k in ("nodeSelector", "affinity") if k in asked.spec}, PodSpec)
        except UNREADABLE:
            return
        if not any(may_go_to(spec, name, labels) for name, (labels, _) in self._nodes.items()):
            yield Finding(NO_NODE, asked.at_s, asked.where, asked.object, "no node has the labels that it asks for")


def _status_text(document: Document) -> str:
    return f"its status has {len(document['status'])} fields"


def _missing_text(reference: str) -> str:
    return f"{reference} is not there"


def _change_name(change: Change) -> str:
    return f"{kind_of(change.resource)} {change.key}"


def _ends(template: Document) -> bool:
    return (template.get("spec") or {}).get("restartPolicy") in ("Never", "OnFailure")


def _amount(resource: str, text: Any) -> int:
    try:
        return amount(resource, str(text)) if text is not None else 0
    except ValueError:
        return 0


def requests_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return a pod's requests: the larger of its containers' sum and its greatest init container, plus its overhead."""
    total: dict[str, int] = {}
    greatest: dict[str, int] = {}
    for field_name in ("containers", "initContainers"):
        for container in spec.get(field_name) or ():
            resources = (container or {}).get("resources") or {}
            wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            is_added = field_name == "containers" or container.get("restartPolicy") == "Always"
            for name, text in wanted.items():
                if is_added:
                    total[name] = total.get(name, 0) + _amount(name, text)
                else:
                    greatest[name] = max(greatest.get(name, 0), _amount(name, text))
    for name, value in greatest.items():
        total[name] = max(total.get(name, 0), value)
    for name, text in (spec.get("overhead") or {}).items():
        total[name] = total.get(name, 0) + _amount(name, text)
    return total


def _templates(document: Document) -> list[Document]:
    """Return the pod templates of an object, itself where it is a pod."""
    templates = []
    for path in TEMPLATES.get(gvk_of(document), ()):
        value: Any = document
        for word in filter(None, path.split("/")):
            value = value.get(word) if isinstance(value, dict) else None
        if isinstance(value, dict):
            templates.append(value)
    return templates


def _names(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield `(code, kind, name)` of what a pod's spec refers to and needs."""
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if isinstance(account, str) and account != "default":
        yield ACCOUNT, "ServiceAccount", account
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        for entry in container.get("env") or ():
            for code, kind, reference in _env_references(entry):
                yield code, kind, str(reference.get("name") or "")
        for entry in container.get("envFrom") or ():
            for code, kind, reference in _env_references(entry):
                yield code, kind, str(reference.get("name") or "")
    for volume in spec.get("volumes") or ():
        secret, config = volume.get("secret"), volume.get("configMap")
        if isinstance(secret, dict) and not secret.get("optional"):
            yield VOLUME_SECRET, "Secret", str(secret.get("secretName") or "")
        if isinstance(config, dict) and not config.get("optional") and config.get("name") != "kube-root-ca.crt":
            yield VOLUME_CONFIG, "ConfigMap", str(config.get("name") or "")


def _env_references(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    source = entry.get("valueFrom") or entry
    for field_name, code, kind in (
        ("secretKeyRef", ENV_SECRET, "Secret"),
        ("secretRef", ENV_SECRET, "Secret"),
        ("configMapKeyRef", ENV_CONFIG, "ConfigMap"),
        ("configMapRef", ENV_CONFIG, "ConfigMap"),
    ):
        reference = source.get(field_name)
        if isinstance(reference, dict) and not reference.get("optional"):
            yield code, kind, reference


def missing(spec: Mapping[str, Any], namespace: str, known: Container[tuple[str, Key]]) -> list[tuple[str, str]]:
    """Return `(code, object)` for each object that a pod's spec needs and that is missing; each once."""
    found: dict[tuple[str, str], None] = {}
    for code, kind, name in _names(spec):
        if (kind, Key(namespace, name)) not in known:
            found[code, f"{kind} {namespace}/{name}"] = None
    return list(found)


class Mender:
    """An edit that mends the findings that can be mended, object by object, while a file is rewritten. `fixed`: counts
    by code.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._found = {(each.code, each.at_s, each.object, each.text) for each in findings}
        self._deletes = {each[:3] for each in self._found if each[0] == UNKNOWN}
        self.fixed: dict[str, int] = {}

    def _count(self, code: str) -> bool:
        self.fixed[code] = self.fixed.get(code, 0) + 1
        return True

    def __call__(self, at_s: float, document: Document, *, is_deleted: bool = False, kind: str = "") -> Document | None:
        """Return the object as it should be; None for a delete of an unknown object."""
        name = title_of(document)
        if is_deleted:
            if (UNKNOWN, at_s, name) not in self._deletes:
                return document
            self._count(UNKNOWN)
            return None
        new_document = document
        if document.get("status") and (STATUS, at_s, name, _status_text(document)) in self._found:
            new_document = {field: value for field, value in document.items() if field != "status"}
            self._count(STATUS)
        place = str(metadata_of(new_document).get("namespace") or "")

        def is_missing(code: str, kind: str, wanted: Any) -> bool:
            found = (code, at_s, name, _missing_text(f"{kind} {place}/{wanted}")) in self._found
            return found and self._count(code)

        if _templates(new_document):
            new_document = copy.deepcopy(new_document)
            for template in _templates(new_document):
                _mend(template.get("spec") or {}, is_missing)
        return new_document


def _mend(spec: Document, is_missing: Callable[[str, str, Any], bool]) -> None:
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account and is_missing(ACCOUNT, "ServiceAccount", account):
        spec.pop("serviceAccountName", None)
        spec.pop("serviceAccount", None)
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        for name in ("env", "envFrom"):
            kept = []
            for entry in container.get(name) or ():
                references = list(_env_references(entry))
                if not any(is_missing(code, kind, wanted.get("name")) for code, kind, wanted in references):
                    kept.append(entry)
            if name in container:
                container[name] = kept
    for volume in spec.get("volumes") or ():
        for name, code, kind, key in (
            ("secret", VOLUME_SECRET, "Secret", "secretName"),
            ("configMap", VOLUME_CONFIG, "ConfigMap", "name"),
        ):
            held = volume.get(name)
            if isinstance(held, dict) and is_missing(code, kind, held.get(key)):
                del volume[name]
                volume["emptyDir"] = {}
