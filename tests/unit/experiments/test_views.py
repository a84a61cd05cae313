"""The page, the picture and the texts of a comparison are made of its document alone, and say the same.

How the page draws is tried in tests/browser/test_comparison.py; here is what it is given."""

import csv
import io
import json
import re

import msgspec
import pytest

from lab.experiments.axis import TICKS_MAX, ticks, time_ticks
from lab.experiments.bands import POINTS, bands_of, thin_rows
from lab.experiments.document import read_document
from lab.experiments.page_document import page_document, page_texts
from lab.experiments.picture import picture
from lab.experiments.plots import DASHES, SIGNS, Frame
from lab.experiments.static_html import plain
from lab.experiments.style import ARMS, COMPONENTS, GRAPHICS, LINE, PAPER, TEXTS, of_svg
from lab.experiments.views import csv_rows, markdown, table, text
from tests.unit.experiments.runs import FAIL, A, B, a_failed_run, a_run, compared, seeds_of

HOSTILE = "<b>&'\"|`"


def a_comparison():
    """Two seeds in two arms, with everything that a page may show."""
    fail = {"web#0": ("Failed on n1",), **{f"web#{number}": ("Failed on n1",) for number in range(1, 570)}}
    rows = [(0.0, 0.0, 0.0, 0.0, 0.0), (0.5, 1.0, 0.0, 0.0, 0.0), (2.0, 0.0, 0.0, 570.0, 0.0)]
    return compared(
        [
            run
            for seed in range(2)
            for run in (
                a_run("fail", seed, fail, rows, pods_failed=570.0 + seed, victims=0.0, unbinds=None, api_writes=9.0),
                a_run(
                    "unbind",
                    seed,
                    {"web#0": ("Running on n2", 1.5)},
                    rows[:2],
                    pods_failed=0.0,
                    victims=0.0,
                    api_writes=9.0,
                ),
            )
        ]
    )


def test_every_view_is_made_of_the_document_that_was_kept():
    made = a_comparison()
    kept = read_document(msgspec.json.encode(made), "x.json")

    for view in (page_document, plain, picture, markdown, csv_rows, text):
        assert view(kept) == view(made)


def test_every_view_has_the_result_and_the_command():
    made = a_comparison()

    for view in (plain, markdown, text, lambda made: json.dumps(page_document(made), ensure_ascii=False)):
        assert "no pod failed: median 0 instead of 570.5 with fail" in view(made)
        assert "keplab compare s.txt --arm fail --arm unbind" in view(made)
        assert "c0ffeec0ffee" in view(made)
        assert "5ca1ab1e5ca1ab1e" in view(made)
        assert "2 CPUs, Python 3.11.7" in view(made)


def test_the_page_has_the_figures_of_the_table_word_by_word():
    made = a_comparison()
    heading, rows = table(made, made.measures)
    said = [
        [measure.label, *row.values, found.text, found.seeds + (f", {found.judged}" if found.judged else "")]
        for measure, row in zip(made.measures, page_texts(made).rows, strict=True)
        for found in row.differences
    ]

    assert rows == said
    assert ["", "fail", "unbind", "unbind − fail", "seeds"] == heading


def test_the_page_says_what_a_terminal_says_beside_the_figures():
    made = a_comparison()
    found = page_texts(made)

    assert "1,140 pods differ, matched by owner and order of creation." == found.pods
    assert ["about <it>"] == found.about
    assert "Scenario s <1>, simulated in virtual time, 2 seeds an arm." == found.note
    assert "95 % bootstrap interval" in found.note_of_seeds
    assert ["pods_failed"] == found.first
    assert [f"{name}: {what}" for name, what in found.where] == text(made).splitlines()[-len(found.where) - 1 : -1]
    assert "" == page_texts(compared([a_run(arm, 0, pods_failed=2.0) for arm in "ab"], (A, B))).note_of_seeds


def test_a_difference_is_judged_where_it_is_clear_and_has_its_sign_test():
    better, unclear = (
        page_texts(compared(seeds_of(first, other))).rows[0].differences[0]
        for first, other in (([9, 8, 9, 8, 9, 8], [1, 1, 1, 1, 1, 1]), ([1, 2, 1, 2, 1, 2], [2, 1, 2, 1, 2, 1]))
    )

    assert (True, "better", "lower in 6 of 6", "p = 0.031") == (
        better.is_clear, better.judged, better.seeds, better.p
    )  # fmt: skip
    assert (False, "") == (unclear.is_clear, unclear.judged)


