"""The page of a comparison in one file: figures, plots, access, paper, and what is read without scripts."""

import itertools

import pytest
from axe_playwright_python.sync_playwright import Axe

from lab.experiments.axis import ticks, time_ticks
from lab.experiments.document import recording_name
from lab.experiments.figures import Scale
from lab.experiments.page_document import page_document
from lab.experiments.run_page import RunPage
from lab.recordings.format import SUFFIX
from lab.scenarios.measures.register import MEASURES
from lab.ui.result_page import comparison_page, runs_page
from tests.browser import recorded
from tests.unit.experiments.runs import A, B, a_failed_run, a_run, compared

HOSTILE = '<img src=x onerror="window.pwned=1">\'|`'
DRAWN = "document.querySelector('.comparison')"
SETTLE = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def rows(end_s, failed, peak):
    """Pods by phase: some wait, then fail or run."""
    return [
        (0.0, 0.0, 0.0, 0.0, 0.0), (end_s / 4, peak, 0.0, 0.0, 0.0), (end_s / 2, peak / 2, peak / 2, 0.0, 0.0),
        (end_s, 0.0, peak - failed, failed, 0.0),
    ]  # fmt: skip


def a_comparison(end_s=2.0, seeds=7, differing=(), **more):
    """Two arms in which pods fail, run, or are never there, and measures of all states; `differing`: more of those that
    differ."""
    fates = {"fail": {f"web#{n}": ("Failed on n1",) for n in range(20)}, "unbind": {"web#0": ("Running on n2", 1.5)}}
    runs = [
        a_run(
            arm, seed, fates[arm], rows(end_s, (0.0, 15.0 + seed)[arm == "fail"], 30.0 + seed),
            pods_failed=(0.0, 15.0 + seed)[arm == "fail"], time_to_running_p50_s=0.2 + seed / (50 if arm == "fail" else 40),
            victims=0.0, unbinds=None, api_writes=9.0,
            **{name: seed / 7 + len(arm) for name in differing},
        )
        for seed in range(seeds) for arm in ("fail", "unbind")
    ]  # fmt: skip
    return compared(runs, **more)


def written(folder, made):
    path = folder / "comparison.html"
    path.write_text(comparison_page(made).text, encoding="utf-8")
    return path


def recorded_pair(folder):
    """Record seed 3 of both arms; returns the folder."""
    for arm in ("fail", "unbind"):
        path = folder / f"{recording_name(arm, 3)}{SUFFIX}"
        recorded.record(path, recorded.some_history(), arm=arm, seed=3, attempts=arm == "fail")
    return folder


@pytest.fixture(scope="module")
def made():
    return a_comparison()


@pytest.fixture(scope="module")
def file(made, tmp_path_factory):
    return written(tmp_path_factory.mktemp("page"), made)


@pytest.fixture(scope="module")
def page(browser, file):
    """A page that tests read and leave as it was."""
    opened = browser.page(offline=True)
    opened.open(file, shows=DRAWN)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def call(page):
    """Call a function of a module of the page."""

    def ask(module, function, *arguments):
        script = "async ([m, f, a]) => (await import(`keplab/${m}.js`))[f](...a)"
        return page.ask(script, [module, function, list(arguments)])

    return ask


# --- what it shows


def test_it_opens_from_disk_at_the_comparison_and_asks_nothing_of_anyone(page, file, made):
    assert [file.as_uri()] == [each for each in page.requests if not each.startswith(("data:", "blob:"))]
    assert made.result == page.text(".comparison .result")
    assert made.title == page.text("h1")
    assert made.provenance.command == page.text(".provenance code")
    assert f"Comparison · {made.title}" == page.ask("() => document.title")
    assert 0 == page.ask("() => document.querySelectorAll('.rail, .strip, .top select, .search').length")


def test_every_figure_in_the_table_is_the_documents(page, made):
    shown = {row["name"]: row for row in page_document(made)["shown"]["rows"]}
    drawn = page.ask(
        "() => [...document.querySelectorAll('tr[data-measure]')].map((row) => [row.dataset.measure, "
        "...[...row.querySelectorAll('td')].slice(0, 4).map((cell) => cell.textContent)])"
    )

    assert ["pods_failed", "time_to_running_p50_s"] == [name for name, *_ in drawn]
    for name, *cells in drawn:
        found = shown[name]["differences"][0]
        judged = f", {found['judged']}" if found["judged"] else ""
        assert [*shown[name]["values"], found["text"], found["seeds"] + judged] == cells
    assert "median 0 instead of 18" in made.result


