"""IP addresses and networks (CIDR) in expressions. Pure.

Source: kubernetes/kubernetes staging/src/k8s.io/apiserver/pkg/cel/library/ip.go, cidr.go.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from services.cel.types import opaque
from services.cel.values import EvaluationError, register

IP_TYPE: Final = opaque("net.IP")
CIDR_TYPE: Final = opaque("net.CIDR")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class IP:
    """An IP address without zone."""

    address: _Address

    def cel_size(self) -> int:
        """Return the bytes."""
        return self.address.max_prefixlen // 8


@dataclass(frozen=True, slots=True)
class CIDR:
    """A network: an address and the number of its network bits."""

    address: _Address
    bits: int

    def cel_size(self) -> int:
        """Return the number of bytes that hold the network bits."""
        return -(-self.bits // 8)

    def masked(self) -> CIDR:
        """Return the network with zero host bits."""
        spare = self.address.max_prefixlen - self.bits
        return CIDR(type(self.address)(int(self.address) >> spare << spare), self.bits)

    def contains(self, address: _Address) -> bool:
        """Return whether the address is in the network."""
        if address.version != self.address.version:
            return False
        spare = self.address.max_prefixlen - self.bits
        return int(address) >> spare == int(self.address) >> spare

    def contains_network(self, other: CIDR) -> bool:
        """Return whether every address of the other network is in this one."""
        return self.bits <= other.bits and self.contains(other.address)

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


register(IP, IP_TYPE)
register(CIDR, CIDR_TYPE)


def _reason4(text: str) -> str:
    """Return why it is no IPv4 address, in Go's words."""
    fields = 0
    digits = ""
    for place, sign in enumerate(text):
        if sign.isdigit() and sign.isascii():
            if digits == "0":
                return "IPv4 field has octet with leading zero"
            digits += sign
            if int(digits) > 255:
                return "IPv4 field has value >255"
        elif sign == ".":
            if not digits or place == len(text) - 1:
                return f'IPv4 field must have at least one digit (at "{text[place:]}")'
            if fields == 3:
                return "IPv4 address too long"
            fields, digits = fields + 1, ""
        else:
            return f'unexpected character (at "{text[place:]}")'
    return "IPv4 address too short"


def _reason6(text: str) -> str:
    """Return why it is no IPv6 address, in Go's words for the commonest mistakes."""
    rest, groups, compressed = text, 0, False
    if rest.startswith("::"):
        compressed, rest = True, rest[2:]
        if not rest:
            return "unable to parse IP"
    while groups < 8:
        match = re.match(r"[0-9a-fA-F]*", rest)
        group = match[0] if match else ""
        if len(group) > 4:
            return f'each group must have 4 or less digits (at "{rest}")'
        if not group:
            return f'each colon-separated field must have at least one digit (at "{rest}")'
        after = rest[len(group) :]
        if after.startswith("."):
            return f'embedded IPv4 address must replace the final 2 fields of the address (at "{rest}")'
        groups, rest = groups + 1, after
        if not rest:
            break
        if rest[0] != ":":
            return f'unexpected character, want colon (at "{rest}")'
        if len(rest) == 1:
            return f'colon must be followed by more characters (at "{rest}")'
        rest = rest[1:]
        if rest.startswith(":"):
            if compressed:
                return f'multiple :: in address (at "{rest}")'
            compressed, rest = True, rest[1:]
            if not rest:
                break
    if rest:
        return f'trailing garbage after address (at "{rest}")'
    return "address string too short" if not compressed else "the :: must expand to at least one field of zeros"


def _parse(text: str) -> _Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        pass
    first = next((sign for sign in text if sign in ".:%"), "")
    why = {".": _reason4, ":": _reason6}.get(first, lambda _: "missing IPv6 address" if first else "unable to parse IP")
    raise EvaluationError(f'ParseAddr("{text}"): {why(text)}')


@lru_cache(maxsize=4096)
def ip(text: str) -> IP:
    """Return the address. Raises: EvaluationError."""
    try:
        address = _parse(text)
    except EvaluationError as error:
        raise EvaluationError(f'IP Address "{text}" parse error during conversion from string: {error}') from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise EvaluationError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped is not None:
            raise EvaluationError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return IP(address)


@lru_cache(maxsize=4096)
def cidr(text: str) -> CIDR:
    """Return the network. Raises: EvaluationError."""
    preface = "network address parse error during conversion from string: " * 2
    before, slash, bits = text.rpartition("/")
    reason = ""
    if not slash:
        reason = "no '/'"
    else:
        try:
            address = _parse(before)
        except EvaluationError as error:
            reason = str(error)
        else:
            if "%" in before:
                reason = "IPv6 zones cannot be present in a prefix"
            elif not re.fullmatch(r"0|[1-9][0-9]{0,2}", bits):
                reason = f'bad bits after slash: "{bits}"'
            elif int(bits) > address.max_prefixlen:
                reason = "prefix length out of range"
    if reason:
        raise EvaluationError(f'{preface}netip.ParsePrefix("{text}"): {reason}')
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise EvaluationError(
            "network address parse error during conversion from string: "
            f'IPv4-mapped IPv6 address "{text}" is not allowed'
        )
    return CIDR(address, int(bits))
