"""What a linter cannot say: entry points, libraries that are no processes, names that must not exist."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = ("scheduler", "kubelet", "apiserver_fake", "claim_controller", "services", "lab")
COMPONENTS = ("apiserver_fake", "scheduler", "kubelet", "services/controllers", "claim_controller")
LIBRARIES = (
    *(f"services/{name}" for name in ("api", "cel", "kwok", "dra", "reconcile", "client", "telemetry", "runtime")),
    *(f"lab/{name}" for name in ("scenarios", "experiments", "explore", "chaos", "runs")),
)


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_process_has_the_same_entry_point(component):
    files = {path.name for path in (ROOT / component).glob("*.py")}

    assert {"__main__.py", "config.py", "wiring.py"} <= files


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_no_process(library):
    assert not (ROOT / library / "__main__.py").exists()


def test_no_module_is_called_utils_or_its_cousins():
    names = {"utils", "util", "common", "helpers", "helper", "misc", "base"}
    found = [str(path.relative_to(ROOT)) for top in TOPS for path in (ROOT / top).rglob("*.py") if path.stem in names]

    assert [] == found


def test_product_code_never_asks_whether_it_is_being_tested():
    words = ("MESH_TEST", "PYTEST", "in_simulation", "is_simulated", "SimLoop")
    allowed = {"lab/scenarios/simulation/simloop.py"}
    found = [
        str(path.relative_to(ROOT))
        for top in (
            "services/api",
            "services/client",
            "services/runtime",
            "services/controllers",
            "claim_controller",
            "scheduler",
            "kubelet",
            "apiserver_fake",
        )
        for path in (ROOT / top).rglob("*.py")
        if str(path.relative_to(ROOT)) not in allowed and any(word in path.read_text() for word in words)
    ]

    assert [] == found


def test_nothing_in_the_repository_names_a_registry_or_a_local_path():
    suffixes = {".py", ".md", ".toml", ".lock", ".yaml", ".txt", ".proto"}
    bad = ("pypi.org", "files.pythonhosted", "registry.npmjs", "deb.debian.org", "/work/", "/root/")
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in ROOT.rglob("*")
        if path.suffix in suffixes
        and not {".venv", ".git", "runs", ".keplab"} & set(path.parts)
        and path != Path(__file__)
        for word in bad
        if word in path.read_text(errors="ignore")
    ]

    assert [] == found
