"""Every case of the corpus: what each plugin says of each node, in both of its forms, and what becomes of the pod."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.cache.nominator import Nominator
from scheduler.configuration.plugins import DEFAULT, defaults, plugins
from scheduler.cycle.result import ScheduleResult, Unschedulable
from scheduler.cycle.scheduling_cycle import SchedulingCycle
from scheduler.entry import Handle
from scheduler.framework.arrangement import Enabled
from scheduler.framework.cycle_state import CycleError, CycleState
from scheduler.framework.plugin import PreFilterPlugin, PreFilterResult, PreScorePlugin, ScoreExtensions
from scheduler.framework.runner import Runner
from scheduler.framework.status import Code, Status
from scheduler.framework.vectorized import VectorFilterPlugin, VectorScorePlugin
from scheduler.framework.world import FixedWorld
from scheduler.queue.exclusions import Exclusions
from services.api.documents import yaml_text
from services.api.kinds.node import Node
from services.api.kinds.pod import Pod
from services.api.meta import View
from services.api.resources import resources
from services.api.switches import Switches

FOLDER = Path(__file__).parent / "cases"
CASE_KEYS = {"name", "source", "plugins", "switches", "nodes", "pods", "objects", "pod", "expect"}
EXPECT_KEYS = {"pre_filter", "filter", "score", "skip_score", "total", "chosen", "message"}
ALWAYS = ("PrioritySort", "DefaultBinder")
CODES = {"Unschedulable": Code.UNSCHEDULABLE, "Unresolvable": Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
         "Error": Code.ERROR, "Pending": Code.PENDING}  # fmt: skip
PASSES = "ok"


def _taint(text: str) -> dict[str, str]:
    left, _, effect = text.rpartition(":")
    key, _, value = left.partition("=")
    return {"key": key, "value": value, "effect": effect}


def node_of(short: dict[str, Any]) -> Node:
    """Return the node that a case's shorthand means."""
    known = {
        "name",
        "cpu",
        "memory",
        "pods",
        "labels",
        "annotations",
        "taints",
        "unschedulable",
        "allocatable",
        "images",
        "features",
    }
    assert set(short) <= known, f"node {short.get('name')}: unknown {set(short) - known}"
    allocatable = {
        "cpu": str(short.get("cpu", "4")),
        "memory": str(short.get("memory", "8Gi")),
        "pods": str(short.get("pods", 110)),
        **{k: str(v) for k, v in short.get("allocatable", {}).items()},
    }
    labels = {"kubernetes.io/hostname": short["name"], **{k: str(v) for k, v in short.get("labels", {}).items()}}
    document = {
        "metadata": {"name": short["name"], "labels": labels, "annotations": short.get("annotations", {})},
        "spec": {
            "taints": [_taint(t) for t in short.get("taints", ())],
            "unschedulable": short.get("unschedulable", False),
        },
        "status": {
            "allocatable": allocatable,
            "capacity": allocatable,
            "images": short.get("images", []),
            "declaredFeatures": short.get("features", []),
        },
    }
    return msgspec.convert(document, Node, strict=False)


def pod_of(short: dict[str, Any], name: str) -> Pod:
    """Return the pod that a case's shorthand means."""
    known = {
        "name",
        "namespace",
        "uid",
        "node",
        "cpu",
        "memory",
        "requests",
        "labels",
        "annotations",
        "priority",
        "spec",
        "status",
        "deleted",
        "owner",
    }
    assert set(short) <= known, f"pod {short.get('name')}: unknown {set(short) - known}"
    name = short.get("name", name)
    requests = {
        **{k: str(short[k]) for k in ("cpu", "memory") if k in short},
        **{k: str(v) for k, v in short.get("requests", {}).items()},
    }
    spec = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}],
        "priority": short.get("priority", 0),
        "nodeName": short.get("node", ""),
        **short.get("spec", {}),
    }
    meta = {
        "name": name,
        "namespace": short.get("namespace", "default"),
        "uid": short.get("uid", name),
        "resourceVersion": "1",
        "labels": {k: str(v) for k, v in short.get("labels", {}).items()},
        "annotations": short.get("annotations", {}),
    }
    if short.get("deleted"):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if "owner" in short:
        meta["ownerReferences"] = [{"apiVersion": "apps/v1", "controller": True, "uid": "owner", **short["owner"]}]
    document = {"metadata": meta, "spec": spec, "status": {"phase": "Pending", **short.get("status", {})}}
    return msgspec.convert(document, Pod, strict=False)


