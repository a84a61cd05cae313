"""The structure of the product in figures: what `make lint` prints and what test_structure.py holds.

Read from the sources alone: imports (grimp's graph), classes (the syntax tree), files. `python -m tests.architecture.structure`.
"""

from __future__ import annotations

import copy
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp

from tests.architecture.syntax import facts

ROOT = Path(__file__).parents[2]
TOPS = tuple(
    name
    for name in ("lab", "services", "scheduler", "kubelet", "apiserver_fake", "claim_controller")
    if (ROOT / name / "__init__.py").exists()
)
COMPONENTS = ("apiserver_fake", "scheduler", "kubelet", "claim_controller", "services.controllers", "lab.scenarios")
REGISTERS = ("plugins", "kinds", "strategies", "invariants", "commands", "controllers", "subresources")
"""Folders where being in the folder is what makes a file known: they may hold any number."""


@dataclass(frozen=True)
class Structure:
    """The figures. Chains name the modules from the importer down to what imports nothing of ours."""

    lines: dict[str, int]
    pure_percent: float
    chain: tuple[str, ...]
    chains: dict[str, tuple[str, ...]]
    full_folders: dict[str, int]
    inheritance: tuple[str, ...]
    fmt_skips: int


def sources() -> list[Path]:
    """Return the product's modules, without what is generated."""
    return sorted(path for top in TOPS for path in (ROOT / top).rglob("*.py") if "_pb2" not in path.name)


def module_of(path: Path) -> str:
    """Return the dotted name of a module's file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def graph() -> grimp.ImportGraph:
    """Return who imports whom, external packages included."""
    return grimp.build_graph(*TOPS, include_external_packages=True, cache_dir=None)


def contract() -> dict[str, list[str]]:
    """Return the contract "Only shells reach the world" of pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return next(c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "only_shells")


def measure() -> Structure:
    """Read the tree and return its figures."""
    count = {module_of(path): len(path.read_text().splitlines()) for path in sources()}
    lines = Counter()
    for module, number in count.items():
        parts = module.split(".")
        lines[".".join(parts[:2]) if parts[0] in ("lab", "services") and len(parts) > 1 else parts[0]] += number
    reaching = _reaching()
    pure = sum(number for module, number in count.items() if module not in reaching)
    return Structure(
        lines=dict(sorted(lines.items())),
        pure_percent=100 * pure / sum(count.values()),
        chain=longest_chain(set(count)),
        chains={c: longest_chain({m for m in count if m == c or m.startswith(f"{c}.")}) for c in COMPONENTS},
        full_folders=_full_folders(),
        inheritance=_deepest_inheritance(),
        fmt_skips=sum(path.read_text().count("# fmt: skip") for path in sources()),
    )


def _reaching() -> set[str]:
    """Return the modules from which some import leads to the world, what the contract waives set aside."""
    settings, imports = contract(), copy.deepcopy(graph())
    for waived in settings["ignore_imports"]:
        importer, _, imported = waived.partition(" -> ")
        imports.remove_import(importer=importer, imported=imported)
    return {
        name
        for outside in settings["world"]
        if outside in imports.modules
        for name in imports.find_downstream_modules(outside)
    }


def longest_chain(modules: set[str]) -> tuple[str, ...]:
    """Return the longest path of imports that stays within these modules."""
    imports, below = graph(), {}

    def chain(module: str) -> tuple[str, ...]:
        if module not in below:
            imported = sorted(imports.find_modules_directly_imported_by(module) & modules - {module})
            below[module] = (module, *max((chain(name) for name in imported), key=len, default=()))
        return below[module]

    return max((chain(module) for module in sorted(modules & imports.modules)), key=len)


def _full_folders() -> dict[str, int]:
    files = Counter(path.parent.relative_to(ROOT) for path in sources() if path.name != "__init__.py")
    return {str(folder): n for folder, n in files.items() if n > 25 and folder.name not in REGISTERS}


def _deepest_inheritance() -> tuple[str, ...]:
    """Return the longest line of our own classes, from the child to the last of its ancestors that is ours."""
    bases: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for path in sources():
        module, found = module_of(path), facts(path)
        for name, of_name in found.classes:
            bases.setdefault((module, name), set()).update(found.imports.get(base, (module, base)) for base in of_name)

    def line(one: tuple[str, str], seen: frozenset[tuple[str, str]]) -> tuple[str, ...]:
        parents = [base for base in sorted(bases[one]) if base in bases and base not in seen]
        return (one[1], *max((line(base, seen | {base}) for base in parents), key=len, default=()))

    return max((line(one, frozenset({one})) for one in sorted(bases)), key=len)


def main() -> None:
    """Print the figures, one a line."""
    seen = measure()
    total = sum(seen.lines.values())
    print(f"structure: {total:,} lines, {seen.pure_percent:.1f} % of them pure whatever they import")
    print(
        f"  longest chain of imports {len(seen.chain)}: " + ", ".join(f"{c} {len(p)}" for c, p in seen.chains.items())
    )
    print(f"  inheritance {len(seen.inheritance) - 1}, fmt: skip {seen.fmt_skips}, lines: "
          + ", ".join(f"{name} {number:,}" for name, number in seen.lines.items()))  # fmt: skip


if __name__ == "__main__":
    main()
