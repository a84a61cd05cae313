"""What the pages of decisions compute without drawing: groups of nodes, scores, waterfalls, differences, flows, measures."""

import math

import pytest
from hypothesis import strategies as st

from tests.browser.test_pure import many

PENDING = {
    "filters": ["NodeUnschedulable", "TaintToleration", "NodeResourcesFit", "PodTopologySpread"],
    "node_groups": [
        {
            "plugin": "NodeResourcesFit",
            "reasons": ["Insufficient cpu"],
            "is_resolvable": True,
            "count": 3,
            "nodes": ["n1", "n2", "n4"],
        },
        {
            "plugin": "TaintToleration",
            "reasons": ["untolerated taint"],
            "is_resolvable": False,
            "count": 1,
            "nodes": ["n3"],
        },
    ],
    "rejected": {"NodeResourcesFit": {"Insufficient cpu": 3}, "TaintToleration": {"untolerated taint": 1}},
}
SCHEDULED = {
    "node": "n2",
    "scores": {"Fit": {"n1": 80, "n2": 80, "n3": 10}, "Taint": {"n1": 100, "n2": 100, "n3": 100}},
    "final": {"n1": 380, "n2": 380, "n3": 310},
    "weights": {"Fit": 1, "Taint": 3},
}


@pytest.fixture(scope="module")
def call(browser, replay):
    """Call a function of one of the page's modules."""
    page = browser.page()
    page.open(replay)
    yield lambda module, name, *words: page.ask(
        "async ([module, name, words]) => (await import(`keplab/${module}.js`))[name](...words)", [module, name, words]
    )
    page.close()


def test_nodes_with_equal_answers_are_one_row_and_a_plugin_after_the_first_rejection_was_not_asked(call):
    found = call("matrix", "filterMatrix", PENDING, {"onlyRejecting": False})

    assert PENDING["filters"] == found["plugins"]
    assert [(3, ["n1", "n2", "n4"]), (1, ["n3"])] == [(row["count"], row["nodes"]) for row in found["rows"]]
    kinds = [[answer["kind"] for answer in row["answers"]] for row in found["rows"]]
    assert [["passed", "passed", "rejected", "none"], ["passed", "rejected", "none", "none"]] == kinds
    assert found["exact"]


def test_only_plugins_that_rejected_are_shown_unless_all_are_asked_for(call):
    found = call("matrix", "filterMatrix", PENDING, {"onlyRejecting": True})

    assert ["TaintToleration", "NodeResourcesFit"] == found["plugins"]


def test_rows_are_divided_by_zone_or_by_node_and_those_without_names_stay_last(call):
    rows = call("matrix", "filterMatrix", PENDING, {})["rows"]
    rows[0]["count"] += 5
    zones = {"n1": "a", "n2": "b", "n3": "b"}

    by_zone = call("matrix", "regrouped", rows, "zone", zones)
    assert [("a", ["n1"], 1), ("b", ["n2"], 1), ("b", ["n3"], 1), ("no zone", ["n4"], 1), ("", [], 5)] == [
        (row["part"], row["nodes"], row["count"]) for row in by_zone
    ]
    by_node = call("matrix", "regrouped", rows, "node")
    assert [["n1"], ["n2"], ["n3"], ["n4"], []] == [row["nodes"] for row in by_node]
    assert by_node[1]["answers"] == rows[0]["answers"] != by_node[2]["answers"]


def test_sums_alone_say_that_they_are_not_exact(call):
    found = call("matrix", "filterMatrix", {"rejected": PENDING["rejected"]}, {})

    assert not found["exact"]
    assert [3, 1] == [row["count"] for row in found["rows"]]


def test_every_vector_of_answers_is_a_row_with_all_its_nodes(call):
    answer = st.sampled_from([("passed", "passed"), ("rejected", "a"), ("rejected", "b"), ("none", "–")])
    for vectors in many(st.lists(st.tuples(answer, answer, answer), max_size=30), 25):
        nodes = [[f"n{at}", [{"kind": k, "text": t} for k, t in vector]] for at, vector in enumerate(vectors)]
        rows = call("matrix", "grouped", nodes)

        assert len(set(vectors)) == len(rows)
        assert sorted(f"n{at}" for at in range(len(vectors))) == sorted(name for row in rows for name in row["nodes"])
        for row in rows:
            assert {tuple((a["kind"], a["text"]) for a in row["answers"])} == {
                vectors[int(name[1:])] for name in row["nodes"]
            }


