"""The example packages, found as installed packages are, in cycles of their own profiles."""

import sys
from pathlib import Path

import pytest
from msgspec import structs

from scheduler.cache.node_info import PodInfo
from scheduler.configuration.file import Configured
from scheduler.configuration.plugins import GROUP, PluginSourceError, known_plugins
from scheduler.cycle.result import ScheduleResult
from scheduler.framework.cycle_state import CycleState
from scheduler.wiring import core_of
from services.api.meta import Condition, ObjectMeta
from services.api.switches import Switches
from services.runtime.config import StartError
from tests.unit.scheduler.conftest import Worlds, new_handle

EXAMPLES = Path(__file__).parents[2] / "examples"
PLUGINS = {
    "maintenance-window": "MaintenanceWindow",
    "numa-score": "NumaScore",
    "consenting-victims": "ConsentingVictims",
}
A_DAY_S = 1_767_225_600.0
"""Midnight, UTC."""


def install(monkeypatch, site: Path, name: str, offers: dict[str, str], source: Path | None = None) -> None:
    """Have importlib find a distribution that offers plugins, and its modules."""
    info = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    lines = [f"{offered} = {value}" for offered, value in offers.items()]
    info.joinpath("entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    monkeypatch.syspath_prepend(str(site))
    if source is not None:
        monkeypatch.syspath_prepend(str(source))


@pytest.fixture
def examples(monkeypatch, tmp_path):
    for name, plugin in PLUGINS.items():
        module = f"keplab_{name.replace('-', '_')}"
        install(monkeypatch, tmp_path / name, f"keplab-{name}", {plugin: f"{module}:PLUGIN"}, EXAMPLES / name)
    yield
    for name in PLUGINS:
        sys.modules.pop(f"keplab_{name.replace('-', '_')}", None)


class Scene:
    """The core of a scheduler with an example's configuration, at a time of day."""

    def __init__(self, example: str, hour: float = 12.0, switches: Switches | None = None) -> None:
        handle = new_handle(switches=switches or Switches())
        object.__setattr__(handle, "wall", lambda: A_DAY_S + hour * 3600)
        configured = Configured.read(str(EXAMPLES / example / "scheduler.yaml"), "default-scheduler", Switches())
        self.core = core_of(handle, configured, configured.profiles((), handle))

    def node(self, name, annotations=None, labels=None, **more):
        node = Worlds.node(name, labels=labels, **more)
        meta = ObjectMeta(name=name, labels=node.metadata.labels, annotations=annotations or {})
        self.core.handlers.on_node(None, type(node)(metadata=meta, spec=node.spec, status=node.status), 0.0)
        return self

    def schedule(self, **pod):
        self.core.handlers.on_pod(None, Worlds.pod("p", **pod), 0.0)
        info = self.core.queue.pop(0.0).info
        return self.core.profiles.of(info).cycle.schedule(info, 0.0)


@pytest.mark.parametrize(
    ("window", "hour", "is_refused"),
    [("22:00-02:30", 23, True), ("22:00-02:30", 2, True), ("22:00-02:30", 3, False), ("22:00-02:30", 21, False),
     ("22:00-02:30", 22, True), ("", 23, False)],
)  # fmt: skip
def test_a_node_under_maintenance_takes_no_pods(examples, window, hour, is_refused):
    scene = Scene("maintenance-window", hour)
    scene.node("n1", {"example.com/maintenance": window} if window else {})

    result = scene.schedule(cpu="1")

    assert is_refused is (not isinstance(result, ScheduleResult))
    if is_refused:
        assert "1 node(s) were under maintenance" in result.diagnosis.message


def test_a_node_whose_maintenance_is_near_ranks_last(examples):
    scene = Scene("maintenance-window", hour=21)
    scene.node("soon", {"example.com/maintenance": "22:00-23:00"}).node(
        "later", {"example.com/maintenance": "02:00-03:00"}
    )

    result = scene.schedule(cpu="1")

    assert {"soon": 50, "later": 100} == result.ranking.scores["MaintenanceWindow"]
    assert "later" == result.node_name


def test_the_fewer_numa_cells_a_pod_needs_the_better(examples):
    scene = Scene("numa-score")
    for name, free in (("one", "4.8"), ("two", "4.4"), ("three", "2.2.2"), ("short", "2.2"), ("silent", "")):
        scene.node(name, labels={"example.com/numa-free": free} if free else {}, cpu="16")

    result = scene.schedule(cpu="6")

    assert {"one": 100, "two": 50, "three": 33, "short": 0, "silent": 0} == result.ranking.scores["NumaScore"]
    assert "one" == result.node_name


def test_both_forms_of_the_numa_score_agree(examples):
    scene = Scene("numa-score")
    for index, free in enumerate(("0.0", "1.7", "8", "3.3.3", "x")):
        scene.node(f"n{index}", labels={"example.com/numa-free": free})
    columns, entry = scene.core.cache.columns, known_plugins()["NumaScore"]
    plugin = entry.make(entry.args(), None)

    for cpu in ("0", "500m", "1", "8", "9", "100"):
        pod = PodInfo(Worlds.pod("p", cpu=cpu))
        found = plugin.score_all(None, pod, columns)
        assert [plugin.score(CycleState(), pod, node) for node in columns.nodes if node] == [
            found[node.slot] for node in columns.nodes if node
        ]


@pytest.mark.parametrize("generation", ["G0", "G3", "G4"])
@pytest.mark.parametrize(("consenting", "victim"), [("older", "older"), ("", "younger")])
def test_a_consenting_victim_leaves_for_a_pod_that_grows(examples, generation, consenting, victim):
    gate = "InPlacePodVerticalScalingSchedulerPreemption"
    scene = Scene("consenting-victims", switches=Switches({gate: True, "resize.generation": generation}))
    scene.node("n1", cpu="3")
    deferred = (Condition(type="PodResizePending", status="True", reason="Deferred"),)
    for name, start, more in (("older", 1, {}), ("younger", 2, {}), ("h", 3, {"priority": 9, "conditions": deferred})):
        labels = {"example.com/may-be-evicted": "true"} if name == consenting else {}
        pod = Worlds.pod(
            name, node="n1", cpu="2" if name == "h" else "1", labels=labels, priority=more.get("priority", 0)
        )
        status = structs.replace(
            pod.status, start_time=f"2026-01-01T00:00:0{start}Z", conditions=more.get("conditions", ())
        )
        scene.core.handlers.on_pod(None, structs.replace(pod, status=status), 0.0)

    outcome = scene.core.resizes.cycle.decide(scene.core.queue.pop(0.0).info)

    assert [victim] == [each.key.name for each in outcome.victims]
    assert ("ConsentingVictims" if consenting else "DefaultPreemption") == outcome.eviction.plugin


@pytest.mark.parametrize(("generation", "says"), [("G3", "MaintenanceWindow"), ("G4", "DeferredPodScheduling")])
def test_a_filter_older_than_the_feature_keeps_pods_from_growing_until_the_beta(examples, generation, says):
    gate = "InPlacePodVerticalScalingSchedulerPreemption"
    scene = Scene("maintenance-window", hour=23, switches=Switches({gate: True, "resize.generation": generation}))
    scene.node("n1", {"example.com/maintenance": "22:00-02:30"}, cpu="3")
    pod = Worlds.pod("h", node="n1", cpu="2")
    deferred = (Condition(type="PodResizePending", status="True", reason="Deferred"),)
    scene.core.handlers.on_pod(None, structs.replace(pod, status=structs.replace(pod.status, conditions=deferred)), 0.0)

    outcome = scene.core.resizes.cycle.decide(scene.core.queue.pop(0.0).info)

    assert (says, generation == "G4") == (outcome.plugin, outcome.fits)


# -- where plugins come from ---------------------------------------------------------------------------------


def test_a_plugin_named_by_a_flag_is_known(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES / "numa-score"))

    assert "NumaScore" in known_plugins(["keplab_numa_score:PLUGIN"])


