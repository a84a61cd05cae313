"""The Kubernetes releases that can be emulated, and the one that is followed: every version that is shown is its."""

from typing import Final

RELEASES: Final = {"1.34": "v1.34.6", "1.35": "v1.35.6", "1.36": "v1.36.3", "1.37": "v1.37.0"}
"""A release by its minor version, with the patch release whose defaults are taken."""
FOLLOWED: Final = "1.36"
KUBERNETES: Final = RELEASES[FOLLOWED]
