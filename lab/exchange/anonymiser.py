"""Anonymise files: every name becomes another, and decisions that depend on names stay the same.

Names are replaced by their rank within their kind, so that their order stays, and with it every tie that is
broken by name. In a stream, where the ranks are not known yet, they are replaced by their HMAC, which keeps no
order. Texts that the system compares with each other (labels and selectors, taints and tolerations, owners and
references) become equal texts. Annotations, environments, commands, messages, addresses and the contents of
ConfigMaps and Secrets are dropped. Fields without a rule are replaced as well. Pure but for reading and writing
files. Source: simulator 10.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from lab.exchange.format import Edit, Format, Reading, Writer, format_of, formats, open_stream
from lab.exchange.reading import Source
from lab.exchange.stream import Change, Refused, Stream, kind_of
from services.api.meta import Document, Key
from services.api.times import format_time, parse_time

WALL_S: Final = 1_767_225_600.0
"""Time of the beginning, 2026-01-01T00:00:00Z, for a file whose times are relative to it."""
SALT_MIN: Final = 16

WORKLOAD: Final = "app"
"""Category of pods and their owners, which share ranks: a pod's name begins with its owner's and sorts by it."""
_CATEGORIES: Final = {
    **dict.fromkeys(
        ("Pod", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"),
        WORKLOAD,
    ),
    "Namespace": "ns",
    "Node": "node",
    "CSINode": "node",
    "ServiceAccount": "sa",
    "PriorityClass": "class",
    "StorageClass": "storage",
    "PersistentVolumeClaim": "claim",
    "PersistentVolume": "volume",
    "ConfigMap": "config",
    "Secret": "secret",
    "Service": "svc",
    "Endpoints": "svc",
    "User": "user",
    "Group": "group",
}
_KEPT: Final = {
    "ns": ("default", "kube-node-lease", "kube-public", "kube-system"),
    "sa": ("default",),
    "config": ("kube-root-ca.crt",),
    "svc": ("kubernetes",),
    "scheduler": ("default-scheduler",),
    "class": ("system-cluster-critical", "system-node-critical"),
    # Of the volume that every pod is given for its service account.
    "entry": ("ca.crt",),
    "file": ("ca.crt", "namespace", "token"),
}
_WELL_KNOWN_KEY: Final = re.compile(r"(?:[\w.-]+\.)?(?:kubernetes\.io|k8s\.io|keplab\.dev)/[\w.-]+|metadata\.name")
_KEY_CATEGORIES: Final = {
    "kubernetes.io/hostname": "node",
    "metadata.name": "node",
    "kubernetes.io/metadata.name": "ns",
    "statefulset.kubernetes.io/pod-name": WORKLOAD,
    "batch.kubernetes.io/job-name": WORKLOAD,
    "job-name": WORKLOAD,
    "batch.kubernetes.io/controller-uid": "uid",
    "controller-uid": "uid",
    "kubernetes.io/service-name": "svc",
    # By these controllers know which template a ReplicaSet and a pod have.
    "pod-template-hash": "value",
    "controller-revision-hash": "controllerrevision",
}
_KEPT_VALUES: Final = frozenset(
    (
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
    )
)
_ANNOTATIONS: Final = re.compile(
    r"keplab\.dev/(?:run|usage|memory|resize-fails|http)(?:\..*)?|kwok\.x-k8s\.io/(?:node|usage-cpu|usage-memory)"
    r"|deployment\.kubernetes\.io/(?:revision|desired-replicas|max-replicas)|storageclass\.kubernetes\.io/is-default-class"
)
_DROPPED: Final = frozenset(
    (
        "managedFields",
        "selfLink",
        "env",
        "envFrom",
        "args",
        "command",
        "message",
        "podIP",
        "hostIP",
        "podIPs",
        "hostIPs",
        "clusterIP",
        "clusterIPs",
        "externalIPs",
        "loadBalancerIP",
        "loadBalancer",
        "addresses",
        "podCIDR",
        "podCIDRs",
        "machineID",
        "systemUUID",
        "parameters",
        "volumeAttributes",
        "mountOptions",
        "externalName",
        "dnsConfig",
        "hostAliases",
        "caBundle",
        "annotations",
        "subsets",
        "endpoints",
        "exec",
        "httpGet",
        "tcpSocket",
        "grpc",
    )
)
_FIELDS: Final = {
    "nodeName": "node",
    "nominatedNodeName": "node",
    "serviceAccountName": "sa",
    "serviceAccount": "sa",
    "priorityClassName": "class",
    "storageClassName": "storage",
    "runtimeClassName": "runtime",
    "claimName": "claim",
    "volumeName": "volume",
    "persistentVolumeName": "volume",
    "secretName": "secret",
    "serviceName": "svc",
    "schedulerName": "scheduler",
    "deviceClassName": "deviceclass",
    "resourceClaimName": "resourceclaim",
    "resourceClaimTemplateName": "resourceclaimtemplate",
    "image": "image",
    "imageID": "image",
    "namespace": "ns",
    "uid": "uid",
    "bootID": "uid",
    "topologyKey": "key",
    "currentRevision": "controllerrevision",
    "updateRevision": "controllerrevision",
    "mountPath": "path",
    "path": "path",
    "subPath": "path",
    "hostname": "host",
    "subdomain": "host",
    "host": "host",
    "username": "user",
    "user": "user",
    "driver": "driver",
    "pool": "pool",
    "device": "device",
}
_LISTS: Final = {
    "namespaces": "ns",
    "names": "image",
    "matchLabelKeys": "key",
    "mismatchLabelKeys": "key",
    "finalizers": "key",
    "resourceNames": "name",
    "nodeNames": "node",
}
_NAMED: Final = {
    "containers": "container",
    "initContainers": "container",
    "ephemeralContainers": "container",
    "containerStatuses": "container",
    "initContainerStatuses": "container",
    "ephemeralContainerStatuses": "container",
    "volumes": "mount",
    "volumeMounts": "mount",
    "volumeDevices": "mount",
    "ports": "port",
    "imagePullSecrets": "secret",
    "secrets": "secret",
    "configMap": "config",
    "configMapRef": "config",
    "configMapKeyRef": "config",
    "secretRef": "secret",
    "secretKeyRef": "secret",
    "resourceClaims": "podclaim",
    "claims": "podclaim",
    "resourceClaimStatuses": "podclaim",
    "volumesAttached": "volume",
    "devices": "device",
}
_LABELS: Final = frozenset(("labels", "matchLabels", "nodeSelector", "selector"))
_AMOUNTS: Final = frozenset(
    ("requests", "limits", "capacity", "allocatable", "hard", "used", "overhead", "allocatedResources", "allocated")
)
_WORDS: Final = frozenset(
    [
        "apiVersion",
        "kind",
        "type",
        "status",
        "phase",
        "effect",
        "operator",
        "restartPolicy",
        "dnsPolicy",
        "imagePullPolicy",
        "terminationMessagePolicy",
        "protocol",
        "concurrencyPolicy",
        "schedule",
        "whenUnsatisfiable",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "preemptionPolicy",
        "qosClass",
        "volumeMode",
        "persistentVolumeReclaimPolicy",
        "reclaimPolicy",
        "volumeBindingMode",
        "podManagementPolicy",
        "completionMode",
        "podReplacementPolicy",
        "apiGroup",
        "apiGroups",
        "resources",
        "verbs",
        "accessModes",
        "sessionAffinity",
        "internalTrafficPolicy",
        "resource",
        "externalTrafficPolicy",
        "ipFamilyPolicy",
        "ipFamilies",
        "resourceName",
        "restartPolicyRules",
        "unhealthyPodEvictionPolicy",
        "whenDeleted",
        "whenScaled",
        "architecture",
        "operatingSystem",
        "kubeletVersion",
        "kubeProxyVersion",
        "$patch",
        "terminationMessagePath",
        "action",
        "stopSignal",
        "conditionType",
        "scope",
        "resize",
    ]
)
"""Fields whose values are words defined by Kubernetes."""
_AMOUNT: Final = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[numkMGTPE]i?|Ki|%|s)?")
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_OFFSET: Final = re.compile(r"\$\(time-offset-nanosecond -?\d{1,19}\)")
_CAMEL: Final = re.compile(r"(?:[A-Z][a-z0-9]*){2,8}")
_SUBSCRIPT: Final = re.compile(r"\['(.*)'\]")
_ORDINAL: Final = re.compile(r"(.+)-(\d{1,9})")
Visit = Callable[[str, str], str]


def read_salt(path: Path) -> bytes:
    """Return the contents of a salt file. Raises: Refused, if it is too short to be a secret."""
    try:
        salt = path.read_bytes().strip()
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror or error}") from None
    if len(salt) < SALT_MIN:
        raise Refused(f"{path}: {len(salt)} bytes: want at least {SALT_MIN}, for example of `openssl rand -hex 32`")
    return salt


class Names(Protocol):
    """Function that maps texts to their replacements."""

    def __call__(self, category: str, text: str) -> str:
        """Return the replacement of a text of a category."""


class Keyed:
    """Replacement by HMAC-SHA256: the same text always gets the same replacement; order is not kept."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt

    def __call__(self, category: str, text: str) -> str:
        """Return the replacement of a text."""
        if _is_kept(category, text):
            return text
        digest = hmac.new(self._salt, f"{category}/{text}".encode(), hashlib.sha256).hexdigest()
        return _shape_code(category, digest[:16])


