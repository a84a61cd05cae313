"""The page that `keplab trace` writes: it opens on the trace, compares the pods that it has, prints, and is read without scripts."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from lab.experiments.trace_page import TracePage, traces_of
from lab.scenarios.traces.waterfall import SpanGraph
from lab.ui.result_page import traces_page
from tests.unit.scenarios.traces.test_waterfall import a_life, a_span

HOSTILE = '<img src=x onerror="window.pwned=1">'
DRAWN = "document.querySelector('.fall')"


def written(folder, *spans, pattern="web*"):
    falls, left = traces_of(SpanGraph(spans), pattern)
    file = folder / "trace.html"
    file.write_text(traces_page(TracePage(falls, left, [("spans", "of a test")], "keplab trace 'pod/web*'")))
    return file, falls


@pytest.fixture
def two(tmp_path):
    """A pod's whole life, and one that was created, and no more is known of it."""
    second = a_span(90, "mesh.v1.ApiServer/Create", 300, 420, uid="u2", pod="web-2")
    return written(tmp_path, *a_life(), second)


def test_it_opens_on_the_trace_and_has_nothing_else_and_asks_for_nothing(two, new_page):
    file, falls = two
    page = new_page(offline=True)
    page.open(file, shows=DRAWN)

    total, pieces = page.ask(
        "() => [Number(document.querySelector('[data-total-us]').dataset.totalUs), [...document.querySelectorAll('[data-us]')].map((row) => Number(row.dataset.us))]"
    )
    assert total == sum(pieces) == round(falls[0].total_ms * 1000)
    assert len(falls[0].rows) == page.ask("() => document.querySelectorAll('.span').length")
    assert [False, False, False, "Trace · pod web: Running after 100.000 ms"] == page.ask(
        "() => [...['nav.rail', '.strip', '.search'].map((each) => Boolean(document.querySelector(each))), document.title]"
    )
    assert ["keplab trace 'pod/web*'", "of a test"] == page.ask(
        "() => ['.provenance code', '.provenance dd'].map((each) => document.querySelector(each).textContent)"
    )
    assert [file.as_uri()] == [each for each in page.requests if not each.startswith(("data:", "blob:"))]


def test_another_of_its_pods_is_drawn_beside_and_one_that_it_has_not_is_named(two, new_page):
    page = new_page()
    page.open(two[0], shows=DRAWN)
    assert ["default/web", "default/web-2"] == page.ask(
        "() => [...document.querySelectorAll('#trace-pods option')].map((option) => option.value)"
    )
    page.raw.fill("input[placeholder='a second pod']", "default/web-2")
    page.keys("Enter")
    page.until("() => document.querySelectorAll('.fall').length === 2")
    totals = "() => [...document.querySelectorAll('.pieces tfoot td')].map((cell) => cell.textContent)"
    assert ["100.000 ms", "120.000 ms", "+20.000 ms"] == page.ask(totals)

    page.raw.fill("input[placeholder='namespace/name']", "default/absent")
    page.keys("Enter")
    page.until("() => document.querySelector('.error')")
    assert "A trace of pod default/absent is not in this file" == page.text(".error")
    page.ask("() => __keplab.select(null)")
    page.click(".empty button:nth-of-type(2)")
    page.until("() => document.querySelector('.fall h2')?.textContent === 'default/web-2'")


def test_rows_say_in_words_what_they_show(two, new_page):
    page = new_page()
    page.open(two[0], shows=DRAWN)
    rows = page.ask("() => [...document.querySelectorAll('.span')].map((row) => row.getAttribute('aria-label'))")
    critical = [row for row in rows if row.endswith("on the critical path")]

    assert len(critical) == sum(row.is_critical for row in two[1][0].rows)
    assert rows[0].startswith("apiserver ")
    assert all(", from " in row and ", took " in row for row in rows)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_names_are_text(tmp_path, new_page, scheme):
    hostile = a_span(50, HOSTILE, 20, 30, parent=7, service=HOSTILE, uid="")
    file, _ = written(tmp_path, *a_life(), hostile, pattern="web")
    page = new_page(scheme=scheme)
    page.open(file, shows=DRAWN)

    assert HOSTILE in page.text(".spans")
    assert page.ask("() => window.pwned === undefined")
    assert [] == [(each["id"], each["nodes"][0]["html"]) for each in Axe().run(page.raw).response["violations"]]


def test_it_prints_on_light_paper_whole_and_within_its_width(two, new_page):
    page = new_page(scheme="dark")
    page.open(two[0], shows=DRAWN)
    assert 1 == page.sheets()
    page.raw.emulate_media(media="print")
    page.raw.set_viewport_size({"width": 700, "height": 900})

    assert ["#fbfaf7", "none", True, True] == page.ask(
        """() => [getComputedStyle(document.documentElement).getPropertyValue('--paper').trim(), getComputedStyle(document.querySelector('.toolbar.no-print')).display,
        document.documentElement.scrollWidth <= 700, document.querySelector('.spans').scrollHeight === document.querySelector('.spans').clientHeight]"""
    )


def test_without_scripts_every_piece_is_read(two, new_page):
    file, falls = two
    page = new_page(scripts=False)
    page.goto(file)
    text = page.text("article.plain")

    assert "pod web: Running after 100.000 ms" in text
    assert [piece for piece in falls[0].critical_path if f"{piece.what}\t{piece.ms:.3f}" not in text] == []
    assert "With scripts this page shows 2 pods." in text
    assert "keplab trace 'pod/web*'" in text
