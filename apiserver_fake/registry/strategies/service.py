"""Services: stored, with an address from a range that nothing routes, so that clients see what they expect."""

from __future__ import annotations

from apiserver_fake.strategy import Cause, Strategy, WriteContext, drop_status, keep_status
from apiserver_fake.validation.formats import duplicate, invalid, label_1035, labels, metadata, required, unsupported
from services.api.meta import Document

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def _with_defaults(spec: Document) -> Document:
    completed = {"type": "ClusterIP", "sessionAffinity": "None", **spec}
    if ports := spec.get("ports"):
        completed["ports"] = [
            {"protocol": "TCP", **({"targetPort": port["port"]} if "port" in port else {}), **port} for port in ports
        ]
    if completed["type"] != "ExternalName":
        completed.setdefault("internalTrafficPolicy", "Cluster")
        completed.setdefault("ipFamilies", ["IPv4"])
        completed.setdefault("ipFamilyPolicy", "SingleStack")
    return completed


def _prepare_create(new: Document, ctx: WriteContext) -> None:
    spec = _with_defaults(new.get("spec") or {})
    if spec["type"] != "ExternalName":
        spec["clusterIP"] = spec.get("clusterIP") or _free_address(ctx)
        spec["clusterIPs"] = [spec["clusterIP"]]
    new["spec"] = spec
    drop_status(new, ctx)
    new["status"] = {"loadBalancer": {}}


def _free_address(ctx: WriteContext) -> str:
    used = {(each.get("spec") or {}).get("clusterIP") for each in ctx.list("services", "")}
    # 10.96.0.1 is the API server's own; 65,000 services are more than the server's limit allows a kind.
    for number in range(10, 65_000):
        address = f"10.96.{number >> 8}.{number & 255}"
        if address not in used:
            return address
    return "None"


def _prepare_update(old: Document, new: Document, ctx: WriteContext) -> None:
    keep_status(old, new, ctx)
    if new.get("spec") is old.get("spec"):
        return
    spec = _with_defaults(new.get("spec") or {})
    before = old.get("spec") or {}
    for name in ("clusterIP", "clusterIPs"):
        if not spec.get(name) and name in before and spec["type"] != "ExternalName":
            spec[name] = before[name]
    new["spec"] = spec


def _validate(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    causes, spec = metadata(new, label_1035), new["spec"]
    if spec["type"] not in _TYPES:
        causes.append(unsupported("spec.type", spec["type"], _TYPES))
    ports = spec.get("ports") or []
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        causes.append(required("spec.ports"))
    names: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"spec.ports[{index}]", port.get("name") or ""
        if not 1 <= port.get("port", 0) <= 65535:
            causes.append(invalid(f"{here}.port", port.get("port", 0), "must be between 1 and 65535, inclusive"))
        if len(ports) > 1 and not name:
            causes.append(required(f"{here}.name"))
        elif name in names:
            causes.append(duplicate(f"{here}.name", name))
        names.add(name)
    causes += labels("spec.selector", spec.get("selector") or {})
    if old is not None:
        before, after = old["spec"].get("clusterIP"), spec.get("clusterIP")
        if before and before != after and spec["type"] != "ExternalName":
            causes.append(invalid("spec.clusterIPs[0]", after, "may not change once set"))
    return causes


STRATEGIES = {"services": Strategy(prepare_create=_prepare_create, prepare_update=_prepare_update, validate=_validate)}
