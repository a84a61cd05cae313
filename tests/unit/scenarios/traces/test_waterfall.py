"""The critical path is the chain of causes of Running, and nothing of it is lost or counted twice."""

from itertools import pairwise
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lab.experiments.waterfall_picture import svg_picture
from lab.scenarios.traces.waterfall import ABOVE_MAX, SpanGraph, bar, label, waterfall
from services.telemetry.spans import FinishedSpan

MS = 1_000_000
TRACE = "a" * 32


def a_span(number, name, start, end, *, parent=0, service="apiserver", uid="u1", pod="web", links=(), trace=TRACE,
           **attributes):  # fmt: skip
    """A span whose times are in milliseconds; `uid` empty: it does not name a pod. Dots in attributes are `__`."""
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    if uid:
        named |= {"k8s.pod.name": pod, "k8s.pod.uid": uid, "k8s.namespace.name": "default"}
    return FinishedSpan(
        service=service, instance=service, name=name, trace_id=trace, span_id=f"{number:016x}",
        parent=f"{parent:016x}" if parent else "", start_ns=round(start * MS), end_ns=round(end * MS),
        attributes=named, links=[f"00-{TRACE}-{link:016x}-01" for link in links], events=[], error="",
    )  # fmt: skip


def a_life():
    """Created at 0, bound at 10, Running at 100; an Event and an unrelated status write go on meanwhile."""
    return [
        a_span(1, "POST /pods", 0, 3, uid="", http__route="/pods"),
        a_span(2, "mesh.v1.ApiServer/Create", 1, 2, parent=1, keplab__resource="pods", k8s__pod__status__phase="Pending"),
        a_span(3, "schedule pod", 5, 7, parent=2, service="scheduler", links=[2]),
        a_span(4, "bind pod", 7, 12, parent=3, service="scheduler"),
        a_span(5, "mesh.v1.ApiServer/Bind", 8, 10, parent=4, keplab__resource="pods"),
        a_span(6, "mesh.v1.ApiServer/Create", 9, 60, parent=4, uid="", keplab__resource="events"),
        a_span(7, "sync pod", 14, 110, parent=5, service="kubelet", links=[5]),
        a_span(8, "mount volumes", 14, 40, parent=7, service="kubelet", uid=""),
        a_span(9, "start containers", 40, 90, parent=7, service="kubelet", uid=""),
        a_span(10, "mesh.v1.ApiServer/Patch", 41, 94, parent=7, keplab__resource="pods"),
        a_span(11, "mesh.v1.ApiServer/Patch", 95, 100, parent=7, keplab__resource="pods", k8s__pod__status__phase="Running"),
        a_span(12, "reconcile replicaset", 101, 105, parent=11, service="controllers", uid="",
               keplab__controller="replicaset"),
    ]  # fmt: skip


def path_of(spans):
    return [(piece.what, piece.ms) for piece in waterfall(spans, "web").critical_path]


def test_what_the_pod_waited_for_is_named_and_events_are_not():
    expected = [
        ("apiserver: POST /pods", 1.0),
        ("apiserver: mesh.v1.ApiServer/Create", 1.0),
        ("on the way: apiserver: mesh.v1.ApiServer/Create → scheduler: schedule pod", 3.0),
        ("scheduler: schedule pod", 2.0),
        ("scheduler: bind pod", 1.0),
        ("apiserver: mesh.v1.ApiServer/Bind", 2.0),
        ("on the way: apiserver: mesh.v1.ApiServer/Bind → kubelet: sync pod", 4.0),
        ("kubelet: mount volumes", 26.0),
        ("kubelet: start containers", 50.0),
        ("kubelet: sync pod", 5.0),
        ("apiserver: mesh.v1.ApiServer/Patch", 5.0),
    ]

    assert expected == path_of(a_life())


def test_a_request_to_the_api_server_is_one_row_and_one_to_an_extender_without_spans_is_the_clients():
    asked = replace(a_span(20, "POST /filter", 5, 6, parent=3, service="scheduler", uid=""), kind="client")
    bound = replace(a_span(21, "mesh.v1.ApiServer/Bind", 7, 11, parent=4, service="scheduler", uid=""), kind="client")
    life = [
        replace(span, parent=bound.span_id, kind="server") if span.span_id == f"{5:016x}" else span for span in a_life()
    ]

    rows = [(row.span.service, row.span.name) for row in waterfall([*life, asked, bound], "web").rows]

    assert rows.count(("apiserver", "mesh.v1.ApiServer/Bind")) == 1
    assert ("scheduler", "mesh.v1.ApiServer/Bind") not in rows
    assert ("scheduler", "POST /filter") in rows


