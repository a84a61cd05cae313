"""The page of traces: which pods are in it, and what is read of it without scripts."""

from lab.experiments import trace_page
from lab.experiments.trace_page import TracePage, documents, plain_traces, traces_document, traces_of
from lab.scenarios.traces.waterfall import SpanGraph, waterfall
from tests.unit.scenarios.traces.test_waterfall import a_life, a_span

HOSTILE = "</pre><script>alert(1)</script>&'\""


def lives(*pods):
    """A pod each: its name and uid, created one after the other."""
    return SpanGraph(
        a_span(10 * n, "mesh.v1.ApiServer/Create", 100 * n, 100 * n + 5, uid=uid, pod=pod)
        for n, (pod, uid) in enumerate(pods, 1)
    )


def pods_of(page):
    return [(fall.pod.name, fall.pod.uid) for fall in page]


def test_of_pods_that_had_one_name_the_last_is_in_it_but_where_the_first_is_shown():
    graph = lives(("web-0", "a"), ("web-1", "b"), ("web-1", "c"), ("web-0", "d"), ("db", "e"))

    assert ([("web-0", "a"), ("web-1", "c")], 0) == (pods_of(traces_of(graph, "web-*")[0]), 0)
    assert [("web-0", "d")] == pods_of(traces_of(graph, "web-0")[0])
    assert waterfall(graph, "web-*") == traces_of(graph, "web-*")[0][0]
    assert ([], 0) == traces_of(graph, "none")
    assert ([], 0) == traces_of(graph, "web-*", "other")


def test_so_many_pods_are_in_it_and_it_is_said_how_many_are_not(monkeypatch):
    monkeypatch.setattr(trace_page, "PODS_MAX", 2)
    falls, left = traces_of(lives(*((f"web-{n}", f"u{n}") for n in range(5))), "web-*")
    page = TracePage(falls, left)

    assert (["web-0", "web-1"], 3) == ([fall.pod.name for fall in falls], left)
    assert "3 more pods are left out." == traces_document(page)["left"]
    assert "3 more pods are left out." in plain_traces(page)
    assert "1 more pod is left out." == traces_document(TracePage(falls, 1))["left"]
    assert "" == traces_document(TracePage(falls))["left"]


def test_what_the_page_asks_for_is_there_by_the_names_that_it_is_given():
    falls, _ = traces_of(SpanGraph(a_life()), "web")
    page = TracePage(falls, where=[("spans", "of a test")], command="keplab trace pod/web")
    document = traces_document(page)

    assert [f"trace/{pod['ns']}/{pod['name']}" for pod in document["pods"]] == list(documents(page))
    (made,) = documents(page).values()
    assert made["total_ms"] == falls[0].total_ms
    assert len(made["rows"]) == len(made["spans"]) == len(falls[0].rows)
    assert ("keplab.traces", "keplab trace pod/web", [("spans", "of a test")]) == tuple(
        document[name] for name in ("schema", "command", "where")
    )


def test_without_scripts_every_piece_and_span_is_read_and_names_make_no_element():
    spans = [*a_life(), a_span(50, HOSTILE, 20, 30, parent=7, service="kubelet", uid="")]
    falls, _ = traces_of(SpanGraph(spans), "web")
    text = plain_traces(TracePage(falls, where=[(HOSTILE, HOSTILE)], command=HOSTILE))

    assert "<script" not in text
    assert len(falls[0].critical_path) + len(falls[0].rows) + 3 == text.count("<tr>")
    assert f"<td>total</td><td>{falls[0].total_ms:.3f}</td>" in text
    assert 1 == text.count("</pre>")
