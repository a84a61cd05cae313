"""Services: stored, with an address from a range that nothing routes, so that clients see what they expect."""

from __future__ import annotations

from apiserver_fake.registry.declared import declared
from apiserver_fake.strategy import WriteContext
from apiserver_fake.validation.fields import Field, Report, Struct, unique
from apiserver_fake.validation.formats import Cause, Causes, invalid, label_1035, labels, required
from services.api.meta import Document

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def _complete(spec: Document) -> None:
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")


def _some_port(spec: Document, at: str, report: Report) -> Causes:
    ports = spec.get("ports") or []
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        yield required(f"{at}ports")
    if len(ports) > 1:
        yield from [required(f"{at}ports[{index}].name") for index, port in enumerate(ports) if not port.get("name")]


PORT = Struct(
    Field("protocol", default="TCP"),
    Field("targetPort", default=lambda port: port.get("port")),
    Field("port", missing=0, minimum=1, maximum=65535),
    unique("name", is_empty_a_key=False),
)
SPEC = Struct(
    Field("type", default="ClusterIP", enum=TYPES),
    Field("sessionAffinity", default="None"),
    _some_port,
    Field("ports", items=PORT),
    Field("selector", form=labels),
    completion=_complete,
)


def _give_address(new: Document, ctx: WriteContext) -> None:
    spec = new["spec"]
    if spec["type"] != "ExternalName":
        spec["clusterIP"] = spec.get("clusterIP") or _free_address(ctx)
        spec["clusterIPs"] = [spec["clusterIP"]]
    new["status"] = {"loadBalancer": {}}


def _free_address(ctx: WriteContext) -> str:
    used = {(each.get("spec") or {}).get("clusterIP") for each in ctx.list("services", "")}
    # 10.96.0.1 is the API server's own; 65,000 services are more than the server's limit allows a kind.
    for number in range(10, 65_000):
        address = f"10.96.{number >> 8}.{number & 255}"
        if address not in used:
            return address
    return "None"


def _keep_address(old: Document, new: Document, ctx: WriteContext) -> None:
    spec, before = new["spec"], old.get("spec") or {}
    if spec is before or spec["type"] == "ExternalName":
        return
    for name in ("clusterIP", "clusterIPs"):
        if not spec.get(name) and name in before:
            spec[name] = before[name]


def _same_address(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    before, after = ((each or {}).get("spec", {}).get("clusterIP") for each in (old, new))
    if before and before != after and new["spec"]["type"] != "ExternalName":
        return [invalid("spec.clusterIPs[0]", after, "may not change once set")]
    return []


STRATEGIES = {
    "services": declared(
        Struct(Field("spec", default={}, struct=SPEC)),
        name=label_1035,
        has_status=True,
        on_create=_give_address,
        on_update=_keep_address,
        rules=_same_address,
    )
}