def test_the_winner_stands_first_and_ties_are_named(call):
    found = call("matrix", "scoreMatrix", SCHEDULED, "weighted")

    first, second, third = found["rows"]
    assert (["n2"], True, 380, [80, 300]) == (first["nodes"], first["winner"], first["final"], first["scores"])
    assert (["n1"], True) == (second["nodes"], second["tied"])
    assert (["n3"], False) == (third["nodes"], third["tied"])
    assert ["n1", "n2"] == found["ties"]


def test_while_a_binding_is_on_its_way_the_nominated_node_is_the_winner_if_it_is_at_the_top(call):
    on_its_way = {**SCHEDULED, "node": "", "nominated_node": "n1"}
    assert call("matrix", "scoreMatrix", on_its_way, "weighted")["winner"] == "n1"
    # One that a preemption nominated is not yet chosen.
    assert call("matrix", "scoreMatrix", {**on_its_way, "nominated_node": "n3"}, "weighted")["winner"] == ""


def test_whole_microseconds_add_up_to_the_total_whatever_the_pieces_are(call):
    pieces = many(st.lists(st.integers(0, 10**9), min_size=1, max_size=12), 100)
    for nanoseconds in pieces:
        total = round(sum(nanoseconds) / 1000)
        found = call("waterfall", "apportioned", [each / 1000 for each in nanoseconds], total)

        assert total == sum(found)
        assert all(abs(whole - exact / 1000) < 1 + 1e-6 for whole, exact in zip(found, nanoseconds, strict=True)), (
            nanoseconds
        )


def test_microseconds_are_written_with_all_their_digits(call):
    cases = {0: "0.000 ms", 12: "0.012 ms", 637831: "637.831 ms", 1234567890: "1,234,567.890 ms", -1500: "−1.500 ms"}

    assert list(cases.values()) == [call("waterfall", "exactly", us) for us in cases]


def decision(at_s, event="sched.attempt", outcome="scheduled", node="n1"):
    return {"at_s": at_s, "role": "web#0", "event": event, "outcome": outcome, "node": node, "name": "default/web-a"}


def test_moments_of_a_difference_follow_what_the_panes_are_kept_together_by(call):
    both = {"role": "web#0", "at_s": 2.0, "a": decision(2.0), "b": decision(3.0, node="n2"), "fields": ["node"]}
    alone = {"role": "web#0", "at_s": 4.0, "a": None, "b": decision(4.0), "fields": []}

    assert [2.0, 2.0] == call("alignment", "moments", both, "time", [both, alone])
    assert [2.0, 3.0] == call("alignment", "moments", both, "decision", [both, alone])
    assert [4.0, 4.0] == call("alignment", "moments", alone, "decision", [both, alone])
    assert [2.0, 4.0] == call("alignment", "moments", alone, "role", [both, alone])
    assert "node: n1 / n2" == call("alignment", "fieldWords", both, "node")
    found = {"counts": {"a": 1, "b": 2}, "first": both, "differences": [both, alone], "reordered": None}
    turned = call("alignment", "turned", found)
    assert ({"a": 2, "b": 1}, both["a"], alone["a"]) == (
        turned["counts"],
        turned["first"]["b"],
        turned["differences"][1]["b"],
    )
    assert "node: n2 / n1" == call("alignment", "fieldWords", turned["first"], "node")
    assert "web#0: sched.attempt scheduled → n1 only in unbind" == call(
        "alignment", "summary", alone, ["fail", "unbind"]
    )


def test_the_walk_ends_at_both_ends(call):
    assert [0, 1, 4] == [call("alignment", "step", *case) for case in ((0, -1, 5), (0, 1, 5), (4, 1, 5))]


def moved(t, pod, **data):
    return {"ev": "sched.moved", "t": t, "obj": {"kind": "Pod", "ns": "shop", "name": pod, "uid": pod}, "data": data}


def test_moves_of_the_last_seconds_are_bands_with_their_rate_and_reason(call):
    lines = [
        moved(1.0, "old", **{"from": "active", "to": "in_flight"}),
        moved(95.0, "a", **{"from": "unschedulable", "to": "active", "by": "NodeAdd"}),
        moved(96.0, "b", **{"from": "unschedulable", "to": "active", "by": "NodeAdd"}),
        moved(97.0, "c", **{"from": "unschedulable", "to": "active", "by": "PodDelete"}),
        {"ev": "sched.flush_rescue", "t": 98.0, "obj": None, "data": {}},
        moved(101.0, "later", **{"from": "gated", "to": "active"}),
    ]
    found = call("flow", "flows", lines, 100.0, 10)

    (band,) = found["flows"]
    assert ("unschedulable", "active", 3) == (band["from"], band["to"], band["count"])
    assert math.isclose(0.3, band["rate"])
    assert [["NodeAdd", 2], ["PodDelete", 1]] == band["by"]
    assert (1, False) == (found["rescued"], found["sampled"])


