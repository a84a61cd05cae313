"""StatefulSets observed as scenarios, with what the event log says of names and containers."""

from pathlib import Path

from lab.scenarios.run import load_scenario, simulate

FOLDER = Path(__file__).parents[2] / "experiments" / "stateful-sets"


def _observed(name, seed=1):
    """Run a scenario; return its result and the event log's lines."""
    lines = []
    return simulate(load_scenario(FOLDER / f"{name}.txt"), seed=seed, on_line=lines.append), lines


def _at(lines, event, name):
    """Return `(time in seconds, uid)` of an event of a pod."""
    return [(x.mono_ns / 1e9, x.obj["uid"]) for x in lines if x.ev == event and x.obj and x.obj.get("name") == name]


def test_kubelet_16_a_stateful_sets_pod_starts_when_the_container_of_its_predecessor_has_stopped():
    result, lines = _observed("deleted-by-force")
    stops, starts = _at(lines, "kubelet.stop", "db-0"), _at(lines, "kubelet.start", "db-0")
    gone = [
        line.mono_ns / 1e9
        for line in lines
        if line.ev == "store.commit" and line.obj["name"] == "db-0" and line.data["type"] == "DELETED"
    ]

    assert result.passed
    assert len(starts) == 2
    assert starts[0][1] == stops[0][1] != starts[1][1]
    assert gone[0] < stops[0][0] <= starts[1][0]


def test_kubelet_unbinding_8_a_stateful_sets_pod_keeps_its_name_and_claim_and_the_next_one_waits():
    result, lines = _observed("rejected-unbind")
    starts = [(name, _at(lines, "kubelet.start", name)) for name in ("db-0", "db-1")]
    born = {
        line.obj["name"]: line.mono_ns / 1e9
        for line in lines
        if line.ev == "store.commit" and line.obj["kind"] == "Pod" and line.data["type"] == "ADDED"
    }

    assert result.passed
    assert [len(found) for _, found in starts] == [1, 1]
    assert result.measures["unbinds"] >= 1
    assert born["db-1"] > starts[0][1][0][0], "db-1 waited until db-0 ran"


def test_kubelet_unbinding_8_without_unbinding_the_runaway_goes_on_one_pod_at_a_time():
    result, lines = _observed("rejected-fail")
    there, most = {}, 0
    for line in lines:
        if line.ev == "store.commit" and line.obj["kind"] == "Pod":
            there[line.obj["uid"]] = line.data["type"] != "DELETED"
            most = max(most, sum(there.values()))

    assert result.passed
    assert most == 1
