"""What is scraped is read by the client library's own parsers, whatever was counted."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from lab.cli.metrics_index import rows
from services.telemetry import exposition as module
from services.telemetry.exposition import PIECE_LINES, PIECE_SERIES, Exposition, exposition
from services.telemetry.metrics import TABLES, Histogram, Metric, Metrics, Samples, counter, gauge, histogram

OPENMETRICS = "application/openmetrics-text;version=1.0.0"
PODS = Metrics(counter("exposed_pods_total", "Pods.", lambda pods: pods, "phase"))
DEPTH = Metrics(gauge("exposed_depth", "Keys.", float))
WAIT = Metrics(histogram("exposed_wait_seconds", "Waits.", lambda each: each))
LOST = Metrics(counter("exposed_lost", "Pods, by a name that does not say so.", float))


def text_of(samples, accept="", *, has_process=False):
    content_type, body = exposition(samples, accept, has_process=has_process)
    return content_type, body.decode()


def families_of(samples, accept=""):
    read = openmetrics.text_string_to_metric_families if accept else read_text
    return {family.name: family for family in read(text_of(samples, accept)[1])}


def a_wait():
    held = Histogram((0.1, 1.0))
    held.observe(0.05, 1, "ab" * 16)
    held.observe(7.0)
    return held


def test_families_are_described_once_and_keep_their_samples_together():
    samples = PODS.of({"Running": 3}) | DEPTH.of(2.5) | WAIT.of(a_wait()) | PODS.of({"Failed": 1})

    content_type, text = text_of(samples)

    assert content_type.startswith("text/plain; version=0.0.4")
    assert text == (
        "# HELP exposed_depth Keys.\n"
        "# TYPE exposed_depth gauge\n"
        "exposed_depth 2.5\n"
        "# HELP exposed_pods_total Pods.\n"
        "# TYPE exposed_pods_total counter\n"
        'exposed_pods_total{phase="Running"} 3.0\n'
        'exposed_pods_total{phase="Failed"} 1.0\n'
        "# HELP exposed_wait_seconds Waits.\n"
        "# TYPE exposed_wait_seconds histogram\n"
        'exposed_wait_seconds_bucket{le="0.1"} 1.0\n'
        'exposed_wait_seconds_bucket{le="1"} 1.0\n'
        'exposed_wait_seconds_bucket{le="+Inf"} 2.0\n'
        "exposed_wait_seconds_sum 7.05\n"
        "exposed_wait_seconds_count 2.0\n"
    )


def test_openmetrics_is_for_one_who_accepts_it_and_has_the_trace_of_a_slow_value():
    content_type, text = text_of(WAIT.of(a_wait()), OPENMETRICS)

    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    family = families_of(WAIT.of(a_wait()), OPENMETRICS)["exposed_wait_seconds"]
    exemplars = {each.labels["le"]: each.exemplar for each in family.samples if each.name.endswith("_bucket")}
    assert (exemplars["0.1"].labels, exemplars["0.1"].value) == ({"trace_id": "ab" * 16}, 0.05)
    assert (exemplars["1.0"], exemplars["+Inf"]) == (None, None)
    assert "ab" * 16 not in text_of(WAIT.of(a_wait()))[1]


def test_a_counter_keeps_upstreams_name_without_total_in_the_text():
    assert "# TYPE exposed_lost untyped\nexposed_lost 7.0\n" in text_of(LOST.of(7))[1]
    assert families_of(LOST.of(7), OPENMETRICS)["exposed_lost"].type == "counter"


def test_a_large_resource_version_is_not_rounded():
    (family,) = families_of(DEPTH.of(1234567890123)).values()

    assert family.samples[0].value == 1234567890123


def test_what_no_table_declares_is_typed_by_its_name():
    found = families_of({'loaves_total{kind="rye \\"dark\\""}': 3, "oven_heat": 1.5})

    assert (found["loaves"].type, found["loaves"].samples[0].labels) == ("counter", {"kind": 'rye "dark"'})
    assert found["oven_heat"].type == "gauge"


@given(st.dictionaries(st.text(), st.floats(min_value=0), max_size=5))
def test_any_text_is_a_value_of_a_label(pods):
    for accept in ("", OPENMETRICS):
        found = families_of(PODS.of(pods), accept)
        seen = {each.labels["phase"]: each.value for family in found.values() for each in family.samples}
        assert seen == pods


@given(st.text() | st.builds("application/openmetrics-text;version={}".format, st.text()))
def test_any_accept_header_is_answered(accept):
    content_type, _ = exposition(DEPTH.of(1), accept, has_process=False)

    assert content_type.startswith(("text/plain", "application/openmetrics-text"))


def test_the_process_is_shown_by_the_library_and_only_where_asked():
    assert "process_resident_memory_bytes" in text_of({}, has_process=True)[1]
    assert "process_" not in text_of(DEPTH.of(1))[1]


def every_sample():
    """A sample of every metric that any module declares, each label with an awkward value of its own."""
    rows()
    odd = itertools.count()
    made = []
    for _, table in TABLES:
        for metric in table.metrics:
            value = a_wait() if metric.kind == "histogram" else 2.0
            labels = [f'a "b"\\\n{next(odd)}' for _ in metric.labels]
            known = Metric(metric.name, metric.kind, metric.help, lambda _, v=value: v, ())
            if labels:
                known = Metric(
                    metric.name, metric.kind, metric.help, lambda _, v=value, k=tuple(labels): {k: v}, metric.labels
                )
            common = tuple((name, f"c{next(odd)}") for name in table.labels)
            made += known.series(None, common)
    return Samples(made)


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_every_metric_of_every_component_is_read_described_and_there_once(accept):
    samples = every_sample()

    found = families_of(samples, accept)
    text = text_of(samples, accept)[1]

    kinds = {series.metric.name: series.metric.kind for series in samples.series.values()}
    assert len(kinds) > 200
    assert {family.documentation for family in found.values()} & {"", "Not described."} == set()
    assert len(found) == len(kinds)
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# HELP ")]
    assert len(names) == len(set(names))
    read = [(each.name, tuple(sorted(each.labels.items()))) for family in found.values() for each in family.samples]
    assert len(read) == len(set(read)) == len(samples)
    for name, kind in kinds.items():
        family = found.get(name) or found[name.removesuffix("_total")]
        assert family.type == kind or (family.type, accept) == ("unknown", ""), name


WAITS = Metrics(histogram("exposed_waits_seconds", "Waits by name.", dict, "name"), labels=("host",))


def waits_of(count):
    return {str(number): Histogram((1.0, 2.0)) for number in range(count)}


def test_a_text_is_composed_in_pieces_of_a_few_lines_each():
    samples = WAITS.of(waits_of(1_000), "h1")

    pieces = list(Exposition().pieces(samples, has_process=False)[1])

    assert b"".join(pieces).decode() == text_of(samples)[1]
    lines_of_one = 5
    assert max(piece.count(b"\n") for piece in pieces) <= PIECE_LINES + lines_of_one + 2
    assert len(pieces) == 1_000 * lines_of_one // PIECE_LINES  # a piece is full with whole series


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_lines_of_what_has_not_changed_are_not_composed_again(accept):
    waits, written = waits_of(1_000), Exposition()
    list(written.pieces(WAITS.of(waits, "h1"), accept)[1])

    waits["7"].observe(1.5)
    del waits["8"]
    samples = WAITS.of(waits, "h1") | DEPTH.of(1)
    pieces = list(written.pieces(samples, accept, has_process=False)[1])

    assert b"".join(pieces).decode() == text_of(samples, accept)[1]
    assert (written.composed, written.reused) == (1_000 + 2, 998)


def test_a_piece_of_what_has_not_changed_is_bounded_too():
    samples, written = PODS.of({str(number): 1 for number in range(3 * PIECE_SERIES)}), Exposition()
    list(written.pieces(samples)[1])

    pieces = list(written.pieces(samples, has_process=False)[1])

    assert [piece.count(b"\n") for piece in pieces] == [PIECE_SERIES + 2, PIECE_SERIES, PIECE_SERIES]


def test_a_series_has_the_same_lines_in_both_formats_whichever_was_asked_for_first():
    written, samples = Exposition(), WAIT.of(a_wait())

    texts = [b"".join(written.pieces(samples, accept, has_process=False)[1]) for accept in ("", OPENMETRICS, "")]

    assert texts == [exposition(samples, accept, has_process=False)[1] for accept in ("", OPENMETRICS, "")]


def test_what_was_read_does_not_change_while_it_is_written():
    waits = waits_of(1_000)
    samples = WAITS.of(waits, "h1")
    expected = text_of(samples)[1]

    _, pieces = Exposition().pieces(samples, has_process=False)
    first = next(pieces)
    waits["999"].observe(5.0)
    waits.clear()

    assert (first + b"".join(pieces)).decode() == expected


def test_the_library_is_not_imported_before_a_process_is_scraped():
    assert not any(name.startswith(("prometheus", "Collector")) for name in vars(module))
