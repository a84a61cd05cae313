"""Services (core/v1): addresses and node ports are allocated here, as clients expect them; nothing routes.

The texts are upstream's (`pkg/apis/core/validation`, `pkg/registry/core/service`). Addresses come from 10.96.0.0/16
one after the other, node ports by chance from the upper band of 30000-32767 (KEP-3668).
"""

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from apiserver_fake.strategy import WriteContext, declared
from apiserver_fake.validation.fields import Field, Report, Struct, unique
from apiserver_fake.validation.formats import (
    Causes,
    duplicate,
    forbidden,
    invalid,
    label,
    label_1035,
    labels,
    required,
    subdomain,
)
from services.api.meta import Document

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
ADDRESSES = ip_network("10.96.0.0/16")
NODE_PORTS = range(30000, 32768)
STATIC_PORTS = 86
"""How many ports from the lower end are left to clients that choose theirs, while others are free (KEP-3668)."""
CLIENT_IP_TIMEOUT_S = 10800
IP_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"


def has_node_ports(spec: Document) -> bool:
    """Whether each port of the service has a port on every node."""
    is_balanced = spec["type"] == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts", True)
    return bool(spec["type"] == "NodePort" or is_balanced)


def _is_external(spec: Document) -> bool:
    return spec["type"] in ("NodePort", "LoadBalancer") or (
        spec["type"] == "ClusterIP" and bool(spec.get("externalIPs"))
    )