def object_of(document: dict[str, Any]) -> View:
    """Return the typed view of a whole manifest."""
    found = next(
        (r for r in resources().values() if (r.kind, r.api_version) == (document["kind"], document["apiVersion"])), None
    )
    assert found is not None, f"no kind {document['apiVersion']} {document['kind']}"
    return msgspec.convert({k: v for k, v in document.items() if k not in ("apiVersion", "kind")}, found.view)


class World:
    """The cluster of one case with the profile that it names."""

    def __init__(self, case: dict[str, Any]) -> None:
        assert set(case) <= CASE_KEYS, f"unknown {set(case) - CASE_KEYS}"
        assert set(case.get("expect", {})) <= EXPECT_KEYS, f"unknown {set(case['expect']) - EXPECT_KEYS}"
        assert case.get("source"), "a case names its source"
        switches = Switches.parse([f"{name}={_text(value)}" for name, value in case.get("switches", {}).items()])
        self.cache, self.pod = Cache(), PodInfo(pod_of(case["pod"], "p"))
        self.handle = Handle(
            switches,
            self.cache,
            Nominator(),
            FixedWorld(*map(object_of, case.get("objects", ()))),
            Exclusions(),
            random.Random(1),
            lambda: 1_767_225_600.0,
        )
        self.enabled = self._profile(case.get("plugins"))
        for short in case.get("nodes", ()):
            self.cache.set_node(node_of(short))
        for i, short in enumerate(case.get("pods", ())):
            assert short.get("node"), f"pod {short.get('name', i)} of `pods` has no node"
            for copy in range(short.get("count", 1)):
                one = {key: value for key, value in short.items() if key != "count"}
                self.cache.add_pod(PodInfo(pod_of(one, f"p{i}-{copy}")), short["node"])
        self.exclusions = self.handle.exclusions
        self.exclusions.learn(self.pod.pod, 0.0)
        self.runner = Runner(self.enabled)

    def _profile(self, wanted: list[Any] | None) -> list[Enabled]:
        known, weights = plugins(), dict(DEFAULT)
        if wanted is None:
            wanted = [name for name, _ in defaults(self.handle.switches)]
        entries = [{"name": each} if isinstance(each, str) else each for each in wanted]
        entries += [{"name": name} for name in ALWAYS if name not in {e["name"] for e in entries}]
        found = []
        for entry in entries:
            plugin = known[entry["name"]]
            args = (
                msgspec.convert(entry["args"], plugin.args)
                if "args" in entry
                else plugin.defaults(self.handle.switches)
            )
            found.append(Enabled(plugin.make(args, self.handle), entry.get("weight", weights.get(entry["name"], 1))))
        return found

    @property
    def rows(self) -> dict[str, int]:
        return self.cache.columns.slots


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def answer_of(code: Code, reasons: list[str]) -> str:
    """Return the corpus's spelling of an answer."""
    if code is Code.SUCCESS:
        return PASSES
    name = {value: key for key, value in CODES.items()}[code]
    return f"{name}: {'; '.join(sorted(reasons))}"


def both_forms(world: World, plugin: Any, state: CycleState) -> dict[str, str]:
    """Return node to answer after holding the plugin's two forms against each other."""
    columns, pod = world.cache.columns, world.pod
    one_by_one = {}
    if hasattr(plugin, "filter"):
        for name, row in world.rows.items():
            status = plugin.filter(state, pod, columns.nodes[row])
            one_by_one[name] = answer_of(status.code, list(status.reasons))
    if not isinstance(plugin, VectorFilterPlugin):
        return one_by_one
    mask = plugin.filter_all(state, pod, columns)
    passed = columns.full(True) if mask is None else mask
    refused = columns.valid & ~passed
    said: dict[str, list[tuple[Code, str]]] = {name: [] for name in world.rows}
    if refused.any():
        for refusal in plugin.explain_all(state, pod, columns, refused):
            for name, row in world.rows.items():
                if refusal.mask[row]:
                    said[name].append((refusal.code, refusal.reason))
    at_once = {
        name: answer_of(each[0][0], [reason for _, reason in each]) if each else PASSES for name, each in said.items()
    }
    assert {n for n, row in world.rows.items() if refused[row]} == {n for n, v in at_once.items() if v != PASSES}
    if one_by_one:
        assert one_by_one == at_once, f"the two forms of {plugin.name} differ"
    return at_once


