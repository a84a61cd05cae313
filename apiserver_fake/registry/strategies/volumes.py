"""Volumes, volume claims, storage classes, and the kinds that CSI drivers write.

A volume has one source, which is immutable, and a phase that the volume binder writes; volumes and claims are
protected while in use. A class's provisioner and parameters are immutable; its allowed topologies may change. A
CSINode has each driver once; a driver's entry is immutable, except its limit of attachable volumes. A
CSIStorageCapacity belongs to one class and one part of the cluster; only its amounts change. A
VolumeAttachment's spec is immutable; its status belongs to the attacher.
"""

from apiserver_fake.registry.admission.limit_ranger import check_claim
from apiserver_fake.registry.errors import forbidden as refused
from apiserver_fake.registry.strategy import WriteContext, declare_strategy, keep_all_but_status
from apiserver_fake.registry.validation.fields import Field, Report, Struct, amount_of, not_repeated, unique
from apiserver_fake.registry.validation.formats import (
    IMMUTABLE,
    Cause,
    Causes,
    duplicate,
    forbidden,
    immutable,
    invalid,
    label_selector,
    not_supported,
    qualified_name,
    required,
    subdomain,
    too_long,
)
from apiserver_fake.registry.validation.persistentvolume import SOURCES, VOLUME_SPEC
from apiserver_fake.registry.validation.pod.volumes import driver_name
from apiserver_fake.registry.validation.volumeclaim import CLAIM_SPEC
from services.api.kinds.persistentvolume import CLASS_ANNOTATION
from services.api.kinds.persistentvolumeclaim import IN_USE_FINALIZER
from services.api.kinds.storageclass import IMMEDIATE, IS_DEFAULT, WAIT_FOR_FIRST_CONSUMER
from services.api.meta import Document
from services.api.quantity import units
from services.api.times import format_time

CLAIMS, STORAGE_CLASSES = "persistentvolumeclaims", "storageclasses.storage.k8s.io"
CLASS_PATH = "spec.volumeAttributesClassName"


def with_finalizer(document: Document, finalizer: str) -> Document:
    """Return the metadata with the finalizer added (admission plugin StorageObjectInUseProtection)."""
    meta: Document = document["metadata"]
    finalizers = list(meta.get("finalizers") or ())
    return meta if finalizer in finalizers else {**meta, "finalizers": [*finalizers, finalizer]}


VOLUME_IN_USE_FINALIZER = "kubernetes.io/pv-protection"


def _create_volume(new: Document, ctx: WriteContext) -> None:
    new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": format_time(ctx.wall_s)}
    new["metadata"] = with_finalizer(new, VOLUME_IN_USE_FINALIZER)


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_all_but_status(old, new, ctx)
    before, status = old.get("status") or {}, new.get("status") or {}
    if status.get("phase") != before.get("phase"):
        new["status"] = {**status, "lastPhaseTransitionTime": format_time(ctx.wall_s)}


def _source_of(spec: Document, *, has_expand_secret: bool) -> Document:
    """Return the source of a volume; a secret for expansion may be named later."""
    found: Document = {field.name: spec.get(field.name) for field in SOURCES}
    if found["csi"] is not None and not has_expand_secret:
        found["csi"] = {name: value for name, value in found["csi"].items() if name != "controllerExpandSecretRef"}
    return found


def _same_volume(old: Document, new: Document, ctx: WriteContext) -> Causes:
    before, spec = old["spec"], new["spec"]
    has_secret = (before.get("csi") or {}).get("controllerExpandSecretRef") is not None
    if _source_of(before, has_expand_secret=True) != _source_of(spec, has_expand_secret=has_secret):
        yield forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")
    yield from immutable("volumeMode", before.get("volumeMode"), spec.get("volumeMode"))
    if before.get("nodeAffinity") is not None and before["nodeAffinity"] != spec.get("nodeAffinity"):
        text = "field is immutable, except for updating from beta label to GA"
        yield invalid("nodeAffinity", spec.get("nodeAffinity"), text)
    if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        yield forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden")


CHANGEABLE = ("resources", "volumeAttributesClassName")
FIXED_TEXT = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
NO_GROWTH_TEXT = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)
"""Refusal of upstream's admission plugin PersistentVolumeClaimResize."""


def _create_claim(new: Document, ctx: WriteContext) -> None:
    spec, annotations = new["spec"], new["metadata"].get("annotations") or {}
    if spec.get("storageClassName") is None and CLASS_ANNOTATION not in annotations and (name := _default_class(ctx)):
        spec["storageClassName"] = name
    new["status"] = {"phase": "Pending"}
    new["metadata"] = with_finalizer(new, IN_USE_FINALIZER)