def test_the_order_in_which_spans_were_written_does_not_matter():
    assert path_of(a_life()) == path_of(a_life()[::-1])


def test_rows_stand_below_their_causes_and_end_where_the_pod_is_running():
    fall = waterfall(a_life(), "web")

    assert [("POST /pods", 0), ("mesh.v1.ApiServer/Create", 1), ("schedule pod", 2), ("bind pod", 3),
            ("mesh.v1.ApiServer/Bind", 4), ("sync pod", 5), ("mount volumes", 6), ("start containers", 6),
            ("mesh.v1.ApiServer/Patch", 6), ("mesh.v1.ApiServer/Patch", 6), ("mesh.v1.ApiServer/Create", 4),
            ] == [(row.span.name, row.depth) for row in fall.rows]  # fmt: skip
    assert [6, 10] == [int(row.span.span_id, 16) for row in fall.rows if not row.is_critical][::-1]
    assert (100.0, True, TRACE) == (fall.total_ms, fall.is_running, fall.trace_id)


def test_a_pod_given_back_shows_both_rounds():
    first = [*a_life()[:7], a_span(20, "unbind pod", 15, 20, parent=7, service="kubelet", uid="")]
    second = [
        a_span(21, "mesh.v1.ApiServer/Unbind", 16, 19, parent=20, keplab__resource="pods"),
        a_span(22, "schedule pod", 50, 51, parent=21, service="scheduler"),
        a_span(23, "mesh.v1.ApiServer/Bind", 52, 53, parent=22, keplab__resource="pods"),
        a_span(24, "sync pod", 54, 80, parent=23, service="kubelet"),
        a_span(
            25, "mesh.v1.ApiServer/Patch", 70, 75, parent=24, keplab__resource="pods", k8s__pod__status__phase="Running"
        ),
    ]

    path = path_of([*first, *second])

    assert ("on the way: apiserver: mesh.v1.ApiServer/Unbind → scheduler: schedule pod", 31.0) in path
    assert ("kubelet: unbind pod", 1.0) in path
    assert 2 == sum(what == "apiserver: mesh.v1.ApiServer/Bind" for what, _ in path)
    assert 75.0 == sum(ms for _, ms in path)


def test_a_lost_thread_is_taken_up_at_the_span_before():
    spans = [span for span in a_life() if span.name != "mesh.v1.ApiServer/Bind"]

    path = path_of(spans)

    assert (True, False) == (waterfall(a_life(), "web").is_connected, waterfall(spans, "web").is_connected)
    assert ("on the way: scheduler: bind pod → kubelet: sync pod", 2.0) in path
    assert 100.0 == sum(ms for _, ms in path)


def test_a_write_by_a_controller_does_not_lead_the_path_away_from_the_pod():
    touched = [
        a_span(40, "reconcile taint-eviction", -50, 5, uid="", service="controllers", keplab__controller="taints"),
        a_span(41, "mesh.v1.ApiServer/Patch", 3, 4, parent=40, keplab__resource="pods"),
        a_span(3, "schedule pod", 5, 7, parent=41, service="scheduler"),
    ]

    path = path_of([*a_life()[:2], *touched, *a_life()[3:]])

    assert ["apiserver: POST /pods", "apiserver: mesh.v1.ApiServer/Create"] == [what for what, _ in path[:2]]
    assert ("apiserver: mesh.v1.ApiServer/Patch", 1.0) in path
    assert 100.0 == sum(ms for _, ms in path)


def test_the_whole_life_has_what_came_later_but_not_what_others_made_of_it():
    later = [
        a_span(40, "mesh.v1.ApiServer/Delete", 500, 501, keplab__resource="pods"),
        a_span(41, "mesh.v1.ApiServer/Create", 103, 104, parent=12, uid="u2", pod="web-2", keplab__resource="pods"),
    ]

    short, long = (waterfall([*a_life(), *later], "web", whole=whole) for whole in (False, True))

    assert (1, 0) == (short.later, long.later)
    assert {"mesh.v1.ApiServer/Delete"} == {s.name for s in long.spans} - {s.name for s in short.spans}
    assert short.critical_path == long.critical_path


