"""Huge pages as resources: `hugepages-2Mi`, in whole pages.

Source: upstream `HugePageSizeFromResourceName`, `IsHugePageResourceValueDivisible`.
"""

from __future__ import annotations

import re
from typing import Final

from services.api.quantity import units

PREFIX: Final = "hugepages-"
_NAME = re.compile(r"hugepages-([0-9]+[KMGT]i)")


def page_size(resource: str) -> int:
    """Return the bytes of one page of `hugepages-2Mi`. Raises: ValueError for another name."""
    match = _NAME.fullmatch(resource)
    size = units(match[1]) if match else 0
    if not size:
        raise ValueError(f"{resource!r}: want for example {PREFIX}2Mi or {PREFIX}1Gi")
    return size