def _default_class(ctx: WriteContext) -> str:
    """Return the newest class marked as the default, by name among equals (admission DefaultStorageClass)."""
    defaults = [
        each
        for each in ctx.list(STORAGE_CLASSES, "")
        if (each["metadata"].get("annotations") or {}).get(IS_DEFAULT) == "true"
    ]
    # Sorted twice, because one key counts down.
    defaults.sort(key=lambda each: str(each["metadata"]["name"]))
    defaults.sort(key=lambda each: str(each["metadata"].get("creationTimestamp") or ""), reverse=True)
    return str(defaults[0]["metadata"]["name"]) if defaults else ""


def _storage(spec: Document) -> int:
    return units(((spec.get("resources") or {}).get("requests") or {}).get("storage") or "0")


def _check_update(old: Document, new: Document, ctx: WriteContext) -> Causes:
    before, spec = old["spec"], new["spec"]
    is_bound = (old.get("status") or {}).get("phase") == "Bound"
    free = CHANGEABLE if is_bound else ()
    fixed = dict.fromkeys(name for name in (*before, *spec) if name not in free)
    changed = [name for name in fixed if before.get(name) != spec.get(name)]
    # Binding writes the volume's name once; a class may be named later, when one became the default (KEP-3333).
    is_late = ("volumeName", "storageClassName")
    if any(name not in is_late or before.get(name) for name in changed) or _limits(before) != _limits(spec):
        yield forbidden("spec", FIXED_TEXT)
    held = units(((old.get("status") or {}).get("capacity") or {}).get("storage") or "0")
    if (wanted := _storage(spec)) < _storage(before) and wanted <= held:
        yield forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
    yield from immutable("volumeMode", before.get("volumeMode"), spec.get("volumeMode"))
    was, now, path = before.get("volumeAttributesClassName"), spec.get("volumeAttributesClassName"), CLASS_PATH
    if was is not None and not now and was != now:
        what = "nil" if now is None else "an empty string"
        yield forbidden(path, f"update from non-nil value to {what} is forbidden")


def _limits(spec: Document) -> Document:
    """Return what a claim says of its resources besides how much storage it asks for."""
    resources = spec.get("resources") or {}
    requests = {name: text for name, text in (resources.get("requests") or {}).items() if name != "storage"}
    return {**resources, "requests": requests}


def _check_bounds(old: Document | None, new: Document, ctx: WriteContext) -> None:
    """Refuse a claim beyond its namespace's limits, and growth of one whose class has none. Raises: Forbidden.

    Source: upstream `plugin/pkg/admission/storage/persistentvolume/resize/admission.go`.
    """
    check_claim(old, new, ctx)
    if old is None or _storage(new["spec"]) <= _storage(old["spec"]):
        return
    if (old.get("status") or {}).get("phase") != "Bound":
        raise refused(CLAIMS, new["metadata"]["name"], "Only bound persistent volume claims can be expanded")
    if not _may_grow(new["spec"], ctx):
        raise refused(CLAIMS, new["metadata"]["name"], NO_GROWTH_TEXT)


def _may_grow(spec: Document, ctx: WriteContext) -> bool:
    found = ctx.lookup(STORAGE_CLASSES, "", spec.get("storageClassName") or "")
    return found is not None and bool(found.get("allowVolumeExpansion"))


def _provisioner(path: str, name: str) -> list[Cause]:
    return qualified_name(path, name.lower())


PARAMETERS_MAX, PARAMETERS_MAX_BYTES = 512, 256 * 1024


def _few_parameters(values: Document, path: str, report: Report) -> Causes:
    if len(values) > PARAMETERS_MAX:
        yield too_long(path, PARAMETERS_MAX)
        return
    if "" in values:
        yield invalid(path, "", "field can not be empty.")
    if sum(len(name.encode()) + len(text.encode()) for name, text in values.items()) > PARAMETERS_MAX_BYTES:
        yield too_long(path, PARAMETERS_MAX_BYTES)


def _topologies(terms: list[Document], path: str, report: Report) -> Causes:
    """Check that no two terms mean the same nodes, whatever the order of keys and values."""
    seen: list[dict[str, frozenset[str]]] = []
    for index, term in enumerate(terms):
        requirements = {
            each.get("key") or "": frozenset(each.get("values") or ())
            for each in term.get("matchLabelExpressions") or ()
        }
        if requirements in seen:
            yield duplicate(f"{path}[{index}].matchLabelExpressions", "")
        seen.append(requirements)


