"""Rules and defaults of a pod's volumes, source by source.

Refusals name fields as upstream does, even where that is not the field's path: `persistentDisk`, `cephFS`,
`downwarAPI`, and the items of a downward API volume without their index. Source: upstream
`pkg/apis/core/validation/validation.go` (v1.36): `ValidateVolumes`, `validateVolumeSource` and what it calls;
upstream `pkg/apis/core/v1/defaults.go`; KEP-4639 for images, KEP-4317 for certificates of pods.
"""

import re
from collections.abc import Iterable
from typing import Any

from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    duplicate,
    faults,
    forbidden,
    invalid,
    label,
    label_selector,
    not_supported,
    quantity,
    required,
    signer_name,
    subdomain,
    too_long,
)
from apiserver_fake.registry.validation.pod.environment import FILE_FIELDS, field_of, resource_of
from apiserver_fake.registry.validation.pod.images import PULL_POLICIES, pull_policy
from apiserver_fake.registry.validation.pod.paths import descending, local, no_backsteps
from apiserver_fake.registry.validation.pod.scope import as_internal
from apiserver_fake.registry.validation.volumeclaim import CLAIM_TEMPLATE
from services.api.meta import Document
from services.api.quantity import milli

_MODE_TEXT = "must be a number between 0 and 0777 (octal), both inclusive"
_DEFAULT_MODE = Field("defaultMode", default=420, minimum=0, maximum=0o777, text=_MODE_TEXT)
_MODE = Field("mode", minimum=0, maximum=0o777, text=_MODE_TEXT)
_PARTITION = Field("partition", minimum=0, maximum=255, text="must be between 1 and 255, inclusive")
_LUN = "must be between 0 and 255, inclusive"
_SECRET_NAME = Field("secretRef", struct=Struct(Field("name", required=True)))
_READ_ONLY_FALSE = Field("readOnly", default=False)


def _needs(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, required=True) for name in names)


def _size_limit(text: str, path: str, report: Report) -> Causes:
    if wrong := quantity(path, "storage", text):
        try:
            is_negative = milli(text) < 0
        except ValueError:
            yield from wrong
            return
        if is_negative:
            yield forbidden(path, "SizeLimit field must be a valid resource quantity")


_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")


def _host_path(source: Document, at: str, report: Report) -> Causes:
    path, kind = source.get("path") or "", source.get("type")
    if not path:
        yield required(f"{at}path")
        return
    yield from no_backsteps(f"{at}path", path)
    if kind is not None and kind not in _HOST_PATH_TYPES:
        yield not_supported(f"{at}type", kind, _HOST_PATH_TYPES)


HOST_PATH = Struct(_host_path, Field("type", default=""))


def _absolute(source: Document, at: str, report: Report) -> Causes:
    path = source.get("path") or ""
    if not path.startswith("/"):
        yield invalid(f"{at}path", path, "must be an absolute path")


_IQN = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9-.]+)(:[^,;*&$|\s]+)\Z"),
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}\Z"),
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}\Z"),
}


def _initiator_name(name: str, path: str, report: Report) -> Causes:
    form = _IQN.get(name[:3])
    if form is None:
        yield invalid(path, name, "must be valid format starting with iqn, eui, or naa")
    elif not (form.search(name) if name.startswith("iqn") else form.match(name)):
        yield invalid(path, name, "must be valid format")


def _iscsi(source: Document, at: str, report: Report) -> Causes:
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        yield required(f"{at}secretRef")
    if (name := source.get("initiatorName")) is not None:
        yield from _initiator_name(name, f"{at}initiatorname", report)


