"""Services (core/v1): cluster IPs and node ports are allocated here, as clients expect; no traffic is
routed.

The texts are upstream's (`pkg/apis/core/validation`, `pkg/registry/core/service`). Addresses come from
10.96.0.0/16 one after the other, node ports at random from the upper band of 30000-32767 (KEP-3668).
"""

from collections.abc import Iterable
from ipaddress import ip_network

from apiserver_fake.registry.strategy import WriteContext, declare_strategy, keep_all_but_status
from apiserver_fake.registry.validation.addresses import network, ordinary, parse_address, version_of
from apiserver_fake.registry.validation.fields import Field, Report, Struct, unique
from apiserver_fake.registry.validation.formats import (
    Causes,
    address,
    duplicate,
    forbidden,
    invalid,
    label,
    label_1035,
    labels,
    not_supported,
    qualified_name,
    required,
    subdomain,
)
from apiserver_fake.registry.validation.formats import port as a_port
from services.api.meta import Document

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
ADDRESSES = ip_network("10.96.0.0/16")
NODE_PORTS = range(30000, 32768)
STATIC_PORTS = 86
"""Number of ports at the lower end that are reserved for explicit requests while others are free (KEP-3668)."""
CLIENT_IP_TIMEOUT_S = 10800
FAMILIES, FAMILY_POLICIES = ("IPv4", "IPv6"), ("PreferDualStack", "RequireDualStack", "SingleStack")


def has_node_ports(spec: Document) -> bool:
    """Whether each port of the Service has a node port."""
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

_AFFINITY_TEXT = "when session affinity type is ClientIP"
_AFFINITY_MAX_S = 86_400
_BALANCED = "may only be used when `type` is 'LoadBalancer'"
_ONCE = "may not change once set"
HINTS, MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"


def is_headless(spec: Document) -> bool:
    """Whether a Service is headless."""
    return (spec.get("clusterIPs") or [spec.get("clusterIP")]) == ["None"]


def _hints(service: Document, at: str, report: Report) -> Causes:
    notes = service["metadata"].get("annotations") or {}
    if HINTS in notes and MODE in notes and notes[HINTS] != notes[MODE]:
        text = f"must match annotations[{HINTS}] when both are specified"
        yield invalid(f"metadata.annotations[{MODE}]", notes[MODE], text)


