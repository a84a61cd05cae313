"""The Kubernetes releases that can be emulated, and the one that is followed: every version that is shown is its."""

from typing import Final

RELEASES: Final = {"1.34": "v1.34.6", "1.35": "v1.35.6", "1.36": "v1.36.3", "1.37": "v1.37.0"}
"""A release by its minor version, with the patch release whose defaults are taken."""
FOLLOWED: Final = "1.36"
KUBERNETES: Final = RELEASES[FOLLOWED]
KUBELET_OLDER_MAX: Final = 3


def is_before(one: str, other: str) -> bool:
    """Whether a release, for example `1.36`, is older than another."""
    return _number(one) < _number(other)


def skew(kubelet: str, apiserver: str) -> str:
    """Return why a kubelet of one release may not work with an API server of another; "" when it may.

    A kubelet is at most three minor releases older, and never newer (Kubernetes' version skew policy).
    Source: node-declared-features 6.
    """
    if is_before(apiserver, kubelet):
        return f"a kubelet of {kubelet} is newer than the API server of {apiserver}"
    if _number(apiserver)[1] - _number(kubelet)[1] > KUBELET_OLDER_MAX:
        distance = f"more than {KUBELET_OLDER_MAX} minor releases older"
        return f"a kubelet of {kubelet} is {distance} than the API server of {apiserver}"
    return ""


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