def test_without_lines_of_moves_the_ends_of_attempts_are_known_and_it_is_said(call):
    line = {
        "ev": "sched.attempt",
        "t": 5.0,
        "obj": {"kind": "Pod", "ns": "shop", "name": "a", "uid": "a"},
        "data": {"outcome": "unschedulable", "plugins": ["NodeResourcesFit"]},
    }
    found = call("flow", "flows", [line], 6.0, 10)

    assert found["sampled"]
    assert [("in_flight", "unschedulable")] == [(band["from"], band["to"]) for band in found["flows"]]


def test_a_line_grows_with_its_rate_and_is_none_at_zero(call):
    widths = [call("flow", "lineWidth", rate) for rate in (0, 0.1, 1, 10, 1000, 1e6)]

    assert widths[0] == 0
    assert sorted(widths) == widths
    assert widths[-1] == 10


def test_stores_stand_apart_and_each_process_has_its_link(call):
    mesh = {
        "processes": [{"name": name} for name in ("kubelet/h10", "kubelet/h2", "scheduler", "apiserver", "etcd")],
        "links": [{"from": "kubelet/h2", "messages_s": 3, "fault": {"action": "cut", "left_s": 7.2}}],
    }
    found = call("flow", "meshRows", mesh)

    assert ["apiserver", "etcd"] == [each["name"] for each in found["stores"]]
    assert ["scheduler", "kubelet/h2", "kubelet/h10"] == [row["process"]["name"] for row in found["rows"]]
    assert "✂ cut, 8 s more" == call("flow", "faultWords", found["rows"][1]["fault"])


def bands(times, counts):
    return {
        "at_s": times,
        "phases": [{"phase": "running", **dict.fromkeys(("low", "q25", "median", "q75", "high"), counts)}],
    }


def test_arms_with_other_times_share_a_scale_and_end_where_they_end(call):
    made = {
        "arms": [
            {"name": "a", "switches": [], "bands": bands([0, 2, 4], [0, 1, 2])},
            {"name": "b", "switches": [], "bands": bands([0, 3], [5, 6])},
        ]
    }

    assert {"end": 4, "top": 6} == call("comparison", "scaleOfPlots", made)
    (plot,) = call("comparison", "plotsByPhase", made)
    first, other = plot["lines"]
    assert ["a 1", "b 6"] == [call("comparison", "readout", line, 3) for line in (first, other)]
    assert ["a 2", "b –"] == [call("comparison", "readout", line, 4) for line in (first, other)]
    assert ["a", "b"] == [plot["name"] for plot in call("comparison", "plotsByArm", made)]


def test_names_at_the_ends_of_lines_stand_apart_and_within_the_plot(call):
    assert [100, 40, 87] == call("comparison", "heights", [100, 40, 99], 186, 13)
    assert [186, 173, 160] == call("comparison", "heights", [186, 186, 186], 186, 13)


def test_a_command_is_what_a_shell_reads(call):
    request = {
        "scenario": "experiments/it's.txt",
        "arms": [{"name": "a", "switches": ["x=1", "y=2"]}, {"name": "b", "switches": []}],
        "seeds": 3,
        "processes": True,
    }

    assert "keplab compare 'experiments/it'\\''s.txt' --arm a:x=1,y=2 --arm b --seeds 3 --processes" == call(
        "comparison", "commandOf", request
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"scenario": ""}, "Choose a scenario."),
        ({"seeds": 0}, "Seeds: 1 to 1000, not 0."),
        ({"arms": [{"name": "a", "switches": []}, {"name": "a", "switches": []}]}, 'Two arms are called "a".'),
        ({"arms": [{"name": "a", "switches": ["none=1"]}]}, 'Arm "a": there is no switch "none".'),
        ({"arms": [{"name": "a", "switches": ["s=3"]}]}, 'Arm "a": s is one of 1, 2, not "3".'),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(call, change, words):
    request = {"scenario": "a.txt", "arms": [{"name": "a", "switches": ["s=1"]}], "seeds": 2} | change

    assert words == call("comparison", "refusalOf", request, [{"name": "s", "values": ["1", "2"]}])