EXPRESSION = Struct(
    Field("key", missing="", form=qualified_name),
    Field("values", required=True, missing=[]),
    unique("key"),
    Field("values", items=Field(rule=not_repeated)),
)
CLASS_FIELDS = Struct(
    Field("provisioner", required=True, form=_provisioner, is_immutable="updates to provisioner are forbidden."),
    Field("parameters", rule=_few_parameters, is_immutable="updates to parameters are forbidden."),
    Field(
        "reclaimPolicy",
        default="Delete",
        is_blank_absent=True,
        enum=("Delete", "Retain"),
        is_immutable="updates to reclaimPolicy are forbidden.",
    ),
    Field(
        "volumeBindingMode",
        default=IMMEDIATE,
        is_blank_absent=True,
        enum=(IMMEDIATE, WAIT_FOR_FIRST_CONSUMER),
        is_immutable=True,
    ),
    Field("allowedTopologies", items=Struct(Field("matchLabelExpressions", items=EXPRESSION))),
    Field("allowedTopologies", rule=_topologies),
)


def _audiences(requests: list[Document], path: str, report: Report) -> Causes:
    seen: set[str] = set()
    for index, token_request in enumerate(requests):
        audience, seconds = token_request.get("audience") or "", token_request.get("expirationSeconds")
        if audience in seen:
            yield duplicate(f"{path}[{index}].audience", audience)
            continue
        seen.add(audience)
        if seconds is not None and seconds < 600:
            yield invalid(
                f"{path}[{index}].expirationSeconds", seconds, "may not specify a duration less than 10 minutes"
            )
        elif seconds is not None and seconds > 1 << 32:
            text = "may not specify a duration larger than 2^32 seconds"
            yield invalid(f"{path}[{index}].expirationSeconds", seconds, text)


LIFECYCLES = ("Persistent", "Ephemeral")


def _lifecycles(modes: list[str], path: str, report: Report) -> Causes:
    yield from [not_supported(path, mode, LIFECYCLES) for mode in modes if mode not in LIFECYCLES]


CSI_DRIVER_SPEC = Struct(
    Field("attachRequired", default=True),
    Field("podInfoOnMount", default=False),
    Field("storageCapacity", default=False),
    Field("fsGroupPolicy", default="ReadWriteOnceWithFSType", enum=("File", "None", "ReadWriteOnceWithFSType")),
    Field("tokenRequests", rule=_audiences),
    Field("volumeLifecycleModes", default=["Persistent"], rule=_lifecycles, is_immutable=True),
    Field("requiresRepublish", default=False),
    Field("seLinuxMount", default=False),
    Field("nodeAllocatableUpdatePeriodSeconds", minimum=10, text="must be greater than or equal to 10 seconds"),
    are_defaults_last=True,
)


def _same_driver(old: Document, new: Document, ctx: WriteContext) -> Causes:
    # The field is named as upstream names it.
    before, after = ((each.get("spec") or {}).get("attachRequired") for each in (old, new))
    yield from immutable("spec.attachedRequired", before, after)


NODE_ID_MAX = 256


def _node_id(name: str, path: str, report: Report) -> Causes:
    if len(name) > NODE_ID_MAX:
        yield invalid(path, name, f"must be {NODE_ID_MAX} characters or less")


def _topology_keys(driver: Document, at: str, report: Report) -> Causes:
    seen: set[str] = set()
    for key in driver.get("topologyKeys") or ():
        if not key:
            yield required(at[:-1])
        if key in seen:
            yield duplicate(at[:-1], key)
        seen.add(key)
        yield from qualified_name(at[:-1], key)


DRIVER = Struct(
    Field("name", required=True, rule=driver_name),
    Field("nodeID", required=True, rule=_node_id),
    Field("allocatable", struct=Struct(Field("count", minimum=0))),
    unique("name", is_empty_a_key=False),
    _topology_keys,
)
CSI_NODE_FIELDS = Struct(Field("spec", struct=Struct(Field("drivers", items=DRIVER))))


def _drivers(document: Document) -> list[Document]:
    return (document.get("spec") or {}).get("drivers") or []


def _keep_what_was_said(old: Document, new: Document, ctx: WriteContext) -> Causes:
    after = {each.get("name"): each for each in _drivers(new)}
    names = ("name", "nodeID", "topologyKeys")
    for was in _drivers(old):
        now = after.get(was.get("name"))
        if now is not None and any(was.get(name) != now.get(name) for name in names):
            shown = {"Name": now.get("name"), "NodeID": now.get("nodeID"), "TopologyKeys": now.get("topologyKeys")}
            yield invalid("spec.drivers", {**shown, "Allocatable": None}, IMMUTABLE)


