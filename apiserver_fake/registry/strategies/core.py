"""Small kinds of the core group: ConfigMaps and Secrets, Namespaces, Nodes, service accounts.

Keys of data must be valid file names, and data never changes once declared immutable; a Secret's `stringData`
is merged into its `data`. A Namespace is kept by `spec.finalizers` until its content is gone (controllers 11).
A Node may be created with a status. Source: upstream `pkg/apis/core/validation/validation.go`.
"""

import base64
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from apiserver_fake.registry.accounts import ACCOUNT_NAME, LEGACY_TYPE
from apiserver_fake.registry.errors import forbidden as refused
from apiserver_fake.registry.strategy import (
    DeleteOptions,
    Rules,
    WriteContext,
    declare_strategy,
    keep_all_but_status,
    keep_status,
)
from apiserver_fake.registry.validation.addresses import network, version_of
from apiserver_fake.registry.validation.fields import Field, Report, Struct, not_repeated
from apiserver_fake.registry.validation.formats import (
    Causes,
    config_key,
    duplicate,
    faults,
    finalizer,
    forbidden,
    invalid,
    label,
    label_value,
    not_supported,
    qualified_name,
    quantity,
    required,
    too_long,
    value_text,
)
from apiserver_fake.registry.validation.secrets import SECRET_TYPES, size_of
from services.api.meta import Document
from services.api.times import format_time

FROZEN = "field is immutable when `immutable` is set"
DATA_MAX_BYTES = 1 << 20


def keys(values: Mapping[str, str], path: str, report: Report) -> Causes:
    """Check the keys of a ConfigMap's or Secret's data."""
    for name in values:
        yield from config_key(f"{path}[{name}]", name)


def immutable_content_rule(*names: str) -> Rules:
    """Return the rule that an object declared immutable keeps its content."""

    def check(old: Document, new: Document, ctx: WriteContext) -> Causes:
        if old.get("immutable"):
            changed = [] if new.get("immutable") else ["immutable"]
            changed += [name for name in names if (old.get(name) or {}) != (new.get(name) or {})]
            yield from (forbidden(name, FROZEN) for name in changed)

    return check


def _data(new: Document, at: str, report: Report) -> Causes:
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    for name in data:
        yield from config_key(f"data[{name}]", name)
        if name in binary:
            yield invalid(f"data[{name}]", name, "duplicate of key present in binaryData")
    for name in binary:
        yield from config_key(f"binaryData[{name}]", name)
    if sum(len(text.encode()) for text in data.values()) + size_of(binary) > DATA_MAX_BYTES:
        # Upstream's path of the whole object.
        yield too_long("[]", DATA_MAX_BYTES)


CONFIGMAP_FIELDS = Struct(_data)


def _fold(new: Document) -> None:
    if plain := new.pop("stringData", None):
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}


def _keep_type(old: Document, new: Document, ctx: WriteContext) -> None:
    if not new.get("type"):
        new["type"] = old.get("type") or "Opaque"


def _secret(new: Document, at: str, report: Report) -> Causes:
    data = new.get("data") or {}
    if size_of(data) > DATA_MAX_BYTES:
        yield too_long("data", DATA_MAX_BYTES)
    kind = new.get("type") or ""
    if kind == LEGACY_TYPE and not (new["metadata"].get("annotations") or {}).get(ACCOUNT_NAME):
        yield required(f"metadata.annotations[{ACCOUNT_NAME}]")
    elif (rule := SECRET_TYPES.get(kind)) is not None:
        yield from rule(data)


SECRET_FIELDS = Struct(
    Field("data", rule=keys),
    _secret,
    Field("type", default="Opaque", is_blank_absent=True, is_immutable=True),
    completion=_fold,
)


FINALIZER = "kubernetes"
IMMORTAL = ("default", "kube-system", "kube-public")


def _create(new: Document, ctx: WriteContext) -> None:
    spec = new.get("spec") or {}
    finalizers = list(spec.get("finalizers") or [])
    new["spec"] = {**spec, "finalizers": finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER]}
    new["status"] = {"phase": "Active"}
    _set_name_label(new)


