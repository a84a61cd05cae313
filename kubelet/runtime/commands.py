"""The execution of commands of emulated containers: the entry to the emulated shell.

The shell is loaded with the first command; containers without a command need none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kubelet.runtime.outcome import Outcome


def run(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    *,
    wall_s: float = 0.0,
    hostname: str = "",
    until_s: float = math.inf,
) -> Outcome:
    """Return the outcome of a command that begins at `wall_s`, as far as it gets in `until_s` seconds."""
    from kubelet.runtime.shell import programs

    return programs.run(words, environment, None, stdin, wall_s=wall_s, hostname=hostname, until_s=until_s)
