"""Kinds of `networking.k8s.io`: Ingresses and their classes, NetworkPolicies, ranges and addresses of
Services.

The texts are upstream's (`pkg/apis/networking/validation`). An Ingress that names no class gets the default one
(admission plugin DefaultIngressClass). No traffic is routed or filtered, as in a cluster without a network
plugin.
"""

import re

from apiserver_fake.registry.strategy import WriteContext, declare_strategy
from apiserver_fake.registry.validation.addresses import (
    canonical_address,
    canonical_network,
    network,
    parse_address,
    parsed_network,
    version_of,
)
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    IMMUTABLE,
    Cause,
    Causes,
    address,
    forbidden,
    invalid,
    label,
    label_1035,
    label_selector,
    not_supported,
    path_segment,
    port,
    required,
    subdomain,
    too_long,
)
from services.api.kinds.ingressclass import DEFAULT_CLASS
from services.api.meta import Document

INGRESS_CLASSES = "ingressclasses.networking.k8s.io"
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_DOMAIN_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def domain_path(path: str, value: str) -> list[Cause]:
    """Check a domain-prefixed name: `example.com/thing`."""
    if not value:
        return [required(path)]
    domain, slash, rest = value.partition("/")
    if not slash or not domain or not rest:
        return [invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    wrong = subdomain(path, domain)
    if not _DOMAIN_PATH.fullmatch(rest):
        wrong.append(invalid(path, rest, f"Invalid path (regex used for validation is '{_DOMAIN_PATH.pattern}')"))
    return wrong


# -- Ingress


_WILDCARD = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WILDCARD_TEXT = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of "
    "lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', "
    f"regex used for validation is '{_WILDCARD}')"
)


def host_name(path: str, host: str) -> Causes:
    """Check a host name, which may be a wildcard for all names below a domain."""
    if "*" not in host:
        yield from subdomain(path, host)
        return
    if len(host.encode()) > 253:
        yield invalid(path, host, "must be no more than 253 characters")
    if not re.fullmatch(_WILDCARD, host):
        yield invalid(path, host, _WILDCARD_TEXT)


def _host(host: str, path: str, report: Report) -> Causes:
    if not host:
        return
    if parse_address(host) is not None:
        yield invalid(path, host, "must be a DNS name, not an IP address")
    yield from host_name(path, host)


_INVALID_SEQUENCES = ("//", "/./", "/../", "%2f", "%2F")
_INVALID_ENDS = ("/..", "/.")


def _path(ingress_path: Document, at: str, report: Report) -> Causes:
    kind, path = ingress_path.get("pathType"), ingress_path.get("path") or ""
    if kind is None:
        yield required(f"{at}pathType", "pathType must be specified")
        return
    if kind not in PATH_TYPES:
        yield not_supported(f"{at}pathType", kind, PATH_TYPES)
    elif (path or kind != "ImplementationSpecific") and not path.startswith("/"):
        yield invalid(f"{at}path", path, "must be an absolute path")
    if kind in ("Exact", "Prefix") and path:
        for part in _INVALID_SEQUENCES:
            if part in path:
                yield invalid(f"{at}path", path, f"must not contain '{part}'")
        for part in _INVALID_ENDS:
            if path.endswith(part):
                yield invalid(f"{at}path", path, f"cannot end with '{part}'")
    yield from _backend(ingress_path.get("backend") or {}, f"{at}backend.", report)


def _reference_names(reference: Document, at: str) -> Causes:
    if (group := reference.get("apiGroup")) is not None:
        yield from subdomain(f"{at}apiGroup", group)
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        yield from path_segment(f"{at}{name}", value) if value else [required(f"{at}{name}")]