class Ranked:
    """Replacement by rank: collect the texts first, then `settle`."""

    def __init__(self) -> None:
        self._texts: dict[str, set[str]] = {}
        self._becomes: dict[str, dict[str, str]] = {}

    def __call__(self, category: str, text: str) -> str:
        """Return the replacement of a text; before `settle`, collect the text and return it unchanged."""
        if _is_kept(category, text):
            return text
        if not self._becomes:
            self._texts.setdefault(category, set()).add(text)
            return text
        return self._becomes[category][text]

    def settle(self) -> None:
        """Give each collected text its rank; from now on texts are replaced."""
        for category, texts in self._texts.items():
            self._becomes[category] = _rank_names(category, sorted(texts))
        self._becomes.setdefault("", {})
        self._texts.clear()


def _is_kept(category: str, text: str) -> bool:
    return (
        not text
        or text in _KEPT.get(category, ())
        or (text.startswith("system:") and category in ("user", "group", "name"))
    )


def _shape_code(category: str, code: str) -> str:
    if category == "path":
        return f"/{code}"
    if category == "uid":
        code = code.rjust(32, "0")
        return "-".join((code[:8], code[8:12], code[12:16], code[16:20], code[20:]))
    return f"{category}-{code}"


def _rank_names(category: str, texts: Sequence[str]) -> dict[str, str]:
    """Return what sorted texts become, sorted alike, also among the names that are kept."""
    width = max(3, len(str(len(texts))))
    kept = sorted(_KEPT.get(category, ()))
    new_names: dict[str, str] = {}
    rank = 0
    owners: dict[str, str] = {}
    for text in texts:
        ordinal = _ORDINAL.fullmatch(text) if category == WORKLOAD else None
        if ordinal is not None and ordinal[1] in owners:
            # The number of a StatefulSet's pod is a part of what it is.
            new_names[text] = f"{owners[ordinal[1]]}-{ordinal[2]}"
            continue
        code = f"{rank:0{width}}" if category != "uid" else f"{rank:032x}"
        new_name = _shape_code(category, code)
        below = [each for each in kept if each < text]
        above = [each for each in kept if each > text]
        if category != "uid" and kept:
            if not below and new_name >= above[0]:
                new_name = f"a-{new_name}"
            elif below and (new_name <= below[-1] or (above and new_name >= above[0])):
                new_name = f"{below[-1]}-{new_name}"
        new_names[text] = owners[text] = new_name
        rank += 1
    return new_names


