"""Rules of a pod's names and name resolution: host names, aliases, DNS; and of host network ports.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `validatePodDNSConfig`,
`ValidateHostAliases`, `validatePodHostName`, `validatePodHostNetworkDeps`; KEP-4762 for `hostnameOverride`,
KEP-4427 for search domains.
"""

from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Causes,
    address,
    forbidden,
    invalid,
    required,
    subdomain,
    too_long,
    underscored_subdomain,
)
from services.api.meta import Document

DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
NAME_SERVERS_MAX, SEARCHES_MAX, SEARCHES_LENGTH_MAX, HOST_NAME_MAX = 3, 32, 2048, 64


def dns_config(spec: Document, at: str, report: Report) -> Causes:
    """Check the DNS settings of a pod; with dnsPolicy None it needs at least one name server."""
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            yield required(f"{at}dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield required(f"{at}dnsConfig.nameservers", text)
            return
    if not config:
        return
    servers, searches, here = config.get("nameservers") or [], config.get("searches") or [], f"{at}dnsConfig"
    if len(servers) > NAME_SERVERS_MAX:
        yield invalid(f"{here}.nameservers", servers, f"must not have more than {NAME_SERVERS_MAX} nameservers")
    for index, server in enumerate(servers):
        yield from address(f"{here}.nameservers[{index}]", server)
    if len(searches) > SEARCHES_MAX:
        yield invalid(f"{here}.searches", searches, f"must not have more than {SEARCHES_MAX} search paths")
    if len(" ".join(searches)) > SEARCHES_LENGTH_MAX:
        text = f"must not have more than {SEARCHES_LENGTH_MAX} characters (including spaces) in the search list"
        yield invalid(f"{here}.searches", searches, text)
    for index, search in enumerate(searches):
        if search != ".":
            yield from underscored_subdomain(f"{here}.searches[{index}]", search.removesuffix("."))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(f"{here}.options[{index}]", "must not be empty")


HOST_ALIAS = Struct(Field("ip", missing="", form=address), Field("hostnames", items=Field(missing="", form=subdomain)))


def host_name(name: str, path: str, report: Report) -> Causes:
    """Check a host name that overrides the one derived from the pod's names."""
    spec = report.scope.spec
    if spec.get("setHostnameAsFQDN"):
        yield forbidden(path, "may not be specified when setHostnameAsFQDN is true")
    if spec.get("hostNetwork"):
        yield forbidden(path, "may not be specified when hostNetwork is true")
    if len(name) > HOST_NAME_MAX:
        yield too_long(path, HOST_NAME_MAX)
    yield from subdomain(path, name)


def ports_of_host(spec: Document, at: str, report: Report) -> Causes:
    """Check that containers in the host's network use equal host and container ports; templates may leave host
    ports unset.
    """
    if not spec.get("hostNetwork"):
        return
    for index, container in enumerate(spec.get("containers") or ()):
        for place, port in enumerate(container.get("ports") or ()):
            host, own = port.get("hostPort") or 0, port.get("containerPort") or 0
            if host != own and (host or report.scope.pod is not None):
                path = f"{at}containers[{index}].ports[{place}].hostPort"
                yield invalid(path, host, "must match `containerPort` when `hostNetwork` is true")
