"""What a linter cannot say: doors, mains and annexes, names that must not exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = ("scheduler", "kubelet", "apiserver_fake", "services", "benchmarks")
SHELLS = {
    "apiserver_fake": {"server", "wiring"},
    "apiserver_fake.grpc": {"frames", "server"},
    "apiserver_fake.rest": {"pod_log", "responses", "server", "watch"},
    "apiserver_fake.storage": {"journal", "watch_hub", "watch_reader", "writer"},
    "benchmarks": {
        "__main__",
        "algorithm",
        "clocks",
        "environment",
        "fan_out",
        "figures",
        "kubelet_host",
        "mesh",
        "scheduler_cores",
        "scheduler_mesh",
        "start_up",
    },
    "kubelet.agent": {
        "agent",
        "claim_calls",
        "device_sockets",
        "heartbeats",
        "host",
        "journal",
        "log_server",
        "mirror_calls",
        "node_files",
        "pod_calls",
        "power",
        "stage_player",
        "topology_writer",
    },
    "kubelet.deviceplugin": {"wire"},
    "kubelet.deviceplugin.emulated": {"serving"},
    "scheduler": {"leadership", "loops"},
    "scheduler.cycle": {"binder", "waiting_pods"},
    "scheduler.dispatcher": {"dispatch", "limited_client"},
    "scheduler.dra": {"allocation_writer", "deallocator"},
    "scheduler.explain": {"record_writer"},
    "scheduler.extenders": {"extended_cycle", "http"},
    "scheduler.pod_groups": {"group_loop", "status_writer"},
    "scheduler.preemption": {"evictions"},
    "scheduler.resize": {"resize_loop"},
    "scheduler.volumes": {"binder"},
    "services.chaos": {"run", "seeds"},
    "services.client": {
        "channel",
        "client",
        "executor",
        "gate",
        "informer",
        "leases",
        "mutate_stream",
        "recorder",
        "reflector",
        "rpc",
        "watch_stream",
    },
    "services.explore": {"search"},
    "services.runtime": {
        "child",
        "controller_loop",
        "health",
        "machine",
        "manager",
        "mesh_directory",
        "process",
        "real",
        "simloop",
        "supervisor",
        "unix_sockets",
    },
    "services.scenarios": {"observer", "run", "runner", "workers"},
    "services.scenarios.processes": {"machine_faults", "orphaned_requests", "process_mesh"},
    "services.scenarios.script": {"context", "fault_verbs", "verbs"},
    "services.scenarios.simulation": {"disk", "lifetime", "network", "simulated_mesh", "sockets"},
    "services.telemetry": {"logs", "otlp"},
}
"""Modules that may wait, log or reach the world; every other module is a heart, words or settings."""
WORLD = re.compile(
    r"^(?:from|import) (grpc|asyncio|aiohttp|opentelemetry|structlog|logging|time|random|socket|subprocess|protos)\b",
    re.M,
)
ROOMS = ("apiserver_fake", "scheduler", "kubelet", "services/controllers")
MAINS = ("api", "reconcile", "client", "telemetry", "runtime", "scenarios", "experiments", "explore", "chaos")


@pytest.mark.parametrize("room", ROOMS)
def test_every_process_has_the_same_door(room):
    files = {path.name for path in (ROOT / room).glob("*.py")}

    assert {"__main__.py", "config.py", "wiring.py"} <= files


@pytest.mark.parametrize("main", MAINS)
def test_a_main_is_no_process(main):
    assert not (ROOT / "services" / main / "__main__.py").exists()


def _modules():
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path


def _is_shell(module):
    package, _, name = module.rpartition(".")
    return name in SHELLS.get(package, ()) or module.startswith("services.cli")


def test_a_module_that_is_no_shell_reaches_nothing_outside():
    found = [
        f"{module}: {hit[0]}"
        for module, path in _modules()
        if not _is_shell(module)
        for hit in [WORLD.search(path.read_text())]
        if hit
    ]

    assert [] == found


def test_every_shell_named_here_exists():
    modules = {module for module, _ in _modules()}

    assert [] == [
        f"{package}.{name}"
        for package, names in SHELLS.items()
        for name in sorted(names)
        if f"{package}.{name}" not in modules
    ]


def test_no_module_is_called_utils_or_its_cousins():
    names = {"utils", "util", "common", "helpers", "helper", "misc", "base"}
    found = [str(path.relative_to(ROOT)) for top in TOPS for path in (ROOT / top).rglob("*.py") if path.stem in names]

    assert [] == found


def test_product_code_never_asks_whether_it_is_being_tested():
    words = ("MESH_TEST", "PYTEST", "in_simulation", "is_simulated", "SimLoop")
    allowed = {"services/runtime/simloop.py"}
    found = [
        str(path.relative_to(ROOT))
        for top in (
            "services/api",
            "services/client",
            "services/runtime",
            "services/controllers",
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