def test_long_lists_of_problems_are_cut_and_counted():
    runs = [a_failed_run(arm, seed, f"line {seed}") for seed in range(30) for arm in ("fail", "unbind")]
    found = page_texts(compared(runs))

    assert (40, 20) == (len(found.problems), found.problems_left)
    assert "fail, seed 0: line 0" == found.problems[0]


def test_what_is_read_without_scripts_escapes_what_came_from_a_cluster():
    runs = [a_run(arm, 0, {HOSTILE: (HOSTILE + arm,)}, **{HOSTILE: ord(arm[0])}) for arm in ("fail", "unbind")]
    runs += [a_failed_run("unbind", 1, HOSTILE)]
    found = plain(compared(runs, title=HOSTILE, scenario=HOSTILE, about=HOSTILE))

    assert HOSTILE not in found
    assert "<b>&" not in found
    assert not re.search(r"<script|https?:|@import|url\(|<link|<img|onload|style=", found)
    assert all(
        found.count(f"<{tag}>") == found.count(f"</{tag}>") for tag in ("h1", "h2", "p", "table", "tr", "td", "ul")
    )


def test_where_two_arms_part_is_a_command_away():
    command = "keplab diff experiments/s.txt --arm fail:kubelet.on_reject=fail --arm unbind:kubelet.on_reject=unbind"

    assert f"where they part: {command}" in text(a_comparison())
    assert "where they part" not in text(compared([a_run(arm, 0, pods_failed=2.0) for arm in "ab"], (A, B)))


def test_pods_that_fared_alike_are_one_row():
    made = a_comparison()

    assert "1,138 × Failed on n1 → never created (unbind, 2 seeds, e.g. web#1)" in text(made)
    assert len(plain(made)) < 10_000


def test_measures_that_do_not_differ_are_folded_and_not_in_the_table():
    made = a_comparison()
    table, _, rest = markdown(made).partition("<details>")

    assert "Pods failed" in table
    assert "Victims" not in table
    assert "2 measures do not differ: API writes (without heartbeats) (9); 0: Victims of preemption." in rest
    assert "1 measure has no value: Unbinds." in rest
    assert "Victims of preemption" not in text(made), "a terminal is spared those that are 0"
    assert "1 are 0" in text(made)


def test_markdown_cannot_be_broken_by_names():
    runs = [a_run(arm, 0, {"a|b": (f"x|{arm}",)}, **{"we|ird": float(len(arm))}) for arm in ("fail", "unbind")]
    rows = [line for line in markdown(compared(runs)).splitlines() if line.startswith("|")]

    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows[:3])
    assert "we\\|ird" in rows[2]


def test_markdown_shows_what_has_a_direction_and_folds_the_rest():
    runs = [
        a_run(arm, seed, {}, pods_failed=failed + seed, victims=float(victims))
        for arm, failed, swing in (("fail", 5.0, (0, 1)), ("unbind", 1.0, (1, 0)))
        for seed, victims in enumerate(swing)
    ]
    table, _, rest = markdown(compared(runs)).partition("<details>")

    assert "| Pods failed |" in table
    assert "Victims of preemption" not in table
    assert "| Victims of preemption |" in rest.partition("</details>")[0]


def test_markdown_folds_nothing_where_no_direction_is_clear():
    runs = [
        a_run(arm, seed, {}, victims=float((arm == "fail") == seed)) for seed in range(2) for arm in ("fail", "unbind")
    ]

    assert "| Victims of preemption |" in markdown(compared(runs)).partition("<details>")[0]


def test_markdown_links_no_pod_to_an_issue_and_has_the_command_once_to_be_copied():
    runs = [a_run(arm, 0, {"deployment/web#3": (arm,)}, pods_failed=float(len(arm))) for arm in ("fail", "unbind")]
    shown = markdown(compared(runs))

    assert "e.g. <code>deployment/web#3</code>)" in shown
    assert shown.count("keplab compare") == 1
    assert "</details>\n\n```sh\nkeplab compare s.txt --arm fail --arm unbind\n```\n\n<sub>keplab " in shown