def _kind(spec: Document, at: str, report: Report) -> Causes:
    kind, ports = spec["type"], spec.get("ports") or []
    report.scope = len(ports) > 1
    if not ports and not is_headless(spec) and kind != "ExternalName":
        yield required(f"{at}ports")
    if kind in ("LoadBalancer", "NodePort") and is_headless(spec):
        yield invalid(f"{at}clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind != "ExternalName":
        return
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            yield forbidden(f"{at}{name}", "may not be set for ExternalName services")
    name = (spec.get("externalName") or "").removesuffix(".")
    yield from subdomain(f"{at}externalName", name) if name else [required(f"{at}externalName")]


def _port_name(each: Document, at: str, report: Report) -> Causes:
    name = each.get("name") or ""
    if not name and report.scope:
        yield required(f"{at}name")
    elif name:
        yield from label(f"{at}name", name)


def _affinity(spec: Document, at: str, report: Report) -> Causes:
    kind, config, path = spec.get("sessionAffinity"), spec.get("sessionAffinityConfig"), f"{at}sessionAffinityConfig"
    if kind == "None" and config is not None:
        yield forbidden(path, "must not be set when session affinity is None")
    if kind != "ClientIP":
        return
    seconds = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
    if config is None:
        yield required(path, _AFFINITY_TEXT)
    elif seconds is not None and not 0 < seconds <= _AFFINITY_MAX_S:
        text = f"must be greater than 0 and less than {_AFFINITY_MAX_S}"
        yield invalid(f"{path}.clientIP.timeoutSeconds", seconds, text)


def _addresses(spec: Document, at: str, report: Report) -> Causes:
    if spec["type"] == "ExternalName":
        return
    path, given, one = f"{at}clusterIPs", spec.get("clusterIPs") or [], spec.get("clusterIP") or ""
    if one and given[:1] != [one]:
        yield invalid(path, given, "first value must match `clusterIP`") if given else required(path)
    elif not one and given:
        yield invalid(path, given, "must be empty when `clusterIP` is not specified")
    families = spec.get("ipFamilies") or []
    for index, family in enumerate(families):
        if family not in FAMILIES:
            yield not_supported(f"{at}ipFamilies[{index}]", family, FAMILIES)
        if family in families[:index]:
            yield duplicate(f"{at}ipFamilies[{index}]", family)
    policy = spec.get("ipFamilyPolicy")
    if policy is not None and policy not in FAMILY_POLICIES:
        yield not_supported(f"{at}ipFamilyPolicy", policy, FAMILY_POLICIES)
    wrong = [*_each_address(given, path)]
    yield from wrong
    if len(given) > 2:
        yield invalid(path, given, "may only hold up to 2 values")
    if wrong:
        return
    versions = [version_of(each) for each in given]
    if len(given) > 1 and len(set(versions)) == 1:
        yield invalid(path, given, "may specify no more than one IP for each IP family")
    if not is_headless(spec):
        for index, (cluster_ip, family) in enumerate(zip(given, families, strict=False)):
            if family in FAMILIES and family != f"IPv{versions[index]}":
                text = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
                yield invalid(f"{path}[{index}]", cluster_ip, text)


def _each_address(given: list[str], path: str) -> Causes:
    for index, each in enumerate(given):
        if index == 0 and each == "None":
            if len(given) > 1:
                yield invalid(path, given, "'None' must be the first and only value")
        else:
            yield from address(f"{path}[{index}]", each)


def external_address(value: str, path: str, report: Report) -> Causes:
    """Check an external IP address of a Service."""
    yield from address(path, value) or ordinary(path, value)


def _node_ports_of(spec: Document, at: str, report: Report) -> Causes:
    ports = [(f"{at}ports[{index}]", each) for index, each in enumerate(spec.get("ports") or ())]
    if spec["type"] == "ClusterIP":
        for path, port in ports:
            if port.get("nodePort"):
                yield forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'")
    for name in ("nodePort", "port"):
        seen: set[object] = set()
        for path, port in ports:
            number, protocol = port.get(name) or 0, port.get("protocol")
            if name == "nodePort" and not number:
                continue
            if (number, protocol) in seen and name == "nodePort":
                yield duplicate(f"{path}.nodePort", number)
            elif (number, protocol) in seen:
                shown = {"Name": "", "Protocol": protocol, "AppProtocol": None, "Port": number}
                yield duplicate(path, {**shown, "TargetPort": 0, "NodePort": 0})
            seen.add((number, protocol))


def _ranges(service: Document, at: str, report: Report) -> Causes:
    spec, path = service["spec"], "spec.LoadBalancerSourceRanges"
    if ranges := spec.get("loadBalancerSourceRanges"):
        if spec["type"] != "LoadBalancer":
            yield forbidden(path, _BALANCED)
        for index, cidr in enumerate(ranges):
            yield from network(f"{path}[{index}]", cidr.strip())
    elif (text := (service["metadata"].get("annotations") or {}).get(RANGES)) is not None:
        path = f"metadata.annotations[{RANGES}]"
        if spec["type"] != "LoadBalancer":
            yield forbidden(path, _BALANCED)
        for cidr in text.split(",") if text.strip() else ():
            yield from network(path, cidr.strip())


def _traffic(service: Document, at: str, report: Report) -> Causes:
    spec, at = service["spec"], "spec."
    if spec.get("allocateLoadBalancerNodePorts") is not None and spec["type"] != "LoadBalancer":
        yield forbidden(f"{at}allocateLoadBalancerNodePorts", _BALANCED)
    if (name := spec.get("loadBalancerClass")) is not None:
        is_balanced = spec["type"] == "LoadBalancer"
        path = f"{at}loadBalancerClass"
        yield from qualified_name(path, name) if is_balanced else [forbidden(path, _BALANCED)]
    policy, path = spec.get("externalTrafficPolicy") or "", f"{at}externalTrafficPolicy"
    if not _is_external(spec):
        if policy:
            yield invalid(path, policy, "may only be set for externally-accessible services")
    elif policy not in TRAFFIC:
        yield not_supported(path, policy, TRAFFIC) if policy else required(path)
    number, path = spec.get("healthCheckNodePort") or 0, f"{at}healthCheckNodePort"
    if number and not _needs_health_port(spec):
        text = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid(path, number, text)
    elif number:
        yield from a_port(path, number)


PORT = Struct(
    _port_name,
    unique("name", is_empty_a_key=False),
    Field("port", missing=0, minimum=1, maximum=65535),
    Field("protocol", default="TCP", is_blank_absent=True, enum=PROTOCOLS),
    Field(
        "targetPort",
        default=lambda port: port.get("port"),
        is_blank_absent=True,
        rule=lambda value, path, report: a_port(path, value),
    ),
    Field("appProtocol", form=qualified_name),
)
TRAFFIC = ("Cluster", "Local")
SPEC = Struct(
    Field("type", default="ClusterIP", is_blank_absent=True),
    _kind,
    Field("ports", items=PORT),
    Field("selector", form=labels),
    Field("sessionAffinity", default="None", is_blank_absent=True, enum=("ClientIP", "None")),
    _affinity,
    _addresses,
    Field("externalIPs", items=Field(rule=external_address)),
    Field("type", enum=TYPES),
    _node_ports_of,
    completion=_complete,
)
LAST = Struct(
    Field("internalTrafficPolicy", enum=TRAFFIC),
    Field("trafficDistribution", enum=("PreferClose", "PreferSameNode", "PreferSameZone")),
)
"""Fields that are checked after those that depend on annotations."""
FIELDS = Struct(_hints, Field("spec", default={}, struct=SPEC), _ranges, _traffic, Field("spec", struct=LAST))


# -- what is allocated


def _others(new: Document, ctx: WriteContext) -> list[Document]:
    own = new["metadata"].get("uid")
    return [each["spec"] for each in ctx.list("services", "") if each["metadata"].get("uid") != own]


def _node_ports(specs: Iterable[Document]) -> set[tuple[int, str]]:
    node_ports = {
        (port["nodePort"], port["protocol"])
        for spec in specs
        for port in spec.get("ports") or ()
        if port.get("nodePort")
    }
    return node_ports | {(spec["healthCheckNodePort"], "TCP") for spec in specs if spec.get("healthCheckNodePort")}


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
    if spec.get("type", "ClusterIP") == "ExternalName" or (spec.get("clusterIPs") and not spec.get("clusterIP")):
        return
    if (spec.get("ipFamilies") or [])[:1] == ["IPv6"] and not spec.get("clusterIP"):
        return  # which this cluster has none of
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


def _allocation_causes(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    """Check what a client chose itself against the ranges and against what other services have."""
    spec, before = new["spec"], (old or {}).get("spec") or {}
    if spec is before or spec["type"] not in TYPES:
        return
    if not is_headless(spec) or spec.get("selector"):
        yield from _stacks(spec)
    known = {(port.get("nodePort"), port.get("protocol")) for port in before.get("ports") or ()}
    chosen_ip, chosen = spec.get("clusterIP") or "", []
    for index, port in enumerate(spec.get("ports") or ()):
        number = port.get("nodePort")
        if number and has_node_ports(spec) and (number, port.get("protocol")) not in known:
            chosen.append((f"spec.ports[{index}].nodePort", number, port.get("protocol")))
    is_new = (
        bool(chosen_ip)
        and chosen_ip != before.get("clusterIP")
        and chosen_ip != "None"
        and bool(parse_address(chosen_ip))
    )
    if not is_new and not chosen:
        return
    others = _others(new, ctx)
    if is_new and parse_address(chosen_ip) not in ADDRESSES:
        why = f"the provided IP ({chosen_ip}) is not in the valid range. The range of valid IPs is {ADDRESSES}"
        yield invalid("spec.clusterIPs", [chosen_ip], f"failed to allocate IP {chosen_ip}: {why}")
    elif is_new and any(each.get("clusterIP") == chosen_ip for each in others):
        yield invalid(
            "spec.clusterIPs", [chosen_ip], f"failed to allocate IP {chosen_ip}: provided IP is already allocated"
        )
    used = _node_ports(others) if chosen else set()
    for path, number, protocol in chosen:
        if number not in NODE_PORTS:
            limits = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            text = f"provided port is not in the valid range. The range of valid ports is {limits}"
            yield invalid(path, number, text)
        elif (number, protocol) in used:
            yield invalid(path, number, "provided port is already allocated")


def _stacks(spec: Document) -> Causes:
    """Check that a service wants no addresses of a family that this cluster has not: its services have IPv4."""
    if spec.get("ipFamilyPolicy") == "RequireDualStack":
        text = "this cluster is not configured for dual-stack services"
        yield invalid("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], text)
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family == "IPv6":
            yield invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")


def _immutable_fields(old: Document, new: Document, ctx: WriteContext) -> Causes:
    before, after = old.get("spec") or {}, new["spec"]
    if "ExternalName" not in (before.get("type"), after["type"]):
        yield from _same_addresses(before, after)
        yield from _same_families(before, after)
    if before.get("type") == after["type"] == "LoadBalancer":
        name = after.get("loadBalancerClass")
        if before.get("loadBalancerClass") != name:
            yield invalid("spec.loadBalancerClass", name, _ONCE)
    was, now = (each.get("healthCheckNodePort") or 0 for each in (before, after))
    if _needs_health_port(before) and _needs_health_port(after) and was != now:
        yield forbidden("spec.healthCheckNodePort", "field is immutable")


def _same_addresses(before: Document, after: Document) -> Causes:
    """Check that the addresses stay: a second one may come and go (upstream `validateUpgradeDowngradeClusterIPs`)."""
    was, now = (each.get("clusterIPs") or [] for each in (before, after))
    if is_headless(before) and is_headless(after):
        return
    if len(was) == len(now):
        for index, (one, other) in enumerate(zip(was, now, strict=True)):
            if one != other:
                yield invalid(f"spec.clusterIPs[{index}]", now, _ONCE)
        return
    if was and not now:
        yield invalid("spec.clusterIPs[0]", now, "primary clusterIP can not be unset")
    elif was and was[0] != now[0]:
        yield invalid("spec.clusterIPs[0]", now, _ONCE)
    policy = after.get("ipFamilyPolicy")
    if len(was) > len(now) == 1 and policy != "SingleStack":
        text = "must be set to 'SingleStack' when releasing the secondary clusterIP"
        yield invalid("spec.ipFamilyPolicy", policy, text)


def _same_families(before: Document, after: Document) -> Causes:
    if is_headless(before) or is_headless(after):
        return
    was, now, path = before.get("ipFamilies") or [], after.get("ipFamilies") or [], "spec.ipFamilies[0]"
    if len(was) == len(now):
        yield from [invalid(path, now, _ONCE) for one, other in zip(was, now, strict=True) if one != other]
        return
    if len(was) > len(now) and not after.get("clusterIPs"):
        yield invalid(path, now, "primary ipFamily can not be unset")
    if was and now and was[0] != now[0]:
        yield invalid(path, after.get("clusterIPs") or [], _ONCE)
    policy = after.get("ipFamilyPolicy")
    if len(was) > len(now) == 1 and policy != "SingleStack":
        text = "must be set to 'SingleStack' when releasing the secondary ipFamily"
        yield invalid("spec.ipFamilyPolicy", policy, text)


def _ingress(ingress: Document, at: str, report: Report) -> Causes:
    ip, mode, name = ingress.get("ip") or "", ingress.get("ipMode"), ingress.get("hostname") or ""
    if ip:
        yield from address(f"{at}ip", ip)
    if mode is None and ip:
        yield required(f"{at}ipMode", "must be specified when `ip` is set")
    elif mode is not None and not ip:
        yield forbidden(f"{at}ipMode", "may not be specified when `ip` is not set")
    elif mode is not None and mode not in ("Proxy", "VIP"):
        yield not_supported(f"{at}ipMode", mode, ("Proxy", "VIP"))
    if name:
        yield from subdomain(f"{at}hostname", name)
        if parse_address(name) is not None:
            yield invalid(f"{at}hostname", name, "must be a DNS name, not an IP address")


def _status(old: Document, new: Document, ctx: WriteContext) -> Causes:
    ingress = (((new.get("status") or {}).get("loadBalancer")) or {}).get("ingress") or []
    if ingress and new["spec"]["type"] != "LoadBalancer":
        yield forbidden("status.loadBalancer.ingress", "may only be used when `spec.type` is 'LoadBalancer'")
        return
    report = Report()
    for index, entry in enumerate(ingress):
        yield from _ingress(entry, f"status.loadBalancer.ingress[{index}].", report)


def _complete_status(old: Document, new: Document, ctx: WriteContext) -> None:
    """Say of an address that it is a virtual one where it is not said (KEP-1860)."""
    keep_all_but_status(old, new, ctx)
    balancer = (new.get("status") or {}).get("loadBalancer") or {}
    if any(each.get("ip") and each.get("ipMode") is None for each in balancer.get("ingress") or ()):
        ingress = [{"ipMode": "VIP", **each} if each.get("ip") else each for each in balancer["ingress"]]
        new["status"] = {**new["status"], "loadBalancer": {**balancer, "ingress": ingress}}


STRATEGIES = {
    "services": declare_strategy(
        FIELDS,
        name=label,
        name_by=lambda switches: label if switches.relaxed_service_names else label_1035,
        has_status=True,
        on_create=_create,
        on_update=_keep,
        rules=_allocation_causes,
        update_rules=_immutable_fields,
        status_rules=_status,
        prepare_status=_complete_status,
    )
}
