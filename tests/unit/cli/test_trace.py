"""`keplab trace`: the picture fits the terminal, and says where the time went and what is missing."""

import base64
import gzip
import io
import json
import re

import msgspec
import pytest
from msgspec.structs import replace
from rich.console import Console

from lab.cli.__main__ import run
from lab.cli.commands import trace
from services.telemetry.spans import FinishedSpan

MS = 1_000_000


def a_span(number, name, start, end, *, parent=0, service="apiserver", **attributes):
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    named |= {"k8s.pod.name": "web", "k8s.pod.uid": "u1", "k8s.namespace.name": "default"}
    return FinishedSpan(
        service=service, instance=service, name=name, trace_id="a" * 32, span_id=f"{number:016x}",
        parent=f"{parent:016x}" if parent else "", start_ns=start * MS, end_ns=end * MS,
        attributes=named, links=[], events=[], error="",
    )  # fmt: skip


SPANS = [
    a_span(1, "mesh.v1.ApiServer/Create", 0, 2, keplab__resource="pods", k8s__pod__status__phase="Pending"),
    a_span(2, "schedule pod", 2, 8, parent=1, service="scheduler"),
    a_span(3, "mesh.v1.ApiServer/Patch", 8, 10, parent=2, keplab__resource="pods", k8s__pod__status__phase="Running"),
]


@pytest.fixture
def mesh(tmp_path):
    """The data directory of a mesh whose processes wrote these spans."""

    def build(*spans, torn=b""):
        (tmp_path / "spans").mkdir()
        (tmp_path / "spans" / "all.jsonl").write_bytes(b"".join(msgspec.json.encode(s) + b"\n" for s in spans) + torn)
        return tmp_path

    return build


@pytest.fixture
def terminal(monkeypatch):
    """Take what is printed to a terminal so many columns wide."""

    def of(columns):
        taken = Console(file=io.StringIO(), force_terminal=True, width=columns, color_system=None, highlight=False)
        monkeypatch.setattr(trace, "console", taken)
        return taken.file

    return of


def part(text, name):
    found = re.search(rf'id="replay-all-{name}">([^<]*)</script>', text)
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def traced(*words):
    try:
        return run(["trace", *map(str, words)])
    except SystemExit as end:
        return end.code


def test_piped_it_is_as_wide_as_it_needs_and_the_shares_are_of_the_whole(mesh, capsys):
    assert traced("pod/web", "--data", mesh(*SPANS)) in (0, None)
    shown = capsys.readouterr().out.splitlines()

    assert shown[0] == f"pod default/web, uid u1, trace {'a' * 32}, 3 spans"
    rows = shown[1:4]
    bars = [row[-len("       0.00     +2.00 ms") - trace.PIPED_BAR_WIDTH :] for row in rows]
    assert [bar.count("█") for bar in bars] == [8, 24, 8]
    assert [row.split()[-3:] for row in rows] == [
        ["0.00", "+2.00", "ms"],
        ["2.00", "+6.00", "ms"],
        ["8.00", "+2.00", "ms"],
    ]
    assert "Critical path from the request that created the pod to Running:" in shown
    table = [line.split() for line in shown[-4:]]
    assert [row[-3:] for row in table] == [
        ["2.000", "20.0", "%"], ["6.000", "60.0", "%"], ["2.000", "20.0", "%"], ["10.000", "100.0", "%"]
    ]  # fmt: skip
    assert "Spans are missing" not in "\n".join(shown)


@pytest.mark.parametrize(("columns", "name_width", "bar_width"), [(80, 36, 18), (140, 76, 38), (30, 26, 14)])
def test_on_a_terminal_names_take_two_thirds_at_most_and_the_bar_what_is_left(
    mesh, terminal, columns, name_width, bar_width
):
    """What is longer is cut and says so; a terminal too narrow for any picture gets the narrowest there is."""
    long = a_span(4, "a stage whose name is longer than any terminal that a trace is looked at with is wide", 3, 5,
                  parent=2, service="scheduler")  # fmt: skip
    shown = terminal(columns)
    traced("pod/web", "--data", mesh(*SPANS, long))
    cut = next(line for line in shown.getvalue().splitlines() if "…" in line)

    assert cut.index("…") == name_width - 1
    if columns >= 66:
        bar = cut[name_width + 1 : -len("       3.00     +2.00 ms")]
        assert len(bar) == bar_width
        assert len(cut) <= columns


