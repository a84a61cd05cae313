"""Units of work, which make the CPU time of different machines and minutes comparable.

One unit is what decoding and walking 60 small JSON documents takes. It is measured again and again inside
the run that it is for, because the clock of a machine may change by a half between two minutes.
"""

import json
import time
from collections.abc import Callable
from statistics import fmean
from typing import Any, Final

DOCUMENTS: Final = 60
PIECES_MIN: Final = 5
"""Least number of pieces behind a figure; a run too short for that many is measured afterwards."""


def _document(number: int) -> bytes:
    """Return a document of one unit, about 250 bytes long."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number:04d}", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": f"node-{number:04d}", "containers": [{"name": "main", "image": "pause:3.10"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return json.dumps(pod, separators=(",", ":")).encode()


BODIES: Final = [_document(number) for number in range(DOCUMENTS)]


def walk(value: Any) -> int:
    """Return the number of values in a decoded document."""
    if isinstance(value, dict):
        return 1 + sum(walk(member) for member in value.values())
    if isinstance(value, list):
        return 1 + sum(walk(member) for member in value)
    return 1


def do_unit() -> int:
    """Do one unit of work with the standard library alone; return the number of values that were walked."""
    return sum(walk(json.loads(body)) for body in BODIES)


class Calibrator:
    """CPU seconds of one unit, measured piece by piece between the pieces of a run.

    `spent_s` is the CPU time of the measuring itself, to be taken off that of the run. `clock`: CPU time.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self._pieces_s: list[float] = []
        self.spent_s = 0.0
        do_unit()

    def measure(self) -> None:
        """Measure one more piece."""
        began = self._clock()
        do_unit()
        took_s = self._clock() - began
        self._pieces_s.append(took_s)
        self.spent_s += took_s

    @property
    def unit_s(self) -> float:
        """Mean CPU seconds of one unit. A run with too few pieces is given more now."""
        while len(self._pieces_s) < PIECES_MIN:
            self.measure()
        return fmean(self._pieces_s)

    def units(self, cpu_s: float) -> float:
        """Convert CPU seconds of the run to units."""
        return cpu_s / self.unit_s