def test_a_controllers_pod_begins_with_its_own_create_and_shows_who_made_it():
    above = [
        a_span(30, "mesh.v1.ApiServer/Create", -9, -8, uid="", keplab__resource="replicasets.apps"),
        a_span(31, "mesh.v1.ApiServer/Patch", -7, -6, uid="u0", pod="other"),
        a_span(32, "reconcile replicaset", -5, 4, parent=30, uid="", service="controllers", links=[30, 31],
               keplab__controller="replicaset", keplab__key="default/web"),
    ]  # fmt: skip
    owned = [a_span(2, "mesh.v1.ApiServer/Create", 0, 2, parent=32, keplab__resource="pods"), *a_life()[2:]]

    fall = waterfall([*above, *owned], "web")

    assert 0 == fall.begin_ns
    assert ["mesh.v1.ApiServer/Create", "reconcile replicaset"] == [row.span.name for row in fall.rows[:2]]
    assert not any(span.attributes.get("k8s.pod.name") == "other" for span in fall.spans)
    assert "controllers: reconcile replicaset default/web" == label(fall.rows[1].span)


def test_a_failed_pod_ends_with_the_write_that_failed_it():
    spans = [
        *a_life()[:9],
        a_span(40, "Patch", 50, 55, parent=7, keplab__resource="pods", k8s__pod__status__phase="Failed"),
    ]

    fall = waterfall(spans, "web")

    assert ("Failed", 55.0, False) == (fall.phase, fall.total_ms, fall.is_running)


def test_a_glob_means_the_first_pod_and_a_name_used_again_the_last():
    spans = [
        a_span(1, "schedule pod", 5, 6, pod="web-b", uid="u1"),
        a_span(2, "schedule pod", 1, 2, pod="web-a", uid="u2"),
        a_span(3, "schedule pod", 8, 9, pod="web-a", uid="u3"),
    ]

    assert ["u2", "u1", "u3"] == [pod.uid for pod in SpanGraph(spans).matching("web-*")]
    assert "u2" == waterfall(spans, "web-*").pod.uid
    assert "u3" == waterfall(spans, "web-a").pod.uid
    assert waterfall(spans, "web-a", "elsewhere") is None


def test_what_begins_in_the_instant_in_which_the_pod_is_running_came_later():
    at_once = a_span(40, "sync pod", 100, 120, parent=11, service="kubelet")

    fall = waterfall([*a_life(), at_once], "web")

    assert fall.later == 1
    assert at_once not in fall.spans


def test_a_stage_without_length_is_critical_to_the_very_end_and_not_after_it():
    stages = [a_span(40 + n, f"at {at}", at, at, parent=11, uid="") for n, at in enumerate((95, 100, 101))]

    rows = waterfall([*a_life(), *stages], "web", whole=True).rows

    assert {"at 95": True, "at 100": True, "at 101": False} == {
        row.span.name: row.is_critical for row in rows if row.span.name.startswith("at ")
    }


def test_a_lost_thread_is_not_taken_up_at_a_span_that_begins_in_the_same_instant():
    spans = [
        a_span(1, "schedule pod", 5, 9, service="scheduler"),
        a_span(2, "attach", 14, 15, service="kubelet"),
        a_span(3, "sync pod", 14, 20, service="kubelet", k8s__pod__status__phase="Running"),
    ]

    assert [("scheduler: schedule pod", 4.0), ("on the way: scheduler: schedule pod → kubelet: sync pod", 5.0),
            ("kubelet: sync pod", 6.0)] == path_of(spans)  # fmt: skip


def test_a_hand_over_between_stages_counts_for_the_next_one_and_a_tenth_of_a_millisecond_is_none():
    def between(gap_ms):
        return path_of([
            a_span(1, "sync pod", 0, 30, service="kubelet", k8s__pod__status__phase="Running"),
            a_span(2, "mount", 0, 10, parent=1, service="kubelet", uid=""),
            a_span(3, "start", 10 + gap_ms, 30, parent=1, service="kubelet", uid=""),
        ])  # fmt: skip

    assert [("kubelet: mount", 10.0), ("kubelet: start", 20.0)] == between(0.0999)
    assert [("kubelet: mount", 10.0), ("kubelet: sync pod", 0.1), ("kubelet: start", 19.9)] == between(0.1)


