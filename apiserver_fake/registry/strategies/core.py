"""Small kinds of the core group: ConfigMaps and Secrets, Events, Namespaces, Nodes, service accounts.

Data has keys that can be file names, and never changes once declared immutable; a Secret's `stringData` is folded into
its `data`. An Event is about an object of its own namespace. A Namespace is held by `spec.finalizers` until its content
is gone (controllers 11). A Node may bring a first status.
"""

import base64
import binascii
import re
from collections.abc import Mapping

from apiserver_fake.accounts.tokens import ACCOUNT_NAME, LEGACY_TYPE
from apiserver_fake.errors import forbidden as refused
from apiserver_fake.strategy import DeleteOptions, Rules, WriteContext, declared, keep_all_but_status, keep_status
from apiserver_fake.validation.fields import Field, Report, Struct, not_repeated, quantities, unique
from apiserver_fake.validation.formats import (
    Cause,
    Causes,
    duplicate,
    forbidden,
    invalid,
    label,
    label_value,
    plain_text,
    qualified_name,
    required,
)
from apiserver_fake.validation.pod.placement import EFFECTS
from services.api.meta import Document
from services.api.times import format_time

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
FROZEN = "field is immutable when `immutable` is set"


def keys(values: Mapping[str, str], path: str, report: Report) -> Causes:
    """A rule for the keys of a ConfigMap's or Secret's data."""
    for name in values:
        if not _KEY.fullmatch(name) or name in (".", ".."):
            yield invalid(f"{path}[{name}]", name, _KEY_TEXT)


def base64_values(values: Mapping[str, str], path: str, report: Report) -> Causes:
    """A rule for values in base64. The causes never show a value: it may be secret (X-SEC)."""
    for name, text in values.items():
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            yield Cause(f"{path}[{name}]", "FieldValueInvalid", "Invalid value: not base64")


def frozen(*names: str) -> Rules:
    """Return the rule that an object once declared immutable keeps its content."""

    def check(old: Document, new: Document, ctx: WriteContext) -> Causes:
        if old.get("immutable"):
            changed = [] if new.get("immutable") else ["immutable"]
            changed += [name for name in names if (old.get(name) or {}) != (new.get(name) or {})]
            yield from (forbidden(name, FROZEN) for name in changed)

    return check


def _distinct(new: Document, at: str, report: Report) -> Causes:
    binary = new.get("binaryData") or {}
    yield from [duplicate(f"data[{name}]", name) for name in new.get("data") or {} if name in binary]


CONFIGMAP_FIELDS = Struct(
    Field("data", rule=keys), Field("binaryData", rule=keys), Field("binaryData", rule=base64_values), _distinct
)


def _fold(new: Document) -> None:
    if plain := new.pop("stringData", None):
        encoded = {name: base64.b64encode(text.encode()).decode() for name, text in plain.items()}
        new["data"] = {**(new.get("data") or {}), **encoded}


def _keep_type(old: Document, new: Document, ctx: WriteContext) -> None:
    if not new.get("type"):
        new["type"] = old.get("type") or "Opaque"


def _names_account(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    """Yield that a token's secret does not say whose it is."""
    if new.get("type") == LEGACY_TYPE and not (new["metadata"].get("annotations") or {}).get(ACCOUNT_NAME):
        yield required(f"metadata.annotations[{ACCOUNT_NAME}]")


SECRET_FIELDS = Struct(
    Field("data", rule=keys),
    Field("data", rule=base64_values),
    Field("type", default="Opaque", is_blank_absent=True, is_immutable=True),
    completion=_fold,
)


_MESSAGE_MAX = 4096


def _own_namespace(event: Document, at: str, report: Report) -> Causes:
    about = (event.get("involvedObject") or {}).get("namespace") or ""
    own = event["metadata"].get("namespace") or ""
    # Events about cluster-scoped objects name no namespace and live in default (or kube-system).
    if about != own and not (about == "" and own in ("default", "kube-system")):
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")


EVENT_FIELDS = Struct(
    _own_namespace,
    Field("reason", form=plain_text),
    Field("message", form=plain_text),
    completion=lambda event: event.update(message=(event.get("message") or "")[:_MESSAGE_MAX]),
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
    """Whether nothing holds a namespace that is being deleted any more."""
    return not (namespace.get("spec") or {}).get("finalizers") and not namespace["metadata"].get("finalizers")


POLICY = "podPreemptionPolicy"
TAINT = Struct(
    Field("key", missing="", form=qualified_name),
    Field("value", form=label_value),
    Field("effect", required=True, enum=EFFECTS),
    unique("key", "effect"),
)
OWNER = Field(missing="", form=qualified_name, rule=not_repeated)
NODE_SPEC = Struct(
    Field("taints", most=200, items=TAINT),
    Field(POLICY, struct=Struct(Field("disableResizePreemption", most=20, items=OWNER))),
)
STATUS = Struct(Field("capacity", rule=quantities), Field("allocatable", rule=quantities), Field("conditions", most=64))
NODE_FIELDS = Struct(Field("spec", default={}, struct=NODE_SPEC), Field("status", default={}, struct=STATUS))


NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def _create_node(new: Document, ctx: WriteContext) -> None:
    """Give a node that a client makes what a kubelet's registration has: all of its capacity to allocate, and the taint
    that goes once it is ready. Source: upstream `pkg/apis/core/v1/defaults.go`,
    `plugin/pkg/admission/nodetaint/admission.go`."""
    _drop_unknown_policy(new, ctx)
    if not ctx.request.field_validation:
        return
    status, taints = new.get("status") or {}, (new.get("spec") or {}).get("taints") or []
    if status.get("capacity") and not status.get("allocatable"):
        new["status"] = {**status, "allocatable": dict(status["capacity"])}
    if not any((taint.get("key"), taint.get("effect")) == tuple(NOT_READY_TAINT.values()) for taint in taints):
        new["spec"] = {**(new.get("spec") or {}), "taints": [*taints, dict(NOT_READY_TAINT)]}


def _drop_unknown_policy(new: Document, ctx: WriteContext) -> None:
    """Leave out what the feature gate does not know; what is stored already stays (KEP-5836)."""
    if POLICY in new["spec"] and not ctx.switches.resize_preemption:
        new["spec"] = {name: value for name, value in new["spec"].items() if name != POLICY}


def _update_node(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if POLICY not in (old.get("spec") or {}):
        _drop_unknown_policy(new, ctx)


STRATEGIES = {
    "configmaps": declared(CONFIGMAP_FIELDS, update_rules=frozen("data", "binaryData")),
    "secrets": declared(SECRET_FIELDS, before_update=_keep_type, rules=_names_account, update_rules=frozen("data")),
    "events": declared(EVENT_FIELDS),
    "namespaces": declared(
        Struct(),
        name=label,
        has_status=True,
        on_create=_create,
        on_update=_update_namespace,
        before_delete=_before_delete,
        prepare_status=_prepare_status,
    ),
    "nodes": declared(NODE_FIELDS, on_create=_create_node, on_update=_update_node, status=STATUS),
    "serviceaccounts": declared(Struct()),
}