def test_a_terminal_that_is_wide_enough_shows_names_whole(mesh, terminal):
    shown = terminal(120)
    traced("pod/web", "--data", mesh(*SPANS))

    assert "Create" in shown.getvalue()
    assert "…" not in shown.getvalue()
    assert {len(line) for line in shown.getvalue().splitlines()[1:4]} == {119}


def test_a_pod_that_is_not_running_and_spans_that_are_missing_are_said(mesh, capsys):
    late = a_span(5, "sync pod", 20, 30, parent=99, service="kubelet")
    traced("pod/web", "--data", mesh(SPANS[0], SPANS[1], late, torn=b'{"service'))
    shown = capsys.readouterr().out

    assert "to the last span seen (not Running):" in shown
    assert "Spans are missing: a process has not written them yet (it takes half a second), or lost them." in shown


def test_the_document_has_the_spans_and_where_the_time_went(mesh, capsys):
    traced("po/web", "--data", mesh(*SPANS), "-o", "json")
    document = json.loads(capsys.readouterr().out)

    assert document["pod"] == {"namespace": "default", "name": "web", "uid": "u1"}
    assert (document["trace_id"], document["total_ms"]) == ("a" * 32, 10.0)
    assert (document["phase"], document["is_running"], document["is_connected"]) == ("Running", True, True)
    assert [piece["ms"] for piece in document["critical_path"]] == [2.0, 6.0, 2.0]
    assert [span["name"] for span in document["spans"]] == [span.name for span in SPANS]
    assert document["spans"][1] == {
        "service": "scheduler", "name": "schedule pod", "start_ns": 2 * MS, "end_ns": 8 * MS, "trace_id": "a" * 32,
        "span_id": f"{2:016x}", "parent": f"{1:016x}", "links": [], "attributes": SPANS[1].attributes, "error": "",
        "resource": {"service.name": "scheduler", "service.instance.id": "scheduler"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [("node/web", 2, "want pod/NAME"), ("pod/", 2, "want pod/NAME"), ("web", 2, "want pod/NAME"), ("pod/none", 1, "no span names pod none")],
)  # fmt: skip
def test_what_cannot_be_traced_is_named(mesh, capsys, target, code, says):
    assert traced(target, "--data", mesh(*SPANS)) == code
    assert says in capsys.readouterr().err


def test_another_namespace_has_no_such_pod_and_without_a_mesh_there_is_none(mesh, capsys, tmp_path):
    data = mesh(*SPANS)
    assert traced("pod/web", "-n", "other", "--data", data) == 1
    assert traced("pod/web", "--data", tmp_path / "absent") == 1
    assert "start one with `keplab up`" in capsys.readouterr().err


def test_the_page_opens_on_the_pod_that_is_printed_and_has_all_that_the_name_fits(mesh, capsys, tmp_path):
    other = [
        replace(
            span,
            span_id=f"f{span.span_id[1:]}",
            parent="",
            start_ns=5 * MS,
            end_ns=17 * MS,
            attributes={**span.attributes, "k8s.pod.name": "web-2", "k8s.pod.uid": "u2"},
        )
        for span in SPANS[2:]
    ]
    out = tmp_path / "page.html"
    assert traced("pod/web*", "--data", mesh(*SPANS, *other), "--html", out) in (0, None)
    meta = json.loads(re.search(r'id="replay-index">(.*?)</script>', out.read_text(), re.DOTALL)[1])["meta"]
    result, documents = (part(out.read_text(), name) for name in ("result", "documents"))

    assert (["trace"], "trace", "Trace", []) == tuple(meta[name] for name in ("pages", "opens", "result", "runs"))
    assert ["web", "web-2"] == [pod["name"] for pod in result["pods"]]
    assert result["command"] == f"keplab trace 'pod/web*' --data {tmp_path}"
    assert [10.0, 12.0] == [documents[f"trace/default/{name}"]["total_ms"] for name in ("web", "web-2")]
    assert "pod default/web, uid u1" in capsys.readouterr().out


def test_a_page_that_cannot_be_written_is_named(mesh, capsys, tmp_path):
    out = tmp_path / "absent" / "page.html"

    assert traced("pod/web", "--data", mesh(*SPANS), "--html", out) == 2
    assert f"cannot write {out}" in capsys.readouterr().err
