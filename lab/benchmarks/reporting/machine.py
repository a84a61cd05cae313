"""What a run was measured on: the machine, its Python and the revision of the code."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.scenarios.revision import revision

COMMIT_DIGITS: Final = 12


@dataclass(frozen=True)
class Machine:
    """Processor, usable cores, Python and revision; `processor` is empty where the kernel does not tell."""

    processor: str
    cores: int
    python: str
    revision: str

    @property
    def text(self) -> str:
        """The machine in words."""
        cores = f"{self.cores} cores"
        return f"{cores} of {self.processor}" if self.processor else cores


def this_machine(cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
    """Return what this process runs on."""
    code = revision()
    commit = "+".join(filter(None, (code.commit[:COMMIT_DIGITS], code.changes)))
    name = commit or f"version {code.version}"
    return Machine(_processor(cpuinfo), len(os.sched_getaffinity(0)), platform.python_version(), name)


def _processor(cpuinfo: Path) -> str:
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor())
