"""Resource versions as they appear in requests: read strictly, refused in Kubernetes' words."""

from __future__ import annotations

from services.api.errors import BadRequest, Timeout

RV_MAX = (1 << 63) - 1


def parse_rv(text: str) -> int:
    """Return the version; "" is 0. Raises: BadRequest unless it is a decimal number without leading zeros."""
    if not text:
        return 0
    if text.isascii() and text.isdigit() and len(text) <= 19 and (text[0] != "0" or len(text) == 1):
        rv = int(text)
        if rv <= RV_MAX:
            return rv
    raise BadRequest(f'resourceVersion: Invalid value: "{text[:80]}": must be a decimal number up to {RV_MAX}')


def future_version(wanted: int, visible: int) -> Timeout:
    """Return the refusal of a version that does not exist yet (S12)."""
    message = f"Too large resource version: {wanted}, current: {visible}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return Timeout(message, details={"causes": [cause]}, retry_after_s=1)