def test_what_is_equal_is_left_out_named_and_shown_on_demand(made, file, new_page):
    page = new_page()
    page.open(file, shows=DRAWN)
    folded = page.ask("() => document.querySelector('.folded').textContent")
    page.raw.fill("[aria-label='filter measures']", "victims")
    page.until("() => document.querySelectorAll('tr[data-measure]').length === 1")
    page.raw.fill("[aria-label='filter measures']", "")
    page.raw.click("text=also those that are equal")
    page.until("(n) => document.querySelectorAll('tr[data-measure]').length === n", len(made.measures))

    assert all(line in folded for line in page_document(made)["shown"]["folded"])


def test_a_measure_opens_into_the_values_of_its_seeds(file, new_page):
    page = new_page()
    page.open(file, shows=DRAWN)
    page.raw.click("tr[data-measure=time_to_running_p50_s] button")
    page.until("() => document.querySelector('tr.runs')")
    cells = page.ask(
        "() => [...document.querySelectorAll('tr.runs tbody tr')].map((row) => row.innerText.split('\\t'))"
    )

    assert ["6", "320.0 ms", "350.0 ms"] == cells[6]
    assert 7 == len(cells)


def test_pods_that_fared_alike_are_one_row_and_the_switches_are_named(page):
    table = page.ask("() => [...document.querySelectorAll('.groups tbody tr')].map((row) => row.innerText)")

    assert ["133 ×\tFailed on n1\t→ never created\tunbind\t7\tweb#1"] == [row for row in table if "never" in row]
    assert "kubelet.on_reject\tfail\tfail\tunbind" in page.text("article")


def test_arms_with_the_same_switches_say_so_and_differ_in_nothing(tmp_path, new_page):
    runs = [a_run(arm, seed, pods_failed=2.0) for seed in range(2) for arm in "ab"]
    page = new_page()
    page.open(written(tmp_path, compared(runs, (A, B))), shows=DRAWN)

    assert "The arms have the same switches and the same seeds" in page.text(".result")
    assert ["No measure differs.", "No pod's fate differs."] == [
        page.text(selector) for selector in (".figures .empty", "section:has(> h2:text('Pod by pod')) p")
    ]


@pytest.mark.parametrize("arms", [1, 2])
def test_one_arm_and_runs_that_never_ended_have_a_page(tmp_path, new_page, arms):
    if arms == 1:
        found = compared([a_run("fail", 0, (), rows(2.0, 1.0, 3.0), pods_failed=2.0)], (("fail", ()),))
    else:
        found = compared([a_failed_run("fail"), a_failed_run("unbind")])
    page = new_page()
    page.open(written(tmp_path, found), shows=DRAWN)

    assert found.result == page.text(".result")
    assert ("Figures" if arms == 1 else "line 3: no such node") in page.text("article")


def test_names_from_a_cluster_are_text(tmp_path, new_page):
    fates = {"fail": {HOSTILE: (HOSTILE,)}, "unbind": {}}
    runs = [a_run(arm, 0, fates[arm], pods_failed=ord(arm[0]), **{HOSTILE: ord(arm[0])}) for arm in fates]
    page = new_page()
    page.open(written(tmp_path, compared(runs, title=HOSTILE, scenario=HOSTILE, about=HOSTILE)), shows=DRAWN)

    assert HOSTILE == page.text("h1")
    assert [None, 0] == page.ask("() => [window.pwned ?? null, document.images.length]")


# --- plots


def test_all_plots_have_one_scale_and_the_axes_of_the_pictures(page):
    plots = page.ask(
        "() => [...document.querySelectorAll('.phase-plot')].map((plot) => "
        "[...plot.querySelectorAll('.tick')].map((tick) => tick.textContent))"
    )
    expected = [f"{tick:,.0f}" for tick in ticks(36)] + [name for _, name in time_ticks(2.0)]

    assert [expected, expected] == plots


def test_a_line_ends_at_the_number_of_its_document_and_has_a_sign_and_a_dash(page, made):
    ends = page.ask(
        "() => [...document.querySelectorAll('.phase-plot')].map((plot) => "
        "[...plot.querySelectorAll('text.end')].map((text) => text.textContent))"
    )
    signs = {"pending": "○", "running": "●", "failed": "✕"}
    expected = [[f"{signs[b.phase]} {b.phase} {round(b.median[-1]):,}" for b in arm.bands.phases] for arm in made.arms]

    assert expected == ends
    assert ["2 3", None, "7 3"] == page.ask(
        "() => [...document.querySelector('.phase-plot').querySelectorAll('.median')]"
        ".map((line) => line.getAttribute('stroke-dasharray'))"
    )