def _needs_health_port(spec: Document) -> bool:
    return spec["type"] == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _complete(spec: Document) -> None:
    if spec.get("sessionAffinity") == "ClientIP":
        given = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": CLIENT_IP_TIMEOUT_S, **given}}
    if spec["type"] == "ExternalName":
        return
    spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        # Whoever writes the endpoints of such a service chooses their families.
        spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if _is_external(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


# -- what is refused


def _some_port(spec: Document, at: str, report: Report) -> Causes:
    ports = spec.get("ports") or []
    if not ports and spec["type"] != "ExternalName" and spec.get("clusterIP") != "None":
        yield required(f"{at}ports")
    if len(ports) > 1:
        yield from [required(f"{at}ports[{index}].name") for index, port in enumerate(ports) if not port.get("name")]


def _distinct_ports(spec: Document, at: str, report: Report) -> Causes:
    seen: set[object] = set()
    chosen: set[object] = set()
    for index, port in enumerate(spec.get("ports") or []):
        path, key = f"{at}ports[{index}]", (port.get("port"), port.get("protocol"))
        if key in seen:
            yield duplicate(path, {"protocol": key[1], "port": key[0]})
        seen.add(key)
        number = port.get("nodePort")
        if not number:
            continue
        if spec["type"] in ("ClusterIP", "ExternalName"):
            yield forbidden(f"{path}.nodePort", f"may not be used when `type` is '{spec['type']}'")
        elif (number, port.get("protocol")) in chosen:
            yield duplicate(f"{path}.nodePort", number)
        chosen.add((number, port.get("protocol")))


def _addresses(spec: Document, at: str, report: Report) -> Causes:
    path, given = f"{at}clusterIPs", spec.get("clusterIPs") or []
    address, kind = spec.get("clusterIP") or "", spec["type"]
    if kind == "ExternalName":
        if address or given:
            yield forbidden(path, "may not be set for ExternalName services")
        if name := spec.get("externalName"):
            yield from subdomain(f"{at}externalName", name.removesuffix("."))
        else:
            yield required(f"{at}externalName")
        return
    if given and address != given[0]:
        yield invalid(path, given, "first value must match `clusterIP`")
        return
    for index, each in enumerate(given or [address]):
        if each == "None":
            if kind != "ClusterIP":
                yield invalid(f"{path}[{index}]", each, f"may not be set to 'None' for {kind} services")
        elif each and not _is_address(each):
            yield invalid(f"{path}[{index}]", each, IP_TEXT)
    for index, each in enumerate(spec.get("externalIPs") or []):
        if not _is_address(each):
            yield invalid(f"{at}externalIPs[{index}]", each, IP_TEXT)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _traffic(spec: Document, at: str, report: Report) -> Causes:
    policy = spec.get("externalTrafficPolicy")
    if policy and not _is_external(spec):
        yield invalid(f"{at}externalTrafficPolicy", policy, "may only be set for externally-accessible services")
    if spec.get("healthCheckNodePort") and not _needs_health_port(spec):
        text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid(f"{at}healthCheckNodePort", spec["healthCheckNodePort"], text)
    for name in ("loadBalancerClass", "allocateLoadBalancerNodePorts"):
        if spec.get(name) is not None and spec["type"] != "LoadBalancer":
            yield forbidden(f"{at}{name}", "may only be used when `type` is 'LoadBalancer'")


PORT = Struct(
    Field("name", form=label),
    unique("name", is_empty_a_key=False),
    Field("port", missing=0, minimum=1, maximum=65535),
    Field("protocol", default="TCP", enum=PROTOCOLS),
    Field("targetPort", default=lambda port: port.get("port")),
)
SPEC = Struct(
    Field("type", default="ClusterIP", enum=TYPES),
    Field("sessionAffinity", default="None", enum=("ClientIP", "None")),
    _some_port,
    Field("ports", items=PORT),
    _distinct_ports,
    Field("selector", form=labels),
    _addresses,
    Field("externalTrafficPolicy", enum=("Cluster", "Local")),
    Field("internalTrafficPolicy", enum=("Cluster", "Local")),
    _traffic,
    completion=_complete,
)


# -- what is allocated


def _others(new: Document, ctx: WriteContext) -> list[Document]:
    own = new["metadata"].get("uid")
    return [each["spec"] for each in ctx.list("services", "") if each["metadata"].get("uid") != own]


def _node_ports(specs: Iterable[Document]) -> set[tuple[int, str]]:
    found = {
        (port["nodePort"], port["protocol"])
        for spec in specs
        for port in spec.get("ports") or ()
        if port.get("nodePort")
    }
    return found | {(spec["healthCheckNodePort"], "TCP") for spec in specs if spec.get("healthCheckNodePort")}


def _free_address(others: list[Document]) -> str:
    used = {spec.get("clusterIP") for spec in others}
    # 10.96.0.1 is the API server's own; 65,000 services are more than the server's limit allows a kind.
    addresses = (f"10.96.{number >> 8}.{number & 255}" for number in range(10, 65_000))
    return next((each for each in addresses if each not in used), "None")


def _free_port(used: set[tuple[int, str]], protocol: str, ctx: WriteContext) -> int:
    """Return a free port of the upper band, then of the lower one; 0 when all are taken."""
    upper, lower = NODE_PORTS[STATIC_PORTS:], NODE_PORTS[:STATIC_PORTS]
    first = ctx.random.randrange(0, len(upper))
    return next((each for each in (*upper[first:], *upper[:first], *lower) if (each, protocol) not in used), 0)


def _allocate(new: Document, ctx: WriteContext) -> None:
    """Give the service the address and the ports on nodes that it needs and does not name."""
    spec = new["spec"]
    if spec.get("type", "ClusterIP") == "ExternalName":
        return
    ports = spec.get("ports") or []
    lacks_ports = has_node_ports(spec) and any(not port.get("nodePort") for port in ports)
    lacks_health = _needs_health_port(spec) and not spec.get("healthCheckNodePort")
    if spec.get("clusterIP") and not lacks_ports and not lacks_health:
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        return
    others = _others(new, ctx)
    spec["clusterIP"] = spec.get("clusterIP") or _free_address(others)
    spec["clusterIPs"] = spec.get("clusterIPs") or [spec["clusterIP"]]
    if not lacks_ports and not lacks_health:
        return
    used = _node_ports([*others, spec])
    if lacks_ports:
        spec["ports"] = [dict(port) for port in ports]
        for port in spec["ports"]:
            if not port.get("nodePort"):
                port["nodePort"] = _free_port(used, port["protocol"], ctx)
                used.add((port["nodePort"], port["protocol"]))
    if lacks_health:
        spec["healthCheckNodePort"] = _free_port(used, "TCP", ctx)


def _create(new: Document, ctx: WriteContext) -> None:
    _allocate(new, ctx)
    new["status"] = {"loadBalancer": {}}


def _keep(old: Document, new: Document, ctx: WriteContext) -> None:
    """Keep what was allocated where a client leaves it out, drop what the type no longer has, allocate what it needs.

    Source: upstream `patchAllocatedValues`, `dropTypeDependentFields`.
    """
    before = old.get("spec") or {}
    if new["spec"] is before:
        return
    spec = new["spec"] = dict(new["spec"])
    if spec["type"] == "ExternalName":
        if before.get("type") != "ExternalName":
            for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
                if spec.get(name) == before.get(name):
                    spec.pop(name, None)
    elif before.get("type") != "ExternalName":
        for name in ("clusterIP", "clusterIPs"):
            if not spec.get(name) and name in before:
                spec[name] = before[name]
    _keep_ports(before, spec)
    if _needs_health_port(before) and not spec.get("healthCheckNodePort") and _needs_health_port(spec):
        spec["healthCheckNodePort"] = before.get("healthCheckNodePort")
    if not _needs_health_port(spec) and spec.get("healthCheckNodePort") == before.get("healthCheckNodePort"):
        spec.pop("healthCheckNodePort", None)
    if not _is_external(spec) and spec.get("externalTrafficPolicy") == before.get("externalTrafficPolicy"):
        spec.pop("externalTrafficPolicy", None)
    if spec["type"] != "LoadBalancer":
        for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(name) == before.get(name):
                spec.pop(name, None)
        if before.get("type") == "LoadBalancer":
            new["status"] = {"loadBalancer": {}}
    _allocate(new, ctx)


def _keep_ports(before: Document, spec: Document) -> None:
    known = {(port.get("port"), port.get("protocol")): port.get("nodePort") for port in before.get("ports") or ()}
    ports = []
    for port in spec.get("ports") or ():
        was, changed = known.get((port.get("port"), port.get("protocol"))), dict(port)
        if has_node_ports(spec) and was and not changed.get("nodePort"):
            changed["nodePort"] = was
        elif spec["type"] in ("ClusterIP", "ExternalName") and was and changed.get("nodePort") == was:
            del changed["nodePort"]
        ports.append(changed)
    if "ports" in spec:
        spec["ports"] = ports


def _allocated(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    """Check what a client chose itself against the ranges and against what other services have."""
    spec, before = new["spec"], (old or {}).get("spec") or {}
    if spec is before or spec["type"] not in TYPES:
        return
    known = {(port.get("nodePort"), port.get("protocol")) for port in before.get("ports") or ()}
    address, chosen = spec.get("clusterIP"), []
    for index, port in enumerate(spec.get("ports") or ()):
        number = port.get("nodePort")
        if number and has_node_ports(spec) and (number, port.get("protocol")) not in known:
            chosen.append((f"spec.ports[{index}].nodePort", number, port.get("protocol")))
    is_new = bool(address) and address != before.get("clusterIP") and address != "None" and _is_address(address)
    if not is_new and not chosen:
        return
    others = _others(new, ctx)
    if is_new and ip_address(address) not in ADDRESSES:
        why = f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {ADDRESSES}"
        yield invalid("spec.clusterIPs", [address], f"failed to allocate IP {address}: {why}")
    elif is_new and any(each.get("clusterIP") == address for each in others):
        yield invalid(
            "spec.clusterIPs", [address], f"failed to allocate IP {address}: provided IP is already allocated"
        )
    used = _node_ports(others) if chosen else set()
    for path, number, protocol in chosen:
        if number not in NODE_PORTS:
            limits = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            text = f"provided port is not in the valid range. The range of valid ports is {limits}"
            yield invalid(path, number, text)
        elif (number, protocol) in used:
            yield invalid(path, number, "provided port is already allocated")


def _same_address(old: Document, new: Document, ctx: WriteContext) -> Causes:
    before, after = (each.get("spec", {}).get("clusterIP") for each in (old, new))
    is_external = "ExternalName" in (old.get("spec", {}).get("type"), new["spec"]["type"])
    if before and before != after and not is_external:
        yield invalid("spec.clusterIPs[0]", after, "may not change once set")


STRATEGIES = {
    "services": declared(
        Struct(Field("spec", default={}, struct=SPEC)),
        name=label_1035,
        has_status=True,
        on_create=_create,
        on_update=_keep,
        rules=_allocated,
        update_rules=_same_address,
    )
}
