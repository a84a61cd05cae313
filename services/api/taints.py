"""Taint and toleration rules, shared by the scheduler, the kubelet and the controllers."""

from collections.abc import Iterable

from services.api.kinds.node import Taint
from services.api.kinds.pod import Toleration

NO_SCHEDULE = "NoSchedule"
PREFER_NO_SCHEDULE = "PreferNoSchedule"
NO_EXECUTE = "NoExecute"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether this toleration matches that taint (core/v1 `ToleratesTaint`)."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return bool(toleration.key) and toleration.value == taint.value
    if toleration.operator in ("Gt", "Lt"):
        # Whether the taint's number is above or below the toleration's; no number compares to nothing. Without the
        # gate the API server lets no such toleration in. Source: KEP-5471.
        if not (toleration.key and is_decimal(toleration.value) and is_decimal(taint.value)):
            return False
        bound, value = int(toleration.value), int(taint.value)
        return value > bound if toleration.operator == "Gt" else value < bound
    return toleration.operator == "Exists"


def is_decimal(text: str) -> bool:
    """Whether the text is a 64-bit integer as Go prints it: no plus sign, no leading zero, no `-0`."""
    digits = text.removeprefix("-")
    is_short = digits.isascii() and digits.isdigit() and len(digits) <= 19
    return is_short and str(int(text)) == text and -(2**63) <= int(text) < 2**63


def untolerated_taint(
    taints: Iterable[Taint], tolerations: tuple[Toleration, ...], effects: tuple[str, ...]
) -> Taint | None:
    """Return the first taint with one of the effects that no toleration matches, or None."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None
