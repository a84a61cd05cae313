"""A recorded run is the run that it would have been, and its recording has all that was stored."""

from collections import Counter

import msgspec
import pytest

from lab.recordings.format import DELETED
from lab.recordings.reader import Recording
from lab.scenarios.decisions.decision import Decision
from lab.scenarios.recording import run_recorder
from lab.scenarios.run import load_scenario, simulate

CRASHES = "experiments/crashes/killed-apiserver.txt"
FIRST_LIFE = "experiments/first-life/a-pods-first-life.txt"


def recorded(path, scenario, **options):
    """Simulate and record; return the result and what the store held at the end."""
    stored = {}

    def look(mesh):
        store = mesh.instance("apiserver").server.store
        stored[store.rv] = {(r.resource, r.namespace, r.name): r.body for r in store.state_at(store.rv)}

    with run_recorder(path, scenario, seed=3) as recorder:
        return simulate(scenario, seed=3, recorder=recorder, afterwards=look, **options), stored


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    path = tmp_path_factory.mktemp("recording") / "a.keprec"
    scenario = load_scenario(CRASHES)
    lines = []
    result, stored = recorded(path, scenario, on_line=lines.append)
    with Recording.open(path) as recording:
        yield recording, result, stored, lines


def test_recording_changes_no_digest(crashed):
    recording, result, _, _ = crashed

    assert simulate(load_scenario(CRASHES), seed=3).digest == result.digest
    assert recording.meta.digest == result.digest


def test_the_last_state_is_what_the_store_holds(crashed):
    recording, _, stored, _ = crashed
    (rv, objects) = stored.popitem()
    stored[rv] = objects

    found = recording.state_at(rv)
    assert found.keys() == objects.keys()
    for key, version in found.items():
        body = recording.body(version.sha)
        assert body in (None, objects[key])
    unknown = Counter(key[0] for key, version in found.items() if not recording.has_body(version))
    assert not unknown.keys() & {"pods", "nodes", "replicasets.apps", "events", "services"}


def test_all_lines_and_versions_are_there_also_of_what_a_crash_repeated(crashed):
    recording, _, _, lines = crashed
    found = list(recording.lines())

    assert [line for line in found if line.ev != "sched.moved"] == lines
    moves = [(line.comp, line.inc, line.seq) for line in found if line.ev == "sched.moved"]
    assert len(moves) == len(set(moves)) > 0
    commits = {line.rv for line in lines if line.ev == "store.commit"}
    versions = list(recording.versions())
    assert [each.rv for each in versions] == sorted(commits)
    for each in versions:
        assert found[each.line].rv == each.rv
        assert recording.time_of(found[each.line]) == pytest.approx(each.t)


def test_bodies_of_pods_and_nodes_are_recorded_deleted_ones_included(crashed):
    recording, *_ = crashed

    for each in recording.versions():
        if each.resource in ("pods", "nodes") and each.t > 0.0:
            body = recording.body(each.sha)
            assert body is not None, each
            meta = msgspec.json.decode(body)["metadata"]
            assert (meta["uid"], meta["resourceVersion"]) == (each.uid, str(each.rv))
        if each.type == DELETED:
            assert recording.object_at(*each.key, each.rv) is None


def test_decisions_are_recorded_with_the_scores_behind_them(crashed):
    recording, *_ = crashed
    found = [msgspec.json.decode(raw, type=Decision) for raw in recording.decisions()]

    scheduled = [each for each in found if (each.event, each.outcome) == ("sched.attempt", "scheduled")]
    assert scheduled
    assert all(each.node in each.why["total"] for each in scheduled)


def test_spans_are_recorded_of_a_run_that_is_traced(tmp_path):
    scenario = load_scenario(FIRST_LIFE)
    result, _ = recorded(tmp_path / "a.keprec", scenario, traced=True)

    with Recording.open(tmp_path / "a.keprec") as recording:
        assert list(recording.spans()) == result.spans
        assert not any(text.startswith("spans") for text in recording.meta.not_recorded)


def test_what_was_recorded_before_an_interrupt_is_kept(tmp_path):
    scenario, path = load_scenario(FIRST_LIFE), tmp_path / "a.keprec"
    seen = []

    def interrupt(line):
        seen.append(line)
        if len(seen) == 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), run_recorder(path, scenario, seed=0) as recorder:
        simulate(scenario, recorder=recorder, on_line=interrupt)

    with Recording.open(path) as recording:
        assert path.is_file()
        assert [line for line in recording.lines() if line.seq][:299] == seen[:299]
        assert recording.rv_range[1] > 0
        assert "what would have come after the run was interrupted" in recording.meta.not_recorded