def _host_ports(source: Document, at: str, report: Report) -> Causes:
    text = "must be a host:port pair or multiple pairs separated by commas"
    registry = source.get("registry") or ""
    if not registry:
        yield required(f"{at}registry", text)
    elif len(source.get("tenant") or "") >= 65:
        yield required(f"{at}tenant", "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in registry.split(","):
            host, colon, _ = pair.rpartition(":")
            if not colon or (":" in host and not (host.startswith("[") and host.endswith("]"))):
                yield invalid(f"{at}registry", registry, text)


def _flocker(source: Document, at: str, report: Report) -> Causes:
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    if not name and not uuid:
        yield required(at[:-1], "one of datasetName and datasetUUID is required")
    if name and uuid:
        yield invalid(at[:-1], "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield invalid(f"{at}datasetName", name, "must not contain '/'")


def _fibre_channel(source: Document, at: str, report: Report) -> Causes:
    names, ids, lun = source.get("targetWWNs") or [], source.get("wwids") or [], source.get("lun")
    if not names and not ids:
        yield required(f"{at}targetWWNs", "must specify either targetWWNs or wwids, but not both")
    if names and ids:
        yield invalid(f"{at}targetWWNs", names, "targetWWNs and wwids can not be specified simultaneously")
    if names and lun is None:
        yield required(f"{at}lun", "lun is required if targetWWNs is specified")
    elif names and lun is not None and not 0 <= lun <= 255:
        yield invalid(f"{at}lun", lun, _LUN)


def _own_options(options: Document, path: str, report: Report) -> Causes:
    for name in options:
        owner = f".{name.partition('/')[0].lower()}"
        if owner.endswith((".kubernetes.io", ".k8s.io")):
            yield invalid(f"{path}[{name}]", name, "kubernetes.io and k8s.io namespaces are reserved")


_CACHING, _DISKS = ("None", "ReadOnly", "ReadWrite"), ("Dedicated", "Managed", "Shared")
_MANAGED = ("/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",)
_BLOB = ("https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",)


def _azure_disk(source: Document, at: str, report: Report) -> Causes:
    kind, uri = source.get("kind"), source.get("diskURI") or ""
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        yield not_supported(f"{at}diskURI", uri, _MANAGED)
    elif kind is not None and kind != "Managed" and not uri.startswith("https://"):
        yield not_supported(f"{at}diskURI", uri, _BLOB)


def driver_name(name: str, path: str, report: Report) -> Causes:
    """Check the name of a CSI driver."""
    if len(name) > 63:
        yield too_long(path, 63)
    for text in faults(subdomain, name.lower()):
        yield invalid(path, name, text)


def _publish_secret(secret: Document, path: str, report: Report) -> Causes:
    name = secret.get("name") or ""
    if not name:
        yield required(f"{path}.name")
    else:
        yield from subdomain(f"{path.rpartition('.')[0]}.name", name)


_KEY_TO_PATH = Struct(Field("key", required=True), Field("path", required=True, form=local), _MODE)


def _one_field(file: Document, at: str, report: Report) -> Causes:
    if file.get("fieldRef") is not None:
        if file.get("resourceFieldRef") is not None:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield invalid(at[:-1], "resource", text)
    elif file.get("resourceFieldRef") is None:
        yield required(at[:-1], "one of fieldRef and resourceFieldRef is required")


_FIELD_REF, _RESOURCE_REF = field_of(FILE_FIELDS), resource_of(is_named=True)


def _resource_of_file(file: Document, at: str, report: Report) -> Causes:
    if file.get("fieldRef") is None and (selector := file.get("resourceFieldRef")) is not None:
        return _RESOURCE_REF.check(selector, f"{at}resourceFieldRef.", report)
    return ()


_FILE = Struct(
    Field("path", required=True, form=local), Field("fieldRef", struct=_FIELD_REF), _one_field, _resource_of_file, _MODE
)


def _files(files: list[Document], path: str, report: Report) -> Causes:
    # As upstream: the path of the list's owner, not of the item.
    for file in files:
        _FILE.check(file, path.removesuffix("items"), report)
    return ()


_FILES = Field("items", items=_FILE, is_checked=False, rule=_files)
_MAX_TOKEN_S, _MIN_TOKEN_S = 2**32, 600
_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")
_DAY_S = 86_400
_PROJECTED_PATHS_TEXT = "conflicting duplicate paths"


class _Paths:
    """The file paths of a projected volume, which must be unique."""

    def __init__(self, at: str) -> None:
        self._at = at[:-1]
        self._taken: set[str] = set()

    def take(self, path: str, shown: str) -> Causes:
        """Yield a cause where a path is taken; `shown`: what the refusal names."""
        if path in self._taken:
            yield invalid(self._at, shown, _PROJECTED_PATHS_TEXT)
        self._taken.add(path)


def _keys(source: Document, at: str, paths: _Paths, report: Report) -> Causes:
    name = source.get("name") or ""
    if not name:
        yield required(f"{at}name")
    for index, item in enumerate(source.get("items") or ()):
        _KEY_TO_PATH.check(item, f"{at}items[{index}].", report)
        if item.get("path"):
            yield from paths.take(item["path"], name)


def _downward(source: Document, at: str, paths: _Paths, report: Report) -> Causes:
    for file in source.get("items") or ():
        _FILE.check(file, at, report)
        if file.get("path"):
            yield from paths.take(file["path"], file["path"])


def _token(source: Document, at: str, paths: _Paths, report: Report) -> Causes:
    seconds, path = source.get("expirationSeconds") or 0, source.get("path") or ""
    if seconds < _MIN_TOKEN_S:
        yield invalid(f"{at}expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds > _MAX_TOKEN_S:
        yield invalid(f"{at}expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    owner = at[: at.rindex(".sources[")]
    yield from local(f"{owner}.path", path) if path else (required(f"{owner}.path"),)


def _trust(source: Document, at: str, paths: _Paths, report: Report) -> Causes:
    name, signer, selector = source.get("name"), source.get("signerName"), source.get("labelSelector")
    if name is not None and signer is not None:
        members = [(each, source.get(each)) for each in ("name", "signerName", "labelSelector")]
        shown = as_internal([*members, ("optional", source.get("optional")), ("path", source.get("path") or "")])
        yield invalid(at[:-1], shown, "only one of name and signerName may be used")
    elif name is not None:
        yield from _bundle_name(name, f"{at}name")
        if selector is not None:
            yield invalid(f"{at}labelSelector", selector, "labelSelector must be unset if name is specified")
    elif signer is not None:
        if not signer:
            yield required(f"{at}signerName", "must be a valid signer name")
        yield from signer_name(f"{at}signerName", signer)
        if selector is not None:
            yield from label_selector(f"{at}labelSelector", selector)
    else:
        yield required(at[:-1], "either name or signerName must be specified")
    path = source.get("path") or ""
    if not path:
        yield required(f"{at}path")
    yield from local(f"{at}path", path)
    yield from paths.take(path, path)


def _bundle_name(name: str, path: str) -> Causes:
    """Check the name of a ClusterTrustBundle: with its signer in front, or without any."""
    if not name:
        yield required(path, "must be a valid object name")
    for text in faults(subdomain, name.rpartition(":")[2]):
        yield invalid(path, name, f"not a valid clustertrustbundlename: {text}")


def _certificate(source: Document, at: str, paths: _Paths, report: Report) -> Causes:
    signer, kind, seconds = (
        source.get("signerName") or "",
        source.get("keyType") or "",
        source.get("maxExpirationSeconds"),
    )
    yield from signer_name(f"{at}signerName", signer)
    if kind not in _KEY_TYPES:
        yield not_supported(f"{at}keyType", kind, _KEY_TYPES)
    if seconds is not None:
        is_ours = f".{signer.partition('/')[0]}".endswith(".kubernetes.io")
        most = _DAY_S if is_ours else 91 * _DAY_S
        if seconds < 3600:
            yield invalid(f"{at}maxExpirationSeconds", seconds, "if provided, maxExpirationSeconds must be >= 3600")
        if seconds > most:
            yield invalid(f"{at}maxExpirationSeconds", seconds, f"if provided, maxExpirationSeconds must be <= {most}")
    named = [name for name in _CERTIFICATE_PATHS if source.get(name)]
    for name in named:
        yield from local(f"{at}{name}", source[name])
        yield from paths.take(source[name], source[name])
    if not named:
        yield required(at[:-1], "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")


_PROJECTIONS = {
    "secret": _keys,
    "configMap": _keys,
    "downwardAPI": _downward,
    "serviceAccountToken": _token,
    "clusterTrustBundle": _trust,
    "podCertificate": _certificate,
}


def _projected_volume(volume: Document, at: str, report: Report) -> Causes:
    paths = _Paths(at)
    for index, source in enumerate(volume.get("sources") or ()):
        here, count = f"{at}sources[{index}]", 0
        for name, rule in _PROJECTIONS.items():
            if (projection := source.get(name)) is not None:
                count += 1
                yield from rule(projection, f"{here}.{name}.", paths, report)
        if count > 1:
            yield forbidden(here, "may not specify more than 1 volume type per source")


_PROJECTED_SOURCE = Struct(
    Field("serviceAccountToken", struct=Struct(Field("expirationSeconds", default=3600))),
    Field("downwardAPI", struct=Struct(Field("items", items=_FILE))),
)
_SOURCES = (
    Field("emptyDir", struct=Struct(Field("sizeLimit", rule=_size_limit))),
    Field("hostPath", struct=HOST_PATH),
    Field("gitRepo", struct=Struct(Field("repository", required=True), Field("directory", form=descending))),
    Field("gcePersistentDisk", struct=Struct(*_needs("pdName"), _PARTITION)),
    Field("awsElasticBlockStore", struct=Struct(*_needs("volumeID"), _PARTITION)),
    Field("secret", struct=Struct(*_needs("secretName"), _DEFAULT_MODE, Field("items", items=_KEY_TO_PATH))),
    Field("nfs", struct=Struct(*_needs("server", "path"), _absolute)),
    Field(
        "iscsi",
        struct=Struct(
            Field("iscsiInterface", default="default"),
            *_needs("targetPortal"),
            Field("iqn", required=True, rule=_initiator_name),
            Field("lun", minimum=0, maximum=255, text=_LUN),
            _iscsi,
        ),
    ),
    Field("glusterfs", struct=Struct(*_needs("endpoints", "path"))),
    Field("flocker", struct=Struct(_flocker)),
    Field("persistentVolumeClaim", struct=Struct(*_needs("claimName"))),
    Field(
        "rbd",
        struct=Struct(
            Field("pool", default="rbd"),
            Field("user", default="admin"),
            Field("keyring", default="/etc/ceph/keyring"),
            Field("monitors", required=True, missing=[]),
            *_needs("image"),
        ),
    ),
    Field("cinder", struct=Struct(*_needs("volumeID"), _SECRET_NAME)),
    Field("cephfs", struct=Struct(Field("monitors", required=True, missing=[]))),
    Field("quobyte", struct=Struct(_host_ports, *_needs("volume"))),
    Field("downwardAPI", struct=Struct(_DEFAULT_MODE, _FILES)),
    Field("fc", struct=Struct(_fibre_channel)),
    Field("flexVolume", struct=Struct(*_needs("driver"), Field("options", rule=_own_options))),
    Field("configMap", struct=Struct(*_needs("name"), _DEFAULT_MODE, Field("items", items=_KEY_TO_PATH))),
    Field("azureFile", struct=Struct(*_needs("secretName", "shareName"))),
    Field("vsphereVolume", struct=Struct(*_needs("volumePath"))),
    Field("photonPersistentDisk", struct=Struct(*_needs("pdID"))),
    Field("portworxVolume", struct=Struct(*_needs("volumeID"))),
    Field(
        "azureDisk",
        struct=Struct(
            *_needs("diskName", "diskURI"),
            Field("cachingMode", default="ReadWrite", enum=_CACHING),
            Field("kind", default="Shared", enum=_DISKS),
            Field("fsType", default="ext4"),
            _READ_ONLY_FALSE,
            _azure_disk,
        ),
    ),
    Field(
        "storageos",
        struct=Struct(
            Field("volumeName", required=True, form=label), Field("volumeNamespace", form=label), _SECRET_NAME
        ),
    ),
    Field(
        "projected",
        struct=Struct(_DEFAULT_MODE, _projected_volume, Field("sources", items=_PROJECTED_SOURCE, is_checked=False)),
    ),
    Field(
        "scaleIO",
        struct=Struct(
            Field("storageMode", default="ThinProvisioned"),
            Field("fsType", default="xfs"),
            *_needs("gateway", "system", "volumeName"),
        ),
    ),
    Field(
        "csi",
        struct=Struct(
            Field("driver", required=True, rule=driver_name), Field("nodePublishSecretRef", rule=_publish_secret)
        ),
    ),
    Field("ephemeral", struct=Struct(Field("volumeClaimTemplate", required=True, missing={}, struct=CLAIM_TEMPLATE))),
    Field(
        "image",
        struct=Struct(
            *_needs("reference"),
            Field(
                "pullPolicy",
                default=lambda image: pull_policy(image.get("reference") or ""),
                required=True,
                enum=PULL_POLICIES,
            ),
        ),
    ),
)
SOURCES = {field.name: field for field in _SOURCES}
"""Volume sources by name, in the order in which a refusal of two sources names them."""
_RULES = {field.name: field.compile_check() for field in _SOURCES}
_PORTAL_TEXT = (
    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is "
    "specified."
)
_PATHS = {"gcePersistentDisk": "persistentDisk"}
"""Names of volume sources in refusals of their members, where they differ from the field name."""
_SECOND_PATHS = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
"""Names of volume sources in refusals of a second source, where they differ from the field name."""


def _empty_dir(volume: Document) -> None:
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}


VOLUME = Struct(
    *(field for field in _SOURCES if field.struct is not None and field.struct.is_completing), completion=_empty_dir
)
"""Field table that sets a volume's defaults."""


def check_volumes(volumes: list[Document], path: str, report: Report) -> Iterable[Any]:
    """Check the volumes of a pod; only valid volumes can be mounted by containers."""
    scope, causes = report.scope, report.causes
    pod = (scope.pod or {}).get("name") or ""
    claims = {f"{pod}-{each.get('name') or ''}" for each in volumes if pod and each.get("ephemeral") is not None}
    known = scope.volumes
    for index, volume in enumerate(volumes):
        at, before, name = f"{path}[{index}]", len(causes), volume.get("name") or ""
        _check_source(volume, name, pod, at, report)
        if not name:
            causes.append(required(f"{at}.name"))
        else:
            causes += label(f"{at}.name", name)
        if name in known:
            causes.append(duplicate(f"{at}.name", name))
        if len(causes) == before:
            known[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") if claims else None
        if claim in claims:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            causes.append(invalid(f"{at}.persistentVolumeClaim.claimName", claim, text))
    return ()


def _check_source(volume: Document, name: str, pod: str, at: str, report: Report) -> None:
    causes: list[Cause] = report.causes
    sources = [each for each in volume if each in _RULES and volume[each] is not None]
    if not sources:
        causes.append(required(at, "must specify a volume type"))
        return
    if len(sources) > 1:
        sources = [each for each in _RULES if each in sources]
    source = sources[0]
    if (rule := _RULES[source]) is not None:
        # One by one: rules below add to the same list.
        for cause in rule(volume[source], f"{at}.{_PATHS.get(source, source)}", report):
            causes += (cause,)
    if source == "ephemeral" and pod and name:
        claim_name = f"{pod}-{name}"
        causes += [
            invalid(f"{at}.name", name, f'PVC name "{claim_name}": {text}') for text in faults(subdomain, claim_name)
        ]
    for extra_source in sources[1:]:
        causes.append(
            forbidden(
                f"{at}.{_SECOND_PATHS.get(extra_source, extra_source)}", "may not specify more than 1 volume type"
            )
        )
    portal = volume["iscsi"].get("targetPortal") or "" if "iscsi" in sources else ""
    if "iscsi" in sources and volume["iscsi"].get("initiatorName") is not None and len(f"{name}:{portal}") > 64:
        causes.append(invalid(f"{at}.name", name, _PORTAL_TEXT))