def test_of_what_a_pod_was_made_for_no_more_than_so_many_steps_are_shown():
    above = [a_span(100 + n, f"above {n}", 0, 1, parent=101 + n, uid="") for n in range(ABOVE_MAX + 5)]
    own = a_span(1, "schedule pod", 5, 9, parent=100, service="scheduler")

    shown = {span.name for span in waterfall([own, *above], "web").spans}

    assert shown == {"schedule pod", *(f"above {n}" for n in range(ABOVE_MAX + 1))}


def test_bars_show_what_lies_outside_by_an_arrow():
    def drawn(start, end):
        return bar(a_span(1, "x", start, end), 0, 10 * MS, 10, "#")

    assert ["##        ", "     #    ", "         ▸", "◂         ", "##########"] == [
        drawn(0, 2), drawn(5, 5), drawn(11, 12), drawn(-2, -1), drawn(-1, 11)
    ]  # fmt: skip


def test_the_picture_is_one_svg_document_and_escapes_names():
    nasty = [a_span(50, "<script>&'\"", 20, 30, parent=7, service="kubelet", uid=""), *a_life()]
    fall = waterfall(nasty, "web")

    tree = ElementTree.fromstring(svg_picture(fall))

    rects = tree.findall(".//{http://www.w3.org/2000/svg}g/{http://www.w3.org/2000/svg}rect")
    assert len(fall.rows) + len(fall.critical_path) == len(rects)
    assert "http" not in svg_picture(fall).replace("http://www.w3.org/2000/svg", "")


@st.composite
def span_forests(draw):
    """Spans with any times, any parents (circles and clocks that disagree included), any roles."""
    count = draw(st.integers(1, 14))
    spans = []
    for number in range(1, count + 1):
        start = draw(st.integers(0, 40))
        attributes = {}
        if draw(st.integers(0, 6)) == 0:
            attributes["k8s__pod__status__phase"] = draw(st.sampled_from(["Pending", "Running", "Failed"]))
        if draw(st.integers(0, 9)) == 0:
            attributes["keplab__controller"] = "replicaset"
        if draw(st.integers(0, 9)) == 0:
            attributes["http__route"] = "/pods"
        attributes["keplab__resource"] = draw(st.sampled_from(["pods", "pods", "events"]))
        spans.append(
            a_span(
                number,
                draw(st.sampled_from(["mesh.v1.ApiServer/Create", "schedule pod", "sync pod"])),
                start,
                start + draw(st.integers(0, 20)),
                parent=draw(st.integers(0, count)),
                links=draw(st.lists(st.integers(1, count + 1), max_size=2)),
                service=draw(st.sampled_from(["apiserver", "scheduler", "kubelet"])),
                uid=draw(st.sampled_from(["u1", "u1", "", "u2"])),
                **attributes,
            )
        )
    return spans


@given(span_forests())
def test_pieces_meet_and_their_sum_is_the_time_from_request_to_running(spans):
    fall = waterfall(spans, "web")

    if fall is None:
        assert not any(span.attributes.get("k8s.pod.uid") for span in spans)
        return
    path = fall.critical_path
    assert fall.end_ns - fall.begin_ns == sum(piece.end_ns - piece.start_ns for piece in path)
    assert all(left.end_ns == right.start_ns for left, right in pairwise(path))
    assert all(piece.end_ns > piece.start_ns for piece in path)
    titles = {f"{span.service}: {span.name}" for span in spans}
    for piece in path:
        ends = piece.what.removeprefix("on the way: ").split(" → ")
        assert set(ends) <= titles
        assert len(ends) == (2 if piece.what.startswith("on the way: ") else 1)
    if path:
        assert (fall.begin_ns, fall.end_ns) == (path[0].start_ns, path[-1].end_ns)
    identifiers = [span.span_id for span in fall.spans]
    assert len(identifiers) == len(set(identifiers))
    if fall.phase:
        assert fall.end_ns in {
            span.end_ns for span in spans if span.attributes.get("k8s.pod.status.phase") == fall.phase
        } | {fall.begin_ns}
