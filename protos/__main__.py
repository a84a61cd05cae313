"""`python -m protos` regenerates the stubs; `--check` says whether they are stale and changes nothing."""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def _sources() -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "protos").rglob("*.proto"))


def _generate(into: Path) -> None:
    """Write every stub and its types below `into`. Raises: SystemExit when protoc refuses a file."""
    import os

    from grpc_tools import protoc

    # protoc looks for protoc-gen-mypy on PATH; it sits beside the interpreter that runs us.
    os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")
    arguments = [
        "protoc",
        f"-I{ROOT}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={into}",
        f"--grpc_python_out={into}",
        f"--mypy_out=quiet:{into}",
        f"--mypy_grpc_out=quiet:{into}",
        *_sources(),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit(1)


def _generated(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes()
        for pattern in ("*_pb2*.py", "*_pb2*.pyi")
        for p in sorted((root / "protos").rglob(pattern))
    }


def main(arguments: list[str]) -> int:
    """Return the exit code: 0 done or fresh, 1 stale, 2 wrong usage."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m protos [--check]", file=sys.stderr)  # noqa: T201
        return 2
    if not arguments:
        _generate(ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        _generate(Path(folder))
        fresh, committed = _generated(Path(folder)), _generated(ROOT)
    stale = sorted(n for n in fresh.keys() | committed.keys() if fresh.get(n) != committed.get(n))
    for name in stale:
        print(f"{name} is stale: run `python -m protos`", file=sys.stderr)  # noqa: T201
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
