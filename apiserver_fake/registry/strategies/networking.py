"""Kinds of `networking.k8s.io`: Ingresses and their classes, NetworkPolicies, ranges and addresses of Services.

The texts are upstream's (`pkg/apis/networking/validation`). An Ingress that names no class gets the default one
(admission plugin DefaultIngressClass). Nothing routes or filters: as in a cluster without a network plugin.
"""

import re
from ipaddress import ip_address, ip_network

from apiserver_fake.strategy import WriteContext, declared
from apiserver_fake.validation.fields import Field, Report, Struct
from apiserver_fake.validation.formats import (
    Cause,
    Causes,
    forbidden,
    invalid,
    label_1035,
    label_selector,
    required,
    subdomain,
    unsupported,
)
from services.api.kinds.ingressclass import DEFAULT_CLASS
from services.api.meta import Document

INGRESS_CLASSES = "ingressclasses.networking.k8s.io"
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
PROTOCOLS = ("SCTP", "TCP", "UDP")
_PORT_NAME = re.compile("[-a-z0-9]+")
_DOMAIN_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def port_name_or_number(path: str, value: int | str) -> Causes:
    """Check a port: 1 to 65535, or an IANA service name."""
    if isinstance(value, int):
        if not 1 <= value <= 65535:
            yield invalid(path, value, "must be between 1 and 65535, inclusive")
        return
    if len(value) > 15:
        yield invalid(path, value, "must be no more than 15 characters")
    if not _PORT_NAME.fullmatch(value):
        yield invalid(path, value, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", value):
        yield invalid(path, value, "must contain at least one letter (a-z)")
    if "--" in value:
        yield invalid(path, value, "must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        yield invalid(path, value, "must not begin or end with a hyphen")


def domain_path(path: str, value: str) -> list[Cause]:
    """Check a name with a domain in front: `example.com/thing`."""
    domain, slash, rest = value.partition("/")
    if not slash or not domain or not rest:
        return [invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    wrong = subdomain(path, domain)
    if not wrong and not _DOMAIN_PATH.fullmatch(rest):
        return [invalid(path, value, "Invalid path")]
    return wrong


# -- Ingress


def _host(host: str, path: str, report: Report) -> Causes:
    try:
        ip_address(host)
    except ValueError:
        yield from subdomain(path, host[2:]) if host.startswith("*.") else subdomain(path, host)
    else:
        yield invalid(path, host, "must be a DNS name, not an IP address")


_INVALID_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_INVALID_ENDS = ("/..", "/.")


def _path(each: Document, at: str, report: Report) -> Causes:
    kind, path = each.get("pathType"), each.get("path") or ""
    if kind is None:
        yield required(f"{at}pathType", "pathType must be specified")
    elif kind not in PATH_TYPES:
        yield unsupported(f"{at}pathType", kind, PATH_TYPES)
    elif kind == "ImplementationSpecific":
        if path and not path.startswith("/"):
            yield invalid(f"{at}path", path, "must be an absolute path")
    else:
        if not path.startswith("/"):
            yield invalid(f"{at}path", path, "must be an absolute path")
        elif path:
            yield from [
                invalid(f"{at}path", path, f"must not contain '{each}'") for each in _INVALID_SEQUENCES if each in path
            ]
            yield from [
                invalid(f"{at}path", path, f"cannot end with '{each}'") for each in _INVALID_ENDS if path.endswith(each)
            ]


def _backend(backend: Document, at: str, report: Report) -> Causes:
    service, resource = backend.get("service"), backend.get("resource")
    if resource is not None and service is not None:
        yield invalid(at[:-1], "", "cannot set both resource and service backends")
    elif resource is not None:
        for name in ("kind", "name"):
            if not resource.get(name):
                yield required(f"{at}resource.{name}")
    elif service is None:
        yield required(at[:-1], "resource or service backend is required")
    else:
        yield from _service(service, f"{at}service.")


def _service(service: Document, at: str) -> Causes:
    if not service.get("name"):
        yield required(f"{at}name")
    else:
        yield from label_1035(f"{at}name", service["name"])
    port = service.get("port") or {}
    name, number = port.get("name") or "", port.get("number") or 0
    if name and number:
        yield invalid(at[:-1], "", "cannot set both port name & port number")
    elif name:
        yield from port_name_or_number(f"{at}port.name", name)
    elif number:
        yield from port_name_or_number(f"{at}port.number", number)
    else:
        yield required(at[:-1], "port name or number is required")


def _some_rule(spec: Document, at: str, report: Report) -> Causes:
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield invalid(at[:-1], spec.get("rules") or [], "either `defaultBackend` or `rules` must be specified")


BACKEND = Struct(_backend)
RULE = Struct(
    Field("host", rule=lambda host, path, report: _host(host, path, report) if host else ()),
    Field(
        "http",
        struct=Struct(
            Field("paths", required=True, missing=[], items=Struct(_path, Field("backend", missing={}, struct=BACKEND)))
        ),
    ),
)
INGRESS_SPEC = Struct(
    _some_rule,
    Field("rules", items=RULE),
    Field("tls", items=Struct(Field("hosts", items=Field(rule=_host)))),
    Field("defaultBackend", struct=BACKEND),
    Field("ingressClassName", form=subdomain),
)


def _class(new: Document, ctx: WriteContext) -> None:
    spec = new["spec"]
    named = spec.get("ingressClassName") is not None
    if named or CLASS_ANNOTATION in (new["metadata"].get("annotations") or {}):
        return
    defaults = [
        each
        for each in ctx.list(INGRESS_CLASSES, "")
        if (each["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"
    ]
    if defaults:
        # Of several the newest, then the first by name.
        newest = max(each["metadata"]["creationTimestamp"] for each in defaults)
        names = [each["metadata"]["name"] for each in defaults if each["metadata"]["creationTimestamp"] == newest]
        spec["ingressClassName"] = min(names)


def _one_class(old: Document | None, new: Document, ctx: WriteContext) -> Causes:
    annotations = new["metadata"].get("annotations") or {}
    named = (new.get("spec") or {}).get("ingressClassName")
    if old is None and named is not None and CLASS_ANNOTATION in annotations:
        at = f"metadata.annotations.{CLASS_ANNOTATION}"
        yield invalid(at, annotations[CLASS_ANNOTATION], "can not be set when the class field is also set")


def _empty_load_balancer(new: Document, ctx: WriteContext) -> None:
    _class(new, ctx)
    new["status"] = {"loadBalancer": {}}


# -- IngressClass


def _controller(value: str, path: str, report: Report) -> Causes:
    if len(value) > 250:
        yield invalid(path, value, "must be no more than 250 characters")
    yield from domain_path(path, value)


def _reference(parameters: Document, at: str, report: Report) -> Causes:
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope == "Namespace" and not namespace:
        yield required(f"{at}namespace", "`parameters.scope` is set to 'Namespace'")
    elif scope == "Cluster" and namespace is not None:
        yield forbidden(f"{at}namespace", "`parameters.scope` is set to 'Cluster'")


INGRESS_CLASS_SPEC = Struct(
    Field("controller", missing="", is_immutable=True, rule=_controller),
    Field(
        "parameters",
        struct=Struct(
            Field("kind", required="kind is required"),
            Field("name", required="name is required"),
            Field("scope", default="Cluster", enum=("Cluster", "Namespace")),
            _reference,
        ),
    ),
)


# -- NetworkPolicy


def _ports(port: Document, at: str, report: Report) -> Causes:
    first, last = port.get("port"), port.get("endPort")
    if last is not None:
        if first is None:
            yield invalid(f"{at}endPort", last, "must specify port when endPort is specified")
        elif isinstance(first, str):
            yield invalid(f"{at}endPort", last, "may not be specified when `port` is non-numeric")
        elif last < first:
            yield invalid(f"{at}endPort", last, "must be greater than or equal to `port`")
        elif not 1 <= last <= 65535:
            yield invalid(f"{at}endPort", last, "must be between 1 and 65535, inclusive")
    if first is not None:
        yield from port_name_or_number(f"{at}port", first)


def _peer(peer: Document, at: str, report: Report) -> Causes:
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    for name in ("podSelector", "namespaceSelector"):
        if name in given:
            yield from label_selector(f"{at}{name}", peer[name])
    if "ipBlock" in given:
        yield from _ip_block(peer["ipBlock"], f"{at}ipBlock.")
    if not given:
        yield required(at[:-1], "must specify a peer")
    elif len(given) > 1 and "ipBlock" in given:
        yield forbidden(at[:-1], "may not specify both ipBlock and another peer")


def _ip_block(block: Document, at: str) -> Causes:
    text = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    if not block.get("cidr"):
        yield required(f"{at}cidr")
        return
    try:
        whole = ip_network(block["cidr"], strict=False)
    except ValueError:
        yield invalid(f"{at}cidr", block["cidr"], text)
        return
    for index, each in enumerate(block.get("except") or ()):
        try:
            part = ip_network(each, strict=False)
        except ValueError:
            yield invalid(f"{at}except[{index}]", each, text)
            continue
        within = part.version == whole.version and part.subnet_of(whole)  # type: ignore[arg-type]
        if not within or part.prefixlen <= whole.prefixlen:
            yield invalid(f"{at}except[{index}]", each, f"must be a strict subset of `cidr`: {block['cidr']}")


def _rule(side: str) -> Struct:
    port = Struct(Field("protocol", default="TCP", enum=PROTOCOLS), _ports)
    return Struct(Field("ports", items=port), Field(side, items=Struct(_peer)))


def _types(spec: Document) -> None:
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _few_types(types: list[str], path: str, report: Report) -> Causes:
    if len(types) > 2:
        yield invalid(path, types, "may not specify more than two policyTypes")
    else:
        for index, each in enumerate(types):
            if each not in ("Egress", "Ingress"):
                yield unsupported(f"{path}[{index}]", each, ("Egress", "Ingress"))


NETWORK_POLICY_SPEC = Struct(
    Field("podSelector", default={}, form=label_selector),
    Field("ingress", items=_rule("from")),
    Field("egress", items=_rule("to")),
    Field("policyTypes", rule=_few_types),
    completion=_types,
)


# -- ServiceCIDR and IPAddress


def _cidrs(spec: Document, at: str, report: Report) -> Causes:
    cidrs, path, families = spec.get("cidrs") or [], f"{at}cidrs", []
    if not cidrs:
        yield required(path, "at least one CIDR required")
        return
    if len(cidrs) > 2:
        yield invalid(path, cidrs, "may only hold up to 2 values")
        return
    for index, each in enumerate(cidrs):
        try:
            families.append(ip_network(each).version)
        except ValueError:
            text = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield invalid(f"{path}[{index}]", each, text)
    if len(cidrs) == 2 and len(families) == 2 and families[0] == families[1]:
        yield invalid(
            path, cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        )


def _cidrs_stay(old: Document, new: Document, ctx: WriteContext) -> Causes:
    before, after = ((each.get("spec") or {}).get("cidrs") or [] for each in (old, new))
    if after[: len(before)] != before:
        yield invalid("spec.cidrs", after, "field is immutable")


def canonical_address(path: str, value: str) -> list[Cause]:
    """Check an address that is spelled in its one canonical form: an IPAddress's name."""
    try:
        address = ip_address(value)
    except ValueError:
        return [invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    if str(address) != value:
        return [invalid(path, value, f'must be in canonical form ("{address}")')]
    return []


PARENT = Struct(Field("resource", required=True), Field("name", required=True))
IP_ADDRESS = Struct(
    Field("spec", missing={}, struct=Struct(Field("parentRef", required=True, struct=PARENT, is_immutable=True)))
)


STRATEGIES = {
    "ingresses.networking.k8s.io": declared(
        Struct(Field("spec", default={}, struct=INGRESS_SPEC)),
        has_status=True,
        on_create=_empty_load_balancer,
        rules=_one_class,
    ),
    INGRESS_CLASSES: declared(Struct(Field("spec", default={}, struct=INGRESS_CLASS_SPEC))),
    "networkpolicies.networking.k8s.io": declared(Struct(Field("spec", default={}, struct=NETWORK_POLICY_SPEC))),
    "servicecidrs.networking.k8s.io": declared(
        Struct(Field("spec", missing={}, struct=Struct(_cidrs))), has_status=True, update_rules=_cidrs_stay
    ),
    "ipaddresses.networking.k8s.io": declared(IP_ADDRESS, name=canonical_address),
}
