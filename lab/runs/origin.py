"""Origin of a run that is made now."""

import hashlib
import time
from contextlib import suppress
from pathlib import Path

from lab.runs.record import Origin
from lab.scenarios.revision import revision
from services.api.times import format_micro_time


def sha_of(path: Path) -> str:
    """Return the SHA-256 of a file; empty string if it cannot be read."""
    with suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def origin_of(scenario: Path) -> Origin:
    """Return the origin of a run of that scenario."""
    code = revision()
    made = format_micro_time(time.time())
    return Origin(str(scenario.absolute()), sha_of(scenario), code.version, code.commit, code.changes, made)
