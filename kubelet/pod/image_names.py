"""The check whether an image's name can be parsed, and the kubelet's message if not. Pure.

The grammar is that of distribution/reference v0.6.0. Source: upstream `pkg/kubelet/images/image_manager.go`
(EnsureImageExists), `pkg/util/parsers`.
"""

import re
from functools import lru_cache
from typing import Final

REASON: Final = "InvalidImageName"
EVENT: Final = "InspectFailed"
_SAID: Final = 'Failed to apply default image tag "{0}": couldn\'t parse image name "{0}": {1}'
_FORMAT: Final = "invalid reference format"
_DEFAULT_DOMAIN, _OLD_DOMAIN, _OFFICIAL = "docker.io", "index.docker.io", "library/"
_LONGEST: Final = 255
_DIGITS: Final = {"sha256": 64, "sha384": 96, "sha512": 128}
_WORD: Final = r"[a-z0-9]+"
_COMPONENT: Final = rf"{_WORD}(?:(?:[._]|__|[-]+){_WORD})*"
_HOST: Final = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN: Final = rf"(?:{_HOST}(?:\.{_HOST})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?"
_REFERENCE: Final = re.compile(
    rf"(?P<name>{_DOMAIN}/{_COMPONENT}(?:/{_COMPONENT})*)(?::[\w][\w.-]{{0,127}})?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)


@lru_cache(maxsize=1024)
def problem_of(image: str) -> str:
    """Return the error in the name, as status and event show it; "" for a valid or an empty name."""
    problem = _problem(image) if image else ""
    return _SAID.format(image, problem) if problem else ""


def _problem(image: str) -> str:
    if re.fullmatch(r"[a-f0-9]{64}", image):
        return f"invalid repository name ({image}), cannot specify 64-byte hexadecimal strings"
    domain, rest = _split(image)
    repository = rest.partition(":")[0]
    if repository.lower() != repository:
        return f"{_FORMAT}: repository name ({repository}) must be lowercase"
    match = _REFERENCE.fullmatch(f"{domain}/{rest}")
    if match is None:
        return _FORMAT
    path = match["name"].partition("/")[2]
    if len(path) > _LONGEST:
        return f"repository name must not be more than {_LONGEST} characters"
    return _digest_problem(match["digest"] or "")


def _split(image: str) -> tuple[str, str]:
    """Return the registry and the rest; without a registry in the name the usual one."""
    first, slash, rest = image.partition("/")
    is_registry = bool(slash) and (
        any(sign in first for sign in ".:") or first == "localhost" or first.lower() != first
    )
    domain, rest = (first, rest) if is_registry else (_DEFAULT_DOMAIN, image)
    if domain == _OLD_DOMAIN:
        domain = _DEFAULT_DOMAIN
    return domain, f"{_OFFICIAL}{rest}" if domain == _DEFAULT_DOMAIN and "/" not in rest else rest


def _digest_problem(digest: str) -> str:
    algorithm, _, digits = digest.partition(":")
    if not digest:
        return ""
    if algorithm not in _DIGITS:
        return "unsupported digest algorithm"
    if len(digits) != _DIGITS[algorithm]:
        return "invalid checksum digest length"
    return "" if digits == digits.lower() else "invalid checksum digest format"