def _set_name_label(new: Document) -> None:
    meta = new["metadata"]
    if name := meta.get("name"):
        new["metadata"] = {**meta, "labels": {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": name}}


def _update_namespace(old: Document, new: Document, ctx: WriteContext) -> None:
    new["spec"] = {**(new.get("spec") or {}), "finalizers": (old.get("spec") or {}).get("finalizers") or []}
    _set_name_label(new)


def _prepare_status(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_all_but_status(old, new, ctx)
    # The phase follows the deletion, whatever a client asks for.
    phase = "Terminating" if old["metadata"].get("deletionTimestamp") else "Active"
    new["status"] = {**(new.get("status") or {}), "phase": phase}


def _before_delete(old: Document, ctx: WriteContext, options: DeleteOptions) -> Document | None:
    """Mark the namespace as ending; it goes when both its lists of finalizers are empty."""
    meta = old["metadata"]
    name = meta["name"]
    if name in IMMORTAL:
        raise refused("namespaces", name, "this namespace may not be deleted")
    if meta.get("deletionTimestamp"):
        return None if is_done(old) else old
    marked = {**meta, "deletionTimestamp": format_time(ctx.wall_s), "deletionGracePeriodSeconds": 0}
    status = {**(old.get("status") or {}), "phase": "Terminating"}
    ending = {**old, "metadata": marked, "status": status}
    return None if is_done(ending) else ending


def is_done(namespace: Document) -> bool:
    """Whether a namespace that is being deleted has no finalizers left."""
    return not (namespace.get("spec") or {}).get("finalizers") and not namespace["metadata"].get("finalizers")


def _finalizers(namespace: Document, at: str, report: Report) -> Causes:
    if report.update is None:
        for name in (namespace.get("spec") or {}).get("finalizers") or ():
            yield from finalizer("spec.finalizers", name)


POLICY = "podPreemptionPolicy"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TAINTS_MAX = 200


def _taints(node: Document, at: str, report: Report) -> Causes:
    """Check the taints, which refusals name below the metadata, as upstream does."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(((node.get("spec") or {}).get("taints") or ())[:TAINTS_MAX]):
        path = f"metadata.taints[{index}]"
        key, value, effect = (taint.get(name) or "" for name in ("key", "value", "effect"))
        yield from qualified_name(f"{path}.key", key)
        if wrong := faults(label_value, value):
            yield invalid(f"{path}.value", value, ";".join(wrong))
        if not effect:
            yield required(f"{path}.effect")
        elif effect not in EFFECTS:
            yield not_supported(f"{path}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            cause = duplicate(path, shown)
            yield cause._replace(message=f"{cause.message}: taints must be unique by key and effect pair")
        seen.add((key, effect))


def _resources(node: Document, at: str, report: Report) -> Causes:
    status = node.get("status") or {}
    for part in ("capacity", "allocatable"):
        for name, text in (status.get(part) or {}).items():
            yield from quantity(f"status.{part}.{name}", name, text)


def _ranges(spec: Document) -> list[str]:
    """Return the ranges of addresses of a node's pods: `podCIDR`, the field of old, wins over the first of a list."""
    first, ranges = spec.get("podCIDR"), spec.get("podCIDRs") or []
    return [first] if first and ranges[:1] != [first] else list(ranges)


def _pod_ranges(node: Document, at: str, report: Report) -> Causes:
    if report.update is not None:
        return
    path, ranges = "spec.podCIDRs", _ranges(node.get("spec") or {})
    for index, cidr in enumerate(ranges):
        yield from network(f"{path}[{index}]", cidr)
    if len(ranges) > 1:
        if len(ranges) > 2 or any(version_of(one) == version_of(other) for one, other in pairwise(ranges)):
            yield invalid(path, ranges, "may specify no more than one CIDR for each IP family")
        for index, cidr in enumerate(ranges):
            if cidr in ranges[:index]:
                yield duplicate(f"{path}[{index}]", cidr)


def _addresses(node: Document) -> Causes:
    seen: list[Any] = []
    for index, each in enumerate((node.get("status") or {}).get("addresses") or ()):
        if each in seen:
            shown = {"Type": each.get("type") or "", "Address": each.get("address") or ""}
            yield duplicate(f"status.addresses[{index}]", shown)
        seen.append(each)


def _declared_features(node: Document) -> Causes:
    """Yield what is wrong with the list of declared features: names in the form of feature gates, sorted, each once.

    Source: upstream `validateNodeDeclaredFeatures`.
    """
    names = (node.get("status") or {}).get("declaredFeatures") or []
    for index, name in enumerate(names):
        path = f"status.declaredFeatures[{index}]"
        if len(name) > FEATURE_NAME_MAX:
            text = f"must be no more than {FEATURE_NAME_MAX} characters"
            yield invalid(path, name, f"invalid feature name {value_text(name)}: {text}")
        elif _FEATURE_NAME.fullmatch(name) is None:
            yield invalid(path, name, f"invalid feature name {value_text(name)}: {_FEATURE_FORM}")
        if index and names[index - 1] == name:
            yield duplicate(path, name)
        elif index and names[index - 1] > name:
            yield invalid(path, name, "list must be sorted alphabetically")


FEATURE_NAME_MAX = 253
_FEATURE_NAME = re.compile(r"[A-Z][A-Za-z0-9]*(/[A-Za-z0-9]+)*")
_FEATURE_FORM = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or "
    "MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)
OWNER = Field(missing="", form=qualified_name, rule=not_repeated)
NODE_SPEC = Struct(
    Field("taints", most=TAINTS_MAX),
    Field(POLICY, struct=Struct(Field("disableResizePreemption", most=20, items=OWNER))),
)
NODE_FIELDS = Struct(
    _taints,
    _resources,
    lambda node, at, report: _declared_features(node),
    _pod_ranges,
    Field("spec", default={}, struct=NODE_SPEC),
    Field("status", default={}, struct=Struct(Field("conditions", most=64))),
)
NOT_READY = "node.kubernetes.io/not-ready"


def _drop_unknown_policy(new: Document, ctx: WriteContext) -> None:
    """Leave out what the feature gate does not know; what is stored already stays (KEP-5836)."""
    if POLICY in new["spec"] and not ctx.switches.resize_preemption:
        new["spec"] = {name: value for name, value in new["spec"].items() if name != POLICY}


def _drop_declared_features(old: Document | None, new: Document, ctx: WriteContext) -> None:
    """Leave out the declared features where the gate does not know them; a stored list may be written again."""
    status = new.get("status") or {}
    stored = ((old or {}).get("status") or {}).get("declaredFeatures")
    if "declaredFeatures" in status and not stored and not ctx.switches.node_declared_features:
        new["status"] = {name: value for name, value in status.items() if name != "declaredFeatures"}


def _create_node(new: Document, ctx: WriteContext) -> None:
    """Complete a node: allocatable is the capacity where it is left out, and pods keep off one that tools make.

    The taint is the admission plug-in's TaintNodesByCondition. A kubelet of the mesh is registered with its readiness
    known to its controllers, so that the plug-in acts on nodes from REST alone (decision 0036).
    Source: upstream `plugin/pkg/admission/nodetaint/admission.go`, `pkg/apis/core/v1/defaults.go`.
    """
    _drop_unknown_policy(new, ctx)
    _drop_declared_features(None, new, ctx)
    status, spec = new.get("status") or {}, new["spec"]
    if status.get("capacity") is not None and status.get("allocatable") is None:
        new["status"] = {**status, "allocatable": dict(status["capacity"])}
    if ranges := _ranges(spec):
        spec = {**spec, "podCIDR": ranges[0], "podCIDRs": ranges}
    taints = spec.get("taints") or []
    if ctx.request.field_validation and not any(
        (each.get("key"), each.get("effect")) == (NOT_READY, "NoSchedule") for each in taints
    ):
        spec = {**spec, "taints": [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]}
    if not spec.get("taints"):
        spec = {name: value for name, value in spec.items() if name != "taints"}
    new["spec"] = spec


def _update_node(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if POLICY not in (old.get("spec") or {}):
        _drop_unknown_policy(new, ctx)
    spec = new["spec"]
    if spec.get("taints") == []:
        spec = new["spec"] = {name: value for name, value in spec.items() if name != "taints"}
    ranges = _ranges(spec)
    if ranges and (spec.get("podCIDR"), spec.get("podCIDRs")) != (ranges[0], ranges):
        new["spec"] = {**spec, "podCIDR": ranges[0], "podCIDRs": ranges}


def _prepare_node_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Keep all but the status, and the kubelet's session where the writer's type of a Node has no such field."""
    keep_all_but_status(old, new, ctx)
    _drop_declared_features(old, new, ctx)
    session = ((old.get("status") or {}).get("nodeInfo") or {}).get("kubeletSession")
    status = new.get("status") or {}
    info = status.get("nodeInfo") or {}
    if session and "kubeletSession" not in info:
        new["status"] = {**status, "nodeInfo": {**info, "kubeletSession": session}}


_SET_ONCE = 'node updates may not change {} except from "" to valid'


def _same_node(old: Document, new: Document, ctx: WriteContext) -> Causes:
    yield from _addresses(new)
    before, after = old.get("spec") or {}, new.get("spec") or {}
    was, now = _ranges(before), _ranges(after)
    if was and len(was) != len(now):
        yield forbidden("spec.podCIDRs", _SET_ONCE.format("podCIDR"))
    for one, other in zip(was, now, strict=False) if len(was) == len(now) else ():
        if one != other:
            yield forbidden("spec.podCIDRs", _SET_ONCE.format("podCIDR"))
    if before.get("providerID") and before["providerID"] != after.get("providerID"):
        yield forbidden("spec.providerID", _SET_ONCE.format("providerID"))
    if (before.get("externalID") or "") != (after.get("externalID") or ""):
        yield forbidden("spec.externalID", "may not be updated")


def _node_status(old: Document, new: Document, ctx: WriteContext) -> Causes:
    yield from _resources(new, "", Report())
    yield from _declared_features(new)
    yield from _addresses(new)


STRATEGIES = {
    "configmaps": declare_strategy(CONFIGMAP_FIELDS, update_rules=immutable_content_rule("data", "binaryData")),
    "secrets": declare_strategy(SECRET_FIELDS, before_update=_keep_type, update_rules=immutable_content_rule("data")),
    "namespaces": declare_strategy(
        Struct(_finalizers),
        name=label,
        has_status=True,
        on_create=_create,
        on_update=_update_namespace,
        before_delete=_before_delete,
        prepare_status=_prepare_status,
    ),
    "nodes": declare_strategy(
        NODE_FIELDS,
        on_create=_create_node,
        on_update=_update_node,
        update_rules=_same_node,
        prepare_status=_prepare_node_status,
        status=Struct(Field("conditions", most=64)),
        status_rules=_node_status,
    ),
    "serviceaccounts": declare_strategy(Struct()),
}