def test_csv_has_a_line_for_each_arm_seed_and_measure():
    made = compared([*seeds_of([5, None], [1, 2]), a_failed_run("fail", 2)])
    rows = list(csv.DictReader(io.StringIO(csv_rows(made))))

    assert [(row["arm"], row["seed"], row["value"]) for row in rows] == [
        ("fail", "0", "5"),
        ("fail", "1", ""),
        ("fail", "2", ""),
        ("unbind", "0", "1"),
        ("unbind", "1", "2"),
    ]
    assert {(row["measure"], row["mode"]) for row in rows} == {("pods_failed", "simulated")}


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_narrow_terminal_gets_a_line_for_each_arm_and_no_broken_table(width):
    made = a_comparison()
    figures = text(made, width).split("\n\n")[1]

    if width < 100:
        assert figures.splitlines()[:2] == ["Pods failed", "  fail    570.5 [570.2 … 570.8]"]
        assert all(len(line) <= max(width, 60) for line in figures.splitlines())
    else:
        assert figures.splitlines()[0].split() == ["fail", "unbind", "unbind", "−", "fail", "seeds"]


def test_equal_arms_and_one_arm_have_views_too():
    same = compared([a_run(arm, 0, pods_failed=2.0) for arm in "ab"], (A, B))
    alone = compared([a_run("fail", 0, pods_failed=2.0)], (FAIL,))

    assert "No pod's fate differs." == page_texts(same).pods
    assert "What differs" not in plain(same)
    assert "Figures" in plain(alone)
    assert "Pod by pod" not in plain(alone)
    for made in (same, alone):
        assert made.result.split(":")[0] in markdown(made)


def test_a_comparison_without_a_single_run_that_ended_has_views():
    made = compared([a_failed_run("fail"), a_failed_run("unbind")])

    assert "nothing to compare" in plain(made)
    assert "line 3: no such node" in text(made)


# --- plots


def test_all_arms_are_drawn_on_one_scale():
    made = a_comparison()
    frame = Frame(made.arms)
    plots = picture(made).split("<g transform='translate(0,")[1:]

    assert (frame.end_s, frame.top) == (2.0, 570.0)
    axes = [re.findall(r"text-anchor='[a-z]+'>([^<]+)<", plot) for plot in plots]
    assert axes[0] == axes[1] == ["0", "200", "400", "0", "500 ms", "1000 ms", "1500 ms", "2000 ms"]


def test_phases_differ_by_dash_and_sign_and_not_by_colour_alone():
    assert len(set(DASHES.values())) == len(set(SIGNS.values())) == len(SIGNS) == 4
    shown = picture(a_comparison())
    assert {"○", "✕"} <= set(shown)
    assert ">✕</tspan> failed 570<" in shown


@pytest.mark.parametrize(
    ("end_s", "names"),
    [
        (0.0004, ["0", "100 µs", "200 µs", "300 µs", "400 µs"]),
        (0.012, ["0", "2 ms", "4 ms", "6 ms", "8 ms", "10 ms", "12 ms"]),
        (1.9, ["0", "500 ms", "1000 ms", "1500 ms"]),
        (31.5, ["0", "10 s", "20 s", "30 s"]),
        (150.0, ["0", "30 s", "60 s", "90 s", "120 s", "150 s"]),
        (600.0, ["0", "2 min", "4 min", "6 min", "8 min", "10 min"]),
        (7200.0, ["0", "20 min", "40 min", "60 min", "80 min", "100 min", "120 min"]),
        (30000.0, ["0", "2 h", "4 h", "6 h", "8 h"]),
    ],
)
def test_an_axis_of_time_is_right_for_milliseconds_and_for_hours(end_s, names):
    found = time_ticks(end_s)

    assert [name for _, name in found] == names
    assert len(found) <= TICKS_MAX + 1
    assert all(at_s <= end_s * 1.001 for at_s, _ in found)


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        (1, [0, 1]),
        (3, [0, 1, 2, 3]),
        (7, [0, 2, 4, 6]),
        (10, [0, 5, 10]),
        (45, [0, 10, 20, 30, 40]),
        (60, [0, 20, 40, 60]),
        (999, [0, 200, 400, 600, 800]),
    ],
)
def test_an_axis_has_two_to_five_round_steps(top, expected):
    assert ticks(top) == expected


def test_bands_are_quantiles_over_seeds_of_counts_that_hold_until_they_change():
    runs = [
        [(0.0, 0.0, 0.0, 0.0, 0.0), (1.0, 0.0, float(seed), 0.0, 0.0), (2.0, 0.0, 9.0, 0.0, 0.0)] for seed in range(5)
    ]
    bands = bands_of(runs)
    running = next(band for band in bands.phases if band.phase == "running")
    before, after = (next(i for i, at in enumerate(bands.at_s) if at > moment) for moment in (0.9, 1.1))

    assert len(bands.at_s) == POINTS
    assert (bands.at_s[0], bands.at_s[-1]) == (0.0, 2.0)
    assert (running.low[before], running.high[before]) == (0.0, 0.0)
    assert [getattr(running, name)[after] for name in ("low", "q25", "median", "q75", "high")] == [0, 1, 2, 3, 4]
    assert running.median[-1] == 9.0
    assert [band.phase for band in bands.phases] == ["pending", "running"], "phases that never occur have no line"
    assert bands_of([]).phases == []