def scores_of(world: World, plugin: Any, state: CycleState, feasible: Any) -> dict[str, int] | None:
    """Return node to normalised score in both forms, or None when PreScore skips."""
    columns, pod = world.cache.columns, world.pod
    if isinstance(plugin, PreScorePlugin):
        status = plugin.pre_score(state, pod, columns, feasible)
        if status.code is Code.SKIP:
            return None
        assert status.is_success, status
    forms = []
    if hasattr(plugin, "score"):
        raw = np.zeros(columns.capacity)
        for row in np.flatnonzero(feasible):
            node = columns.nodes[row]
            raw[row] = plugin.score(state, pod, node)
        forms.append(raw)
    if isinstance(plugin, VectorScorePlugin):
        every = plugin.score_all(state, pod, columns)
        forms.append(np.full(columns.capacity, float(every)) if isinstance(every, int) else every)
    found = []
    for raw in forms:
        scores = plugin.normalize(state, raw, feasible) if isinstance(plugin, ScoreExtensions) else raw
        array = np.full(columns.capacity, float(scores)) if isinstance(scores, int) else scores
        found.append({name: int(array[row]) for name, row in world.rows.items() if feasible[row]})
    assert all(each == found[0] for each in found), f"the two forms of {plugin.name} differ: {found}"
    return found[0]


CASES = [
    pytest.param(case, id=f"{path.stem}-{case['name'].replace(' ', '_')}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for case in yaml_text.load(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("case", CASES)
def test_case(case):
    world, expect = World(case), case["expect"]
    assert expect, "a case expects something"
    _check_plugins(world, expect)
    _check_pod(world, expect)


def _check_plugins(world: World, expect: dict[str, Any]) -> None:
    columns, pod, state = world.cache.columns, world.pod, CycleState()
    feasible = world.runner.filter(CycleState(), pod, columns).mask
    state.alive = columns.valid.copy()
    results: dict[str, dict[str, str]] = {}
    scores: dict[str, dict[str, int] | None] = {}
    for enabled in world.enabled:
        plugin = enabled.plugin
        answer: Status | PreFilterResult = Status()
        if isinstance(plugin, PreFilterPlugin):
            answer = plugin.pre_filter(state, pod, columns)
        status = answer.status if isinstance(answer, PreFilterResult) else answer
        if plugin.name in expect.get("pre_filter", {}):
            said = "Skip" if status.code is Code.SKIP else answer_of(status.code, list(status.reasons))
            assert said == expect["pre_filter"][plugin.name]
        if status.is_success and (isinstance(plugin, VectorFilterPlugin) or hasattr(plugin, "filter")):
            said = results[plugin.name] = both_forms(world, plugin, state)
            state.alive &= columns.mask_of([name for name, answer in said.items() if answer == PASSES])
        if isinstance(plugin, VectorScorePlugin) or hasattr(plugin, "score"):
            scored = CycleState()
            if isinstance(plugin, PreFilterPlugin):
                plugin.pre_filter(scored, pod, columns)
            scores[plugin.name] = (
                scores_of(world, plugin, scored, feasible) if feasible.any() and "message" not in expect else None
            )
    for name, wanted in expect.get("filter", {}).items():
        said = results.get(name, dict.fromkeys(world.rows, PASSES))
        assert said == {**dict.fromkeys(world.rows, PASSES), **wanted}, name
    for name, wanted in expect.get("score", {}).items():
        assert scores[name] is not None, f"{name} skipped scoring"
        assert {node: scores[name][node] for node in wanted} == wanted, name
    for name in expect.get("skip_score", ()):
        assert scores[name] is None, f"{name} scores: {scores[name]}"


def _check_pod(world: World, expect: dict[str, Any]) -> None:
    if not {"total", "chosen", "message"} & set(expect):
        return
    cycle = SchedulingCycle(world.cache, world.runner, world.handle.nominator, random.Random(1))
    result = cycle.schedule(world.pod, 0.0)
    if "message" in expect:
        assert isinstance(result, Unschedulable | CycleError), result
        assert (result.diagnosis.message if isinstance(result, Unschedulable) else result.message) == expect["message"]
        return
    assert isinstance(result, ScheduleResult), result
    if "chosen" in expect:
        wanted = expect["chosen"] if isinstance(expect["chosen"], list) else [expect["chosen"]]
        assert result.node_name in wanted
        if len(wanted) > 1:
            chances = (
                SchedulingCycle(world.cache, world.runner, world.handle.nominator, random.Random(s)) for s in range(64)
            )
            assert {c.schedule(world.pod, 0.0).node_name for c in chances} == set(wanted)
    for node, total in expect.get("total", {}).items():
        assert result.ranking is not None
        assert result.ranking.totals[node] == total


def test_the_corpus_is_large_and_every_name_is_its_own():
    names = [param.id for param in CASES]

    assert len(names) >= 400
    assert len(set(names)) == len(names)
