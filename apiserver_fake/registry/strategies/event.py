"""Events: about an object of their own namespace, and readable without surprises."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import Causes, invalid, plain_text
from services.api.meta import Document

_MESSAGE_MAX = 4096


def _own_namespace(event: Document, at: str, report: Report) -> Causes:
    about = (event.get("involvedObject") or {}).get("namespace") or ""
    own = event["metadata"].get("namespace") or ""
    # Events about cluster-scoped objects name no namespace and live in default (or kube-system).
    if about != own and not (about == "" and own in ("default", "kube-system")):
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")


def _shorten(event: Document) -> None:
    event["message"] = (event.get("message") or "")[:_MESSAGE_MAX]


FIELDS = Struct(
    _own_namespace, Field("reason", form=plain_text), Field("message", form=plain_text), completion=_shorten
)
STRATEGIES = {"events": declared(FIELDS)}