def _backend(backend: Document, at: str, report: Report) -> Causes:
    service, resource = backend.get("service"), backend.get("resource")
    if resource is not None and service is not None:
        yield invalid(at[:-1], "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _reference_names(resource, f"{at}resource.")
    elif service is None:
        yield invalid(at[:-1], "", "resource or service backend is required")
    else:
        yield from _service(service, at, report)


def _service(service: Document, at: str, report: Report) -> Causes:
    if not service.get("name"):
        yield required(f"{at}service.name")
    else:
        form = label if report.switches.relaxed_service_names else label_1035
        yield from form(f"{at}service.name", service["name"])
    target = service.get("port") or {}
    name, number = target.get("name") or "", target.get("number") or 0
    if name and number:
        yield invalid(at[:-1], "", "cannot set both port name & port number")
    elif name or number:
        yield from port(f"{at}service.port.{'name' if name else 'number'}", name or number)
    else:
        yield required(at[:-1], "port name or number is required")


def _some_rule(spec: Document, at: str, report: Report) -> Causes:
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield invalid(at[:-1], spec.get("rules"), "either `defaultBackend` or `rules` must be specified")


BACKEND = Struct(_backend)
RULE = Struct(
    Field("host", rule=_host),
    Field("http", struct=Struct(Field("paths", required=True, missing=[], items=Struct(_path)))),
)


def _tls_host(host: str, path: str, report: Report) -> Causes:
    return host_name(path, host)


INGRESS_SPEC = Struct(
    _some_rule,
    Field("defaultBackend", struct=BACKEND),
    Field("rules", items=RULE),
    Field("tls", items=Struct(Field("hosts", items=Field(rule=_tls_host)), Field("secretName", form=subdomain))),
    Field("ingressClassName", rule=lambda name, path, report: subdomain(path, name)),
)


def _ingress_status(old: Document, new: Document, ctx: WriteContext) -> Causes:
    for index, ingress in enumerate(((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()):
        at, ip, name = f"status.loadBalancer.ingress[{index}].", ingress.get("ip") or "", ingress.get("hostname") or ""
        if ip:
            yield from address(f"{at}ip", ip)
        if name:
            yield from subdomain(f"{at}hostname", name)
            if parse_address(name) is not None:
                yield invalid(f"{at}hostname", name, "must be a DNS name, not an IP address")


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
    said = (new["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    named = (new.get("spec") or {}).get("ingressClassName")
    if old is None and named is not None and said is not None and said != named:
        # The path has no metadata in front, as upstream.
        text = "must match `ingressClassName` when both are specified"
        yield invalid(f"annotations.{CLASS_ANNOTATION}", said, text)


def _empty_load_balancer(new: Document, ctx: WriteContext) -> None:
    _class(new, ctx)
    new["status"] = {"loadBalancer": {}}


# -- IngressClass


CONTROLLER_MAX = 250
SCOPES = ("Cluster", "Namespace")


def _controller(value: str, path: str, report: Report) -> Causes:
    if len(value.encode()) > CONTROLLER_MAX:
        yield too_long(path, CONTROLLER_MAX)
    yield from domain_path(path, value)


def _reference(parameters: Document, at: str, report: Report) -> Causes:
    yield from _reference_names(parameters, at)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope not in SCOPES:
        yield not_supported(f"{at}scope", scope, SCOPES)
    elif scope == "Namespace":
        missing = required(f"{at}namespace", "`parameters.scope` is set to 'Namespace'")
        yield from [missing] if namespace is None else label(f"{at}namespace", namespace)
    elif namespace is not None:
        yield forbidden(f"{at}namespace", "`parameters.scope` is set to 'Cluster'")


INGRESS_CLASS_SPEC = Struct(
    Field("controller", required=True, is_immutable=True, rule=_controller),
    Field("parameters", struct=Struct(Field("scope", default="Cluster"), _reference)),
)


# -- NetworkPolicy


def _ports(policy_port: Document, at: str, report: Report) -> Causes:
    first, last = policy_port.get("port"), policy_port.get("endPort")
    path = f"{at}endPort"
    if first is None:
        if last is not None:
            yield invalid(path, last, "may not be specified when `port` is not specified")
    elif isinstance(first, str):
        if last is not None:
            yield invalid(path, last, "may not be specified when `port` is non-numeric")
        yield from port(f"{at}port", first)
    else:
        yield from port(f"{at}port", first)
        if last is not None:
            if last < first:
                yield invalid(path, last, "must be greater than or equal to `port`")
            yield from port(path, last)


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
    if not block.get("cidr"):
        yield required(f"{at}cidr")
        return
    yield from network(f"{at}cidr", block["cidr"])
    whole = parsed_network(block["cidr"])
    for index, except_cidr in enumerate(block.get("except") or () if whole is not None else ()):
        yield from network(f"{at}except[{index}]", except_cidr)
        part = parsed_network(except_cidr)
        if part is None or whole is None:
            continue
        is_within = part.version == whole.version and part.network_address in whole
        if not is_within or whole.prefixlen >= part.prefixlen:
            yield invalid(f"{at}except[{index}]", except_cidr, "must be a strict subset of `cidr`")


def _rule(side: str) -> Struct:
    target = Struct(Field("protocol", default="TCP", enum=("TCP", "UDP", "SCTP")), _ports)
    return Struct(Field("ports", items=target), Field(side, items=Struct(_peer)))


def _types(spec: Document) -> None:
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def _few_types(types: list[str], path: str, report: Report) -> Causes:
    if len(types) > 2:
        yield invalid(path, types, "may not specify more than two policyTypes")
    else:
        for index, each in enumerate(types):
            if each not in ("Egress", "Ingress"):
                yield not_supported(f"{path}[{index}]", each, ("Ingress", "Egress"))


NETWORK_POLICY_SPEC = Struct(
    Field("podSelector", default={}, form=label_selector),
    Field("ingress", items=_rule("from")),
    Field("egress", items=_rule("to")),
    Field("policyTypes", rule=_few_types),
    completion=_types,
)


# -- ServiceCIDR and IPAddress


def _cidrs(spec: Document, at: str, report: Report) -> Causes:
    cidrs, path = spec.get("cidrs") or [], f"{at}cidrs"
    if not cidrs:
        yield required(path, "at least one CIDR required")
        return
    if len(cidrs) > 2:
        yield invalid(path, cidrs, "may only hold up to 2 values")
        return
    for index, cidr in enumerate(cidrs):
        yield from canonical_network(f"{path}[{index}]", cidr)
    versions = [version_of(each) for each in cidrs]
    if len(cidrs) == 2 and 0 not in versions and versions[0] == versions[1]:
        yield invalid(
            path, cidrs, "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
        )


def _cidrs_stay(old: Document, new: Document, ctx: WriteContext) -> Causes:
    before, after = ((each.get("spec") or {}).get("cidrs") or [] for each in (old, new))
    if len(before) == len(after) or (len(before), len(after)) == (1, 2):
        for index, cidr in enumerate(before):
            if after[index] != cidr:
                yield invalid(f"spec.cidrs[{index}]", after[index], IMMUTABLE)
    else:
        yield invalid("spec.cidrs", after, IMMUTABLE)


def _segment(value: str, path: str, report: Report) -> Causes:
    return path_segment(path, value)


PARENT = Struct(
    Field("group", form=subdomain),
    Field("resource", required=True, rule=_segment),
    Field("name", required=True, rule=_segment),
    Field("namespace", form=path_segment),
)
IP_ADDRESS = Struct(
    Field("spec", missing={}, struct=Struct(Field("parentRef", required=True, struct=PARENT, is_immutable=True)))
)


STRATEGIES = {
    "ingresses.networking.k8s.io": declare_strategy(
        Struct(Field("spec", default={}, struct=INGRESS_SPEC)),
        has_status=True,
        on_create=_empty_load_balancer,
        rules=_one_class,
        status_rules=_ingress_status,
    ),
    INGRESS_CLASSES: declare_strategy(Struct(Field("spec", default={}, struct=INGRESS_CLASS_SPEC))),
    "networkpolicies.networking.k8s.io": declare_strategy(
        Struct(Field("spec", default={}, struct=NETWORK_POLICY_SPEC))
    ),
    "servicecidrs.networking.k8s.io": declare_strategy(
        Struct(Field("spec", missing={}, struct=Struct(_cidrs))), has_status=True, update_rules=_cidrs_stay
    ),
    "ipaddresses.networking.k8s.io": declare_strategy(IP_ADDRESS, name=canonical_address),
}
