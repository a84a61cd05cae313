"""Validation of IP addresses and CIDR ranges, for Services, Endpoints, Nodes and NetworkPolicies.

Source: upstream `staging/src/k8s.io/apimachinery/pkg/util/validation/ip.go`, `ValidateNonSpecialIP` of
`pkg/apis/core/validation/validation.go`; KEP-4858, whose gate StrictIPCIDRValidation is on.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from apiserver_fake.registry.validation.formats import Cause, Causes, address, invalid

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
CIDR_TEXT = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_LEADING_ZERO = re.compile(r"(?<![0-9a-fA-F:])0+(?=[0-9])")
_SLASH_ZERO = re.compile(r"/0+(?=[0-9])")
_LINK_LOCAL_MULTICAST = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))


def parse_address(text: str) -> Address | None:
    """Return the address in a text, which may have leading zeros; None if it is no address."""
    try:
        found = ip_address(_LEADING_ZERO.sub("", text))
    except ValueError:
        return None
    return None if "%" in text else found


def parsed_network(text: str) -> Network | None:
    """Return the range in a text, which may have leading zeros or host bits; None if it is no range."""
    where, slash, _ = text.partition("/")
    if not slash or parse_address(where) is None:
        return None
    try:
        return ip_network(_SLASH_ZERO.sub("/", _LEADING_ZERO.sub("", text)), strict=False)
    except ValueError:
        return None


def network(path: str, value: str) -> list[Cause]:
    """Check a range that need not be in its canonical form."""
    ip_range = parsed_network(value)
    if ip_range is None or not re.fullmatch(r"[^/]+/[0-9]+", value):
        return [invalid(path, value, CIDR_TEXT)]
    where, _, length = value.partition("/")
    if _LEADING_ZERO.search(where) or (len(length) > 1 and length.startswith("0")):
        return [invalid(path, value, "must not have leading 0s in IP or prefix length")]
    start = ip_address(where)
    if isinstance(start, IPv6Address) and start.ipv4_mapped is not None:
        return [invalid(path, value, "must not have an IPv4-mapped IPv6 address")]
    if start != ip_range.network_address:
        return [invalid(path, value, "must not have bits set beyond the prefix length")]
    return []


def canonical_network(path: str, value: str) -> list[Cause]:
    """Check a range that must be in its canonical form."""
    wrong = network(path, value)
    if not wrong and str(found := ip_network(value)) != value:
        return [invalid(path, value, f'must be in canonical form ("{found}")')]
    return wrong


def canonical_address(path: str, value: str) -> list[Cause]:
    """Check an address that must be in its canonical form, as the name of an IPAddress."""
    wrong = address(path, value)
    if not wrong and str(found := ip_address(value)) != value:
        return [invalid(path, value, f'must be in canonical form ("{found}")')]
    return wrong


def ordinary(path: str, value: str) -> Causes:
    """Check that traffic can be sent to an address: it is not unspecified, loopback or link-local."""
    ip = parse_address(value)
    if ip is None:
        yield invalid(path, value, "must be a valid IP address")
        return
    if ip.is_unspecified:
        yield invalid(path, value, f"may not be unspecified ({value})")
    if ip.is_loopback:
        yield invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if ip.is_link_local:
        yield invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if any(ip in each for each in _LINK_LOCAL_MULTICAST if each.version == ip.version):
        yield invalid(path, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


def version_of(text: str) -> int:
    """Return the IP version of an address or range, 4 or 6; 0 if it is neither."""
    found = parse_address(text.partition("/")[0])
    return 0 if found is None else found.version
