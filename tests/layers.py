"""`python -m tests.layers [NAME…]`: run the layers of tests, and say how far each is and how long is left.

Layers whose tests wait, for processes and browsers, run one after the other. Beside them, also one after the other, run those
whose tests only compute: at a low priority, so that they take what the others leave of the machine.

Every layer runs, whatever failed before; the exit code is 1 when one failed. How long a layer takes is remembered in build/layers.json, so
that the time left is that of this machine from the second run on.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
INTERRUPTED = 2
"""The exit code of pytest after Ctrl-C."""
MEMORY = ROOT / "build" / "layers.json"


@dataclass(frozen=True)
class Layer:
    """Folders that run together. `seconds`: what they take on two quiet cores, until this machine is known.

    `only_computes`: no test of it waits for a clock.
    """

    name: str
    folders: tuple[str, ...]
    workers: int
    dist: str
    seconds: int
    is_longest_first: bool = False
    only_computes: bool = False

    @property
    def command(self) -> list[str]:
        """The words of pytest."""
        # Without that option, files with many tests would begin first, however short these are.
        order = ("--no-loadscope-reorder",) if self.is_longest_first else ()
        spread = ("-n", str(self.workers), "--dist", self.dist, *order)
        return [sys.executable, "-m", "pytest", *self.folders, "--slow", "-p", "tests.progress", *spread]


_LONGEST = (
    "faults_as_processes", "mutual_tls", "exchange", "dra_drivers_as_processes", "past", "gate_flips_as_processes", "resizes_as_processes",
    "claims_as_processes", "supervision", "up", "unbinding_as_processes", "streams_under_pressure", "up_etcd", "components",
)  # fmt: skip
LONGEST = (
    "tests/interop/test_kubectl.py",
    "tests/durability/test_crash.py",
    *(f"tests/process/test_{name}.py" for name in _LONGEST),
)
"""The files that take longest: `tests.progress` has them begin first, so that no worker is left alone with one at the end."""
LAYERS = (
    Layer(
        "unit",
        ("tests/unit", "tests/component", "tests/architecture", "tests/meta", "tests/fidelity", "tests/examples", "tests/fuzz"),
        2, "loadfile", 240, only_computes=True,
    ),
    Layer("scenarios", ("tests/scenarios",), 2, "load", 240, only_computes=True),
    Layer("process", ("tests/process", "tests/durability", "tests/interop"), 5, "loadfile", 480, is_longest_first=True),
    Layer("browser", ("tests/browser",), 2, "loadfile", 150),
)  # fmt: skip


def remembered() -> dict[str, float]:
    """Return the seconds that each layer took here the last time."""
    try:
        return {str(name): float(seconds) for name, seconds in json.loads(MEMORY.read_text()).items()}
    except (OSError, ValueError):
        return {}


class Outcome(NamedTuple):
    """How a layer ended. `code`: that of pytest."""

    name: str
    code: int
    took_s: float


@dataclass
class Lane:
    """Layers that run one after the other."""

    layers: Sequence[Layer]
    words: Sequence[str] = ()
    """Words before the command of each layer."""
    show: Callable[[str, str], None] | None = None
    """Called with a layer's name and each line of its output; None: the layers print themselves."""
    outcomes: list[Outcome] = field(default_factory=list)
    is_interrupted: bool = False
    process: subprocess.Popen[str] | None = None

    def run(self) -> None:
        """Run the layers until they or an interrupt are over."""
        for layer in self.layers:
            if self.is_interrupted:
                return
            began_s = time.monotonic()
            pipe = None if self.show is None else subprocess.PIPE
            command = [*self.words, *layer.command]
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=pipe, stderr=pipe and subprocess.STDOUT, text=True
            )
            if self.show is not None and self.process.stdout is not None:
                for line in self.process.stdout:
                    self.show(layer.name, line)
            code = self.process.wait()
            self.outcomes.append(Outcome(layer.name, code, time.monotonic() - began_s))
            if code == INTERRUPTED:
                return

    def interrupt(self) -> None:
        """End with the layer that runs, which a terminal's Ctrl-C has reached as well."""
        self.is_interrupted = True
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)


def lanes_of(chosen: Sequence[Layer]) -> list[Lane]:
    """Return what runs side by side."""
    waiting = [each for each in chosen if not each.only_computes]
    computing = [each for each in chosen if each.only_computes]
    if not (waiting and computing):
        return [Lane(chosen)]
    return [Lane(waiting, (), _show), Lane(computing, ("nice", "-n", "10"), _show)]


def _show(name: str, line: str) -> None:
    print(f"{name:<9} | {line}", end="", flush=True)


def main(names: list[str]) -> int:
    """Run the layers of these names, all without any."""
    unknown = [name for name in names if name not in {each.name for each in LAYERS}]
    if unknown:
        print(f"no layer {', '.join(unknown)}; there are: {', '.join(each.name for each in LAYERS)}", file=sys.stderr)
        return 2
    lanes = lanes_of([each for each in LAYERS if not names or each.name in names])
    known = remembered()
    expected_s = [sum(known.get(each.name, each.seconds) for each in lane.layers) for lane in lanes]
    print("; beside ".join(", then ".join(each.name for each in lane.layers) for lane in lanes), end="")
    print(f": about {_minutes(max(expected_s))}", flush=True)
    with ThreadPoolExecutor(len(lanes)) as pool:
        runs = [pool.submit(lane.run) for lane in lanes]
        try:
            for run in runs:
                run.result()
        except KeyboardInterrupt:
            for lane in lanes:
                lane.interrupt()
    outcomes = [outcome for lane in lanes for outcome in lane.outcomes]
    known |= {name: round(took_s, 1) for name, code, took_s in outcomes if code == 0}
    MEMORY.parent.mkdir(exist_ok=True)
    MEMORY.write_text(json.dumps(known))
    print()
    for name, code, took_s in outcomes:
        print(f"{name:<12} {'passed' if code == 0 else 'FAILED':<8} {_minutes(took_s)}")
    return (
        1
        if any(lane.is_interrupted or len(lane.outcomes) < len(lane.layers) for lane in lanes)
        or any(code for _, code, _ in outcomes)
        else 0
    )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