class Anonymiser:
    """Replacer of names in documents. `names`: replacements of texts; `shift_s`: seconds by which times are moved."""

    def __init__(self, names: Names, shift_s: float = 0.0) -> None:
        self._names, self._shift_s = names, shift_s
        self.latest_s = 0.0

    def document(self, document: Document, kind: str = "") -> Document:
        """Return an object, or a patch of one of that kind, with its names replaced."""
        kind = kind or str(document.get("kind") or "")
        new_document: Document = {}
        for name, value in document.items():
            if name == "metadata" and isinstance(value, dict):
                new_document[name] = self._metadata(value, kind)
            elif name in ("data", "stringData", "binaryData") and kind in ("ConfigMap", "Secret"):
                new_document[name] = self._contents(value)
            elif name == "parameters" or name == "provisioner":
                if name == "provisioner":
                    new_document[name] = (
                        value if str(value).startswith("kubernetes.io/") else self._names("driver", str(value))
                    )
            else:
                kept, new_value = self._member(name, value, kind)
                if kept:
                    new_document[name] = new_value
        return new_document

    def change(self, change: Change) -> Change:
        """Return a change with its names replaced."""
        kind = kind_of(change.resource)
        body = None if change.document is None else self.document(change.document, kind)
        place = self._names("ns", change.namespace)
        return replace(change, namespace=place, name=self._names(_category(kind), change.name), document=body, where="")

    def key(self, kind: str, key: Key) -> Key:
        """Return the replacements of an object's namespace and name."""
        return Key(self._names("ns", key.namespace), self._names(_category(kind), key.name))

    def _metadata(self, metadata: Mapping[str, Any], kind: str) -> Document:
        new_metadata: Document = {}
        for name, value in metadata.items():
            if name == "name" and isinstance(value, str):
                new_metadata[name] = self._names(_category(kind), value)
            elif name == "generateName" and isinstance(value, str):
                # What is generated begins with its maker's name and a dash.
                new_metadata[name] = self._names(_category(kind), value.rstrip("-") or value) + "-"
            elif name == "annotations" and isinstance(value, dict):
                kept = {key: each for key, each in value.items() if _ANNOTATIONS.fullmatch(key)}
                if kept:
                    new_metadata[name] = kept
            else:
                is_kept, new_value = self._member(name, value, kind)
                if is_kept:
                    new_metadata[name] = new_value
        return new_metadata

    def _contents(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return None
        return {self._names("entry", k): v if v is None else "x" * len(str(v)) for k, v in value.items()}

    def _member(self, name: str, value: Any, kind: str) -> tuple[bool, Any]:
        """Return whether a member is kept, and as what."""
        field = name.partition("/")[2] if name.startswith("$") and "/" in name else name
        if field in _DROPPED:
            return (True, "None") if field == "clusterIP" and value == "None" else (False, None)
        return True, self._value(value, field, kind)

    def _value(self, value: Any, field: str, kind: str, named: str = "name") -> Any:
        if isinstance(value, str):
            return self._text(value, field)
        if isinstance(value, dict):
            return self._object(value, field, kind, named)
        if isinstance(value, list):
            return self._list(value, field, kind)
        return value

    def _list(self, value: list[Any], field: str, kind: str) -> Any:
        if category := _LISTS.get(field):
            return [
                (self._key(each) if category == "key" else self._names(category, each))
                if isinstance(each, str)
                else each
                for each in value
            ]
        return [self._value(each, field, kind) for each in value]

    def _object(self, value: Mapping[str, Any], field: str, kind: str, named: str) -> Document:
        if field in _AMOUNTS and all(isinstance(each, str | int | float | None) for each in value.values()):
            return dict(value)
        if field in _LABELS and not any(isinstance(each, dict | list) for each in value.values()):
            return {self._key(k): v if v is None else self._label(k, str(v)) for k, v in value.items()}
        if field in ("matchExpressions", "matchFields") or (field in ("taints", "tolerations") and "effect" in value):
            return self._expression(value)
        if field in ("tolerations", "taints"):
            return self._expression(value)
        new_object: Document = {}
        own = _category(str(value["kind"])) if isinstance(value.get("kind"), str) else _NAMED.get(field, named)
        for name, member in value.items():
            if name == "name" and isinstance(member, str):
                new_object[name] = self._names(own, member)
            elif name == "metadata" and isinstance(member, dict):
                new_object[name] = self._metadata(member, "Pod" if field == "template" else kind)
            elif name == "key" and field == "items" and isinstance(member, str):
                new_object[name] = self._names("entry", member)
            elif name in ("containerPort", "targetPort", "port") and isinstance(member, str):
                new_object[name] = self._names("port", member)
            else:
                is_kept, new_value = self._member(name, member, kind)
                if is_kept:
                    new_object[name] = new_value
        return new_object

    def _expression(self, value: Mapping[str, Any]) -> Document:
        new_expression = dict(value)
        key = value.get("key")
        if isinstance(key, str) and key:
            new_expression["key"] = self._key(key)
            if isinstance(value.get("values"), list):
                new_expression["values"] = [self._label(key, str(each)) for each in value["values"]]
            if isinstance(value.get("value"), str):
                new_expression["value"] = self._label(key, value["value"])
        if isinstance(value.get("timeAdded"), str):
            new_expression["timeAdded"] = self._text(value["timeAdded"], "timeAdded")
        return new_expression

    def _key(self, key: str) -> str:
        return key if _WELL_KNOWN_KEY.fullmatch(key) or key in _KEY_CATEGORIES else self._names("key", key)

    def _label(self, key: str, value: str) -> str:
        # A number may be compared as one (Gt, Lt).
        if key in _KEPT_VALUES or re.fullmatch(r"-?\d{1,18}|true|false", value):
            return value
        return self._names(_KEY_CATEGORIES.get(key, "value"), value)

    def _text(self, text: str, field: str) -> str:
        if field in _WORDS or not text:
            return text
        if _OFFSET.fullmatch(text):
            return text
        if _MOMENT.fullmatch(text):
            return self._moment(text)
        if field == "fieldPath":
            return _SUBSCRIPT.sub(lambda found: f"['{self._key(found[1])}']", text)
        if category := _FIELDS.get(field):
            if category == "path" and not text.startswith("/"):
                category = "file"  # below a volume, where a path may not begin at the root
            return self._key(text) if category == "key" else self._names(category, text)
        if _AMOUNT.fullmatch(text) or (field == "reason" and _CAMEL.fullmatch(text)):
            return text
        return self._names("text", text)

    def _moment(self, text: str) -> str:
        try:
            at_s = parse_time(text)
        except ValueError:
            return format_time(WALL_S)
        self.latest_s = max(self.latest_s, at_s)
        if not self._shift_s:
            return text
        whole, _, fraction = text.partition(".")
        digits = re.match(r"\d*", fraction)
        shown = format_time(parse_time(f"{whole}Z" if fraction else text) + self._shift_s)
        return f"{shown[:-1]}.{digits[0]}Z" if digits and digits[0] else shown


def _category(kind: str) -> str:
    return _CATEGORIES.get(kind) or (re.sub(r"[^a-z0-9]", "", kind.lower())[:20] or "object")


def shift_of(salt: bytes) -> float:
    """Return the seconds by which times are moved, derived from the salt: between one and ten years back."""
    digest = hmac.new(salt, b"times", hashlib.sha256).digest()
    return -float(int.from_bytes(digest[:8], "big") % (9 * 365 * 86_400) + 365 * 86_400)


def anonymise_files(
    sources: Sequence[Source], salt: bytes, path: Path, format_name: str = "", options: Mapping[str, str] | None = None
) -> str:
    """Rewrite files anonymised, with ranks over all of them, and return the name of the format written.

    A format that can be rewritten stays as it is; all others become kwokctl's, whose times are relative.
    Raises: Refused, if a file cannot be read or the result cannot be written.
    """
    file_format = format_of(sources[0], format_name)
    names = Ranked()
    by = Anonymiser(names)
    rewrite = file_format.rewrite
    if rewrite is not None:
        if len(sources) != 1:
            raise Refused(f"{sources[1].file}: files of format {file_format.name} are anonymised one by one")
        rewrite(sources[0], io.BytesIO(), _edit(by), by.key)
        names.settle()
        moved = Anonymiser(names, shift_of(salt))
        return _write_file(
            path, lambda file: rewrite(sources[0], file, _edit(moved), moved.key, shift_of(salt)), file_format
        )
    for stream in _streams(sources, file_format, options):
        for placed in stream.objects:
            by.document(placed.document)
        for change in stream.changes:
            by.change(change)
    names.settle()
    kwok = formats()["kwok"]
    # Its times are relative to the beginning; where the file does not say when that was, to the last of them.
    began = max(
        (stream.origin.started_wall_s or 0.0 for stream in _streams(sources, file_format, options)), default=0.0
    )
    began = began or by.latest_s or WALL_S

    def write(file: BinaryIO) -> None:
        assert kwok.write is not None, "kwokctl's format is written"
        writer = kwok.write(file, began)
        for stream in _streams(sources, file_format, options):
            for placed in stream.objects:
                writer.put(by.document(placed.document))
            for change in stream.changes:
                writer.change(by.change(change))
        writer.close()

    return _write_file(path, write, kwok)


def _edit(by: Anonymiser) -> Edit:
    def edit(at_s: float, document: Document, *, is_deleted: bool = False, kind: str = "") -> Document | None:
        return by.document(document, kind)

    return edit


def _write_file(path: Path, write: Callable[[BinaryIO], None], found: Format) -> str:
    try:
        with path.open("wb") as file:
            write(file)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror or error}") from None
    return found.name


def _streams(sources: Sequence[Source], found: Format, options: Mapping[str, str] | None) -> Iterable[Stream]:
    reading = Reading(options=options or {})
    if found.read_many is not None:
        yield found.read_many(sources, reading)
        return
    for source in sources:
        yield open_stream(source, reading, found.name)[1]


def ranking(documents: Iterable[Document], salt: bytes) -> Anonymiser:
    """Return an anonymiser that replaces the names in these documents by rank."""
    names = Ranked()
    by = Anonymiser(names)
    for document in documents:
        by.document(document)
    names.settle()
    return Anonymiser(names, shift_of(salt))


class Anonymising:
    """A writer that replaces names by HMAC as they come, and passes the result to another writer. `shift_s`: 0 for a
    format whose times are relative.
    """

    def __init__(self, writer: Writer, salt: bytes, shift_s: float) -> None:
        self._writer, self._by = writer, Anonymiser(Keyed(salt), shift_s)

    def put(self, document: Document) -> None:
        """Write an object of the snapshot."""
        self._writer.put(self._by.document(document))

    def change(self, change: Change) -> None:
        """Write a change of an object."""
        self._writer.change(self._by.change(change))

    def close(self) -> None:
        """Close the other writer."""
        self._writer.close()