def test_a_moment_is_read_by_pointer_and_by_keys_in_all_plots_at_once(file, new_page):
    page = new_page()
    page.open(file, shows=DRAWN)
    first = page.raw.locator(".phase-plot svg").first
    first.focus()
    page.keys("End")
    page.until("() => [...document.querySelectorAll('.readout b')].length === 2")
    texts = page.ask("() => [...document.querySelectorAll('.readout')].map((each) => each.textContent)")
    assert ["2000 ms pending 0; running 15; failed 18 [16.5 … 19.5], 15 to 21"] == texts[:1]
    assert texts[0].partition(" ")[2] in page.ask(
        "() => document.querySelector('.phase-plot svg').getAttribute('aria-valuetext')"
    ).replace(": ", " ")
    page.keys("Escape")
    page.until("() => !document.querySelector('.readout b')")
    first.hover()
    page.until("() => document.querySelectorAll('.moment-line').length === 2")


def test_a_part_of_the_time_is_enlarged_in_all_plots_and_the_table_follows(file, new_page):
    page = new_page()
    page.open(file, shows=DRAWN)
    page.raw.locator(".phase-plot svg").first.focus()
    page.keys("+", "+")
    page.until("() => [...document.querySelectorAll('.tick')].some((tick) => tick.textContent === '300 ms')")
    page.raw.click("summary:text('the plots as a table')")
    assert [name for _, name in time_ticks(0.5)] == page.ask(
        "() => [...document.querySelectorAll('.twin tbody th')].map((each) => each.textContent)"
    )
    page.raw.click("text=whole time")
    page.until("() => [...document.querySelectorAll('.tick')].some((tick) => tick.textContent === '2000 ms')")
    page.raw.select_option(".comparison select", "phase")
    page.until("() => document.querySelectorAll('.phase-plot').length === 3")


def test_axes_are_those_of_the_pictures_for_microseconds_and_for_days(call):
    ends = [0.0004, 0.012, 1.9, 2.0, 31.5, 150.0, 600.0, 7200.0, 30000.0, 900000.0]
    tops = [1, 3, 7, 10, 45, 60, 999, 1599, 100_000]

    for end in ends:
        found = call("axis", "timeTicks", 0, end)
        assert [name for _, name in time_ticks(end)] == [name for _, name in found]
        assert pytest.approx([at_s for at_s, _ in time_ticks(end)]) == [at_s for at_s, _ in found]
    assert [ticks(top) for top in tops] == [call("axis", "ticks", top) for top in tops]


def test_a_part_of_an_axis_has_round_moments_of_its_own(call):
    assert [[60, "60 s"], [80, "80 s"], [100, "100 s"], [120, "120 s"]] == call("axis", "timeTicks", 41, 121)
    assert ["90.0 min", "1.25 s", "12.00 ms"] == [
        call("axis", "momentOn", *each) for each in ((5400, 7200), (1.25, 5), (0.012, 0.03))
    ]


def test_figures_of_single_runs_are_written_as_those_of_the_table(call):
    values = [0, 0.0004, 0.5, 1.5, 2.5, 0.125, 0.0625, -0.0625, 12.345, 999.5, 1000.5, 1001.5, -3.25, 123456.789, None]
    scales = [
        Scale(1.0, "s", 2),
        Scale(1000.0, "ms", 3),
        Scale(1.0, "", 0),
        Scale(1 / 60, "min", 1),
        Scale(1.0, "/s", 2),
    ]
    pairs = list(itertools.product(values, scales))
    found = [call("comparison", "scaled", value, scale._asdict()) for value, scale in pairs]

    assert [scale.text(value) for value, scale in pairs] == found


# --- access, paper, and without scripts