CAPACITY_FIELDS = Struct(
    Field("nodeTopology", form=label_selector),
    Field("storageClassName", missing="", form=subdomain),
    Field("capacity", rule=amount_of("memory")),
    Field("nodeTopology", is_immutable=True),
    Field("storageClassName", is_immutable=True),
)


ATTACHED_SOURCE_TEXT = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
MAX_ERROR_LENGTH = 1024


def _attached_source(source: Document, at: str, report: Report) -> Causes:
    named = [each for each in ("inlineVolumeSpec", "persistentVolumeName") if source.get(each) is not None]
    if not named:
        yield required("spec.source", ATTACHED_SOURCE_TEXT)
    elif len(named) > 1:
        yield forbidden("spec.source", ATTACHED_SOURCE_TEXT)
    elif (name := source.get("persistentVolumeName")) == "":
        yield required("spec.source.persistentVolumeName", "must specify non empty persistentVolumeName")
    elif name is not None:
        yield from subdomain("spec.source.persistentVolumeName", name)


METADATA_MAX_BYTES = 256 * 1024


def _error_text(text: str, path: str, report: Report) -> Causes:
    if len(text.encode()) > MAX_ERROR_LENGTH:
        # The limit that is named is another, as upstream.
        yield too_long(path, METADATA_MAX_BYTES)


def _attachment_metadata(values: Document, path: str, report: Report) -> Causes:
    if sum(len(name.encode()) + len(text.encode()) for name, text in values.items()) > METADATA_MAX_BYTES:
        yield too_long(path, METADATA_MAX_BYTES)


VOLUME_ERROR = Struct(
    Field("message", rule=_error_text),
    Field("errorCode", minimum=0, text="must be between 0 and 2147483647, inclusive"),
)


ATTACHMENT_SPEC = Struct(
    Field("attacher", required=True, rule=driver_name),
    Field("source", missing={}, struct=Struct(_attached_source)),
    Field("nodeName", missing="", form=subdomain),
)
ATTACHMENT_STATUS = Struct(
    Field("attachmentMetadata", rule=_attachment_metadata),
    Field("attachError", struct=VOLUME_ERROR),
    Field("detachError", struct=VOLUME_ERROR),
)


def _not_attached(new: Document, ctx: WriteContext) -> None:
    new["status"] = {"attached": False}


def _some_parameters(new: Document, at: str, report: Report) -> Causes:
    if not new.get("parameters"):
        yield required("parameters", "must contain at least one key/value pair")


ATTRIBUTES_CLASS_FIELDS = Struct(
    Field("driverName", required=True, form=_provisioner, is_immutable="updates to driverName are forbidden."),
    Field("parameters", rule=_few_parameters, is_immutable="updates to parameters are forbidden."),
    _some_parameters,
)


STRATEGIES = {
    "persistentvolumes": declare_strategy(
        Struct(Field("spec", default={}, struct=VOLUME_SPEC)),
        has_status=True,
        on_create=_create_volume,
        update_rules=_same_volume,
        prepare_status=_prepare_status,
    ),
    "persistentvolumeclaims": declare_strategy(
        Struct(Field("spec", default={}, struct=CLAIM_SPEC)),
        has_status=True,
        on_create=_create_claim,
        update_rules=_check_update,
        update_rules_need_valid=True,
        check_bounds=_check_bounds,
    ),
    STORAGE_CLASSES: declare_strategy(CLASS_FIELDS),
    "volumeattributesclasses.storage.k8s.io": declare_strategy(ATTRIBUTES_CLASS_FIELDS),
    "csidrivers.storage.k8s.io": declare_strategy(
        Struct(Field("spec", default={}, struct=CSI_DRIVER_SPEC)), update_rules=_same_driver
    ),
    "csinodes.storage.k8s.io": declare_strategy(CSI_NODE_FIELDS, update_rules=_keep_what_was_said),
    "csistoragecapacities.storage.k8s.io": declare_strategy(CAPACITY_FIELDS),
    "volumeattachments.storage.k8s.io": declare_strategy(
        Struct(Field("spec", missing={}, struct=ATTACHMENT_SPEC, is_immutable=True)),
        has_status=True,
        on_create=_not_attached,
        status=ATTACHMENT_STATUS,
    ),
}