@pytest.mark.parametrize(
    ("offers", "problem"),
    [
        ({"X": "no_such_module:PLUGIN"}, "entry point X = no_such_module:PLUGIN of broken: ModuleNotFoundError: "),
        ({"X": "json:NOTHING"}, "entry point X = json:NOTHING of broken: AttributeError: "),
        ({"X": "json:dumps"}, "entry point X = json:dumps of broken is a function, want a PluginEntry"),
        (
            {"X": "scheduler.plugins.node_name:PLUGIN"},
            (
                "entry point X = scheduler.plugins.node_name:PLUGIN of broken offers NodeName, "
                "which keplab itself offers already"
            ),
        ),
    ],
)
def test_a_package_whose_plugin_cannot_be_had_stops_the_start(monkeypatch, tmp_path, offers, problem):
    install(monkeypatch, tmp_path, "broken", offers)

    with pytest.raises(PluginSourceError) as refused:
        known_plugins()

    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize("flag", ["nothing", "json:", "json:NOTHING"])
def test_a_flag_that_names_no_plugin_stops_the_start(flag):
    with pytest.raises(PluginSourceError, match=f"--plugin {flag}"):
        known_plugins([flag])


def test_without_a_file_packages_are_not_looked_at(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, "broken", {"X": "no_such_module:PLUGIN"})

    assert [] == Configured.read("", "default-scheduler", Switches()).profiles((), new_handle())


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(StartError) as refused:
        Configured.read(str(tmp_path / "none.yaml"), "default-scheduler", Switches())

    assert f"--config {tmp_path}/none.yaml: No such file or directory" == refused.value.message