@pytest.mark.parametrize(("scheme", "width"), [("light", 1400), ("dark", 1400), ("light", 390)])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_window(file, new_page, scheme, width):
    page = new_page(scheme=scheme, width=width)
    page.open(file, shows=DRAWN)
    page.ask("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.ask(SETTLE)
    found = [(each["id"], each["nodes"][0]["html"][:160]) for each in Axe().run(page.raw).response["violations"]]

    assert [] == found
    assert page.ask("() => document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth")


def test_it_prints_on_two_sheets_in_light_colours(tmp_path, new_page):
    """As many measures differ as in the runaway."""
    differing = [
        each.name
        for each in MEASURES
        if each.name not in ("pods_failed", "victims", "unbinds", "api_writes", "time_to_running_p50_s")
    ][:20]
    page = new_page(scheme="dark")
    page.open(written(tmp_path, a_comparison(differing=differing, about="What it is about. " * 20)), shows=DRAWN)
    assert 2 == page.sheets()
    page.raw.emulate_media(media="print")

    assert ["#fbfaf7", "none", "none"] == page.ask(
        "() => [getComputedStyle(document.documentElement).getPropertyValue('--paper').trim(), "
        "...['header.top', '.figures input'].map((each) => getComputedStyle(document.querySelector(each)).display)]"
    )


def test_without_scripts_the_sentence_the_table_and_the_command_are_read(file, made, new_page):
    page = new_page(scripts=False)
    page.goto(file)
    text = page.text("body")

    assert "unpacking" not in text
    for each in (made.result, made.provenance.command, "18 [16 … 20]", "lower in 7 of 7, better"):
        assert each in text
    assert "about <it>" in text


# --- recordings beside it


def test_recordings_of_one_seed_are_opened_from_the_comparison(tmp_path, new_page):
    found = a_comparison(recordings=str(recorded_pair(tmp_path)), scenario="made-up")
    page = new_page()
    page.open(written(tmp_path, found))
    assert "the only one that is recorded" in page.text(".recorded")
    page.raw.click("text=where fail and unbind part")
    page.until("() => document.querySelector('[data-differences]')")
    page.raw.go_back()
    page.until("() => document.querySelector('.recorded')")
    page.raw.click("text=look at unbind")
    page.until("() => __keplab.state.route.value.id === 'cluster' && document.querySelector('.picture canvas')")

    names = page.ask("() => [...document.querySelectorAll('.rail .name')].map((each) => each.textContent)")
    assert {"Comparison", "Cluster", "Difference"} <= set(names)
    assert "unbind · seed 3" == page.ask("() => document.querySelector('.top select').selectedOptions[0].textContent")


def test_a_thousand_seeds_are_as_many_dots_as_can_be_seen_and_the_rest_is_counted(tmp_path, new_page):
    values = [float(seed % 3) for seed in range(1000)]
    runs = [
        a_run(arm, seed, pods_failed=value + (arm == "fail"))
        for seed, value in enumerate(values)
        for arm in ("fail", "unbind")
    ]
    page = new_page()
    page.open(written(tmp_path, compared(runs)), shows=DRAWN)
    rows = page.ask(
        "() => [...document.querySelectorAll('.dots g')].map((row) => row.querySelectorAll('circle').length)"
    )
    page.raw.click("tr[data-measure=pods_failed] button")
    page.until("() => document.querySelector('tr.runs')")

    assert [3, 3] == rows
    assert "fail, 334 seeds: 1" == page.ask("() => document.querySelector('.dots title').textContent")
    assert "800 more seeds are in the JSON document." in page.text("tr.runs")


# --- single runs


def test_the_page_of_a_run_has_what_was_expected_its_figures_and_its_plot(tmp_path, new_page):
    document = {
        "scenario": HOSTILE, "mode": "simulated", "seed": 3, "switches": ["kubelet.on_reject=unbind"], "digest": "0a1b",
        "passed": False, "error": "", "measures": {"time_to_running_p50_s": 1.5, "unbinds": 0.0}, "virtual_s": 5.0,
        "wall_s": 0.5, "violations": [],
        "expectations": [{"line": 3, "text": "expect x", "passed": False, "seen": HOSTILE, "at_s": 1.25}],
    }  # fmt: skip
    path = tmp_path / "run.html"
    path.write_text(runs_page([RunPage(document, samples=rows(2.0, 1.0, 5.0), command="keplab run x.txt")]))
    page = new_page(scheme="dark")
    page.open(path, shows=DRAWN)
    cells = page.ask(
        "() => [...document.querySelectorAll('section:first-of-type tbody td')].map((cell) => cell.textContent)"
    )

    assert (HOSTILE, f"Run · {HOSTILE}") == (page.text("h1"), page.ask("() => document.title"))
    assert ["1.250 s", "3", "expect x", HOSTILE, "not met"] == cells
    assert 3 == page.ask("() => document.querySelectorAll('.phase-plot .median').length")
    assert "Time to Running, p50\t1.50 s" in page.text("article")
    assert "keplab run x.txt" == page.text(".command code")
    assert [] == [each["id"] for each in Axe().run(page.raw).response["violations"]]
    assert 1 == page.sheets()