def test_runs_that_have_ended_say_nothing_of_later_moments():
    short, long = (
        [(0.0, 1.0, 0.0, 0.0, 0.0), (1.0, 5.0, 0.0, 0.0, 0.0)],
        [(0.0, 1.0, 0.0, 0.0, 0.0), (4.0, 1.0, 0.0, 0.0, 0.0)],
    )
    pending = bands_of([short, long]).phases[0]

    assert (pending.low[-1], pending.high[-1]) == (1.0, 1.0)


def test_long_runs_are_thinned_and_keep_both_ends():
    rows = [(number * 0.5, 0.0, float(number), 0.0, 0.0) for number in range(10_000)]
    kept = thin_rows(rows, 100)

    assert 90 <= len(kept) <= 100
    assert (kept[0], kept[-1]) == (rows[0], rows[-1])
    assert thin_rows(rows[:50], 100) == rows[:50]


# --- the palette


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    """Return the contrast ratio of WCAG 2.2, 1.4.3."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_ratio_is_that_of_the_definition():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_graphics_stand_out_from_their_paper(scheme):
    paper = getattr(PAPER, scheme)
    texts = {name: contrast(getattr(colour, scheme), paper) for name, colour in TEXTS.items()}
    drawn = {**GRAPHICS, **COMPONENTS, **{f"arm {at}": each for at, each in enumerate(ARMS)}}
    graphics = {name: contrast(getattr(colour, scheme), paper) for name, colour in drawn.items()}

    assert {name: ratio for name, ratio in texts.items() if ratio < 4.5} == {}
    assert {name: ratio for name, ratio in graphics.items() if ratio < 3.0} == {}


RGB_OF_SIGHT = {
    "all colours": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}
"""Machado, Oliveira and Fernandes 2009, severity 1, of linear RGB."""


def perceived(colour, sight):
    """Return the colour in Oklab as a reader of that sight has it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    rgb = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    r, g, b = (max(0.0, sum(k * c for k, c in zip(row, rgb, strict=True))) for row in RGB_OF_SIGHT[sight])
    cones = (
        (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3),
        (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3),
        (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3),
    )
    rows = (
        (0.2104542553, 0.7936177850, -0.0040720468),
        (1.9779984951, -2.4285922050, 0.4505937099),
        (0.0259040371, 0.7827717662, -0.8086757660),
    )
    return [sum(k * c for k, c in zip(row, cones, strict=True)) for row in rows]


@pytest.mark.parametrize("sight", list(RGB_OF_SIGHT))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_arms_wear_no_colour_of_a_phase_and_the_first_four_stay_apart_for_every_reader(scheme, sight):
    arms = [getattr(each, scheme) for each in ARMS]
    phases = [getattr(each, scheme) for each in GRAPHICS.values()]
    assert not set(arms) & set(phases)

    def apart(one, other):
        return sum((a - b) ** 2 for a, b in zip(perceived(one, sight), perceived(other, sight), strict=True)) ** 0.5

    first = arms[:4]
    pairs = {(a, b): round(apart(a, b), 3) for at, a in enumerate(first) for b in first[at + 1 :]}
    assert {pair: distance for pair, distance in pairs.items() if distance < 0.05} == {}
    shared = {(a, b): round(apart(a, b), 3) for a in arms[:2] for b in phases[1:3]}
    assert {pair: distance for pair, distance in shared.items() if distance < 0.05} == {}


def test_pictures_use_the_palette_alone():
    known = {
        c for colour in (PAPER, LINE, *TEXTS.values(), *GRAPHICS.values(), *COMPONENTS.values(), *ARMS) for c in colour
    }

    assert set(re.findall(r"#[0-9a-f]{6}\b", picture(a_comparison()))) <= known
    assert "var(--failed)" in picture(a_comparison())


def test_dark_is_what_the_viewer_prefers_or_what_was_asked_for():
    assert re.search(r"prefers-color-scheme: dark\) \{ svg", of_svg())
    assert PAPER.dark in picture(a_comparison(), is_dark=True)
    assert PAPER.dark not in picture(a_comparison())
