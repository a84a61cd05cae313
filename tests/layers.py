"""`python -m tests.layers [NAME…]`: run the layers of tests one after the other, and say how far each is and how long is left.

Every layer runs, whatever failed before; the exit code is 1 when one failed. How long a layer takes is remembered in build/layers.json, so
that the time left is that of this machine from the second run on.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
INTERRUPTED = 2
"""The exit code of pytest after Ctrl-C."""
MEMORY = ROOT / "build" / "layers.json"


@dataclass(frozen=True)
class Layer:
    """Folders that run together. `seconds`: what they take on two quiet cores, until this machine is known."""

    name: str
    folders: tuple[str, ...]
    workers: int
    dist: str
    seconds: int
    is_longest_first: bool = False

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
        2, "loadfile", 240,
    ),
    Layer("scenarios", ("tests/scenarios",), 2, "load", 240),
    Layer("process", ("tests/process", "tests/durability", "tests/interop"), 5, "loadfile", 480, is_longest_first=True),
    Layer("browser", ("tests/browser",), 2, "loadfile", 150),
)  # fmt: skip


def remembered() -> dict[str, float]:
    """Return the seconds that each layer took here the last time."""
    try:
        return {str(name): float(seconds) for name, seconds in json.loads(MEMORY.read_text()).items()}
    except (OSError, ValueError):
        return {}


def main(names: list[str]) -> int:
    """Run the layers of these names, all without any."""
    unknown = [name for name in names if name not in {each.name for each in LAYERS}]
    if unknown:
        print(f"no layer {', '.join(unknown)}; there are: {', '.join(each.name for each in LAYERS)}", file=sys.stderr)
        return 2
    chosen = [each for each in LAYERS if not names or each.name in names]
    known = remembered()
    expected = {each.name: known.get(each.name, each.seconds) for each in chosen}
    outcomes: list[tuple[str, int, float]] = []
    for number, layer in enumerate(chosen, 1):
        left_s = sum(expected[each.name] for each in chosen[number - 1 :])
        print(f"\nlayer {number} of {len(chosen)}: {layer.name}; about {_minutes(left_s)} left for all", flush=True)
        began_s = time.monotonic()
        try:
            code = subprocess.run(layer.command, cwd=ROOT, check=False).returncode
        except KeyboardInterrupt:
            code = INTERRUPTED
        took_s = time.monotonic() - began_s
        outcomes.append((layer.name, code, took_s))
        if code == 0:
            known[layer.name] = round(took_s, 1)
            MEMORY.parent.mkdir(exist_ok=True)
            MEMORY.write_text(json.dumps(known))
        if code == INTERRUPTED:
            break
    print()
    for name, code, took_s in outcomes:
        print(f"{name:<12} {'passed' if code == 0 else 'FAILED':<8} {_minutes(took_s)}")
    return 1 if any(code for _, code, _ in outcomes) else 0


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
