"""Third-party files of the page: `python -m lab.ui.vendor --check` compares hashes, `--update` packs anew.

The files lie in static/vendor/ as their makers publish them, and vendor.toml has the version, licence, size and
SHA-256 of each. `--check` needs no network and also checks the size of the whole page; `--update` asks npm for
the versions that vendor.toml names (edit a version there first), and is a developer's act, as
`python -m protos` is.
"""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

STATIC: Final = Path(__file__).resolve().parent / "static"
VENDOR: Final = STATIC / "vendor"
LIST: Final = VENDOR / "vendor.toml"
LIMIT: Final = 300 * 1024
GOAL: Final = 200 * 1024
"""Target size of the whole page in bytes, each file compressed by gzip; LIMIT is the largest allowed."""
SERVED: Final = (".html", ".css", ".js", ".mjs")
_HEAD: Final = "# Unmodified files from npm. Edit a version, then run `python -m lab.ui.vendor --update`.\n"


def packages() -> list[dict[str, Any]]:
    """Return the rows of vendor.toml: name, version, licence and files, each with source, file, size and sha256."""
    rows: list[dict[str, Any]] = tomllib.loads(LIST.read_text(encoding="utf-8"))["package"]
    return rows


def bundle_bytes() -> int:
    """Return the compressed size of everything that a browser may load, in bytes."""
    served = [path for path in STATIC.rglob("*") if path.suffix in SERVED]
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in served)


def problems() -> list[str]:
    """Return one line for each vendored file that is missing, unlisted or changed, and for a page too big."""
    lines, listed = [], {LIST.name}
    for package in packages():
        for row in package["files"]:
            path = VENDOR / row["file"]
            listed.add(row["file"])
            if not path.is_file():
                lines.append(f"vendor/{row['file']} of {package['name']} {package['version']} is missing")
                continue
            digest = _digest(path.read_bytes())
            if digest != row["sha256"]:
                lines.append(f"vendor/{row['file']}: sha256 is {digest}, vendor.toml says {row['sha256']}")
            if path.stat().st_size != row["size"]:
                lines.append(f"vendor/{row['file']}: size is {path.stat().st_size}, vendor.toml says {row['size']}")
    lines += [f"vendor/{path.name} is not in vendor.toml" for path in VENDOR.iterdir() if path.name not in listed]
    if (size := bundle_bytes()) > LIMIT:
        lines.append(f"the page has {size} bytes compressed, and may have {LIMIT}")
    return sorted(lines)


def update() -> None:
    """Fetch each package by npm, take its files, and write vendor.toml anew. Raises: SystemExit without npm."""
    rows = packages()
    for package in rows:
        with tempfile.TemporaryDirectory() as folder:
            what = f"{package['name']}@{package['version']}"
            try:
                done = subprocess.run(["npm", "pack", "--silent", what], cwd=folder, capture_output=True, check=False)
            except FileNotFoundError:
                raise SystemExit("--update needs npm on the PATH") from None
            archives = list(Path(folder).glob("*.tgz"))
            if done.returncode or not archives:
                raise SystemExit(f"npm pack {what}: {done.stderr.decode().strip() or 'no archive'}")
            with tarfile.open(archives[0]) as archive:
                for row in package["files"]:
                    member = archive.extractfile(f"package/{row['source']}")
                    if member is None:
                        raise SystemExit(f"{what} has no file {row['source']}")
                    body = member.read()
                    (VENDOR / row["file"]).write_bytes(body)
                    row["sha256"], row["size"] = _digest(body), len(body)
    LIST.write_text(_toml_text(rows), encoding="utf-8")


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _toml_text(rows: list[dict[str, Any]]) -> str:
    """Return vendor.toml's text: a table a package, a line a file."""
    parts = [_HEAD]
    for package in rows:
        about = "".join(f'{key} = "{package[key]}"\n' for key in ("name", "version", "licence"))
        files = "".join(
            f'  {{ file = "{row["file"]}", source = "{row["source"]}", size = {row.get("size", 0)}, '
            f'sha256 = "{row.get("sha256", "")}" }},\n'
            for row in package["files"]
        )
        parts.append(f"[[package]]\n{about}files = [\n{files}]\n")
    return "\n".join(parts)


def main(words: list[str]) -> int:
    """Run `--check` or `--update`; returns the exit status."""
    if words == ["--update"]:
        update()
    elif words != ["--check"]:
        sys.stderr.write("usage: python -m lab.ui.vendor --check | --update\n")
        return 2
    for line in (lines := problems()):
        sys.stderr.write(line + "\n")
    size = bundle_bytes()
    sys.stdout.write(f"The page has {size / 1024:.0f} KiB compressed (goal {GOAL // 1024}, at most {LIMIT // 1024}).\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
